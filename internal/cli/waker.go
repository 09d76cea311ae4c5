// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// wakeCommand is what continues a `divvy run` that stopped with its command when
// the command alone is continued or killed: a stopped process hears of neither.
// It is there only while `divvy run` is stopped, in a session of its own, where
// what stops a job does not reach it.
const wakeCommand = "wake"

// How often the waker looks: the kernel tells only its parent of a process that goes on.
const (
	wakeFirst = 20 * time.Millisecond
	wakeLast  = 200 * time.Millisecond
)

// waker is our side of it.
type waker struct {
	child *exec.Cmd
	alive *os.File // it leaves when this is closed, as by our end
	woke  *os.File // it says here that it has continued us
}

func startWaker(command int) (*waker, error) {
	program, err := self()
	if err != nil {
		return nil, err
	}
	in, alive, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	woke, out, err := os.Pipe()
	if err != nil {
		_ = alive.Close()
		return nil, err
	}
	defer out.Close()
	w := &waker{alive: alive, woke: woke, child: &exec.Cmd{
		Path: program, Args: []string{"divvy", wakeCommand, strconv.Itoa(command)},
		Env: []string{}, Dir: "/", Stdin: in, Stdout: out, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}}
	if err := w.child.Start(); err != nil {
		_, _ = alive.Close(), woke.Close()
		return nil, err
	}
	return w, nil
}

// end ends the waker, as we go on, and says whether that is its doing.
func (w *waker) end() bool {
	_ = w.child.Process.Kill()
	_ = w.child.Wait()
	n, _ := w.woke.Read(make([]byte, 1))
	_, _ = w.alive.Close(), w.woke.Close()
	return n > 0
}

func (a *app) wakeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: wakeCommand + " PID", Hidden: true, Args: cobra.ExactArgs(1)}
	cmd.RunE = a.action(func(_ *cobra.Command, args []string) error {
		command, err := strconv.Atoi(args[0])
		if err != nil {
			return usage(errors.New("not for use by hand"))
		}
		wake(os.Getppid(), command, os.Stdin, os.Stdout)
		return nil
	})
	return cmd
}

// wake continues the process run whenever it is stopped and its child command is not,
// until the other end of the pipe alive is closed, and says so to woke. Neither number can have gone to
// another process: run waits for command, and who is our parent has not ended.
func wake(run, command int, alive, woke *os.File) {
	table := process.New("/proc")
	for pause := wakeFirst; ; pause = min(pause*3/2, wakeLast) {
		closed := []unix.PollFd{{Fd: int32(alive.Fd())}}
		if n, err := unix.Poll(closed, int(pause.Milliseconds())); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if os.Getppid() != run {
			return
		}
		if !table.Stopped(command) && table.Stopped(run) {
			_, _ = woke.Write([]byte{1})
			_ = unix.Kill(run, unix.SIGCONT)
		}
	}
}
