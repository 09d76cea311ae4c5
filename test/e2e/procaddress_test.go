// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// baseNames are the names that programs pass to cuGetProcAddress: without
// version and stream suffixes, and some that do not exist.
func baseNames(t testing.TB) []string {
	t.Helper()
	var names []string
	for _, symbol := range symbols(t, func(fate string) bool { return fate != "absent" }) {
		if !strings.HasPrefix(symbol, "cu") || strings.HasPrefix(symbol, "cudbg") {
			continue
		}
		names = append(names, symbol)
		for _, suffix := range []string{"_ptds", "_ptsz", "_v2", "_v3", "_v4"} {
			symbol = strings.TrimSuffix(symbol, suffix)
		}
		names = append(names, symbol)
	}
	names = append(names, "cuNoSuchCall", "cuMemAlloc_v9", "", "nvmlInit", "malloc")
	slices.Sort(names)
	return slices.Compact(names)
}

// cuGetProcAddress answers what the driver answers, for every name, version and
// flag; a hooked function comes from the front library, in the same variant.
func TestGetProcAddress(t *testing.T) {
	hooked := map[string]bool{}
	for _, symbol := range hookedSymbols(t) {
		hooked[symbol] = true
	}
	names := strings.Join(baseNames(t), "\n") + "\n"
	for _, g := range generations {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, hostOptions{generation: g})
			share := h.share(t, "procaddress", 256*mib)
			ask := func(env []string) []string {
				command := exec.CommandContext(t.Context(), built(t, "build", "test", "procaddress"))
				command.Stdin = strings.NewReader(names)
				answer := finish(t, command, env)
				if answer.code != 0 {
					t.Fatalf("exit code %d: %s", answer.code, tail(answer.stderr, 500))
				}
				return strings.Split(strings.TrimSpace(answer.stdout), "\n")
			}
			driver, front := ask(h.Unheld()), ask(h.Environ(share.Socket))
			if len(driver) != len(front) {
				t.Fatalf("%d answers with the front, %d without", len(front), len(driver))
			}
			wrong, found, replaced := 0, 0, 0
			for i := range driver {
				before, file := cut(driver[i])
				after, ours := cut(front[i])
				symbol := before[strings.LastIndex(before, " ")+1:]
				ourSide := filepath.Dir(ours) == filepath.Clean(h.FrontDirectory)
				switch {
				case before != after:
					wrong++
					if wrong <= 20 {
						t.Errorf("with the front %q, without %q", after, before)
					}
				case hooked[symbol] && !ourSide:
					wrong++
					if wrong <= 20 {
						t.Errorf("%q: a hooked function comes from %s", after, ours)
					}
				}
				if file != "-" {
					found++
				}
				if hooked[symbol] {
					replaced++
				}
			}
			if wrong > 20 {
				t.Errorf("%d wrong answers in all", wrong)
			}
			if found == 0 || replaced == 0 || found == len(driver) {
				t.Errorf("%d of %d questions found a function, %d a hooked one: the test asks nothing", found, len(driver), replaced)
			}
			t.Logf("%d questions, %d functions found, %d of them hooked", len(driver), found, replaced)
		})
	}
}

// cut splits the last column off.
func cut(line string) (rest, last string) {
	i := strings.LastIndex(line, " ")
	return line[:i], line[i+1:]
}
