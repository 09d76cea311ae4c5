// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hookedSymbols reads the one list.
func hookedSymbols(t testing.TB) []string {
	t.Helper()
	return symbols(t, func(fate string) bool { return fate == "hooked" })
}

// symbols returns the names of the list whose fate is wanted.
func symbols(t testing.TB, wanted func(fate string) bool) []string {
	t.Helper()
	file, err := os.Open(filepath.Join(root(t), "clib", "gen", "symbols.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var found []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		columns := strings.Split(lines.Text(), "\t")
		if len(columns) != 6 {
			t.Fatalf("symbols.tsv: %q does not have six columns", lines.Text())
		}
		if wanted(columns[4]) {
			found = append(found, columns[1])
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatal("symbols.tsv has no such symbol")
	}
	return found
}

// snippetAreas returns the areas of the snippets in order, and the symbols that
// they exercise.
func snippetAreas(t testing.TB) (areas []string, exercised map[string]bool) {
	t.Helper()
	listed := run(t, nil, built(t, "build", "test", "snippets-named"), "list")
	if listed.code != 0 {
		t.Fatalf("snippets list: %+v", listed)
	}
	exercised = map[string]bool{}
	for line := range strings.Lines(listed.stdout) {
		area, symbol, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			t.Fatalf("snippets list: %q", line)
		}
		if !slices.Contains(areas, area) {
			areas = append(areas, area)
		}
		exercised[symbol] = true
	}
	return areas, exercised
}

func TestEveryHookedSymbolHasASnippet(t *testing.T) {
	t.Parallel()
	_, exercised := snippetAreas(t)
	for _, symbol := range hookedSymbols(t) {
		if !exercised[symbol] {
			t.Errorf("%s is hooked and no snippet in clib/test/snippets exercises it", symbol)
		}
	}
}

// way is one way for a program to come under the front library, or past it.
type way struct {
	name    string
	program string
	flags   []string
	control bool
	env     func(h *host, socket string) []string
}

// under keeps what the way needs of the environment that divvy run sets.
func under(keep ...string) func(h *host, socket string) []string {
	return func(h *host, socket string) []string {
		return slices.DeleteFunc(h.Environ(socket), func(entry string) bool {
			name, _, _ := strings.Cut(entry, "=")
			return strings.HasPrefix(name, "LD_") && !slices.Contains(keep, name)
		})
	}
}

var ways = []way{
	{name: "linked", program: "snippets-linked", env: under("LD_LIBRARY_PATH")},
	{name: "dlopen", program: "snippets-named", env: under("LD_LIBRARY_PATH")},
	{name: "preload", program: "snippets-rpath", env: under("LD_PRELOAD")},
	{name: "constructor", program: "snippets-linked", flags: []string{"--when=constructor"}, env: under("LD_LIBRARY_PATH")},
	{name: "fork", program: "snippets-linked", flags: []string{"--when=fork"}, env: under("LD_LIBRARY_PATH", "LD_PRELOAD")},
	{name: "control", program: "snippets-named", flags: []string{"--control"}, control: true,
		env: func(h *host, _ string) []string { return h.Unheld() }},
}

const snippetQuota = 512 * mib

func TestSnippets(t *testing.T) {
	t.Parallel()
	areas, _ := snippetAreas(t)
	exercised := map[string]bool{}
	for _, g := range generations {
		t.Run(g.name, func(t *testing.T) {
			h := newHost(t, hostOptions{generation: g})
			share := h.share(t, "snippets", snippetQuota)
			for _, w := range ways {
				// The other generations differ in their symbols, not in how
				// they are loaded.
				if g.name != "12.2" && !w.control && w.name != "dlopen" {
					continue
				}
				for _, area := range areas {
					t.Run(w.name+"/"+area, func(t *testing.T) {
						for _, symbol := range runSnippets(t, h, w, area, share.Socket) {
							exercised[symbol] = true
						}
					})
				}
			}
		})
	}
	if t.Failed() {
		return
	}
	for _, symbol := range hookedSymbols(t) {
		if !exercised[symbol] {
			t.Errorf("no run exercised %s: no generation exports it", symbol)
		}
	}
}

// runSnippets runs one area one way and returns the symbols that were
// exercised. The simulator's account decides whether the quota held.
func runSnippets(t *testing.T, h *host, w way, area, socket string) []string {
	t.Helper()
	h.empty(t)
	h.resetPeak(t)
	args := append([]string{area, fmt.Sprint(snippetQuota)}, w.flags...)
	ended := run(t, w.env(h, socket), built(t, "build", "test", w.program), args...)
	var good []string
	for line := range strings.Lines(ended.stdout) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "ok "):
			good = append(good, strings.TrimPrefix(line, "ok "))
		case strings.HasPrefix(line, "absent "):
		default:
			t.Error(line)
		}
	}
	if ended.code != 0 || len(good) == 0 {
		t.Errorf("exit code %d after %d cases\n%s", ended.code, len(good), tail(ended.stderr, 2000))
	}
	peak := h.peak(t)
	if !w.control && peak > snippetQuota && !measured[area] {
		t.Errorf("the driver saw %d bytes in use, quota %d", peak, snippetQuota)
	}
	if w.control && exceeds[area] && peak <= snippetQuota {
		t.Errorf("without the front the driver saw %d bytes: this area cannot fail", peak)
	}
	return good
}

// measured are the areas whose calls nobody can price beforehand: a module is
// loaded, measured, and unloaded again when the share has no room for it.
var measured = map[string]bool{"module": true}

// exceeds are the areas that ask for more than the quota.
var exceeds = map[string]bool{
	"linear": true, "array": true, "virtual": true, "pool": true, "graph": true, "context": true, "module": true,
}
