// SPDX-License-Identifier: Apache-2.0

// Package scenario plays the scenarios of a package's tests: text that says what
// happens and what comes of it. Only tests import it.
package scenario

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the outputs of the scenarios anew")

// Play plays each of testdata/*.txt: blocks of commands, a line of dashes, and
// what they print, up to an empty line. A line that begins with # is a comment.
// begin sets the stage for one file and gives what carries out the words of a
// command and prints to out. With -rewrite the files get what was printed:
// refresh only what you can explain.
func Play(t *testing.T, begin func(t *testing.T, out *strings.Builder) (do func(words []string))) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var printed strings.Builder
			got := play(string(raw), &printed, begin(t, &printed))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(raw) {
				t.Errorf("plays differently (go test -rewrite shows it in git diff):\n%s", got)
			}
		})
	}
}

func play(text string, printed *strings.Builder, do func(words []string)) string {
	var out strings.Builder
	for _, block := range strings.Split(strings.TrimRight(text, "\n"), "\n\n") {
		commands, _, hasOutput := strings.Cut(block, "\n----")
		out.WriteString(commands + "\n")
		printed.Reset()
		for _, line := range strings.Split(commands, "\n") {
			if line != "" && !strings.HasPrefix(line, "#") {
				do(strings.Fields(line))
			}
		}
		if printed.Len() > 0 || hasOutput {
			out.WriteString("----\n" + printed.String())
		}
		out.WriteString("\n")
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}
