// SPDX-License-Identifier: Apache-2.0

// Package kube_test holds the gates of this module: import map, package comments, licence
// headers and file lengths. They read the sources and run no other program.
package kube_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root     = "github.com/divvy-gpu/divvy/"
	maxLines = 600
	licence  = "SPDX-License-Identifier: Apache-2.0"
)

type source struct {
	path, folder string
	bytes        []byte
	file         *ast.File
	test         bool
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".go" {
			return err
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, raw, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		all = append(all, source{path: name, folder: path.Dir(name), bytes: raw, file: file, test: strings.HasSuffix(name, "_test.go")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestImportMap(t *testing.T) {
	used := map[string]map[string]bool{}
	for _, s := range sources(t) {
		if s.test || s.folder == "." {
			continue
		}
		i := slices.IndexFunc(rooms, func(r room) bool { return r.path == s.folder })
		if i < 0 {
			t.Errorf("%s: package %s is not in the import map; add its line to importmap_test.go", s.path, s.folder)
			continue
		}
		r := rooms[i]
		if used[r.path] == nil {
			used[r.path] = map[string]bool{}
		}
		for _, spec := range s.file.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			edge := edge(r, target)
			if edge == "" {
				t.Errorf("%s imports %s, which importmap_test.go does not allow", s.path, target)
			}
			used[r.path][edge] = true
			if r.pure && slices.Contains([]string{"os", "net", "net/http", "time", "sync", "log/slog", "os/exec"}, target) {
				t.Errorf("%s is pure, and imports %s", s.path, target)
			}
		}
	}
	for _, r := range rooms {
		if used[r.path] == nil {
			t.Errorf("importmap_test.go: %s has no source; remove its line", r.path)
			continue
		}
		for _, edge := range slices.Concat(r.may, r.thirdParty) {
			if !used[r.path][edge] {
				t.Errorf("importmap_test.go: %s does not import %s; remove it", r.path, edge)
			}
		}
	}
}

// edge is the entry of the map that allows an import, "std" for the standard library.
func edge(r room, target string) string {
	if first, _, _ := strings.Cut(target, "/"); !strings.Contains(first, ".") {
		return "std"
	}
	if own, ok := strings.CutPrefix(target, root); ok {
		if slices.Contains(r.may, own) {
			return own
		}
		return ""
	}
	for _, module := range r.thirdParty {
		if target == module || strings.HasPrefix(target, module+"/") {
			return module
		}
	}
	return ""
}

func TestSources(t *testing.T) {
	commented := map[string]bool{}
	for _, s := range sources(t) {
		if n := bytes.Count(s.bytes, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines: look for a second noun in it", s.path, n)
		}
		if !bytes.HasPrefix(s.bytes, []byte("// "+licence)) {
			t.Errorf("%s does not begin with // %s", s.path, licence)
		}
		if !s.test {
			commented[s.folder] = commented[s.folder] || s.file.Doc != nil
		}
	}
	for folder, ok := range commented {
		if !ok {
			t.Errorf("package %s has no comment", folder)
		}
	}
}
