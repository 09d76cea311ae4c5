// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/advise"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
)

// fakeMachine is a machine of the archives with a kernel that answers.
type fakeMachine struct {
	folder  string
	cards   *machine.Machine
	journal string
	cdi     string
}

// openFake unpacks an archive without some of its files.
func openFake(t *testing.T, name string, without ...string) *fakeMachine {
	t.Helper()
	k, fake := fakekernel.OpenKernel(t, "../gpu/testdata/machines/"+name+".txtar")
	m := &fakeMachine{folder: fake.Folder, cdi: t.TempDir(), journal: filepath.Join(t.TempDir(), "journal")}
	for _, path := range without {
		if err := os.RemoveAll(filepath.Join(m.folder, path)); err != nil {
			t.Fatal(err)
		}
	}
	products, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	all := machine.Config{Products: products}.Techniques(k, nil)
	for i, technique := range all {
		if slices.Contains([]string{partition.TechniqueMIG, partition.TechniqueMPS, partition.TechniqueReplicas}, technique.Name()) {
			all[i] = partition.Without(technique, "it is not the kernel's")
		}
	}
	m.cards = machine.New(k, nil, all)
	return m
}

// run carries a printed command out: a goal on the fake kernel, else by the program
// with the machine's root and a folder of the test's in the place of /etc/cdi.
func (m *fakeMachine) run(t *testing.T, command string) string {
	t.Helper()
	var out bytes.Buffer
	if text, ok := strings.CutPrefix(command, "divvy partition apply - <<'EOF'\n"); ok {
		goal, err := m.cards.Techniques.ParseGoal([]byte(strings.TrimSuffix(text, "\nEOF")))
		if err != nil {
			t.Fatalf("%v\n%s", err, command)
		}
		a := &app{stdout: &out, stderr: &out, getenv: func(string) string { return "" }}
		log, err := a.openJournal(m.journal)
		if err != nil {
			t.Fatal(err)
		}
		err = a.applyGoal(t.Context(), m.cards, partition.Planner{Techniques: m.cards.Techniques}, goal, log, false)
		if err := errors.Join(err, log.Close()); err != nil {
			t.Fatalf("%v\n%s\n%s", err, command, out.String())
		}
		return out.String()
	}
	if command == "rm -f /etc/cdi/divvy.dev-card_*.json" {
		files, err := filepath.Glob(filepath.Join(m.cdi, "divvy.dev-card_*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%d files to remove, %v", len(files), err)
		}
		for _, file := range files {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		return ""
	}
	words := strings.Fields(command)[1:]
	if strings.HasPrefix(command, "divvy cdi generate") {
		words = append(words, "--output", m.cdi)
	}
	t.Setenv("DIVVY_ROOT", m.folder)
	if code := Main(words, strings.NewReader(""), &out, &out); code != exitOK {
		t.Fatalf("%s: code %d\n%s", command, code, out.String())
	}
	return out.String()
}

// look is what divvy devices and divvy partition show say of the machine.
func (m *fakeMachine) look(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	for _, words := range [][]string{{"devices", "-o", "tree"}, {"partition", "show"}} {
		if code := Main(append(words, "--root", m.folder), strings.NewReader(""), &out, &out); code != exitOK {
			t.Fatalf("%v: code %d\n%s", words, code, out.String())
		}
	}
	return out.String()
}

// TestCommandsOnFakeMachines: the printed commands run, divvy devices and divvy
// partition show then say what was promised, a second time there is nothing to do,
// and the undo leaves the machine as it was. If short, each technique once.
func TestCommandsOnFakeMachines(t *testing.T) {
	done := map[string]bool{}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	idle := []string{"proc/4711", "sys/class/kfd/kfd/proc"}
	for _, c := range []struct {
		machine   string
		without   []string
		technique string
		flags     string
		shows     map[string]int // how often each is there then
	}{
		{"flex170", []string{"proc"}, advise.SRIOV, "--workload vdi --in vm --count 5", map[string]int{"sriov = 5 of 31": 1, "\n      vf 0000:4d:": 5}},
		{"flex170", []string{"proc"}, advise.SRIOV, "--workload edge --count 4 --mem 2GiB", map[string]int{"sriov = 4 of 31": 1}},
		{"battlemage", []string{"proc"}, advise.SRIOV, "--workload vdi --in vm --count 5", map[string]int{"sriov = 5 of 7": 1}},
		{"mi300x-cpx", nil, advise.AMDModes, "--workload small-serve --mem 30GiB --count 6", map[string]int{"compute-partition = QPX": 2, "compute-partition = CPX": 6, "partition mode QPX/NPS4": 2}},
		{"mi300x-cpx", idle, advise.Whole, "--workload large-serve --mem 150GiB", map[string]int{"compute-partition = SPX": 8, "memory-partition = NPS1": 8}},
		{"mi300x-cpx", idle, advise.Passthrough, "--workload small-serve --in vm --count 2 --mem 80GiB", map[string]int{"handed to guests by VFIO": 2, "partition mode SPX/NPS1": 6}},
		{"nvidia-mdev", nil, advise.VGPU, "--workload vdi --in vm --licences vgpu --count 3", map[string]int{"GRID T4-2Q, memory": 4}},
		{"others", nil, advise.Whole, "--workload large-serve", nil},
		{"others", []string{"proc/77"}, advise.Passthrough, "--workload small-serve --in vm --count 2", map[string]int{"handed to guests by VFIO": 2}},
	} {
		if testing.Short() && done[c.technique] {
			continue
		}
		done[c.technique] = true
		t.Run(c.machine+" "+c.technique, func(t *testing.T) {
			m := openFake(t, c.machine, c.without...)
			if c.technique == advise.SRIOV {
				m.run(t, "divvy partition apply - <<'EOF'\nschema: divvy.partition/v1\ncards:\n  - sriov: {vfs: 0}\nEOF")
			}
			var devices bytes.Buffer
			if code := Main([]string{"devices", "--root", m.folder, "--json"}, strings.NewReader(""), &devices, &devices); code != exitOK {
				t.Fatal(devices.String())
			}
			file := filepath.Join(t.TempDir(), "devices.json")
			if err := os.WriteFile(file, devices.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			_, document := adviserOn(t, file).advised(t, strings.Fields(c.flags)...)
			choice := document.First()
			if choice == nil || choice.Technique != c.technique {
				t.Fatalf("%+v is first", choice)
			}
			before := m.look(t)
			for _, command := range choice.Commands {
				m.run(t, command)
			}
			after := m.look(t)
			for text, n := range c.shows {
				if got := strings.Count(after, text); got != n {
					t.Errorf("%q is there %d times, not %d:\n%s", text, got, n, after)
				}
			}
			for _, command := range slices.Backward(choice.Commands) { // the last goal; one before it may be undone by it
				if strings.HasPrefix(command, "divvy partition apply") {
					if again := m.run(t, command); !strings.Contains(again, "nothing to do") {
						t.Errorf("a second time:\n%s", again)
					}
					break
				}
			}
			for _, command := range choice.Undo {
				m.run(t, command)
			}
			if got := m.look(t); got != before {
				t.Errorf("undone it is\n%s\nand it was\n%s", got, before)
			}
			if left, err := os.ReadDir(m.cdi); err != nil || len(left) != 0 {
				t.Errorf("%v are left, %v", left, err)
			}
		})
	}
}
