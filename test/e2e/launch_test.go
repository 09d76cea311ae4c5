// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
)

// A launch returns before its kernel has run, under the front too: a kernel that waits for
// what its own thread does next would else wait for ever.
func TestKernelsWait(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "doorbell")
	if out, err := exec.Command("gcc", "-w", "-o", program, "testdata/doorbell.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	h := newHost(t, hostOptions{})
	whole := h.share(t, "whole", snippetQuota)
	part := h.shareOf(t, api.ShareSpec{Name: "part", MemoryBytes: snippetQuota, CoresPercent: 30})
	for _, share := range []api.Share{whole, part} {
		for _, form := range [][]string{nil, {"stream"}, {"stream", "late"}} {
			if out := run(t, h.Environ(share.Socket), program, form...); !strings.Contains(out.stdout, "done: 0") {
				t.Errorf("share %s, %v: %+v", share.Name, form, out)
			}
		}
	}
}
