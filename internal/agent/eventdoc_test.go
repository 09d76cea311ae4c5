// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every kind of event that the sources raise stands in docs/events.md, and no
// other.
func TestEventKindsAreDocumented(t *testing.T) {
	raised := map[string]bool{}
	patterns := []*regexp.Regexp{
		regexp.MustCompile(`Kind: "([a-z-]+)"`),
		regexp.MustCompile(`clientEvent\(now, cl, "([a-z-]+)"`),
		regexp.MustCompile(`\.tell\(now, "([a-z-]+)"`),
	}
	for _, folder := range []string{".", "../core"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		must(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			raw, err := os.ReadFile(file)
			must(t, err)
			for _, p := range patterns {
				for _, m := range p.FindAllStringSubmatch(string(raw), -1) {
					raised[m[1]] = true
				}
			}
		}
	}
	raw, err := os.ReadFile("../../docs/events.md")
	must(t, err)
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)`").FindAllStringSubmatch(string(raw), -1) {
		documented[m[1]] = true
	}
	for kind := range raised {
		if !documented[kind] {
			t.Errorf("event %s is not in docs/events.md", kind)
		}
	}
	for kind := range documented {
		if !raised[kind] {
			t.Errorf("docs/events.md has %s, which nobody raises", kind)
		}
	}
	if len(raised) < 20 {
		t.Errorf("found only %d kinds", len(raised))
	}
}
