// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/cgroup"
	"github.com/divvy-gpu/divvy/internal/mps"
	terms "github.com/divvy-gpu/divvy/internal/share"
)

// needGroups skips where the test cannot make control groups.
func needGroups(t *testing.T) cgroup.Tree {
	t.Helper()
	tree, err := cgroup.Find("/proc")
	if err != nil {
		t.Skipf("needs control groups of version 2: %v", err)
	}
	path, err := tree.Make("divvy-test-right-" + t.Name())
	if err != nil {
		t.Skipf("needs the right to make control groups: %v", err)
	}
	if err := tree.Remove(path); err != nil {
		t.Fatal(err)
	}
	return tree
}

// wrapped starts a holder by a command line that ends with it; %s is its path.
func (h *host) wrapped(t *testing.T, env []string, line string) *bench.Holder {
	t.Helper()
	folder := t.TempDir()
	script := "#!/bin/sh\nexec " + fmt.Sprintf(line, filepath.Join(h.ToolsDirectory, "holder")) + "\n"
	if err := os.WriteFile(filepath.Join(folder, "holder"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	target := h.Target
	target.ToolsDirectory = folder
	holder, err := target.StartHolder(context.Background(), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(holder.Kill)
	return holder
}

// without takes the front library away from what `divvy run` starts.
func (h *host) without(t *testing.T, share string) string {
	return fmt.Sprintf("%s run --agent %s --share %s -- env -u LD_PRELOAD LD_LIBRARY_PATH=%s", divvy(t), h.AgentSocket, share, h.DriverDirectory)
}

// TestDriverHoldsWithoutTheFront: at level driver a program is held though nothing
// of ours is loaded into it. The same program outside of the share gets the memory.
func TestDriverHoldsWithoutTheFront(t *testing.T) {
	t.Parallel()
	tree := needGroups(t)
	h := newHost(t, hostOptions{generation: generations[2]})
	share, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "held", MemoryBytes: 512 * mib, Enforce: terms.EnforcedDriver})
	if err != nil {
		t.Fatal(err)
	}
	if share.Enforcement != terms.EnforcedDriver {
		t.Fatalf("level %q: %s", share.Enforcement, share.EnforcementWhy)
	}
	control := h.holderIn(t, h.Unheld())
	do(t, control, "start")
	alloc(t, control, 512*mib)

	bare := h.wrapped(t, h.Unheld(), h.without(t, "held")+" %s")
	do(t, bare, "start")
	refused(t, bare, outOfMemory, "alloc %d", 512*mib)
	alloc(t, bare, 256*mib)
	if _, total := room(t, bare); total != 512*mib {
		t.Errorf("it sees %d bytes", total)
	}
	// Both hold a program with the front.
	both := h.wrapped(t, h.Unheld(), fmt.Sprintf("%s run --agent %s --share held --", divvy(t), h.AgentSocket)+" %s")
	do(t, both, "start")
	refused(t, both, outOfMemory, "alloc %d", 256*mib)
	h.wantLevels(t, "held", terms.EnforcedDriver)
	// One that comes past divvy run, as from a container, is refused here.
	outside, err := h.StartHolder(context.Background(), h.Environ(share.Socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(outside.Kill)
	if _, err := outside.Do("start"); err == nil {
		t.Error("a program outside of the control group came under a share that demands the driver")
	}
	if e := h.event(t, "client-refused", "held"); !strings.Contains(e.Message, "outside of the share's control group") {
		t.Error(e.Message)
	}
	// A larger quota is the driver's too.
	larger := uint64(1024 * mib)
	if _, err := h.client.ChangeShare(t.Context(), "held", api.ShareChange{MemoryBytes: &larger}); err != nil {
		t.Fatal(err)
	}
	alloc(t, bare, 512*mib)
	group, err := tree.Of(bare.PID)
	if err != nil || !strings.HasSuffix(group, "/held") {
		t.Errorf("in %q, %v", group, err)
	}
	for _, holder := range []*bench.Holder{bare, both, outside, control} {
		holder.Kill()
	}
	if err := h.client.DeleteShare(t.Context(), "held", true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the control group goes with its share", func() error {
		if tree.Has(group) {
			return errors.New("it is there")
		}
		return nil
	}, h.agent)
}

// wantLevels checks that each program of a share, of which there is one at least,
// is held at a level, in the document and in the table.
func (h *host) wantLevels(t *testing.T, share string, level terms.Enforcement) {
	t.Helper()
	eventually(t, fmt.Sprintf("programs at level %s", level), func() error {
		list, err := h.client.Clients(t.Context())
		if err != nil {
			return err
		}
		seen := 0
		for _, c := range list.Clients {
			if c.Share == share {
				seen++
				if c.Enforcement != level {
					return fmt.Errorf("process %d at %q", c.PID, c.Enforcement)
				}
			}
		}
		if seen == 0 {
			return errors.New("there is none")
		}
		return nil
	}, h.agent)
	out, err := exec.Command(divvy(t), "ps", "-o", "wide", "--agent", h.AgentSocket).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ENFORCED") || !strings.Contains(string(out), string(level)) {
		t.Errorf("%v\n%s", err, out)
	}
}

// fakeMPS puts the fake control daemon where divvy looks for NVIDIA's.
func fakeMPS(t *testing.T) {
	t.Helper()
	folder := t.TempDir()
	for f := folder; f != os.TempDir() && f != "/"; f = filepath.Dir(f) {
		if err := os.Chmod(f, 0o755); err != nil { // servers run as other users
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(folder, "nvidia-cuda-mps-control"), "./test/fakemps")
	build.Dir = root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the fake: %v: %s", err, out)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
}

// startMPS starts the daemon of the host's card.
func (h *host) startMPS(t *testing.T) *mps.Daemon {
	t.Helper()
	devices, err := h.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	uuid := devices.Cards[0].UUID
	if err := os.Mkdir(filepath.Join(h.directory, "mps"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(h.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := mps.New(mps.Config{UUID: uuid, Directory: filepath.Join(h.directory, "mps", uuid)})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(context.Background(), true); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestMPSHoldsEachProcess: on a card whose control daemon runs (the fake one),
// programs are held by MPS, without the front too, and it is looked at that they are.
func TestMPSHoldsEachProcess(t *testing.T) {
	fakeMPS(t)
	h := newHost(t, hostOptions{})
	if _, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "early", MemoryBytes: 512 * mib, Enforce: terms.EnforcedMPS}); err == nil {
		t.Fatal("level mps without a control daemon")
	}
	daemon := h.startMPS(t)
	share, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "held", MemoryBytes: 512 * mib, ThreadsPercent: 40})
	if err != nil {
		t.Fatal(err)
	}
	if share.Enforcement != terms.EnforcedMPS || share.ThreadsPercent != 40 {
		t.Fatalf("level %q: %s", share.Enforcement, share.EnforcementWhy)
	}
	bare := h.wrapped(t, h.Unheld(), h.without(t, "held")+" %s")
	do(t, bare, "start")
	refused(t, bare, outOfMemory, "alloc %d", 512*mib)
	alloc(t, bare, 256*mib)
	// It is a client of the daemon, with the limits that were asked for.
	if err := daemon.Verify(t.Context(), bare.PID, mps.Limits{ActiveThreadPercentage: 40, PinnedBytes: 512 * mib}); err != nil {
		t.Error(err)
	}
	// The trap: a pipe directory that leads nowhere holds nobody, and nothing says so.
	lost := h.wrapped(t, h.Unheld(), h.without(t, "held")+" CUDA_MPS_PIPE_DIRECTORY=/nonexistent %s")
	do(t, lost, "start")
	alloc(t, lost, 1024*mib)
	// And a limit for a card that the program does not see drops all limits.
	dropped := h.wrapped(t, h.Unheld(), h.without(t, "held")+" CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="+share.CardUUID+"=512M,GPU-00000000-0000=1G %s")
	do(t, dropped, "start")
	alloc(t, dropped, 1024*mib)

	// Under the front, what MPS does not hold is found.
	good := h.wrapped(t, h.Unheld(), fmt.Sprintf("%s run --agent %s --share held --", divvy(t), h.AgentSocket)+" %s")
	do(t, good, "start")
	h.wantLevels(t, "held", terms.EnforcedMPS)
	astray := h.wrapped(t, h.Unheld(), fmt.Sprintf("%s run --agent %s --share held -- env CUDA_MPS_PIPE_DIRECTORY=/nonexistent", divvy(t), h.AgentSocket)+" %s")
	do(t, astray, "start")
	if e := h.event(t, "not-enforced", "held"); !strings.Contains(e.Message, "runs without MPS") {
		t.Error(e.Message)
	}
}

// TestMPSDaemonDies: its shares are held by the front alone then, and that is told.
func TestMPSDaemonDies(t *testing.T) {
	fakeMPS(t)
	h := newHost(t, hostOptions{})
	daemon := h.startMPS(t)
	if _, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "held", MemoryBytes: 512 * mib}); err != nil {
		t.Fatal(err)
	}
	if got := h.look(t, "held").Enforcement; got != terms.EnforcedMPS {
		t.Fatalf("level %q", got)
	}
	if err := daemon.Stop(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if s := h.look(t, "held"); s.Enforcement != terms.EnforcedFront || !strings.Contains(s.EnforcementWhy, "no MPS control daemon answers") {
		t.Errorf("level %q: %s", s.Enforcement, s.EnforcementWhy)
	}
	h.event(t, "enforcement-changed", "held")
	if err := daemon.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.look(t, "held").Enforcement; got != terms.EnforcedMPS {
		t.Errorf("after its restart: level %q", got)
	}
}

// TestMPSComesAndGoes: a share that was declared before its card's daemon (the fake
// one) ran is held by it from then on, for containers too, and not when that has been
// killed. Nobody asks for the share meanwhile.
func TestMPSComesAndGoes(t *testing.T) {
	fakeMPS(t)
	folder := t.TempDir()
	h := newHost(t, hostOptions{agentFlags: []string{"--cdi-dir", folder}})
	h.shareOf(t, api.ShareSpec{Name: "early", MemoryBytes: 512 * mib})
	await := func(level terms.Enforcement) {
		t.Helper()
		eventually(t, fmt.Sprintf("level %s", level), func() error {
			told := h.events(t, "enforcement-changed", "early")
			if len(told) == 0 {
				return errors.New("no change")
			}
			files, err := filepath.Glob(filepath.Join(folder, "*early*"))
			if err != nil || len(files) != 1 {
				return fmt.Errorf("files %v, %v", files, err)
			}
			device, err := os.ReadFile(files[0])
			if err != nil {
				return err
			}
			if last := told[len(told)-1].Message; !strings.HasPrefix(last, fmt.Sprintf("held at level %q", level)) ||
				strings.Contains(string(device), "CUDA_MPS_PIPE_DIRECTORY=") != (level == terms.EnforcedMPS) {
				return fmt.Errorf("%s\n%s", last, device)
			}
			return nil
		}, h.agent)
	}
	daemon := h.startMPS(t)
	await(terms.EnforcedMPS)
	holder := h.wrapped(t, h.Unheld(), fmt.Sprintf("%s run --agent %s --share early --", divvy(t), h.AgentSocket)+" %s")
	do(t, holder, "start")
	h.wantLevels(t, "early", terms.EnforcedMPS)

	pid, err := daemon.PID()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(terms.EnforcedFront)
	if err := daemon.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.look(t, "early").Enforcement; got != terms.EnforcedMPS {
		t.Errorf("under the new daemon: level %q", got)
	}
	h.wantLevels(t, "early", terms.EnforcedFront) // the new daemon does not have the program
}

// A level that cannot be had ends divvy run with exit code 4 and the reason.
func TestRunDemandsALevel(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	run := exec.Command(divvy(t), "run", "--agent", h.AgentSocket, "--mem", "256", "--enforce", "driver", "--", "true")
	out, err := run.CombinedOutput()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 4 || !strings.Contains(string(out), "driver: ") {
		t.Errorf("%v: %s", err, out)
	}
	// A static program is not held by a library, and that is said.
	source := filepath.Join(t.TempDir(), "static.c")
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	program := strings.TrimSuffix(source, ".c")
	if out, err := exec.Command("gcc", "-static", "-o", program, source).CombinedOutput(); err != nil {
		t.Skipf("needs a static C library: %s", out)
	}
	out, err = exec.Command(divvy(t), "run", "--agent", h.AgentSocket, "--mem", "256", "--enforce", "front", "--", program).CombinedOutput()
	if !errors.As(err, &failed) || failed.ExitCode() != 4 || !strings.Contains(string(out), "statically linked") {
		t.Errorf("%v: %s", err, out)
	}
	out, err = exec.Command(divvy(t), "run", "--agent", h.AgentSocket, "--mem", "256", "--", program).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "held at level booked only") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestPartitionStartsMPS: a goal file starts a card's control daemon (the fake one),
// changes it and stops it, but not under a client; the agent's shares are under it.
func TestPartitionStartsMPS(t *testing.T) {
	fakeMPS(t)
	h := newHost(t, hostOptions{})
	if err := os.Chmod(h.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	apply := func(mps string, code int, says string, flags ...string) {
		t.Helper()
		h.applyGoal(t, "mps: "+mps, code, says, flags...)
	}
	apply("{enabled: true, activeThreadPercentage: 60}", 0, "start the MPS control daemon for one user at a time, 60% of the processors a client")
	t.Cleanup(func() { apply("{enabled: false}", 0, "", "--force") })
	apply("{enabled: true, activeThreadPercentage: 60}", 0, "nothing")
	share, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "held", MemoryBytes: 512 * mib, Enforce: terms.EnforcedMPS})
	if err != nil {
		t.Fatal(err)
	}
	holder := h.wrapped(t, h.Unheld(), fmt.Sprintf("%s run --agent %s --share held --", divvy(t), h.AgentSocket)+" %s")
	do(t, holder, "start")
	h.wantLevels(t, share.Name, terms.EnforcedMPS)
	apply("{enabled: false}", 4, fmt.Sprint(holder.PID))
	do(t, holder, "exit")
	eventually(t, "its client has left", func() error {
		list, err := h.client.Clients(t.Context())
		if err == nil && len(list.Clients) > 0 {
			err = errors.New("it is there")
		}
		return err
	}, h.agent)
	apply("{enabled: true, pinnedMemoryMiB: 1024}", 0, "stop the MPS control daemon")
	if got := h.look(t, "held").Enforcement; got != terms.EnforcedMPS {
		t.Errorf("under the new daemon: level %q", got)
	}
	apply("{enabled: false}", 0, "stop the MPS control daemon")
	if got := h.look(t, "held").Enforcement; got != terms.EnforcedFront {
		t.Errorf("without a daemon: level %q", got)
	}
}

// applyGoal makes the host's card what a rule says; the command has to end with a
// code and to say something.
func (h *host) applyGoal(t *testing.T, rule string, code int, says string, flags ...string) {
	t.Helper()
	goal := filepath.Join(h.directory, "goal.yaml")
	if err := os.WriteFile(goal, []byte("schema: divvy.partition/v1\ncards:\n  - "+rule+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(divvy(t), append([]string{"partition", "apply", goal, "--driver-dir", h.DriverDirectory, "--agent", h.AgentSocket,
		"--mps-dir", filepath.Join(h.directory, "mps"), "--cdi-dir", filepath.Join(h.directory, "cdi"),
		"--journal", filepath.Join(h.directory, "partition.journal")}, flags...)...)
	command.Env = append(os.Environ(), "DIVVY_SIMULATOR="+h.SimulatorSocket)
	out, err := command.CombinedOutput()
	if command.ProcessState.ExitCode() != code || !strings.Contains(string(out), says) {
		t.Fatalf("%s: %v\n%s", rule, err, out)
	}
}

// TestReplicas: a card gets names for containers, which go again.
func TestReplicas(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	want := func(count int) {
		t.Helper()
		out, err := exec.Command(divvy(t), "cdi", "list", "--dir", filepath.Join(h.directory, "cdi")).CombinedOutput()
		if got := strings.Count(string(out), "divvy.dev/replica=GPU-"); err != nil || got != count || strings.Count(string(out), "ready") != count {
			t.Errorf("%d replicas, want %d: %v\n%s", got, count, err, out)
		}
	}
	h.applyGoal(t, "replicas: {count: 3}", 0, "name 3 replicas")
	want(3)
	h.applyGoal(t, "replicas: {count: 3}", 0, "nothing")
	h.applyGoal(t, "replicas: {count: 1}", 0, "name 1 replicas")
	want(1)
	h.applyGoal(t, "replicas: {count: 0}", 0, "name 0 replicas")
	want(0)
}
