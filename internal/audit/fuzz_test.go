// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// plain verifies as somebody would with the documentation in hand.
func plain(raw []byte) bool {
	prev, seq := first, uint64(0)
	for one := range bytes.Lines(raw) {
		at := bytes.LastIndex(one, []byte(`,"hash":"`))
		var l struct {
			Seq  uint64
			Prev string
		}
		if at < 0 || string(one[at:]) != fmt.Sprintf(",\"hash\":\"%x\"}\n", sha256.Sum256(one[:at])) || json.Unmarshal(one, &l) != nil || l.Seq != seq+1 || l.Prev != prev {
			return false
		}
		prev, seq = fmt.Sprintf("%x", sha256.Sum256(one[:at])), l.Seq
	}
	return seq > 0
}

// Whatever a file has: it is right if it is by the documented rule, and only then; and what is appended after
// it neither hides what is wrong nor breaks what is right.
func FuzzVerify(f *testing.F) {
	dir, _ := written(f)
	raw, err := os.ReadFile(filepath.Join(dir, firstFile))
	must(f, err)
	f.Add(raw)
	f.Add(raw[:len(raw)-1])
	f.Add(bytes.Replace(raw, []byte("python"), []byte("Python"), 1))
	f.Add(append(bytes.Clone(raw), '\n'))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte("x"), maxLineBytes+1))
	f.Fuzz(func(t *testing.T, raw []byte) {
		dir := filepath.Join(folder(t), "audit")
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, firstFile), raw, 0o600))
		before, err := Verify(dir, nil)
		must(t, err)
		if before.OK && !plain(raw) || !before.OK && plain(raw) && len(raw) < maxLineBytes {
			t.Fatalf("bad %+v", before.Bad)
		}
		whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
		right := plain(whole) || len(whole) == 0 // and what comes after is the rest of a line
		c := open(t, dir, DefaultBounds())
		c.add(november, line(1))
		after, err := Verify(dir, nil)
		must(t, err)
		if right != after.OK && len(raw) < maxLineBytes {
			t.Fatalf("right before: %v, after: bad %+v", right, after.Bad)
		}
		if !right && before.Bad != nil && *before.Bad != *after.Bad && len(raw) == len(whole) {
			t.Fatalf("before %+v, after %+v", before.Bad, after.Bad)
		}
		_, _, err = Read(dir, Wanted{Last: MostLines})
		must(t, err)
	})
}
