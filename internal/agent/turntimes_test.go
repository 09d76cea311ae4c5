// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"
)

func TestTurnTimes(t *testing.T) {
	var turns turnTimes
	if turns.within(99) != 0 {
		t.Error("no turns took some time")
	}
	for i := range 1000 {
		turns.add(time.Duration(i) * time.Microsecond)
	}
	turns.add(time.Hour)
	for percent, most := range map[uint64]time.Duration{1: 10 * time.Microsecond, 50: 500 * time.Microsecond, 99: 990 * time.Microsecond} {
		if got := turns.within(percent); got < most || got > most*5/4+time.Microsecond {
			t.Errorf("%d %% of the turns within %v, want %v to a quarter", percent, got, most)
		}
	}
	turns.add(time.Millisecond)
	shown := turns.shown()
	if turns.within(100) != time.Hour || shown.LongestNs != uint64(time.Hour) || shown.Count != 1002 || shown.Long != 1 {
		t.Errorf("all within %v: %+v", turns.within(100), shown)
	}
}
