// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestExamineProgram(t *testing.T) {
	folder := t.TempDir()
	source := filepath.Join(folder, "main.c")
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	build := func(name string, flags ...string) string {
		path := filepath.Join(folder, name)
		if out, err := exec.Command("gcc", append(flags, "-o", path, source)...).CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
		return path
	}
	setuid := build("setuid")
	if err := os.Chmod(setuid, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	script := func(name, interpreter string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte("#!"+interpreter+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	static := build("static", "-static")
	for _, c := range []struct{ program, status, detail string }{
		{build("dynamic"), checkOK, "dynamically linked"},
		{static, checkNote, "statically linked"},
		{build("musl", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"), checkNote, "musl"},
		{setuid, checkFail, "setuid"},
		{script("script", "/bin/sh"), checkOK, "dynamically linked"},
		{script("of-static", static), checkNote, "of-static is run by " + static + ": " + static + " is statically linked"},
		{script("of-script", filepath.Join(folder, "of-static")), checkNote, "statically linked"},
		{script("of-itself", filepath.Join(folder, "of-itself")), checkOK, "interpreter"},
		{script("of-env", "/usr/bin/env -S A=b sh -u"), checkOK, "dynamically linked"},
		{script("of-nothing", ""), checkOK, "interpreter"},
		{script("of-none", filepath.Join(folder, "none")), checkOK, "interpreter"},
		{"no-such-program", checkFail, "not found"},
	} {
		status, detail, _ := examineProgram(c.program)
		if status != c.status || !strings.Contains(detail, c.detail) {
			t.Errorf("%s: %s, %q; want %s with %q", c.program, status, detail, c.status, c.detail)
		}
	}
}

func TestCgroupVersion(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		want string
	}{
		"none":    {"", "none"},
		"unified": {"sys/fs/cgroup/cgroup.controllers", "v2"},
		"legacy":  {"sys/fs/cgroup/memory/tasks", "v1"},
	} {
		root := t.TempDir()
		if c.path != "" {
			path := filepath.Join(root, c.path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := cgroupVersion(root); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Whatever a program's file holds, there is a verdict on one printable line.
func FuzzExamineProgram(f *testing.F) {
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own[:4096])
	f.Add([]byte("#!/bin/sh\n"))
	path := filepath.Join(f.TempDir(), "program")
	f.Fuzz(func(t *testing.T, file []byte) {
		if err := os.WriteFile(path, file, 0o755); err != nil {
			t.Fatal(err)
		}
		status, detail, _ := examineProgram(path)
		if status != checkOK && status != checkNote && status != checkFail || len(detail) > 2*maxInterpreterBytes {
			t.Errorf("status %q, detail of %d bytes", status, len(detail))
		}
	})
}
