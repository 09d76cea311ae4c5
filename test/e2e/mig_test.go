// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// divided is a host whose first card is divided by divvy partition.
type divided struct {
	*host
	journal string
}

// newDivided starts a simulator alone.
func newDivided(t *testing.T, cards string) *divided {
	t.Helper()
	h := newCards(t, hostOptions{cards: cards})
	return &divided{host: h, journal: filepath.Join(h.directory, "partition.journal")}
}

// goal writes a file of what the first card should be: profiles with counts, ""
// for MIG off.
func (d *divided) goal(t testing.TB, devices string) string {
	t.Helper()
	mig := "{enabled: false}"
	if devices != "" {
		mig = "{enabled: true, devices: {" + devices + "}}"
	}
	path := filepath.Join(t.TempDir(), "goal.yaml")
	text := "schema: divvy.partition/v1\ncards: [{match: {index: [0]}, mig: " + mig + "}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// nothing is a goal that speaks of no card: its apply ends what was begun, and
// does no more.
func (d *divided) nothing(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nothing.yaml")
	if err := os.WriteFile(path, []byte("schema: divvy.partition/v1\ncards: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (d *divided) applyArgs(goal string, more ...string) []string {
	return append([]string{"partition", "apply", goal, "--driver-dir", d.DriverDirectory, "--journal", d.journal}, more...)
}

// apply runs divvy partition apply, and wants an exit code.
func (d *divided) apply(t testing.TB, goal string, code int, more ...string) outcome {
	t.Helper()
	got := run(t, d.Bare(), divvy(t), d.applyArgs(goal, more...)...)
	if got.code != code {
		t.Fatalf("apply: code %d, want %d\n%s%s", got.code, code, got.stdout, got.stderr)
	}
	return got
}

// shownInstance is an instance in divvy partition show --json.
type shownInstance struct {
	Profile string   `json:"profile"`
	Start   int      `json:"start"`
	Compute []int    `json:"compute"`
	Devices []string `json:"devices"`
}

// show is how the first card is divided.
func (d *divided) show(t testing.TB) (mig bool, instances []shownInstance) {
	t.Helper()
	got := run(t, d.Bare(), divvy(t), "partition", "show", "--json", "--driver-dir", d.DriverDirectory)
	var shown struct {
		Cards []struct {
			MIG       bool            `json:"mig"`
			Instances []shownInstance `json:"instances"`
		} `json:"cards"`
	}
	if err := json.Unmarshal([]byte(got.stdout), &shown); err != nil || len(shown.Cards) == 0 {
		t.Fatalf("show: code %d, %v\n%s%s", got.code, err, got.stdout, got.stderr)
	}
	return shown.Cards[0].MIG, shown.Cards[0].Instances
}

// layout words how the first card is divided, whatever numbers its instances have.
func (d *divided) layout(t testing.TB) string {
	t.Helper()
	mig, instances := d.show(t)
	words := []string{fmt.Sprint("mig ", mig)}
	for _, i := range instances {
		words = append(words, fmt.Sprint(i.Start, ":", i.Profile, i.Compute))
	}
	return strings.Join(words, " ")
}

// inside is the environment of a program in an instance, by the name of the MIG
// device that fills it.
func (d *divided) inside(device string) []string {
	return append(d.Unheld(), "CUDA_VISIBLE_DEVICES="+device)
}

// devices are the MIG devices by profile, in order of start.
func (d *divided) devices(t testing.TB) map[string][]string {
	t.Helper()
	_, instances := d.show(t)
	found := map[string][]string{}
	for _, i := range instances {
		if len(i.Devices) != 1 || !strings.HasPrefix(i.Devices[0], "MIG-") {
			t.Fatalf("devices of %+v", i)
		}
		found[i.Profile] = append(found[i.Profile], i.Devices[0])
	}
	return found
}

const (
	mix   = "3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 2"
	seven = "1g.10gb: 7"
)

// From an empty card to a mix in which programs compute, to seven small ones,
// which waits for a program in the way. Memory and time are those of the
// profiles, by the simulator's own account.
func TestMIGEndToEnd(t *testing.T) {
	d := newDivided(t, "H100-80GB")
	truth := d.truth(t)
	if got := d.layout(t); got != "mig false" {
		t.Fatalf("in the beginning: %s", got)
	}
	d.apply(t, d.goal(t, mix), 0)
	before := d.layout(t)
	if before != "mig true 0:2g.20gb[2] 2:1g.10gb[1] 3:1g.10gb[1] 4:3g.40gb[3]" {
		t.Fatalf("the mix: %s", before)
	}
	devices := d.devices(t)
	for _, profile := range []string{"1g.10gb", "3g.40gb"} {
		if _, err := runExample(t, d.inside(devices[profile][0]), "matmul"); err != nil {
			t.Errorf("in a %s: %v", profile, err)
		}
	}
	d.seeTheirOwn(t, truth, devices)
	user := d.runBeside(t, truth, devices)

	got := d.apply(t, d.goal(t, seven), 4)
	if want := fmt.Sprintf("3g.40gb at 4 is used by %d (burn)", user.pid); !strings.Contains(got.stdout, want) {
		t.Errorf("refused without %q:\n%s%s", want, got.stdout, got.stderr)
	}
	if now := d.layout(t); now != before {
		t.Errorf("after a refusal: %s", now)
	}
	if s := onCard(t, truth, user.pid); s.Dead {
		t.Errorf("the program did not survive the refusal: %+v", s)
	}
	user.kill()
	eventually(t, "the simulator knows the end of the program", func() error {
		if s := onCard(t, truth, user.pid); !s.Dead {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}, d.simulator)
	d.apply(t, d.goal(t, seven), 0)
	if now := d.layout(t); strings.Count(now, "1g.10gb[1]") != 7 {
		t.Errorf("then: %s", now)
	}
	again := d.apply(t, d.goal(t, seven), 0)
	if !strings.Contains(again.stdout, "nothing to do") || strings.Contains(again.stdout, "done") {
		t.Errorf("again:\n%s", again.stdout)
	}
	if _, err := runExample(t, d.inside(d.devices(t)["1g.10gb"][6]), "vectoradd"); err != nil {
		t.Errorf("in the seventh: %v", err)
	}
}

// seeTheirOwn: programs beside each other see one device each, with the memory of
// its profile, and fill it without the other noticing.
func (d *divided) seeTheirOwn(t *testing.T, truth *simgpu.Truth, devices map[string][]string) {
	t.Helper()
	want := map[string]uint64{"1g.10gb": 9984 * mib, "2g.20gb": 20096 * mib, "3g.40gb": 40448 * mib}
	holders := map[string]*bench.Holder{}
	seen := map[string]bool{}
	for _, profile := range slices.Sorted(maps.Keys(want)) {
		h := d.holderIn(t, d.inside(devices[profile][0]))
		words := do(t, h, "cards")
		if len(words) != 2 || words[0] != "1" || seen[words[1]] {
			t.Errorf("in a %s: cards %v", profile, words)
		}
		seen[words[len(words)-1]] = true
		do(t, h, "start")
		holders[profile] = h
	}
	for profile, h := range holders {
		alloc(t, h, want[profile]-contextBytes)
		refused(t, h, outOfMemory, "alloc %d", 1<<20)
	}
	for profile, h := range holders {
		if free, total := room(t, h); total != want[profile] || free != 0 {
			t.Errorf("in a %s: %d of %d bytes are free, want 0 of %d", profile, free, total, want[profile])
		}
		if holds := held(t, truth, h.PID); holds != want[profile] {
			t.Errorf("in a %s: the simulator knows of %d bytes, want %d", profile, holds, want[profile])
		}
		h.Kill()
	}
}

// held is what a process holds of all cards, by the simulator's account.
func held(t *testing.T, truth *simgpu.Truth, pid int) uint64 {
	t.Helper()
	states, err := truth.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var sum uint64
	for _, s := range states {
		if s.PID == pid {
			sum += s.Bytes
		}
	}
	return sum
}

// runBeside lets two programs want all the time of two devices: each has all of
// its own, and none of the card's or of others'. It leaves the one in the 3g.40gb
// running.
func (d *divided) runBeside(t *testing.T, truth *simgpu.Truth, devices map[string][]string) *burner {
	t.Helper()
	var both []*burner
	for _, profile := range []string{"1g.10gb", "3g.40gb"} {
		// Ahead by so much that a busy host does not starve the card.
		b := d.burnerIn(t, d.inside(devices[profile][0]), "--us", "1000", "--ahead-ms", "500")
		b.start()
		both = append(both, b)
	}
	eventually(t, "both have begun", func() error {
		for _, b := range both {
			if s := onCard(t, truth, b.pid); s.BusyNS == 0 {
				return fmt.Errorf("%+v", s)
			}
		}
		return nil
	}, d.simulator)
	var before []simgpu.TimeState
	for _, b := range both {
		before = append(before, onCard(t, truth, b.pid))
	}
	select {
	case <-time.After(700 * time.Millisecond):
	case <-t.Context().Done():
	}
	for i, b := range both {
		now := onCard(t, truth, b.pid)
		percent := 100 * float64(now.BusyNS-before[i].BusyNS) / float64(now.AtNS-before[i].AtNS)
		if percent < 97 || percent > 101 || now.Card == 0 || now.Card == before[1-i].Card {
			t.Errorf("process %d had %.1f %% of device %d", b.pid, percent, now.Card)
		}
	}
	both[0].kill()
	return both[1]
}

// onCard is what a process had of the one device that it was on.
func onCard(t testing.TB, truth *simgpu.Truth, pid int) simgpu.TimeState {
	t.Helper()
	states, err := truth.CardTime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := simgpu.TimeState{}
	for _, s := range states {
		if s.PID == pid && (s.BusyNS > 0 || found.PID == 0) {
			found = s
		}
	}
	return found
}
