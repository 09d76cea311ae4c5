// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/advise"
)

// writeAdvice prints what is advised in full, and the rest in a line each.
func (a *app) writeAdvice(x *advise.Advice) error {
	a.writeFacts(x)
	first := x.First()
	if first == nil {
		fmt.Fprintln(a.stdout, "\nNothing is possible as it is asked.")
	}
	for _, c := range x.Choices {
		if c.Verdict == advise.First || c.Verdict == advise.Second {
			a.writeChoice(&c)
		}
	}
	a.writeOthers("Possible", advise.Possible, x)
	a.writeOthers("No", advise.No, x)
	if x.Stage != nil {
		fmt.Fprintf(a.stdout, "\nStage %s:\n", x.Stage.Stage)
		a.paragraph("  needs ", "    ", x.Stage.Needs)
		a.paragraph("  frees ", "    ", x.Stage.Frees)
		a.paragraph("  ", "    ", x.Stage.How)
		if x.Stage.Stage == "checkpoint" {
			a.writeCheckpoint(x.Stage.Checkpoint)
		}
	}
	a.list("\nNot known:", x.Unknown)
	a.list("\nWould change the answer:", x.WouldChange)
	var guidance []string
	for _, g := range x.Guidance {
		guidance = append(guidance, fmt.Sprintf("%s [%s]", g.Text, g.Rule))
	}
	a.list("\nOperators of clusters disagree:", guidance)
	if first != nil && len(first.Commands) > 0 {
		fmt.Fprintln(a.stdout, "\nThe same as a script, with its undo: --script. Why not another: --why-not NAME.")
	}
	return nil
}

func (a *app) list(title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintln(a.stdout, title)
	for _, item := range items {
		a.paragraph("  ", "    ", item)
	}
}

// writeFacts says what was asked, and of which cards.
func (a *app) writeFacts(x *advise.Advice) {
	f := x.Facts
	what := f.Workload
	if f.Stage != "" {
		what += " (" + f.Stage + ")"
	}
	if f.Count > 1 {
		what = fmt.Sprintf("%d x %s", f.Count, what)
	}
	if f.MemoryBytes > 0 {
		what += fmt.Sprintf(", %s each (%s)", gibs(float64(f.MemoryBytes)), f.MemoryFrom)
	}
	where := f.In
	if f.Kubernetes != "" {
		where += " " + f.Kubernetes
	}
	what += fmt.Sprintf("; tenants: %s; in: %s", f.Tenants, where)
	if f.P99Ms > 0 {
		what += fmt.Sprintf("; p99 %g ms", f.P99Ms)
	}
	if f.AloneMs > 0 {
		what += fmt.Sprintf(" (a token alone: %.0f ms)", f.AloneMs)
	}
	if f.Duty < 100 {
		what += fmt.Sprintf("; busy %g %% of the time", f.Duty)
	}
	a.paragraph("for ", "  ", what)
	counts := map[string]int{}
	var order []string
	for _, c := range x.Cards {
		if counts[c.Name] == 0 {
			order = append(order, c.Name)
		}
		counts[c.Name]++
	}
	var names []string
	for _, name := range order {
		names = append(names, fmt.Sprintf("%d x %s", counts[name], name))
	}
	if names == nil {
		names = []string{"no GPU"}
	}
	a.paragraph("on  ", "  ", strings.Join(names, ", "))
}

// writeOthers prints techniques of a verdict, those with the same reason together.
func (a *app) writeOthers(title string, verdict advise.Verdict, x *advise.Advice) {
	var reasons []string
	techniques := map[string][]string{}
	for i := range x.Choices {
		if c := &x.Choices[i]; c.Verdict == verdict {
			why := shortReason(c)
			if techniques[why] == nil {
				reasons = append(reasons, why)
			}
			techniques[why] = append(techniques[why], c.Technique)
		}
	}
	if reasons != nil {
		fmt.Fprintf(a.stdout, "\n%s:\n", title)
	}
	for _, why := range reasons {
		a.paragraph("  ", "    ", strings.Join(techniques[why], ", ")+": "+why)
	}
}

// shortReason is the reason that counts most.
func shortReason(c *advise.Choice) string {
	if len(c.Reasons) == 0 {
		return advise.InWords(c.Technique)
	}
	return fmt.Sprintf("%s [%s]", c.Reasons[0].Text, c.Reasons[0].Rule)
}

func (a *app) writeChoice(c *advise.Choice) {
	fmt.Fprintf(a.stdout, "\n%s: %s, %s\n", strings.ToUpper(string(c.Verdict[:1]))+string(c.Verdict[1:]), c.Technique, advise.InWords(c.Technique))
	for _, r := range c.Reasons {
		a.paragraph("  because ", "    ", fmt.Sprintf("%s [%s]", r.Text, r.Rule))
	}
	for _, k := range c.Costs {
		text := k.Text
		if k.Row != "" {
			text += " [" + k.Row + "]"
		}
		a.paragraph("  cost    ", "    ", text)
	}
	const most = 4 // commands of one kind; the script has all
	shown := 0
	for i, command := range c.Commands {
		if i > 0 && sameKind(c.Commands[i-1], command) {
			if shown++; shown >= most {
				if shown == most {
					fmt.Fprintf(a.stdout, "    # ... and %d more like it: --script\n", alikeFrom(c.Commands, i))
				}
				continue
			}
		} else {
			shown = 0
		}
		a.writeCommand(command)
	}
	if c.Use != "" {
		a.paragraph("  use     ", "    ", c.Use)
	}
}

// writeCommand prints a command in 80 columns: continued lines can be pasted.
func (a *app) writeCommand(command string) {
	for n, line := range strings.Split(command, "\n") {
		prefix := "    $ "
		if n > 0 { // a here-document: it must begin where it began
			fmt.Fprintln(a.stdout, line)
			continue
		}
		words := strings.Split(line, " ")
		current := prefix
		for i, word := range words {
			if i > 0 && len(current)+1+len(word) > screen-2 {
				fmt.Fprintln(a.stdout, current+` \`)
				current = "        " + word
				continue
			}
			if i > 0 {
				current += " "
			}
			current += word
		}
		fmt.Fprintln(a.stdout, current)
	}
}

// sameKind says that two commands differ in names and sizes only.
func sameKind(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	return len(x) >= 3 && len(y) >= 3 && slices.Equal(x[:3], y[:3]) && x[0] == "divvy"
}

func alikeFrom(commands []string, from int) int {
	n := 1
	for i := from + 1; i < len(commands) && sameKind(commands[i-1], commands[i]); i++ {
		n++
	}
	return n
}

// adviseScript prints the commands of what is advised, and their undo, as a shell
// script.
func (a *app) adviseScript(x *advise.Advice) error {
	first := x.First()
	if first == nil || len(first.Commands) == 0 {
		err := fmt.Errorf("nothing is possible as it is asked")
		if first != nil {
			err = fmt.Errorf("%s takes no command: %s", first.Technique, first.Use)
		}
		if len(x.WouldChange) > 0 {
			return withHint(&codedError{exitNotAllowed, err}, x.WouldChange[0])
		}
		return &codedError{exitNotAllowed, err}
	}
	out := bufio.NewWriter(a.stdout)
	fmt.Fprintf(out, "#!/bin/sh\n# %s: %s. Printed by divvy advise for %s.\n", first.Technique, advise.InWords(first.Technique), oneLine(x.Facts.Workload))
	fmt.Fprintf(out, "#   sh SCRIPT         sets it up\n#   sh SCRIPT undo    undoes it\n")
	for _, line := range wrapped("Programs: "+first.Use, 76) {
		fmt.Fprintf(out, "# %s\n", line)
	}
	fmt.Fprint(out, "set -eu\n\nif [ \"${1:-}\" = undo ]; then\n")
	for _, command := range exported(first) {
		fmt.Fprintln(out, command)
	}
	for _, command := range first.Undo {
		fmt.Fprintln(out, command)
	}
	fmt.Fprint(out, "exit\nfi\n\n")
	for _, command := range first.Commands {
		fmt.Fprintln(out, command)
	}
	return out.Flush()
}

// exported are the commands that set the environment, which undoing needs too.
func exported(c *advise.Choice) []string {
	var all []string
	for _, command := range c.Commands {
		if strings.HasPrefix(command, "export ") {
			all = append(all, command)
		}
	}
	return all
}

// whyNot says why a technique is not the first, and the smallest change that
// makes it possible.
func (a *app) whyNot(f *adviseFlags, inv advise.Inventory, x *advise.Advice) error {
	c := x.Of(f.whyNot)
	if c == nil {
		return withHint(usage(fmt.Errorf("--why-not %s is no technique", f.whyNot)), strings.Join(advise.Techniques(), ", "))
	}
	a.writeFacts(x)
	fmt.Fprintf(a.stdout, "\n%s, %s: %s\n", c.Technique, advise.InWords(c.Technique), c.Verdict)
	for _, r := range c.Reasons {
		a.paragraph("  ", "    ", fmt.Sprintf("%s [%s] (%s)", r.Text, r.Rule, r.Source))
	}
	if first := x.First(); first != nil && first.Technique != c.Technique {
		a.paragraph("  instead ", "    ", fmt.Sprintf("%s: %s", first.Technique, shortReason(first)))
	}
	if c.Verdict == advise.No {
		if words := advise.ToAllow(c.Technique, f.facts, inv); words != "" {
			a.paragraph("  it would be possible with ", "    ", words)
		} else {
			fmt.Fprintln(a.stdout, "  no change that we know makes it possible")
		}
	}
	return nil
}

// maxAnswersBytes is the most that is read of answers.
const maxAnswersBytes = 64 << 10

// ask asks what is needed, a screen at most, with defaults from the machine.
func (a *app) ask(f *adviseFlags, inv advise.Inventory) error {
	in := bufio.NewReader(io.LimitReader(a.stdin, maxAnswersBytes))
	question := func(text, otherwise string, of []string) (string, error) {
		for range 3 {
			if of != nil {
				a.paragraph("", "  ", text+" ("+strings.Join(of, ", ")+")")
			} else {
				a.paragraph("", "  ", text)
			}
			fmt.Fprintf(a.stdout, "  [%s] ", otherwise)
			line, err := in.ReadString('\n')
			if err != nil && line == "" {
				return "", usage(fmt.Errorf("no answer: %w", err))
			}
			answer := strings.TrimSpace(line)
			if answer == "" {
				return otherwise, nil
			}
			if of == nil || slices.Contains(of, answer) {
				return answer, nil
			}
			fmt.Fprintf(a.stdout, "  %.60q is none of these\n", oneLine(answer))
		}
		return "", usage(fmt.Errorf("no answer to: %s", text))
	}
	workload := "small-serve"
	if len(inv.Cards) == 1 && inv.Cards[0].MemoryBytes > 0 && inv.Cards[0].MemoryBytes < 32<<30 {
		workload = "notebook"
	}
	var err error
	for _, q := range []struct {
		to        *string
		text      string
		otherwise string
		of        []string
	}{
		{&f.facts.Workload, "What runs?", workload, advise.Words("workload")},
		{&f.model, "Which model, by divvy estimate models (or none)?", "none", nil},
		{&f.facts.Tenants, "Who shares the GPUs?", "one", advise.Words("tenants")},
		{&f.in, "In what?", "container", advise.Words("in")},
		{&f.p99, "Which latency is promised at the 99th percentile, like 20ms (or none)?", "none", nil},
	} {
		if *q.to != "" {
			continue
		}
		if *q.to, err = question(q.text, q.otherwise, q.of); err != nil {
			return err
		}
		if *q.to == "none" {
			*q.to = ""
		}
	}
	if f.facts.Count == 0 {
		n := fmt.Sprint(max(len(inv.Cards), 1))
		answer, err := question("How many of it?", n, nil)
		if err != nil {
			return err
		}
		if _, err := fmt.Sscan(answer, &f.facts.Count); err != nil || f.facts.Count < 1 {
			return usage(fmt.Errorf("%q is no number of instances", answer))
		}
	}
	fmt.Fprintln(a.stdout)
	return nil
}
