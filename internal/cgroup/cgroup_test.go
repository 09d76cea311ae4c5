// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func proc(t *testing.T, files map[string]string) string {
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

func TestFind(t *testing.T) {
	const old = "30 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
	for _, c := range []struct{ name, mounts, root string }{
		{"alone", "31 20 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup"},
		{"beside version 1", old + "31 20 0:27 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n", "/sys/fs/cgroup/unified"},
		{"with a blank", `31 20 0:27 / /a\040b rw - cgroup2 none rw`, "/a b"},
		{"version 1 only", old, ""},
		{"a part of the tree", "31 20 0:27 /user.slice /sys/fs/cgroup rw - cgroup2 none rw\n", ""},
		{"nonsense", "- -\n\n1 2 3\n", ""},
	} {
		tree, err := Find(proc(t, map[string]string{"self/mountinfo": c.mounts}))
		if tree.root != c.root || (err != nil) != (c.root == "") || err != nil && !errors.Is(err, ErrNone) {
			t.Errorf("%s: %+v, %v", c.name, tree, err)
		}
	}
}

func TestOf(t *testing.T) {
	tree := Tree{root: "/sys/fs/cgroup", proc: proc(t, map[string]string{
		"1/cgroup": "3:cpu:/old\n0::/divvy/train\n", "2/cgroup": "3:cpu:/old\n", "3/cgroup": "0::/gone (deleted)\n",
	})}
	for pid, want := range map[int]string{1: "/sys/fs/cgroup/divvy/train", 2: "", 3: "/sys/fs/cgroup/gone", 4: ""} {
		if got, err := tree.Of(pid); got != want || (err != nil) != (want == "") {
			t.Errorf("process %d: %q, %v", pid, got, err)
		}
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		path, group string
		want        bool
	}{{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/", "/a", false}, {"/a", "/", true}} {
		if got := Within(c.path, c.group); got != c.want {
			t.Errorf("%s within %s: %v", c.path, c.group, got)
		}
	}
}

// TestRealTree uses the machine's own groups, where it may.
func TestRealTree(t *testing.T) {
	tree, err := Find("/proc")
	if err != nil {
		t.Skipf("needs control groups of version 2: %v", err)
	}
	path, err := tree.Make("divvy-test-" + filepath.Base(t.TempDir()))
	if err != nil {
		t.Skipf("needs the right to make control groups: %v", err)
	}
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil || child.Start() != nil {
		t.Fatal(err)
	}
	if err := tree.Enter(path, child.Process.Pid); err != nil {
		t.Error(err)
	}
	if got, err := tree.Of(child.Process.Pid); got != path || err != nil {
		t.Errorf("process in %q, %v", got, err)
	}
	if err := tree.Remove(path); err == nil {
		t.Error("a group with a process was removed")
	}
	_ = in.Close()
	_ = child.Wait()
	for range 2 {
		if err := tree.Remove(path); err != nil {
			t.Error(err)
		}
	}
	if tree.Has(path) {
		t.Error("still there")
	}
}

func TestBound(t *testing.T) {
	root := proc(t, map[string]string{
		"memory.max": "1", "free/cpu.max": "max 100000", "free/memory.max": "max", "free/cpuset.cpus": "\n",
		"held/memory.max": "1073741824", "held/below/memory.max": "max", "slow/cpu.max": "50000 100000", "pinned/cpuset.cpus": "0-3\n",
	})
	tree := Tree{root: root}
	for name, want := range map[string]string{
		"free": "", "held": "held/memory.max", "held/below": "held/memory.max", "slow": "slow/cpu.max", "pinned": "pinned/cpuset.cpus", ".": "", "../elsewhere": "",
	} {
		if want != "" {
			want = filepath.Join(root, want)
		}
		if got := tree.Bound(filepath.Join(root, name)); got != want {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
}

// Whatever the mounts are, a tree that is found is mounted as version 2.
func FuzzFind(f *testing.F) {
	f.Add("31 20 0:27 / /sys/fs/cgroup rw - cgroup2 none rw\n")
	f.Add(`1 2 3 / /a\04 rw - cgroup2`)
	f.Fuzz(func(t *testing.T, mounts string) {
		tree, err := Find(proc(t, map[string]string{"self/mountinfo": mounts}))
		if err == nil && (tree.root == "" || !strings.Contains(mounts, "cgroup2")) {
			t.Errorf("%q has a tree at %q", mounts, tree.root)
		}
	})
}
