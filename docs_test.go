// SPDX-License-Identifier: Apache-2.0

package divvy_test

import (
	"bytes"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	markdownLink    = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	markdownHeading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor     = regexp.MustCompile(`[^\w\- ]`)
)

// hasAnchor says whether a page has a heading that a link's fragment names, as GitHub does.
func hasAnchor(page []byte, fragment string) bool {
	for _, heading := range markdownHeading.FindAllSubmatch(page, -1) {
		words := notInAnchor.ReplaceAllString(strings.ToLower(string(heading[1])), "")
		if "#"+strings.ReplaceAll(words, " ", "-") == fragment {
			return true
		}
	}
	return false
}

// TestDocumentsLead: every relative link of a page leads to a file, and to a heading in
// it where it names one, and every page is reached from docs/index.md or another index.
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
			target := name
			if match[1] != "" {
				target = path.Join(path.Dir(name), match[1])
				linked[target] = true
			}
			if _, err := os.Stat(filepath.FromSlash(target)); err != nil {
				t.Errorf("%s: link to %s leads nowhere", name, match[1])
			} else if match[2] != "" {
				if page, err := os.ReadFile(target); err != nil || !hasAnchor(page, match[2]) {
					t.Errorf("%s: link to %s%s leads to no heading", name, match[1], match[2])
				}
			}
		}
	})
	for _, page := range pages {
		if !linked[page] {
			t.Errorf("%s: no page links to it; add it to docs/index.md or docs/adr/README.md", page)
		}
	}
}

// TestPromisesNameTheirTests: the tests that docs/security.md names are there.
func TestPromisesNameTheirTests(t *testing.T) {
	text, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, s := range goSources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test {
				there[f.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z]*)`").FindAllStringSubmatch(string(text), -1)
	if len(named) == 0 {
		t.Error("docs/security.md names no test")
	}
	for _, name := range named {
		if !there[name[1]] {
			t.Errorf("docs/security.md: there is no %s", name[1])
		}
	}
}

// TestReadersStateTheirBounds: the table of docs/security.md has every source that bounds or
// decompresses what it reads, all its columns, and the constants as they are.
func TestReadersStateTheirBounds(t *testing.T) {
	text, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n## What every reader takes at most\n")
	if !found {
		t.Fatal("docs/security.md has no table of readers")
	}
	sources := map[string]source{}
	for _, s := range goSources(t) {
		sources[s.path] = s
	}
	stated := map[string]bool{}
	for line := range strings.Lines(table) {
		columns := strings.Split(strings.TrimSpace(line), "|")
		if len(columns) != 9 || !strings.Contains(columns[6], ".go`") {
			continue
		}
		name := strings.Trim(columns[6], " `")
		s, ok := sources[name]
		if !ok {
			t.Errorf("docs/security.md: there is no %s", name)
			continue
		}
		for n, what := range []string{"what it reads", "bytes", "depth", "items"} {
			if strings.TrimSpace(columns[1+n]) == "" {
				t.Errorf("docs/security.md: %s does not state its %s", name, what)
			}
		}
		stated[s.path] = true
		for _, constant := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(columns[7], -1) {
			name, value, _ := strings.Cut(constant[1], " = ")
			is := regexp.MustCompile(`(?m)^\s*(?:const )?` + name + `\s*=\s*` + regexp.QuoteMeta(value) + `\s*(?://.*)?$`)
			if !is.Match(s.bytes) {
				t.Errorf("%s: %s is not %q", s.path, name, value)
			}
		}
	}
	// Files that nobody but the kernel, or who runs this, writes, and that are short.
	whole := map[string]string{
		"internal/cgroup/cgroup.go":                   "the kernel writes them",
		"internal/library/cache.go":                   "in a folder that nobody else can write",
		"internal/mps/mps.go":                         "in a folder that nobody else can write",
		"internal/partition/mig/driver.go":            "comm, at most 16 bytes",
		"internal/partition/fakekernel/fakekernel.go": "of tests",
		"internal/scenario/scenario.go":               "of tests",
		"kube/internal/deviceplugin/holders.go":       "the kubelet's, and its size is looked at before",
	}
	for name, s := range sources {
		room := strings.HasPrefix(name, "internal/") || strings.HasPrefix(name, "kube/") || strings.HasPrefix(name, "cmd/")
		if reads := bytes.Contains(s.bytes, []byte("os.ReadFile(")); !s.test && room && reads != (whole[name] != "") {
			t.Errorf("%s reads whole files: %v; they need a bound (docs/security.md), or a reason in this test", name, reads)
		}
	}
	reads := regexp.MustCompile(`io\.LimitReader\(|http\.MaxBytesReader\(|\b(?:gzip|zlib|bzip2|flate|zip|zstd)\.NewReader\(`)
	for name, s := range sources {
		if !s.test && s.folder != "." && reads.Match(s.bytes) && !stated[name] {
			t.Errorf("docs/security.md: the table of readers lacks %s", name)
		}
	}
}

// TestArchitectureNamesRooms: the map of the source names every room of the
// import map and of the include map, or the room that it is a part of.
func TestArchitectureNamesRooms(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, r := range rooms {
		paths = append(paths, r.path)
	}
	for _, r := range includes {
		paths = append(paths, r.room)
	}
	for _, room := range paths {
		named := false
		for name := room; name != "." && !named; name = path.Dir(name) {
			named = strings.Contains(string(text), "`"+name+"`") || strings.Contains(string(text), "`"+name+"/`")
		}
		if !named {
			t.Errorf("docs/architecture.md: no line for %s", room)
		}
	}
}

// TestEventsAreDocumentedAndTold: docs/events.md has the kinds of internal/event in
// their order, and something tells of each.
func TestEventsAreDocumentedAndTold(t *testing.T) {
	var constants, kinds, listed, documented []string
	told := map[string]bool{}
	for _, s := range goSources(t) {
		if s.path == "internal/event/event.go" {
			constants, kinds, listed = eventKinds(s)
		}
		local := s.imports()["github.com/divvy-gpu/divvy/internal/event"]
		if local == "" || s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok {
				if name, ok := selector.X.(*ast.Ident); ok && name.Name == local {
					told[selector.Sel.Name] = true
				}
			}
			return true
		})
	}
	page, err := os.ReadFile("docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(page), "\n") {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			kind, _, _ := strings.Cut(rest, "`")
			documented = append(documented, kind)
		}
	}
	if len(kinds) == 0 || !slices.Equal(kinds, documented) {
		t.Errorf("docs/events.md has\n%v, internal/event\n%v", documented, kinds)
	}
	if !slices.Equal(constants, listed) {
		t.Errorf("event.Kinds has\n%v, the constants are\n%v", listed, constants)
	}
	for _, name := range constants {
		if !told[name] {
			t.Errorf("nothing tells of event.%s", name)
		}
	}
}

// eventKinds returns the names and values of the constants, and the names that Kinds lists.
func eventKinds(s source) (constants, kinds, listed []string) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			value, ok := n.Values[0].(*ast.BasicLit)
			if ok {
				constants = append(constants, n.Names[0].Name)
				kinds = append(kinds, strings.Trim(value.Value, `"`))
			}
		case *ast.CompositeLit:
			for _, element := range n.Elts {
				if name, ok := element.(*ast.Ident); ok {
					listed = append(listed, name.Name)
				}
			}
		}
		return true
	})
	return constants, kinds, listed
}

// TestFaultKindsNameTests: the tests that docs/fault-kinds.md relies on exist.
func TestFaultKindsNameTests(t *testing.T) {
	page, err := os.ReadFile("docs/fault-kinds.md")
	if err != nil {
		t.Fatal(err)
	}
	functions, scenarios := map[string]bool{}, ""
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	walkSources(t, func(name string) {
		inC := strings.HasPrefix(name, "clib/test/") && path.Ext(name) == ".c"
		if !inC && !strings.HasSuffix(name, "_test.go") {
			return
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if inC {
			scenarios += string(raw)
		}
		for _, match := range function.FindAllStringSubmatch(string(raw), -1) {
			functions[match[1]] = true
		}
	})
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 60 {
		t.Errorf("only %d tests are named: is the form of the page a new one?", len(named))
	}
	for _, match := range named {
		if !functions[match[1]] {
			t.Errorf("there is no test %s", match[1])
		}
	}
	for _, match := range regexp.MustCompile("`front_\\w+: ([^`]+)`").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(scenarios, `"`+match[1]+`"`) {
			t.Errorf("there is no scenario %q", match[1])
		}
	}
}
