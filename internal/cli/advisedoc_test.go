// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/advise"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
)

const advicePage = "../../docs/advise.md"

// generated replaces what is between a mark and the next end mark.
func generated(t *testing.T, text, mark, with string) string {
	t.Helper()
	head, rest, ok := strings.Cut(text, mark+"\n")
	_, tail, closed := strings.Cut(rest, "<!-- end -->")
	if !ok || !closed {
		t.Fatalf("%s has no %q with an end", advicePage, mark)
	}
	return head + mark + "\n\n" + with + "\n<!-- end -->" + tail
}

// costTable is what techniques cost by measurement, and who measured it.
func costTable(t *testing.T) string {
	t.Helper()
	file, err := reference.Default()
	if err != nil {
		t.Fatal(err)
	}
	measured := measurements(file)
	var b strings.Builder
	b.WriteString("| technique | measured | rows | source |\n| --- | --- | --- | --- |\n")
	for _, technique := range advise.Techniques() {
		for _, cost := range advise.Costs(technique, measured) {
			var sources []string
			for _, id := range strings.Split(cost.Row, ", ") {
				at := slices.IndexFunc(file.Rows, func(r reference.Row) bool { return r.ID == id })
				if at < 0 {
					continue
				}
				s := file.Sources[file.Rows[at].Source]
				if link := fmt.Sprintf("[%s](%s)", s.Title, s.URL); !slices.Contains(sources, link) {
					sources = append(sources, link)
				}
			}
			if cost.Row != "" && sources == nil {
				t.Errorf("%s: no source of %s", technique, cost.Row)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", technique, cost.Text, cost.Row, strings.Join(sources, ", "))
		}
	}
	return b.String()
}

// guidesList is what operators of clusters advise.
func guidesList() string {
	var b strings.Builder
	for _, r := range advise.Rules() {
		if strings.HasPrefix(r.Rule, "G-") {
			fmt.Fprintf(&b, "- %s ([%s](%s))\n", r.Text, r.Rule, r.Source)
		}
	}
	return b.String()
}

// TestAdviceDocument: the picture and the tables of docs/advise.md are those of the
// rules, and the commands that it shows are commands.
func TestAdviceDocument(t *testing.T) {
	raw, err := os.ReadFile(advicePage)
	if err != nil {
		t.Fatal(err)
	}
	text := generated(t, string(raw), "<!-- generated: go test ./internal/cli -run TestAdviceDocument -update -->", "```mermaid\n"+advise.Mermaid()+"```\n")
	text = generated(t, text, "<!-- generated costs -->", costTable(t))
	text = generated(t, text, "<!-- generated guides -->", guidesList())
	if *update {
		if err := os.WriteFile(advicePage, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text != string(raw) && !*update {
		t.Errorf("parts of %s are old: go test ./internal/cli -run TestAdviceDocument -update", advicePage)
	}
	commands, check := commandsIn(strings.ReplaceAll(text, "\n    divvy ", "\n    $ divvy ")), newChecker(t)
	for _, command := range commands {
		command, _, _ = strings.Cut(command, "  #")
		check.parses(t, command)
	}
	if len(commands) < 10 {
		t.Errorf("%d commands", len(commands))
	}
}
