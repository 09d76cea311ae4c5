// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func reopen(t *testing.T, path string) (*Journal, []string, int64) {
	t.Helper()
	j, records, lost, err := Open(path)
	must(t, err)
	t.Cleanup(func() { _ = j.Close() })
	var texts []string
	for _, r := range records {
		texts = append(texts, string(r))
	}
	return j, texts, lost
}

func TestAppendAndReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, records, _ := reopen(t, path)
	if len(records) != 0 {
		t.Fatalf("a new journal holds %q", records)
	}
	must(t, j.Append([]byte("one"), []byte("two")))
	must(t, j.Append([]byte("three")))
	must(t, j.Sync())
	if _, records, lost := reopen(t, path); fmt.Sprint(records) != "[one two three]" || lost != 0 {
		t.Errorf("holds %q, %d lost", records, lost)
	}
	must(t, j.Replace([][]byte{[]byte("four")}))
	must(t, j.Append([]byte("five")))
	if _, records, _ := reopen(t, path); fmt.Sprint(records) != "[four five]" {
		t.Errorf("holds %q after it was replaced", records)
	}
	for _, record := range [][]byte{nil, make([]byte, MaxRecordBytes+1)} {
		if err := j.Append(record); !errors.Is(err, ErrRecord) {
			t.Errorf("a record of %d bytes: %v", len(record), err)
		}
	}
}

// Whatever byte a writer dies at, the records before it are there, and the
// journal goes on.
func TestCrashAtAnyByte(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "journal")
	j, _, _ := reopen(t, path)
	want := []string{"a", "bb", "a longer record, of which a part may be missing", "c"}
	var ends []int64
	for _, text := range want {
		must(t, j.Append([]byte(text)))
		ends = append(ends, j.Size())
	}
	whole, err := os.ReadFile(path)
	must(t, err)
	for cut := range len(whole) {
		for _, tail := range [][]byte{nil, {0}, bytes.Repeat([]byte{0}, 64), bytes.Repeat([]byte{0xff}, 64)} {
			torn := filepath.Join(folder, "torn")
			must(t, os.WriteFile(torn, append(append([]byte{}, whole[:cut]...), tail...), 0o600))
			j, _, _, err := Open(torn)
			must(t, err)
			must(t, j.Append([]byte("after")))
			must(t, j.Close())
			n := 0
			for n < len(ends) && ends[n] <= int64(cut) {
				n++
			}
			_, records, lost := reopen(t, torn)
			if wanted := append(append([]string{}, want[:n]...), "after"); fmt.Sprint(records) != fmt.Sprint(wanted) || lost != 0 {
				t.Fatalf("cut at %d and %d bytes of rubbish: %q, want %q", cut, len(tail), records, wanted)
			}
		}
	}
}

// One flipped bit, wherever it is, costs the record that it is in and no other; the file is
// kept as it was.
func TestOneBit(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "journal")
	j, _, _ := reopen(t, path)
	must(t, j.Append([]byte("first"), []byte("second"), []byte("third")))
	whole, err := os.ReadFile(path)
	must(t, err)
	for bit := range 8 * (len(magic) + headerBytes + len("first")) {
		damaged := bytes.Clone(whole)
		damaged[bit/8] ^= 1 << (bit % 8)
		path := filepath.Join(folder, fmt.Sprint("journal", bit))
		must(t, os.WriteFile(path, damaged, 0o600))
		j, records, lost := reopen(t, path)
		want, left := "[second third]", int64(headerBytes+len("first"))
		if bit < 8*len(magic) {
			want, left = "[first second third]", 0
		}
		if fmt.Sprint(records) != want || lost != left {
			t.Fatalf("bit %d: %q, %d bytes lost", bit, records, lost)
		}
		if kept, err := os.ReadFile(j.Kept()); err != nil || !bytes.Equal(kept, damaged) {
			t.Fatalf("bit %d: the file is not kept: %v", bit, err)
		}
		must(t, j.Append([]byte("after")))
		if _, records, lost := reopen(t, path); fmt.Sprint(records) != want[:len(want)-1]+" after]" || lost != 0 {
			t.Fatalf("bit %d: then %q, %d bytes lost", bit, records, lost)
		}
	}
}

// A head of zeros, as a disk may leave it, costs what is in it and nothing after it; the file is
// kept as it was.
func TestZerosAtTheHead(t *testing.T) {
	const zeros, long = 600, 400
	path := filepath.Join(t.TempDir(), "journal")
	j, _, _ := reopen(t, path)
	must(t, j.Append(bytes.Repeat([]byte("a"), long), bytes.Repeat([]byte("b"), long), []byte("third"), []byte("fourth")))
	damaged, err := os.ReadFile(path)
	must(t, err)
	clear(damaged[:zeros])
	must(t, os.WriteFile(path, damaged, 0o600))
	j, records, lost := reopen(t, path)
	if fmt.Sprint(records) != "[third fourth]" || lost != 2*(headerBytes+long) {
		t.Errorf("%q, %d bytes lost", records, lost)
	}
	if kept, err := os.ReadFile(j.Kept()); err != nil || !bytes.Equal(kept, damaged) {
		t.Errorf("the file is not kept: %v", err)
	}
}

func TestDoesNotFollowLinks(t *testing.T) {
	folder := t.TempDir()
	target := filepath.Join(folder, "target")
	must(t, os.WriteFile(target, []byte("precious"), 0o600))
	must(t, os.Symlink(target, filepath.Join(folder, "journal")))
	if _, _, _, err := Open(filepath.Join(folder, "journal")); err == nil {
		t.Error("opened a link")
	}
}

// A pipe or a folder in the journal's place is refused, and not waited for.
func TestOpensFilesOnly(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	if _, _, _, err := Open(pipe); !errors.Is(err, ErrForeign) {
		t.Errorf("a pipe: %v", err)
	}
	if _, _, _, err := Open(folder); err == nil {
		t.Error("opened a folder")
	}
	reopen(t, filepath.Join(folder, "file")) // fails where it cannot
}

// A file that is not a journal is not made one.
func TestLeavesOtherFilesAlone(t *testing.T) {
	for _, precious := range []string{"x", "precious", "divvy is a verb", "schema: divvy.partition/v1\n", "\x7fELF\x02\x01\x01\x00", "\x89PNG\r\n"} {
		path := filepath.Join(t.TempDir(), "file")
		must(t, os.WriteFile(path, []byte(precious), 0o600))
		if _, _, _, err := Open(path); !errors.Is(err, ErrForeign) {
			t.Errorf("%q: %v", precious, err)
		}
		left, err := os.ReadFile(path)
		must(t, err)
		if string(left) != precious {
			t.Errorf("%q became %q", precious, left)
		}
	}
}

// Parse returns records that encode to exactly the bytes it calls good, and
// never reads past what is there.
func FuzzParse(f *testing.F) {
	body, err := encode([][]byte{[]byte("one"), []byte("two")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte(magic), body...))
	f.Add([]byte(magic))
	f.Add([]byte("divvyj1\n\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		records, good := Parse(raw)
		if good == 0 {
			if records != nil {
				t.Fatal("records without a header")
			}
			return
		}
		again, err := encode(records)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(append([]byte(magic), again...), raw[:good]) {
			t.Fatalf("%d good bytes do not hold the %d records", good, len(records))
		}
		if more, n := Parse(raw[:good]); n != good || len(more) != len(records) {
			t.Fatal("the good part alone reads differently")
		}
	})
}

// A disk that is full must not be kept full.
func TestFailedReplaceLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _, _, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := j.Replace([][]byte{[]byte("x")}); err == nil {
		t.Fatal("a folder was replaced")
	}
	if _, err := os.Lstat(path + ".next"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the new file is still there: %v", err)
	}
}
