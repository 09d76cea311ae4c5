// SPDX-License-Identifier: Apache-2.0

// Package mps runs NVIDIA's Multi-Process Service for one card: its control
// daemon is started, asked, checked and stopped, its clients are given their
// environment, and whether a limit is in force is looked at from outside after
// the client has started. It decides nothing about shares.
//
// What the daemon takes and answers is in NVIDIA's documentation, of which this
// package speaks the second interface, by lines on standard input:
//
//	https://docs.nvidia.com/deploy/mps/mpsv2-interface.html
//	https://docs.nvidia.com/deploy/mps/appendix-environment-variables.html
//	https://docs.nvidia.com/deploy/mps/architecture.html
//
// Four things there fail without an error. A client whose pipe directory leads
// to no daemon runs without MPS and without limits. A list of memory limits
// that names a card the client does not see is dropped as a whole. A limit that
// the daemon is told for a card that it does not have is kept and ignored. And a
// client of a second user waits, for as long as the first one's clients live.
// Check, Verify and Admit are there for these.
//
// It has not been run on hardware: tests run it over the fake control daemon in
// test/fakemps.
package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/socket"
)

// Errors of a daemon; callers use errors.Is.
var (
	// ErrNotInstalled says that there is no control daemon to start.
	ErrNotInstalled = errors.New("nvidia-cuda-mps-control is not installed")
	// ErrNotRunning says that no control daemon answers for the card.
	ErrNotRunning = errors.New("no MPS control daemon answers")
	// ErrInUse says that clients are connected.
	ErrInUse = errors.New("MPS clients are connected")
	// ErrOtherUser says that a client would wait for those of another user.
	ErrOtherUser = errors.New("the MPS server is another user's")
	// ErrNotInForce says that a limit does not hold a client.
	ErrNotInForce = errors.New("the MPS limit is not in force")
)

const (
	program     = "nvidia-cuda-mps-control"
	pidName     = program + ".pid"
	multiuser   = "-multiuser-server"
	pollEvery   = 20 * time.Millisecond
	forceAfter  = 1 // seconds that a forced stop leaves to servers
	maxPIDBytes = 32

	environmentPatience = 2 * time.Second // with a process whose environment does not come
)

// Config says whose daemon runs where.
type Config struct {
	UUID      string // of the card; the daemon sees no other
	Directory string // of the pipes and logs of this card's daemon
	Program   string // the control daemon; empty: looked up in PATH
	// Multiuser lets clients of several users connect at once. They all count as
	// root's clients then, and nothing keeps them apart.
	Multiuser bool
	// Environments are where those of clients are read; nil: ones of its own.
	Environments *process.Environments
}

// Validate says what is wrong with a configuration.
func (c Config) Validate() error {
	switch {
	case !strings.HasPrefix(c.UUID, "GPU-"):
		return fmt.Errorf("MPS: %q is not the UUID of a GPU", c.UUID)
	case !filepath.IsAbs(c.Directory):
		return fmt.Errorf("MPS: the directory %q is not absolute", c.Directory)
	case len(filepath.Join(c.Directory, pipeFolder, "control_privileged")) > socket.MaxPathBytes:
		return fmt.Errorf("MPS: sockets in %s would have too long a path", c.Directory)
	}
	return nil
}

const (
	pipeFolder = "pipe"
	logFolder  = "log"
)

// Daemon is the control daemon of one card, running or not. It keeps no state:
// what there is to know is asked anew.
type Daemon struct {
	cfg   Config
	table process.Table
}

// New describes a daemon; it starts nothing.
func New(cfg Config) (*Daemon, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	table := process.New("/proc")
	if cfg.Environments == nil {
		cfg.Environments = process.NewEnvironments(table)
	}
	return &Daemon{cfg: cfg, table: table}, nil
}

// PipeDirectory is where the daemon and its clients meet.
func (d *Daemon) PipeDirectory() string { return filepath.Join(d.cfg.Directory, pipeFolder) }

// LogDirectory has control.log and server.log.
func (d *Daemon) LogDirectory() string { return filepath.Join(d.cfg.Directory, logFolder) }

// Start starts the daemon and waits until it answers, at most until ctx ends. One
// that runs already is left as it is. One that runs and does not answer is an
// error: a second one beside it would make things worse.
func (d *Daemon) Start(ctx context.Context) error {
	if _, err := d.Status(ctx); err == nil {
		return nil
	}
	if pid, ok := d.alive(); ok {
		return fmt.Errorf("start MPS for %s: process %d has its directory and does not answer: %w", d.cfg.UUID, pid, ErrNotRunning)
	}
	path, err := d.program()
	if err != nil {
		return err
	}
	if err := d.makeFolders(); err != nil {
		return fmt.Errorf("start MPS for %s: %w", d.cfg.UUID, err)
	}
	args := []string{"-d"}
	if d.cfg.Multiuser {
		args = append(args, multiuser)
	}
	if _, err := d.run(ctx, path, args, ""); err != nil {
		return fmt.Errorf("start MPS for %s: %w", d.cfg.UUID, err)
	}
	if err := d.await(ctx, func() bool { _, err := d.ActiveThreadPercentage(ctx); return err == nil }); err != nil {
		return fmt.Errorf("start MPS for %s: %w, see %s", d.cfg.UUID, ErrNotRunning, filepath.Join(d.LogDirectory(), "control.log"))
	}
	return nil
}

// Stop ends the daemon and its servers and waits until it is gone. Clients that
// are connected make it ErrInUse; with force they lose what they run.
func (d *Daemon) Stop(ctx context.Context, force bool) error {
	status, err := d.Status(ctx)
	if errors.Is(err, ErrNotRunning) {
		return nil
	}
	if err != nil {
		return err
	}
	begun, err := d.table.Start(status.PID)
	if err != nil {
		return nil // it has just ended
	}
	command := "quit"
	if clients := status.Clients(); len(clients) > 0 {
		if !force {
			return fmt.Errorf("stop MPS for %s: %w: %s", d.cfg.UUID, ErrInUse, joinPIDs(clients))
		}
		command = fmt.Sprintf("quit -t %d", forceAfter)
	}
	if _, err := d.ask(ctx, command); err != nil {
		return fmt.Errorf("stop MPS for %s: %w", d.cfg.UUID, err)
	}
	// Not by its pid file, which it removes before its lock goes with it.
	if err := d.await(ctx, func() bool { return !d.table.Running(status.PID, begun) }); err != nil {
		return fmt.Errorf("stop MPS for %s: process %d goes on: %w", d.cfg.UUID, status.PID, err)
	}
	return nil
}

// await looks again and again until done or ctx ends.
func (d *Daemon) await(ctx context.Context, done func() bool) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		if done() {
			return nil
		}
		timer.Reset(pollEvery)
	}
}

// Installed says whether there is a control daemon to start.
func (d *Daemon) Installed() bool {
	_, err := d.program()
	return err == nil
}

func (d *Daemon) program() (string, error) {
	name := d.cfg.Program
	if name == "" {
		name = program
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	return path, nil
}

// makeFolders makes what the daemon writes into, or checks that it is ours. The
// clients of other users have to reach the sockets of root's daemon.
func (d *Daemon) makeFolders() error {
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o755
	}
	for _, path := range []string{d.cfg.Directory, d.PipeDirectory(), d.LogDirectory()} {
		if err := socket.MakeFolder(path, mode); err != nil {
			return err
		}
	}
	return nil
}

// alive returns the process that the daemon's pid file names, if that runs and
// is a control daemon.
func (d *Daemon) alive() (int, bool) {
	raw, err := os.ReadFile(filepath.Join(d.PipeDirectory(), pidName))
	if err != nil || len(raw) > maxPIDBytes {
		return 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || pid <= 0 {
		return 0, false
	}
	start, err := d.table.Start(pid)
	if err != nil || !d.table.Running(pid, start) || !strings.Contains(d.table.Command(pid), "mps") {
		return 0, false
	}
	return pid, true
}

// PID is the process of the daemon, without that it is asked: it may not answer.
// ErrNotInstalled or ErrNotRunning when there is none.
func (d *Daemon) PID() (int, error) {
	if pid, ok := d.alive(); ok {
		return pid, nil
	}
	if _, err := d.program(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("%s: %w", d.cfg.UUID, ErrNotRunning)
}

// Status is what a running daemon says of itself.
type Status struct {
	PID                    int
	UID                    int
	Multiuser              bool
	ActiveThreadPercentage int
	PinnedBytes            uint64 // of each client of later servers; 0: no limit
	Servers                []Server
}

// Server is one nvidia-cuda-mps-server: it has the contexts of its user's clients.
type Server struct {
	PID     int
	UID     int
	State   string // INITIALIZING, ACTIVE, FAULT; empty: not told
	Clients []int
}

// Clients lists the clients of all servers.
func (s Status) Clients() []int {
	var all []int
	for _, server := range s.Servers {
		all = append(all, server.Clients...)
	}
	return all
}

// Status asks the daemon; ErrNotRunning when there is none to ask.
func (d *Daemon) Status(ctx context.Context) (Status, error) {
	var s Status
	var ok bool
	if s.PID, ok = d.alive(); !ok {
		return s, fmt.Errorf("%s: %w", d.cfg.UUID, ErrNotRunning)
	}
	s.UID = ownerOf(s.PID)
	s.Multiuser = slices.Contains(strings.Fields(d.table.Command(s.PID)), multiuser)
	var err error
	if s.ActiveThreadPercentage, err = d.ActiveThreadPercentage(ctx); err != nil {
		return s, err
	}
	if s.PinnedBytes, err = d.pinned(ctx, "get_default_device_pinned_mem_limit "+d.cfg.UUID); err != nil {
		return s, err
	}
	servers, err := d.pids(ctx, "get_server_list")
	if err != nil {
		return s, err
	}
	for _, pid := range servers {
		server := Server{PID: pid, UID: ownerOf(pid)}
		if server.State, err = d.ask(ctx, fmt.Sprintf("get_server_status %d", pid)); err != nil {
			return s, err
		}
		if server.Clients, err = d.pids(ctx, fmt.Sprintf("get_client_list %d", pid)); err != nil {
			return s, err
		}
		s.Servers = append(s.Servers, server)
	}
	return s, nil
}

// Admit says whether a client of uid would be served at once. Without
// -multiuser-server a daemon serves its own user, or root's daemon one user
// after the other.
func (s Status) Admit(uid int) error {
	if s.Multiuser {
		return nil
	}
	if s.UID != 0 && uid != s.UID {
		return fmt.Errorf("%w: the control daemon runs as uid %d", ErrOtherUser, s.UID)
	}
	for _, server := range s.Servers {
		if server.UID != uid && len(server.Clients) > 0 {
			return fmt.Errorf("%w: uid %d has it until its clients end (%s)", ErrOtherUser, server.UID, joinPIDs(server.Clients))
		}
	}
	return nil
}

// ownerOf is the user a process runs as, -1 when it is gone.
func ownerOf(pid int) int {
	info, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	if err != nil {
		return -1
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1
	}
	return int(stat.Uid)
}

func joinPIDs(pids []int) string {
	words := make([]string, len(pids))
	for i, pid := range pids {
		words[i] = strconv.Itoa(pid)
	}
	return "process " + strings.Join(words, ", ")
}
