// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
	facts "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
	"github.com/divvy-gpu/divvy/internal/partition/sriov"
	"github.com/divvy-gpu/divvy/internal/partition/vgpu"
)

// host is a recorded machine over a fake kernel, one of whose cards a driver has; open
// counts how often that is open.
func host(t *testing.T, recorded string, driver *fakekernel.Driver, open *int) (*machine.Machine, *fakekernel.Kernel) {
	t.Helper()
	k, fake := fakekernel.OpenKernel(t, "../../gpu/testdata/machines/"+recorded+".txtar")
	products, err := facts.Default()
	if err != nil {
		t.Fatal(err)
	}
	d := mig.NewDriver(func() (mig.Source, func() error, error) {
		*open++
		return driver, func() error { *open--; return nil }, nil
	})
	return machine.New(k, d, machine.Config{Products: products}.Techniques(k, d)), fake
}

func openJournal(t *testing.T, path string) *machine.Journal {
	t.Helper()
	j, err := machine.OpenJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestDriverAndKernel: one plan goes through the kernel's files and NVIDIA's
// driver, and that driver is let go of before a card is taken from it.
func TestDriverAndKernel(t *testing.T) {
	driver, open := &fakekernel.Driver{Name: "NVIDIA A40", Address: "0000:5e:00.0", VGPUNow: nvml.VGPU{Mixed: gpu.Known(false), Scheduler: gpu.Known("best-effort")}}, 0
	m, fake := host(t, "nvidia-mdev", driver, &open)
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	defer func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}()
	apply := func(rule string) ([]partition.Step, error) {
		t.Helper()
		goal, err := m.Techniques.ParseGoal([]byte("schema: " + partition.SchemaGoal + "\ncards: [{match: {model: [A40]}, " + rule + "}]"))
		if err != nil {
			t.Fatal(err)
		}
		state, err := m.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m.Apply(t.Context(), j, partition.Planner{Techniques: m.Techniques}.Plan(state, goal).Cards...)
	}
	taken, err := apply("vgpu: {devices: {}, placement: mixed, scheduler: fixed-share}")
	if err != nil || !driver.VGPUNow.Mixed.Value || driver.VGPUNow.Scheduler.Value != "fixed-share" || len(taken) != 3 {
		t.Fatalf("%v, %+v\n%v", err, driver, taken)
	}
	if taken, err := apply("vgpu: {devices: {}, placement: mixed}"); err != nil || len(taken) > 0 {
		t.Errorf("again: %v\n%v", err, taken)
	}
	if err := fake.Run(t.Context(), "usr/lib/nvidia/sriov-manage", "-d", "0000:5e:00.0"); err != nil {
		t.Fatal(err)
	}
	state, err := m.State(t.Context())
	if err != nil || len(state.Cards) != 2 || open != 1 {
		t.Fatalf("%d GPUs, %v, opened %d times", len(state.Cards), err, open)
	}
	if err := m.Do(t.Context(), "0000:5e:00.0", partition.Step{
		Technique: partition.TechniqueVFIO, Action: partition.ActionWrite, File: "sys/bus/pci/drivers/nvidia/unbind", Value: "0000:5e:00.0",
	}); err != nil || open != 0 {
		t.Errorf("%v, the driver is open %d times", err, open)
	}
}

// TestOrder: virtual functions are switched before MIG is, which does not outlive
// that, and carry vGPUs of its instances.
func TestOrder(t *testing.T) {
	products, err := facts.Default()
	if err != nil {
		t.Fatal(err)
	}
	off := partition.Card{Vendor: gpu.VendorNVIDIA, UUID: "GPU-1", Address: "0000:41:00.0", Name: "NVIDIA H100 80GB HBM3", DeviceID: "0x2330"}
	off = off.With(partition.TechniqueMIG, &mig.State{}).With(partition.TechniqueSRIOV, &sriov.Functions{Total: 2, Driver: "nvidia", Tool: "usr/lib/nvidia/sriov-manage"})
	rule := partition.Rule{Wants: partition.Wants{
		partition.TechniqueMIG: &mig.Goal{Enabled: true, Devices: map[string]int{"7g.80gb": 1}}, partition.TechniqueVGPU: &vgpu.Goal{Devices: map[string]int{"NVIDIA H100XM-7-80C": 1}},
	}}
	p := partition.Planner{Techniques: machine.Techniques(products)}.Card(off, rule)
	if got := fakekernel.Steps(p); p.Refused != "" || p.Awaits == "" || !strings.HasPrefix(got, "run /usr/lib/nvidia/sriov-manage -e 0000:41:00.0\nswitch MIG mode on\n") {
		t.Fatalf("%q: %s", p.Refused, got)
	}
	back := machine.Techniques(products).Steps(p.After, p.Before)
	if last := back[len(back)-1].String(); last != "run /usr/lib/nvidia/sriov-manage -d 0000:41:00.0" {
		t.Errorf("the way back ends with %s", last)
	}
}

// TestExplainedGoals: what explain shows is a rule for that very technique, and
// techniques that exclude each other say so, both of them.
func TestExplainedGoals(t *testing.T) {
	all := machine.Techniques(nil)
	named := map[string]partition.Explanation{}
	for _, e := range all.Explanations() {
		named[e.Name] = e
		if e.Goal == "" {
			continue
		}
		g, err := all.ParseGoal([]byte("schema: " + partition.SchemaGoal + "\ncards:\n- " + e.Goal + "\n"))
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
		} else if g.Cards[0].Wants[e.Name] == nil {
			t.Errorf("%s: %+v", e.Name, g)
		}
	}
	for _, e := range named {
		for _, other := range e.Against {
			if !slices.Contains(named[other].Against, e.Name) || !strings.Contains(e.Excludes, other) {
				t.Errorf("%s is against %s, which is against %v", e.Name, other, named[other].Against)
			}
		}
	}
	if len(named) != len(all)+1 {
		t.Errorf("%d ways explained of %d techniques and shares", len(named), len(all))
	}
}

// FuzzParse: what is read of goals and states is written and read again as the same.
func FuzzParse(f *testing.F) {
	all := machine.Techniques(nil)
	f.Add([]byte("version: v1\nmig-configs:\n  a:\n  - devices: [0]\n    mig-enabled: true\n    mig-devices: {1g.5gb: 7}\n"), "a")
	f.Add([]byte("schema: divvy.partition/v1\ncards:\n- match: {index: [0]}\n  mig: {enabled: false}\n"), "")
	f.Add([]byte("schema: divvy.partition.state/v1\ncards:\n- {index: 0, uuid: GPU-1, name: A, mig: true, instances: [{id: 1, profile: 1g.5gb, start: 0}]}\n"), "")
	f.Add([]byte("schema: divvy.partition/v1\ncards:\n- match: {vendor: [amd]}\n  amd: {compute: CPX, memory: NPS4}\n- sriov: {vfs: 2, autoprobe: false, each: {exec_quantum_ms: 20}}\n"), "")
	f.Add([]byte("schema: divvy.partition/v1\ncards:\n- vgpu: {devices: {NVIDIA A40-2Q: 1}, placement: mixed}\n  gvtg: {devices: {i915-GVTg_V5_8: 1}}\n  vfio: {enabled: true}\n"), "")
	f.Add([]byte("schema: divvy.partition.state/v1\ncards:\n- {uuid: a, sriov: {total: 2, on: [{settings: {a: b}}], places: [{folder: x, has: [a]}]}, vgpu: {by: mdev, on: [{address: x}]}, amd: {compute: SPX, computeModes: [SPX]}, vfio: {group: \"1\", functions: [{address: \"0000:01:00.0\", driver: xe}]}}\n"), "")
	f.Fuzz(func(t *testing.T, raw []byte, selected string) {
		if s, err := all.ParseState(raw); err == nil {
			if s.Validate() != nil {
				t.Error("accepted a wrong state")
			}
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			again, err := all.ParseState(text)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if once, err := json.Marshal(again); err != nil || string(once) != string(text) {
				t.Errorf("%v: written and read again:\n%s\n%s", err, text, once)
			}
		}
		g, err := mig.ParseGoal(raw, selected, all)
		if err != nil {
			return
		}
		text, err := g.YAML()
		if err != nil {
			t.Fatal(err)
		}
		back, err := mig.ParseGoal(text, "", all)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if again, err := back.YAML(); err != nil || string(again) != string(text) {
			t.Errorf("%v: written and read again:\n%s\n%s", err, text, again)
		}
	})
}
