// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"math/rand/v2"
	"testing"
	"time"

	terms "github.com/divvy-gpu/divvy/internal/share"
)

// slowLedger is the ledger, grain by grain of 10 us: it remembers for each
// grain since the beginning whether the share used the card.
type slowLedger struct {
	percent int
	balance []int // after each grain, in hundredths of a grain
	used    []bool
}

const grain = 10 * time.Microsecond

func (l *slowLedger) fill(to int) {
	for len(l.balance) < to {
		last := 0
		if n := len(l.balance); n > 0 {
			last = l.balance[n-1]
		}
		l.balance = append(l.balance, last+l.percent)
	}
}

func (l *slowLedger) charge(from, n int) {
	for len(l.used) < from+n {
		l.used = append(l.used, false)
	}
	for i := range n {
		l.used[from+i] = true
	}
	l.balance[len(l.balance)-1] -= 100 * n
}

// allowance tries one grain after the other.
func (l *slowLedger) allowance(now, window, most int) int {
	for can := range most {
		inWindow := can + 1 // what would be used
		for i := max(now+can+1-window, 0); i < now; i++ {
			if i < len(l.used) && l.used[i] {
				inWindow++
			}
		}
		if inWindow > window*l.percent/100 {
			return can
		}
	}
	return most
}

func TestLedgerAgainstSlowTwin(t *testing.T) {
	const window = 1000 // grains
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 3))
		percent := 5 * (1 + random.IntN(20))
		quick := &ledger{percent: int64(percent)}
		slow := &slowLedger{percent: percent}
		now := 0
		for range 120 {
			now += 1 + random.IntN(150)
			quick.fill(time.Duration(now)*grain, window*grain)
			slow.fill(now)
			// As the arbiter does it: what is used was allowed, or a little more.
			if n := slow.allowance(now, window, 60) + random.IntN(3); random.IntN(3) > 0 && n > 0 {
				from := now
				now += n + random.IntN(20)
				quick.fill(time.Duration(now)*grain, window*grain)
				slow.fill(now)
				quick.charge(time.Duration(from)*grain, time.Duration(n)*grain)
				slow.charge(from, n)
			}
			if random.IntN(2) == 0 {
				quick.forget(time.Duration(now)*grain, window*grain)
			}
			if got, want := quick.balance, int64(slow.balance[now-1])*int64(grain); got != want {
				t.Fatalf("seed %d, at %d: balance %d, want %d", seed, now, got, want)
			}
			got, want := quick.allowance(time.Duration(now)*grain, window*grain, 200*grain), slow.allowance(now, window, 200)
			if got/grain != time.Duration(want) {
				t.Fatalf("seed %d, %d %% at %d: allowed %v, want %v", seed, percent, now, got, time.Duration(want)*grain)
			}
			checkAllowedFrom(t, quick, slow, now, window)
		}
	}
}

// checkAllowedFrom: when it says there is room there is, and there is none before.
func checkAllowedFrom(t *testing.T, quick *ledger, slow *slowLedger, now, window int) {
	t.Helper()
	const least = 10
	at := int(quick.allowedFrom(time.Duration(now)*grain, time.Duration(window)*grain, least*grain) / grain)
	if got := slow.allowance(at, window, least); got < least {
		t.Fatalf("at %d: told to come at %d, but then only %d are allowed", now, at, got)
	}
	if got := slow.allowance(at-1, window, least); at > now && got >= least {
		t.Fatalf("at %d: %d allowed at %d, told to wait until %d", now, got, at-1, at)
	}
}

// A share whose window holds it back waits a little for a long lease: with short
// ones its pauses would split ever further, and each costs a wake-up.
func TestOnePauseInsteadOfMany(t *testing.T) {
	const ms = time.Millisecond
	a := New(Default(10*ms), newCard(1, ms))
	now := time.Second
	a.Set(now, []Terms{{Name: "a", Policy: terms.Fixed, CoresPercent: 90}})
	s := a.shares[0]
	for at := time.Duration(0); at < now; at += 10 * ms { // in many short pauses it left a tenth of the time
		s.charge(at, 9*ms)
	}
	s.balance = 100 * int64(50*ms)
	from := a.eligibleFrom(now, s)
	if pause := from - now; pause < 2*ms || pause > 5*ms {
		t.Errorf("it pauses for %v", pause)
	}
	if can, want := s.allowance(from, a.config.Window, time.Second), 30*ms; can < want {
		t.Errorf("then it may use the GPU for %v, wants %v", can, want)
	}
}
