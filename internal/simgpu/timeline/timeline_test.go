// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// naive is the slow twin: it takes one nanosecond after the other and looks at
// everything in each.
type naive struct {
	config Config
	now    int64
	cards  []naiveCard
	items  map[ProcessID][]*naiveItem
	busy   map[ProcessID][]int64
}

type naiveCard struct {
	owner, last ProcessID
	left        int64 // of the slice
	ran         []Run
	switching   int64
}

type naiveItem struct {
	Item
	left   int64
	end    int64 // -1: not yet
	begun  bool
	signal int64 // -1: none
}

func newNaive(config Config) *naive {
	return &naive{config: config, cards: make([]naiveCard, config.Cards), items: map[ProcessID][]*naiveItem{}, busy: map[ProcessID][]int64{}}
}

func (n *naive) submit(id ProcessID, w Item) {
	if n.busy[id] == nil {
		n.busy[id] = make([]int64, n.config.Cards)
	}
	n.items[id] = append(n.items[id], &naiveItem{Item: w, left: w.DurationNS, end: -1, signal: -1})
}

// ready says whether all that an item comes after has ended by now.
func (n *naive) ready(id ProcessID, it *naiveItem) bool {
	if it.StampNS > n.now {
		return false
	}
	for _, s := range it.After {
		if s != 0 && (n.items[id][s-1].end < 0 || n.items[id][s-1].end > n.now) {
			return false
		}
	}
	return true
}

// instant ends markers and gates that can end now, until nothing changes.
func (n *naive) instant() {
	for changed := true; changed; {
		changed = false
		for id, list := range n.items {
			for _, it := range list {
				if it.end >= 0 || it.Kind == Kernel || !n.ready(id, it) || (it.Kind == Gate && (it.signal < 0 || it.signal > n.now)) {
					continue
				}
				it.end, changed = n.now, true
			}
		}
	}
}

// choice is the kernel that a process would run on a card now.
func (n *naive) choice(id ProcessID, card int) *naiveItem {
	var first *naiveItem
	for _, it := range n.items[id] {
		if it.Kind != Kernel || it.Card != card || it.end >= 0 || !n.ready(id, it) {
			continue
		}
		if it.begun {
			return it
		}
		if first == nil {
			first = it
		}
	}
	return first
}

func (n *naive) turn(card int) {
	c := &n.cards[card]
	if c.switching > 0 {
		c.switching--
		return
	}
	if c.owner == 0 || c.left == 0 || n.choice(c.owner, card) == nil {
		c.owner, c.left = 0, 0
		ids := slices.Sorted(maps.Keys(n.items))
		at, _ := slices.BinarySearch(ids, c.last+1)
		for i := range ids {
			if id := ids[(at+i)%len(ids)]; n.choice(id, card) != nil {
				c.owner, c.left = id, n.config.SliceNS
				break
			}
		}
		if c.owner == 0 {
			return
		}
		if c.owner != c.last {
			c.last = c.owner
			if n.config.SwitchNS > 0 {
				c.switching = n.config.SwitchNS - 1
				return
			}
		}
	}
	it := n.choice(c.owner, card)
	it.begun = true
	n.busy[c.owner][card]++
	if last := len(c.ran) - 1; last >= 0 && c.ran[last].Process == c.owner && c.ran[last].ToNS == n.now {
		c.ran[last].ToNS++
	} else {
		c.ran = append(c.ran, Run{c.owner, n.now, n.now + 1})
	}
	c.left--
	if it.left--; it.left == 0 {
		it.end = n.now + 1
	}
}

// run takes the clock to a time.
func (n *naive) run(until int64) {
	for ; n.now < until; n.now++ {
		n.instant()
		for i := range n.cards {
			n.turn(i)
		}
	}
}

// open says whether anything has not ended.
func (n *naive) open() bool {
	for _, list := range n.items {
		if slices.ContainsFunc(list, func(it *naiveItem) bool { return it.end < 0 }) {
			return true
		}
	}
	return false
}

func (n *naive) kill(id ProcessID) {
	delete(n.items, id)
	for i := range n.cards {
		if c := &n.cards[i]; c.owner == id {
			c.owner, c.left, c.switching = 0, 0, 0
		}
	}
}

// collect notes ends as they are decided; each only once.
func collect(t *testing.T, line *Timeline, ends map[ProcessID]map[uint64]int64) {
	t.Helper()
	for id, known := range ends {
		for _, d := range line.Decided(id) {
			if before, ok := known[d.Seq]; ok {
				t.Fatalf("item %d of process %d ends at %d, and was decided to end at %d", d.Seq, id, d.EndNS, before)
			}
			known[d.Seq] = d.EndNS
		}
	}
}

// trial runs one random history through both, the timeline asked at random
// moments, and compares all ends and all busy times.
func trial(t *testing.T, random *rand.Rand) {
	t.Helper()
	config := Config{Cards: 1 + random.IntN(2), SliceNS: 1 + random.Int64N(30), SwitchNS: random.Int64N(3), Queued: 1000}
	line, slow := New(config), newNaive(config)
	for card := range config.Cards {
		line.Runs(card, 0) // remember
	}
	ends := map[ProcessID]map[uint64]int64{}
	live := []ProcessID{}
	gates := map[ProcessID][]uint64{}
	count := map[ProcessID]uint64{}
	work := int64(0)
	busy := map[ProcessID][]int64{}
	lazy := random.IntN(2) == 0 // is asked hardly ever
	now := int64(0)
	for id := range ProcessID(1 + random.IntN(4)) {
		live = append(live, id+1)
		ends[id+1] = map[uint64]int64{}
	}
	for range 60 {
		now += random.Int64N(25)
		if !lazy || random.IntN(20) == 0 {
			line.Advance(now - random.Int64N(5))
			collect(t, line, ends)
		}
		id := live[random.IntN(len(live))]
		if random.IntN(60) == 0 && len(live) > 1 {
			line.Advance(now)
			collect(t, line, ends)
			slow.run(now)
			busy[id] = make([]int64, config.Cards)
			for i := range config.Cards {
				u, _ := line.Usage(id, i)
				busy[id][i] = u.BusyNS
			}
			line.End(id, now)
			slow.kill(id)
			delete(ends, id)
			live = slices.DeleteFunc(live, func(l ProcessID) bool { return l == id })
			continue
		}
		if g := gates[id]; len(g) > 0 && random.IntN(2) == 0 {
			if err := line.Signal(id, g[0], now); err != nil {
				t.Fatal(err)
			}
			slow.run(now)
			slow.items[id][g[0]-1].signal = now
			gates[id] = g[1:]
			continue
		}
		for range 1 + random.IntN(4) {
			w := Item{Kind: Kernel, Card: random.IntN(config.Cards), DurationNS: 1 + random.Int64N(40), StampNS: now}
			switch random.IntN(8) {
			case 0:
				w.Kind = Marker
			case 1:
				w.Kind = Gate
			}
			if w.Kind == Kernel {
				work += w.DurationNS
			}
			for i := range w.After {
				if last := count[id]; last > 0 && random.IntN(3) == 0 {
					w.After[i] = last - random.Uint64N(min(last, 5))
				}
			}
			seq, err := line.Submit(id, w)
			if err != nil {
				t.Fatal(err)
			}
			slow.run(now)
			slow.submit(id, w)
			if count[id]++; seq != count[id] {
				t.Fatalf("item %d got the number %d", count[id], seq)
			}
			if w.Kind == Gate {
				gates[id] = append(gates[id], seq)
			}
		}
	}
	for id, open := range gates {
		for _, seq := range open {
			if slices.Contains(live, id) {
				if err := line.Signal(id, seq, now); err != nil {
					t.Fatal(err)
				}
				slow.run(now)
				slow.items[id][seq-1].signal = now
			}
		}
	}
	now += work*int64(1+config.SwitchNS) + 1000
	line.Advance(now)
	collect(t, line, ends)
	for slow.open() {
		slow.run(slow.now + 20)
	}
	for _, id := range live {
		var sum, asked int64
		for i, it := range slow.items[id] {
			if got, ok := ends[id][uint64(i+1)]; !ok || got != it.end {
				t.Fatalf("item %d of process %d (%+v) ends at %d (%v), the twin says %d", i+1, id, it.Item, got, ok, it.end)
			}
			if it.Kind == Kernel {
				asked += it.DurationNS
			}
		}
		for card := range config.Cards {
			u, _ := line.Usage(id, card)
			sum += u.BusyNS
			if u.BusyNS != slow.busy[id][card] || u.Queued != 0 {
				t.Fatalf("process %d had %+v of GPU %d, the twin says %d ns", id, u, card, slow.busy[id][card])
			}
		}
		if sum != asked {
			t.Fatalf("process %d asked for %d ns and had %d", id, asked, sum)
		}
		if floor, _ := line.Floor(id); floor != count[id] {
			t.Fatalf("process %d: all is decided up to %d of %d", id, floor, count[id])
		}
	}
	for card := range config.Cards {
		if ran, since := line.Runs(card, 0); !slices.Equal(ran, slow.cards[card].ran) || since != 0 {
			t.Fatalf("GPU %d ran %v since %d, the twin says %v", card, ran, since, slow.cards[card].ran)
		}
	}
	for id, list := range busy {
		if !slices.Equal(list, slow.busy[id]) && slow.busy[id] != nil {
			t.Fatalf("process %d had %v until its death, the twin says %v", id, list, slow.busy[id])
		}
	}
	for card := range config.Cards {
		var sum int64
		for _, list := range slow.busy {
			sum += list[card]
		}
		if got, _ := line.Card(card); got != sum || got > now {
			t.Fatalf("GPU %d was busy for %d of %d ns, the twin says %d", card, got, now, sum)
		}
	}
}

func TestAgainstTwin(t *testing.T) {
	rounds := uint64(300)
	if testing.Short() {
		rounds = 50
	}
	for seed := range rounds {
		if ok := t.Run(fmt.Sprint(seed), func(t *testing.T) { trial(t, rand.New(rand.NewPCG(seed, 1))) }); !ok {
			return
		}
	}
}

func submit(t *testing.T, line *Timeline, id ProcessID, w Item) uint64 {
	t.Helper()
	seq, err := line.Submit(id, w)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

const ms = 1_000_000

func model(cards int) *Timeline {
	return New(Config{Cards: cards, SliceNS: 2 * ms, Queued: 1024})
}

// What runs within its slice is decided at once, so that a waiter asks once.
func TestShortKernelIsDecidedWhenItBegins(t *testing.T) {
	line := model(1)
	seq := submit(t, line, 1, Item{Kind: Kernel, DurationNS: ms, StampNS: 100})
	line.Advance(101)
	if got := line.Decided(1); len(got) != 1 || got[0] != (Decision{seq, 100 + ms}) {
		t.Fatalf("decided %v", got)
	}
	if u, _ := line.Usage(1, 0); u.BusyNS != 1 {
		t.Errorf("after a nanosecond it has had %d", u.BusyNS)
	}
	line.End(1, 101)
	if busy, _ := line.Card(0); busy != 1 {
		t.Errorf("busy for %d ns when it was killed after 1", busy)
	}
	other := submit(t, line, 2, Item{Kind: Kernel, DurationNS: 5, StampNS: 200})
	line.Advance(300)
	if got := line.Decided(2); len(got) != 1 || got[0] != (Decision{other, 205}) {
		t.Errorf("after a kill at 101: decided %v", got)
	}
}

func TestTwoProcessesShareEvenly(t *testing.T) {
	line := model(1)
	for id := ProcessID(1); id <= 2; id++ {
		for range 500 {
			submit(t, line, id, Item{Kind: Kernel, DurationNS: ms})
		}
	}
	line.Advance(400 * ms)
	a, _ := line.Usage(1, 0)
	b, _ := line.Usage(2, 0)
	if a.BusyNS != 200*ms || b.BusyNS != 200*ms {
		t.Errorf("%+v and %+v of 400 ms", a, b)
	}
	if a.Percent != 40 || b.Percent != 40 { // the window began before they did
		t.Errorf("%d %% and %d %% of the last %d ms", a.Percent, b.Percent, WindowNS/ms)
	}
	if _, percent := line.Card(0); percent != 80 {
		t.Errorf("the GPU was in use for %d %%", percent)
	}
}

func TestOutlook(t *testing.T) {
	line := model(1)
	var last uint64
	for range 10 {
		last = submit(t, line, 1, Item{Kind: Kernel, DurationNS: 3 * ms, After: [4]uint64{last}})
	}
	line.Advance(1)
	if got := line.Outlook(1, last, false); got != (Outlook{AtNS: 30 * ms}) {
		t.Errorf("ten kernels of 3 ms: %+v", got)
	}
	if got := line.Outlook(1, 2, true); got != (Outlook{AtNS: 6 * ms}) {
		t.Errorf("two of them: %+v", got)
	}
	line.Advance(5 * ms) // two and a half slices: the third is decided
	if got := line.Outlook(1, 2, true); got != (Outlook{AtNS: 6 * ms, Decided: true}) {
		t.Errorf("two of them when the second is decided: %+v", got)
	}
	if got := line.Outlook(1, 1, false); got != (Outlook{AtNS: 5 * ms, Decided: true}) {
		t.Errorf("the first, which is past: %+v", got)
	}
	gate := submit(t, line, 1, Item{Kind: Gate})
	if got := line.Outlook(1, gate, false); got.Decided || !got.Gated {
		t.Errorf("a gate: %+v", got)
	}
	if got := line.Outlook(1, gate+1, true); got.Decided || !got.Gated {
		t.Errorf("what was never submitted: %+v", got)
	}
}

func TestNonsense(t *testing.T) {
	line := New(Config{Cards: 1, SliceNS: 10, Queued: 2})
	for name, w := range map[string]Item{
		"kind":           {},
		"card":           {Kind: Marker, Card: 1},
		"negative GPU":   {Kind: Marker, Card: -1},
		"no duration":    {Kind: Kernel},
		"long duration":  {Kind: Kernel, DurationNS: maxDuration + 1},
		"after itself":   {Kind: Marker, After: [4]uint64{1}},
		"negative stamp": {Kind: Marker, StampNS: -1},
	} {
		if _, err := line.Submit(1, w); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, ok := line.processes[1]; ok {
		t.Error("nonsense made a process")
	}
	kernel := submit(t, line, 1, Item{Kind: Kernel, DurationNS: 5})
	gate := submit(t, line, 1, Item{Kind: Gate})
	if _, err := line.Submit(1, Item{Kind: Kernel, DurationNS: 5}); !errors.Is(err, ErrInvalid) {
		t.Errorf("one item more than may be queued: %v", err)
	}
	for name, err := range map[string]error{
		"a kernel":        line.Signal(1, kernel, 0),
		"no item":         line.Signal(1, 99, 0),
		"another process": line.Signal(2, gate, 0),
		"a gate":          line.Signal(1, gate, 0),
		"a gate again":    line.Signal(1, gate, 0),
	} {
		if want := name != "a gate"; errors.Is(err, ErrInvalid) != want {
			t.Errorf("signal of %s: %v", name, err)
		}
	}
}

// BenchmarkQueue is what an item costs from its submission to its end.
func BenchmarkQueue(b *testing.B) {
	line := model(1)
	now, last := int64(0), uint64(0)
	for b.Loop() {
		seq, err := line.Submit(1, Item{Kind: Kernel, DurationNS: 50_000, StampNS: now, After: [4]uint64{last}})
		if err != nil {
			b.Fatal(err)
		}
		last = seq
		if now += 50_000; seq%512 == 0 {
			line.Advance(now)
			_ = line.Decided(1)
		}
	}
}

// What is remembered is bounded, and says from when on it is all.
func TestRunsAreBounded(t *testing.T) {
	line := New(Config{Cards: 1, SliceNS: 10, Queued: 10})
	line.Runs(0, 0)
	for i := range int64(3 * maxRuns) {
		if _, err := line.Submit(1, Item{Kind: Kernel, DurationNS: 1, StampNS: 2 * i}); err != nil {
			t.Fatal(err)
		}
		line.Advance(2*i + 2)
	}
	all, since := line.Runs(0, 0)
	if len(all) == 0 || len(all) > maxRuns || all[0].FromNS < since || all[len(all)-1].ToNS != 2*(3*maxRuns)-1 {
		t.Errorf("%d runs since %d", len(all), since)
	}
	for i := range all[1:] {
		if all[i+1].FromNS != all[i].FromNS+2 {
			t.Fatalf("after %v comes %v", all[i], all[i+1])
		}
	}
	if last, _ := line.Runs(0, 2*(3*maxRuns)-12); len(last) != 6 {
		t.Errorf("the last ones are %v", last)
	}
}
