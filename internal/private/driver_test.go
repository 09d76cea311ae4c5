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

func TestFindDriver(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string // empty: none
	}{
		"none":      {map[string]string{"etc/ld.so.conf": "/opt/x\n"}, ""},
		"half":      {map[string]string{"usr/lib64/libcuda.so.1": ""}, ""},
		"debian":    {map[string]string{"usr/lib/x86_64-linux-gnu/libcuda.so.1": "", "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": ""}, "usr/lib/x86_64-linux-gnu"},
		"elsewhere": {map[string]string{"etc/ld.so.conf": "include ld.so.conf.d/*.conf # all\n", "etc/ld.so.conf.d/a.conf": "/opt/driver\n", "opt/driver/libcuda.so.1": "", "opt/driver/libnvidia-ml.so.1": ""}, "opt/driver"},
		"loop":      {map[string]string{"etc/ld.so.conf": "include /etc/ld.so.conf\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, c.files)
			got, err := FindDriver(root)
			if c.want == "" {
				if !errors.Is(err, ErrNoDriver) {
					t.Errorf("got %q, %v; want none", got, err)
				}
				return
			}
			if err != nil || got != filepath.Join(root, c.want) {
				t.Errorf("got %q, %v; want %s", got, err, c.want)
			}
		})
	}
}

func TestLinkDriverFollowsAnUpdate(t *testing.T) {
	root := tree(t, map[string]string{"libcuda.so.1": "", "libnvidia-ml.so.1.535": "", "libnvidia-ml.so.1.550": ""})
	link := filepath.Join(root, "libnvidia-ml.so.1")
	if err := os.Symlink("libnvidia-ml.so.1.535", link); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "driver")
	for _, version := range []string{"libnvidia-ml.so.1.535", "libnvidia-ml.so.1.550"} {
		_ = os.Remove(link)
		if err := os.Symlink(version, link); err != nil {
			t.Fatal(err)
		}
		if err := LinkDriver(root, folder, 0o700); err != nil {
			t.Fatal(err)
		}
		got, err := os.Readlink(filepath.Join(folder, "libnvidia-ml.so.1"))
		if want := filepath.Join(root, version); err != nil || got != want {
			t.Errorf("got %q, %v; want %s", got, err, want)
		}
	}
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := LinkDriver(root, folder, 0o700); !errors.Is(err, ErrUnsafe) {
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
