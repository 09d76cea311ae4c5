// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// withoutNVRTC is a folder with all installed packages but the vendor's libraries, to be
// imported by a Python that does not look where they are.
func (c *clients) withoutNVRTC(t *testing.T) string {
	t.Helper()
	packages, err := filepath.Glob(filepath.Join(c.folder, "python", "lib", "python3*", "site-packages", "*"))
	if err != nil || len(packages) == 0 {
		t.Fatalf("no packages: %v", err)
	}
	folder := t.TempDir()
	for _, path := range packages {
		if name := filepath.Base(path); name != "nvidia" {
			if err := os.Symlink(path, filepath.Join(folder, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return folder
}

// TestClientNVRTC: where the library that compiles kernels is missing, programs that need
// it say so in their own way, and end.
func TestClientNVRTC(t *testing.T) {
	known, err := exec.Command("/sbin/ldconfig", "-p").Output()
	if err != nil || strings.Contains(string(known), "libnvrtc") {
		t.Skipf("skipped: NVRTC may be installed on this machine (%v)", err)
	}
	t.Run("hashcat", func(t *testing.T) {
		c := newClients(t, "python", "hashcat")
		share := c.share(t, "without", 512*mib)
		c.folder = t.TempDir() // has no NVRTC
		command := c.hashcat(t, c.Environ(share.Socket), "without", "-m", "0", "-a", "3", strings.Repeat("0123", 8), "?l")
		got := finish(t, command, command.Env)
		if got.code != 255 || !strings.Contains(got.stdout, `"CUDA Toolkit"`) || !strings.Contains(got.stderr, "CUDA compatible platform found") {
			t.Errorf("code %d: %s%s", got.code, tail(got.stdout, 1500), tail(got.stderr, 1500))
		}
	})
	t.Run("cuda-python", func(t *testing.T) {
		c := newClients(t, "python", "cuda-python")
		share := c.share(t, "without", 512*mib)
		command := c.command(t, c.Environ(share.Socket), clientProgram{script: "use_cuda_core.py"}, "work")
		command.Args = slices.Insert(command.Args, 1, "-S") // without site-packages
		got := finish(t, command, append(command.Env, "PYTHONPATH="+c.withoutNVRTC(t)))
		if got.code != 1 || got.stdout != "" || !strings.Contains(got.stderr, `DynamicLibNotFoundError: Failure finding "libnvrtc.so`) {
			t.Errorf("code %d: %s%s", got.code, tail(got.stdout, 1500), tail(got.stderr, 1500))
		}
	})
}
