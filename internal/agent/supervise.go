// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/socket"
)

const (
	// storeVariable tells a worker the descriptor of its supervisor's store.
	storeVariable = "DIVVY_STORE_FD"
	storeFD       = 3 // the locks are the next ones

	leaveIdle   = "idle"
	leaveFailed = "failed: "

	lockName    = "agent.lock"
	lockWait    = 2 * time.Second // an agent that leaves may still have it
	lockPause   = 10 * time.Millisecond
	backoffMin  = 10 * time.Millisecond
	backoffMax  = 160 * time.Millisecond // after a worker that served: its clients wait
	backoffIdle = 5 * time.Second        // after one that did not get that far
	healthyLife = 10 * time.Second       // after such a life the next restart is at once
	killAfter   = 5 * time.Second
)

// takeLocks makes sure that one agent uses the directory, and one the journal's. A lock
// goes with the last process that has its descriptor.
func takeLocks(ctx context.Context, cfg Config) ([]*os.File, error) {
	folders := []string{cfg.Directory}
	one, err := os.Stat(cfg.Directory)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	other, err := os.Stat(cfg.JournalDirectory)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if !os.SameFile(one, other) {
		folders = append(folders, cfg.JournalDirectory)
	}
	var locks []*os.File
	for _, folder := range folders {
		lock, err := takeLock(ctx, folder)
		if err != nil {
			closeAll(locks)
			return nil, err
		}
		locks = append(locks, lock)
	}
	return locks, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

func takeLock(ctx context.Context, folder string) (*os.File, error) {
	path := filepath.Join(folder, lockName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	deadline := time.Now().Add(lockWait)
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			_ = file.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("%w in %s", ErrRunning, folder)
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !pauseFor(ctx, lockPause) {
			_ = file.Close()
			return nil, ctx.Err()
		}
	}
}

// openStore takes over the supervisor's store, if there is a supervisor.
func openStore() (*socket.Store, map[string]*os.File, error) {
	text := os.Getenv(storeVariable)
	if text == "" {
		return nil, nil, nil
	}
	number, err := strconv.Atoi(text)
	if err != nil || number != storeFD {
		return nil, nil, fmt.Errorf("%s=%q is not the descriptor of a supervisor", storeVariable, text)
	}
	if err := os.Unsetenv(storeVariable); err != nil {
		return nil, nil, err
	}
	for inherited := storeFD; inherited <= storeFD+2; inherited++ {
		unix.CloseOnExec(inherited)
	}
	file := os.NewFile(uintptr(number), "store")
	defer file.Close()
	return socket.OpenStore(file)
}

// Supervise keeps a worker running: argv is the command of a process that ends
// in Run with the same configuration. The listening sockets live here, so a
// worker that dies loses no connection. It returns when ctx has ended and the
// worker with it (nil), when the worker left idle (ErrIdle), or when the first
// worker cannot serve.
func Supervise(ctx context.Context, cfg Config, argv ...string) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if len(argv) == 0 {
		return errors.New("supervise: no command")
	}
	if err := makeFolders(cfg); err != nil {
		return err
	}
	locks, err := takeLocks(ctx, cfg)
	if err != nil {
		return err
	}
	defer closeAll(locks)
	s := &supervisor{cfg: cfg, argv: argv, locks: locks, keeper: socket.NewKeeper()}
	defer s.keeper.Close()
	return s.run(ctx)
}

type supervisor struct {
	cfg    Config
	argv   []string
	locks  []*os.File
	keeper *socket.Keeper
}

func (s *supervisor) run(ctx context.Context) error {
	backoff := backoffMin
	served := false
	for {
		begun := time.Now()
		life, err := s.work(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case life.Left == leaveIdle:
			return ErrIdle
		case !served && !life.Ready && strings.HasPrefix(life.Left, leaveFailed):
			return errors.New(strings.TrimPrefix(life.Left, leaveFailed))
		case !served && !life.Ready:
			return fmt.Errorf("the worker ended before it served: %w", err)
		}
		served = true
		most := backoffIdle
		if life.Ready {
			most = backoffMax
		}
		if life.Ready && time.Since(begun) > healthyLife {
			backoff = backoffMin
		}
		backoff = min(backoff, most)
		s.cfg.Logger.Warn("worker ended, starting another", "error", err, "left", life.Left, "in", backoff)
		if !pauseFor(ctx, backoff) {
			return nil
		}
		backoff *= 2
	}
}

// work runs one worker to its end.
func (s *supervisor) work(ctx context.Context) (life socket.Life, err error) {
	ours, theirs, err := s.keeper.Pair()
	if err != nil {
		return life, err
	}
	command := exec.Command(s.argv[0], s.argv[1:]...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", storeVariable, storeFD))
	command.ExtraFiles = append([]*os.File{theirs}, s.locks...)
	// Signals of the terminal are for us; we pass on what ends the worker.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = command.Start()
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		return socket.Life{Left: leaveFailed + err.Error()}, fmt.Errorf("start worker: %w", err)
	}
	told := make(chan socket.Life, 1)
	go func() { // ends when the worker has closed its end
		life, err := s.keeper.Serve(ours)
		if err != nil {
			s.cfg.Logger.Warn("descriptor store", "error", err)
		}
		told <- life
	}()
	ended := make(chan struct{})
	stopped := make(chan struct{})
	go func() { // ends with the worker
		defer close(stopped)
		s.stop(ctx, command.Process, ended)
	}()
	err = command.Wait()
	close(ended)
	<-stopped
	return <-told, err
}

// stop ends the worker when ctx does: by request, and after a while by force.
func (s *supervisor) stop(ctx context.Context, worker *os.Process, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	_ = worker.Signal(unix.SIGTERM)
	timer := time.NewTimer(killAfter)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		_ = worker.Kill()
	}
}
