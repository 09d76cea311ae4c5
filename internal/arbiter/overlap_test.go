// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"testing"
	"time"

	terms "github.com/divvy-gpu/divvy/internal/share"
)

// Shares that overlap get about their part: what each measures beside the others
// is an estimate. Nobody starves, and nobody has more than its rate for long.
func TestSharesOverlap(t *testing.T) {
	const seconds = 10
	for _, cores := range [][]int{{30}, {30, 30}, {20, 30, 50}, {60}} {
		c := newCard(4, 300*time.Microsecond)
		c.arbiter.config.Overlap = true
		var all []Terms
		var loads []*load
		for i, percent := range cores {
			s := Terms{Name: string(rune('a' + i)), Policy: terms.Fixed, CoresPercent: percent}
			all, loads = append(all, s), append(loads, program(s.Name, 1, time.Millisecond, 0))
		}
		c.run(t, all, loads, seconds*time.Second)
		for i, l := range loads {
			got, promised := 100*l.busy.Seconds()/seconds, float64(cores[i])
			t.Logf("%v: %s %.2f %%", cores, l.name, got)
			if got < 0.8*promised || got > 1.1*promised {
				t.Errorf("%v: %s got %.2f %%, promised %v %%", cores, l.name, got, promised)
			}
		}
	}
}
