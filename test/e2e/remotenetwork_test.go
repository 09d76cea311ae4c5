// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/network"
)

// newServedTLS is one that is reached by mutual TLS, besides.
func newServedTLS(t testing.TB, o hostOptions) *served {
	t.Helper()
	s := &served{host: newHost(t, o)}
	s.account = s.truth(t)
	s.socket = filepath.Join(s.directory, "serve.sock")
	s.authority, s.identity = filepath.Join(s.directory, "ca"), filepath.Join(s.directory, "ann.pem")
	s.env = []string{"XDG_RUNTIME_DIR=" + s.directory}
	s.certs(t, "init", "--dir", s.authority, "--host", "127.0.0.1")
	s.certs(t, "issue", "--dir", s.authority, "--tenant", "vision", "--user", "ann", "--out", s.identity)
	s.address = freePort(t)
	s.serveArgs = []string{"--listen", s.address, "--certificates", s.authority}
	s.remote = []string{"--remote", s.address, "--identity", s.identity}
	s.serve(t)
	return s
}

// at is the same, reached by another address, and with another certificate.
func (s *served) at(address, identity string) *served {
	other := *s
	other.remote = []string{"--remote", address, "--identity", identity}
	return &other
}

// certs runs divvy certs.
func (s *served) certs(t testing.TB, args ...string) {
	t.Helper()
	if made := run(t, s.away(), divvy(t), append([]string{"certs"}, args...)...); made.code != 0 {
		t.Fatalf("divvy certs %s: %+v", strings.Join(args, " "), made)
	}
}

// Through relay, mutual TLS and server a program computes the same; with the wrong
// certificate it does not start.
func TestRemoteOverTLS(t *testing.T) {
	t.Parallel()
	s := newServedTLS(t, hostOptions{})
	want := checksums(t, s.host)
	for _, name := range []string{"vectoradd", "texture", "mlp"} {
		s.example(t, name, want)
	}
	foreign := s.identity + "-other"
	s.certs(t, "init", "--dir", s.authority+"-other", "--host", "127.0.0.1")
	s.certs(t, "issue", "--dir", s.authority+"-other", "--tenant", "vision", "--user", "ann", "--out", foreign)
	if refused := s.at(s.address, foreign).run(t, nil, "true"); refused.code != 4 {
		t.Errorf("with a foreign certificate: %+v", refused)
	}
}

// lead is the same server behind a network.
func (s *served) lead(t testing.TB, c network.Conditions) (*network.Link, *served) {
	t.Helper()
	link, err := network.Lead(t.Context(), s.address, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	return link, s.at(link.Address(), s.identity)
}

// At 0.1 and 30 ms of round trip every example computes what it computes beside the GPU, and other
// programs do as well at 30.
func TestRemoteLongNetwork(t *testing.T) {
	t.Parallel()
	s := newServedTLS(t, hostOptions{})
	want := checksums(t, s.host)
	_, near := s.lead(t, network.Conditions{RTT: 100 * time.Microsecond})
	_, far := s.lead(t, network.Conditions{RTT: 30 * time.Millisecond})
	took := func(run func()) time.Duration {
		begun := time.Now()
		run()
		return time.Since(begun).Round(time.Millisecond)
	}
	for _, name := range exampleNames {
		beside := took(func() { _, _ = runExample(t, s.Unheld(), name) }) // as for its checksum
		t.Logf("%s: %v beside the GPU, %v at 0.1 ms, %v at 30 ms", name, beside, took(func() { near.example(t, name, want) }), took(func() { far.example(t, name, want) }))
	}
	others := []struct {
		name string
		run  func()
	}{
		{"numba", func() { far.numba(t) }},
		{"mlp's server", func() { inference(t, far.away(), far.remote...) }},
		{"ffmpeg, three times", func() { far.ffmpeg(t) }},
		{"the corpus at -O3", func() { far.corpus(t, want) }},
	}
	if testing.Short() { // the others take minutes
		others = others[:2]
	}
	for _, o := range others {
		t.Logf("%s: %v at 30 ms", o.name, took(o.run))
	}
}

// How long a program may take to its end, where its network is not cut and from then on where it is: on
// a busy host its 1,200 calls take their time, ten times that of a run before when others come meanwhile.
const (
	uncutWithin = 3 * time.Minute
	cutWithin   = 20 * time.Second
)

// Wherever a connection is cut, each call before the cut has worked, each one after it comes
// to 46, one line says why, and nothing is left.
func TestRemoteCutAnywhere(t *testing.T) {
	t.Parallel()
	places := 16
	if testing.Short() {
		places = 6
	}
	s := newServedTLS(t, hostOptions{})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	link, far := s.lead(t, network.Conditions{})
	whole := far.cutRun(t, nil)
	if whole.code != 0 || strings.Contains(whole.stdout, "error") {
		t.Fatalf("without a cut: %+v", whole)
	}
	all := map[network.Direction]int64{network.Up: link.Passed(network.Up), network.Down: link.Passed(network.Down)}
	within := 0
	for i := range places {
		direction := network.Direction(i % 2)
		after := random.Int64N(all[direction])
		link, far := s.lead(t, network.Conditions{})
		ended := far.cutRun(t, link.CutAfter(direction, after))
		answers := strings.Split(strings.TrimSpace(ended.stdout), "\n")
		if checkCut(t, ended, answers) {
			within++
		}
		if t.Failed() {
			t.Fatalf("cut after %d bytes of %d in direction %d: code %d\n%s\n%s", after, all[direction], direction, ended.code, tail(ended.stdout, 1000), tail(ended.stderr, 1000))
		}
		eventually(t, "nothing is left", func() error { return s.left(t) }, s.server)
	}
	t.Logf("%d of %d cuts within calls", within, places)
}

// cutRun runs a program that asks and allocates again and again, with a network that is cut or, nil, is not.
func (s *served) cutRun(t testing.TB, cut <-chan struct{}) outcome {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	late := time.AfterFunc(uncutWithin, cancel)
	defer late.Stop()
	go func() { // ends with ctx
		select {
		case <-cut:
			late.Reset(cutWithin)
		case <-ctx.Done():
		}
	}()
	command := exec.CommandContext(ctx, divvy(t), s.command([]string{"--mem", "2GiB"}, built(t, "lib", "divvy", "tools", "holder"))...)
	command.Stdin = strings.NewReader("start\n" + strings.Repeat("alloc 65536\ninfo\n", 600) + "exit\n")
	ended := finish(t, command, s.away())
	if ctx.Err() != nil {
		t.Errorf("not at its end within %v, or %v of the cut", uncutWithin, cutWithin)
	}
	return ended
}

// checkCut says whether calls were cut off.
func checkCut(t testing.TB, ended outcome, answers []string) bool {
	t.Helper()
	if ended.code == 5 && !strings.Contains(ended.stdout, "ready") {
		return false // before the program started
	}
	if ended.code != 0 || len(answers) < 2 {
		t.Errorf("code %d, %d answers", ended.code, len(answers))
		return false
	}
	if start := answers[1]; strings.HasPrefix(start, "error") {
		if start != "error 802" && start != "error 46" {
			t.Errorf("start: %s", start)
		}
		return false
	}
	lost := 0
	for i, answer := range answers[2 : len(answers)-1] { // but ready, start and exit
		if answer == "error 46" {
			lost++
		} else if !strings.HasPrefix(answer, "ok") || lost > 0 {
			t.Errorf("answer %d: %s, after %d that say 46", i, answer, lost)
		}
	}
	if lines := strings.Count(ended.stderr, "the connection to the GPU is lost"); lost > 0 && lines != 1 {
		t.Errorf("%d lines say why", lines)
	}
	return lost > 0
}

// Where nothing arrives any more, both sides know after 15 seconds.
func TestRemoteSilence(t *testing.T) {
	t.Parallel()
	const within = 25 * time.Second // a busy host adds
	s := newServedTLS(t, hostOptions{})
	link, far := s.lead(t, network.Conditions{})
	env, _ := far.open(t, "--mem", "1GiB")
	holder := s.holderIn(t, env)
	do(t, holder, "start")
	alloc(t, holder, 256*mib)
	begun := time.Now()
	if err := link.Silence(); err != nil {
		t.Fatal(err)
	}
	refused(t, holder, deviceUnavailable, "alloc %d", mib)
	here := time.Since(begun)
	refused(t, holder, deviceUnavailable, "info")
	eventually(t, "nothing is left", func() error { return s.left(t) }, s.server)
	there := time.Since(begun)
	t.Logf("the program knew after %v, all was free after %v", here.Round(time.Millisecond), there.Round(time.Millisecond))
	if here > within || there > within {
		t.Errorf("more than %v", within)
	}
}

// A server that has stopped, and whose kernel still says that all arrives, counts as dead, too.
func TestRemoteStoppedServer(t *testing.T) {
	t.Parallel()
	const within = 40 * time.Second // 15 after a question, of which there is one each 5; a busy host adds
	s := newServedTLS(t, hostOptions{})
	env, _ := s.open(t, "--mem", "1GiB")
	holder := s.holderIn(t, env)
	do(t, holder, "start")
	alloc(t, holder, 256*mib)
	begun := time.Now()
	halt(t, s.server.pid)
	refused(t, holder, deviceUnavailable, "alloc %d", mib)
	took := time.Since(begun)
	t.Logf("the program knew after %v", took.Round(time.Millisecond))
	if took > within {
		t.Errorf("more than %v", within)
	}
	if err := syscall.Kill(s.server.pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left", func() error { return s.left(t) }, s.server)
}
