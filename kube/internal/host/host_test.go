// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/kube/internal/host"
)

const prefix = "opt/divvy"

// image makes a folder as an image has it.
func image(t *testing.T, version, text string) string {
	t.Helper()
	files := t.TempDir()
	bin := filepath.Join(files, version, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "divvy"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("divvy", filepath.Join(bin, "alias")); err != nil {
		t.Fatal(err)
	}
	return files
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// names lists a folder of the host.
func names(t *testing.T, root string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, prefix))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return strings.Join(all, " ")
}

func TestInstall(t *testing.T) {
	root := t.TempDir()
	install := func(files string) string {
		path, err := host.Install(files, root, prefix)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	first := install(image(t, "1.0.aaa", "first"))
	if first != "/opt/divvy/1.0.aaa" || read(t, root+first+"/bin/alias") != "first" {
		t.Errorf("%s has %q", first, read(t, root+first+"/bin/alias"))
	}
	if info, err := os.Stat(root + first + "/bin/divvy"); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v (%v)", info.Mode(), err)
	}
	before, err := os.Stat(root + first + "/bin/divvy")
	if err != nil {
		t.Fatal(err)
	}
	// The same version again changes no file that a program may have mapped.
	install(image(t, "1.0.aaa", "other"))
	if after, err := os.Stat(root + first + "/bin/divvy"); err != nil || !os.SameFile(before, after) || read(t, root+first+"/bin/divvy") != "first" {
		t.Errorf("the file was replaced (%v)", err)
	}
	install(image(t, "1.1.bbb", "second"))
	if got := read(t, filepath.Join(root, prefix, host.Current, "bin", "divvy")); got != "second" {
		t.Errorf("current is %q", got)
	}
	if got := names(t, root); got != "1.0.aaa 1.1.bbb current" {
		t.Errorf("the host has %s", got)
	}
}

// Several containers of a pod may install at once.
func TestInstallAtOnce(t *testing.T) {
	root, files := t.TempDir(), image(t, "1.0.aaa", "first")
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			if _, err := host.Install(files, root, prefix); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if got := names(t, root); got != "1.0.aaa current" {
		t.Errorf("the host has %s", got)
	}
}

func TestInstallRefuses(t *testing.T) {
	two := image(t, "1.0.aaa", "first")
	if err := os.Mkdir(filepath.Join(two, "1.1.bbb"), 0o755); err != nil {
		t.Fatal(err)
	}
	for files, want := range map[string]string{
		two:                                "there must be one",
		t.TempDir():                        "no version",
		filepath.Join(t.TempDir(), "none"): "no Divvy in it",
	} {
		root := t.TempDir()
		if _, err := host.Install(files, root, prefix); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
