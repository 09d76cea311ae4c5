// SPDX-License-Identifier: Apache-2.0

package check

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/estimate"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/estimate.md")

const page = "../../../docs/estimate.md"

// errorTable is the errors by kind, as docs/estimate.md has them.
func errorTable(r Report) string {
	var b strings.Builder
	b.WriteString("| kind | rows | skipped | low confidence | within | tolerance | median error |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, k := range r.Kinds {
		if k.Skipped+k.LowConfidence == k.Rows {
			continue // not estimated
		}
		tolerance, middle := "-", "-"
		if k.Tolerance != nil {
			tolerance = fmt.Sprintf("%g %%", *k.Tolerance)
		}
		if ranged(k.Kind) {
			tolerance = "the range"
		}
		if k.MedianError != nil {
			middle = fmt.Sprintf("%.1f %%", *k.MedianError)
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %s | %s |\n", k.Kind, k.Rows, k.Skipped, k.LowConfidence, k.Within, tolerance, middle)
	}
	return b.String()
}

func constantTable() string {
	var b strings.Builder
	b.WriteString("| constant | expected | low to high | what | rows |\n| --- | --- | --- | --- | --- |\n")
	for _, c := range estimate.Default() {
		between := fmt.Sprintf("%.3g to %.3g", c.Low, c.High)
		if c.Low == c.High {
			between = "-"
		}
		fmt.Fprintf(&b, "| %s | %.3g %s | %s | %s | %s |\n", c.Name, c.Mid, c.Unit, between, c.Meaning, strings.Join(c.Rows, ", "))
	}
	return b.String()
}

// between replaces what is between a mark and the next end mark.
func between(t *testing.T, text, mark, with string) string {
	t.Helper()
	head, rest, ok := strings.Cut(text, mark+"\n")
	_, tail, closed := strings.Cut(rest, "<!-- end -->")
	if !ok || !closed {
		t.Fatalf("%s has no %q with an end", page, mark)
	}
	return head + mark + "\n\n" + with + "\n<!-- end -->" + tail
}

// TestDocument: the tables of docs/estimate.md are what is computed now.
func TestDocument(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := between(t, string(raw), "<!-- generated: go test ./internal/estimate/check -run TestDocument -update -->", errorTable(asPublished()))
	text = between(t, text, "<!-- generated constants -->", constantTable())
	if *update {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text != string(raw) {
		t.Errorf("the tables of %s are old: go test ./internal/estimate/check -run TestDocument -update", page)
	}
}
