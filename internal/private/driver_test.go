// SPDX-License-Identifier: Apache-2.0

package private

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree writes files under a root and returns it.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// library is the header of a shared library for class (1: 32 bits, 2: 64) and machine.
func library(class, machine byte) string {
	header := make([]byte, 64)
	copy(header, "\x7fELF")
	header[4], header[5], header[6] = class, 1, 1
	header[16], header[18], header[20] = 3, machine, 1
	if class == 1 {
		header = header[:52]
		header[40] = 52
	} else {
		header[52] = 64
	}
	return string(header)
}

var amd64, i386 = library(2, 62), library(1, 3)

func TestFindDriver(t *testing.T) {
	const debian = "usr/lib/x86_64-linux-gnu/"
	for name, c := range map[string]struct {
		files      map[string]string
		cuda, nvml string // empty: none
	}{
		"none":       {map[string]string{"etc/ld.so.conf": "/opt/x\n"}, "", ""},
		"half":       {map[string]string{"usr/lib64/libcuda.so.1": amd64}, "", ""},
		"no library": {map[string]string{"usr/lib64/libcuda.so.1": "", "usr/lib64/libnvidia-ml.so.1": amd64}, "", ""},
		"debian":     {map[string]string{debian + "libcuda.so.1": amd64, debian + "libnvidia-ml.so.1": amd64}, debian, debian},
		"elsewhere":  {map[string]string{"etc/ld.so.conf": "include ld.so.conf.d/*.conf # all\n", "etc/ld.so.conf.d/a.conf": "/opt/driver\n", "opt/driver/libcuda.so.1": amd64, "opt/driver/libnvidia-ml.so.1": amd64}, "opt/driver/", "opt/driver/"},
		"loop":       {map[string]string{"etc/ld.so.conf": "include /etc/ld.so.conf\n"}, "", ""},
		// A newer libcuda in a container, that the loader prefers.
		"forward compatibility": {map[string]string{"etc/ld.so.conf": "/usr/local/cuda/compat\n", "usr/local/cuda/compat/libcuda.so.1": amd64, debian + "libcuda.so.1": amd64, debian + "libnvidia-ml.so.1": amd64}, "usr/local/cuda/compat/", debian},
		// The 32-bit driver's folder comes first in the alphabet.
		"two kinds of program": {map[string]string{"etc/ld.so.conf": "include ld.so.conf.d/*.conf\n", "etc/ld.so.conf.d/i386.conf": "/usr/lib/i386-linux-gnu\n", "usr/lib/i386-linux-gnu/libcuda.so.1": i386, "usr/lib/i386-linux-gnu/libnvidia-ml.so.1": i386, debian + "libcuda.so.1": amd64, debian + "libnvidia-ml.so.1": amd64}, debian, debian},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, c.files)
			got, err := FindDriver(root)
			if c.cuda == "" {
				if !errors.Is(err, ErrNoDriver) {
					t.Errorf("got %q, %v; want none", got, err)
				}
				return
			}
			want := Driver{CUDA: filepath.Join(root, c.cuda, "libcuda.so.1"), NVML: filepath.Join(root, c.nvml, "libnvidia-ml.so.1")}
			if err != nil || got != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		})
	}
}

func TestLinkDriverFollowsAnUpdate(t *testing.T) {
	root := tree(t, map[string]string{"etc/ld.so.conf": "/opt\n", "opt/libcuda.so.1": amd64, "opt/libnvidia-ml.so.1.535": amd64, "opt/libnvidia-ml.so.1.550": amd64})
	link := filepath.Join(root, "opt/libnvidia-ml.so.1")
	if err := os.Symlink("libnvidia-ml.so.1.535", link); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "driver")
	for _, version := range []string{"libnvidia-ml.so.1.535", "libnvidia-ml.so.1.550"} {
		_ = os.Remove(link)
		if err := os.Symlink(version, link); err != nil {
			t.Fatal(err)
		}
		found, err := FindDriver(root)
		if err != nil {
			t.Fatal(err)
		}
		if err := LinkDriver(found, folder, 0o700); err != nil {
			t.Fatal(err)
		}
		got, err := os.Readlink(filepath.Join(folder, "libnvidia-ml.so.1"))
		if want := filepath.Join(root, "opt", version); err != nil || got != want {
			t.Errorf("got %q, %v; want %s", got, err, want)
		}
	}
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := LinkDriver(Driver{CUDA: "/a", NVML: "/b"}, folder, 0o700); !errors.Is(err, ErrUnsafe) {
		t.Errorf("a folder open to everybody: got %v, want %v", err, ErrUnsafe)
	}
}

// FuzzLinkerConfig: whatever stands in ld.so.conf, reading it ends and gives
// absolute paths.
func FuzzLinkerConfig(f *testing.F) {
	for _, seed := range []string{"/opt/x\n", "include ld.so.conf.d/*.conf\n", "include /etc/ld.so.conf\n# x", "hwcap 1 x\n/a b\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "etc/ld.so.conf"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var folders []string
		readLinkerConfig(root, "/etc/ld.so.conf", 0, &folders)
		for _, folder := range folders {
			if !strings.HasPrefix(folder, "/") {
				t.Errorf("%q is not absolute", folder)
			}
		}
	})
}
