// SPDX-License-Identifier: Apache-2.0

package urgency

import (
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// shortSlice is after how long the scheduler may take a processor away again: who
// asks for less of it at once gets it sooner (sched_setattr(2); kernels before 6.12
// overlook it).
const shortSlice = 100 * time.Microsecond

// ladder are the ways to be urgent, the best first.
type ladder struct {
	steps    []unix.SchedAttr
	ordinary unix.SchedAttr
}

// newLadder takes what the process is now for ordinary. There are no steps where
// whoever started it has chosen how it runs.
func newLadder() *ladder {
	now, err := unix.SchedGetAttr(0, 0)
	if err != nil || now.Policy != unix.SCHED_NORMAL {
		return &ladder{}
	}
	// Children, and threads until they are seen, are ordinary: a daemon that this
	// process starts must not go before others.
	const reset = unix.SCHED_FLAG_RESET_ON_FORK
	return &ladder{
		steps: []unix.SchedAttr{
			{Policy: unix.SCHED_FIFO, Priority: 1, Flags: reset},
			{Policy: unix.SCHED_NORMAL, Nice: min(now.Nice, -10), Runtime: uint64(shortSlice), Flags: reset},
			{Policy: unix.SCHED_NORMAL, Nice: now.Nice, Runtime: uint64(shortSlice), Flags: reset},
		},
		ordinary: unix.SchedAttr{Policy: unix.SCHED_NORMAL, Nice: now.Nice, Flags: reset},
	}
}

// first is the number of the best step for a process that is so urgent.
func (l *ladder) first(is level) int {
	if is == favoured && len(l.steps) > 0 && l.steps[0].Policy == unix.SCHED_FIFO {
		return 1
	}
	return 0
}

// set applies the best step that is allowed, or none, to all threads there are.
func (l *ladder) set(is level) {
	if len(l.steps) == 0 {
		return
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if is == ordinary {
			attributes := l.ordinary
			_ = unix.SchedSetAttr(id, &attributes, 0) // one that has ended
			continue
		}
		for best := l.first(is); best < len(l.steps); {
			attributes := l.steps[best]
			if err := unix.SchedSetAttr(id, &attributes, 0); err != unix.EPERM && err != unix.EINVAL {
				break
			}
			l.steps = slices.Delete(l.steps, best, best+1) // not allowed here
		}
	}
}
