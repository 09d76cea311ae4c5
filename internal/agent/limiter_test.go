// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
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
