// SPDX-License-Identifier: Apache-2.0

package silicon

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func newMachine(t *testing.T, spec string, limits Limits) *Machine {
	t.Helper()
	cards, err := ParseSpec(spec, 1)
	if err != nil {
		t.Fatal(err)
	}
	return New(cards, limits)
}

func attach(t *testing.T, m *Machine, pid int) ProcessID {
	t.Helper()
	id, err := m.Attach(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func usedBytes(t *testing.T, m *Machine, card int) uint64 {
	t.Helper()
	_, used, _, err := m.Card(card)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

func TestCapacity(t *testing.T) {
	m := newMachine(t, "T4", DefaultLimits())
	usable := m.cards[0].UsableBytes()
	a, b := attach(t, m, 10), attach(t, m, 11)
	if err := m.Charge(a, 0, Linear, usable, 1); err != nil {
		t.Fatal(err)
	}
	if err := m.Charge(b, 0, Linear, 1, 2); !errors.Is(err, ErrNoRoom) {
		t.Fatalf("a byte on a full GPU: %v", err)
	}
	if err := m.Release(a, 0, Linear, usable+1); !errors.Is(err, ErrInvalid) {
		t.Errorf("giving back more than is held: %v", err)
	}
	if err := m.Release(b, 0, Linear, 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("giving back what another holds: %v", err)
	}
	if err := m.Release(a, 0, Array, 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("giving back another kind: %v", err)
	}
	if events, _ := m.Events(0, 10); len(events) != 1 || events[0].Kind != EventNoRoom || events[0].Process != b || events[0].TimeNS != 2 {
		t.Errorf("events %+v", events)
	}
	if gone := m.End(a, 9); len(gone) != 0 {
		t.Errorf("objects %v are gone", gone)
	}
	if err := m.Charge(b, 0, Linear, usable, 10); err != nil {
		t.Errorf("the GPU after its holder's death: %v", err)
	}
	releases, last := m.Releases(0, 10)
	if len(releases) != 1 || last != 1 || releases[0] != (Release{Number: 1, TimeNS: 9, Process: a, PID: 10, Bytes: usable}) {
		t.Errorf("releases %+v", releases)
	}
	dead, _ := m.Dead(0, 10)
	if len(dead) != 1 || !dead[0].Dead || dead[0].PeakBytes != usable || dead[0].Bytes != 0 || dead[0].PID != 10 {
		t.Errorf("dead %+v", dead)
	}
}

// A context's limits change its size, not the number of contexts.
func TestAdjustContext(t *testing.T) {
	m := newMachine(t, "T4", DefaultLimits())
	a := attach(t, m, 1)
	if err := m.Charge(a, 0, Context, 64*MiB, 0); err != nil {
		t.Fatal(err)
	}
	for _, change := range []int64{32 * MiB, -32 * MiB} {
		if err := m.Adjust(a, 0, Context, change, 0); err != nil {
			t.Fatal(err)
		}
	}
	list, _ := m.Processes(0, 0, 10)
	if len(list) != 1 || list[0].Contexts != 1 || list[0].KindBytes[Context] != 64*MiB || list[0].PeakBytes != 96*MiB {
		t.Errorf("%+v", list)
	}
}

func TestInvalidRequests(t *testing.T) {
	m := newMachine(t, "T4", DefaultLimits())
	a := attach(t, m, 1)
	for name, err := range map[string]error{
		"charge nothing":        m.Charge(a, 0, Linear, 0, 0),
		"charge an object":      m.Charge(a, 0, Object, 1, 0),
		"charge unknown kind":   m.Charge(a, 0, 99, 1, 0),
		"release unknown kind":  m.Release(a, 0, 99, 1),
		"adjust below nothing":  m.Adjust(a, 0, Pool, -1, 0),
		"adjust by the minimum": m.Adjust(a, 0, Pool, -1<<63, 0),
		"adjust unknown kind":   m.Adjust(a, 0, 99, 1, 0),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := m.Charge(a, 1, Linear, 1, 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("GPU 1 of one: %v", err)
	}
	if err := m.Charge(a+1, 0, Linear, 1, 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("nobody's charge: %v", err)
	}
	if err := m.Charge(a, 0, Linear, 1<<63, 0); !errors.Is(err, ErrNoRoom) {
		t.Errorf("half of all bytes: %v", err)
	}
}

// An object outlives its creator while another process or a descriptor has it,
// and its bytes are shown at one process at a time.
func TestObjectLife(t *testing.T) {
	m := newMachine(t, "T4", DefaultLimits())
	a, b, c := attach(t, m, 1), attach(t, m, 2), attach(t, m, 3)
	o, err := m.CreateObject(a, 0, ObjectMemory, 4096, 77, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []ProcessID{c, b} {
		if info, err := m.ImportObject(id, o.ID, 0); err != nil || info != o {
			t.Fatalf("import: %+v, %v", info, err)
		}
	}
	shownAt := func(want ProcessID) {
		t.Helper()
		list, _ := m.Processes(0, 0, 10)
		if want == 0 && len(list) == 0 {
			return
		}
		if len(list) != 1 || list[0].Process != want || list[0].Bytes != 4096 {
			t.Fatalf("shown at %+v, want process %d", list, want)
		}
	}
	if gone, err := m.DropObject(a, o.ID); gone || err != nil {
		t.Fatalf("dropped by its creator: gone %v, %v", gone, err)
	}
	shownAt(a) // while it lives
	m.End(a, 0)
	shownAt(b) // the oldest other holder
	if err := m.ExportObject(b, o.ID); err != nil {
		t.Fatal(err)
	}
	m.End(b, 0)
	shownAt(c)
	m.End(c, 0)
	shownAt(0)
	if used := usedBytes(t, m, 0); used != 4096 {
		t.Fatalf("%d bytes used while a descriptor is open", used)
	}
	d := attach(t, m, 4)
	if _, err := m.ImportObject(d, o.ID, 0); err != nil {
		t.Fatal(err)
	}
	shownAt(d)
	if m.ExportClosed(o.ID) {
		t.Fatal("gone though a process holds it")
	}
	if gone, err := m.DropObject(d, o.ID); !gone || err != nil {
		t.Fatalf("the last drop: gone %v, %v", gone, err)
	}
	if used := usedBytes(t, m, 0); used != 0 {
		t.Fatalf("%d bytes used in the end", used)
	}
	if _, err := m.ImportObject(d, o.ID, 0); !errors.Is(err, ErrNotFound) {
		t.Fatalf("import of what is gone: %v", err)
	}
	if m.ExportClosed(o.ID) {
		t.Fatal("gone twice")
	}
}

func TestHandles(t *testing.T) {
	m := newMachine(t, "T4", DefaultLimits())
	a, b := attach(t, m, 1), attach(t, m, 2)
	info := HandleInfo{Card: 0, Kind: HandleMemory, Offset: 512, Bytes: 1024, Token: 5}
	h, err := m.ExportHandle(a, info, Handle{1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := m.ExportHandle(a, info, Handle{2}, 0); err != nil || again != h {
		t.Errorf("the same place has another handle: %v, %v", again, err)
	}
	if _, err := m.OpenHandle(a, h); !errors.Is(err, ErrOwn) {
		t.Errorf("its own: %v", err)
	}
	info.Process = a
	if got, err := m.OpenHandle(b, h); err != nil || got != info {
		t.Errorf("opened %+v, %v", got, err)
	}
	if err := m.RevokeHandle(b, 0, HandleMemory, 512); !errors.Is(err, ErrNotFound) {
		t.Errorf("revoked by another: %v", err)
	}
	if err := m.RevokeHandle(a, 0, HandleMemory, 512); err != nil {
		t.Error(err)
	}
	if _, err := m.OpenHandle(b, h); !errors.Is(err, ErrNotFound) {
		t.Errorf("opened after it was revoked: %v", err)
	}
	h, _ = m.ExportHandle(a, info, Handle{3}, 0)
	m.End(a, 0)
	if _, err := m.OpenHandle(b, h); !errors.Is(err, ErrNotFound) {
		t.Errorf("opened after its process ended: %v", err)
	}
}

func TestBounds(t *testing.T) {
	m := newMachine(t, "T4", Limits{Processes: 2, Objects: 2, Handles: 2, History: 3})
	a, b := attach(t, m, 1), attach(t, m, 2)
	if _, err := m.Attach(3, 0); !errors.Is(err, ErrLimit) {
		t.Errorf("a third process: %v", err)
	}
	for range 2 {
		o, err := m.CreateObject(a, 0, ObjectMemory, 512, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		// Dropped here and held there, it still counts.
		if _, err := m.ImportObject(b, o.ID, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := m.DropObject(a, o.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.CreateObject(a, 0, ObjectPool, 0, 0, 0); !errors.Is(err, ErrLimit) {
		t.Errorf("a third object: %v", err)
	}
	for i := range 3 {
		_, err := m.ExportHandle(a, HandleInfo{Kind: HandleEvent, Offset: uint64(i)}, Handle{byte(i + 1)}, 0)
		if (i < 2) != (err == nil) || (i == 2 && !errors.Is(err, ErrLimit)) {
			t.Errorf("handle %d: %v", i, err)
		}
	}
	m.Note(1, Event{Text: "last"})
	events, last := m.Events(0, 100)
	if len(events) != 3 || events[0].Number != 2 || last != 4 || events[2].Text != "last" {
		t.Errorf("kept events %+v, last %d", events, last)
	}
	if more, same := m.Events(last, 100); len(more) != 0 || same != last {
		t.Errorf("more events %+v", more)
	}
}

func TestProcessesPages(t *testing.T) {
	m := newMachine(t, "3xT4", DefaultLimits())
	var want []string
	for i := range 20 {
		id := attach(t, m, 100+i)
		if i%4 == 0 {
			want = append(want, fmt.Sprint(id, -1))
		}
		for card := range i % 4 {
			if err := m.Charge(id, card, Linear, 512, 0); err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprint(id, card))
		}
	}
	for room := 1; room < 9; room++ {
		var got []string
		var cursor uint64
		for first := true; first || cursor != 0; first = false {
			var page []Usage
			page, cursor = m.Processes(-1, cursor, room)
			for _, u := range page {
				got = append(got, fmt.Sprint(u.Process, u.Card))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v, want %v", room, got, want)
		}
	}
	if list, _ := m.Processes(2, 0, 100); len(list) != 5 {
		t.Errorf("%d processes on GPU 2, want 5", len(list))
	}
}

// twin does the accounting in the most obvious way: a list of who holds what.
type twin struct {
	holdings []holding
	usable   uint64
}

type holding struct {
	process ProcessID // 0: an orphan's
	kind    Kind
	bytes   uint64
	object  ObjectID
}

func (w *twin) used() (sum uint64) {
	for _, h := range w.holdings {
		sum += h.bytes
	}
	return sum
}

func (w *twin) of(id ProcessID) (sum uint64) {
	for _, h := range w.holdings {
		if h.process == id {
			sum += h.bytes
		}
	}
	return sum
}

// TestAgainstTwin compares the machine with the twin after each of many random
// requests on one card.
func TestAgainstTwin(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := newMachine(t, "T4", DefaultLimits())
		w := &twin{usable: m.cards[0].UsableBytes()}
		var live []ProcessID
		holders := map[ObjectID]map[ProcessID]int{}
		exports := map[ObjectID]int{}
		settle := func() { // objects with no holder and no export go
			for id, held := range holders {
				if len(held) == 0 && exports[id] == 0 {
					delete(holders, id)
					w.holdings = slices.DeleteFunc(w.holdings, func(h holding) bool { return h.object == id })
				}
			}
		}
		var peak uint64
		for step := range 3000 {
			if step%500 == 499 {
				m.Reset()
				peak = w.used()
			}
			if len(live) == 0 || (len(live) < 6 && r.IntN(20) == 0) {
				live = append(live, attach(t, m, step))
			}
			p := live[r.IntN(len(live))]
			bytes := uint64(r.IntN(1<<20)+1) << r.IntN(14)
			var objects []ObjectID
			for id := range holders {
				objects = append(objects, id)
			}
			slices.Sort(objects)
			var object ObjectID
			if len(objects) > 0 {
				object = objects[r.IntN(len(objects))]
			}
			fits := w.used()+bytes <= w.usable
			switch op := r.IntN(10); op {
			case 0, 1, 2:
				kind := Kind(r.IntN(int(Object)))
				if err := m.Charge(p, 0, kind, bytes, 0); (err == nil) != fits {
					t.Fatalf("seed %d step %d: charge %d: %v", seed, step, bytes, err)
				} else if fits {
					w.holdings = append(w.holdings, holding{process: p, kind: kind, bytes: bytes})
				}
			case 3, 4:
				at := slices.IndexFunc(w.holdings, func(h holding) bool { return h.process == p && h.object == 0 })
				if at < 0 {
					continue
				}
				if err := m.Release(p, 0, w.holdings[at].kind, w.holdings[at].bytes); err != nil {
					t.Fatalf("seed %d step %d: release: %v", seed, step, err)
				}
				w.holdings = slices.Delete(w.holdings, at, at+1)
			case 5:
				info, err := m.CreateObject(p, 0, ObjectMemory, bytes, 0, 0)
				if (err == nil) != fits {
					t.Fatalf("seed %d step %d: create %d: %v", seed, step, bytes, err)
				} else if fits {
					holders[info.ID] = map[ProcessID]int{p: 1}
					w.holdings = append(w.holdings, holding{process: p, kind: Object, bytes: bytes, object: info.ID})
				}
			case 6:
				if _, err := m.ImportObject(p, object, 0); (err == nil) != (object != 0) {
					t.Fatalf("seed %d step %d: import %d: %v", seed, step, object, err)
				} else if err == nil {
					holders[object][p]++
					at := slices.IndexFunc(w.holdings, func(h holding) bool { return h.object == object })
					if w.holdings[at].process == 0 {
						w.holdings[at].process = p
					}
				}
			case 7:
				held := holders[object][p] > 0
				if _, err := m.DropObject(p, object); (err == nil) != held {
					t.Fatalf("seed %d step %d: drop %d: %v", seed, step, object, err)
				} else if held {
					if holders[object][p]--; holders[object][p] == 0 {
						delete(holders[object], p)
					}
				}
			case 8:
				if r.IntN(2) == 0 && holders[object][p] > 0 {
					if err := m.ExportObject(p, object); err != nil {
						t.Fatal(err)
					}
					exports[object]++
				} else if exports[object] > 0 {
					m.ExportClosed(object)
					exports[object]--
				}
			case 9:
				if r.IntN(10) != 0 {
					continue
				}
				m.End(p, 0)
				live = slices.DeleteFunc(live, func(id ProcessID) bool { return id == p })
				for i := range w.holdings {
					h := &w.holdings[i]
					if h.process != p {
						continue
					}
					if h.object == 0 {
						h.bytes = 0
						continue
					}
					h.process = 0
					for _, id := range live { // rising: the oldest first
						if holders[h.object][id] > 0 {
							h.process = id
							break
						}
					}
				}
				w.holdings = slices.DeleteFunc(w.holdings, func(h holding) bool { return h.bytes == 0 })
				for _, held := range holders {
					delete(held, p)
				}
			}
			settle()
			if got := usedBytes(t, m, 0); got != w.used() {
				t.Fatalf("seed %d step %d: %d bytes used, twin says %d", seed, step, got, w.used())
			}
			if peak = max(peak, w.used()); m.PeakBytes(0) != peak {
				t.Fatalf("seed %d step %d: peak of %d bytes, twin says %d", seed, step, m.PeakBytes(0), peak)
			}
			if m.cards[0].orphans != w.of(0) {
				t.Fatalf("seed %d step %d: %d orphaned bytes, twin says %d", seed, step, m.cards[0].orphans, w.of(0))
			}
			for _, id := range live {
				if u := m.processes[id].usage[0]; u.Bytes != w.of(id) || u.PeakBytes < u.Bytes {
					t.Fatalf("seed %d step %d: process %d holds %+v, twin says %d", seed, step, id, u, w.of(id))
				}
			}
		}
		for _, id := range live {
			m.End(id, 0)
		}
		for id, n := range exports {
			for range n {
				m.ExportClosed(id)
			}
		}
		if used := usedBytes(t, m, 0); used != 0 || len(m.objects) != 0 {
			t.Fatalf("seed %d: %d bytes and %d objects are left in the end", seed, used, len(m.objects))
		}
	}
}
