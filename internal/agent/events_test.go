// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

func sequences(events []api.Event) string {
	text := ""
	for _, e := range events {
		text += fmt.Sprintf("%d ", e.Sequence)
	}
	return text
}

func TestEventLogForgetsAndSaysSo(t *testing.T) {
	l := newEventLog(4)
	add := func(kind event.Kind) {
		events := []api.Event{{Kind: kind}}
		l.number(events)
		l.add(events...)
	}
	for range 3 {
		add("a")
	}
	if events, _, _ := l.after(1, 10); sequences(events) != "2 3 " {
		t.Errorf("after 1: %s", sequences(events))
	}
	for range 4 {
		add("b")
	}
	events, _, _ := l.after(1, 10)
	if sequences(events) != "3 4 5 6 7 " || events[0].Kind != "events-dropped" || events[0].Message != "2 events are forgotten: too many, or read too slowly" {
		t.Errorf("after 1: %s %+v", sequences(events), events[0])
	}
	if events, _, _ := l.after(7, 10); len(events) != 0 {
		t.Errorf("after the last: %s", sequences(events))
	}
	if events, _, _ := l.after(1<<60, 10); sequences(events) != "4 5 6 7 " {
		t.Errorf("after one that never was: %s", sequences(events))
	}
	_, more, _ := l.after(7, 10)
	add("c")
	select {
	case <-more:
	default:
		t.Error("nobody is woken")
	}
	l.end()
	if _, _, ended := l.after(8, 10); !ended {
		t.Error("it does not end")
	}
}

// Events, the number of an XID in them, and their own numbers go on when an agent was
// killed or has ended, also where the disk was full for a time.
func TestEventsOutliveTheAgent(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.MaxEvents = 8 })
	ctx := context.Background()
	var told []api.Event
	all := func() []api.Event {
		t.Helper()
		list, err := r.client.Events(ctx, 0)
		must(t, err)
		return list.Events
	}
	r.do(func(l *loop) {
		l.fault(gpu.Fault{UUID: testUUID, XID: 31}, 0, "")
		l.fault(gpu.Fault{UUID: testUUID, XID: 31}, 0, "")
	})
	told = all()
	if n := len(told); n != 2 || told[1].XID != 31 || told[0].XID != 31 || told[1].Sequence != 2 || told[1].Life == "" {
		t.Fatalf("%+v", told)
	}
	for _, end := range []func(){r.kill, func() { must(t, r.stop()) }} {
		end()
		r.start()
		r.do(func(l *loop) { l.fault(gpu.Fault{UUID: testUUID, XID: 92}, 0, "") })
		now := all()
		if len(now) != len(told)+1 || !reflect.DeepEqual(now[:len(told)], told) {
			t.Fatalf("before\n%+v\nnow\n%+v", told, now)
		}
		last := now[len(told)]
		if last.Sequence != told[len(told)-1].Sequence+1 || last.XID != 92 || last.Life == told[0].Life {
			t.Errorf("%+v", last)
		}
		told = now
	}
	// Where they could not be written they are, with all others, as soon as they can.
	r.do(func(l *loop) { l.kept.lost = l.now })
	r.do(func(l *loop) { l.fault(gpu.Fault{UUID: testUUID, XID: 13}, 0, "") })
	r.do(func(l *loop) { l.kept.lost = l.now.Add(-saveAgain) })
	for range 7 {
		r.do(func(l *loop) { l.fault(gpu.Fault{UUID: testUUID, XID: 13}, 0, "") })
	}
	told = all()
	r.kill()
	r.start()
	if now := all(); len(now) != len(told) || !reflect.DeepEqual(now[1:], told[1:]) || now[0].Kind != "events-dropped" {
		t.Errorf("%d events\n%+v\nbefore\n%+v", len(now), now, told)
	}
}

func TestFollow(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	got := make(chan api.Event, 100)
	ended := make(chan error)
	go func() {
		ended <- r.client.Follow(ctx, 0, func(e api.Event) error {
			got <- e
			return nil
		})
	}()
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	if e := <-got; e.Kind != "share-created" || e.Share != "a" || e.Sequence != 1 {
		t.Errorf("event %+v", e)
	}
	must(t, r.client.DeleteShare(ctx, "a", false))
	if e := <-got; e.Kind != "share-deleted" || e.Sequence != 2 {
		t.Errorf("event %+v", e)
	}
	must(t, r.stop())
	if err := <-ended; !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("the agent ends: %v", err)
	}
}

// Memory of processes that are on no ledger is found, and told once.
func TestUnledgeredMemory(t *testing.T) {
	r := newRig(t)
	r.source.hold(1, 5*gib)
	devices, err := r.client.Devices(context.Background())
	must(t, err)
	_, err = r.client.Devices(context.Background())
	must(t, err)
	if c := devices.Cards[0]; c.UnledgeredBytes != 5*gib || c.UsedBytes != 5*gib || !devices.Simulated {
		t.Errorf("GPU %+v", c)
	}
	events, err := r.client.Events(context.Background(), 0)
	must(t, err)
	if len(events.Events) != 1 || events.Events[0].Kind != "unledgered-memory" || events.Events[0].PID != 1 {
		t.Errorf("events %+v", events.Events)
	}
}

// Memory that no ledger knows is found without anybody's asking, and told with whose it is:
// of a process on no ledger, and of one past its own. It cannot be promised. The control: one
// that holds what its ledger says is not told of.
func TestMemoryPastTheLedger(t *testing.T) {
	r := newRig(t, func(c *Config) { c.LookEvery = 10 * time.Millisecond })
	uid := os.Getuid()
	sleeper := exec.Command("sleep", "600")
	must(t, sleeper.Start())
	t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() })
	r.source.hold(sleeper.Process.Pid, 20*gib)
	e := r.awaitEvent(event.UnledgeredMemory)
	if e.PID != sleeper.Process.Pid || e.UID == nil || *e.UID != uid || e.Bytes != 20*gib || !strings.Contains(e.Message, "(sleep)") {
		t.Errorf("event %+v", e)
	}
	_, err := r.client.CreateShare(t.Context(), api.ShareSpec{Name: "wide", MemoryBytes: 61 * gib})
	if e := wantCode(t, err, api.CodeNoRoom); e.Missing == nil || e.Missing.MemoryBytes != gib {
		t.Errorf("missing %+v, want 1 GiB", e.Missing)
	}
	r.source.hold(sleeper.Process.Pid, 0)
	r.share(api.ShareSpec{Name: "wide", MemoryBytes: 61 * gib}) // asked once more, it is free

	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	f := r.front("s")
	must(t, f.alloc(512*mib))
	r.source.hold(os.Getpid(), 512*mib)
	before := r.source.questions()
	eventually(t, "the driver is asked", func() bool { return r.source.questions() > before+2 })
	r.source.hold(os.Getpid(), 3*gib)
	eventually(t, "the process past its ledger is told", func() bool {
		events, err := r.client.Events(t.Context(), e.Sequence)
		must(t, err)
		for _, e := range events.Events {
			if e.Kind != event.UnledgeredMemory {
				continue
			}
			if e.PID != os.Getpid() || e.Share != "s" || e.UID == nil || *e.UID != uid || e.Bytes != 3*gib-512*mib {
				t.Fatalf("event %+v", e)
			}
			return true
		}
		return false
	})
	if c := r.card(); c.UnledgeredBytes != 3*gib-512*mib || c.FreeToBookBytes != (80-62-2)*gib {
		t.Errorf("GPU %+v", c)
	}
}

// An agent with clients and nothing to do asks the driver nothing, but once a second whose
// memory is there; its loop sleeps.
func TestNoTimersWhileNothingIsPending(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ReconcileEvery = 20 * time.Millisecond })
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	f := r.front("s")
	must(t, f.alloc(mib))
	var wake time.Time
	eventually(t, "the comparison after the attachment is done", func() bool {
		r.do(func(l *loop) { wake = l.nextWake() })
		return wake.IsZero()
	})
	before := r.source.questions()
	f.free(mib)
	must(t, f.alloc(mib))
	<-time.After(100 * time.Millisecond)
	if after := r.source.questions(); after > before+1 {
		t.Errorf("the driver was asked %d times", after-before)
	}
	r.do(func(l *loop) { wake = l.nextWake() })
	if !wake.IsZero() {
		t.Errorf("a timer is set for %v", wake)
	}
}
