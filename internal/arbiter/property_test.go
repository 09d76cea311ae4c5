// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	terms "github.com/divvy-gpu/divvy/internal/share"
)

// card executes kernels one after the other, in the order of submission, under
// the gate's rule: a process launches when now and its unfinished work lie
// before the end of its share's lease. Messages and wake-ups take their time.
type card struct {
	random  *rand.Rand
	arbiter *Arbiter
	now     time.Duration
	events  []event // in order
	shares  map[string]*load
	lies    map[string]func(now time.Duration) Usage
	queue   []kernel
	running bool
	late    time.Duration // most that a message or a wake-up takes
	stalled time.Duration // until when the host stands still
	wakeSet time.Duration
	broken  error
}

type event struct {
	at   time.Duration
	what func()
	card bool // happens on the card, whatever the host does
}

type kernel struct {
	by       *process
	cost     time.Duration
	launched time.Duration
}

// load is a share with its processes.
type load struct {
	name      string
	processes []*process
	begin     time.Duration // of the lease, as the processes see it
	lease     time.Duration // its end
	turn      uint64        // of the process that has it; 0: all
	most      time.Duration // unfinished work
	lateOf    time.Duration // beginning of the last lease that was used
	late      time.Duration
	word      int
	ran       []span
	busy      time.Duration
}

type process struct {
	share     *load
	turn      uint64
	cost      time.Duration // of a kernel
	thinks    time.Duration // that a kernel cost, 0: what it did
	gap       time.Duration // from the end of a kernel to the next launch; 0: keeps a backlog
	busy      time.Duration
	submitted time.Duration
	drain     time.Duration // when that will have run, by its estimate
	asked     int           // word for which it has asked
	waits     bool          // for a lease
	since     time.Duration // then
	thinking  bool
	epoch     int
	span      time.Duration
	lastEnd   time.Duration
}

func (p *process) remaining(now time.Duration) time.Duration {
	if p.submitted == 0 {
		return 0
	}
	return max(p.drain-now, 0)
}

// backlog is what a process may keep.
func (l *load) backlog() time.Duration {
	most := l.most
	if most == 0 {
		most = 5 * time.Millisecond
	}
	return most
}

func newCard(seed uint64, late time.Duration) *card {
	c := &card{random: rand.New(rand.NewPCG(seed, 1)), shares: map[string]*load{}, late: late}
	c.arbiter = New(Default(10*time.Millisecond), c)
	return c
}

func (c *card) Usage(now time.Duration, name string) (u Usage) {
	if lie := c.lies[name]; lie != nil {
		return lie(now)
	}
	l := c.shares[name]
	if l == nil {
		return u
	}
	for _, p := range l.processes {
		u.Busy += p.busy
		u.Span += p.span
		u.LastEnd = max(u.LastEnd, p.lastEnd)
		u.Submitted += p.submitted
		u.Remaining = max(u.Remaining, p.remaining(now))
		u.Kernel = max(u.Kernel, p.cost)
	}
	u.Late, u.Processes = l.late, len(l.processes)
	return u
}

func (c *card) at(t time.Duration, what func()) { c.happens(event{at: t, what: what}) }

func (c *card) happens(e event) {
	if !e.card {
		e.at = max(e.at, c.stalled)
	}
	i, _ := slices.BinarySearchFunc(c.events, e.at+1, func(e event, t time.Duration) int { return int(e.at - t) })
	c.events = slices.Insert(c.events, i, e)
}

func (c *card) lateness() time.Duration {
	return 20*time.Microsecond + time.Duration(c.random.Int64N(int64(c.late)))
}

// arrange does what the arbiter orders.
func (c *card) arrange() {
	for _, l := range c.arbiter.Drain().Leases {
		s := c.shares[l.Share]
		s.begin, s.lease, s.turn, s.most = c.arbiter.LeaseBegin(l.Share), l.End, l.Process, l.Backlog
		s.word++
		c.at(c.now+c.lateness(), func() { c.launchAll(s) })
	}
	if next := c.arbiter.NextWake(c.now); next != 0 && next != c.wakeSet {
		if next < c.now {
			c.broken = fmt.Errorf("at %v the arbiter asks to be woken at %v", c.now, next)
		}
		c.wakeSet = next
		c.at(next+c.lateness(), func() {
			if c.wakeSet == next {
				c.wakeSet = 0
				c.arbiter.Tick(c.now)
				c.arrange()
			}
		})
	}
}

func (c *card) launchAll(s *load) {
	for _, p := range s.processes {
		c.launch(p)
	}
}

// launch submits what a process may submit now.
func (c *card) launch(p *process) {
	s := p.share
	for !p.thinking && (p.submitted == 0 || p.gap == 0 && p.submitted+p.cost <= max(s.backlog(), p.cost)) {
		if s.turn != 0 && s.turn != p.turn || c.now+p.remaining(c.now) >= s.lease {
			if !p.waits {
				p.waits, p.since = true, c.now
			}
			if p.asked != s.word {
				p.asked = s.word
				c.at(c.now+c.lateness(), func() { c.arbiter.Want(c.now, s.name, p.turn); c.arrange() })
			}
			return
		}
		if p.waits && s.lateOf != s.begin {
			s.late += c.now - max(s.begin, p.since)
			s.lateOf = s.begin
		}
		p.waits = false
		p.submitted += p.cost
		p.drain = max(p.drain, c.now) + p.cost
		p.epoch++
		c.queue = append(c.queue, kernel{p, p.cost, c.now})
		c.execute()
	}
}

// execute runs the first kernel of the queue.
func (c *card) execute() {
	if c.running || len(c.queue) == 0 {
		return
	}
	k := c.queue[0]
	c.queue = c.queue[1:]
	c.running = true
	from := c.now
	c.happens(event{card: true, at: c.now + k.cost, what: func() {
		c.running = false
		p := k.by
		p.share.ran = append(p.share.ran, span{from, c.now})
		p.share.busy += k.cost
		p.busy += max(k.cost, p.thinks)
		p.submitted -= k.cost
		p.span += c.now - max(k.launched, p.lastEnd)
		p.lastEnd = c.now
		p.drain = c.now + p.submitted
		c.execute()
		if p.gap > 0 {
			p.thinking = true
			c.at(c.now+p.gap, func() { p.thinking = false; c.launch(p) })
		}
		epoch := p.epoch
		c.at(c.now+200*time.Microsecond, func() { c.giveBack(p, epoch) })
		c.at(c.now, func() { c.launch(p) })
	}})
}

func (c *card) giveBack(p *process, epoch int) {
	if p.submitted > 0 || p.epoch != epoch {
		return
	}
	c.at(c.now+c.lateness(), func() { c.arbiter.Back(c.now, p.share.name, p.turn); c.arrange() })
}

func (c *card) run(t testing.TB, all []Terms, loads []*load, until time.Duration) {
	t.Helper()
	for _, l := range loads {
		c.shares[l.name] = l
		for i, p := range l.processes {
			p.share, p.turn, p.asked = l, uint64(i+1), -1
			c.at(c.now+time.Duration(c.random.Int64N(int64(time.Millisecond))), func() { c.launch(p) })
		}
	}
	c.arbiter.Set(c.now, all)
	c.arrange()
	for len(c.events) > 0 && c.events[0].at <= until && c.broken == nil {
		e := c.events[0]
		c.events = c.events[1:]
		c.now = max(e.at, c.now)
		e.what()
	}
	if c.broken != nil {
		t.Fatal(c.broken)
	}
}

// mostOf is the most that a share used in any window.
func (l *load) mostOf(window time.Duration) time.Duration {
	var most, sum time.Duration
	first := 0
	for _, s := range l.ran {
		sum += s.to - s.from
		for l.ran[first].to <= s.to-window {
			sum -= l.ran[first].to - l.ran[first].from
			first++
		}
		most = max(most, sum-max(s.to-window-l.ran[first].from, 0))
	}
	return most
}

// leastOf is the least that a share used in any window between two instants.
func (l *load) leastOf(from, to, window time.Duration) time.Duration {
	const step = 10 * time.Millisecond
	used := make([]time.Duration, (to-from)/step)
	for _, s := range l.ran {
		if i := int((s.to - from) / step); s.to > from && i < len(used) {
			used[i] += s.to - s.from
		}
	}
	least, sum, n := window, time.Duration(0), int(window/step)
	for i, d := range used {
		sum += d
		if i >= n {
			sum -= used[i-n]
		}
		if i >= n-1 {
			least = min(least, sum)
		}
	}
	return least
}

func program(name string, processes int, cost, gap time.Duration) *load {
	l := &load{name: name}
	for range processes {
		l.processes = append(l.processes, &process{cost: cost, gap: gap})
	}
	return l
}

// A fixed share gets its part, whatever its kernels are, and never more than
// its part and what one lease's end has in flight in any second.
func TestFixedShareGetsItsPart(t *testing.T) {
	const seconds = 10
	for _, cores := range []int{5, 10, 30, 60, 90} {
		for _, cost := range []time.Duration{50 * time.Microsecond, time.Millisecond, 20 * time.Millisecond} {
			t.Run(fmt.Sprintf("%d%%, %v", cores, cost), func(t *testing.T) {
				c := newCard(uint64(cores), 300*time.Microsecond)
				l := program("a", 1, cost, 0)
				c.run(t, []Terms{{Name: "a", Policy: terms.Fixed, CoresPercent: cores}}, []*load{l}, seconds*time.Second)
				got := 100 * l.busy.Seconds() / seconds
				want := min(float64(cores), 97)
				allowed := 0.5
				if cores == 5 {
					allowed = 0.2
				}
				most := l.mostOf(time.Second)
				limit := time.Duration(cores)*10*time.Millisecond + cost
				t.Logf("%.3f %%, at most %v in a second", got, most)
				if got < want-allowed || got > want+allowed {
					t.Errorf("got %.3f %% of the GPU, promised %d %%", got, cores)
				}
				if most > limit {
					t.Errorf("used %v in one second, at most %v is its part and one kernel", most, limit)
				}
			})
		}
	}
}

// The processes of a share have the card one after the other. Together they use no
// more than its part and one kernel in any second, and each gets its turn.
func TestProcessesTakeTurns(t *testing.T) {
	const seconds = 10
	for _, cores := range []int{5, 30, 90} {
		for _, cost := range []time.Duration{50 * time.Microsecond, time.Millisecond, 20 * time.Millisecond} {
			c := newCard(3, 300*time.Microsecond)
			l := program("a", 4, cost, 0)
			c.run(t, []Terms{{Name: "a", Policy: terms.Fixed, CoresPercent: cores}}, []*load{l}, seconds*time.Second)
			got := 100 * l.busy.Seconds() / seconds
			most := l.mostOf(time.Second)
			t.Logf("%d %%, %v: %.3f %%, at most %v in a second", cores, cost, got, most)
			if got < float64(cores)-0.5 || got > float64(cores)+0.5 {
				t.Errorf("%v: got %.3f %% of the GPU, promised %d %%", cost, got, cores)
			}
			if limit := time.Duration(cores)*10*time.Millisecond + cost; most > limit {
				t.Errorf("%v: used %v in one second, at most %v is its part and one kernel", cost, most, limit)
			}
			for i, p := range l.processes {
				if p.busy < l.busy/8 || p.busy > l.busy/2 {
					t.Errorf("%d %%, %v: process %d had %v of %v", cores, cost, i, p.busy, l.busy)
				}
			}
		}
	}
}

// A share that was used before, it is not known how much, has no more than its part and one kernel
// of a second that begins before the arbiter does. The control: one that was not.
func TestUsedBefore(t *testing.T) {
	for _, used := range []bool{false, true} {
		c := newCard(5, 300*time.Microsecond)
		c.now = time.Minute
		l := program("a", 1, time.Millisecond, 0)
		c.run(t, []Terms{{Name: "a", Policy: terms.Fixed, CoresPercent: 8, Used: used}}, []*load{l}, c.now+3*time.Second)
		var most, sum time.Duration
		for _, s := range l.ran {
			sum += s.to - s.from
			if s.to < time.Minute+time.Second {
				most = max(most, sum-(s.to-time.Minute)*8/100)
			}
		}
		t.Logf("used before %v: %v in 3 s, at most %v more than its part in the first", used, sum, most)
		if (most > time.Millisecond) == used {
			t.Errorf("used before %v: it had %v more than its part, and one kernel is a millisecond", used, most)
		}
		if sum < 220*time.Millisecond {
			t.Errorf("it had %v in 3 s", sum)
		}
	}
}

// Shares that were promised the whole card and want it get it, in their parts.
// They may make up for a moment in which the card stood idle, by up to a backlog in a
// second. Beside others a share's work may queue for the handover time behind theirs,
// which grows by how late timers and programs wake: so that much more of it may
// fall into one second.
func TestSharesTogether(t *testing.T) {
	const seconds = 10
	all := []Terms{
		{Name: "a", Policy: terms.Fixed, CoresPercent: 20}, {Name: "b", Policy: terms.Fixed, CoresPercent: 30}, {Name: "c", Policy: terms.Fixed, CoresPercent: 50},
	}
	for _, test := range []struct {
		name      string
		costs     [3]time.Duration
		processes int
		least     float64 // of the card, in all
	}{
		{"50us", [3]time.Duration{50 * time.Microsecond, 50 * time.Microsecond, 50 * time.Microsecond}, 1, 97},
		{"1ms", [3]time.Duration{time.Millisecond, time.Millisecond, time.Millisecond}, 1, 97},
		{"20ms", [3]time.Duration{20 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond}, 1, 97},
		{"mixed", [3]time.Duration{20 * time.Millisecond, time.Millisecond, 50 * time.Microsecond}, 1, 97},
		{"processes", [3]time.Duration{time.Millisecond, time.Millisecond, time.Millisecond}, 4, 97},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCard(7, 300*time.Microsecond)
			var loads []*load
			for i, s := range all {
				loads = append(loads, program(s.Name, test.processes, test.costs[i], 0))
			}
			c.run(t, all, loads, seconds*time.Second)
			sum := 0.0
			for i, l := range loads {
				got := 100 * l.busy.Seconds() / seconds
				sum += got
				most := l.mostOf(time.Second)
				t.Logf("%s: %.3f %%, at most %v in a second", l.name, got, most)
				promised := float64(all[i].CoresPercent)
				if got > promised+0.5 || got < 0.97*promised-0.5 {
					t.Errorf("%s got %.3f %%, promised %v %%", l.name, got, promised)
				}
				if limit := time.Duration(all[i].CoresPercent)*10*time.Millisecond + l.processes[0].cost + c.arbiter.config.Backlog + c.arbiter.config.Handover + 2*c.late; most > limit {
					t.Errorf("%s used %v in one second, at most %v is its part and what it had in flight", l.name, most, limit)
				}
			}
			if sum < test.least {
				t.Errorf("the GPU was busy for %.2f %%, want %v", sum, test.least)
			}
		})
	}
}

// Nobody starves, whoever is beside: random shares, policies and programs. The
// kernels of a share with several processes outlast its lease by more than they
// say, and this card does not slice time: others queue behind them, which moves
// what they use by up to a quantum.
func TestNobodyStarves(t *testing.T) {
	for seed := range uint64(16) {
		random := rand.New(rand.NewPCG(seed, 2))
		c := newCard(seed, 500*time.Microsecond)
		var all []Terms
		var loads []*load
		left := 100
		for i := range 2 + random.IntN(5) {
			s := Terms{Name: fmt.Sprint("s", i), Policy: terms.BestEffort, CoresPercent: 100}
			if most := min(left, 60); most > 5 && (i == 0 || random.IntN(3) > 0) {
				s.Policy, s.CoresPercent = terms.Fixed, 5+random.IntN(most-5)
				left -= s.CoresPercent
			}
			all = append(all, s)
			cost := []time.Duration{50 * time.Microsecond, time.Millisecond, 7 * time.Millisecond}[random.IntN(3)]
			gap := []time.Duration{0, 100 * time.Microsecond, 3 * time.Millisecond}[random.IntN(3)]
			loads = append(loads, program(s.Name, 1+random.IntN(3), cost, gap))
		}
		const seconds = 3
		c.run(t, all, loads, seconds*time.Second)
		for i, l := range loads {
			s := all[i]
			if s.Policy != terms.Fixed {
				if left > 10 && l.busy < 5*time.Millisecond {
					t.Errorf("seed %d: %s got %v, with %d %% left over", seed, l.name, l.busy, left)
				}
				continue
			}
			if most, limit := l.mostOf(time.Second), time.Duration(s.CoresPercent)*10*time.Millisecond+l.processes[0].cost+c.arbiter.slack(c.now)+c.arbiter.config.Handover+4*c.late; most > limit {
				t.Errorf("seed %d: %s used %v in one second, limit %v (%d processes, %v, gap %v)", seed, l.name, most, limit,
					len(l.processes), l.processes[0].cost, l.processes[0].gap)
			}
			// A program that keeps the card busy gets most of what it was promised,
			// though long kernels of others stand in its way.
			part := float64(s.CoresPercent) / 100 * seconds
			if l.processes[0].gap == 0 && l.busy.Seconds() < 0.7*part {
				t.Errorf("seed %d: %s got %v of %.2f s", seed, l.name, l.busy, part)
			}
		}
	}
}

// Kernels of 40 ms are as long as it takes: beside them another share has its part, too, though it
// cannot make up for time in which it had used its part of a window before.
func TestBesideLongKernels(t *testing.T) {
	for _, kernel := range []time.Duration{10, 20, 40} {
		for _, processes := range []int{1, 2} {
			c := newCard(3, 300*time.Microsecond)
			honest, long := program("honest", 1, time.Millisecond, 0), program("long", processes, kernel*time.Millisecond, 0)
			c.run(t, []Terms{{Name: "honest", Policy: terms.Fixed, CoresPercent: 60}, {Name: "long", Policy: terms.Fixed, CoresPercent: 40}},
				[]*load{honest, long}, 12*time.Second)
			least := honest.leastOf(2*time.Second, c.now, time.Second).Seconds() * 100
			other := 100 * long.busy.Seconds() / c.now.Seconds()
			t.Logf("kernels of %d ms, %d processes: %.1f %% in any second, and they have %.1f", kernel, processes, least, other)
			if least < 58.5 || other < 39 {
				t.Errorf("beside kernels of %d ms of %d processes it got %.1f %% in a second, promised 60 %%; they have %.1f", kernel, processes, least, other)
			}
		}
	}
}

// A program that leaves its turns for a pause is behind what it was promised: that is no reason
// to give another one less than that.
func TestPausesOfOthers(t *testing.T) {
	const window = 3 * time.Second
	for _, processes := range []int{1, 2} {
		for _, pause := range []time.Duration{3, 15} {
			c := newCard(3, 300*time.Microsecond)
			honest := program("honest", 1, time.Millisecond, 0)
			c.run(t, []Terms{{Name: "honest", Policy: terms.Fixed, CoresPercent: 60}, {Name: "pauses", Policy: terms.Fixed, CoresPercent: 40}},
				[]*load{honest, program("pauses", processes, time.Millisecond, pause*time.Millisecond)}, 12*time.Second)
			got := 100 * honest.leastOf(2*time.Second, c.now, window).Seconds() / window.Seconds()
			t.Logf("%d processes, pauses of %d ms: %.1f %%", processes, pause, got)
			if got < 59 {
				t.Errorf("beside %d processes with pauses of %d ms it got %.1f %%, promised 60 %%", processes, pause, got)
			}
		}
	}
}
