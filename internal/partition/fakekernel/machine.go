// SPDX-License-Identifier: Apache-2.0

package fakekernel

import (
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/gpu/descriptor"
	"github.com/divvy-gpu/divvy/internal/gpu/inventory"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/kernel"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
)

// Technique makes one that a kernel carries out.
type Technique func(*kernel.Kernel) partition.Technique

// Machine is a recorded machine with a fake kernel.
type Machine struct {
	*machine.Machine
	Fake *Kernel
}

// Open makes the machine of an archive in internal/gpu/testdata/machines, as seen
// from a room below internal/partition.
func Open(t testing.TB, name string, techniques ...Technique) Machine {
	t.Helper()
	return OpenArchive(t, "../../gpu/testdata/machines/"+name+".txtar", techniques...)
}

// OpenArchive makes the machine of an archive.
func OpenArchive(t testing.TB, archive string, techniques ...Technique) Machine {
	t.Helper()
	k, fake := OpenKernel(t, archive)
	var all partition.Techniques
	for _, technique := range techniques {
		all = append(all, technique(k))
	}
	return Machine{Machine: machine.New(k, nil, all), Fake: fake}
}

// OpenKernel unpacks the machine of an archive: its files, as the kernel's, and what has
// the kernel's effects on them.
func OpenKernel(t testing.TB, archive string) (*kernel.Kernel, *Kernel) {
	t.Helper()
	fake, err := Unpack(archive, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree, err := sysfs.Open(fake.Folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
	products, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	builtIn, err := descriptor.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	return kernel.New(inventory.Sources{Tree: tree, Products: products, Descriptors: builtIn}, fake), fake
}

// Plan plans the card at an address, with force, which no technique here heeds.
func (m Machine) Plan(t testing.TB, address string, r partition.Rule) partition.CardPlan {
	t.Helper()
	c, err := m.Observe(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	return partition.Planner{Techniques: m.Techniques, Force: true}.Card(c, r)
}

// Plans plans a goal, the text of its rules. All plans are one band.
func (m Machine) Plans(t testing.TB, rules string) []partition.CardPlan {
	t.Helper()
	goal, err := m.Techniques.ParseGoal([]byte("schema: " + partition.SchemaGoal + "\ncards: [" + rules + "]"))
	if err != nil {
		t.Fatal(err)
	}
	state, err := m.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return partition.Planner{Techniques: m.Techniques, Force: true}.Plan(state, goal).Cards
}

// Steps shows the steps of a plan, a line each, or why it is refused.
func Steps(p partition.CardPlan) string {
	var lines []string
	for _, s := range p.Steps {
		lines = append(lines, strings.ReplaceAll(s.String(), "/sys/bus/pci/devices/", ""))
	}
	return strings.Join(append(lines, p.Reason), "\n")
}

// Log is a partition.Log in memory.
type Log struct{ Records [][]byte }

// Append keeps a record.
func (l *Log) Append(record []byte) error {
	l.Records = append(l.Records, record)
	return nil
}

// Apply carries out the plans of a band and fails the test if it does not succeed.
func (m Machine) Apply(t testing.TB, band ...partition.CardPlan) {
	t.Helper()
	if _, err := partition.Apply(t.Context(), m.Techniques, m, &Log{}, band...); err != nil {
		t.Fatal(err)
	}
}

// Ways in which a write or a program fails: before its effect, after it, and in the
// middle, which a write has not.
const (
	early = iota
	late
	torn
)

// Faults is FaultsOf the plan of one card.
func Faults(t *testing.T, open func() Machine, address string, r partition.Rule) {
	t.Helper()
	FaultsOf(t, open, func(m Machine) []partition.CardPlan { return []partition.CardPlan{m.Plan(t, address, r)} })
}

// FaultsOf carries out the plans of a band over kernels that fail: each write and
// each program fails in each way, once with all that comes after (a crash, from
// which the next apply recovers) and once without (a rollback); and one that
// reports success and does nothing. open makes the machine anew. The cards end as
// they were or as they were planned, and both happen.
func FaultsOf(t *testing.T, open func() Machine, plan func(Machine) []partition.CardPlan) {
	t.Helper()
	whole := open()
	band, begun := plan(whole), whole.Fake.Writes
	before := layouts(band)
	if reached(band) {
		t.Fatal("nothing to fail")
	}
	whole.Apply(t, band...)
	ways := []int{early, late}
	if slices.ContainsFunc(band, func(p partition.CardPlan) bool {
		return slices.ContainsFunc(p.Steps, func(s partition.Step) bool { return s.Action == partition.ActionRun })
	}) {
		ways = append(ways, torn)
	}
	for _, crash := range []bool{false, true} {
		ends := map[bool]int{}
		for at := begun + 1; at <= whole.Fake.Writes; at++ {
			for _, way := range ways {
				m := open()
				band := plan(m)
				m.Fake.FailAt, m.Fake.Late, m.Fake.Torn, m.Fake.Dead = at, way == late, way == torn, crash
				kept := &Log{}
				if _, err := partition.Apply(t.Context(), m.Techniques, m, kept, band...); err == nil {
					t.Fatalf("write %d was refused, but the apply succeeded", at)
				}
				m.Fake.FailAt = 0
				if _, err := partition.Recover(t.Context(), m.Techniques, m, kept, kept.Records); err != nil {
					t.Fatalf("write %d, way %d, crash %v: recover: %v", at, way, crash, err)
				}
				again := plan(m)
				there := reached(again)
				if !there && layouts(again) != before {
					t.Fatalf("write %d, way %d, crash %v: left between:\n%s was\n%s", at, way, crash, layouts(again), before)
				}
				ends[there]++
			}
		}
		if ends[false] == 0 || crash && ends[true] == 0 {
			t.Errorf("crash %v: reached or not: %v", crash, ends)
		}
	}
	m := open()
	band = plan(m)
	m.Fake.Lies = true
	if _, err := partition.Apply(t.Context(), m.Techniques, m, &Log{}, band...); err == nil || !strings.Contains(err.Error(), "reported success") {
		t.Errorf("a kernel that does nothing: %v", err)
	}
}

// reached says whether all cards are as wanted.
func reached(band []partition.CardPlan) bool {
	return !slices.ContainsFunc(band, func(p partition.CardPlan) bool { return p.Refused != "" || len(p.Steps) > 0 })
}

func layouts(band []partition.CardPlan) string {
	words := ""
	for _, p := range band {
		words += p.Before.ID() + " " + p.Before.Layout() + "\n"
	}
	return words
}
