// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"
)

// However quick or slow a driver is, and however long it holds what a dead process
// had: it is asked for at most half of the first 20 ms, and a quarter of the time
// after that, unless one question takes over 10 ms; a quick one's release is seen late
// by at most an eighth of the time it took and 50 us, and later by a twentieth and
// 1 ms; and it is asked a bounded number of times.
func TestReleasePauses(t *testing.T) {
	for _, took := range []time.Duration{0, 10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond, 7 * time.Millisecond, 40 * time.Millisecond} {
		asked, asking := 0, time.Duration(0)
		var fast time.Duration
		for age := time.Duration(0); age < 10*time.Second; {
			asked++
			asking += took
			age += took
			pause := releasePause(age, took)
			if took <= 10*time.Microsecond && age < releaseFast && pause > max(50*time.Microsecond, age/8) {
				t.Errorf("%v after a death a quick driver is left alone for %v", age, pause)
			}
			if took <= 10*time.Microsecond && age >= releaseFast && pause > max(time.Millisecond, age/20) {
				t.Errorf("%v after a death a quick driver is left alone for %v", age, pause)
			}
			if least := min(took, 10*time.Millisecond); pause < least || age >= releaseFast && pause < min(3*took, 10*time.Millisecond) {
				t.Errorf("%v after a death a driver that takes %v is left alone for %v", age, took, pause)
			}
			if age < releaseFast {
				fast = asking
			}
			age += pause
		}
		if asked > 250 {
			t.Errorf("a driver that takes %v is asked %d times", took, asked)
		}
		if took <= 7*time.Millisecond && fast > releaseFast/2+took {
			t.Errorf("asking a driver that takes %v takes %v of the first %v", took, fast, releaseFast)
		}
		t.Logf("%v: asked %d times, %v of the first %v", took, asked, fast, releaseFast)
	}
}
