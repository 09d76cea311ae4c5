// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/divvy-gpu/divvy/internal/gpu/inventory"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/amd"
	"github.com/divvy-gpu/divvy/internal/partition/kernel"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
	"github.com/divvy-gpu/divvy/internal/partition/sriov"
	"github.com/divvy-gpu/divvy/internal/partition/tool"
	"github.com/divvy-gpu/divvy/internal/partition/vfio"
	"github.com/divvy-gpu/divvy/internal/partition/vgpu"
)

func all(k *kernel.Kernel) partition.Techniques {
	return partition.Techniques{amd.New(k), sriov.New(k), vgpu.New(k), vgpu.GVTg(k), vfio.New(k)}
}

// TestOutside: nothing but what is below sys is written, and recorded machines do
// not change.
func TestOutside(t *testing.T) {
	tree := sysfs.Of(fstest.MapFS{})
	k := kernel.New(inventory.Sources{Tree: tree}, tool.Machine{Tree: tree})
	for _, s := range []partition.Step{
		{Action: partition.ActionWrite, File: "etc/passwd"}, {Action: partition.ActionWrite, File: "sys/../etc/passwd"}, {Action: "other", File: "sys/a"}, {Action: partition.ActionWrite, File: "sys/a"},
		{Action: partition.ActionRun, File: "../bin/true"}, {Action: partition.ActionRun, File: "usr/bin/true"},
	} {
		if err := k.Do(t.Context(), s); err == nil {
			t.Errorf("done: %+v", s)
		}
	}
	if _, err := machine.New(k, nil, all(k)).Observe(t.Context(), "0000:01:00.0"); err == nil {
		t.Error("observed a GPU that is not there")
	}
}

// FuzzPlans observes machines of arbitrary files and plans goals for them: what is
// planned is written below sys, or is a program of the vendor's, and leads to a state that needs no steps.
func FuzzPlans(f *testing.F) {
	products, err := mig.Default()
	if err != nil {
		f.Fatal(err)
	}
	goals := []string{
		"amd: {compute: QPX}", "amd: {memory: NPS1}", "sriov: {vfs: 2, autoprobe: false, each: {exec_quantum_ms: 7, vram_quota: 9}}", "vgpu: {devices: {NVIDIA A40-12Q: 1}}", "sriov: {vfs: 32}", "vgpu: {devices: {GRID T4-2Q: 2}, scheduler: equal-share}",
		"gvtg: {devices: {i915-GVTg_V5_8: 1}}", "sriov: {vfs: 0}, vfio: {enabled: true}", "vfio: {enabled: false}",
	}
	for _, name := range []string{"flex170", "gvtg-laptop", "nvidia-vfio", "nvidia-mdev", "nvidia-off", "others", "mixed", "battlemage", "mi210-xgmi", "../../../partition/amd/testdata/hive", "../../../partition/sriov/testdata/gim"} {
		raw, err := os.ReadFile(filepath.Join("../../gpu/testdata/machines", name+".txtar"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		records, err := sysfs.ParseArchive(raw)
		if err != nil || len(records) > 1000 {
			return
		}
		files := fstest.MapFS{}
		for _, r := range records {
			files[r.Name] = &fstest.MapFile{Data: []byte(r.Data), Mode: 0o644}
			if r.Target != "" {
				files[r.Name] = &fstest.MapFile{Data: []byte(r.Target), Mode: fs.ModeSymlink | 0o777}
			}
		}
		if circular(files) {
			return // a kernel's have no such links, and MapFS would follow them without end
		}
		tree := sysfs.Of(files)
		k := kernel.New(inventory.Sources{Tree: tree, Products: products}, tool.Machine{Tree: tree})
		planners := all(k)
		state, err := machine.New(k, nil, planners).State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range goals {
			goal, err := planners.ParseGoal([]byte("schema: " + partition.SchemaGoal + "\ncards: [{" + text + "}]"))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range (partition.Planner{Techniques: planners}).Plan(state, goal).Cards {
				for _, s := range p.Steps {
					program := s.Action == partition.ActionRun && strings.HasSuffix(s.File, "usr/lib/nvidia/sriov-manage")
					if !program && !strings.HasPrefix(s.File, "sys/") || !fs.ValidPath(s.File) || len(s.Value) > 200 {
						t.Errorf("%s", s)
					}
				}
				if p.Refused != "" {
					if p.Reason == "" || len(p.Steps) > 0 {
						t.Errorf("refused: %+v", p)
					}
					continue
				}
				if again := planners.Steps(p.After, p.After); len(again) > 0 {
					t.Errorf("from what is planned to itself: %v", again)
				}
			}
		}
	})
}

// circular says whether a link leads back to itself, or through more than 100 others.
func circular(files fstest.MapFS) bool {
	step := func(name string) (string, bool) {
		for end := range len(name) + 1 {
			if end < len(name) && name[end] != '/' {
				continue
			}
			if f := files[name[:end]]; f != nil && f.Mode&fs.ModeSymlink != 0 {
				return path.Join(path.Dir(name[:end]), string(f.Data), name[end:]), true
			}
		}
		return "", false
	}
	for name := range files {
		next, more := step(name)
		for n := 0; more; n++ {
			if n == 100 {
				return true
			}
			next, more = step(next)
		}
	}
	return false
}
