// SPDX-License-Identifier: Apache-2.0

package divvy_test

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// includes is the include map of the C files, from the bottom up: whose headers
// the files of a folder may include besides their own. It is exact, as the
// import map is, and a room names only rooms that stand above it here. A new
// folder adds its line, and one in docs/architecture.md.
var includes = []struct {
	room string
	may  []string
}{
	{room: "clib/include"},
	{room: "clib/gen"},
	{room: "clib/null", may: []string{"clib/gen"}},
	{room: "clib/guest"},
	{room: "clib/front", may: []string{"clib/gen", "clib/guest", "clib/include"}},
	{room: "clib/call", may: []string{"clib/gen"}},
	{room: "clib/remote", may: []string{"clib/call", "clib/gen", "clib/guest", "clib/include"}},
	{room: "clib/tools", may: []string{"clib/gen", "clib/include"}},
	{room: "clib/slowhost"},
	{room: "clib/ptx"},
	{room: "clib/image", may: []string{"clib/ptx"}},
	{room: "clib/worker", may: []string{"clib/call", "clib/gen", "clib/image", "clib/include"}},

	{room: "clib/standin/table"},
	{room: "clib/standin/sim", may: []string{"clib/include"}},
	{room: "clib/standin/nvml", may: []string{"clib/gen", "clib/standin/sim"}},
	{room: "clib/standin/cuda", may: []string{"clib/gen", "clib/image", "clib/include", "clib/standin/sim", "clib/standin/table"}},
	{room: "clib/standin/memory", may: []string{"clib/include", "clib/ptx", "clib/standin/cuda"}},
	{room: "clib/standin/module", may: []string{"clib/gen", "clib/image", "clib/standin/cuda", "clib/standin/memory"}},
	{room: "clib/standin/work", may: []string{"clib/ptx", "clib/standin/cuda", "clib/standin/memory", "clib/standin/module"}},
	{room: "clib/standin/graph", may: []string{"clib/standin/cuda", "clib/standin/memory", "clib/standin/work"}},
	{room: "clib/standin/stream", may: []string{"clib/standin/cuda", "clib/standin/graph", "clib/standin/memory", "clib/standin/module", "clib/standin/work"}},

	{room: "clib/test", may: []string{"clib/front", "clib/gen", "clib/guest", "clib/include", "clib/tools", "clib/worker"}},
	{room: "clib/test/ptxfuzz", may: []string{"clib/gen"}},
	{room: "clib/test/snippets", may: []string{"clib/gen"}},
	{room: "clib/test/standin", may: []string{"clib/gen", "clib/image", "clib/include", "clib/ptx", "clib/standin/cuda", "clib/standin/table", "clib/test"}},
}

// includeRoots are the folders of -I; a file's own folder comes before them.
var includeRoots = []string{"clib", "clib/include", "clib/gen", "clib/guest", "clib/call", "clib/worker", "clib/front", "clib/null", "clib/standin", "clib/test"}

// madeHeaders are written by the build, for the folder that includes them.
var madeHeaders = []string{"weak.h"}

var includeLine = regexp.MustCompile(`(?m)^\s*#\s*include "([^"]+)"`)

func TestIncludeMap(t *testing.T) {
	above := map[string][]string{} // by room, once it has been read
	known := map[string]int{}
	for i, r := range includes {
		known[r.room] = i
		for _, other := range r.may {
			if j, ok := known[other]; !ok || j == i {
				t.Errorf("includemap_test.go: %s includes %s, which does not stand above it", r.room, other)
			}
		}
	}
	uses := map[string][]string{} // by unit: a file and its header
	walkSources(t, func(name string) {
		if !strings.HasPrefix(name, "clib/") || !slices.Contains([]string{".c", ".h", ".inc"}, path.Ext(name)) {
			return
		}
		room := path.Dir(name)
		i, ok := known[room]
		if !ok {
			t.Errorf("%s: %s is not in the include map; add its line to includemap_test.go", name, room)
			return
		}
		if above[room] == nil {
			above[room] = []string{}
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range includeLine.FindAllSubmatch(raw, -1) {
			found := resolveInclude(room, string(match[1]))
			if found == "" {
				if !slices.Contains(madeHeaders, string(match[1])) {
					t.Errorf("%s: %q lies in no folder of the include map", name, match[1])
				}
				continue
			}
			uses[unit(name)] = append(uses[unit(name)], unit(found))
			if other := path.Dir(found); other != room {
				above[room] = append(above[room], other)
				if !slices.Contains(includes[i].may, other) {
					t.Errorf("%s: %s may not include %s", name, room, found)
				}
			}
		}
	})
	for _, r := range includes {
		if above[r.room] == nil {
			t.Errorf("includemap_test.go: %s has no source; remove its line", r.room)
			continue
		}
		for _, other := range r.may {
			if !slices.Contains(above[r.room], other) {
				t.Errorf("includemap_test.go: %s does not include %s; remove the edge", r.room, other)
			}
		}
	}
	for _, round := range cycles(uses) {
		t.Errorf("these include each other: %s", strings.Join(round, ", "))
	}
}

// resolveInclude finds a header as the compiler does, or returns "".
func resolveInclude(room, header string) string {
	for _, folder := range append([]string{room}, includeRoots...) {
		name := path.Join(folder, header)
		if _, err := os.Stat(name); err == nil {
			return name
		}
	}
	return ""
}

// unit is a file without its ending: a header and what it declares are one.
func unit(name string) string { return strings.TrimSuffix(name, path.Ext(name)) }

// cycles returns each way round, once, as the units on it.
func cycles(uses map[string][]string) [][]string {
	const onTheWay, done = 1, 2
	var found [][]string
	var way []string
	state := map[string]int{}
	var visit func(string)
	visit = func(one string) {
		state[one] = onTheWay
		way = append(way, one)
		for _, next := range uses[one] {
			switch {
			case next == one || state[next] == done:
			case state[next] == onTheWay:
				found = append(found, slices.Clone(way[slices.Index(way, next):]))
			default:
				visit(next)
			}
		}
		way = way[:len(way)-1]
		state[one] = done
	}
	for one := range uses {
		if state[one] == 0 {
			visit(one)
		}
	}
	return found
}

func TestIncludeCyclesAreFound(t *testing.T) {
	straight := map[string][]string{"a": {"b", "c"}, "b": {"c", "b"}}
	if found := cycles(straight); len(found) != 0 {
		t.Errorf("a way down is called a cycle: %v", found)
	}
	round := map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"a"}}
	if found := cycles(round); len(found) != 1 || len(found[0]) != 3 {
		t.Errorf("the way round of three is %v", found)
	}
}
