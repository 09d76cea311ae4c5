// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// A list is read of whatever length, one object only as long as a cluster keeps one; and no shape of
// a list makes much of a short text.
func TestBoundsOfObjects(t *testing.T) {
	pod := func(n int) string {
		return fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"p%d"},"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}`, n)
	}
	var pods []string
	for n := range 40_000 {
		pods = append(pods, pod(n))
	}
	long := `[{"kind":"PodList","items":[` + strings.Join(pods, ",") + "]}]"
	if len(long) <= maxObjectBytes {
		t.Fatalf("a list of %d bytes is no long one", len(long))
	}
	nest := func(depth int) string {
		return `{"items":[` + strings.Repeat(`{"kind":"List","items":[`, depth) + pod(0) + strings.Repeat("]}", depth+1)
	}
	blank := strings.Repeat(" ", maxObjectBytes)
	for name, c := range map[string]struct{ text, says string }{
		"a long list in an array":     {long, ""},
		"a pod":                       {`{"items":[{"kind":"Pod",` + blank + pod(0)[1:] + "]}", "an object of more than 4 MiB"},
		"a pod alone":                 {`{"kind":"Pod",` + blank + pod(0)[14:], "an object of more than 4 MiB"},
		"a job":                       {`{"jobs":[{"name":"a",` + blank + `"gpus":1}]}`, "an object of more than 4 MiB"},
		"objects in a list in a list": {`{"items":[{"items":[` + strings.Repeat("{},", maxObjects) + "{}]}]}", "more than 500000 objects"},
		"objects one after another":   {strings.Repeat(`{"kind":"A"}`, maxObjects+1), "more than 500000 objects"},
		"elements": {`{"items":[` + strings.Repeat(`{"kind":"Pod","other":[0`+strings.Repeat(",0", 2_000_000)+"]},", 5) + "{}]}",
			"more than 8000000 fields"},
		"lists in each other":          {nest(maxLists), ""},
		"more of them":                 {nest(maxLists + 1), "more than 8 lists"},
		"items that are none":          {`{"items":[{"kind":"List","items":7}]}`, "items is no array"},
		"parts of YAML":                {"items: [" + strings.Repeat("a,", maxYAMLMarks) + "a]\n", "the YAML is too large"},
		"parts of an object of YAML":   {"kind: Pod\nspec: {containers: [" + strings.Repeat("{},", maxObjectParts) + "{}]}\n", "more than 262144 parts"},
		"an object of YAML, with room": {"kind: Pod\nspec: {containers: [" + strings.Repeat("{},", 1000) + "{}]}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			jobs, err := parseJobs("f", newInput("f", bytes.NewReader([]byte(c.text))))
			switch {
			case c.says == "" && err != nil && !strings.Contains(err.Error(), "no jobs"):
				t.Error(err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%v, want %q", err, c.says)
			case strings.HasPrefix(name, "a long") && len(jobs.Jobs) != len(pods):
				t.Errorf("%d jobs of %d", len(jobs.Jobs), len(pods))
			}
		})
	}
}
