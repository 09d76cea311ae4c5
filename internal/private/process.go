// SPDX-License-Identifier: Apache-2.0

package private

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	processes "github.com/divvy-gpu/divvy/internal/process"
)

func (p process) alive() bool {
	return p.PID > 0 && p.Start != 0 && processes.New("/proc").Running(p.PID, p.Start)
}

// waitGone waits until the process has ended, at most for d.
func (p process) waitGone(ctx context.Context, d time.Duration) bool {
	deadline := time.Now().Add(d)
	for p.alive() {
		if time.Now().After(deadline) || pause(ctx, 2*time.Millisecond) != nil {
			return false
		}
	}
	return true
}

// stop ends the process, first politely.
func (p process) stop(ctx context.Context) {
	if !p.alive() {
		return
	}
	_ = unix.Kill(p.PID, unix.SIGTERM)
	if p.waitGone(ctx, 2*time.Second) {
		return
	}
	if p.alive() {
		_ = unix.Kill(p.PID, unix.SIGKILL)
		p.waitGone(ctx, time.Second)
	}
}

// start runs the program as a daemon: a session of its own, nothing of ours
// but its log file, and none of the variables that put programs under a share.
// What it returns besides the process is closed when the daemon ends while we
// are still here.
func (f *Folder) start(program, daemon string, args ...string) (process, <-chan struct{}, error) {
	flags := unix.O_WRONLY | unix.O_CREAT | unix.O_APPEND | unix.O_NOFOLLOW | unix.O_CLOEXEC
	var st unix.Stat_t
	if unix.Lstat(f.logFile(daemon), &st) == nil && st.Size > maxLogBytes {
		flags |= unix.O_TRUNC
	}
	fd, err := unix.Open(f.logFile(daemon), flags, 0o600)
	if err != nil {
		return process{}, nil, fmt.Errorf("open %s: %w", f.logFile(daemon), err)
	}
	log := os.NewFile(uintptr(fd), f.logFile(daemon))
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = daemonEnvironment(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return process{}, nil, fmt.Errorf("start %s: %w", daemon, err)
	}
	p := process{PID: cmd.Process.Pid}
	// A daemon that has ended already has no start; it is not alive either way.
	p.Start, _ = processes.New("/proc").Start(p.PID)
	gone := make(chan struct{})
	go func() { // ends with the daemon or with us
		defer close(gone)
		_ = cmd.Wait()
	}()
	return p, gone, nil
}

func daemonEnvironment(env []string) []string {
	var kept []string
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "CUDA_VISIBLE_DEVICES",
			"DIVVY_SOCKET", "DIVVY_DRIVER_DIR", "DIVVY_SIMULATOR", "DIVVY_AGENT":
		default:
			kept = append(kept, entry)
		}
	}
	return kept
}
