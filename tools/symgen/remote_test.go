// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A row of remote.tsv that does not say all of a call is refused, and so is a symbol
// without one.
func TestCarriagesAreComplete(t *testing.T) {
	symbols := []symbol{{name: "cuOne", library: "cuda", fn: &function{name: "cuOne", result: "CUresult", parameters: []parameter{
		{"CUstream", "stream"}, {"const int *", "list"}, {"unsigned int", "count"}, {"int *", "out"},
	}}}}
	for _, c := range []struct{ row, err string }{
		{"cuOne\t1\tsync\thandle in[count] value out", ""},
		{"cuOne\t1\toneway\thandle in[8] value both", ""},
		{"cuOne\t1\tsync\tspecial", ""},
		{"cuOne\t1\tlocal", ""},
		{"cuOne\t1\trefused\t\tnobody needs it", ""},
		{"cuOther\t1\tlocal", "cuOne is not carried"},
		{"cuOne\t1\tlocal\ncuOther\t2\tlocal", "cuOther is no export"},
		{"cuOne\t1\tlocal\ncuOther\t1\tlocal", "have the number 1"},
		{"cuOne\t0\tlocal", "no number of a call"},
		{"cuOne\t1\tsometimes", "no such class"},
		{"cuOne\t1\trefused", "a refusal has a reason"},
		{"cuOne\t1\tsync\thandle in[count] value", "3 words for 4 parameters"},
		{"cuOne\t1\tsync\thandle in[many] value out", "no parameter many"},
		{"cuOne\t1\tsync\thandle in[*count] value out", "count is unsigned int"},
		{"cuOne\t1\tsync\thandle out value out", "nothing can be written"},
		{"cuOne\t1\tsync\thandle in in out", "is no pointer"},
		{"cuOne\t1\tsync\thandle in float out", "a float does not travel"},
		{"cuOne\t1\tsync\thandle in what out", "not understood"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "remote.tsv"), []byte("# head\n"+c.row+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readCarriages(dir, symbols)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %v, want %q", c.row, err, c.err)
		}
	}
}
