// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

// Between two divisions a share has had no more than its part of the time, whatever it measures;
// and what is saved meanwhile is what is shown.
func TestOvercount(t *testing.T) {
	const second = time.Second
	var none *division
	if got := none.overcount(second, second); got != 0 {
		t.Errorf("without a division: %v", got)
	}
	alone := &division{at: 10 * second, measured: 4 * second, over: second, rate: -1}
	if got := alone.overcount(5*second, 11*second); got != second {
		t.Errorf("alone it measures %v too much", got)
	}
	beside := &division{at: 10 * second, measured: 4 * second, over: second, rate: 0.25}
	for _, c := range []struct{ measured, now, want time.Duration }{
		{4 * second, 10 * second, second},
		{5 * second, 11 * second, second + 750*time.Millisecond},
		{4*second + 100*time.Millisecond, 11 * second, second}, // it measured less than it may have had
		{4 * second, 9 * second, second},                       // nobody sets this clock, but still
	} {
		got := beside.overcount(c.measured, c.now)
		if got != c.want {
			t.Errorf("%v measured at %v: %v too much, want %v", c.measured, c.now, got, c.want)
		}
		saved := core.Correction{OvercountNs: 7}
		beside.correct(&saved, c.measured, c.now)
		if saved.OvercountNs != 7+int64(got) || saved.AtNs != uint64(c.now) {
			t.Errorf("%v too much is saved as %+v", got, saved)
		}
	}
}

// Shares whose programs run in turns have together what passed, whatever they measure, and by
// their driver's account, if it tells.
func TestTimeIsDivided(t *testing.T) {
	for _, tells := range []bool{false, true} {
		start := time.Now()
		r := newRig(t, func(c *Config) { c.DivideEvery = 10 * time.Millisecond })
		if tells { // both are this process
			r.source.mutex.Lock()
			r.source.activity = gpu.Activity{BusyPercent: gpu.Known(100.0), Processes: []gpu.ProcessActivity{{PID: os.Getpid(), Percent: 40}, {PID: 1, Percent: 20}}}
			r.source.mutex.Unlock()
		}
		r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
		r.share(api.ShareSpec{Name: "b", MemoryBytes: gib})
		a, b := r.front("a"), r.front("b")
		had := func() (all [2]time.Duration) {
			list, err := r.client.Shares(context.Background())
			must(t, err)
			for i, s := range list.Shares {
				all[i] = time.Duration(s.CardTimeNs)
			}
			return all
		}
		begun := time.Now()
		eventually(t, "both have some of the time", func() bool {
			a.work(time.Since(begun)*9/10, 0)
			b.work(time.Since(begun)*8/10, 0)
			got := had()
			if passed := time.Since(start); got[0]+got[1] > passed {
				t.Fatalf("%v is more than the %v that have passed (the driver tells: %v)", got, passed, tells)
			}
			return got[0] > 100*time.Millisecond && got[1] > 100*time.Millisecond
		})
		must(t, r.stop())
	}
}

// What programs had that did nothing for a while begins when they go on: no driver's word of now is
// of the time before.
func TestTimeIsDividedAfterStillness(t *testing.T) {
	r := newRig(t, func(c *Config) { c.DivideEvery = 10 * time.Millisecond })
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	r.share(api.ShareSpec{Name: "b", MemoryBytes: gib})
	a, b := r.front("a"), r.front("b")
	still := func() (is bool) {
		r.do(func(l *loop) { is = l.still(testUUID) })
		return is
	}
	a.work(time.Millisecond, 0)
	b.work(time.Millisecond, 0)
	if still() {
		t.Fatal("still while they work")
	}
	eventually(t, "they are still", still)
	<-time.After(500 * time.Millisecond) // which nobody had
	r.source.mutex.Lock()
	r.source.activity = gpu.Activity{BusyPercent: gpu.Known(100.0), Processes: []gpu.ProcessActivity{{PID: os.Getpid(), Percent: 40}, {PID: 1, Percent: 20}}}
	r.source.mutex.Unlock()
	begun := time.Now()
	for {
		passed := time.Since(begun)
		a.work(time.Millisecond+passed*9/10, 0)
		b.work(time.Millisecond+passed*8/10, 0)
		list, err := r.client.Shares(t.Context())
		must(t, err)
		got := time.Duration(list.Shares[0].CardTimeNs + list.Shares[1].CardTimeNs)
		if most := time.Since(begun) + 100*time.Millisecond; got > most {
			t.Fatalf("%v is more than %v", got, most)
		}
		if got > 200*time.Millisecond {
			return
		}
	}
}

// What a program had that has ended is estimated by what it had of what it measured before.
func TestPartOfWhatWasMeasured(t *testing.T) {
	m := &division{}
	if m.part() != 0 {
		t.Error("something is known of nothing")
	}
	for range 20 {
		m.told(100*time.Millisecond, 400*time.Millisecond)
	}
	m.told(100*time.Millisecond, 0) // it measured late
	if part := m.part(); part < 0.25 || part > 0.3 {
		t.Errorf("it had %v of what it measured", part)
	}
}
