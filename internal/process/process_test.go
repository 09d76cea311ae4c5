// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A process in a user namespace is that of who made the namespace; one in ours is its own.
func TestUserNamespace(t *testing.T) {
	table := New("/proc")
	if number, uid, ok := table.UserNamespace(os.Getpid()); ok {
		t.Errorf("this process is said to be in user namespace %d of uid %d", number, uid)
	}
	child := exec.Command("sleep", "60")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	if err := child.Start(); err != nil {
		t.Skipf("no user namespaces here: %v", err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", child.Process.Pid))
	if number, uid, ok := table.UserNamespace(child.Process.Pid); err != nil || !ok || uid != os.Geteuid() || link != fmt.Sprintf("user:[%d]", number) {
		t.Errorf("the namespace is said to be %d of uid %d, %v; the kernel says %s (%v)", number, uid, ok, link, err)
	}
}

func TestTable(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/7/stat", "7 (a) b) c) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 100\n")
	write(t, root+"/7/cmdline", "python3\x00-c\x00print(\x1b)\x00")
	write(t, root+"/7/status", "Name:\tpython3\nNSpid:\t7\t3\n")
	write(t, root+"/7/maps", "7f00-7f01 rw-s 00000000 00:01 2052                       /memfd:divvy-client (deleted)\n")
	write(t, root+"/8/maps", "7f00-7f01 rw-s 00000000 00:01 2053                       /memfd:divvy-client (deleted)\n")
	write(t, root+"/9/stat", "9 (x)")
	write(t, root+"/9/cmdline", "")
	write(t, root+"/9/comm", "kworker\n")
	table := New(root)
	if start, err := table.Start(7); err != nil || start != 4711 {
		t.Errorf("start %d, %v", start, err)
	}
	if _, err := table.Start(9); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("start out of a short line: %v", err)
	}
	if _, err := table.Start(10); !errors.Is(err, ErrGone) {
		t.Errorf("start of nobody: %v", err)
	}
	if got := table.Command(7); got != "python3 -c print(?)" {
		t.Errorf("command %q", got)
	}
	if got := table.Command(9); got != "kworker" {
		t.Errorf("command %q", got)
	}
	if pid, err := table.Inside(7); err != nil || pid != 3 {
		t.Errorf("inside %d, %v", pid, err)
	}
	if pids, err := table.Mapping(2052, "divvy-client"); err != nil || !slices.Equal(pids, []int{7}) {
		t.Errorf("mapping %v, %v", pids, err)
	}
}

// A process runs until the last of its threads has ended.
func TestRunning(t *testing.T) {
	root := t.TempDir()
	for state, want := range map[string]bool{"S 1": true, "T 1": true, "Z 2": true, "Z 1": false, "X 1": false} {
		letter, threads, _ := strings.Cut(state, " ")
		write(t, root+"/7/stat", "7 (a) "+letter+" 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 "+threads+" 0 4711 99 100\n")
		if got := New(root).Running(7, 4711); got != want {
			t.Errorf("in state %s, with threads %s, it runs: %v", letter, threads, got)
		}
	}
	if New(root).Running(7, 4712) || New(root).Running(8, 4711) {
		t.Error("another process runs")
	}
}

// A process is dying when no thread of it runs the program any more.
func TestDying(t *testing.T) {
	const living, exiting = "4194560", "4194564"
	const none, killed, terminated = "0000000000000000", "0000000000000100", "0000000000004000"
	for name, c := range map[string]struct {
		state   string
		threads []string // flags and pending signals of each
		want    bool
	}{
		"lives":               {"S", []string{living + " " + none}, false},
		"asked to end":        {"S", []string{living + " " + terminated}, false},
		"stopped":             {"T", []string{living + " " + none}, false},
		"exits":               {"R", []string{exiting + " " + none}, true},
		"killed":              {"D", []string{living + " " + killed}, true},
		"all threads":         {"R", []string{exiting + " " + none, living + " " + killed}, true},
		"one thread lives":    {"R", []string{exiting + " " + none, living + " " + none}, false},
		"the first has ended": {"Z", []string{exiting + " " + none, living + " " + none}, false},
		"zombie":              {"Z", []string{exiting + " " + none}, true},
		"strange flags":       {"S", []string{"x " + none}, false},
		"strange signals":     {"S", []string{living + " x"}, false},
	} {
		root := t.TempDir()
		stat := func(flags string) string {
			return "7 (a) " + c.state + " 1 7 7 0 -1 " + flags + " 1 2 3 4 5 6 7 8 20 0 " + strconv.Itoa(len(c.threads)) + " 0 4711 99 100\n"
		}
		write(t, root+"/7/stat", stat(living))
		for i, thread := range c.threads {
			flags, pending, _ := strings.Cut(thread, " ")
			write(t, root+"/7/task/"+strconv.Itoa(7+i)+"/stat", stat(flags))
			write(t, root+"/7/task/"+strconv.Itoa(7+i)+"/status", "Name:\ta\nSigPnd:\t"+pending+"\nShdPnd:\t"+none+"\n")
		}
		if got := New(root).Dying(7, 4711); got != c.want {
			t.Errorf("%s: dying %v", name, got)
		}
		if !New(root).Dying(7, 4712) || !New(root).Dying(8, 4711) {
			t.Errorf("%s: another one is not gone", name)
		}
		write(t, root+"/7/stat", "7 (a")
		if New(root).Dying(7, 4711) {
			t.Errorf("%s: one that cannot be read is taken for dying", name)
		}
	}
}

// As this machine's kernel tells it.
func TestDyingForReal(t *testing.T) {
	table := New("/proc")
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	start, err := table.Start(pid)
	if err != nil {
		t.Fatal(err)
	}
	if table.Dying(pid, start) {
		t.Error("dying while it lives")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for !table.Dying(pid, start) { // ends: a zombie is
		runtime.Gosched()
	}
	_ = child.Wait()
	if !table.Dying(pid, start) {
		t.Error("not dying when it is gone")
	}
}

func TestThisProcess(t *testing.T) {
	table := New("/proc")
	start, err := table.Start(os.Getpid())
	if err != nil || start == 0 {
		t.Errorf("start %d, %v", start, err)
	}
	if _, err := table.Namespace(os.Getpid()); err != nil {
		t.Error(err)
	}
	if pid, err := table.Inside(os.Getpid()); err != nil || pid != os.Getpid() {
		t.Errorf("inside %d, %v", pid, err)
	}
	if used, err := table.Resident(os.Getpid()); err != nil || used < 1<<20 || used > 1<<40 {
		t.Errorf("%d bytes resident, %v", used, err)
	}
	for begun := time.Now(); ; {
		if used, err := table.CPU(os.Getpid()); err != nil || used > time.Hour {
			t.Fatalf("%v of processor time, %v", used, err)
		} else if used > 0 {
			break // it was busy waiting for this
		} else if time.Since(begun) > time.Minute {
			t.Fatal("no processor time in a minute of work")
		}
	}
}

// A start is a number that stands after the last bracket.
func FuzzStart(f *testing.F) {
	f.Add([]byte("7 (a) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 100\n"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, stat []byte) {
		s, err := parseStat(stat)
		if err != nil {
			return
		}
		if tail := stat[bytes.LastIndexByte(stat, ')'):]; !bytes.Contains(tail, []byte(strconv.FormatUint(s.start, 10))) {
			t.Fatalf("start %d is not in %q", s.start, tail)
		}
	})
}

// A parent that does not wait for its children has ended ones as soon as they end, and
// not before; one that has none has no ended ones.
func TestChildrenEnded(t *testing.T) {
	table, parent := New("/proc"), os.Getpid()
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if table.ChildrenEnded(child.Process.Pid) {
		t.Error("a process without children has children that have ended")
	}
	if table.ChildrenEnded(parent) {
		t.Error("a child that runs has ended")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for !table.ChildrenEnded(parent) { // ends: a zombie has
		runtime.Gosched()
	}
	_ = child.Wait()
	if table.ChildrenEnded(parent) {
		t.Error("a child that was waited for is still there")
	}
}

// A process may say that its whole memory is its command line, or its environment: no more is
// read than is shown, or than there can be.
func TestEndlessFilesOfAProcess(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cmdline", "comm", "environ", "status"} {
		file := filepath.Join(root, "7", name)
		if err := os.WriteFile(file, []byte("A=b\x00"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, 1<<40); err != nil {
			t.Skip(err) // a file system without sparse files
		}
	}
	table := New(root)
	if c := table.Command(7); len(c) > maxCommandBytes+len("...") || !strings.HasPrefix(c, "A=b") {
		t.Errorf("command %q", c)
	}
	if n := table.Name(7); len(n) > maxCommandBytes+len("...") {
		t.Errorf("name %q", n)
	}
	if v := NewEnvironments(table).Variable(t.Context(), 7, "A"); v != "" {
		t.Errorf("variable %q of an environment that cannot be one", v)
	}
}
