// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"strings"
	"testing"
)

func TestLabels(t *testing.T) {
	var many []string
	for i := range MaxLabels {
		many = append(many, fmt.Sprintf("key-%d=%d", i, i))
	}
	for _, c := range []struct {
		texts []string
		want  string
	}{
		{nil, ""},
		{[]string{"pod=default/web-0", "claim=", "divvy.dev/x=a=b c"}, ""},
		{many, ""},
		{append([]string{"one=more"}, many...), "17 labels, a share has at most 16"},
		{[]string{"pod"}, `label "pod" is not KEY=VALUE, each key once`},
		{[]string{"a=1", "a=1"}, `label "a=1" is not KEY=VALUE, each key once`},
		{[]string{"=1"}, `label "" is not printable ASCII without '=', ',' and space, at most 128 bytes of it`},
		{[]string{"a b=1"}, `label "a b" is not printable ASCII without '=', ',' and space, at most 128 bytes of it`},
		{[]string{"é=1"}, `label "é" is not printable ASCII without '=', ',' and space, at most 128 bytes of it`},
		{[]string{"a=\n"}, `the value of label "a" is not printable ASCII of at most 256 bytes`},
		{[]string{"a=" + strings.Repeat("x", 257)}, `the value of label "a" is not printable ASCII of at most 256 bytes`},
		{[]string{strings.Repeat("k", 129) + "="}, fmt.Sprintf("label %q is not printable ASCII without '=', ',' and space, at most 128 bytes of it", strings.Repeat("k", 129))},
	} {
		labels, err := ParseLabels(c.texts)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want || err == nil && len(labels) != len(c.texts) {
			t.Errorf("%q: %v, error %q, want %q", c.texts, labels, got, c.want)
		}
	}
}

func TestMatch(t *testing.T) {
	labels := Labels{"pod": "p", "claim": ""}
	for _, c := range []struct {
		wanted Labels
		want   bool
	}{
		{nil, true},
		{Labels{"pod": "p"}, true},
		{Labels{"pod": "p", "claim": ""}, true},
		{Labels{"pod": "q"}, false},
		{Labels{"pod": "p", "none": ""}, false},
	} {
		if got := labels.Match(c.wanted); got != c.want {
			t.Errorf("%v match %v: %v", labels, c.wanted, got)
		}
	}
}
