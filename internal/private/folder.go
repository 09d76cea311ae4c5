// SPDX-License-Identifier: Apache-2.0

package private

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockPoll       = 5 * time.Millisecond
	maxRecordBytes = 64 << 10
	maxLogBytes    = 1 << 20
	logTailBytes   = 2 << 10
)

// Folder holds the sockets, lock, logs and record of one agent.
type Folder struct {
	path string
}

func (f *Folder) agentSocket() string     { return filepath.Join(f.path, "agent.sock") }
func (f *Folder) simulatorSocket() string { return filepath.Join(f.path, "simulator.sock") }
func (f *Folder) lockFile() string        { return filepath.Join(f.path, "lock") }
func (f *Folder) recordFile() string      { return filepath.Join(f.path, "daemons.json") }
func (f *Folder) logFile(daemon string) string {
	return filepath.Join(f.path, daemon+".log")
}

// lock takes the folder's lock file and returns what lets it go. A lock file
// that was removed while we waited (by a cleanup) is no lock: the folder is
// taken again.
func (f *Folder) lock(ctx context.Context) (func(), error) {
	for {
		if err := ensurePrivate(f.path); err != nil {
			return nil, err
		}
		fd, err := unix.Open(f.lockFile(), unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if errors.Is(err, unix.ENOENT) {
			continue // the folder went away in between
		}
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", f.lockFile(), err)
		}
		if err := f.flock(ctx, fd); err != nil {
			unix.Close(fd)
			return nil, err
		}
		if f.isCurrent(fd) {
			return func() { unix.Close(fd) }, nil
		}
		unix.Close(fd)
	}
}

func (f *Folder) flock(ctx context.Context, fd int) error {
	for {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", f.lockFile(), err)
		}
		if err := pause(ctx, lockPoll); err != nil {
			return fmt.Errorf("wait for %s: %w", f.lockFile(), err)
		}
	}
}

// isCurrent says whether the lock file's name still leads to fd.
func (f *Folder) isCurrent(fd int) bool {
	var held, named unix.Stat_t
	return unix.Fstat(fd, &held) == nil && unix.Lstat(f.lockFile(), &named) == nil &&
		held.Dev == named.Dev && held.Ino == named.Ino
}

// process names a daemon beyond the reuse of its process id.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot, from /proc/PID/stat
}

type record struct {
	Spec      Spec    `json:"spec"`
	Agent     process `json:"agent"`
	Simulator process `json:"simulator"`
}

func (f *Folder) readRecord() (record, error) {
	var r record
	raw, err := readFile(f.recordFile(), maxRecordBytes)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("read %s: %w", f.recordFile(), err)
	}
	return r, nil
}

func (f *Folder) writeRecord(r record) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	next := f.recordFile() + ".new"
	if err := os.WriteFile(next, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(next, f.recordFile())
}

// logTail is the end of a daemon's log, on one line, for an error message.
func (f *Folder) logTail(daemon string) string {
	file, err := os.Open(f.logFile(daemon))
	if err != nil {
		return ""
	}
	defer file.Close()
	if end, err := file.Seek(0, io.SeekEnd); err == nil {
		_, _ = file.Seek(max(0, end-logTailBytes), io.SeekStart)
	}
	raw, _ := io.ReadAll(io.LimitReader(file, logTailBytes))
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(lines[max(0, len(lines)-2):], "; ")
}

func readFile(path string, limit int64) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}

// pause waits without holding anything up when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
