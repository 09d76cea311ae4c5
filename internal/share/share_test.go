// SPDX-License-Identifier: Apache-2.0

package share

import (
	"strings"
	"testing"
)

func TestRange(t *testing.T) {
	for _, c := range []struct {
		r    Range
		n    int
		want string
	}{
		{Cores, 1, ""}, {Cores, 100, ""}, {Priority, 0, ""}, {Priority, 1000, ""},
		{Cores, 0, "0 is not between 1 and 100 percent of a GPU"},
		{Priority, 1001, "1001 is not between 0 and 1000"},
		{Weight, -1, "-1 is not between 1 and 1000"},
	} {
		got := ""
		if err := c.r.Check(c.n); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v of %d: %q, want %q", c.r, c.n, got, c.want)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "7": true, "a-b_c.d": true, strings.Repeat("a", MaxNameBytes): true,
		"": false, "-a": false, ".a": false, "A": false, "a/b": false, "ä": false, "a b": false, strings.Repeat("a", MaxNameBytes+1): false,
	} {
		if err := CheckName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestWords(t *testing.T) {
	for _, p := range Policies() {
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
	if Policy("").Validate() == nil || Policy("FIXED").Validate() == nil || Enforcement("none").Validate() == nil {
		t.Error("what is no word of ours is taken")
	}
	if got := Or(Policies()); got != "best-effort, equal, fixed or weighted" {
		t.Errorf("%q", got)
	}
}

func TestMeets(t *testing.T) {
	all := Enforcements()
	for i, e := range all {
		for j, demanded := range all {
			if got := e.Meets(demanded); got != (i <= j) {
				t.Errorf("%s meets %s: %v", e, demanded, got)
			}
		}
		if !e.Meets("") {
			t.Errorf("%s does not meet nothing", e)
		}
	}
	if Enforcement("other").Meets(Booked) {
		t.Error("an unknown level meets the weakest")
	}
}
