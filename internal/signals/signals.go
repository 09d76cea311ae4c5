// SPDX-License-Identifier: Apache-2.0

// Package signals tells which signals were sent to this process, of all that there are,
// and which it was started with ignored or blocked.
//
// It is C because os/signal cannot: Go's runtime keeps SIGPROF and signal 34 for itself
// and interrupts its own threads by SIGURG; it does not say who sent a signal, so that a
// SIGPIPE by a write of ours looks like one that was sent to us; and when Go's code runs
// it is too late to see what was ignored, or blocked: it unblocks in all of its threads the
// signals that it ends a program by itself for, such as SIGTERM, and what it starts has the
// mask of the thread that starts it.
//
//	arrivals, err := signals.Take()
//	for s := range arrivals.C { ... }
package signals

// #include "signals.h"
import "C"

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Set is a set of signals.
type Set uint64

// Of is the set of these.
func Of(signals ...syscall.Signal) Set {
	var set Set
	for _, s := range signals {
		set |= 1 << (s - 1)
	}
	return set
}

// Has says whether a signal is in a set.
func (set Set) Has(s syscall.Signal) bool { return set>>(s-1)&1 == 1 }

// Each lists the signals of a set.
func (set Set) Each() (signals []os.Signal) {
	for s := syscall.Signal(1); s <= last; s++ {
		if set.Has(s) {
			signals = append(signals, s)
		}
	}
	return signals
}

const last = 64

// all that a process can take: SIGKILL and SIGSTOP are the kernel's alone, and two are
// glibc's.
const all = ^Set(1<<(unix.SIGKILL-1) | 1<<(unix.SIGSTOP-1) | 1<<(32-1) | 1<<(33-1))

// Ignored are those that this process was started with ignored.
func Ignored() Set { return Set(C.divvy_signals_ignored()) }

// Ignore makes whatever program this process becomes by exec ignore these. Programs that
// os/exec starts need not: Go's runtime resets those that it handles.
func Ignore(set Set) { C.divvy_signals_ignore(C.uint64_t(set)) }

// Masked does what starts a program, or becomes one, with those signals blocked that this process
// was started with blocked, and no others.
func Masked(do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ours := C.divvy_signals_mask(C.divvy_signals_blocked())
	defer C.divvy_signals_mask(ours)
	return do()
}

// Arrivals are the signals that others send to this process.
type Arrivals struct {
	C    <-chan syscall.Signal // in the order in which they came
	from *os.File
	to   int
	set  Set
	done chan struct{}
}

// Take has all signals but these arrive here, until Stop; only one such can be at a time.
func Take(but Set) (*Arrivals, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("pipe", err)
	}
	c := make(chan syscall.Signal, 64)
	a := &Arrivals{C: c, from: os.NewFile(uintptr(ends[0]), "signals"), to: ends[1], set: all &^ but, done: make(chan struct{})}
	C.divvy_signals_take(C.int(a.to), C.uint64_t(a.set))
	go a.read(c)
	return a, nil
}

// Add has more arrive: those that a program which has been started since was to ignore.
func (a *Arrivals) Add(set Set) {
	set &= all &^ a.set
	C.divvy_signals_take(C.int(a.to), C.uint64_t(set))
	a.set |= set
}

func (a *Arrivals) read(c chan<- syscall.Signal) {
	// To one thread they all come, those too that we were started with blocked. It ends with
	// this goroutine.
	runtime.LockOSThread()
	C.divvy_signals_mask(0)
	raw := make([]byte, 64)
	for {
		n, err := a.from.Read(raw)
		for _, s := range raw[:max(n, 0)] {
			select {
			case c <- syscall.Signal(s):
			case <-a.done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Stop gives the signals back to whom they came to before.
func (a *Arrivals) Stop() {
	C.divvy_signals_return(C.uint64_t(a.set))
	close(a.done)
	_ = a.from.Close()
	_ = unix.Close(a.to)
}
