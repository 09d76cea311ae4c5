// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/library"
	"github.com/divvy-gpu/divvy/internal/private"
	"github.com/divvy-gpu/divvy/internal/signals"
)

// isolateCommand is the step between `divvy run --isolate` and the command: a
// process in a mount namespace of its own that puts the front over the driver's
// files and becomes the command.
const isolateCommand = "isolated"

// isolation is where the front goes.
type isolation struct {
	front  string // the prepared libcuda.so.1
	driver string // DIVVY_DRIVER_DIR
	mount  string // an empty folder of ours, to mount on
}

// namespaces are those of an isolated command; without root the user's own
// namespace gives the right to mount.
func namespaces() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		attributes.Cloneflags |= unix.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		attributes.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // until the mounts are made
	}
	return attributes
}

// wrap returns the command line that isolates and then becomes path with args.
func (i isolation) wrap(path string, args []string) (string, []string, error) {
	program, err := self()
	if err != nil {
		return "", nil, err
	}
	return program, append([]string{"divvy", isolateCommand, i.front, i.driver, i.mount, path, "--"}, args...), nil
}

func (a *app) isolateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: isolateCommand + " FRONT DRIVER MOUNT PATH -- ARGUMENTS...", Hidden: true, Args: cobra.MinimumNArgs(5),
		DisableFlagParsing: true,
	}
	cmd.RunE = a.action(func(_ *cobra.Command, args []string) error {
		if len(args) < 6 || args[4] != "--" {
			return usage(errors.New("not for use by hand"))
		}
		runtime.LockOSThread() // what enter gives up, this thread must not have when it executes the command
		i := isolation{front: args[0], driver: args[1], mount: args[2]}
		if err := i.enter(); err != nil {
			return runFailed(fmt.Errorf("isolate: %w", err))
		}
		path := args[3]
		signals.Ignore(signals.Ignored())
		if err := signals.Masked(func() error { return syscall.Exec(path, args[5:], i.environment(os.Environ())) }); err != nil {
			return startError(path, &os.PathError{Op: "exec", Path: path, Err: err})
		}
		return nil
	})
	return cmd
}

// enter changes this process's view of the file system: the real driver
// appears in the folder mount, and the front in every place where a driver was.
func (i isolation) enter() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", i.mount, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=64k"); err != nil {
		return fmt.Errorf("mount on %s: %w", i.mount, err)
	}
	for _, name := range []string{library.CUDAName, library.NVMLName} {
		real, err := filepath.EvalSymlinks(filepath.Join(i.driver, name))
		if err != nil {
			return err
		}
		if err := bindFile(real, filepath.Join(i.mount, name)); err != nil {
			return err
		}
	}
	for _, target := range i.targets() {
		if err := unix.Mount(i.front, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("put the front over %s: %w", target, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("give up the right to mount: %w", err)
	}
	// A setuid program would get none of our environment.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up setuid: %w", err)
	}
	return nil
}

// targets are the files by which a program could open a driver: those in the
// driver's folder and those of the installed driver.
func (i isolation) targets() []string {
	var files []string
	for _, name := range []string{library.CUDAName, library.NVMLName, "libcuda.so"} {
		files = append(files, filepath.Join(i.driver, name))
	}
	if found, err := private.FindDriver("/"); err == nil {
		files = append(files, found.CUDA, found.NVML)
	}
	var targets []string
	for _, file := range files {
		real, err := filepath.EvalSymlinks(file)
		if err == nil && !slices.Contains(targets, real) {
			targets = append(targets, real)
		}
	}
	return targets
}

// bindFile makes a file appear at a new place.
func bindFile(from, to string) error {
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", from, err)
	}
	return nil
}

// environment is env with the driver at its new place.
func (i isolation) environment(env []string) []string {
	kept := slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, "DIVVY_DRIVER_DIR=") })
	return append(kept, "DIVVY_DRIVER_DIR="+i.mount)
}
