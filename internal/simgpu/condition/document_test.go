// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The table for people says what the table here says.
func TestDocument(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "simulated-faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(raw)) {
		var number int
		if n, _ := fmt.Sscanf(line, "| %d |", &number); n == 1 {
			rows = append(rows, strings.TrimSpace(line))
		}
	}
	xids := Xids()
	if len(rows) != len(xids) {
		t.Fatalf("%d rows for %d XIDs", len(rows), len(xids))
	}
	for i, x := range xids {
		who := map[Scope]string{Nobody: "none", Victim: "the process's", OnCard: "all on the GPU"}[x.Scope]
		want := fmt.Sprintf("| %d | %s | %s | ", x.Number, x.Name, who)
		if x.Error != 0 {
			want += fmt.Sprintf("%d `", x.Error)
		}
		if !strings.HasPrefix(rows[i], strings.TrimRight(want, " ")) {
			t.Errorf("%q, want %q", rows[i], want)
		}
	}
	for _, kind := range Kinds() {
		if !strings.Contains(string(raw), "| `"+kind+"` |") {
			t.Errorf("kind %s is not in the document", kind)
		}
	}
}
