// SPDX-License-Identifier: Apache-2.0

package library

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func asExit(err error, target **exec.ExitError) bool { return errors.As(err, target) }

// fakeInstall makes prefix/bin/divvy and, if asked, prefix/lib/divvy.
func fakeInstall(t *testing.T, libraries bool) (binary, dir string) {
	t.Helper()
	prefix := t.TempDir()
	binary, dir = filepath.Join(prefix, "bin", "divvy"), filepath.Join(prefix, "lib", "divvy")
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, binary, "")
	if libraries {
		if err := os.MkdirAll(filepath.Join(dir, "front"), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "front", CUDAName), "")
	}
	return binary, dir
}

func TestFind(t *testing.T) {
	binary, dir := fakeInstall(t, true)
	bare, missing := fakeInstall(t, false)
	link := filepath.Join(t.TempDir(), "divvy")
	if err := os.Symlink(binary, link); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, variable, binary, want string
		inError                      []string
	}{
		{name: "beside the binary", binary: binary, want: dir},
		{name: "beside the file that a link names", binary: link, want: dir},
		{name: "in the variable", variable: dir, binary: bare, want: dir},
		{name: "beside the binary when the variable is wrong", variable: missing, binary: binary, want: dir},
		{name: "nowhere", binary: bare, inError: []string{"$DIVVY_LIBDIR (not set)", "lib/divvy"}},
		{name: "nowhere, with the variable", variable: "/no/such", binary: bare, inError: []string{"$DIVVY_LIBDIR (/no/such)", "lib/divvy"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Find(func(string) string { return test.variable }, func() (string, error) { return test.binary, nil })
			if test.want != "" && (err != nil || string(got) != test.want) {
				t.Errorf("found %q, %v, want %q", got, err, test.want)
			}
			for _, part := range test.inError {
				if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), part) {
					t.Errorf("error is %v, want %q in it", err, part)
				}
			}
		})
	}
}

func TestStandin(t *testing.T) {
	_, dir := fakeInstall(t, true)
	for _, name := range []string{"standin", "standin-13.0"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, CUDAName), "")
	}
	for generation, want := range map[string]string{"": "standin", "12.2": "standin", "13.0": "standin-13.0"} {
		got, err := Dir(dir).Standin(generation)
		if err != nil || got != filepath.Join(dir, want) {
			t.Errorf("generation %q is in %q, %v", generation, got, err)
		}
	}
	if _, err := Dir(dir).Standin("11.8"); !errors.Is(err, ErrNotFound) {
		t.Errorf("error is %v", err)
	}
}

func TestCaches(t *testing.T) {
	for _, test := range []struct {
		uid         int
		cache, home string
		want        []string
	}{
		{0, "/c", "/h", []string{"/var/cache/divvy/front"}},
		{1000, "/c", "/h", []string{"/c/divvy/front", "/h/.cache/divvy/front"}},
		{1000, "relative", "/h", []string{"/h/.cache/divvy/front"}},
		{1000, "", "", nil},
	} {
		environment := map[string]string{"XDG_CACHE_HOME": test.cache, "HOME": test.home}
		if got := Caches(func(name string) string { return environment[name] }, test.uid); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
