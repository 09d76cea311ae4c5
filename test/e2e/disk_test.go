// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/share"
)

// The disk of the journal is full, then has room again, and is read-only when the agent
// starts: what would not outlive the agent is refused, what runs goes on, and each is
// said. The control is the same disk with room.
func TestFullAndReadOnlyDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	h := newHost(t, hostOptions{agentFlags: []string{"--journal-dir", disk}})
	w := h.witness(t)
	create := func(name string) outcome {
		return run(t, []string{"DIVVY_AGENT=" + h.AgentSocket}, divvy(t), "share", "create", name, "--mem", "128MiB")
	}
	if made := create("control"); made.code != 0 {
		t.Fatalf("on a disk with room: exit code %d\n%s", made.code, made.stderr)
	}
	filler := filepath.Join(disk, "filler")
	if err := fill(filler); err != nil {
		t.Fatal(err)
	}
	// The room of the last page takes some more.
	refusedAt := -1
	for i := range 64 {
		if made := create(fmt.Sprint("full-", i)); made.code != 0 {
			if !strings.Contains(made.stderr, disk) {
				t.Errorf("a full disk: exit code %d\n%s", made.code, made.stderr)
			}
			refusedAt = i
			break
		}
	}
	if refusedAt < 0 {
		t.Fatal("nothing is refused on a full disk")
	}
	h.event(t, "journal-failed", "")
	w.content(t, h)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	h.event(t, "journal-written", "")
	if made := create("after"); made.code != 0 {
		t.Errorf("with room again: exit code %d\n%s", made.code, made.stderr)
	}
	h.agent.stop(t)
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(divvy(t), h.agentArgs...)
	said, err := agent.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(said), disk) || !strings.Contains(string(said), "read-only") {
		t.Errorf("an agent on a read-only disk: %v\n%s", err, said)
	}
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	h.startAgent(t)
	for _, name := range []string{"witness", "control", "after"} {
		h.look(t, name)
	}
	w.pid = 0 // it is another agent
	w.content(t, h)
}

// smallDisk mounts one of a few megabytes.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a small disk")
	}
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("divvy-test", disk, "tmpfs", 0, "size=4m,mode=700"); errors.Is(err, unix.EPERM) {
		t.Skip("this root may not mount")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	return disk
}

// What a program uses while the disk is full is written when there is room again, all of it, and each
// of the files is said to fail and to be written. The program goes on meanwhile.
func TestUsageOverFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	h := newHost(t, hostOptions{agentFlags: []string{"--journal-dir", disk}})
	spec := h.spec(t, api.ShareSpec{Name: "uses", MemoryBytes: 1 << 30, Policy: share.Fixed, CoresPercent: 30})
	b := h.load(t, spec, 1000)
	filler := filepath.Join(disk, "filler")
	if err := fill(filler); err != nil {
		t.Fatal(err)
	}
	files := []string{"usage", "history", "audit"}
	for _, name := range files {
		// each write takes some of the room that the last pages have
		eventually(t, name+" fails", func() error {
			run(t, []string{"DIVVY_AGENT=" + h.AgentSocket}, divvy(t), "share", "set", "uses", "--priority", "0")
			if len(h.events(t, event.Kind(name+"-failed"), "")) == 0 {
				return errors.New("it is not said")
			}
			return nil
		}, h.agent)
	}
	had := h.cardTimes(t, h.truth(t))[b.pid].Kernels
	eventually(t, "the program goes on", func() error {
		if now := h.cardTimes(t, h.truth(t))[b.pid].Kernels; now < had+500 {
			return fmt.Errorf("it had %d kernels, and then %d", had, now)
		}
		return nil
	}, h.agent)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		h.event(t, event.Kind(name+"-written"), "")
	}
	b.kill()
	used, truth := h.usage(t, map[int]string{b.pid: "uses"})
	if is := truth["uses"]; is < time.Second || used["uses"] < is-is/100 || used["uses"] > is+is/100 {
		t.Errorf("usage has %v of %v", used["uses"], is)
	}
}

// fill writes until there is no room.
func fill(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for {
		if _, err := file.Write(make([]byte, 4096)); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
