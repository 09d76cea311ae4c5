// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// passOn runs the command as if it stood in our place: our streams, our process
// group, our terminal. What the terminal sends to the group reaches the command
// by itself; what others send to us is passed on. When the command stops, we
// stop, so that the shell notices. It returns the code a shell would give.
//
// If we are killed by SIGKILL the command lives on; its share stays while it is
// attached.
func (a *app) passOn(cmd *exec.Cmd) (int, error) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 64)
	notify(signals)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, startError(cmd.Path, err)
	}
	child := cmd.Process.Pid
	stopped := make(chan struct{}, 1)
	ended := make(chan syscall.WaitStatus, 1)
	failed := make(chan error, 1)
	go awaitChild(child, stopped, ended, failed) // ends with the child
	for {
		select {
		case s := <-signals:
			passSignal(child, s.(syscall.Signal))
		case <-stopped:
			// A stop that is over needs no answer.
			if process.New("/proc").Stopped(child) {
				stopSelf()
			}
		case err := <-failed:
			return 0, fmt.Errorf("wait for %s: %w", cmd.Path, err)
		case status := <-ended:
			_ = cmd.Process.Release()
			if status.Signaled() {
				return exitSignalBase + int(status.Signal()), nil
			}
			return status.ExitStatus(), nil
		}
	}
}

// passedSignals are passed on; those that were ignored when we started stay so.
var passedSignals = []syscall.Signal{
	unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH,
	unix.SIGCONT, unix.SIGTSTP, unix.SIGIO, unix.SIGPWR, unix.SIGVTALRM,
}

func notify(signals chan<- os.Signal) {
	for _, s := range passedSignals {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
}

// passSignal gives a signal to the child, unless the terminal has done so.
func passSignal(child int, s syscall.Signal) {
	switch s {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH, unix.SIGTSTP:
		// We stop when the child does, not when it is asked to.
		if !inForeground() {
			_ = unix.Kill(child, s)
		}
	default:
		_ = unix.Kill(child, s)
	}
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

// awaitChild reports each stop and the end of the child.
func awaitChild(pid int, stopped chan<- struct{}, ended chan<- syscall.WaitStatus, failed chan<- error) {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			failed <- err
			return
		case status.Stopped():
			select {
			case stopped <- struct{}{}:
			default:
			}
		case status.Exited(), status.Signaled():
			ended <- status
			return
		}
	}
}

// startError gives a failed start the code a shell would.
func startError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The file is there, so what is missing is its interpreter.
		return &codedError{code: exitNotFound, cause: fmt.Errorf("%s: not found, or its interpreter is not", path)}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENOEXEC):
		return &codedError{code: exitNotExecutable, cause: &markedError{class: err, cause: fmt.Errorf("%s: not executable", path)}}
	}
	return &codedError{code: exitNotExecutable, cause: fmt.Errorf("start %s: %w", path, err)}
}
