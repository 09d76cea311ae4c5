// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/size"
)

const (
	// defaultGrace is how long a run goes on that is not held as was demanded.
	defaultGrace = 5 * time.Second
	// endingTime is how long its programs may take to end then.
	endingTime = 5 * time.Second
	// lastWord is how long the agent may take to say what it saw of a run that has ended.
	lastWord = 2 * time.Second
)

// watch is what a run hears of its processes that are held less than its share.
type watch struct {
	notices <-chan api.Notice   // nil: it hears nothing
	all     func() []api.Notice // that there were, those included that have not come; nil: nothing is demanded
	grace   time.Duration
}

// ending is the end of a run that is not held as was demanded: of the command and all
// that descends from it, and of nothing else.
type ending struct {
	because *api.Notice // nil: it is held
	table   process.Table
	members map[int]uint64   // by number, when each started
	next    <-chan time.Time // when the next step is due; nil: no more
	asked   bool             // to end; what is left is killed
}

// blame makes a notice the reason for the end, if it is the first, and its process one of the run.
func (e *ending) blame(n api.Notice) {
	if e.because == nil {
		*e = ending{because: &n, table: process.New("/proc"), members: map[int]uint64{}}
	}
	e.members[n.PID] = n.Start
}

// hear tells of a process that is held less than its share, and has the run end before
// long if more was demanded.
func (a *app) hear(e *ending, n api.Notice, command int, grace time.Duration) {
	what := fmt.Sprintf("process %d (%s) holds %s of the GPU past Divvy's library: level %s", n.PID, n.Command, size.Short(n.Bytes), n.Level)
	if n.Demanded == "" {
		a.note("%s", what)
		return
	}
	first := e.because == nil
	e.blame(n)
	if first {
		a.note("%s; --enforce %s ends the run in %v", what, n.Demanded, grace)
		e.next = time.After(grace)
	}
	e.add(command)
	e.gather()
}

// catchUp hears what had not come when the command ended.
func (e *ending) catchUp(w watch) {
	if e.because != nil || w.all == nil {
		return
	}
	for _, n := range w.all() {
		if n.Demanded != "" {
			e.blame(n)
		}
	}
	e.gather()
}

// step asks the run to end, then makes it.
func (e *ending) step() {
	e.gather()
	if e.asked {
		e.next = nil
		e.signal(unix.SIGKILL)
		return
	}
	e.asked, e.next = true, time.After(endingTime)
	e.signal(unix.SIGTERM)
	e.signal(unix.SIGCONT)
}

// gather makes all that descends from the members one.
func (e *ending) gather() {
	for pid, start := range maps.Clone(e.members) {
		if !e.table.Running(pid, start) {
			continue
		}
		for _, child := range e.table.Descendants(pid) {
			e.add(child)
		}
	}
}

func (e *ending) add(pid int) {
	if start, err := e.table.Start(pid); err == nil {
		e.members[pid] = start
	}
}

func (e *ending) signal(s syscall.Signal) {
	for pid, start := range e.members {
		_ = e.table.Signal(pid, start, s) // it may have gone
	}
}

// finish awaits the end of what the command has left behind, and says why the run ended;
// nil: by itself.
func (e *ending) finish() error {
	if e.because == nil {
		return nil
	}
	const look = 20 * time.Millisecond
	if e.alive() && !e.asked {
		e.step() // of what has ended these are left
	}
	for e.next != nil && e.alive() {
		select {
		case <-e.next:
			e.step()
		case <-time.After(look):
		}
	}
	n := e.because
	return withHint(&codedError{code: exitRunFailed, cause: fmt.Errorf("--enforce %s: process %d (%s) held %s of the GPU past Divvy's library: the run was ended",
		n.Demanded, n.PID, n.Command, size.Short(n.Bytes))}, "let the library into its sandbox (docs/run.md), or leave --enforce out")
}

func (e *ending) alive() bool {
	for pid, start := range e.members {
		if e.table.Running(pid, start) {
			return true
		}
	}
	return false
}
