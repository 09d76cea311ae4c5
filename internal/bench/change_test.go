// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

func TestWhatAChangeShows(t *testing.T) {
	const ms = int64(time.Millisecond)
	runs := []simgpu.Run{{FromNS: 103 * ms, ToNS: 106 * ms}, {FromNS: 110 * ms, ToNS: 114 * ms}}
	since := 100 * time.Millisecond
	if got := turned(runs, since, true); got != 3*time.Millisecond {
		t.Errorf("the first begins after %v", got)
	}
	if got := turned(runs, since, false); got != 14*time.Millisecond {
		t.Errorf("the last ends after %v", got)
	}
	if got := turned(nil, since, true); got != changeLook {
		t.Errorf("none began within %v", got)
	}
	if got := turned(nil, since, false); got != 0 {
		t.Errorf("the last of none ended after %v", got)
	}
	if got := partOf(runs, since+5*time.Millisecond, since+15*time.Millisecond); math.Abs(got-50) > 1e-9 {
		t.Errorf("%v %% of ten milliseconds, want 50", got)
	}
}
