// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/bench"
)

// What is shown is what was. Bytes and counts are exact on any host; time is as far off as the
// host is busy (divvy bench truth holds it to 1 %).
func TestFiguresAreTrue(t *testing.T) {
	h := newHost(t, hostOptions{cards: "3xA100-40GB"})
	r, err := bench.Truth(t.Context(), bench.TruthOptions{Target: h.Target, Duration: bench.TruthLeast})
	if err != nil {
		t.Fatal(err)
	}
	for _, differ := range r.Differ {
		t.Error(differ)
	}
	for _, row := range r.Rows {
		if !row.Missed {
			continue
		}
		roughly := row.Said != nil && *row.Said > 0.8*row.Least-0.3 && *row.Said < 1.2*row.Most+0.3
		if lower := strings.ToLower(row.Figure); strings.Contains(lower, "seconds") && roughly {
			t.Logf("%+v said %v", row, *row.Said)
			continue
		}
		t.Errorf("%+v said %v", row, row.Said)
	}
	for _, row := range r.Control {
		if !row.Missed {
			t.Errorf("the control is right: %+v", row)
		}
	}
	if len(r.Control) == 0 {
		t.Error("there was no control")
	}
}
