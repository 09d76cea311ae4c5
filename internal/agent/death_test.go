// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// A killed process's memory is there for others when the driver has let go of
// it: not before, and soon after.
func TestKilled(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	survivor := r.front("s")
	var fromKill, fromRelease []time.Duration
	for i := range 20 {
		c := startChild(t, r.cfg.ShareSocket("s"))
		r.source.hold(c.pid, 600*mib)
		if got := c.do("alloc", 600*mib); got != "ok" {
			t.Fatal(got)
		}
		killed := time.Now()
		must(t, c.cmd.Process.Signal(syscall.SIGKILL))
		_ = c.cmd.Wait()
		released := time.Now()
		if i%2 == 0 {
			// The driver is slow: until then nothing is granted.
			eventually(t, "the agent sees the death", func() bool {
				clients, err := r.client.Clients(context.Background())
				must(t, err)
				for _, c := range clients.Clients {
					if c.State == "dead" {
						return true
					}
				}
				return false
			})
			if err := survivor.alloc(600 * mib); !errors.Is(err, errDenied) {
				t.Fatalf("granted what the driver still holds: %v", err)
			}
			released = time.Now()
		}
		r.source.hold(c.pid, 0)
		for survivor.alloc(600*mib) != nil {
			if time.Since(released) > 10*time.Second {
				t.Fatal("the memory does not come back")
			}
		}
		fromRelease = append(fromRelease, time.Since(released))
		if i%2 == 1 {
			fromKill = append(fromKill, time.Since(killed))
		}
		survivor.free(600 * mib)
	}
	t.Logf("from kill p50 %v p99 %v, from the driver's release p50 %v p99 %v", percentile(fromKill, 50), percentile(fromKill, 99),
		percentile(fromRelease, 50), percentile(fromRelease, 99))
}

// A driver that does not answer keeps everything booked; when it does again,
// what is free comes back.
func TestDriverAwayKeepsBooked(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	c := startChild(t, r.cfg.ShareSocket("s"))
	if got := c.do("alloc", gib); got != "ok" {
		t.Fatal(got)
	}
	r.source.fail(errors.New("hangs"))
	c.kill()
	r.awaitEvent("driver-away")
	got, err := r.client.Share(context.Background(), "s")
	must(t, err)
	if got.UsedBytes != gib {
		t.Errorf("%d booked", got.UsedBytes)
	}
	r.source.fail(nil)
	r.awaitEvent("client-left")
}

// A forked child that outlives its parent keeps the driver's memory: an event
// names it.
func TestHoldersAreNamed(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	c := startChild(t, r.cfg.ShareSocket("s"))
	r.source.hold(c.pid, 100*mib)
	if got := c.do("alloc", 100*mib); got != "ok" {
		t.Fatal(got)
	}
	heir := c.do("heir", 0)
	must(t, c.cmd.Process.Kill())
	e := r.awaitEvent("memory-held")
	if e.PID != c.pid || e.Bytes != 100*mib || !strings.Contains(e.Message, "kept by process "+heir) {
		t.Errorf("event %+v, want holder %s", e, heir)
	}
	r.source.hold(c.pid, 0)
	r.awaitEvent("client-left")
}

// EOF is not death: a program that closes its connection keeps its memory, and
// may come back.
func TestDetachedLivesOn(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	f := r.front("s")
	must(t, f.alloc(300*mib))
	r.source.hold(os.Getpid(), 300*mib)
	f.close()
	e := r.awaitEvent("client-detached")
	if e.Bytes != 300*mib {
		t.Errorf("event %+v", e)
	}
	if n := f.page.Load().Credit(0); n != 0 {
		t.Errorf("it has %d of credit left", n)
	}
	f.free(100 * mib) // late
	must(t, f.comeBack())
	must(t, f.alloc(824*mib))
	if err := f.alloc(1); !errors.Is(err, errDenied) {
		t.Errorf("over quota after coming back: %v", err)
	}
	r.awaitEvent("client-returned")

	// Somebody else has no use for its token.
	thief := &front{path: f.path, token: f.token}
	must(t, thief.dial())
	defer thief.close()
	c := startChild(t, r.cfg.ShareSocket("s"))
	_ = c
	other := &front{path: f.path, token: tokenOf(t, r, c.pid)}
	must(t, other.dial())
	defer other.close()
	var refused *refusedError
	if err := other.hello([8]uint64{}); !errors.As(err, &refused) {
		t.Errorf("with a foreign token: %v", err)
	}
}

func tokenOf(t *testing.T, r *rig, pid int) uint64 {
	var token uint64
	r.do(func(l *loop) {
		for _, c := range l.core.Clients() {
			if c.PID == pid {
				token = uint64(c.ID)
			}
		}
	})
	return token
}

// Deleting a share right after its last process has been killed waits for what the
// kernel and the agent still have to do. It ends by that: the deadline is an hour.
func TestDeleteUnderTheDying(t *testing.T) {
	r := newRig(t, func(c *Config) { c.EndDeadline = time.Hour })
	must(t, r.stop())
	looked := make(chan struct{})
	r.prepare = func(d *daemon) {
		d.dying = func(int, uint64) bool { // as after a SIGKILL that takes its time
			looked <- struct{}{}
			return true
		}
	}
	r.start()
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	var children []*child
	for range 3 {
		children = append(children, startChild(t, r.cfg.ShareSocket("s")))
	}
	deleted := make(chan error)
	go func() { deleted <- r.client.DeleteShare(context.Background(), "s", false) }()
	<-looked // it has been refused once
	for _, c := range children {
		must(t, c.cmd.Process.Kill())
	}
	for {
		select {
		case <-looked:
			continue
		case err := <-deleted:
			must(t, err)
		}
		break
	}
	r.awaitEvent("share-deleted")
}

// Under a process that lives, or is one of several that do not all die, it is refused
// after two looks, whatever the deadline; and at the deadline under one that does not
// come to its end.
func TestDeleteUnderTheLiving(t *testing.T) {
	for name, c := range map[string]struct {
		deadline time.Duration
		dying    func(pid, of int) bool
		looks    int // at most
	}{
		"lives":        {time.Hour, func(pid, of int) bool { return process.New("/proc").Dying(pid, startOf(pid)) }, 4},
		"one lives":    {time.Hour, func(pid, of int) bool { return pid != of }, 4},
		"never ends":   {20 * time.Millisecond, func(int, int) bool { return true }, 1000},
		"not any more": {time.Nanosecond, func(int, int) bool { return true }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.EndDeadline = c.deadline })
			must(t, r.stop())
			var looks, first atomic.Int64
			r.prepare = func(d *daemon) {
				d.dying = func(pid int, _ uint64) bool {
					looks.Add(1)
					return c.dying(pid, int(first.Load()))
				}
			}
			r.start()
			r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
			first.Store(int64(startChild(t, r.cfg.ShareSocket("s")).pid))
			startChild(t, r.cfg.ShareSocket("s"))
			e := wantCode(t, r.client.DeleteShare(context.Background(), "s", false), api.CodeNotAllowed)
			if e.Message != `share "s" has 2 processes attached` || e.Hint != "divvy share delete --force s" {
				t.Errorf("refused with %q, %q", e.Message, e.Hint)
			}
			if n := int(looks.Load()); n == 0 || n > c.looks {
				t.Errorf("looked %d times", n)
			}
			must(t, r.client.DeleteShare(context.Background(), "s", true))
		})
	}
}

func startOf(pid int) uint64 {
	start, _ := process.New("/proc").Start(pid)
	return start
}

// A page that its process destroys freezes that process, and nobody else.
func TestDestroyedPage(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	bad := &front{path: r.cfg.ShareSocket("s")}
	must(t, bad.dial())
	defer bad.close()
	answer, files, err := bad.call(helloMessage())
	must(t, err)
	if len(files) != 2 {
		t.Fatalf("answer %+v", answer)
	}
	good := r.front("s")
	must(t, unix.Fallocate(files[1], unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096))
	_, err = r.client.Shares(context.Background())
	must(t, err)
	for _, file := range files {
		_ = unix.Close(file)
	}
	answer, _, err = bad.call(chargeMessage(mib))
	must(t, err)
	if answer.Status == 0 {
		t.Errorf("a destroyed page is granted more: %+v", answer)
	}
	r.awaitEvent("client-broken")
	if err := good.alloc(mib); err != nil && !errors.Is(err, errDenied) {
		t.Errorf("the other: %v", err)
	}
}

// Whatever a process writes where its memory is counted, it gets nothing more,
// what others were promised stays theirs, and it is told of.
func TestForgedMemory(t *testing.T) {
	for name, forge := range map[string]func(*wire.ClientPage){
		"more granted":             func(p *wire.ClientPage) { p.Grant(0, 0, mib, false) },
		"more granted and unused":  func(p *wire.ClientPage) { p.Grant(0, mib, 0, false) },
		"more unused than granted": func(p *wire.ClientPage) { p.Give(0, 2*gib) },
		"a charge":                 func(p *wire.ClientPage) { p.Grant(0, 0, wire.AllocationUnit, true) },
		"the most of both":         func(p *wire.ClientPage) { p.Hold(0, wire.MostGranted); p.Give(0, wire.MostGranted) },
		"nothing":                  func(p *wire.ClientPage) { p.Hold(0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
			bad := r.front("s")
			must(t, bad.alloc(600*mib))
			forge(bad.page.Load())
			good := r.front("s")
			if err := good.alloc(424*mib + 1); !errors.Is(err, errDenied) {
				t.Errorf("more than the share has left: %v", err)
			}
			answer, _, err := bad.call(chargeMessage(1))
			must(t, err)
			if answer.Type != wire.Denied {
				t.Errorf("the forger is granted more: %+v", answer)
			}
			r.awaitEvent("client-broken")
		})
	}
}

// A private agent serves its own user, and a machine's agent lets others read.
func TestOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	nobody := func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	r := newRig(t, func(c *Config) {
		c.Private, c.ShareSocketMode, c.Creation = false, 0o666, CreateEphemeral
	})
	must(t, os.Chmod(r.cfg.Directory+"/..", 0o755))
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	binary := filepath.Join(r.cfg.Directory, "program")
	raw, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(binary, raw, 0o755))
	c := startChild(t, r.cfg.ShareSocket("s"), nobody, func(c *exec.Cmd) { c.Path = binary })
	if got := c.do("alloc", mib); got != "ok" {
		t.Errorf("another user on a machine's share: %s", got)
	}
	clients, err := r.client.Clients(context.Background())
	must(t, err)
	if len(clients.Clients) != 1 || clients.Clients[0].UID != 65534 {
		t.Errorf("clients %+v", clients)
	}
}
