// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
)

// TestPlansOfMachines compares the plans for the goals MACHINE.WORD.yaml in
// testdata/partition, and what show says of each recorded machine and of what its
// guests can be given, with golden files beside them.
func TestPlansOfMachines(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	machines, err := filepath.Glob("../gpu/testdata/machines/*.txtar")
	if err != nil || len(machines) < 10 {
		t.Fatalf("%d machines, %v", len(machines), err)
	}
	for _, machine := range machines {
		name := strings.TrimSuffix(filepath.Base(machine), ".txtar")
		t.Run(name, func(t *testing.T) {
			root := t.TempDir() // once for all commands
			if _, err := fakekernel.Unpack(machine, root); err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata/partition", name+".show"), "partition", "show", "--root", root)
			golden(t, filepath.Join("testdata/partition", name+".libvirt"), "partition", "show", "--root", root, "-o", "libvirt")
			golden(t, filepath.Join("testdata/partition", name+".qemu"), "partition", "show", "--root", root, "-o", "qemu")
			goals, err := filepath.Glob(filepath.Join("testdata/partition", name+".*.yaml"))
			if err != nil || len(goals) == 0 {
				t.Fatalf("%d goals, %v", len(goals), err)
			}
			for _, goal := range goals {
				golden(t, strings.TrimSuffix(goal, ".yaml")+".plan", "partition", "plan", goal, "--root", root)
			}
		})
	}
}

// golden compares a command's output and exit code with a file.
func golden(t *testing.T, name string, arguments ...string) {
	t.Helper()
	var out, complaints bytes.Buffer
	code := Main(arguments, strings.NewReader(""), &out, &complaints)
	got := fmt.Sprintf("%s%sexit code %d\n", out.String(), complaints.String(), code)
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%v differs from %s:\n%s", arguments, name, got)
	}
}

// TestExamples: each file in examples/partitions is a goal, and each technique of
// hardware has one.
func TestExamples(t *testing.T) {
	names, err := filepath.Glob("../../examples/partitions/*.yaml")
	if err != nil || len(names) < 5 {
		t.Fatalf("%d examples, %v", len(names), err)
	}
	fields := ""
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := partition.ParseGoal(raw, ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		fields += string(raw)
	}
	for _, field := range []string{"mig:", "amd:", "sriov:", "vgpu:", "gvtg:", "vfio:"} {
		if !strings.Contains(fields, field) {
			t.Errorf("no example has %s", field)
		}
	}
}
