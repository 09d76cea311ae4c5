// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// SchemaRemote names the version of RemoteReport.
const SchemaRemote = "divvy.bench.remote/v1"

// RemoteOptions says how to measure what calls to a GPU elsewhere cost. The driver there
// returns at once: what is left is the way.
type RemoteOptions struct {
	Program string // lib/divvy/tools/remotecalls
	Rounds  int    // alternating; medians
	Paths   []RemoteRoute
}

// RemoteRoute is one way to a server.
type RemoteRoute struct {
	Name string
	Env  []string // in which the program finds the library for remote calls
	Bare string   // socket of a chain of the same processes, which only passes bytes
	// Hop is a connection to one other process that takes bytes, as the network of this way
	// has it.
	Hop net.Conn
}

// RemoteReport says what calls to a GPU elsewhere cost: medians over all rounds.
type RemoteReport struct {
	Schema string       `json:"schema"`
	Rounds int          `json:"rounds"`
	Cores  int          `json:"cores"` // of this machine
	Load   RemoteLoad   `json:"load"`  // of it, over a minute: with more, all is slower
	Paths  []RemotePath `json:"paths"`
}

// RemoteLoad is how many processes wanted to run.
type RemoteLoad struct {
	Before float64 `json:"before"`
	After  float64 `json:"after"`
}

// RemotePath is what one way comes to.
type RemotePath struct {
	Path        string  `json:"path"`       // unix: serve's socket; tls: relay, mutual TLS, serve
	SyncUs      float64 `json:"syncUs"`     // a round trip: cuMemGetInfo
	BareSyncUs  float64 `json:"bareSyncUs"` // of as many bytes, through as many processes that only pass them
	SyncRatio   float64 `json:"syncRatio"`  // of the two; median of the rounds' ratios
	LaunchesPer float64 `json:"launchesPerSecond"`
	// Launches of as many bytes, with a write each, through the bare chain.
	BareLaunchesPer float64 `json:"bareLaunchesPerSecond"`
	HtoDMBPer       float64 `json:"htodMBPerSecond"`      // 1 MB: 10^6 bytes
	BareChainMBPer  float64 `json:"bareChainMBPerSecond"` // through the bare chain
	BareHopMBPer    float64 `json:"bareHopMBPerSecond"`   // from one process to another by TCP, or TLS
	HtoDPercent     float64 `json:"htodPercent"`          // of the bare hop; median of the rounds'
}

// What a round does.
const (
	remoteSyncs     = 500
	remoteLaunches  = 100_000
	remoteCopyBytes = 32 << 20
	remoteCopies    = 4
)

// Remote measures.
func Remote(ctx context.Context, o RemoteOptions) (RemoteReport, error) {
	report := RemoteReport{Schema: SchemaRemote, Rounds: o.Rounds, Cores: runtime.NumCPU(), Paths: []RemotePath{}}
	report.Load.Before = load()
	for _, route := range o.Paths {
		path, err := o.measure(ctx, route)
		if err != nil {
			return report, fmt.Errorf("%s: %w", route.Name, err)
		}
		report.Paths = append(report.Paths, path)
	}
	report.Load.After = load()
	return report, nil
}

// load is how many processes wanted to run in the last minute; 0: not known.
func load() float64 {
	const scale = 1 << 16 // of the kernel
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return math.Round(float64(info.Loads[0])/scale*100) / 100
}

// remoteRound is what one round came to.
type remoteRound struct{ sync, bareSync, launches, bareLaunches, copies, chain, hop float64 }

func (o RemoteOptions) measure(ctx context.Context, route RemoteRoute) (RemotePath, error) {
	remote, err := startCaller(ctx, o.Program, route.Env)
	if err != nil {
		return RemotePath{}, err
	}
	defer remote.stop()
	bare, err := startCaller(ctx, o.Program, []string{}, "bare", route.Bare)
	if err != nil {
		return RemotePath{}, err
	}
	defer bare.stop()
	rounds := make([]remoteRound, 0, o.Rounds)
	for n := range o.Rounds + 1 {
		r, err := round(remote, bare, route.Hop, n%2 == 1)
		if err != nil {
			return RemotePath{}, err
		}
		if n > 0 { // the first only warms up
			rounds = append(rounds, r)
		}
	}
	of := func(value func(remoteRound) float64) float64 {
		values := make([]float64, len(rounds))
		for i, r := range rounds {
			values[i] = value(r)
		}
		slices.Sort(values)
		return math.Round((values[(len(values)-1)/2]+values[len(values)/2])/2*100) / 100
	}
	return RemotePath{
		Path:   route.Name,
		SyncUs: of(func(r remoteRound) float64 { return r.sync }), BareSyncUs: of(func(r remoteRound) float64 { return r.bareSync }),
		SyncRatio:   of(func(r remoteRound) float64 { return r.sync / r.bareSync }),
		LaunchesPer: of(func(r remoteRound) float64 { return r.launches }), BareLaunchesPer: of(func(r remoteRound) float64 { return r.bareLaunches }),
		HtoDMBPer: of(func(r remoteRound) float64 { return r.copies }), BareChainMBPer: of(func(r remoteRound) float64 { return r.chain }),
		BareHopMBPer: of(func(r remoteRound) float64 { return r.hop }), HtoDPercent: of(func(r remoteRound) float64 { return 100 * r.copies / r.hop }),
	}, nil
}

// round measures everything once, each figure beside its bare one.
func round(remote, bare *caller, hop net.Conn, bareFirst bool) (remoteRound, error) {
	var r remoteRound
	var errs []error
	both := func(first, second func()) {
		if bareFirst {
			first, second = second, first
		}
		first()
		second()
	}
	ask := func(c *caller, to *float64, value func(ns float64) float64, line string) func() {
		return func() {
			ns, err := c.ask(line)
			*to, errs = value(ns), append(errs, err)
		}
	}
	micros := func(ns float64) float64 { return ns / 1000 }
	perSecond := func(ns float64) float64 { return remoteLaunches / ns * 1e9 }
	megabytes := func(ns float64) float64 { return remoteCopyBytes * remoteCopies / ns * 1e3 }
	syncs, launches := fmt.Sprintf("sync %d", remoteSyncs), fmt.Sprintf("launch %d", remoteLaunches)
	copies := fmt.Sprintf("copy %d %d", remoteCopyBytes, remoteCopies)
	both(ask(remote, &r.sync, micros, syncs), ask(bare, &r.bareSync, micros, syncs))
	both(ask(remote, &r.launches, perSecond, launches), ask(bare, &r.bareLaunches, perSecond, launches))
	both(ask(remote, &r.copies, megabytes, copies), ask(bare, &r.chain, megabytes, copies))
	took, err := Send(hop, remoteCopyBytes, remoteCopies)
	r.hop = megabytes(float64(took.Nanoseconds()))
	return r, errors.Join(append(errs, err)...)
}

// caller is a running program that measures when it is asked to, line by line (clib/tools).
type caller struct {
	process *exec.Cmd
	input   io.WriteCloser
	answers *bufio.Reader
	errors  strings.Builder
}

func startCaller(ctx context.Context, program string, env []string, args ...string) (*caller, error) {
	c := &caller{process: exec.CommandContext(ctx, program, args...)}
	c.process.Env, c.process.Stderr, c.process.WaitDelay = env, &c.errors, 5*time.Second
	input, err := c.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.input, c.answers = input, bufio.NewReaderSize(output, 4096)
	if err := c.process.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	if greeting, err := c.answers.ReadString('\n'); err != nil || greeting != "ready\n" {
		c.stop()
		return nil, fmt.Errorf("%s did not start: %s", program, strings.TrimSpace(c.errors.String()))
	}
	return c, nil
}

// ask returns the nanoseconds that it answers.
func (c *caller) ask(line string) (float64, error) {
	if _, err := io.WriteString(c.input, line+"\n"); err != nil {
		return 0, fmt.Errorf("ask for %s: %w", line, err)
	}
	answer, err := c.answers.ReadString('\n')
	if err != nil {
		c.stop()
		return 0, fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(c.errors.String()))
	}
	ns, err := strconv.ParseFloat(strings.TrimSpace(answer), 64)
	if err != nil || ns <= 0 {
		return 0, fmt.Errorf("%s: it took %q", line, answer)
	}
	return ns, nil
}

func (c *caller) stop() {
	_ = c.input.Close() // ends it
	_ = c.process.Wait()
}
