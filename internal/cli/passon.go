// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/errclass"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/signals"
)

// passOn runs the command as if it stood in our place: our streams, our process
// group, our terminal. What the terminal sends to the group reaches the command
// by itself; what others send to us is passed on, of all signals that there are; those
// that we were started with ignored or blocked stay so. The command's state is ours: we
// stop when it does, by the same signal, and go on when it does, whoever made it.
// It returns the code a shell would give, or an error where the run was ended because it
// is not held as was demanded.
//
// If we are killed by SIGKILL the command lives on; its share stays while it is
// attached.
func (a *app) passOn(cmd *exec.Cmd, w watch) (int, error) {
	cmd, err := keepIgnored(cmd)
	if err != nil {
		return 0, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	arrivals, err := signals.Take(signals.Ignored() &^ signals.Of(unix.SIGCHLD))
	if err != nil {
		return 0, err
	}
	defer arrivals.Stop()
	if err := signals.Masked(cmd.Start); err != nil {
		return 0, startError(cmd.Path, err)
	}
	arrivals.Add(signals.Ignored()) // what it does with them is its own affair
	r := running{pid: cmd.Process.Pid}
	var here waiting
	var e ending
	for {
		here.take(arrivals.C)
		status, ended, err := r.look()
		switch {
		case err != nil:
			return 0, fmt.Errorf("wait for %s: %w", cmd.Path, err)
		case ended:
			_ = cmd.Process.Release()
			e.catchUp(w)
			if err := e.finish(); err != nil {
				return 0, err
			}
			if status.Signaled() {
				return exitSignalBase + int(status.Signal()), nil
			}
			return status.ExitStatus(), nil
		case len(here) > 0: // also what continues it
			r.pass(here.next())
		case r.stop != 0:
			r.stopWith(arrivals.C)
		default:
			select {
			case s := <-arrivals.C:
				here.add(s)
			case n := <-w.notices:
				a.hear(&e, n, r.pid, w.grace)
			case <-e.next:
				e.step()
			}
		}
	}
}

// waiting are signals that have come and are not passed on yet. As the kernel has it with
// those that wait in a process: a SIGCONT takes away what would stop, and what stops takes
// away a SIGCONT, so that one that comes late undoes nothing that was done after it.
type waiting []syscall.Signal

func (w *waiting) take(arrived <-chan syscall.Signal) {
	for len(arrived) > 0 {
		w.add(<-arrived)
	}
}

func (w *waiting) add(s syscall.Signal) {
	switch s {
	case unix.SIGCONT:
		w.drop(unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	case unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		w.drop(unix.SIGCONT)
	}
	*w = append(*w, s)
}

func (w *waiting) drop(these ...syscall.Signal) {
	*w = slices.DeleteFunc(*w, func(s syscall.Signal) bool { return slices.Contains(these, s) })
}

func (w *waiting) next() syscall.Signal {
	s := (*w)[0]
	*w = (*w)[1:]
	return s
}

// running is the command.
type running struct {
	pid     int
	stop    syscall.Signal // that stopped it, and we have not yet; 0: none
	resumed bool           // we were stopped, and have not seen the SIGCONT that ended that
	others  bool           // the next SIGCONT is for us alone: others have continued the command
	byUs    bool           // we have continued it, and it has not been told yet
}

// look finds out what became of the command.
func (r *running) look() (status syscall.WaitStatus, ended bool, err error) {
	for {
		pid, err := syscall.Wait4(r.pid, &status, syscall.WNOHANG|syscall.WUNTRACED|syscall.WCONTINUED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid == 0:
			return 0, false, err
		case status.Stopped():
			r.stop, r.byUs = status.StopSignal(), false
			r.others = r.others || r.resumed // it had gone on in between
		case status.Continued():
			r.others, r.byUs, r.stop = !r.byUs, false, 0
		default:
			return status, true, nil
		}
	}
}

func (r *running) stopped() bool { return process.New("/proc").Stopped(r.pid) }

// stopWith stops us as the command is stopped, until somebody continues us or it.
func (r *running) stopWith(arrived <-chan syscall.Signal) {
	by := r.stop
	r.stop = 0
	if !r.stopped() { // a stop that is over needs no answer
		return
	}
	w, err := startWaker(r.pid)
	// What has come until now came before we stop: also what stopped the command, which
	// must not stop it again later.
	var here waiting
	for here.take(arrived); len(here) > 0; {
		if s := here.next(); s != unix.SIGTSTP {
			r.pass(s)
		}
	}
	if r.stopped() {
		r.others = false
		stopSelf(by) // without a waker, too: a shell waits for it
		r.resumed = true
	}
	if err == nil && w.end() {
		r.others = true
	}
}

// pass gives a signal to the command, unless it has it already.
func (r *running) pass(s syscall.Signal) {
	switch s {
	case unix.SIGCHLD, unix.SIGTTIN, unix.SIGTTOU:
		return // news, and what the terminal sends to all of a group
	case unix.SIGCONT:
		// Who continues a job continues all of its group; and our waker continues us
		// when the command goes on.
		skip := r.others
		r.others, r.resumed = false, false
		if skip {
			return
		}
		r.byUs = r.stopped()
	case unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH, unix.SIGTSTP:
		// We stop when the command does, not when it is asked to.
		if inForeground() {
			return
		}
	}
	_ = unix.Kill(r.pid, s)
}

// inForeground says whether our process group is the one the terminal sends
// its signals to.
func inForeground() bool {
	tty, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(tty)
	group, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// startError gives a failed start the code a shell would.
func startError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The file is there, so what is missing is its interpreter.
		return &codedError{code: exitNotFound, cause: fmt.Errorf("%s: not found, or its interpreter is not", path)}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENOEXEC):
		return &codedError{code: exitNotExecutable, cause: errclass.Of(err, fmt.Errorf("%s: not executable", path))}
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return withHint(fmt.Errorf("start %s: %w", path, err), "ulimit -n 64, or more")
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("start %s: %w", path, err) // nothing is wrong with the program
	}
	return &codedError{code: exitNotExecutable, cause: fmt.Errorf("start %s: %w", path, err)}
}
