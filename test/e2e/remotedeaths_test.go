// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/remote/certificates"
	"github.com/divvy-gpu/divvy/internal/remote/protocol"
)

// relays are the processes that lead programs of this test to a server.
func (s *served) relays(t testing.TB) []int {
	t.Helper()
	return running(t, func(process string) bool {
		return fileHas(process+"/cmdline", "\x00relaying\x00") && fileHas(process+"/cmdline", s.identity)
	})
}

// lostWithin is how long a call may take to come to its end when somebody was killed.
const lostWithin = 10 * time.Second

// ends lets a holder call until it is refused, or a few calls have worked: it has gone on.
func ends(t testing.TB, holder *bench.Holder, who string) {
	t.Helper()
	begun := time.Now()
	for range 3 {
		_, err := holder.Do("info")
		if took := time.Since(begun); took > lostWithin {
			t.Errorf("%s killed: a call took %v", who, took)
		}
		var call *bench.Refused
		if errors.As(err, &call) && call.Result != deviceUnavailable {
			t.Errorf("%s killed: a call came to %d", who, call.Result)
		}
		if err != nil {
			return // or it was the one that was killed
		}
	}
}

// Whoever is killed, at any moment, calls come to their end, and 2 seconds after the
// program's end no process, share or byte is left.
func TestRemoteRandomDeaths(t *testing.T) {
	t.Parallel()
	standard := 20
	if testing.Short() {
		standard = 6
	}
	seconds := fromEnvironment(t, "DIVVY_REMOTE_DEATHS_SECONDS", standard)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d seconds", seed, seconds)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newServedTLS(t, hostOptions{})
	deaths := []string{"client", "relay", "serve", "worker", "agent"}
	done := map[string]int{}
	var longest time.Duration
	for until := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(until) && !t.Failed(); {
		who := deaths[random.IntN(len(deaths))]
		done[who]++
		longest = max(longest, s.death(t, who, random))
	}
	t.Logf("%v; all was free after %v at most", done, longest.Round(time.Millisecond))
}

// death lets two programs of a run work while somebody is killed, and returns how long after
// their end nothing was left.
func (s *served) death(t *testing.T, who string, random *rand.Rand) time.Duration {
	t.Helper()
	env, end := s.open(t, "--mem", "1GiB")
	holders := []*bench.Holder{s.holderIn(t, env), s.holderIn(t, env)}
	for _, holder := range holders {
		do(t, holder, "start")
		alloc(t, holder, 64*mib)
	}
	var busy sync.WaitGroup
	stop := make(chan struct{})
	busy.Go(func() { // calls are under way when it happens
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := holders[1].Do("alloc 4096"); err != nil {
				return
			}
		}
	})
	moment := time.NewTimer(time.Duration(random.IntN(20)) * time.Millisecond)
	<-moment.C
	pids := map[string]func() []int{
		"client": func() []int { return []int{holders[0].PID} },
		"relay":  func() []int { return s.relays(t) },
		"worker": func() []int { return s.workers(t)[:1] },
		"serve":  func() []int { return []int{s.server.pid} },
		"agent":  func() []int { return nil }, // below
	}[who]()
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if who == "agent" {
		s.killAgent(t)
		s.startAgent(t)
	}
	close(stop)
	busy.Wait()
	for _, holder := range holders {
		ends(t, holder, who)
		holder.Kill()
	}
	end()
	ended := time.Now()
	eventually(t, who+" killed: nothing is left", func() error { return s.left(t) })
	took := time.Since(ended)
	if took > 2*time.Second {
		t.Errorf("%s killed: something was left for %v", who, took)
	}
	if who == "serve" {
		<-s.server.ended
		s.serve(t)
	}
	return took
}

// A thousand who say nothing get in nobody's way: of one address the server keeps a few, for
// a while, and others are served meanwhile.
func TestRemoteCrowdBeforeTheDoor(t *testing.T) {
	t.Parallel()
	const crowd, most, memory = 1000, 256, 200 << 20
	s := newServedTLS(t, hostOptions{})
	env, _ := s.open(t, "--mem", "1GiB")
	holder := s.holderIn(t, env)
	do(t, holder, "start")
	alone := p99(t, holder)
	var conns []net.Conn
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range crowd {
		conn, err := dialer.DialContext(t.Context(), "tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	if other := s.run(t, []string{"--mem", "1GiB"}, "true"); other.code != 0 {
		t.Errorf("another address meanwhile: %+v", other)
	}
	t.Logf("p99 of a call: %v, beside %d connections %v", alone, crowd, p99(t, holder))
	status := run(t, s.away(), divvy(t), "remote", "status", "--remote", "unix:"+s.socket)
	var connections, waiting int
	if _, text, found := strings.Cut(status.stdout, ": "); !found {
		t.Errorf("status: %+v", status)
	} else if _, err := fmt.Sscanf(text, "%d connections, %d", &connections, &waiting); err != nil || waiting > most || connections > most {
		t.Errorf("%d connections, %d wait: %v", connections, waiting, err)
	}
	t.Logf("of %d, %d wait", crowd, waiting)
	if resident := residentBytes(t, s.server.pid); resident > memory {
		t.Errorf("the server has %d MiB", resident>>20)
	}
	begun := time.Now()
	for _, conn := range conns { // each is closed, without an answer
		_ = conn.SetReadDeadline(begun.Add(waitAtMost))
		n, err := conn.Read(make([]byte, 1))
		if n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("after %v a connection is open, %d bytes, %v", time.Since(begun), n, err)
		}
	}
	t.Logf("all closed after %v", time.Since(begun).Round(time.Millisecond))
	do(t, holder, "info")
}

// TestRemoteCrowdInside: a thousand runs that do nothing, each over a connection of its own, cost a
// server little, and keep nobody from working.
func TestRemoteCrowdInside(t *testing.T) {
	t.Parallel()
	crowd, memory := 1000, uint64(200<<20)
	if testing.Short() {
		crowd, memory = 250, 90<<20
	}
	s := newServedTLS(t, hostOptions{})
	if _, err := s.client.CreateShare(t.Context(), api.ShareSpec{Name: "team", MemoryBytes: 2048 * mib, Tenant: "vision"}); err != nil {
		t.Fatal(err)
	}
	bundle, err := certificates.ReadBundle(s.identity)
	if err != nil {
		t.Fatal(err)
	}
	env, _ := s.open(t, "--mem", "1GiB")
	holder := s.holderIn(t, env)
	do(t, holder, "start")
	alone := p99(t, holder)
	dialer := &tls.Dialer{Config: bundle.ClientTLS("127.0.0.1")}
	for n := range crowd {
		conn, err := dialer.DialContext(t.Context(), "tcp", s.address)
		if err != nil {
			t.Fatalf("connection %d: %v", n, err)
		}
		defer conn.Close()
		if _, _, err := protocol.AskRun(conn, protocol.RunDocument{Join: "team", Command: []string{"idle"}}); err != nil {
			t.Fatalf("run %d: %v", n, err)
		}
	}
	t.Logf("p99 of a call: %v, beside %d idle runs %v", alone, crowd, p99(t, holder))
	if resident := residentBytes(t, s.server.pid); resident > memory {
		t.Errorf("the server has %d MiB", resident>>20)
	} else {
		t.Logf("the server has %d MiB", resident>>20)
	}
	if other := s.run(t, []string{"--mem", "1GiB"}, built(t, "lib", "divvy", "examples", "nbody")); other.code != 0 {
		t.Errorf("a run beside them: %+v", other)
	}
}

// p99 is how long the slowest of a hundred calls of a program takes, by a thousand.
func p99(t testing.TB, holder *bench.Holder) time.Duration {
	t.Helper()
	took := make([]time.Duration, 1000)
	for i := range took {
		begun := time.Now()
		do(t, holder, "info")
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	return took[len(took)*99/100].Round(time.Microsecond)
}

// residentBytes is the memory of a process.
func residentBytes(t testing.TB, pid int) uint64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var all, resident uint64
	if err == nil {
		_, err = fmt.Sscan(string(text), &all, &resident)
	}
	if err != nil {
		t.Fatal(err)
	}
	return resident * uint64(os.Getpagesize())
}

// A certificate that is revoked lets nobody in any more, and ends what is open of it.
func TestRemoteRevoked(t *testing.T) {
	t.Parallel()
	const within = 5 * time.Second
	s := newServedTLS(t, hostOptions{})
	bob := filepath.Join(s.directory, "bob.pem")
	s.certs(t, "issue", "--dir", s.authority, "--tenant", "vision", "--user", "bob", "--out", bob)
	env, _ := s.open(t, "--mem", "1GiB")
	others, _ := s.at(s.address, bob).open(t, "--mem", "1GiB")
	holder, other := s.holderIn(t, env), s.holderIn(t, others)
	do(t, holder, "start")
	do(t, other, "start")
	s.certs(t, "revoke", "--dir", s.authority, "vision/ann")
	begun := time.Now()
	eventually(t, "the session ends", func() error {
		_, err := holder.Do("info")
		var call *bench.Refused
		if err == nil {
			return errors.New("calls are made")
		}
		if !errors.As(err, &call) || call.Result != deviceUnavailable {
			t.Fatal(err)
		}
		return nil
	})
	took := time.Since(begun)
	t.Logf("after %v", took.Round(time.Millisecond))
	if took > within {
		t.Errorf("it ended after %v", took)
	}
	if refused := s.run(t, nil, "true"); refused.code != 4 {
		t.Errorf("with the revoked certificate: %+v", refused)
	}
	do(t, other, "info")
}
