// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"testing"
	"time"

	terms "github.com/divvy-gpu/divvy/internal/share"
)

// Whatever a share that runs nothing says of its time, the other one gets its part.
func TestLiesAboutTime(t *testing.T) {
	const seconds, long = 10, 1000 * time.Second
	// part is a liar that says that it used so many percent of each lease.
	part := func(percent int64) func(c *card, now time.Duration) Usage {
		var had, at time.Duration
		return func(c *card, now time.Duration) Usage {
			if now < at {
				had = 0 // another card
			}
			if a := c.arbiter; a.holder != nil && a.holder.Name == "liar" && a.phase == held {
				had += max(now-max(at, a.begun), 0)
			}
			at = now
			busy := had * time.Duration(percent) / 100
			return Usage{Busy: busy, Span: busy, LastEnd: now, Processes: 1}
		}
	}
	last := func(c *card) bool { return c.arbiter.holder != nil && c.arbiter.holder.Name == "liar" }
	hangsUp := "nothing, and hangs up with each lease"
	for name, lie := range map[string]func(c *card, now time.Duration) Usage{
		hangsUp:                 func(*card, time.Duration) Usage { return Usage{Processes: 1} },
		"in flight for ever":    func(_ *card, now time.Duration) Usage { return Usage{Submitted: 1, Remaining: long, Processes: 1} },
		"in flight, much of it": func(_ *card, now time.Duration) Usage { return Usage{Submitted: long, Remaining: long, Processes: 1} },
		"long kernels": func(_ *card, now time.Duration) Usage {
			return Usage{Submitted: 1, Remaining: long, Kernel: long, Processes: 1}
		},
		"in flight while it has the GPU": func(c *card, now time.Duration) Usage {
			if last(c) {
				return Usage{Submitted: 20 * time.Millisecond, Remaining: 20 * time.Millisecond, Processes: 1}
			}
			return Usage{Processes: 1}
		},
		"in flight after its leases": func(c *card, now time.Duration) Usage {
			if last(c) && c.arbiter.phase == draining {
				return Usage{Submitted: 20 * time.Millisecond, Remaining: 20 * time.Millisecond, Processes: 1}
			}
			return Usage{Processes: 1}
		},
		"a third of each lease": part(33), "half of each lease": part(50), "two thirds": part(67), "most of each lease": part(90),
		"all there is": func(_ *card, now time.Duration) Usage {
			return Usage{Busy: 1 << 62, Submitted: 1 << 62, Remaining: 1 << 62, Span: 1 << 62, LastEnd: now, Processes: 1}
		},
		"all that passes": func(_ *card, now time.Duration) Usage {
			return Usage{Busy: now, Submitted: 1, Remaining: long, Span: now, LastEnd: now, Processes: 1}
		},
	} {
		for _, policy := range []terms.Policy{terms.Fixed, terms.Equal} {
			t.Run(name+", "+string(policy), func(t *testing.T) {
				c := newCard(11, 300*time.Microsecond)
				c.lies = map[string]func(time.Duration) Usage{"liar": func(now time.Duration) Usage { return lie(c, now) }}
				next, process := time.Millisecond, uint64(1)
				var ask func()
				ask = func() {
					if name == hangsUp {
						next = 8 * time.Millisecond
						c.arbiter.Ended(c.now, "liar", process, true)
						process++
						c.at(c.now+time.Millisecond, func() { c.arbiter.Released(c.now, "liar"); c.arrange() })
					}
					c.arbiter.Want(c.now, "liar", process)
					c.arrange()
					c.at(c.now+next, ask)
				}
				c.at(time.Millisecond, ask)
				l := program("honest", 1, time.Millisecond, 0)
				all := []Terms{{Name: "honest", Policy: policy, CoresPercent: 60, Weight: 1}, {Name: "liar", Policy: policy, CoresPercent: 40, Weight: 1}}
				c.run(t, all, []*load{l, program("liar", 0, time.Millisecond, 0)}, seconds*time.Second)
				got, want := 100*l.busy.Seconds()/seconds, 60.0
				if policy == terms.Equal {
					want = 50
				}
				t.Logf("%.1f %%, %d overruns", got, c.arbiter.Overruns("liar"))
				if got < want-3 {
					t.Errorf("got %.1f %% of the GPU, promised %v %%", got, want)
				}
			})
		}
	}
}
