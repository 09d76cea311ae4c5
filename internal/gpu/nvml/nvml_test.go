// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

// One library per process: all that is asked of it is in one test.
func TestSource(t *testing.T) {
	folder := t.TempDir()
	if _, err := Open(folder); !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("a folder without a library: %v", err)
	}
	build := exec.Command("gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", filepath.Join(folder, library), "testdata/fake.c")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	t.Setenv("FAKE_NVML_BREAK", "version")
	if _, err := Open(folder); !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("a driver that does not answer: %v", err)
	}
	t.Setenv("FAKE_NVML_BREAK", "")
	s, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	cards, err := s.Cards()
	if err != nil {
		t.Fatal(err)
	}
	node := 64
	want := []gpu.Card{
		{UUID: "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", Name: "H100", PCIAddress: "0000:3b:00.0", DriverVersion: "535.104.05", MemoryBytes: 900,
			Architecture: "Hopper", NUMANode: &node, MIG: gpu.MIGOn},
		{UUID: "GPU-00010203-0405-0607-0809-0a0b0c0d0e10", Name: "L4 (simulated)", PCIAddress: "0000:5e:00.0", DriverVersion: "535.104.05", MemoryBytes: 500, Simulated: true, Architecture: "Ada Lovelace", PCIeRoot: "pci0000:5e"},
	}
	if !reflect.DeepEqual(cards, want) {
		t.Errorf("GPUs\n%+v, want\n%+v", cards, want)
	}
	account, err := s.Account(cards[0].UUID)
	if err != nil {
		t.Fatal(err)
	}
	wantAccount := gpu.Account{UsedBytes: 700, Processes: []gpu.Process{
		{PID: 10, Bytes: 300, Known: true}, {PID: 11}, {PID: 12, Bytes: 50, Known: true},
	}}
	if !reflect.DeepEqual(account, wantAccount) {
		t.Errorf("account %+v, want %+v", account, wantAccount)
	}
	if account, err := s.Account(cards[1].UUID); err != nil || account.UsedBytes != 20 || len(account.Processes) != 0 {
		t.Errorf("account %+v, %v", account, err)
	}
	if _, err := s.Account("GPU-none"); !errors.Is(err, gpu.ErrNoCard) {
		t.Errorf("a GPU that is not there: %v", err)
	}
	for _, question := range []string{"memory", "processes"} {
		t.Setenv("FAKE_NVML_BREAK", question)
		if _, err := s.Account(cards[0].UUID); !errors.Is(err, gpu.ErrNoDriver) {
			t.Errorf("without %s: %v", question, err)
		}
	}
	t.Setenv("FAKE_NVML_SAMPLES", "4")
	if activity, err := s.Activity(cards[0].UUID, time.Now()); err != nil || len(activity.Processes) != 4 {
		t.Errorf("processes that come while they are asked for: %+v, %v", activity, err)
	}
	t.Setenv("FAKE_NVML_SAMPLES", "1000")
	if _, err := s.Activity(cards[0].UUID, time.Now()); !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("processes that come again and again: %v", err)
	}
	checkReadings(t, s)
	checkFaults(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	t.Setenv("FAKE_NVML_BREAK", "")
	t.Setenv("FAKE_NVML_UNIFIED", "1")
	checkUnified(t, folder)
}

// checkUnified: a card of whose memory the driver tells nothing has the host's, and the other
// is as it was.
func checkUnified(t *testing.T, folder string) {
	t.Helper()
	s, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cards, _ := s.Cards()
	host, err := hostMemory()
	if err != nil || len(cards) != 2 || cards[0].MemoryShared || cards[0].MemoryBytes != 900 || !cards[1].MemoryShared || cards[1].MemoryBytes != host {
		t.Fatalf("GPUs %+v of a host with %d (%v)", cards, host, err)
	}
	if account, err := s.Account(cards[1].UUID); err != nil || account.UsedBytes != 0 {
		t.Errorf("account %+v, %v", account, err)
	}
	if _, err := s.Telemetry(cards[1].UUID); err != nil {
		t.Error(err)
	}
	if h, err := s.Health(cards[1].UUID); err != nil || h.State != gpu.Unshareable || !strings.Contains(h.Detail, "memory is the host's") {
		t.Errorf("health %+v, %v", h, err)
	}
	if r, _ := s.Reading(cards[1].PCIAddress); !r.MemoryShared || r.MemoryBytes != gpu.Known(host) || r.Use.MemoryUsedBytes.Known {
		t.Errorf("reading %+v", r)
	}
}

// checkReadings: what the library tells is told on, what it does not is unknown.
func checkReadings(t *testing.T, s *Source) {
	t.Helper()
	hot, ok := s.Reading("0000:3b:00.0")
	if !ok || hot.Use.BusyPercent != gpu.Known(75.0) || hot.Use.PowerWatts != gpu.Known(312.5) || hot.Use.TemperatureC != gpu.Known(81.0) ||
		hot.Use.ClockMHz.Known || hot.Use.MemoryUsedBytes != gpu.Known(uint64(700)) {
		t.Errorf("use %+v", hot.Use)
	}
	if c := hot.Condition; c.CorrectedErrors != gpu.Known(uint64(4)) || c.UncorrectedErrors != gpu.Known(uint64(0)) ||
		c.Throttled != gpu.Known("slowed down: too hot") || len(c.Troubles) != 0 {
		t.Errorf("condition %+v", c)
	}
	if hot.MIG != gpu.Known(true) || len(hot.Instances) != 1 || hot.Instances[0].MemoryBytes != gpu.Known(uint64(500)) ||
		*hot.Instances[0].MIG != (gpu.MIGPlace{GPU: 3, Compute: 1}) {
		t.Errorf("MIG %v, instances %+v", hot.MIG, hot.Instances)
	}
	old, ok := s.Reading("0000:5e:00.0")
	if !ok || old.Use.BusyPercent.Known || old.MIG.Known || old.Condition.CorrectedErrors.Known || old.Condition.Throttled != gpu.Known("") {
		t.Errorf("the second GPU: %+v", old)
	}
	// Neither can be shared: one is divided, one is for one process.
	for uuid, word := range map[string]string{hot.UUID.Value: "MIG mode is on", old.UUID.Value: "exclusive"} {
		if h, err := s.Health(uuid); err != nil || h.State != gpu.Unshareable || !strings.Contains(h.Detail, word) {
			t.Errorf("%s: %+v, %v, want %s", uuid, h, err, word)
		}
	}
	if _, ok := s.Reading("0000:00:00.0"); ok {
		t.Error("a GPU that is not there")
	}
	want := []gpu.Link{{A: "0000:3b:00.0", B: "0000:5e:00.0", Kind: "nvlink", Lanes: gpu.Known(3)}}
	if links := s.Links(); !reflect.DeepEqual(links, want) {
		t.Errorf("links %+v, want %+v", links, want)
	}
}

// checkFaults: whatever the library answers at once, the wait for faults ends, and
// only what was asked for is a fault.
func checkFaults(t *testing.T, s *Source) {
	t.Helper()
	for answer, want := range map[string]struct {
		faults int
		err    error
	}{
		"0 8":     {maxFaults, nil}, // an XID
		"0 0":     {0, nil},         // zeros, as the null driver's
		"0 1":     {0, nil},         // of another type
		"10 8":    {0, nil},         // a timeout
		"3 8":     {0, gpu.ErrNotSupported},
		"15 8":    {0, gpu.ErrNoCard}, // the card is lost
		"999 8":   {0, gpu.ErrNoDriver},
		"1 0":     {0, gpu.ErrNoDriver}, // not initialised
		"-1 0":    {0, gpu.ErrNoDriver},
		"12345 8": {0, gpu.ErrNoDriver},
	} {
		t.Setenv("FAKE_NVML_EVENTS", answer)
		faults, err := s.Faults(time.Hour)
		if len(faults) != want.faults || !errors.Is(err, want.err) {
			t.Errorf("events answered with %q: %d faults, %v; want %d, %v", answer, len(faults), err, want.faults, want.err)
		}
		for _, f := range faults {
			if f.UUID != s.cards[0].UUID || f.XID != 79 {
				t.Errorf("fault %+v", f)
			}
		}
	}
}

func TestAverages(t *testing.T) {
	got := averages([]nvml.ProcessUtilizationSample{
		{Pid: 7, TimeStamp: 200, SmUtil: 40}, {Pid: 8, TimeStamp: 200, SmUtil: 60}, {Pid: 7, TimeStamp: 300, SmUtil: 20},
		{Pid: 9, TimeStamp: 0, SmUtil: 99}, {Pid: 7, TimeStamp: 100, SmUtil: 100}, {Pid: 8, TimeStamp: 300, SmUtil: 4000},
	}, 100)
	want := []gpu.ProcessActivity{{PID: 7, Percent: 30}, {PID: 8, Percent: 80}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := averages(nil, 0); got != nil {
		t.Errorf("none: %v", got)
	}
}
