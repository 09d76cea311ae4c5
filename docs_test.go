// SPDX-License-Identifier: Apache-2.0

package divvy_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

// TestDocumentsLead: every relative link of a page leads to a file, and every
// page is reached from docs/index.md or another index.
func TestDocumentsLead(t *testing.T) {
	linked := map[string]bool{"docs/index.md": true, "docs/adr/README.md": true}
	var pages []string
	walkSources(t, func(name string) {
		if path.Ext(name) != ".md" || strings.HasPrefix(name, "changes/") {
			return
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "docs/") {
			pages = append(pages, name)
		}
		for _, match := range markdownLink.FindAllStringSubmatch(string(raw), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			target := path.Join(path.Dir(name), match[1])
			if _, err := os.Stat(filepath.FromSlash(target)); err != nil {
				t.Errorf("%s: link to %s leads nowhere", name, match[1])
			}
			linked[target] = true
		}
	})
	for _, page := range pages {
		if !linked[page] {
			t.Errorf("%s: no page links to it; add it to docs/index.md or docs/adr/README.md", page)
		}
	}
}

// TestArchitectureNamesRooms: the map of the source names every room of the
// import map, or the room that it is a part of.
func TestArchitectureNamesRooms(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rooms {
		named := false
		for name := r.path; name != "." && !named; name = path.Dir(name) {
			named = strings.Contains(string(text), "`"+name+"`") || strings.Contains(string(text), "`"+name+"/`")
		}
		if !named {
			t.Errorf("docs/architecture.md: no line for %s", r.path)
		}
	}
}
