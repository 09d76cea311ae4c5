// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/advise"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
)

// scenarios reads testdata/advise/scenarios.txt: a machine with a colon, and below
// it a scenario a line, its name and its flags.
func scenarios(t *testing.T) (machines []string, of map[string][][]string) {
	t.Helper()
	raw, err := os.ReadFile("testdata/advise/scenarios.txt")
	if err != nil {
		t.Fatal(err)
	}
	of = map[string][][]string{}
	for _, line := range strings.Split(string(raw), "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case len(words) == 1 && strings.HasSuffix(words[0], ":"):
			machines = append(machines, strings.TrimSuffix(words[0], ":"))
		default:
			machine := machines[len(machines)-1]
			of[machine] = append(of[machine], words)
		}
	}
	return machines, of
}

// leaves are all cases of what limits, what matters and where.
func leaves() [][]string {
	var all [][]string
	for _, bound := range advise.Words("bound") {
		for _, aim := range advise.Words("aim") {
			for _, place := range advise.Words("place") {
				all = append(all, []string{bound + "-" + aim + "-" + place, "--workload", "small-serve", "--mem", "4GiB", "--count", "4", "--bound", bound, "--aim", aim, "--place", place})
			}
		}
	}
	return all
}

// adviser advises on one list of devices.
type adviser struct {
	file *reference.File
	inv  advise.Inventory
}

func adviserOn(t *testing.T, devices string) adviser {
	t.Helper()
	var x adviser
	raw, err := os.ReadFile(devices)
	if err != nil {
		t.Fatal(err)
	}
	list, err := parseDevices(raw)
	if err != nil {
		t.Fatal(err)
	}
	if x.file, err = reference.Default(); err != nil {
		t.Fatal(err)
	}
	a := &app{getenv: func(string) string { return "" }}
	if x.inv, err = a.adviseInventory(list, x.file); err != nil {
		t.Fatal(err)
	}
	return x
}

// advised answers one scenario: the document, and from nothing else what is
// printed of it, with the script.
func (x adviser) advised(t *testing.T, flags ...string) (text string, document advise.Advice) {
	t.Helper()
	var out bytes.Buffer
	a := &app{stdout: &out, stderr: &out, getenv: func(string) string { return "" }}
	var f adviseFlags
	cmd := &cobra.Command{}
	f.define(a, cmd)
	if err := cmd.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	advice, err := f.consider(x.inv, x.file)
	if err == nil {
		err = a.writeJSON(advice)
	}
	if err != nil {
		t.Fatalf("%v: %v", flags, err)
	}
	if err := json.Unmarshal(out.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := a.writeAdvice(&document); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if len(line) > screen && !strings.Contains(line, "://") && !strings.Contains(line, "match:") && !strings.Contains(line, "EOF") {
			t.Errorf("%v: %d columns: %s", flags, len(line), line)
		}
	}
	fmt.Fprint(&out, "\n$ --script\n")
	err = a.adviseScript(&document)
	first := document.First()
	if possible := first != nil && len(first.Commands) > 0; possible != (err == nil) || err != nil && exitCode(err) != exitNotAllowed {
		t.Errorf("%v: script: %v", flags, err)
	}
	if err != nil {
		a.complain(err)
	}
	return out.String(), document
}

// TestAdvice compares each scenario on each machine with MACHINE.golden, and its
// commands with the commands and goals that there are.
func TestAdvice(t *testing.T) {
	t.Setenv("DIVVY_ROOT", t.TempDir())
	machines, of := scenarios(t)
	n, verdicts := 0, map[string]bool{}
	check := newChecker(t)
	for _, machine := range machines {
		t.Run(machine, func(t *testing.T) {
			on := adviserOn(t, devicesOf(t, machine))
			var got strings.Builder
			for _, words := range of[machine] {
				n++
				text, document := on.advised(t, words[1:]...)
				fmt.Fprintf(&got, "== %s: divvy advise %s\n%s\n", words[0], strings.Join(words[1:], " "), text)
				for i := range document.Choices {
					c := &document.Choices[i]
					verdicts[c.Technique+" "+string(c.Verdict)] = true
					for _, command := range slices.Concat(c.Commands, c.Undo) {
						check.parses(t, command)
					}
				}
			}
			compare(t, filepath.Join("testdata/advise", machine+".golden"), got.String())
		})
	}
	if n < 60 {
		t.Errorf("%d scenarios", n)
	}
	for _, technique := range advise.Techniques() {
		if technique == advise.Movable || technique == advise.Remote { // this version has neither
			continue
		}
		if !verdicts[technique+" first"] {
			t.Errorf("%s is never the first", technique)
		}
	}
}

// TestLeaves compares what comes first for each leaf of the tree by what limits, what
// matters and where, on machines as they are there.
func TestLeaves(t *testing.T) {
	t.Setenv("DIVVY_ROOT", t.TempDir())
	at := map[string]adviser{}
	for place, machine := range map[string]string{"cloud": "a100-40", "edge": "l4", "cluster": "h100"} {
		at[place] = adviserOn(t, devicesOf(t, machine))
	}
	var got strings.Builder
	for _, words := range leaves() {
		text, _ := at[words[len(words)-1]].advised(t, words[1:]...)
		_, first, _ := strings.Cut(text, "\nFirst: ")
		first, _, _ = strings.Cut(first, "\n\n")
		fmt.Fprintf(&got, "== %s: divvy advise %s\n%s\n\n", words[0], strings.Join(words[1:], " "), first)
	}
	compare(t, "testdata/advise/leaves.golden", got.String())
}

func compare(t *testing.T, name, got string) {
	t.Helper()
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
		t.Errorf("differs from %s: run with -update and look at the difference:\n%s", name, got)
	}
}

// TestCommandsOfGoldenFiles parses each command of the scripts in the golden files
// themselves, and each that the text shows.
func TestCommandsOfGoldenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/advise/*.golden")
	if err != nil || len(files) < 11 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	n, check := 0, newChecker(t)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range commandsIn(string(raw)) {
			n++
			check.parses(t, command)
		}
	}
	if n < 500 {
		t.Errorf("%d commands", n)
	}
}

// commandsIn finds commands: lines that begin with divvy, or with "$ ", each with
// what continues it and its here-document.
func commandsIn(text string) []string {
	var all []string
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		shown := strings.HasPrefix(line, "    $ ")
		if !shown && !strings.HasPrefix(line, "divvy ") || strings.HasPrefix(line, "divvy: ") {
			continue
		}
		command := strings.TrimPrefix(line, "    $ ")
		for strings.HasSuffix(command, `\`) {
			i++
			command = strings.TrimSuffix(command, `\`) + strings.TrimSpace(lines[i])
		}
		if strings.HasSuffix(command, "<<'EOF'") {
			for i++; lines[i] != "EOF"; i++ {
				command += "\n" + lines[i]
			}
			command += "\nEOF"
		}
		all = append(all, command)
	}
	return all
}

var loop = regexp.MustCompile(`^for i in \$\(seq \d+\); do (.*); done$`)

// checker checks commands, each once.
type checker struct {
	techniques partition.Techniques
	seen       map[string]bool
}

func newChecker(t *testing.T) checker {
	t.Helper()
	products, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	return checker{machine.Techniques(products), map[string]bool{}}
}

// parses checks that a command is one: of Divvy's, with flags and arguments that
// it takes and a goal that is one, or of the shell's few.
func (c checker) parses(t *testing.T, command string) {
	t.Helper()
	if c.seen[command] {
		return
	}
	c.seen[command] = true
	line, goal, given := strings.Cut(command, " <<'EOF'\n")
	if given {
		goal, ok := strings.CutSuffix(goal, "\nEOF")
		if _, err := c.techniques.ParseGoal([]byte(goal)); err != nil || !ok {
			t.Errorf("%v in the goal of %s", err, command)
		}
	}
	if in := loop.FindStringSubmatch(line); in != nil {
		line = in[1]
	}
	line, _, _ = strings.Cut(line, " >")
	words := strings.Fields(line)
	if words[0] != "divvy" {
		if !slices.Contains([]string{"mkdir", "export", "until", "kill", "rm"}, words[0]) {
			t.Errorf("what is %q?", command)
		}
		return
	}
	a := &app{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, getenv: func(string) string { return "" }}
	cmd, rest, err := a.root(nil, a.commands()).Find(words[1:])
	if err == nil && !cmd.Runnable() {
		err = fmt.Errorf("%s is a group", cmd.CommandPath())
	}
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("%s: %v", command, err)
	}
}
