// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// launcher is a compute process with a ring, as far as the simulator can tell.
type launcher struct {
	t    *testing.T
	conn *net.UnixConn
	ring *ring
	head uint64
}

func newLauncher(t *testing.T, socket string) *launcher {
	t.Helper()
	l := &launcher{t: t, conn: raw(t, socket)}
	if h := ask(t, l.conn, simwire.Header{Type: simwire.Hello, Kind: simwire.RoleCompute}, nil); h.Status != simwire.OK {
		t.Fatalf("hello: %v", h.Status)
	}
	send(t, l.conn, simwire.Header{Type: simwire.Ring}, nil)
	packet, rights := make([]byte, simwire.PacketBytes), make([]byte, unix.CmsgSpace(4*4))
	_, n, flags, _, err := l.conn.ReadMsgUnix(packet, rights)
	if err != nil {
		t.Fatal(err)
	}
	file, err := oneFile(rights[:n], flags)
	if err != nil || file == nil {
		t.Fatalf("the ring: %v, %v", file, err)
	}
	if l.ring, err = mapRing(file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.ring.unmap()
		_ = file.Close()
	})
	return l
}

// put writes an item and returns its number.
func (l *launcher) put(w simwire.ItemInfo) uint64 {
	l.t.Helper()
	at := simwire.RingOffsetEntries + int(l.head%simwire.RingEntries)*simwire.ItemSize
	if _, err := binary.Encode(l.ring.memory[at:at+simwire.ItemSize], binary.LittleEndian, &w); err != nil {
		l.t.Fatal(err)
	}
	l.head++
	l.setHead(l.head)
	return l.head
}

func (l *launcher) setHead(head uint64) {
	atomic.StoreUint64(l.ring.word(simwire.RingOffsetHead), head)
}

func (l *launcher) wait(item uint64) simwire.Header {
	l.t.Helper()
	return ask(l.t, l.conn, simwire.Header{Type: simwire.Wait, Object: item}, nil)
}

func TestRing(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "2xT4"})
	l := newLauncher(t, socket)
	if runs, _, err := truth.Runs(t.Context(), 1, 0); len(runs) != 0 || !errors.Is(err, ErrForgotten) {
		t.Errorf("before it was asked: %v, %v", runs, err)
	}
	now := uint64(nowNS())
	kernel := l.put(simwire.ItemInfo{Kind: simwire.ItemKernel, Card: 1, DurationNS: 1e6, StampNS: now, Instructions: 7})
	// What it is told is exact, however late it asks, and stands in its slot too.
	h := l.wait(kernel)
	at := simwire.RingOffsetSlots + int(kernel-1)*simwire.SlotSize
	if h.Kind != simwire.Ends || atomic.LoadUint64(l.ring.word(at)) != kernel || atomic.LoadUint64(l.ring.word(at+8)) != now+1e6 {
		t.Fatalf("answer %+v, launched at %d", h, now)
	}
	gate := l.put(simwire.ItemInfo{Kind: simwire.ItemGate, StampNS: now, After: [4]uint64{kernel}})
	marker := l.put(simwire.ItemInfo{Kind: simwire.ItemMarker, StampNS: now, After: [4]uint64{gate}})
	if h := l.wait(marker); h.Kind != simwire.NotBefore || h.Offset <= now {
		t.Errorf("behind an open gate: %+v", h)
	}
	if h := ask(t, l.conn, simwire.Header{Type: simwire.GateDone, Object: marker}, nil); h.Status != simwire.Invalid {
		t.Errorf("opening what is no gate: %v", h.Status)
	}
	if h := ask(t, l.conn, simwire.Header{Type: simwire.GateDone, Object: gate, Offset: 1 << 63}, nil); h.Status != simwire.OK {
		t.Fatalf("opening a gate: %v", h.Status)
	}
	if h := l.wait(marker); h.Kind != simwire.Ends {
		t.Errorf("behind a gate that is open: %+v", h)
	}
	eventually(t, "its time is on the account", func() bool {
		times, err := truth.CardTime(t.Context())
		return err == nil && len(times) == 1 && times[0].Card == 1 && times[0].BusyNS == 1e6 && times[0].Kernels == 1 && times[0].Instructions == 7 && times[0].PID == os.Getpid()
	})
	if busy, at, err := truth.CardBusy(t.Context(), 1); err != nil || busy != 1e6 || at <= int64(now) {
		t.Errorf("the GPU was busy for %d ns until %d (%v)", busy, at, err)
	}
	if busy, _, err := truth.CardBusy(t.Context(), 0); err != nil || busy != 0 {
		t.Errorf("the other GPU was busy for %d ns (%v)", busy, err)
	}
	runs, until, err := truth.Runs(t.Context(), 1, int64(now))
	if err != nil || len(runs) != 1 || runs[0].FromNS != int64(now) || runs[0].ToNS != int64(now+1e6) || until <= runs[0].ToNS {
		t.Errorf("it ran at %+v, as far as is known at %d (%v)", runs, until, err)
	}
	l.put(simwire.ItemInfo{Kind: simwire.ItemKernel, Card: 1, DurationNS: 3600e9, StampNS: uint64(nowNS())})
	_ = l.conn.Close()
	eventually(t, "the dead are remembered", func() bool {
		times, err := truth.CardTime(t.Context())
		return err == nil && len(times) == 1 && times[0].Dead && times[0].BusyNS > 1e6 && times[0].BusyNS < 60e9
	})
	if err := truth.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if times, err := truth.CardTime(t.Context()); err != nil || len(times) != 0 {
		t.Errorf("after a reset: %+v, %v", times, err)
	}
}

// What makes no sense in a ring ends that ring, with an event, and nothing else.
func TestNonsenseInARing(t *testing.T) {
	good := simwire.ItemInfo{Kind: simwire.ItemKernel, DurationNS: 1000}
	for name, spoil := range map[string]func(l *launcher){
		"too many":       func(l *launcher) { l.setHead(l.head + simwire.RingEntries + 1) },
		"backwards":      func(l *launcher) { l.setHead(0) },
		"the last":       func(l *launcher) { l.setHead(1<<64 - 1) },
		"no such kind":   func(l *launcher) { l.put(simwire.ItemInfo{}) },
		"no such GPU":    func(l *launcher) { l.put(simwire.ItemInfo{Kind: simwire.ItemMarker, Card: 7}) },
		"all GPUs":       func(l *launcher) { l.put(simwire.ItemInfo{Kind: simwire.ItemMarker, Card: simwire.AllCards}) },
		"after a later":  func(l *launcher) { l.put(simwire.ItemInfo{Kind: simwire.ItemMarker, After: [4]uint64{1 << 40}}) },
		"after the last": func(l *launcher) { l.put(simwire.ItemInfo{Kind: simwire.ItemMarker, After: [4]uint64{1<<64 - 1}}) },
	} {
		t.Run(name, func(t *testing.T) {
			socket, truth := serve(t, Config{Cards: "T4"})
			other, l := newLauncher(t, socket), newLauncher(t, socket)
			l.put(good)
			if h := l.wait(1); h.Status != simwire.OK {
				t.Fatalf("before: %v", h.Status)
			}
			spoil(l)
			if h := l.wait(1); h.Status != simwire.Invalid {
				t.Errorf("afterwards it is answered %v", h.Status)
			}
			events, err := truth.Events(t.Context(), 0)
			if err != nil || len(events) != 1 || events[0].Kind != silicon.EventGarbage || events[0].PID != os.Getpid() {
				t.Errorf("events %+v, %v", events, err)
			}
			item := other.put(good)
			if h := other.wait(item); h.Status != simwire.OK {
				t.Errorf("another process is answered %v", h.Status)
			}
			if h := ask(t, l.conn, simwire.Header{Type: simwire.Charge, Bytes: 512}, nil); h.Status != simwire.OK {
				t.Errorf("memory afterwards: %v", h.Status)
			}
		})
	}
	// Durations and stamps that lie are cut to what can be.
	socket, _ := serve(t, Config{Cards: "T4"})
	l := newLauncher(t, socket)
	item := l.put(simwire.ItemInfo{Kind: simwire.ItemKernel, DurationNS: 0, StampNS: 1<<64 - 1})
	if h := l.wait(item); h.Status != simwire.OK || h.Offset > uint64(nowNS())+askAgainNS {
		t.Errorf("a kernel of the future: %+v", h)
	}
	item = l.put(simwire.ItemInfo{Kind: simwire.ItemKernel, DurationNS: 1<<64 - 1})
	if h := l.wait(item); h.Status != simwire.OK || h.Offset > uint64(nowNS())+maxKernelNS {
		t.Errorf("an endless kernel: %+v", h)
	}
}

// Whatever stands in a ring, its process is answered, and others go on.
func FuzzRing(f *testing.F) {
	var kernel [simwire.ItemSize]byte
	item := simwire.ItemInfo{Kind: simwire.ItemKernel, DurationNS: 1000}
	if _, err := binary.Encode(kernel[:], binary.LittleEndian, &item); err != nil {
		f.Fatal(err)
	}
	f.Add(uint64(1), kernel[:])
	f.Add(uint64(1<<64-1), []byte{})
	f.Fuzz(func(t *testing.T, head uint64, items []byte) {
		socket, truth := serve(t, Config{Cards: "T4"})
		other, l := newLauncher(t, socket), newLauncher(t, socket)
		copy(l.ring.memory[simwire.RingOffsetEntries:simwire.RingOffsetSlots], items)
		l.setHead(head)
		if h := l.wait(1); h.Status != simwire.OK && h.Status != simwire.Invalid {
			t.Errorf("answered %v", h.Status)
		}
		if h := other.wait(other.put(item)); h.Status != simwire.OK {
			t.Errorf("another process is answered %v", h.Status)
		}
		if h := ask(t, l.conn, simwire.Header{Type: simwire.Charge, Bytes: 512}, nil); h.Status != simwire.OK {
			t.Errorf("memory afterwards: %v", h.Status)
		}
		if _, err := truth.Events(t.Context(), 0); err != nil {
			t.Error(err)
		}
	})
}
