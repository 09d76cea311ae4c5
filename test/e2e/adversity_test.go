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

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
)

// A GPU is lost while others attack: who is on another GPU notices nothing, the loss is
// told, and what is new goes elsewhere. The control is the GPU that is lost: its
// programs get errors.
func TestGPULostUnderAttack(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, hostOptions{cards: "2xH100-80GB"})
	devices, err := c.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost, well := devices.Cards[0].UUID, devices.Cards[1].UUID
	for name, gpu := range map[string]string{"witness": well, "on-the-lost": lost} {
		if _, err := c.client.CreateShare(t.Context(), api.ShareSpec{Name: name, GPU: gpu, MemoryBytes: witnessQuota}); err != nil {
			t.Fatal(err)
		}
	}
	w := c.witnessOf(t, c.look(t, "witness"))
	victim := c.holder(t, c.look(t, "on-the-lost"))
	do(t, victim, "start")
	address := alloc(t, victim, mib)
	var attacks []*attack
	for i, uid := range []int{attackerOne, attackerTwo} {
		attacks = append(attacks, c.attack(t, uid, uint64(i), c.look(t, "on-the-lost").Socket, "storm", "claims", "places", "lies", "events", "churn", "rubbish", "burn"))
	}
	if _, _, err := c.truth(t).Inject(t.Context(), simgpu.Injection{Fault: condition.Fault{Kind: condition.CardLost}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss is told", func() error {
		events, err := c.client.Events(t.Context(), 0)
		if err != nil {
			return err
		}
		for _, e := range events.Events {
			if e.Kind == "card-lost" && e.CardUUID == lost {
				return nil
			}
		}
		return errors.New("no event says so")
	})
	if _, err := victim.Do("write %d 4096", address); err == nil {
		t.Error("a program on the lost GPU notices nothing")
	}
	made, err := c.client.CreateShare(t.Context(), api.ShareSpec{Name: "new", MemoryBytes: witnessQuota})
	if err != nil || made.CardUUID != well {
		t.Errorf("a new share: %+v, %v", made, err)
	}
	w.content(t, c.host)
	for i, a := range attacks {
		done := a.end(t)
		if delete(done, "connections"); len(done) == 0 {
			t.Errorf("attacker %d did nothing", i)
		}
	}
	w.content(t, c.host)
}

// The disk of the journal is full, then has room again, and is read-only when the agent
// starts: what would not outlive the agent is refused, what runs goes on, and each is
// said. The control is the same disk with room.
func TestFullAndReadOnlyDisk(t *testing.T) {
	t.Parallel()
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
