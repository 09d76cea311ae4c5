// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/signals"
)

// ignoreCommand is the step between `divvy run` and a command that is to ignore signals
// which Go's runtime gives back to every program that it starts.
const ignoreCommand = "ignoring"

// keptByGo are the signals that programs which os/exec starts ignore if this process does.
var keptByGo = ^signals.Of(unix.SIGCHLD, unix.SIGPROF, unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV,
	unix.SIGSTKFLT, unix.SIGSYS, 34)

// keepIgnored has a command ignore what we were started with ignored.
func keepIgnored(cmd *exec.Cmd) (*exec.Cmd, error) {
	ignored := signals.Ignored()
	if kept := ignored & keptByGo; kept != 0 {
		signal.Ignore(kept.Each()...)
	}
	rest := ignored &^ keptByGo
	if rest == 0 {
		return cmd, nil
	}
	program, err := self()
	if err != nil {
		return nil, err
	}
	args := append([]string{"divvy", ignoreCommand, strconv.FormatUint(uint64(rest), 16), cmd.Path, "--"}, cmd.Args...)
	return &exec.Cmd{Path: program, Args: args, Env: cmd.Env, SysProcAttr: cmd.SysProcAttr}, nil
}

func (a *app) ignoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: ignoreCommand + " SET PATH -- ARGUMENTS...", Hidden: true, Args: cobra.MinimumNArgs(4), DisableFlagParsing: true,
	}
	cmd.RunE = a.action(func(_ *cobra.Command, args []string) error {
		set, err := strconv.ParseUint(args[0], 16, 64)
		if err != nil || args[2] != "--" {
			return usage(errors.New("not for use by hand"))
		}
		// Also those that we have from divvy run: our runtime has taken them.
		signals.Ignore(signals.Set(set) | signals.Ignored())
		path := args[1]
		if err := signals.Masked(func() error { return syscall.Exec(path, args[3:], os.Environ()) }); err != nil {
			return startError(path, &os.PathError{Op: "exec", Path: path, Err: err})
		}
		return nil
	})
	return cmd
}
