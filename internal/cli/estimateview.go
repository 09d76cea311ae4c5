// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/estimate"
)

// screen is how wide estimates and advice are printed.
const screen = 80

// wrapped breaks a text into lines of at most so many characters.
func wrapped(text string, width int) []string { return hung(text, width, width) }

// hung does the same with a first line of another length.
func hung(text string, first, width int) []string {
	var lines []string
	line, most := "", first
	end := func() {
		lines = append(lines, line)
		line, most = "", width
	}
	for _, word := range strings.Fields(oneLine(text)) {
		if line != "" && len(line)+1+len(word) > most {
			end()
		}
		for line == "" && len(word) > most { // a word of its own that is too long
			line, word = word[:most], word[most:]
			end()
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		end()
	}
	return lines
}

// paragraph prints a text with a first and a hanging indent.
func (a *app) paragraph(first, hang, text string) {
	for i, line := range hung(oneLine(text), max(screen-1-len(first), 20), screen-1-len(hang)) {
		if i > 0 {
			first = hang
		}
		fmt.Fprintln(a.stdout, first+line)
	}
}

func (a *app) writeEstimate(f *estimateFlags, d *estimateDocument) error {
	what := fmt.Sprintf("%s: %s parameters", oneLine(d.Model.Name), estimate.Short(float64(d.Model.Parameters)))
	if d.Model.Active != d.Model.Parameters {
		what += fmt.Sprintf(", %s active", estimate.Short(float64(d.Model.Active)))
	}
	fmt.Fprintf(a.stdout, "%s, %s\n", what, d.Precision)
	for _, n := range d.Notes {
		a.paragraph("note: ", "  ", n)
	}
	if d.table {
		return a.estimateTable(d)
	}
	for i := range d.Answers {
		fmt.Fprintln(a.stdout)
		a.estimateAnswer(f, d, &d.Answers[i])
	}
	if f.explain {
		a.explainEstimate(d)
	}
	return nil
}

// estimateTable is one line a card.
func (a *app) estimateTable(d *estimateDocument) error {
	fmt.Fprintln(a.stdout, "\nThe fewest of each GPU that hold it, and the best split. More: --gpu-model NAME")
	fmt.Fprintln(a.stdout)
	rate := "TOKENS/S EACH"
	if d.Kind == ofServing {
		rate = "TOKENS/S"
	}
	t := newTable("GPU", "GPUS", "SPLIT", "MEMORY EACH", rate)
	for _, x := range d.Answers {
		switch {
		case x.Problem != "":
			problem := x.Problem
			if at := strings.Index(problem, ": --precision"); at > 0 {
				problem = problem[:at]
			}
			t.add(x.Card, "-", problem)
			continue
		case x.Fits == estimate.FitsNot:
			t.add(x.Card, "-", fmt.Sprintf("not on %d either", x.Cards))
			continue
		}
		m := x.memory()
		memory := fmt.Sprintf("%s of %s", gibs(m.Total.Mid), gibs(m.Visible.Mid))
		if x.Training != nil {
			t.add(x.Card, fmt.Sprint(x.Cards), x.Training.Split.String(), memory, estimate.Digits(x.Training.Rate.Mid))
		} else {
			t.add(x.Card, fmt.Sprint(x.Cards), x.Serving.Split.String(), memory, estimate.Digits(x.Serving.Rate.Mid))
		}
	}
	return t.write(a.stdout)
}

func gibs(bytes float64) string { return estimate.Digits(bytes/(1<<30)) + " GiB" }

// estimateAnswer prints one estimate: bars of memory, figures of time.
func (a *app) estimateAnswer(f *estimateFlags, d *estimateDocument, x *estimateAnswer) {
	if x.Problem != "" {
		a.paragraph(x.Card+": ", "  ", x.Problem)
		return
	}
	a.estimateHead(x)
	m := x.memory()
	fmt.Fprintln(a.stdout, "\nMemory of each GPU:")
	const bar = 32
	whole := math.Max(m.Total.Mid, m.Visible.Mid)
	for _, p := range m.Parts {
		length := int(math.Round(bar * p.Mid / whole))
		if length == 0 && p.Mid > 0 {
			length = 1
		}
		line := fmt.Sprintf("  %-12s %-*s %10s", p.Name, bar, strings.Repeat("#", length), gibs(p.Mid))
		if p.Measured {
			line += "  measured"
		} else if p.High > p.Low*1.005 {
			line += fmt.Sprintf("  %s to %s", estimate.Digits(p.Low/(1<<30)), estimate.Digits(p.High/(1<<30)))
		}
		fmt.Fprintln(a.stdout, line)
	}
	total := fmt.Sprintf("  %-12s %-*s %10s", "total", bar, fitWords(x, m), gibs(m.Total.Mid))
	if m.Visible.Mid > 0 {
		total += " of " + gibs(m.Visible.Mid)
	}
	fmt.Fprintln(a.stdout, total)
	if m.Host.Mid > 0 {
		fmt.Fprintf(a.stdout, "  and %s of each host's memory\n", gibs(m.Host.Mid))
	}
	if d.Model.Lower != "" {
		fmt.Fprintln(a.stdout, "  a lower bound: of the known part alone")
	}
	a.estimateTimes(f, x)
}

func fitWords(x *estimateAnswer, m *estimate.Memory) string {
	switch {
	case x.Fits == estimate.FitsNot && m.Fits != estimate.FitsNot:
		return "no room for the cache"
	case x.Fits == estimate.FitsNot:
		return "does not fit"
	case x.Fits == estimate.FitsTight:
		return "fits, and may be too tight"
	case x.Fits == estimate.Fits:
		return "fits"
	}
	return ""
}

// estimateHead says which cards, and how they are used.
func (a *app) estimateHead(x *estimateAnswer) {
	if x.Card == "" {
		fmt.Fprintln(a.stdout, "No GPU is known: memory alone.")
		return
	}
	line := fmt.Sprintf("%d x %s", x.Cards, x.Card)
	if x.Cards > 1 && x.Training != nil {
		line += ", " + x.Training.Split.String()
	} else if x.Cards > 1 {
		line += ", " + x.Serving.Split.String()
	}
	switch {
	case x.Fewest && x.Fits == estimate.FitsNot:
		line += ": not even these hold it"
	case x.Fewest && x.Cards > 1:
		line += ": the fewest that hold it"
	}
	if x.There > 0 {
		line += fmt.Sprintf(" (%d here)", x.There)
	}
	fmt.Fprintln(a.stdout, line)
	if r := x.Training; r != nil {
		how := fmt.Sprintf("%d sequences a step, %d at a time on each replica", r.GlobalBatch, r.MicroBatch)
		switch {
		case r.Recompute == estimate.RecomputeFull && r.Recomputed < 1:
			how += fmt.Sprintf(", %.0f %% of layers recomputed", 100*r.Recomputed)
		case r.Recompute != estimate.RecomputeNone:
			how += ", recompute " + r.Recompute
		}
		fmt.Fprintln(a.stdout, how)
	}
}

// estimateTimes prints times and rates with their ends.
func (a *app) estimateTimes(f *estimateFlags, x *estimateAnswer) {
	if !x.timed() {
		return
	}
	fmt.Fprintf(a.stdout, "\n  %-24s %16s %16s %16s\n", "", "low", "expected", "high")
	add := func(name string, r estimate.Range, unit string) {
		fmt.Fprintf(a.stdout, "  %-24s %16s %16s %16s\n", name, estimate.Figure(r.Low, unit), estimate.Figure(r.Mid, unit), estimate.Figure(r.High, unit))
	}
	if r := x.Training; r != nil {
		add("step", r.Step, estimate.Seconds)
		add("throughput of a GPU", r.Rate, estimate.PerSecond)
		add("of its dense rate (MFU)", r.MFU, estimate.Percent)
		if f.tokens != "" { // a range: published runs differ by a factor of three
			add("whole run", r.RunHours, estimate.Hours)
			per := 3600 / float64(max(x.Cards, 1))
			add("on these GPUs", estimate.Range{Low: r.RunHours.Low * per, Mid: r.RunHours.Mid * per, High: r.RunHours.High * per}, estimate.Seconds)
		}
	}
	if r := x.Serving; r != nil {
		add("first token", r.First, estimate.Seconds)
		add("between tokens", r.Between, estimate.Seconds)
		add("throughput of all GPUs", r.Rate, estimate.PerSecond)
		add("one request alone", r.Alone, estimate.PerSecond)
	}
	if r := x.Serving; r != nil {
		fmt.Fprintf(a.stdout, "\n%.0f requests of %d + %d tokens at a time; the cache holds %s tokens\n", math.Floor(r.Sequences), f.isl, f.osl, estimate.Digits(r.Capacity.Mid))
		if x.Next != nil {
			fmt.Fprintf(a.stdout, "%d GPUs: %.0f at a time, %s\n", x.Next.Cards, math.Floor(x.Next.Sequences), estimate.Figure(x.Next.Rate.Mid, estimate.PerSecond))
		}
		if r.Saturated {
			fmt.Fprintln(a.stdout, "more come than there is room for: the first token waits for a place")
		}
	}
}

// explainEstimate prints each formula, what constants it rests on, and what was
// published that is not matched.
func (a *app) explainEstimate(d *estimateDocument) {
	fmt.Fprintf(a.stdout, "\nParameters of %s:\n", oneLine(d.Model.Name))
	for _, t := range d.Model.Terms {
		a.paragraph("  "+t.Name+" = ", "      ", fmt.Sprintf("%s: %s", estimate.Digits(t.Mid), t.Formula))
	}
	used := map[string]bool{}
	for _, x := range d.Answers {
		if x.Problem != "" {
			continue
		}
		if x.Card != "" {
			fmt.Fprintf(a.stdout, "\nTerms on %d x %s:\n", x.Cards, x.Card)
		} else {
			fmt.Fprintln(a.stdout, "\nTerms:")
		}
		for _, t := range x.terms() {
			text := estimate.Figure(t.Mid, t.Unit)
			if t.High > t.Low {
				text += fmt.Sprintf(" (%s to %s)", estimate.Figure(t.Low, t.Unit), estimate.Figure(t.High, t.Unit))
			}
			if t.Formula != "" {
				text += ": " + t.Formula
			}
			a.paragraph("  "+t.Name+" = ", "      ", text)
			if t.Note != "" {
				a.paragraph("      ", "      ", t.Note)
			}
			for _, c := range t.Constants {
				used[c] = true
			}
		}
	}
	if len(used) > 0 {
		fmt.Fprintln(a.stdout, "\nConstants, and the published rows they were set from:")
	}
	for _, c := range estimate.Default() {
		if used[c.Name] {
			a.paragraph("  "+c.Name+" = ", "      ", fmt.Sprintf("%.3g %s (%.3g to %.3g): %s. %s", c.Mid, c.Unit, c.Low, c.High, c.Meaning, strings.Join(c.Rows, ", ")))
		}
	}
	if len(d.Disagree) > 0 {
		fmt.Fprintln(a.stdout, "\nPublished and not matched, as it is known to be wrong or no figure at all:")
	}
	for _, x := range d.Disagree {
		text := fmt.Sprintf("%s (%s)", x.Value, x.Source)
		if x.Note != "" {
			text += ": " + x.Note
		}
		a.paragraph("  "+x.Row+": ", "      ", text)
	}
	if slices.ContainsFunc(d.Answers, func(x estimateAnswer) bool { return x.timed() }) {
		fmt.Fprintln(a.stdout, "\nA figure you have measured takes the place of a term: --measured TERM=VALUE")
	}
}
