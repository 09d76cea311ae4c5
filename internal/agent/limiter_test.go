// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/socket"
)

// One user leaves connections for others; the agent's own and root need not.
func TestLimiter(t *testing.T) {
	p := newLimiter(6, 1000)
	for i, try := range []struct {
		uid int
		in  bool
	}{{1, true}, {1, true}, {1, true}, {1, false}, {1000, true}, {1000, true}, {0, true}, {0, false}, {2, false}} {
		if got := p.enter(try.uid); got != try.in {
			t.Errorf("%d: uid %d gets in: %v", i, try.uid, got)
		}
	}
	p.leave(0)
	if p.enter(1) || !p.enter(2) {
		t.Error("the place that was left is not the other user's")
	}
}

// fakeNamespaces are who made the user namespaces of processes; of others nothing is told.
type fakeNamespaces map[int]int

func (n fakeNamespaces) NamespaceOwner(pid int) (uid int, ok bool) {
	uid, ok = n[pid]
	return uid, ok
}

// A connection whose maker has ended is nobody's: it could be of any id of a user namespace.
func TestLeftConnection(t *testing.T) {
	gone := exec.Command("true")
	must(t, gone.Run())
	l := newLimiter(4, 4711)
	for _, c := range []struct {
		peer    socket.Peer
		unknown bool
	}{
		{socket.Peer{UID: 1000, PID: gone.Process.Pid}, true},
		{socket.Peer{UID: 1000, PID: os.Getpid()}, false},
		{socket.Peer{UID: 1000}, false}, // of a process that is not seen from here
		{socket.Peer{UID: 0, PID: gone.Process.Pid}, false},
		{socket.Peer{UID: 4711, PID: gone.Process.Pid}, false},
	} {
		if got := l.unknown(c.peer); got != c.unknown {
			t.Errorf("%+v: %v", c.peer, got)
		}
	}
}

// Who made a user namespace pays for all its ids, if it is not root; root never pays for others.
func TestPayer(t *testing.T) {
	made := fakeNamespaces{1: 12001, 2: 12001, 3: 0, 4: 12002}
	for _, c := range []struct{ pid, uid, want int }{
		{1, 165536, 12001}, {2, 165537, 12001}, {1, 12001, 12001},
		{3, 231072, 231072}, // of a container that root made
		{4, 0, 0},           // root, wherever it has gone
		{5, 12003, 12003}, {0, 12004, 12004},
	} {
		if got := payer(made, socket.Peer{PID: c.pid, UID: c.uid}); got != c.want {
			t.Errorf("for process %d of uid %d pays %d, want %d", c.pid, c.uid, got, c.want)
		}
	}
	// So many ids have no more connections than one user.
	l := newLimiter(6, 0)
	for id := range 3 {
		l.enter(payer(made, socket.Peer{PID: 1, UID: 165536 + id}))
	}
	if l.enter(payer(made, socket.Peer{PID: 2, UID: 165540})) || !l.enter(payer(made, socket.Peer{PID: 5, UID: 12003})) {
		t.Error("the ids of one user have the places of others")
	}
}

// However often a process attaches and hangs up, of which the driver shows more than it
// has asked for, it has one place.
func TestOneProcessTakesNoRoomOfOthers(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxClients = 20 })
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	r.source.hold(os.Getpid(), 10*gib)
	for range 100 {
		var f *front
		eventually(t, "the process is let in", func() (in bool) {
			var err error
			f, err = newFront(r.cfg.ShareSocket("s"))
			return err == nil
		})
		must(t, f.alloc(mib))
		f.close()
	}
	eventually(t, "it is one client", func() bool {
		list, err := r.client.Clients(context.Background())
		must(t, err)
		return len(list.Clients) == 1 && list.Clients[0].UsedBytes == 100*mib
	})
	r.source.hold(os.Getpid(), 0)
	r.front("s") // which has the driver asked
	eventually(t, "what it held is back", func() bool {
		list, err := r.client.Clients(context.Background())
		must(t, err)
		return len(list.Clients) == 1 && list.Clients[0].UsedBytes == 0
	})
}

// It is one client after a restart of the agent, too.
func TestOneProcessAfterARestart(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxClients = 20 })
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	r.source.hold(os.Getpid(), 10*gib)
	for range 100 {
		eventually(t, "the process is let in", func() bool {
			f, err := newFront(r.cfg.ShareSocket("s"))
			if err != nil {
				return false
			}
			must(t, f.alloc(mib))
			f.close()
			return true
		})
	}
	must(t, r.stop())
	r.start()
	list, err := r.client.Clients(t.Context())
	must(t, err)
	if len(list.Clients) > 5 { // the last ones may not have been joined with the others
		t.Errorf("%d clients after a restart", len(list.Clients))
	}
	r.front("s")
}

// A request that never ends coming in does not keep its place; one that is
// meant to stay does.
func TestEndlessRequest(t *testing.T) {
	r := newRig(t, func(c *Config) { c.RequestDeadline = 100 * time.Millisecond })
	r.share(api.ShareSpec{Name: "held", MemoryBytes: gib, Ephemeral: true})
	hold, err := r.client.Hold(context.Background(), "held")
	must(t, err)
	defer hold.Close()
	for _, request := range []string{
		"POST /v1/shares HTTP/1.1\r\nHost: d\r\nContent-Length: 100\r\n\r\n{",
		"GET /v1/nothing HTTP/1.1\r\nHost: d\r\nContent-Length: 100\r\n\r\n",
	} {
		conn, err := net.Dial("unix", r.cfg.APISocket())
		must(t, err)
		defer conn.Close()
		_, err = fmt.Fprint(conn, request)
		must(t, err)
		must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
		}
		if err := lines.Err(); os.IsTimeout(err) {
			t.Errorf("%q: the agent waits for the rest", request)
		}
	}
	_, err = r.client.Share(context.Background(), "held")
	must(t, err)
}
