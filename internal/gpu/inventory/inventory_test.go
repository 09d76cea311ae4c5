// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/descriptor"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/mig"
)

var (
	labelName  = regexp.MustCompile(`^divvy\.dev/[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
)

func sources(t testing.TB, tree *sysfs.Tree) Sources {
	t.Helper()
	products, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	builtIn, err := descriptor.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	return Sources{Tree: tree, Products: products, Descriptors: builtIn}
}

func check(t *testing.T, m Machine) {
	t.Helper()
	for name, value := range m.Labels() {
		if !labelName.MatchString(name) || !labelValue.MatchString(value) {
			t.Errorf("label %q=%q", name, value)
		}
	}
	matrix := m.Matrix()
	for i := range matrix {
		for j := range matrix {
			if matrix[i][j] != matrix[j][i] {
				t.Errorf("way from %d to %d is %s, back %s", i, j, matrix[i][j], matrix[j][i])
			}
		}
	}
	for _, d := range m.Devices {
		if !sysfs.IsAddress(d.Address) || d.Name == "" || len(d.Capabilities) == 0 {
			t.Errorf("device %+v", d)
		}
		for _, c := range d.Capabilities {
			if c.Can == gpu.No && c.Reason == "" {
				t.Errorf("%s cannot %s, and nobody says why", d.Address, c.Name)
			}
		}
	}
}

// TestMachines reads every recorded machine by each reader's whole interface.
func TestMachines(t *testing.T) {
	names, err := filepath.Glob("../testdata/machines/*.txtar")
	if err != nil || len(names) < 10 {
		t.Fatalf("%d machines, %v", len(names), err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			tree, err := sysfs.OpenRecorded(name)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := tree.Close(); err != nil {
					t.Error(err)
				}
			}()
			check(t, Read(sources(t, tree)))
			for _, r := range Readers(sources(t, tree)) {
				events, state := r.Events(nil)
				again, _ := r.Events(state)
				if len(events)+len(again) != 0 {
					t.Errorf("events of a machine that does not change: %v %v", events, again)
				}
				for _, ask := range []func() error{
					func() error { _, err := r.Use("0000:ff:1f.7"); return err },
					func() error { _, err := r.Health("0000:ff:1f.7"); return err },
					func() error { _, err := r.Capabilities("0000:ff:1f.7"); return err },
				} {
					if err := ask(); !errors.Is(err, gpu.ErrNoCard) {
						t.Errorf("a GPU that is not there: %v", err)
					}
				}
			}
		})
	}
}

// TestEventsOfFiles: what changes in the kernel's files comes out as events.
func TestEventsOfFiles(t *testing.T) {
	files := fstest.MapFS{}
	const card = "sys/bus/pci/devices/0000:01:00.0/"
	for name, value := range map[string]string{"vendor": "0x1002", "device": "0x740f", "class": "0x038000", "ras/umc_err_count": "ue: 0\nce: 2"} {
		files[card+name] = &fstest.MapFile{Data: []byte(value)}
	}
	amd := func() gpu.Reader { return Readers(sources(t, sysfs.Of(files)))[1] }
	_, state := amd().Events(nil)
	files[card+"ras/umc_err_count"] = &fstest.MapFile{Data: []byte("ue: 1\nce: 2")}
	events, state := amd().Events(state)
	if len(events) != 1 || events[0].Kind != gpu.EventUncorrected {
		t.Errorf("after an error: %+v", events)
	}
	for name := range files {
		delete(files, name)
	}
	if events, _ = amd().Events(state); len(events) != 1 || events[0].Kind != gpu.EventVanished {
		t.Errorf("after the GPU went: %+v", events)
	}
}

// fakeLibrary knows one card, and one lane.
type fakeLibrary struct{}

func (fakeLibrary) Reading(address string) (gpu.Reading, bool) {
	if address != "0000:1a:00.0" {
		return gpu.Reading{}, false
	}
	return gpu.Reading{
		UUID: gpu.Known("GPU-library"), Name: gpu.Known("library's name"), MemoryBytes: gpu.Known(uint64(80 << 30)), MIG: gpu.Known(true),
		Instances: []gpu.Partition{{Kind: gpu.PartitionMIG, ID: "MIG-1", Name: "3g.40gb", Nodes: []string{}}},
		Use:       gpu.Use{BusyPercent: gpu.Known(50.0)}, Condition: gpu.Condition{Throttled: gpu.Known("too hot")},
	}, true
}

func (fakeLibrary) Links() []gpu.Link {
	return []gpu.Link{{A: "0000:1a:00.0", B: "0000:1b:00.0", Kind: "nvlink", Lanes: gpu.Known(4)}}
}

// hostsMemory knows a card whose memory is the host's.
type hostsMemory struct{ fakeLibrary }

func (hostsMemory) Reading(address string) (gpu.Reading, bool) {
	return gpu.Reading{MemoryBytes: gpu.Known(uint64(120 << 30)), MemoryShared: true}, address == "0000:1a:00.0"
}

// TestLibraryOfSharedMemory: it is labelled so, and no share is offered.
func TestLibraryOfSharedMemory(t *testing.T) {
	tree, err := sysfs.OpenRecorded("../testdata/machines/mixed.txtar")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	from := sources(t, tree)
	from.Library = hostsMemory{}
	m := Read(from)
	d := m.Devices[0]
	if d.MemoryBytes.Value != 120<<30 || !d.MemoryShared || m.Labels()[LabelPrefix+"nvidia.memory-shared"] != "true" {
		t.Errorf("%+v", d)
	}
	for _, c := range d.Capabilities {
		if c.Name == gpu.CanShare && (c.Can != gpu.No || !strings.Contains(c.Reason, "memory is the host's")) {
			t.Errorf("%+v", c)
		}
	}
}

// TestLibrary: what the driver's library tells goes over what files tell, for
// the cards that it knows.
func TestLibrary(t *testing.T) {
	tree, err := sysfs.OpenRecorded("../testdata/machines/mixed.txtar")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	from := sources(t, tree)
	from.Library = fakeLibrary{}
	m := Read(from)
	d := m.Devices[0]
	if d.UUID.Value != "GPU-library" || d.MemoryBytes.Value != 80<<30 || len(d.Partitions) != 1 || d.Use.BusyPercent.Value != 50 ||
		d.Health.Throttled.Value != "too hot" || len(d.Use.Holders) != 1 {
		t.Errorf("%+v", d)
	}
	if m.Devices[1].MemoryBytes.Known || m.Matrix()[0][1] != "NVLINK4" || m.Labels()[LabelPrefix+"nvidia.mig"] != "on" {
		t.Errorf("%+v %v %v", m.Devices[1], m.Matrix(), m.Labels())
	}
}

func TestWays(t *testing.T) {
	at := func(node int, root string, bridges ...string) gpu.Device {
		return gpu.Device{NUMANode: gpu.Known(node), Root: gpu.Known(root), Bridges: bridges}
	}
	for _, c := range []struct {
		a, b gpu.Device
		want string
	}{
		{at(0, "r", "p", "u", "d1"), at(0, "r", "p", "u", "d2"), WayPIX},
		{at(0, "r", "p", "u", "d1", "u1", "e1"), at(0, "r", "p", "u", "d2", "u2", "e2"), WayPXB},
		{at(0, "r", "p1"), at(0, "r", "p2"), WayPHB},
		{at(0, "r1", "p"), at(0, "r2", "p"), WayNode},
		{at(0, "r1", "p"), at(1, "r2", "p"), WaySystem},
		{gpu.Device{}, at(1, "r2", "p"), WayUnknown},
	} {
		if got := Way(c.a, c.b); got != c.want {
			t.Errorf("%v to %v: %s, want %s", c.a.Bridges, c.b.Bridges, got, c.want)
		}
	}
}

func TestLabelValue(t *testing.T) {
	for text, want := range map[string]string{
		"NVIDIA H100 80GB HBM3": "NVIDIA-H100-80GB-HBM3", " (x) ": "x", "": "", "---": "", strings.Repeat("a", 62) + " b": strings.Repeat("a", 62),
	} {
		if got := Value(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// FuzzMachine reads machines of arbitrary files: nothing of it may fail, and
// what comes out is as well formed as ever.
func FuzzMachine(f *testing.F) {
	for _, name := range []string{"flex170", "gvtg-laptop", "nvidia-vfio", "others", "mixed"} {
		raw, err := os.ReadFile(filepath.Join("../testdata/machines", name+".txtar"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		records, err := sysfs.ParseArchive(raw)
		if err != nil || len(records) > 2000 {
			return
		}
		files := fstest.MapFS{}
		for _, r := range records {
			file := &fstest.MapFile{Data: []byte(r.Data), Mode: 0o644}
			if r.Target != "" {
				file = &fstest.MapFile{Data: []byte(r.Target), Mode: fs.ModeSymlink | 0o777}
			}
			files[r.Name] = file
		}
		check(t, Read(sources(t, sysfs.Of(files))))
	})
}
