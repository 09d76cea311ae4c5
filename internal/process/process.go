// SPDX-License-Identifier: Apache-2.0

// Package process reads what /proc tells about other processes: when they
// started, what they are called, their number inside their own pid namespace,
// and who maps a given file. It follows no process; see package socket for
// that.
package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxCommandBytes = 200
	maxMapsBytes    = 64 << 20
	maxFileBytes    = 1 << 20 // of any other file, which a process may make as long as it likes
)

// ErrGone says that there is no such process (any more).
var ErrGone = errors.New("no such process")

// Table is /proc, or a copy of it.
type Table struct{ root string }

// New returns the table at root, usually /proc.
func New(root string) Table { return Table{root: root} }

func (t Table) path(pid int, name string) string {
	return filepath.Join(t.root, strconv.Itoa(pid), name)
}

func (t Table) read(pid int, name string) ([]byte, error) {
	file, err := os.Open(t.path(pid, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFileBytes))
}

// Start returns when a process started, in clock ticks since boot: with its
// number it names a process for as long as the machine is up.
func (t Table) Start(pid int) (uint64, error) {
	s, err := t.stat(pid)
	return s.start, err
}

// Running says whether the process that started then still runs. One that has
// ended and waits for its parent does not; one whose first thread alone has ended
// does, and has its files and locks.
func (t Table) Running(pid int, start uint64) bool {
	s, err := t.stat(pid)
	return err == nil && s.start == start && (s.threads > 1 || s.state != 'Z' && s.state != 'X')
}

// Dying says whether the process that started then is being ended by the kernel, or
// has ended: each of its threads is on its way out or has a SIGKILL before it. For an
// instant in between, when a thread has taken the SIGKILL and does not exit yet, the
// kernel tells of neither: who wants to be sure that one lives looks twice.
func (t Table) Dying(pid int, start uint64) bool {
	if !t.Running(pid, start) {
		_, err := t.stat(pid)
		return err == nil || errors.Is(err, ErrGone)
	}
	threads, err := os.ReadDir(t.path(pid, "task"))
	if err != nil {
		return !t.Running(pid, start)
	}
	for _, thread := range threads {
		if !t.leaving(pid, thread.Name()) {
			return !t.Running(pid, start) // its threads may be gone since
		}
	}
	return true
}

// leaving says whether one thread is on its way out.
func (t Table) leaving(pid int, thread string) bool {
	raw, err := t.read(pid, "task/"+thread+"/stat")
	if err != nil {
		return errors.Is(err, ErrGone)
	}
	fields, err := statFields(raw)
	if err != nil {
		return false
	}
	if flags, err := strconv.ParseUint(fields[flagsField], 10, 64); err == nil && flags&exitingFlag != 0 {
		return true
	}
	raw, err = t.read(pid, "task/"+thread+"/status")
	if err != nil {
		return errors.Is(err, ErrGone)
	}
	for line := range strings.Lines(string(raw)) {
		if set, ok := strings.CutPrefix(line, "SigPnd:"); ok {
			pending, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			return err == nil && pending&killSignalBit != 0
		}
	}
	return false
}

// What proc_pid_stat(5) and proc_pid_status(5) say of one that is being ended: the
// kernel's PF_EXITING, and SIGKILL in the set of pending signals.
const (
	exitingFlag   = 4
	killSignalBit = 1 << (9 - 1)
)

// Stopped says whether a process is stopped now, as by SIGSTOP.
func (t Table) Stopped(pid int) bool {
	s, err := t.stat(pid)
	return err == nil && s.state == 'T'
}

// ChildrenEnded says whether a process has children all of which have ended, and has
// not taken notice of that.
func (t Table) ChildrenEnded(pid int) bool {
	threads, err := os.ReadDir(t.path(pid, "task"))
	if err != nil {
		return false
	}
	ended := false
	for _, thread := range threads {
		raw, err := t.read(pid, "task/"+thread.Name()+"/children")
		if err != nil {
			return false // this kernel does not tell
		}
		for _, number := range strings.Fields(string(raw)) {
			child, err := strconv.Atoi(number)
			if err != nil {
				return false
			}
			if s, err := t.stat(child); err == nil && s.state != 'Z' && s.state != 'X' || err != nil && !errors.Is(err, ErrGone) {
				return false
			}
			ended = true
		}
	}
	return ended
}

// CPU returns the processor time that a process and its threads have used, which
// the kernel counts in hundredths of a second.
func (t Table) CPU(pid int) (time.Duration, error) {
	raw, err := t.read(pid, "stat")
	if err != nil {
		return 0, err
	}
	fields, err := statFields(raw)
	if err != nil {
		return 0, fmt.Errorf("process %d: processor time: %w", pid, err)
	}
	var sum time.Duration
	for _, field := range fields[utimeField : stimeField+1] {
		ticks, err := strconv.ParseUint(field, 10, 40)
		if err != nil {
			return 0, fmt.Errorf("process %d: processor time: %w", pid, err)
		}
		sum += time.Duration(ticks) * (time.Second / 100)
	}
	return sum, nil
}

// Resident returns how much memory of a process is in the machine, in bytes.
func (t Table) Resident(pid int) (uint64, error) {
	raw, err := t.read(pid, "statm")
	if err != nil {
		return 0, err
	}
	var all, resident uint64 // in pages
	if _, err := fmt.Sscan(string(raw), &all, &resident); err != nil {
		return 0, fmt.Errorf("process %d: unexpected /proc/%d/statm: %w", pid, pid, err)
	}
	return resident * uint64(os.Getpagesize()), nil
}

// status is what a stat file says of a process.
type status struct {
	state   byte // of its first thread
	threads uint64
	start   uint64
}

func (t Table) stat(pid int) (status, error) {
	raw, err := t.read(pid, "stat")
	var s status
	if err == nil {
		s, err = parseStat(raw)
	}
	if err != nil {
		return status{}, fmt.Errorf("start of process %d: %w", pid, err)
	}
	return s, nil
}

func parseStat(stat []byte) (status, error) {
	fields, err := statFields(stat)
	if err != nil {
		return status{}, err
	}
	threads, err := strconv.ParseUint(fields[threadsField], 10, 32)
	if err != nil {
		return status{}, err
	}
	start, err := strconv.ParseUint(fields[startField], 10, 64)
	return status{state: fields[0][0], threads: threads, start: start}, err
}

// Fields of /proc/PID/stat (proc_pid_stat(5)), counted from the third.
const (
	parentField  = 4 - 3
	flagsField   = 9 - 3
	utimeField   = 14 - 3
	stimeField   = 15 - 3
	threadsField = 20 - 3
	startField   = 22 - 3
)

// statFields are the fields of a stat file from the third on, to the start at least.
func statFields(stat []byte) ([]string, error) {
	// The name in the second field may hold anything, also brackets.
	_, rest, found := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(") "))
	fields := strings.Fields(string(rest))
	if !found || len(fields) <= startField {
		return nil, errors.New("stat not understood")
	}
	return fields, nil
}

// Command returns the command line of a process in one printable line, its
// name where that is empty, and "" when it is gone.
func (t Table) Command(pid int) string {
	raw, err := t.read(pid, "cmdline")
	if err != nil {
		return ""
	}
	line := bytes.TrimRight(raw, "\x00")
	if len(line) == 0 {
		return t.Name(pid)
	}
	return printable(line)
}

// Name returns what the kernel calls a process: its program's name or what it calls
// itself, at most 15 bytes, no argument; "" when it is gone.
func (t Table) Name(pid int) string {
	name, _ := t.read(pid, "comm")
	return printable(bytes.TrimSpace(name))
}

// printable is one line of at most maxCommandBytes.
func printable(line []byte) string {
	cut := len(line) > maxCommandBytes
	line = slices.Clone(line[:min(len(line), maxCommandBytes)])
	for i, c := range line {
		switch {
		case c == 0:
			line[i] = ' '
		case c < 0x20 || c > 0x7e:
			line[i] = '?'
		}
	}
	if cut {
		return string(line) + "..."
	}
	return string(line)
}

// Group is the control group of a process, by its path; empty where it cannot be read.
func (t Table) Group(pid int) string {
	raw, err := t.read(pid, "cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && (parts[0] == "0" || parts[1] == "memory" || parts[1] == "pids") {
			return printable([]byte(parts[2]))
		}
	}
	return ""
}

// Namespace names the pid namespace of a process.
func (t Table) Namespace(pid int) (string, error) {
	name, err := os.Readlink(t.path(pid, "ns/pid"))
	if err != nil {
		return "", fmt.Errorf("pid namespace of process %d: %w", pid, err)
	}
	return name, nil
}

// maxNested is how deep the kernel lets user namespaces be in each other.
const maxNested = 32

// UserNamespace is the number of the user namespace of a process, or of the outermost of
// several, and who made it; false: it lives in ours, or the kernel does not tell.
func (t Table) UserNamespace(pid int) (number uint64, owner int, ok bool) {
	ours, err := os.Stat(t.path(os.Getpid(), "ns/user"))
	if err != nil {
		return 0, 0, false
	}
	file, err := os.Open(t.path(pid, "ns/user"))
	for range maxNested + 1 {
		if err != nil {
			return 0, 0, false
		}
		defer file.Close()
		s, err2 := file.Stat()
		if err2 != nil || os.SameFile(ours, s) {
			return number, owner, err2 == nil && ok
		}
		uid, err2 := unix.IoctlGetUint32(int(file.Fd()), unix.NS_GET_OWNER_UID)
		if err2 != nil {
			return 0, 0, false
		}
		number, owner, ok = s.Sys().(*syscall.Stat_t).Ino, int(uid), true
		parent, err2 := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_PARENT)
		file, err = os.NewFile(uintptr(parent), "user namespace"), err2
	}
	return 0, 0, false
}

// Inside returns the number of a process in its own pid namespace.
func (t Table) Inside(pid int) (int, error) {
	raw, err := t.read(pid, "status")
	if err != nil {
		return 0, fmt.Errorf("number of process %d inside: %w", pid, err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(rest)
			if len(fields) == 0 {
				break
			}
			return strconv.Atoi(fields[len(fields)-1])
		}
	}
	return 0, fmt.Errorf("number of process %d inside: its status has none", pid)
}

// Mapping lists the processes that map the file with this inode and name; those
// that we may not look into are left out.
func (t Table) Mapping(inode uint64, name string) ([]int, error) {
	entries, err := os.ReadDir(t.root)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		file, err := os.Open(t.path(pid, "maps"))
		if err != nil {
			continue
		}
		if maps(io.LimitReader(file, maxMapsBytes), inode, name) {
			found = append(found, pid)
		}
		_ = file.Close()
	}
	slices.Sort(found)
	return found, nil
}

// maps reads lines of "range mode offset device inode path".
func maps(r io.Reader, inode uint64, name string) bool {
	wanted := strconv.FormatUint(inode, 10)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(name)) {
			continue
		}
		if fields := strings.Fields(lines.Text()); len(fields) >= 6 && fields[4] == wanted {
			return true
		}
	}
	return false
}
