// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func everyCommand(t *testing.T, visit func(*cobra.Command)) {
	t.Helper()
	a := &app{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, getenv: func(string) string { return "" }}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		visit(cmd)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(a.root(nil, a.commands()))
}

// TestHelpFitsAScreen: plain ASCII, at most 40 lines of 100 characters, an
// example at its end that names a command and flags that exist.
func TestHelpFitsAScreen(t *testing.T) {
	everyCommand(t, func(cmd *cobra.Command) {
		var out bytes.Buffer
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) > 40 {
			t.Errorf("%s: help has %d lines", cmd.CommandPath(), len(lines))
		}
		for _, line := range lines {
			if len(line) > 100 || oneLine("|"+line+"|") != "|"+line+"|" {
				t.Errorf("%s: %q is too long or not plain", cmd.CommandPath(), line)
			}
		}
		last := strings.Fields(lines[len(lines)-1])
		if cmd.Example == "" || !slices.ContainsFunc(last, func(word string) bool { return strings.HasSuffix(word, "divvy") }) {
			t.Errorf("%s: help does not end with an example", cmd.CommandPath())
		}
		checkExample(t, cmd)
	})
}

// checkExample parses the flags of each line of an example.
func checkExample(t *testing.T, cmd *cobra.Command) {
	t.Helper()
	for _, line := range strings.Split(cmd.Example, "\n") {
		line = strings.Trim(strings.TrimSpace(line), "<()")
		words := strings.Fields(strings.TrimPrefix(line, "source <("))
		if len(words) == 0 || words[0] != "divvy" {
			t.Errorf("%s: example %q does not start with divvy", cmd.CommandPath(), line)
			continue
		}
		found, rest, err := cmd.Root().Find(words[1:])
		if err != nil {
			t.Errorf("%s: example %q: %v", cmd.CommandPath(), line, err)
			continue
		}
		if err := found.ParseFlags(rest); err != nil {
			t.Errorf("%s: example %q: %v", cmd.CommandPath(), line, err)
		}
	}
}

// TestReadingCommandsHaveJSON: what prints results prints them as JSON too.
func TestReadingCommandsHaveJSON(t *testing.T) {
	silent := []string{
		"divvy", "divvy cdi", "divvy share", "divvy remote", "divvy certs", "divvy bench", "divvy partition", "divvy estimate", "divvy simulate fault", "divvy audit", // groups
		"divvy run", "divvy agent", "divvy serve", "divvy simulate", "divvy web", "divvy completion", "divvy share delete", "divvy help",
	}
	everyCommand(t, func(cmd *cobra.Command) {
		has := cmd.Flags().Lookup("json") != nil
		if want := !slices.Contains(silent, cmd.CommandPath()); has != want {
			t.Errorf("%s: --json: %v, want %v", cmd.CommandPath(), has, want)
		}
	})
}

// TestCommandsByName: a command that the command line names is found under that name.
func TestCommandsByName(t *testing.T) {
	a := &app{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, getenv: func(string) string { return "" }}
	for _, c := range a.commands() {
		made := a.root([]string{c.name}, a.commands()).Commands()
		if len(made) != 1 || made[0].Name() != c.name {
			t.Errorf("%s: %d commands, the first %q", c.name, len(made), made[0].Name())
		}
	}
	if all := len(a.root([]string{"--help"}, a.commands()).Commands()); all != len(a.commands()) {
		t.Errorf("%d commands of %d", all, len(a.commands()))
	}
}
