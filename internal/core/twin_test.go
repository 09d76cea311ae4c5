// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// twin is the obvious ledger: it knows what each process uses, and adds up.
type twin struct {
	usable uint64
	shares map[string]*twinShare
}

type twinShare struct {
	limit    uint64 // 0: no promise
	revoked  bool
	used     map[ClientID]uint64 // also of the dead whose memory is still held
	attached map[ClientID]bool
}

func (s *twinShare) sum() uint64 {
	var sum uint64
	for _, n := range s.used {
		sum += n
	}
	return sum
}

// booked is what a share keeps from the others of its card.
func (s *twinShare) booked() uint64 {
	switch {
	case s.revoked:
		return s.sum()
	case s.limit == 0:
		return 0
	}
	return max(s.limit, s.sum())
}

// left is what is neither promised nor in use without a promise.
func (w *twin) left(except *twinShare) uint64 {
	n := w.usable
	for _, s := range w.shares {
		if s == except {
			continue
		}
		if s.limit == 0 && !s.revoked {
			n -= s.sum()
		} else {
			n -= s.booked()
		}
	}
	return n
}

func (w *twin) mayAlloc(s *twinShare, id ClientID, bytes uint64) bool {
	if s.revoked || !s.attached[id] {
		return false
	}
	if s.limit == 0 {
		return bytes <= w.left(nil)
	}
	return s.sum() <= s.limit && bytes <= s.limit-s.sum()
}

const twinContext = 4 * Unit

type duel struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	core   *Core
	pages  *fakePages
	twin   *twin
	next   ClientID
	log    []string
}

func (d *duel) say(format string, args ...any) { d.log = append(d.log, fmt.Sprintf(format, args...)) }

func (d *duel) must(ok bool, format string, args ...any) {
	d.t.Helper()
	if !ok {
		for _, line := range d.log[max(0, len(d.log)-40):] {
			d.t.Log(line)
		}
		d.t.Fatalf(format, args...)
	}
}

// TestTwin plays random histories on the ledger and on the obvious one: they
// grant and refuse the same, and use the same, at every step.
func TestTwin(t *testing.T) {
	for seed := range uint64(150) {
		d := &duel{t: t, random: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(0, 0), pages: newFakePages(),
			twin: &twin{usable: 200*Unit + seed, shares: map[string]*twinShare{}}}
		d.start()
		for range 400 {
			d.step()
			d.now = d.now.Add(300 * time.Millisecond)
			d.core.Tick(d.now)
			d.core.Drain()
			d.compare()
		}
	}
}

func (d *duel) start() {
	config := Config{MaxShares: 100, MaxClients: 100, MaxShareClients: 100, RestartGrace: time.Second,
		EphemeralGrace: time.Second, ShrinkDeadline: time.Second}
	d.core = New(config, []Card{{UUID: "GPU-a", Name: "a", UsableBytes: d.twin.usable, ContextBytes: twinContext}}, d.pages)
	d.pages.core = d.core
}

func (d *duel) someShare() (string, *twinShare) {
	name := fmt.Sprintf("s%d", d.random.IntN(5))
	return name, d.twin.shares[name]
}

func (d *duel) someClient() (string, *twinShare, ClientID, bool) {
	for range 4 {
		name, s := d.someShare()
		if s == nil || len(s.used) == 0 {
			continue
		}
		ids := make([]ClientID, 0, len(s.used))
		for id := range d.next {
			if _, ok := s.used[id]; ok {
				ids = append(ids, id)
			}
		}
		return name, s, ids[d.random.IntN(len(ids))], true
	}
	return "", nil, 0, false
}

func process(id ClientID) Process { return Process{PID: int(id) + 1, Start: uint64(id)} }

func (d *duel) step() {
	switch n := d.random.IntN(100); {
	case n < 8:
		d.create()
	case n < 12:
		d.remove()
	case n < 20:
		d.resize()
	case n < 32:
		name, s := d.someShare()
		if s == nil {
			return
		}
		err := d.pages.attach(d.now, d.next, name, process(d.next))
		d.say("attach %s %d: %v", name, d.next, err)
		d.must((err == nil) == !s.revoked, "attach: %v", err)
		if err == nil {
			s.used[d.next], s.attached[d.next] = 0, true
			d.next++
		}
	case n < 72:
		d.alloc()
	case n < 88:
		_, s, id, ok := d.someClient()
		if !ok || s.used[id] == 0 || !s.attached[id] {
			return
		}
		bytes := (d.random.Uint64N(s.used[id]/Unit) + 1) * Unit
		d.say("free %d %d", id, bytes)
		d.pages.free(id, bytes)
		s.used[id] -= bytes
	case n < 96:
		d.end()
	case n < 98:
		d.restart()
	default:
		name, s, id, ok := d.someClient()
		if ok && s.attached[id] {
			d.say("detach and return %d", id)
			d.core.Detach(d.now, id)
			err := d.pages.comeBack(d.now, id, name, process(id))
			d.must(err == nil, "return: %v", err)
		}
	}
}

func (d *duel) create() {
	name, s := d.someShare()
	bytes := d.random.Uint64N(80 * Unit)
	if d.random.IntN(4) == 0 {
		bytes = 0
	}
	_, err := d.core.CreateShare(d.now, Spec{Name: name, MemoryBytes: bytes}, 0)
	d.say("create %s %d: %v", name, bytes, err)
	want := s == nil && (bytes == 0 || bytes >= twinContext && bytes <= d.twin.left(nil))
	d.must((err == nil) == want, "create %s %d: %v, the twin says %v", name, bytes, err, want)
	if err == nil {
		d.twin.shares[name] = &twinShare{limit: bytes, used: map[ClientID]uint64{}, attached: map[ClientID]bool{}}
	}
}

func (d *duel) remove() {
	name, s := d.someShare()
	force := d.random.IntN(2) == 0
	err := d.core.DeleteShare(d.now, name, force, 0)
	d.say("delete %s %v: %v", name, force, err)
	want := s != nil && (force || len(s.attached) == 0)
	d.must((err == nil) == want, "delete %s: %v, the twin says %v", name, err, want)
	if err == nil {
		s.revoked = true
		d.sweep(name)
	}
}

// sweep forgets a deleted share without clients.
func (d *duel) sweep(name string) {
	if s := d.twin.shares[name]; s.revoked && len(s.used) == 0 {
		delete(d.twin.shares, name)
	}
}

func (d *duel) resize() {
	name, s := d.someShare()
	bytes := d.random.Uint64N(90 * Unit)
	_, err := d.core.ChangeShare(d.now, name, Change{MemoryBytes: &bytes}, 0)
	d.say("resize %s %d: %v", name, bytes, err)
	want := s != nil && !s.revoked && (bytes == s.limit || bytes >= twinContext &&
		(s.limit > 0 && bytes < s.limit || bytes <= d.twin.left(s)))
	if s != nil && s.limit == 0 && !s.revoked && bytes >= twinContext && bytes < s.sum() {
		// From no promise to one that is in use already: that use stays booked.
		want = s.sum() <= d.twin.left(s)
	}
	d.must((err == nil) == want, "resize %s: %v, the twin says %v", name, err, want)
	if err == nil {
		s.limit = bytes
	}
}

func (d *duel) alloc() {
	name, s, id, ok := d.someClient()
	if !ok || !s.attached[id] {
		return
	}
	bytes := d.random.Uint64N(40*Unit) + 1
	whole := (bytes + Unit - 1) / Unit * Unit
	if d.random.IntN(50) == 0 {
		bytes = ^uint64(0) - d.random.Uint64N(3*Unit)
		whole = bytes
	}
	dying, died := d.someoneDies(s, id)
	want := d.twin.mayAlloc(s, id, whole)
	free := d.freeOf(s)
	answer, way := d.pages.alloc(d.now, id, bytes)
	d.say("alloc %s %d %d: %+v %s", name, id, bytes, answer, way)
	if answer.Waiting {
		answer = d.awaitAnswer(dying, died, s, id, whole)
		want = d.twin.mayAlloc(s, id, whole)
		free = d.freeOf(s)
	}
	d.must(answer.Granted == want, "alloc of %d for %d: %+v, the twin says %v", bytes, id, answer, want)
	if answer.Granted {
		s.used[id] += whole
	} else {
		free -= free % Unit
		d.must(answer.FreeBytes == free, "%d free, the twin says %d", answer.FreeBytes, free)
		d.must(answer.UsedBytes == s.sum(), "%d used, the twin says %d", answer.UsedBytes, s.sum())
	}
}

func (d *duel) freeOf(s *twinShare) uint64 {
	switch {
	case s.revoked:
	case s.limit == 0:
		return d.twin.left(nil)
	case s.sum() < s.limit:
		return s.limit - s.sum()
	}
	return 0
}

// someoneDies lets another client of a share die right before this one asks.
func (d *duel) someoneDies(s *twinShare, but ClientID) (ClientID, bool) {
	if d.random.IntN(4) > 0 {
		return 0, false
	}
	for id := range d.next {
		if s.attached[id] && id != but && s.used[id] > 0 {
			d.say("die %d", id)
			d.core.Died(d.now, id)
			delete(s.attached, id)
			return id, true
		}
	}
	return 0, false
}

// awaitAnswer lets the driver release what a charge waits for, or the time for that
// pass, and returns the answer.
func (d *duel) awaitAnswer(dying ClientID, died bool, s *twinShare, id ClientID, bytes uint64) Answer {
	d.must(died && s.attached[id] && !s.revoked, "%d waits, and nobody has just ended", id)
	d.must(!d.twin.mayAlloc(s, id, bytes), "%d waits for what there is", id)
	if d.random.IntN(2) == 0 {
		d.say("release %d", dying)
		d.release(dying)
		delete(s.used, dying)
		// More than one may have died lately: what else comes is waited for, too.
		if orders := d.core.Drain(); len(orders.Answers) > 0 {
			d.must(len(orders.Answers) == 1 && orders.Answers[0].Client == id, "answers %+v", orders.Answers)
			return orders.Answers[0]
		}
	}
	d.must(!d.core.NextWake().After(d.now.Add(comingFor)), "%d waits for longer than it may", id)
	d.now = d.now.Add(comingFor)
	d.core.Tick(d.now)
	orders := d.core.Drain()
	d.must(len(orders.Answers) == 1 && orders.Answers[0].Client == id && !orders.Answers[0].Waiting, "answers %+v", orders.Answers)
	return orders.Answers[0]
}

// release lets the driver hold nothing for one process.
func (d *duel) release(id ClientID) {
	account := Account{At: d.now}
	for _, other := range d.twin.shares {
		for held := range other.used {
			if held != id {
				account.Processes = append(account.Processes, Holding{PID: process(held).PID})
			}
		}
	}
	for d.core.ReleaseEnded(d.now, "GPU-a", account) {
	}
}

// end lets a client die, or the driver let go of a dead one.
func (d *duel) end() {
	name, s, id, ok := d.someClient()
	if !ok {
		return
	}
	if s.attached[id] {
		d.say("die %d", id)
		delete(s.attached, id)
		d.core.Died(d.now, id)
		if s.used[id] == 0 {
			delete(s.used, id)
		}
	} else {
		d.say("release %d", id)
		d.release(id)
		delete(s.used, id)
	}
	d.sweep(name)
}

func (d *duel) restart() {
	d.say("restart")
	shares, clients := d.core.Saved()
	d.start()
	d.core.Recover(d.now, shares, clients)
	for name, s := range d.twin.shares {
		for id := range s.used {
			if !s.attached[id] {
				d.core.Died(d.now, id)
				continue
			}
			err := d.pages.comeBack(d.now, id, name, process(id))
			d.must(err == nil, "return of %d: %v", id, err)
		}
	}
	d.must(d.core.graceEnd.IsZero(), "all are back, and the core waits")
}

func (d *duel) compare() {
	if err := d.core.check(); err != nil {
		d.must(false, "%v", err)
	}
	d.must(len(d.core.shares) == len(d.twin.shares), "%d shares, the twin has %d", len(d.core.shares), len(d.twin.shares))
	for name, s := range d.twin.shares {
		view, err := d.core.Share(name)
		d.must(err == nil && view.UsedBytes == s.sum() && view.Clients == len(s.used),
			"share %s: %+v, %v; the twin has %+v", name, view, err, *s)
		seen := s.sum() // of one that ended after a restart, before it was back, only what it was granted is known
		for _, cl := range d.core.byName[name].clients.all {
			if cl.unseen {
				seen -= cl.granted()
			}
		}
		d.must(view.PeakBytes >= seen, "share %s: peak %d under use %d", name, view.PeakBytes, seen)
	}
	d.must(d.core.Cards()[0].FreeToBookBytes == d.twin.left(nil), "%d free to book, the twin says %d",
		d.core.Cards()[0].FreeToBookBytes, d.twin.left(nil))
}

// A failure is one of ours and has a kind that maps to an exit code.
func TestFailuresHaveKinds(t *testing.T) {
	core := New(Config{MaxShares: 1}, nil, newFakePages())
	_, err := core.CreateShare(time.Unix(0, 0), Spec{Name: "a"}, 0)
	var failure *Failure
	if !errors.As(err, &failure) || failure.Kind != NotFound || failure.Hint == "" {
		t.Errorf("a machine without GPUs: %#v", err)
	}
}
