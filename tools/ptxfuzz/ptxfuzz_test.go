// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// texts are the two files of a seed.
func texts(t *testing.T, seed uint64, first, cases int) (ptx, c string) {
	t.Helper()
	folder := t.TempDir()
	if err := generate(seed, first, cases, folder); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return read("cases.ptx"), read("cases.c")
}

// kernelText is one kernel of a module.
func kernelText(ptx, name string) string {
	_, rest, _ := strings.Cut(ptx, ".entry "+name+"(")
	body, _, _ := strings.Cut(rest, "\n}\n")
	return body
}

// A seed always gives the same kernels, and a case is the same alone.
func TestSeedsRepeat(t *testing.T) {
	ptx, c := texts(t, 7, 0, 20)
	if again, againC := texts(t, 7, 0, 20); again != ptx || againC != c {
		t.Error("the second run of seed 7 differs")
	}
	if other, _ := texts(t, 8, 0, 20); other == ptx {
		t.Error("seed 8 is as seed 7")
	}
	alone, _ := texts(t, 7, 13, 1)
	if got, want := kernelText(alone, "case13"), kernelText(ptx, "case13"); got == "" || got != want {
		t.Errorf("case 13 alone:\n%s\nwith others:\n%s", got, want)
	}
}

// Every template names its results and operands, and nothing else, in both
// languages.
func TestTemplatesAreWhole(t *testing.T) {
	name := regexp.MustCompile(`\$(.)`)
	seen := map[string]bool{}
	for _, f := range families() {
		if len(f.templates) == 0 {
			t.Errorf("%s is empty", f.name)
		}
		for _, template := range f.templates {
			if len(template.outs) != len(template.c) || len(template.outs) == 0 || len(template.outs) > 2 || len(template.ins) > 3 {
				t.Errorf("%s: %d results, %d in C, %d operands", template.ptx, len(template.outs), len(template.c), len(template.ins))
			}
			allowed := "abc"[:len(template.ins)]
			for _, m := range name.FindAllStringSubmatch(strings.Join(template.c, " "), -1) {
				if !strings.Contains(allowed, m[1]) {
					t.Errorf("%s: %v uses $%s", template.ptx, template.c, m[1])
				}
			}
			for _, m := range name.FindAllStringSubmatch(template.ptx, -1) {
				if !strings.Contains(allowed+"de"[:len(template.outs)]+"msgt", m[1]) {
					t.Errorf("%s uses $%s", template.ptx, m[1])
				}
			}
			seen[template.ptx] = true
		}
	}
	if len(seen) < 1000 {
		t.Errorf("%d different instructions, there were more", len(seen))
	}
}
