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

// tests are those of the repository: functions of Go, scenarios that TestScenarios of
// internal/core plays, and what the C tests check, each line of a table `"NAME", function`.
type tests struct {
	functions, scenarios map[string]bool
	c                    map[string]string // source by program
}

func testsThere(t *testing.T) tests {
	t.Helper()
	there := tests{functions: map[string]bool{}, scenarios: map[string]bool{}, c: map[string]string{}}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
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
			there.c[strings.TrimSuffix(path.Base(name), ".c")] = string(raw)
			return
		}
		for _, match := range function.FindAllStringSubmatch(string(raw), -1) {
			there.functions[match[1]] = true
		}
	})
	played, err := filepath.Glob("internal/core/testdata/*.txt")
	if err != nil || len(played) == 0 {
		t.Fatalf("no scenario: %v", err)
	}
	for _, name := range played {
		there.scenarios[strings.TrimSuffix(filepath.Base(name), ".txt")] = true
	}
	return there
}

var namedTest = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+)`(?: \\(([a-z, ]+)\\))?|`(front_\\w+): ([^`]+)`")

// check says which of the tests that a text of a page names are missing, and how many it names.
func (there tests) check(t *testing.T, page, text string) (named int) {
	t.Helper()
	for _, match := range namedTest.FindAllStringSubmatch(text, -1) {
		named++
		function, scenarios, program, checked := match[1], match[2], match[3], match[4]
		switch {
		case program != "" && !strings.Contains(there.c[program], `{"`+checked+`",`):
			t.Errorf("%s: %s does not check %q", page, program, checked)
		case program == "" && !there.functions[function]:
			t.Errorf("%s: there is no %s", page, function)
		case function == "TestScenarios":
			for _, scenario := range strings.Split(scenarios, ", ") {
				if !there.scenarios[scenario] {
					t.Errorf("%s: there is no scenario %q", page, scenario)
				}
			}
		}
	}
	return named
}

// TestPromisesNameTheirTests: each promise of docs/security.md names a test, and those are there.
func TestPromisesNameTheirTests(t *testing.T) {
	const page = "docs/security.md"
	there, promises := testsThere(t), 0
	for _, columns := range tableBelow(t, page, "What holds each promise") {
		promises++
		if len(columns) != 4 || there.check(t, page, columns[3]) == 0 {
			t.Errorf("%s: no test of %q", page, columns[0])
		}
	}
	if promises < 20 {
		t.Errorf("%s has only %d promises: is the form of the page a new one?", page, promises)
	}
}

// tableBelow returns the rows of the first table below a heading of a page, without its head.
func tableBelow(t *testing.T, page, heading string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s: no heading %q", page, heading)
	}
	below, _, _ = strings.Cut(below, "\n## ")
	for line := range strings.Lines(below) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") && rows != nil {
			break
		}
		if strings.HasPrefix(line, "| ") {
			columns := strings.Split(strings.Trim(line, "|"), "|")
			for i := range columns {
				columns[i] = strings.TrimSpace(columns[i])
			}
			rows = append(rows, columns)
		}
	}
	if len(rows) < 3 {
		t.Fatalf("%s: no table below %q", page, heading)
	}
	return rows[2:]
}

// TestReadersStateTheirBounds: the table of docs/security.md has every source that bounds or
// decompresses what it reads, all its columns, and the constants as they are.
func TestReadersStateTheirBounds(t *testing.T) {
	sources := map[string]source{}
	for _, s := range slices.Concat(goSources(t), goSourcesOf(t, "kube")) {
		sources[s.path] = s
	}
	stated := map[string]bool{}
	for _, columns := range tableBelow(t, "docs/security.md", "What every reader takes at most") {
		if len(columns) != 7 {
			t.Errorf("docs/security.md: %d columns of the reader of %q", len(columns), columns[0])
			continue
		}
		name := strings.Trim(columns[5], "`")
		s, ok := sources[name]
		if !ok {
			t.Errorf("docs/security.md: there is no %q", name)
			continue
		}
		for n, what := range []string{"what it reads", "bytes", "depth", "items", "seconds"} {
			if columns[n] == "" && (what != "seconds" || waits(s)) {
				t.Errorf("docs/security.md: %s does not state its %s", name, what)
			}
		}
		stated[s.path] = true
		for _, constant := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(columns[6], -1) {
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
	}
	for name, s := range sources {
		room := strings.HasPrefix(name, "internal/") || strings.HasPrefix(name, "kube/") || strings.HasPrefix(name, "cmd/")
		if reads := bytes.Contains(s.bytes, []byte("os.ReadFile(")); !s.test && room && reads != (whole[name] != "") {
			t.Errorf("%s reads whole files: %v; they need a bound (docs/security.md), or a reason in this test", name, reads)
		}
	}
	own := map[string]string{
		"internal/bench/latency.go": "what a program of ours says that it started",
		"cmd/divvy-plot/main.go":    "what `divvy plan` hands to it",
	}
	for name, s := range sources {
		if !s.test && !strings.HasPrefix(name, "test/") && bounds(s) && !stated[name] && own[name] == "" {
			t.Errorf("docs/security.md: the table of readers lacks %s", name)
		}
	}
}

var (
	bounded = regexp.MustCompile(`io\.LimitReader\(|http\.MaxBytesReader\(|\b(?:gzip|zlib|bzip2|flate|zip|zstd)\.NewReader\(`)
	decoded = regexp.MustCompile(`\b(?:(?:json|yaml|xml|gob)\.NewDecoder|bufio\.NewScanner)\((\S*)`)
	inHand  = regexp.MustCompile(`^(?:bytes|strings)\.NewReader\(`)
)

// bounds says whether a source bounds or decompresses what it reads, or should: it decodes what
// it has not in hand.
func bounds(s source) bool {
	return bounded.Match(s.bytes) || slices.ContainsFunc(decoded.FindAllSubmatch(s.bytes, -1), func(m [][]byte) bool { return !inHand.Match(m[1]) })
}

// waits says whether a source reads what may let it wait: a socket, a program, or, of
// generated ones, messages.
func waits(s source) bool {
	return s.generated || s.imports()["net/http"] != "" || s.imports()["os/exec"] != ""
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
	const page = "docs/fault-kinds.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if named := testsThere(t).check(t, page, string(text)); named < 60 {
		t.Errorf("only %d tests are named: is the form of the page a new one?", named)
	}
}
