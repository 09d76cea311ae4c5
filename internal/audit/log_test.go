// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

var november = time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func line(n int) api.AuditLine {
	return api.AuditLine{Time: november, Actor: api.AuditActor{UID: 1000, PID: 4000 + n, Name: "python", Via: "api"}, Verb: "share.create",
		Object: fmt.Sprintf("s%d", n), Outcome: Done, Detail: []byte(`{"labels":{"a,\"hash\":\"":"b","hash":"c"}}`)}
}

// folder is one in memory, where there is that: much is synced.
func folder(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "divvy-audit")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// chain is what the tests write.
type chain struct {
	testing.TB
	dir string
	*Log
}

func open(t testing.TB, dir string, bounds Bounds) *chain {
	t.Helper()
	l, err := Open(dir, bounds)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return &chain{t, dir, l}
}

func (c *chain) add(now time.Time, lines ...api.AuditLine) {
	c.Helper()
	n, err := c.Append(now, lines)
	if err != nil || n != len(lines) {
		c.Fatalf("%d of %d lines: %v", n, len(lines), err)
	}
}

// written makes a chain of two files, of four lines and of three.
func written(t testing.TB) (dir string, head Head) {
	dir = filepath.Join(folder(t), "audit")
	c := open(t, dir, DefaultBounds())
	for n := range 7 {
		c.add(november.Add(time.Duration(n)*15*time.Second), line(n))
	}
	must(t, c.Close())
	return dir, c.Head()
}

func verified(t testing.TB, dir string, want *Head) api.AuditVerified {
	t.Helper()
	report, err := Verify(dir, want)
	must(t, err)
	if report.OK != (report.Bad == nil) {
		t.Fatalf("%+v", report)
	}
	return report
}

func wantOK(t testing.TB, dir string, lines uint64) {
	t.Helper()
	if r := verified(t, dir, nil); !r.OK || r.Lines != lines {
		t.Fatalf("%+v, bad %+v", r, r.Bad)
	}
}

const firstFile, secondFile = "audit-2026-11.jsonl", "audit-2026-12.jsonl"

func TestChain(t *testing.T) {
	dir, head := written(t)
	r := verified(t, dir, &head)
	if !r.OK || r.Files != 2 || r.Lines != 7 || r.First != 1 || r.Head.Sequence != 7 || r.Head.Hash != head.Hash || r.Gaps != 0 {
		t.Errorf("%+v, bad %+v", r, r.Bad)
	}
	again := open(t, dir, DefaultBounds())
	if again.Head() != head {
		t.Errorf("opened again it is at %v, not %v", again.Head(), head)
	}
	again.add(november.AddDate(0, 0, -40), line(7)) // a clock that is set back
	lines, unread, err := Read(dir, Wanted{Last: 3})
	must(t, err)
	if len(lines) != 3 || unread != 0 || lines[2].Sequence != 8 || lines[2].Object != "s7" || !bytes.Equal(lines[2].Detail, line(7).Detail) {
		t.Errorf("read %+v", lines)
	}
	for name, mode := range map[string]fs.FileMode{".": 0o700, firstFile: 0o600, secondFile: 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if info.Mode().Perm() != mode {
			t.Errorf("%s is %v", name, info.Mode())
		}
	}
	old := Head{2, lines[0].Hash}
	if r := verified(t, dir, &old); r.OK || !strings.Contains(r.Bad.Why, "written anew") || r.Bad.Line != 2 {
		t.Errorf("%+v", r.Bad)
	}
}

// readLines are the lines of a file, with their line feeds.
func readLines(t testing.TB, dir, name string) [][]byte {
	raw, err := os.ReadFile(filepath.Join(dir, name))
	must(t, err)
	return bytes.SplitAfter(raw, []byte("\n"))[:bytes.Count(raw, []byte("\n"))]
}

// Every change of what was written is found, at the first line that it concerns.
func TestTampering(t *testing.T) {
	dir, head := written(t)
	was := map[string][][]byte{firstFile: readLines(t, dir, firstFile), secondFile: readLines(t, dir, secondFile)}
	if len(was[firstFile]) != 4 || len(was[secondFile]) != 3 {
		t.Fatalf("%d and %d lines", len(was[firstFile]), len(was[secondFile]))
	}
	check := func(what, name string, lines [][]byte, file string, line int, want *Head) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), bytes.Join(lines, nil), 0o600))
		r := verified(t, dir, want)
		if r.OK || r.Bad.File != file || r.Bad.Line != uint64(line) {
			t.Errorf("%s: %+v", what, r.Bad)
		}
		must(t, os.WriteFile(filepath.Join(dir, name), bytes.Join(was[name], nil), 0o600))
	}
	for _, name := range []string{firstFile, secondFile} {
		lines := was[name]
		for i := range lines {
			for at := range lines[i] {
				changed := slices.Clone(lines)
				changed[i] = slices.Clone(lines[i])
				changed[i][at] ^= 1
				if _, err := decode(changed[i]); err == nil {
					t.Errorf("byte %d of line %d of %s: not found", at, i+1, name)
				}
				if at%50 > 0 && at < len(lines[i])-1 {
					continue // as a file not all of them: that takes a while
				}
				check(fmt.Sprintf("byte %d of line %d of %s", at, i+1, name), name, changed, name, i+1, nil)
			}
			doubled := slices.Insert(slices.Clone(lines), i+1, lines[i])
			check("a line put in", name, doubled, name, i+2, nil)
			if i+1 < len(lines) {
				swapped := slices.Clone(lines)
				swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
				at := i + 1
				if name == firstFile && i == 0 {
					at = 2 // a chain may begin with any line
				}
				check("two lines swapped", name, swapped, name, at, nil)
			}
			removed := slices.Delete(slices.Clone(lines), i, i+1)
			switch {
			case name == firstFile && i == 3:
				check("the last line of the first file removed", name, removed, secondFile, 1, nil)
			case name == secondFile && i == 2:
				check("the last line removed", name, removed, secondFile, 0, &head)
			default:
				check("a line removed", name, removed, name, i+1, nil)
			}
		}
	}
	for name, wants := range map[string]string{firstFile: secondFile + ":1", secondFile: firstFile + ":0"} {
		must(t, os.Rename(filepath.Join(dir, name), filepath.Join(dir, "away")))
		r := verified(t, dir, &head)
		if r.OK || fmt.Sprintf("%s:%d", r.Bad.File, r.Bad.Line) != wants {
			t.Errorf("without %s: %+v", name, r.Bad)
		}
		must(t, os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, name)))
	}
	wantOK(t, dir, 7)

	// Who knows how to hash writes it anew: only the head shows that.
	must(t, os.RemoveAll(dir))
	anew := open(t, dir, DefaultBounds())
	for n := range 9 {
		anew.add(november, line(n+1))
	}
	wantOK(t, dir, 9)
	if r := verified(t, dir, &head); r.OK || r.Bad.Line != 7 || !strings.Contains(r.Bad.Why, "anew") {
		t.Errorf("%+v", r.Bad)
	}
}

// A line that follows another one's place but not its hash is found, too.
func TestHashedAnew(t *testing.T) {
	dir, _ := written(t)
	lines := readLines(t, dir, firstFile)
	one, err := decode(lines[1])
	must(t, err)
	one.Object = "other"
	raw, _, err := encode(one, Head{1, one.Prev})
	must(t, err)
	lines[1] = raw
	must(t, os.WriteFile(filepath.Join(dir, firstFile), bytes.Join(lines, nil), 0o600))
	if r := verified(t, dir, nil); r.OK || r.Bad.Line != 3 || !strings.Contains(r.Bad.Why, "line before") {
		t.Errorf("%+v", r.Bad)
	}
}

// Whatever a crash leaves of what was written, the chain goes on and verifies, and says that something was
// cut off, if something was.
func TestKilledAtAnyByte(t *testing.T) {
	dir, _ := written(t)
	whole, err := os.ReadFile(filepath.Join(dir, secondFile))
	must(t, err)
	for n := range len(whole) + 1 {
		must(t, os.WriteFile(filepath.Join(dir, secondFile), whole[:n], 0o600))
		ends := n == 0 || whole[n-1] == '\n'
		c := open(t, dir, DefaultBounds())
		c.add(november.AddDate(0, 1, 0), line(n))
		must(t, c.Close())
		r := verified(t, dir, nil)
		lines := uint64(4 + bytes.Count(whole[:n], []byte("\n")) + 1)
		gaps := uint64(0)
		if !ends {
			lines, gaps = lines+1, 1
		}
		if !r.OK || r.Lines != lines || r.Gaps != gaps {
			t.Fatalf("after %d bytes: %+v, bad %+v", n, r, r.Bad)
		}
		if kept, err := os.ReadFile(filepath.Join(dir, "torn.kept")); ends != (err != nil) || !ends && !bytes.HasSuffix(whole[:n], kept) {
			t.Fatalf("after %d bytes: kept %.20q, %v", n, kept, err)
		}
		_ = os.Remove(filepath.Join(dir, "torn.kept"))
		_ = os.Remove(filepath.Join(dir, "audit-2027-01.jsonl"))
	}
}

// Killed again while it takes the rest of a line off, it says so at the next start.
func TestKilledWhileRepairing(t *testing.T) {
	dir, _ := written(t)
	must(t, os.WriteFile(filepath.Join(dir, "torn"), []byte(`{"seq":8,`), 0o600)) // and the file is cut already
	c := open(t, dir, DefaultBounds())
	c.add(november, line(8))
	if r := verified(t, dir, nil); !r.OK || r.Gaps != 1 || r.Lines != 9 {
		t.Errorf("%+v", r)
	}
	if _, err := os.Lstat(filepath.Join(dir, "torn")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it would be told again: %v", err)
	}
}

// Damage at the end is left for who verifies, and told.
func TestDamagedEnd(t *testing.T) {
	dir, _ := written(t)
	lines := readLines(t, dir, secondFile)
	lines[1][20] ^= 1
	lines[2][20] ^= 1
	must(t, os.WriteFile(filepath.Join(dir, secondFile), bytes.Join(lines, nil), 0o600))
	c := open(t, dir, DefaultBounds())
	c.add(november.AddDate(0, 0, 1), line(1))
	r := verified(t, dir, nil)
	if r.OK || r.Bad.File != secondFile || r.Bad.Line != 2 {
		t.Errorf("%+v", r.Bad)
	}
	after, unread, err := Read(dir, Wanted{Last: 10, Verb: Gap})
	must(t, err)
	if len(after) != 1 || !strings.Contains(after[0].Reason, "2 lines at the end are damaged") {
		t.Errorf("%+v, %d unread", after, unread)
	}
}

// All files together stay within the bound; what goes is said before, and nothing else may be missing.
func TestBound(t *testing.T) {
	dir := filepath.Join(folder(t), "audit")
	bounds := Bounds{LeastBytes}
	c := open(t, dir, bounds)
	added := uint64(0)
	var early Head
	for round := range 80 {
		lines := make([]api.AuditLine, 100)
		for i := range lines {
			lines[i] = line(round)
		}
		c.add(november, lines...)
		added += 100
		if round == 0 {
			early = c.Head()
		}
		sum := int64(0)
		names, err := files(dir)
		must(t, err)
		for _, name := range names {
			info, err := os.Stat(filepath.Join(dir, name))
			must(t, err)
			sum += info.Size()
		}
		if sum > bounds.Bytes+2*maxDetail || sum != c.all {
			t.Fatalf("%d bytes of %d, counted %d", sum, bounds.Bytes, c.all)
		}
	}
	r := verified(t, dir, nil)
	if !r.OK || r.First < 2 || r.Head.Sequence < added || r.Lines != r.Head.Sequence-r.First+1 {
		t.Fatalf("%+v, bad %+v", r, r.Bad)
	}
	if r := verified(t, dir, &early); r.OK || !strings.Contains(r.Bad.Why, "later head") {
		t.Errorf("%+v", r.Bad)
	}
	names, err := files(dir)
	must(t, err)
	must(t, os.Remove(filepath.Join(dir, names[0])))
	if r := verified(t, dir, nil); r.OK || !strings.Contains(r.Bad.Why, "missing before it") {
		t.Errorf("%+v", r.Bad)
	}
}

// scarce is a disk that takes so many bytes, and then no more; a broken one does not cut either.
type scarce struct {
	*os.File
	room   *int
	broken *bool
}

var errFull = errors.New("no space left")

func (s scarce) Write(raw []byte) (int, error) {
	n := min(len(raw), *s.room)
	*s.room -= n
	if n, err := s.File.Write(raw[:n]); err != nil {
		return n, err
	}
	if n < len(raw) {
		return n, errFull
	}
	return n, nil
}

func (s scarce) Truncate(size int64) error {
	if *s.broken {
		return errFull
	}
	return s.File.Truncate(size)
}

// What a full disk took of a line is cut off, and the line is written when there is room.
func TestFullDisk(t *testing.T) {
	for _, broken := range []bool{false, true} {
		for room := range 600 {
			dir := filepath.Join(folder(t), "audit")
			c := open(t, dir, DefaultBounds())
			c.add(november, line(0))
			was := c.Head()
			left, isBroken := room, broken
			c.Log.file = scarce{c.Log.file.(*os.File), &left, &isBroken}
			n, err := c.Append(november, []api.AuditLine{line(1), line(2)})
			if err == nil {
				if room < 300 {
					t.Fatal("the disk was full, and it did not fail")
				}
				break
			}
			if n != 0 || c.Head() != was || !errors.Is(err, errFull) {
				t.Fatalf("%d lines, head %v, %v", n, c.Head(), err)
			}
			if !broken {
				wantOK(t, dir, 1)
			}
			left, isBroken = 1<<20, false
			c.add(november, line(1), line(2))
			wantOK(t, dir, 3)
			must(t, c.Close())
		}
	}
}

// Somebody else's files are not written to, and are no part of it.
func TestForeign(t *testing.T) {
	dir := filepath.Join(folder(t), "audit")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Symlink("/dev/null", filepath.Join(dir, firstFile)))
	if _, err := Open(dir, DefaultBounds()); err == nil {
		t.Error("a link was followed")
	}
	must(t, os.Remove(filepath.Join(dir, firstFile)))
	must(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o600))
	if _, err := Verify(dir, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no audit: %v", err)
	}
	if _, _, err := Read(dir, Wanted{Last: 1}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no audit: %v", err)
	}
}

func TestParseHead(t *testing.T) {
	h := Head{4711, strings.Repeat("0a", 32)}
	if got, err := ParseHead(h.String()); err != nil || got != h {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "1", ":", "0:" + h.Hash, "-1:" + h.Hash, "1:" + strings.ToUpper(h.Hash), "1:00", "x:" + h.Hash, "9223372036854775808:" + h.Hash} {
		if got, err := ParseHead(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// Long texts are cut, so that every line that is written can be read.
func TestLongLines(t *testing.T) {
	dir := filepath.Join(folder(t), "audit")
	c := open(t, dir, DefaultBounds())
	long := strings.Repeat("\u20ac\x00\xff<", 100_000)
	l := line(1)
	l.Object, l.Reason, l.Actor.Name, l.Detail = long, long, long, fmt.Appendf(nil, "%q", strings.Repeat("x", 1<<20))
	c.add(november, l)
	wantOK(t, dir, 1)
	lines, _, err := Read(dir, Wanted{Last: 1})
	must(t, err)
	if got := lines[0]; !strings.HasSuffix(got.Reason, "...") || string(got.Detail) != `{"leftOutBytes":1048578}` {
		t.Errorf("%+v", got)
	}
}
