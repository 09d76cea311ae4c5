// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/environment"
	"github.com/divvy-gpu/divvy/internal/remote/protocol"
)

// Step is the process between a server and a worker: it enters the share, which acts on the
// process that asks, takes the worker's user and limits, and becomes the worker.
type Step struct {
	Agent  string // socket
	Share  string
	UID    int // -1: stay what we are
	Worker string
}

// workerSocket is the descriptor of a worker's connection.
const workerSocket = 3

// Arguments are those of the command that is the step.
func (s Step) Arguments() []string { return []string{s.Agent, s.Share, strconv.Itoa(s.UID), s.Worker} }

// ParseStep reads them.
func ParseStep(arguments []string) (Step, error) {
	if len(arguments) != 4 {
		return Step{}, errors.New("not for use by hand")
	}
	uid, err := strconv.Atoi(arguments[2])
	if err != nil || uid < -1 {
		return Step{}, errors.New("not for use by hand")
	}
	return Step{Agent: arguments[0], Share: arguments[1], UID: uid, Worker: arguments[3]}, nil
}

// Become makes this process the worker. If it returns, it has told the other end why it
// could not; explain says with which code.
func (s Step) Become(ctx context.Context, explain func(error) (exitCode int, hint string)) error {
	err := s.become(ctx)
	code, hint := explain(err)
	r := &protocol.Refusal{ExitCode: code, Result: protocol.DeviceUnavailable, Message: "start a worker: " + err.Error(), Hint: hint}
	conn := os.NewFile(workerSocket, "connection")
	defer conn.Close()
	// HELLO must be read, or the other end could lose what it is told.
	if _, _, failed := protocol.Read(conn, protocol.MaxControl); failed == nil {
		_ = protocol.Write(conn, protocol.Refused, r.Encode())
	}
	return err
}

func (s Step) become(ctx context.Context) error {
	runtime.LockOSThread() // what is given up here, this thread must not have when it becomes the worker
	entry, err := client.New(s.Agent).Enter(ctx, s.Share)
	if err != nil {
		return err
	}
	set := map[string]string{}
	for _, one := range entry.Environment {
		name, value, _ := strings.Cut(one, "=")
		set[name] = value
	}
	for _, limit := range []struct{ resource, most int }{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_NOFILE, maxWorkerFiles}} {
		if err := lower(limit.resource, limit.most); err != nil {
			return err
		}
	}
	if s.UID > 0 && os.Geteuid() == 0 {
		if err := takeUser(s.UID); err != nil {
			return fmt.Errorf("become user %d: %w", s.UID, err)
		}
	}
	environ := environment.Merge(os.Environ(), set)
	// The vendor's driver starts a setuid program where this file is missing, and only then.
	if _, err := os.Stat("/dev/nvidia-uvm"); err == nil || environment.Get(environ, "DIVVY_SIMULATOR") != "" {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("give up setuid: %w", err)
		}
	}
	return &os.PathError{Op: "exec", Path: s.Worker, Err: syscall.Exec(s.Worker, []string{"divvy-worker"}, environ)}
}

// maxWorkerFiles bounds a worker's descriptors: a driver opens some hundreds.
const maxWorkerFiles = 4096

// lower sets a limit of this process, of which it may have less already.
func lower(resource, most int) error {
	var is unix.Rlimit
	if err := unix.Getrlimit(resource, &is); err != nil {
		return fmt.Errorf("limit %d: %w", resource, err)
	}
	bound := min(uint64(most), is.Max)
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: bound, Max: bound}); err != nil {
		return fmt.Errorf("limit %d: %w", resource, err)
	}
	return nil
}

// takeUser gives up all that root has.
func takeUser(uid int) error {
	if err := syscall.Setgroups([]int{}); err != nil {
		return err
	}
	if err := syscall.Setresgid(uid, uid, uid); err != nil {
		return err
	}
	return syscall.Setresuid(uid, uid, uid)
}
