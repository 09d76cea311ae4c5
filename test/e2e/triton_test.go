// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestTriton: kernels as Triton compiles them today compute what numpy computes, under a
// share of each GPU that they are for, on tensor cores too. Products that later GPUs have a way of
// their own for are refused by name.
func TestTriton(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ gpu, capability, refused string }{
		{"A100-80GB", "80", ""},
		{"H100-80GB", "90", "wgmma"},
		{"B200", "100", "tcgen05"},
	} {
		t.Run(c.gpu, func(t *testing.T) {
			h := newHost(t, hostOptions{cards: c.gpu, generation: generations[2]})
			share := h.share(t, "triton", 512*mib)
			got := run(t, h.Environ(share.Socket), "/usr/bin/python3", filepath.Join(root(t), "test", "e2e", "testdata", "triton.py"),
				filepath.Join(root(t), "test", "corpus", "triton"), c.capability)
			if got.code != 0 {
				t.Fatalf("code %d\n%s\n%s", got.code, got.stdout, tail(got.stderr, 2000))
			}
			lines, refused := 0, 0
			for line := range strings.Lines(got.stdout) {
				lines++
				name, said, _ := strings.Cut(strings.TrimSpace(line), " ")
				if c.refused != "" && (name == "gemm" || name == "attention") && strings.HasPrefix(said, "error 218, line ") && strings.Contains(said, c.refused) {
					refused++
					continue
				}
				if said != "right" {
					t.Errorf("%s: %s", name, said)
				}
			}
			if (refused == 2) != (c.refused != "") {
				t.Errorf("%d kernels are refused for %q", refused, c.refused)
			}
			if lines != 14 {
				t.Errorf("%d kernels, want 14\n%s", lines, got.stdout)
			}
		})
	}
}
