// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program that the documentation has does what it says.
func TestDocumentedProgram(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	page, err := os.ReadFile("../../docs/audit.md")
	must(t, err)
	_, rest, found := strings.Cut(string(page), "```python\n")
	program, _, ended := strings.Cut(rest, "```")
	if lines := strings.Count(program, "\n"); !found || !ended || lines > 10 {
		t.Fatalf("docs/audit.md has no program of ten lines, but one of %d", lines)
	}
	says := func(dir string) string {
		output, err := exec.Command(python, "-c", program, dir).CombinedOutput()
		if right := strings.HasPrefix(string(output), "right: "); right != (err == nil) {
			t.Fatalf("%v: %s", err, output)
		}
		return strings.TrimSpace(strings.ReplaceAll(string(output), dir+"/", ""))
	}
	dir, head := written(t)
	if got, want := says(dir), "right: "+head.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	lines := readLines(t, dir, secondFile)
	change := func(want string, lines ...[]byte) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, secondFile), bytes.Join(lines, nil), 0o600))
		if got := says(dir); got != "wrong: "+secondFile+":"+want {
			t.Errorf("%q, want line %s", got, want)
		}
	}
	change("2", lines[0], bytes.Replace(lines[1], []byte("python"), []byte("Python"), 1), lines[2])
	change("2", lines[0], lines[2])
	change("1", lines[1], lines[0], lines[2])
	change("3", lines[0], lines[1], lines[1], lines[2])
	change("3", lines[0], lines[1], lines[2][:40])
	must(t, os.WriteFile(filepath.Join(dir, secondFile), bytes.Join(lines, nil), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "audit-2026-11_0002.jsonl"), bytes.Join(readLines(t, dir, firstFile)[2:], nil), 0o600))
	must(t, os.Rename(filepath.Join(dir, firstFile), filepath.Join(dir, "away")))
	if got := says(dir); got != "right: "+head.String() { // a chain may begin with any line
		t.Errorf("%q", got)
	}
	must(t, os.Rename(filepath.Join(dir, "audit-2026-11_0002.jsonl"), filepath.Join(dir, "audit-2026-11.jsonl")))
	must(t, os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, "audit-2026-10.jsonl")))
	if got := says(dir); got != "wrong: "+firstFile+":1" {
		t.Errorf("%q", got)
	}
}
