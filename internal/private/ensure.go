// SPDX-License-Identifier: Apache-2.0

package private

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
)

const (
	startDeadline = 10 * time.Second // for one daemon to answer
	askDeadline   = 2 * time.Second  // for a running one to answer
	firstPoll     = time.Millisecond
	lastPoll      = 20 * time.Millisecond
	attempts      = 5
)

// ErrNotStarted says that a daemon could not be started; its log says why.
var ErrNotStarted = errors.New("private agent did not start")

// Spec says what a private agent looks after: simulated cards, or the real
// driver in DriverDirectory.
type Spec struct {
	Cards           string `json:"cards,omitempty"`  // of a simulator, like H100-80GB,L4; empty: the real driver
	Driver          string `json:"driver,omitempty"` // generation the simulator plays, like 12.2
	DriverDirectory string `json:"driverDirectory"`  // of libcuda.so.1 and libnvidia-ml.so.1
	Instance        string `json:"instance,omitempty"`
	Overlap         bool   `json:"overlap,omitempty"`  // divvy agent --overlap; an instance of its own
	SlowHost        string `json:"slowHost,omitempty"` // divvy agent --slow-host; an instance of its own
}

// Simulated says whether a simulator belongs to it.
func (s Spec) Simulated() bool { return s.Cards != "" }

// name is the folder's name: short, because it becomes part of socket paths.
func (s Spec) name() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{s.Cards, s.Driver, s.DriverDirectory, s.Instance}, "\x00")))
	kind := "gpu"
	if s.Simulated() {
		kind = "sim"
	}
	return kind + "-" + hex.EncodeToString(sum[:5])
}

// Endpoint is where a private agent can be reached.
type Endpoint struct {
	AgentSocket     string
	SimulatorSocket string // empty for real cards
	DriverDirectory string
}

// Ensure returns a running agent for spec and starts it, and its simulator,
// when there is none. program is the divvy binary. The agent may leave again
// when it has been idle: callers that then find it gone call Ensure again.
func (r Root) Ensure(ctx context.Context, program string, spec Spec) (Endpoint, error) {
	f, err := r.folder(spec.name())
	if err != nil {
		return Endpoint{}, err
	}
	end := f.endpoint(spec)
	if f.answers(ctx, spec) {
		return end, nil
	}
	for range attempts {
		if err = f.bringUp(ctx, program, spec); err == nil || ctx.Err() != nil || !errors.Is(err, ErrNotStarted) {
			break
		}
	}
	return end, err
}

// Seen is where the agent for spec is if it seems to run. It is not asked: it may be
// about to leave, or hang, and whoever finds it so calls Ensure.
func (r Root) Seen(spec Spec) (Endpoint, bool) {
	f := &Folder{path: r.path + "/" + spec.name()}
	if checkPrivate(r.path) != nil || checkPrivate(f.path) != nil || !exists(f.agentSocket()) ||
		spec.Simulated() && !listens(f.simulatorSocket()) {
		return Endpoint{}, false
	}
	return f.endpoint(spec), true
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Find returns the agent for spec if it runs.
func (r Root) Find(ctx context.Context, spec Spec) (Endpoint, bool) {
	f := &Folder{path: r.path + "/" + spec.name()}
	if checkPrivate(r.path) != nil || checkPrivate(f.path) != nil || !f.answers(ctx, spec) {
		return Endpoint{}, false
	}
	return f.endpoint(spec), true
}

func (f *Folder) endpoint(spec Spec) Endpoint {
	end := Endpoint{AgentSocket: f.agentSocket(), DriverDirectory: spec.DriverDirectory}
	if spec.Simulated() {
		end.SimulatorSocket = f.simulatorSocket()
	}
	return end
}

func (f *Folder) answers(ctx context.Context, spec Spec) bool {
	return agentAnswers(ctx, f.agentSocket()) && (!spec.Simulated() || listens(f.simulatorSocket()))
}

func agentAnswers(ctx context.Context, socket string) bool {
	_, err := askVersion(ctx, socket)
	return err == nil
}

func askVersion(ctx context.Context, socket string) (api.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	return client.New(socket).Version(ctx)
}

// listens says whether the simulator accepts connections.
func listens(socket string) bool {
	c, err := net.DialTimeout("unixpacket", socket, askDeadline)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// bringUp starts what is missing, under the folder's lock.
func (f *Folder) bringUp(ctx context.Context, program string, spec Spec) error {
	unlock, err := f.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if f.answers(ctx, spec) {
		return nil // somebody was faster
	}
	known, err := f.readRecord()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		known = record{}
	}
	// One that is leaving must be gone before its successor takes its place,
	// or it would remove the successor's socket.
	known.Agent.stop(ctx)
	next := record{Spec: spec, Simulator: known.Simulator}
	if spec.Simulated() && !(known.Simulator.alive() && listens(f.simulatorSocket())) {
		known.Simulator.stop(ctx)
		_ = os.Remove(f.simulatorSocket())
		args := []string{"simulate", "--gpus", spec.Cards, "--socket", f.simulatorSocket(), "--private"}
		if spec.Driver != "" {
			args = append(args, "--driver", spec.Driver)
		}
		next.Simulator, err = f.startAndWait(ctx, program, "simulator", args, func() bool { return listens(f.simulatorSocket()) })
		if err != nil {
			return err
		}
	}
	_ = os.Remove(f.agentSocket())
	args := []string{"agent", "--private", f.path, "--driver-dir", spec.DriverDirectory}
	if spec.Overlap {
		args = append(args, "--overlap")
	}
	if spec.SlowHost != "" {
		args = append(args, "--slow-host", spec.SlowHost)
	}
	if spec.Simulated() {
		args = append(args, "--simulator", f.simulatorSocket())
	}
	next.Agent, err = f.startAndWait(ctx, program, "agent", args, func() bool { return agentAnswers(ctx, f.agentSocket()) })
	if writeErr := f.writeRecord(next); err == nil && writeErr != nil {
		next.Agent.stop(ctx)
		err = writeErr
	}
	return err
}

// startAndWait starts a daemon and waits until it is ready.
func (f *Folder) startAndWait(ctx context.Context, program, daemon string, args []string, ready func() bool) (process, error) {
	p, gone, err := f.start(program, daemon, args...)
	if err != nil {
		return p, err
	}
	deadline := time.NewTimer(startDeadline)
	defer deadline.Stop()
	failed := func(why string) (process, error) {
		p.stop(context.WithoutCancel(ctx))
		if tail := f.logTail(daemon); tail != "" {
			why += ": " + tail
		}
		return process{}, fmt.Errorf("%w: %s %s (log: %s)", ErrNotStarted, daemon, why, f.logFile(daemon))
	}
	for wait := firstPoll; ; wait = min(2*wait, lastPoll) {
		if ready() {
			return p, nil
		}
		poll := time.NewTimer(wait)
		select {
		case <-gone:
			poll.Stop()
			return failed("ended")
		case <-deadline.C:
			poll.Stop()
			return failed("does not answer")
		case <-ctx.Done():
			poll.Stop()
			return failed("was not waited for")
		case <-poll.C:
		}
	}
}
