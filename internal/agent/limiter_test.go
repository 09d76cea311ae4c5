// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// A hundred users who take all that they get leave a place for another one, and root's.
func TestManyUsers(t *testing.T) {
	const most = 4096
	l := newLimiter(most, 0)
	for uid := 1; uid <= 100; uid++ {
		for l.enter(uid) {
		}
	}
	if !l.enter(101) {
		t.Errorf("a hundred users have %d of %d places, and another one gets none", l.sum, most)
	}
	for n := range most / 8 {
		if !l.enter(0) {
			t.Fatalf("root has %d places, and gets no more", n)
		}
	}
}

// fakeNamespaces are who made the user namespaces of processes, numbered as they are; of others nothing is told.
type fakeNamespaces map[int]int

func (n fakeNamespaces) UserNamespace(pid int) (number uint64, owner int, ok bool) {
	owner, ok = n[pid]
	return uint64(pid), owner, ok
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

// Who made a user namespace pays for all its ids, and who has subordinate ids for those; all who live in a
// namespace of root's are one; root never pays for others, and nobody becomes root.
func TestPayer(t *testing.T) {
	made := fakeNamespaces{1: 12001, 2: 12001, 3: 0, 4: 12002, 6: 165540}
	given := subordinatesOf(t, "ada:x:12001:12001::/:/bin/sh\n", "ada:165536:65536\nroot:231072:65536\n12002:400000:10\n# no:line\n:1:1\nada\n")
	for _, c := range []struct{ pid, uid, want int }{
		{1, 165536, 12001}, {2, 165537, 12001}, {1, 12001, 12001},
		{3, 231072, -3}, {3, 231073, -3}, // of a container that root made
		{4, 0, 0}, {4, 4711, 4711}, // root, and the agent's own, wherever they have gone
		{5, 12003, 12003}, {0, 12004, 12004},
		{5, 165535, 165535}, {5, 165536, 12001}, {5, 231071, 12001}, {5, 231072, 231072},
		{5, 400009, 12002}, {5, 400010, 400010}, {6, 500000, 12001},
	} {
		if got := payer(made, given, 4711, socket.Peer{PID: c.pid, UID: c.uid}); got != c.want {
			t.Errorf("for process %d of uid %d pays %d, want %d", c.pid, c.uid, got, c.want)
		}
	}
	must(t, os.WriteFile(given.path, []byte("ada:400000:10\n"), 0o600))
	must(t, os.Chtimes(given.path, time.Time{}, time.Unix(1000, 0)))
	if got := given.person(400009); got != 12001 {
		t.Errorf("uid %d has what was given to another one meanwhile", got)
	}
	must(t, os.Remove(given.path))
	if got := given.person(400009); got != 400009 {
		t.Errorf("uid %d has an id of a list that is gone", got)
	}
}

// subordinatesOf are those of lists of users and of their ids.
func subordinatesOf(t *testing.T, users, ids string) *subordinates {
	folder := t.TempDir()
	s := &subordinates{path: filepath.Join(folder, "subuid"), users: filepath.Join(folder, "passwd")}
	must(t, os.WriteFile(s.users, []byte(users), 0o600))
	must(t, os.WriteFile(s.path, []byte(ids), 0o600))
	return s
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
