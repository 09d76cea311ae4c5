// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// reported runs one of testdata/cases, each a small program by which somebody reported a
// fault (its first lines say which), with a user's own agent, and returns what it printed.
func reported(t *testing.T, name string, env ...string) string {
	t.Helper()
	runtime, err := os.MkdirTemp("/tmp", "dv")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(root(t), "test", "e2e", "testdata", "cases", name)
	interpreter := map[string]string{".sh": "sh", ".py": "python3"}[filepath.Ext(name)]
	cmd := exec.Command(interpreter, program)
	cmd.Env = append(os.Environ(), append([]string{
		"PATH=" + filepath.Dir(divvy(t)) + ":" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + runtime,
		"XDG_CACHE_HOME=" + filepath.Join(runtime, "cache"), "DIVVY_LIBDIR=" + built(t, "lib", "divvy"),
	}, env...)...)
	t.Cleanup(func() {
		clean := exec.Command(divvy(t), "cleanup", "--force")
		clean.Env = cmd.Env
		if out, err := clean.CombinedOutput(); err != nil {
			t.Errorf("cleanup: %v\n%s", err, out)
		}
		_ = os.RemoveAll(runtime)
	})
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Fatalf("%s: %v\n%s", name, err, out.String())
	}
	return out.String()
}

// TestBindNow: a dynamic linker that finds all functions at the start starts divvy.
func TestBindNow(t *testing.T) {
	t.Parallel()
	out := reported(t, "18-bind-now/run.sh")
	if strings.Count(out, "code 0\n") != 2 || strings.Contains(out, "symbol lookup error") {
		t.Error(out)
	}
}

// TestIgnoredSignalsStayIgnored: what the caller ignores the command ignores.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	bare, under, _ := strings.Cut(strings.TrimSpace(reported(t, "16-signals-swallowed/ignored.sh")), "\n")
	if bare != under || bare == "" {
		t.Errorf("%q and %q", bare, under)
	}
}

// TestAllIgnoredSignalsStayIgnored tries all, those too that Go gives back to every
// program that it starts.
func TestAllIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	for _, isolate := range []string{"", "--isolate"} {
		if isolate != "" && os.Geteuid() != 0 {
			continue // not everybody may
		}
		out := reported(t, "ignored.py", "ISOLATE="+isolate)
		bare, under, _ := strings.Cut(strings.TrimSpace(out), "\n")
		if bare != under || !strings.HasPrefix(bare, "SigIgn:") {
			t.Errorf("%q and %q", bare, under)
		}
	}
}

// TestBlockedSignalsStayBlocked: the command has the mask of who started it, not that of Go's
// runtime, which unblocks some.
func TestBlockedSignalsStayBlocked(t *testing.T) {
	t.Parallel()
	for _, isolate := range []string{"", "--isolate"} {
		if isolate != "" && os.Geteuid() != 0 {
			continue // not everybody may
		}
		lines := strings.Split(strings.TrimSpace(reported(t, "blocked.py", "ISOLATE="+isolate)), "\n")
		if len(lines) != 7 || lines[6] != "came [10, 15, 40]" || !strings.HasPrefix(lines[0], "SigBlk:") {
			t.Fatalf("%q", lines)
		}
		for i := 0; i < 6; i += 2 {
			if lines[i] != lines[i+1] {
				t.Errorf("%q and %q", lines[i], lines[i+1])
			}
		}
	}
}

// TestAllSignalsArePassedOn: of all signals that can be sent.
func TestAllSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"16-signals-swallowed/passed.py", "passed.py"} {
		if out := reported(t, name); !strings.HasSuffix(strings.TrimSpace(out), "not passed [] code 0") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// TestUserWithoutHome: the front that was built is used, others are made where the user's
// sockets are, and no share is silently held by nothing.
func TestUserWithoutHome(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become a user whom passwd does not have")
	}
	// Of a copy: the repository may lie where others cannot look.
	place, err := os.MkdirTemp("/tmp", "dv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(place) })
	if out, err := exec.Command("sh", "-c", fmt.Sprintf("chmod 755 %[1]s && mkdir %[1]s/bin %[1]s/lib && cp %[2]s %[1]s/bin && cp -r %[3]s %[1]s/lib",
		place, divvy(t), built(t, "lib", "divvy"))).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out := reported(t, "17-no-home/run.sh", "D="+place+"/bin/divvy")
	if strings.Count(out, "code 0\n") != 2 || strings.Contains(out, " booked ") && !strings.Contains(out, "nothing enforces this share") {
		t.Error(out)
	}
	if !strings.Contains(out, " front ") {
		t.Errorf("the share is not held:\n%s", out)
	}
}

// TestSandboxWithoutTheFront: a program that the library is not loaded into ends a run
// that demands it.
func TestSandboxWithoutTheFront(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("needs bubblewrap: ", err)
	}
	// It looks after two seconds, which a busy host may spend otherwise.
	for range 5 {
		out := reported(t, "22-sandbox-escapes-enforce/run.sh", "S="+built(t, "lib", "divvy", "standin"))
		if strings.Contains(out, "bwrap: ") {
			t.Skip("no right to make a sandbox: ", out)
		}
		if !strings.Contains(out, "5000 MiB: 0") || !strings.Contains(out, "code 125") {
			t.Fatalf("no 5000 MiB, or not code 125:\n%s", out)
		}
		if strings.Contains(out, " booked ") && strings.Contains(out, "share=boxed") {
			return
		}
		t.Logf("not seen yet:\n%s", out)
	}
	t.Error("the level shown is not the level seen")
}

// compiled is a program of a case.
func compiled(t *testing.T, name string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	source := filepath.Join(root(t), "test", "e2e", "testdata", "cases", name)
	if out, err := exec.Command("gcc", append(flags, "-w", "-o", program, source, "-ldl", "-lpthread")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// TestProgramThatSetsItsDevices sees the share's GPU as 0, whatever number the machine has
// for it, and a batch system's choice is heeded.
func TestProgramThatSetsItsDevices(t *testing.T) {
	t.Parallel()
	out := reported(t, "devices.sh", "DEVS="+compiled(t, "02-visible-devices-index/devs.c"))
	if strings.Count(out, "CUDA_VISIBLE_DEVICES=0 cuInit 0 count 1\n") != 2 {
		t.Error(out)
	}
}

// TestCachePolicyIsTaken: a policy of caches is a hint.
func TestCachePolicyIsTaken(t *testing.T) {
	t.Parallel()
	if out := reported(t, "policy.sh"); strings.TrimSpace(out) != "evict-last.ptx 0" {
		t.Error(out)
	}
}

// TestFreeingWithoutContext: memory is given back by whoever has its address.
func TestFreeingWithoutContext(t *testing.T) {
	t.Parallel()
	out := reported(t, "free.sh", "FREE="+compiled(t, "05-free-without-context/free.c"))
	if want := "cuMemFree 0\ncuMemFreeHost 0\ncode 0\n"; out != want+want {
		t.Errorf("without a quota and with one: %s", out)
	}
}

// TestSanitizers: programs that are built with them run under a share, and their runtimes in
// LD_PRELOAD keep no signal from divvy.
func TestSanitizers(t *testing.T) {
	t.Parallel()
	for name, runtime := range map[string]string{"address": "libasan.so", "thread": "libtsan.so", "undefined": "libubsan.so"} {
		found, err := exec.Command("gcc", "-print-file-name="+runtime).Output()
		if err != nil {
			t.Fatal(err)
		}
		path := strings.TrimSpace(string(found))
		if !filepath.IsAbs(path) {
			t.Errorf("gcc has no %s", runtime)
			continue
		}
		out := reported(t, "sanitizer.sh", "PROGRAM="+compiled(t, "05-free-without-context/free.c", "-fsanitize="+name), "RUNTIME="+path)
		if !strings.Contains(out, "cuMemFree 0\ncuMemFreeHost 0\nbuilt 0\n") || !strings.HasSuffix(out, "runs\n") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// TestNumbaClose: numba leaves all contexts and frees what it has then.
func TestNumbaClose(t *testing.T) {
	t.Parallel()
	out := reported(t, "close.sh")
	if strings.Count(out, "closed\ncode 0\n") != 2 || strings.Contains(out, "Error") {
		t.Error(out)
	}
}
