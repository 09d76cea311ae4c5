// SPDX-License-Identifier: Apache-2.0

// Package divvy_test holds the gates that look at the sources themselves:
// import map, package comments, licence headers, file lengths and the calls
// that STYLE rules out. They read the files and run no other program, so that
// the test cache sees what they depend on.
package divvy_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

const (
	maxLines = 600
	licence  = "SPDX-License-Identifier: Apache-2.0"
)

// source is one Go file of the repository.
type source struct {
	path      string // slash-separated, from the root
	folder    string
	bytes     []byte
	file      *ast.File
	set       *token.FileSet
	generated bool
	test      bool
}

func (s source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.set.Position(n.Pos()).Line)
}

// imports returns local name (or last path element) by import path.
func (s source) imports() map[string]string {
	found := map[string]string{}
	for _, spec := range s.file.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(target)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		found[target] = name
	}
	return found
}

// walkSources calls visit for each file that belongs to the repository:
// build outputs, hidden folders, testdata and other modules are left out.
func walkSources(t *testing.T, visit func(name string)) {
	t.Helper()
	walkModule(t, ".", visit)
}

// walkModule is walkSources of one module.
func walkModule(t *testing.T, folder string, visit func(name string)) {
	t.Helper()
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			base := entry.Name()
			switch {
			case name == folder:
				return nil
			case name == "bin", name == "lib", name == "build", base == "testdata", base == "node_modules",
				strings.HasPrefix(base, ".") && base != ".ci":
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				return fs.SkipDir
			}
			return nil
		}
		if entry.Type().IsRegular() {
			visit(filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func goSources(t *testing.T) []source {
	t.Helper()
	return goSourcesOf(t, ".")
}

func goSourcesOf(t *testing.T, folder string) []source {
	t.Helper()
	var sources []source
	walkModule(t, folder, func(name string) {
		if path.Ext(name) != ".go" {
			return
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, raw, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, source{
			path: name, folder: path.Dir(name), bytes: raw, file: file, set: set,
			generated: ast.IsGenerated(file), test: strings.HasSuffix(name, "_test.go"),
		})
	})
	if len(sources) == 0 {
		t.Fatal("no Go source found: run from the root of the repository")
	}
	return sources
}

func TestImportMap(t *testing.T) {
	known := map[string]room{}
	for _, r := range rooms {
		if _, twice := known[r.path]; twice {
			t.Errorf("importmap_test.go: %s is listed twice", r.path)
		}
		known[r.path] = r
	}
	used := map[string]map[string]bool{}
	for _, s := range goSources(t) {
		if s.folder == "." {
			continue
		}
		r, ok := known[s.folder]
		if !ok {
			t.Errorf("%s: package %s is not in the import map; add its line to importmap_test.go", s.path, s.folder)
			continue
		}
		if used[r.path] == nil {
			used[r.path] = map[string]bool{}
		}
		checkImports(t, s, r, used[r.path])
	}
	for _, r := range rooms {
		if used[r.path] == nil {
			t.Errorf("importmap_test.go: %s has no source; remove its line", r.path)
			continue
		}
		for _, edge := range slices.Concat(r.may, r.tests, r.thirdParty) {
			if !used[r.path][edge] {
				t.Errorf("importmap_test.go: %s does not import %s; remove the edge", r.path, edge)
			}
		}
		if r.executes && !used[r.path]["os/exec"] {
			t.Errorf("importmap_test.go: %s does not run other programs; remove executes", r.path)
		}
	}
}

func checkImports(t *testing.T, s source, r room, used map[string]bool) {
	t.Helper()
	for target := range s.imports() {
		inside, ours := strings.CutPrefix(target, module+"/")
		switch {
		case ours:
			used[inside] = true
			if inside == r.path && s.test {
				continue // an external test of its own package
			}
			if inside == "internal/cli" && r.path != "cmd/divvy" && r.path != "cmd/divvy-agent" {
				t.Errorf("%s: only programs import internal/cli", s.path)
			}
			if !slices.Contains(r.may, inside) && !(s.test && slices.Contains(r.tests, inside)) {
				t.Errorf("%s: %s may not import %s", s.path, r.path, inside)
			}
		case target == "os/exec":
			if !s.test {
				used["os/exec"] = true
				if !r.executes {
					t.Errorf("%s: %s may not run other programs", s.path, r.path)
				}
			}
		case strings.HasPrefix(target, "k8s.io/"), strings.HasPrefix(target, "sigs.k8s.io/"):
			t.Errorf("%s: %s belongs to kube/", s.path, target)
		case strings.Contains(strings.Split(target, "/")[0], "."):
			match := func(prefix string) bool { return target == prefix || strings.HasPrefix(target, prefix+"/") }
			i := slices.IndexFunc(r.thirdParty, match)
			if i >= 0 {
				used[r.thirdParty[i]] = true
			} else if !s.test || !slices.ContainsFunc(testThirdParty, match) {
				t.Errorf("%s: %s may not import %s", s.path, r.path, target)
			}
		case target == "C":
			used["C"] = true
			if !slices.Contains(r.thirdParty, "C") {
				t.Errorf("%s: %s may not use cgo", s.path, r.path)
			}
		}
		if r.pure && !s.test && slices.Contains(impure, target) {
			t.Errorf("%s: %s is pure and may not import %s", s.path, r.path, target)
		}
	}
	if r.pure && !s.test {
		checkPure(t, s)
	}
}

// checkPure finds goroutines and questions to the clock.
func checkPure(t *testing.T, s source) {
	t.Helper()
	ast.Inspect(s.file, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok {
			t.Errorf("%s: a pure room starts no goroutine", s.at(g))
		}
		return true
	})
	for _, name := range []string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker", "AfterFunc"} {
		for _, call := range callsOf(s, "time", name) {
			t.Errorf("%s: a pure room is told the time, it does not ask time.%s", s.at(call), name)
		}
	}
}

// callsOf finds uses of package.name in a file.
func callsOf(s source, pkg, name string) []ast.Node { return callsIn(s, s.file, pkg, name) }

func callsIn(s source, part ast.Node, pkg, name string) []ast.Node {
	local, ok := s.imports()[pkg]
	if !ok {
		return nil
	}
	var found []ast.Node
	ast.Inspect(part, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok || selector.Sel.Name != name {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && x.Name == local {
			found = append(found, n)
		}
		return true
	})
	return found
}

func TestPackageComments(t *testing.T) {
	commented := map[string]bool{}
	for _, s := range goSources(t) {
		if s.test || s.folder == "." {
			continue
		}
		text := strings.TrimSpace(s.file.Doc.Text())
		commented[s.folder] = commented[s.folder] || text != "" && !strings.HasPrefix(text, licence)
	}
	for folder, ok := range commented {
		if !ok {
			t.Errorf("%s: no package comment", folder)
		}
	}
}

// longer are the files that may have more than maxLines lines, with the reason.
var longer = map[string]string{
	"clib/front/gate.c":      "one object: bursts, leases and the monitor share its fields under one lock",
	"clib/front/ledger.c":    "one object: charges, the conversation with the agent and its loss share its fields under one mutex",
	"clib/test/fakedriver.c": "one driver: its calls share one table of things under one mutex",
	"clib/test/front_gate.c": "the scenarios of one object",
}

func TestFileLengths(t *testing.T) {
	generated := map[string]bool{}
	for _, s := range goSources(t) {
		generated[s.path] = s.generated
	}
	walkSources(t, func(name string) {
		switch path.Ext(name) {
		case ".go", ".c", ".h", ".S", ".inc":
		default:
			return
		}
		if generated[name] || strings.HasPrefix(name, "clib/gen/") {
			return
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n := bytes.Count(raw, []byte("\n"))
		_, excepted := longer[name]
		switch {
		case n > maxLines && !excepted:
			t.Errorf("%s: %d lines; look for the second noun inside it (at most %d)", name, n, maxLines)
		case n <= maxLines && excepted:
			t.Errorf("%s: %d lines need no exception; remove it", name, n)
		}
	})
	for name := range longer {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("exception from the length of files: %v", err)
		}
	}
}

func TestMainIsShort(t *testing.T) {
	for _, s := range goSources(t) {
		if n := bytes.Count(s.bytes, []byte("\n")); strings.HasPrefix(s.folder, "cmd/") && n > 40 {
			t.Errorf("%s: %d lines; cmd is arguments in, exit code out (at most 40)", s.path, n)
		}
	}
}

func TestRuledOutCalls(t *testing.T) {
	for _, s := range goSources(t) {
		if s.test {
			for _, call := range callsOf(s, "time", "Sleep") {
				t.Errorf("%s: tests do not sleep; wait for what should happen, or use testing/synctest", s.at(call))
			}
		}
		if _, ok := s.imports()["unsafe"]; ok && !s.generated &&
			!strings.HasSuffix(strings.TrimSuffix(s.path, ".go"), "_unsafe") && !strings.HasSuffix(s.path, "_unsafe_test.go") {
			t.Errorf("%s: unsafe belongs in a file named *_unsafe.go", s.path)
		}
		if !s.test && strings.HasPrefix(s.folder, "internal/") && s.folder != "internal/cli" {
			for _, name := range []string{"Background", "TODO"} {
				for _, call := range callsOf(s, "context", name) {
					t.Errorf("%s: no context.%s below internal/cli; take a context from the caller", s.at(call), name)
				}
			}
		}
		for _, declaration := range s.file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: no init functions", s.at(f))
			}
			if _, ok := declaration.(*ast.GenDecl); ok && !s.test && strings.HasPrefix(s.folder, "internal/") {
				for _, call := range callsIn(s, declaration, "regexp", "MustCompile") {
					t.Errorf("%s: every command would wait for this; use pattern.Of", s.at(call))
				}
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) > 0 || !s.test {
				return true
			}
			if selector, ok := call.Fun.(*ast.SelectorExpr); ok && (selector.Sel.Name == "Skip" || selector.Sel.Name == "SkipNow") {
				if x, ok := selector.X.(*ast.Ident); ok && (x.Name == "t" || x.Name == "b" || x.Name == "tb") {
					t.Errorf("%s: a skipped test says why", s.at(call))
				}
			}
			return true
		})
	}
}

// licensed are the names and endings of files that carry the licence header
// in their first lines.
func licensed(name string) bool {
	switch path.Ext(name) {
	case ".go", ".c", ".h", ".S", ".inc", ".mk", ".service", ".sh", ".py":
		return true
	}
	return name == "Makefile" || strings.HasPrefix(name, "scripts/") || name == ".ci/run"
}

func TestLicenceHeaders(t *testing.T) {
	var missing []string
	walkSources(t, func(name string) {
		if !licensed(name) {
			return
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if head := raw[:min(len(raw), 400)]; !bytes.Contains(head, []byte(licence)) {
			missing = append(missing, name)
		}
	})
	sort.Strings(missing)
	for _, name := range missing {
		t.Errorf("%s: no %q in its first lines", name, licence)
	}
}

// TestNoReplaceInRootModule keeps replace out of the root module.
func TestNoReplaceInRootModule(t *testing.T) {
	raw, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(raw), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "replace") {
			t.Errorf("go.mod: %q: no replace in the root module", line)
		}
	}
}
