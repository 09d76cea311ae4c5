// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
)

// Bounds of a chain.
type Bounds struct {
	Bytes int64 // of all files; the oldest go
}

// LeastBytes is the least that a chain may be bounded to.
const LeastBytes = 1 << 20

const (
	maxFileBytes = 64 << 20
	filesAtLeast = 8 // so that the oldest is no large part
	maxFiles     = 9999
)

// DefaultBounds are of a machine's agent, PrivateBounds of a private one.
func DefaultBounds() Bounds { return Bounds{Bytes: 1 << 30} }

// PrivateBounds are of a private agent.
func PrivateBounds() Bounds { return Bounds{Bytes: 16 << 20} }

// Validate says what is wrong with them.
func (b Bounds) Validate() error {
	if b.Bytes < LeastBytes {
		return fmt.Errorf("audit of %d bytes at most: less than %d", b.Bytes, LeastBytes)
	}
	return nil
}

func (b Bounds) file() int64 { return min(maxFileBytes, b.Bytes/filesAtLeast) }

// file is what a chain is written to.
type file interface {
	Write(raw []byte) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Log is a chain to which lines are appended. It belongs to one goroutine; what Syncer returns may be
// called beside it.
type Log struct {
	dir    string
	bounds Bounds
	file   file
	name   string
	size   int64 // of the file; what is behind it is the rest of a line that could not be written
	torn   bool  // there is such a rest
	all    int64 // of all files
	head   Head
	found  []api.AuditLine // what is to be said of how the chain was found
}

// Open opens the chain in a folder, or begins one. A last line that was not written to its end is kept
// aside, and the next line says so; other damage is left as it is.
func Open(dir string, bounds Bounds) (*Log, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("open audit: %w", err)
	}
	l := &Log{dir: dir, bounds: bounds, head: Head{0, first}}
	names, err := files(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("open audit: %w", err)
		}
		l.all += info.Size()
	}
	if err := l.findHead(names); err != nil {
		return nil, err
	}
	if len(names) > 0 {
		if err := l.openFile(names[len(names)-1]); err != nil {
			return nil, err
		}
	}
	if err := l.keepTorn(); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// findHead looks for the last line that is right, and notes what comes after it.
func (l *Log) findHead(names []string) error {
	damaged := 0
	for i := len(names) - 1; i >= 0; i-- {
		found := false
		err := walkBack(l.dir, names[i], func(raw []byte, at int64) bool {
			line, err := decode(raw)
			if err == nil {
				l.head, found = head(line), true
				return false
			}
			if i < len(names)-1 || !errors.Is(err, errTorn) {
				damaged++
			}
			return true
		})
		if err != nil {
			return err
		}
		if found {
			break
		}
	}
	if damaged > 0 {
		l.say(Failed, fmt.Sprintf("%d lines at the end are damaged: divvy audit verify says where", damaged), nil)
	}
	return nil
}

// say notes what the next lines are to say.
func (l *Log) say(outcome, reason string, detail any) {
	line := api.AuditLine{Actor: api.AuditActor{UID: os.Geteuid(), PID: os.Getpid(), Via: "agent"}, Verb: Gap, Outcome: outcome, Reason: reason}
	if detail != nil {
		line.Detail, _ = json.Marshal(detail) // of strings and numbers
	}
	l.found = append(l.found, line)
}

func (l *Log) path(name string) string { return filepath.Join(l.dir, name) }

func (l *Log) openFile(name string) error {
	file, err := os.OpenFile(l.path(name), os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("open audit: %w", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("open audit %s: %w", name, err)
	}
	if l.file != nil {
		_ = l.file.Sync() // what follows in the next file is worth nothing without it
		_ = l.file.Close()
	}
	l.file, l.name, l.size, l.torn = file, name, info.Size(), false
	return nil
}

// tornName is where the rest of a line is kept that was not written to its end, until a line says so.
const tornName = "torn"

// keepTorn takes the rest of a line off the end of the last file. Whenever it is killed, the chain is
// right, and the rest is there and told at the next start.
func (l *Log) keepTorn() error {
	if l.file != nil {
		var rest []byte
		at := l.size
		if err := walkBack(l.dir, l.name, func(raw []byte, begin int64) bool {
			if raw[len(raw)-1] != '\n' {
				rest, at = append([]byte(nil), raw...), begin
			}
			return false
		}); err != nil {
			return err
		}
		if len(rest) > 0 {
			if err := writeWhole(l.path(tornName), rest); err != nil {
				return fmt.Errorf("keep the rest of a line: %w", err)
			}
			if err := l.file.Truncate(at); err != nil {
				return fmt.Errorf("cut the rest of a line off: %w", err)
			}
			l.all -= l.size - at
			l.size = at
		}
	}
	info, err := os.Lstat(l.path(tornName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open audit: %w", err)
	}
	l.say(Failed, "the last line was not written to its end: it is kept in "+tornName+keptSuffix, map[string]any{"bytes": info.Size()})
	return nil
}

const keptSuffix = ".kept"

// writeWhole makes a file that is there as a whole, or not at all.
func writeWhole(path string, raw []byte) error {
	next := path + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(raw)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// Head is the last line that was written.
func (l *Log) Head() Head { return l.head }

// Append writes lines, and says how many: all, unless it fails. Who gives the others again loses none.
func (l *Log) Append(now time.Time, lines []api.AuditLine) (written int, err error) {
	if len(l.found) > 0 {
		found := l.found
		for i := range found {
			found[i].Time = now
		}
		if _, err := l.append(now, found); err != nil {
			return 0, err
		}
		l.found = nil
		if err := os.Rename(l.path(tornName), l.path(tornName+keptSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("write audit: %w", err)
		}
	}
	return l.append(now, lines)
}

func (l *Log) append(now time.Time, lines []api.AuditLine) (written int, err error) {
	for written < len(lines) {
		if err := l.ready(now); err != nil {
			return written, err
		}
		var raw []byte
		at, n := l.head, 0
		for _, line := range lines[written:] {
			if n > 0 && l.size+int64(len(raw)) >= l.bounds.file() {
				break
			}
			one, next, err := encode(line, at)
			if err != nil {
				return written, err
			}
			raw, at = append(raw, one...), next
			n++
		}
		if err := l.write(raw, at); err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// write appends bytes to the file, all or none: what was written of them when it failed is cut off, at once or
// before the next.
func (l *Log) write(raw []byte, next Head) error {
	if l.torn {
		if err := l.file.Truncate(l.size); err != nil {
			return fmt.Errorf("write audit: %w", err)
		}
		l.torn = false
	}
	if n, err := l.file.Write(raw); err != nil || n < len(raw) {
		if l.torn = n > 0; l.torn && l.file.Truncate(l.size) == nil {
			l.torn = false
		}
		return fmt.Errorf("write audit: %w", cmp.Or(err, io.ErrShortWrite))
	}
	l.size += int64(len(raw))
	l.all += int64(len(raw))
	l.head = next
	return nil
}

// ready has a file that takes lines, and room for them.
func (l *Log) ready(now time.Time) error {
	name := l.next(now)
	if name != l.name {
		if err := l.openFile(name); err != nil {
			return err
		}
	}
	for l.all+l.bounds.file() > l.bounds.Bytes {
		names, err := files(l.dir)
		if err != nil {
			return err
		}
		if len(names) < 2 || names[0] == l.name {
			return nil
		}
		if err := l.drop(now, names[0]); err != nil {
			return err
		}
	}
	return nil
}

// next is the file that the next line goes to: of the month, but none before the last one whatever the clock
// says, or the next number when it is full.
func (l *Log) next(now time.Time) string {
	month := "audit-" + now.UTC().Format("2006-01")
	if l.name == "" {
		return month + ".jsonl"
	}
	have, _ := strings.CutSuffix(l.name, ".jsonl")
	if month > have[:min(len(month), len(have))] {
		return month + ".jsonl"
	}
	if l.size < l.bounds.file() {
		return l.name
	}
	number := 1
	if base, text, is := strings.Cut(have, "_"); is {
		have = base
		_, _ = fmt.Sscanf(text, "%d", &number) // of another form: it begins anew
	}
	if number >= maxFiles {
		return l.name
	}
	return fmt.Sprintf("%s_%04d.jsonl", have, number+1) // which sorts after the month alone
}

// drop says that the oldest file goes, and lets it go.
func (l *Log) drop(now time.Time, name string) error {
	info, err := os.Lstat(l.path(name))
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	d := dropped{File: name}
	if err := walkBack(l.dir, name, func(raw []byte, _ int64) bool {
		line, err := decode(raw)
		if err != nil {
			return true
		}
		d.Sequence, d.Hash = line.Sequence, line.Hash
		return false
	}); err != nil {
		return err
	}
	detail, _ := json.Marshal(d) // of strings and a number
	raw, next, err := encode(api.AuditLine{
		Time: now, Actor: api.AuditActor{UID: os.Geteuid(), PID: os.Getpid(), Via: "agent"}, Verb: Dropped, Object: name, Outcome: Done, Reason: "there is no room for older lines", Detail: detail,
	}, l.head)
	if err != nil {
		return err
	}
	if err := l.write(raw, next); err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil { // before what it tells of is gone
		return fmt.Errorf("audit: %w", err)
	}
	if err := os.Remove(l.path(name)); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	l.all -= info.Size()
	return nil
}

// Syncer returns what waits until all that is written is on disk.
func (l *Log) Syncer() func() error {
	file := l.file
	return func() error {
		if file == nil {
			return nil
		}
		if err := file.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // closed: another one has followed, after a sync
			return fmt.Errorf("sync audit: %w", err)
		}
		return nil
	}
}

// Close ends it.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	return errors.Join(l.file.Sync(), l.file.Close())
}
