// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
)

const (
	filePattern = "audit-????-??*.jsonl" // by month; with a number when the one before is full
	blockBytes  = 256 << 10
	// MostLines bounds what is read at once.
	MostLines = 10_000
)

// files are the names of the chain's files, in order.
func files(dir string) ([]string, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read audit: %w", err)
	}
	var names []string
	for _, f := range all {
		if ok, _ := filepath.Match(filePattern, f.Name()); ok {
			names = append(names, f.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// openFile opens a file of the chain to read it.
func openFile(dir, name string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read audit: %w", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("read audit %s: %w", name, err)
	}
	return file, nil
}

// dropped is the detail of a line that says that a file went.
type dropped struct {
	File     string `json:"file"`
	Sequence uint64 `json:"seq"` // of its last line
	Hash     string `json:"hash"`
}

// verifier reads a chain from its first line on.
type verifier struct {
	report  api.AuditVerified
	want    *Head
	last    Head
	before  Head          // the one before the first line
	dropped map[Head]bool // of files that went, as lines say
	firstIn string        // the file that the first line is in
}

// tries is how often a chain is read anew that a writer changed meanwhile.
const tries = 5

// Verify reads a whole chain, and says which line is the first that is not right. With a head
// from before it says, too, whether the chain still has it: whether its end was cut, or all of it
// written anew. It may be read while it is written.
func Verify(dir string, want *Head) (api.AuditVerified, error) {
	for try := 1; ; try++ {
		v := &verifier{want: want, dropped: map[Head]bool{}}
		torn, err := v.read(dir)
		if again := torn || errors.Is(err, fs.ErrNotExist) && v.report.Files > 0; again && try < tries {
			continue // perhaps it is just being written, or the oldest file just went
		}
		return v.report, err
	}
}

func (v *verifier) read(dir string) (torn bool, err error) {
	v.report = api.AuditVerified{Schema: api.SchemaAuditVerify, Head: api.AuditHead{Schema: api.SchemaAuditHead, Directory: dir}}
	names, err := files(dir)
	if err != nil {
		return false, err
	}
	if len(names) == 0 {
		return false, fmt.Errorf("no audit is in %s: %w", dir, fs.ErrNotExist)
	}
	v.report.Files = len(names)
	for i, name := range names {
		at, err := v.readFile(dir, name)
		v.report.Head.Sequence, v.report.Head.Hash = v.last.Sequence, v.last.Hash
		if err == nil {
			continue
		}
		bad, is := errors.AsType[badError](err)
		if !is {
			return false, err
		}
		v.report.Bad = &api.AuditBad{File: name, Line: at, Why: bad.Error()}
		return i == len(names)-1 && errors.Is(bad.why, errTorn), nil
	}
	v.report.Bad = v.ends(names)
	v.report.OK = v.report.Bad == nil
	return false, nil
}

// ends says what is not right with a chain whose lines follow each other.
func (v *verifier) ends(names []string) *api.AuditBad {
	switch {
	case v.report.Lines == 0:
		return &api.AuditBad{File: names[0], Why: "there is no line"}
	case v.before.Sequence > 0 && !v.dropped[v.before]:
		return &api.AuditBad{File: v.firstIn, Line: 1, Why: fmt.Sprintf("lines 1 to %d are missing before it, and no line says that they went for want of room", v.before.Sequence)}
	case v.before.Sequence == 0 && v.before.Hash != first:
		return &api.AuditBad{File: v.firstIn, Line: 1, Why: "it is number 1, and follows another line"}
	case v.want == nil:
	case v.want.Sequence > v.last.Sequence:
		return &api.AuditBad{File: names[len(names)-1], Why: fmt.Sprintf("it ends with line %d: the end, up to line %d of the head at least, was cut", v.last.Sequence, v.want.Sequence)}
	case v.want.Sequence == v.before.Sequence && *v.want != v.before:
		return &api.AuditBad{File: v.firstIn, Line: 1, Why: fmt.Sprintf("it does not follow line %d of the head: the chain was written anew", v.want.Sequence)}
	case v.want.Sequence < v.before.Sequence:
		return &api.AuditBad{File: v.firstIn, Line: 1, Why: fmt.Sprintf("line %d of the head went for want of room: a later head is needed", v.want.Sequence)}
	}
	return nil
}

// badError says what is not right with a line.
type badError struct{ why error }

func (e badError) Error() string { return e.why.Error() }

// readFile reads the lines of a file, and says at which one it stopped.
func (v *verifier) readFile(dir, name string) (at uint64, err error) {
	file, err := openFile(dir, name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(file, maxLineBytes)
	for at = 1; ; at++ {
		raw, err := lines.ReadSlice('\n')
		switch {
		case err == io.EOF && len(raw) == 0:
			return at, nil
		case err == bufio.ErrBufferFull:
			return at, badError{fmt.Errorf("it is longer than %d bytes", maxLineBytes)}
		case err != nil && err != io.EOF:
			return at, fmt.Errorf("read audit %s: %w", name, err)
		}
		line, err := decode(raw)
		if err == nil {
			err = v.follows(line)
		}
		if err != nil {
			return at, badError{err}
		}
		if v.report.Lines == 0 {
			v.report.First, v.firstIn = line.Sequence, name
			v.before = Head{line.Sequence - 1, line.Prev}
		}
		v.report.Lines++
		v.last = head(line)
		switch line.Verb {
		case Gap:
			v.report.Gaps++
		case Dropped:
			var d dropped
			if json.Unmarshal(line.Detail, &d) == nil {
				v.dropped[Head{d.Sequence, d.Hash}] = true
			}
		}
	}
}

// follows says whether a line comes after the last one.
func (v *verifier) follows(line api.AuditLine) error {
	next := v.last.Sequence + 1
	switch {
	case v.report.Lines == 0:
	case line.Sequence > next:
		return fmt.Errorf("it is number %d: lines %d to %d are missing before it", line.Sequence, next, line.Sequence-1)
	case line.Sequence < next:
		return fmt.Errorf("it is number %d where %d comes next: it was put there", line.Sequence, next)
	case line.Prev != v.last.Hash:
		return errors.New("it does not follow the line before: that one was changed, with its hash")
	}
	if v.want != nil && v.want.Sequence == line.Sequence && v.want.Hash != line.Hash {
		return errors.New("it is not the line of the head: the chain was written anew")
	}
	return nil
}

// Wanted says which lines are asked for.
type Wanted struct {
	Since uint64 // with a higher number
	Last  int    // so many, the latest
	Verb  string // empty: all; ending with a dot: all that begin so
}

func (w Wanted) takes(line api.AuditLine) bool {
	return w.Verb == "" || line.Verb == w.Verb || strings.HasSuffix(w.Verb, ".") && strings.HasPrefix(line.Verb, w.Verb)
}

// Read returns lines as they are, in order, without looking at hashes, and how many could not be read.
func Read(dir string, w Wanted) (lines []api.AuditLine, unread int, err error) {
	names, err := files(dir)
	if err != nil {
		return nil, 0, err
	}
	if len(names) == 0 {
		return nil, 0, fmt.Errorf("no audit is in %s: %w", dir, fs.ErrNotExist)
	}
	most := min(w.Last, MostLines)
	ended := false
	for _, name := range slices.Backward(names) {
		err := walkBack(dir, name, func(raw []byte, _ int64) bool {
			var line api.AuditLine
			switch {
			case json.Unmarshal(raw, &line) != nil:
				unread++
			case line.Sequence <= w.Since:
				ended = true
			case w.takes(line):
				lines = append(lines, line)
				ended = len(lines) >= most
			}
			return !ended
		})
		if err != nil && !(errors.Is(err, fs.ErrNotExist) && name == names[0]) { // which may just have gone
			return nil, 0, err
		}
		if ended {
			break
		}
	}
	slices.Reverse(lines)
	return lines, unread, nil
}

// walkBack visits the lines of a file from the last one on, each with its line feed, if it has one, and
// where it begins, until visit returns false. One that is too long for a line is visited in parts.
func walkBack(dir, name string, visit func(raw []byte, at int64) bool) error {
	file, err := openFile(dir, name)
	if err != nil {
		return err
	}
	defer file.Close()
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("read audit %s: %w", name, err)
	}
	var kept []byte // begins at end, and its first line may begin before
	for end > 0 {
		begin := max(end-blockBytes, 0)
		block := make([]byte, end-begin, end-begin+int64(len(kept)))
		if _, err := file.ReadAt(block, begin); err != nil {
			return fmt.Errorf("read audit %s: %w", name, err)
		}
		kept, end = append(block, kept...), begin
		for len(kept) > 0 {
			cut := bytes.LastIndexByte(kept[:len(kept)-1], '\n') + 1
			if cut == 0 && begin > 0 && len(kept) <= maxLineBytes {
				break // it begins in the block before
			}
			if !visit(kept[cut:], begin+int64(cut)) {
				return nil
			}
			kept = kept[:cut]
		}
	}
	return nil
}
