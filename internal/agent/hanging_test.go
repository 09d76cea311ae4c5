// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

const otherUUID = "GPU-10010203-0405-0607-0809-0a0b0c0d0e0f"

// hangingSource is a driver of two cards, of which the second does not answer while it
// hangs, and which then tells of no faults either.
type hangingSource struct {
	*fakeSource
	hangs atomic.Pointer[chan struct{}] // closed when it answers again
}

func newHangingSource() *hangingSource {
	s := &hangingSource{fakeSource: newFakeSource()}
	s.hang()
	return s
}

func (s *hangingSource) hang() {
	hangs := make(chan struct{})
	s.hangs.Store(&hangs)
}

func (s *hangingSource) answer() { close(*s.hangs.Load()) }

func (s *hangingSource) Cards() ([]gpu.Card, error) {
	cards, err := s.fakeSource.Cards()
	other := cards[0]
	other.UUID, other.Name = otherUUID, "the other"
	return append(cards, other), err
}

func (s *hangingSource) wait(uuid string) {
	if uuid == otherUUID {
		<-*s.hangs.Load()
	}
}

func (s *hangingSource) Account(uuid string) (gpu.Account, error) {
	s.wait(uuid)
	return s.fakeSource.Account(uuid)
}

func (s *hangingSource) Processes(uuid string) ([]gpu.Process, error) {
	s.wait(uuid)
	return s.fakeSource.Processes(uuid)
}

func (s *hangingSource) Health(uuid string) (gpu.Health, error) {
	s.wait(uuid)
	return s.fakeSource.Health(uuid)
}

func (s *hangingSource) Telemetry(uuid string) (gpu.Telemetry, error) {
	s.wait(uuid)
	return s.fakeSource.Telemetry(uuid)
}

func (s *hangingSource) Activity(uuid string, since time.Time) (gpu.Activity, error) {
	s.wait(uuid)
	return s.fakeSource.Activity(uuid, since)
}

func (s *hangingSource) Faults(time.Duration) ([]gpu.Fault, error) {
	<-*s.hangs.Load()
	return nil, gpu.ErrNotSupported
}

func (s *hangingSource) LimitsMemory(uuid string) error {
	s.wait(uuid)
	return nil
}

func (s *hangingSource) SetMemoryLimit(uuid, _ string, _ uint64) error { return s.LimitsMemory(uuid) }

func (s *hangingSource) MemoryLimit(uuid, _ string) (limit, held uint64, err error) {
	return 1, 0, s.LimitsMemory(uuid)
}

// A driver that hangs keeps nobody for longer than a question may take, once; what is
// known is told, and which card it is; other cards take shares. When it answers again so
// does its card.
func TestHangingDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHangingSource()
		cards, _ := s.Cards()
		saved, _, _, err := readState(filepath.Join(t.TempDir(), "journal"))
		must(t, err)
		l := &loop{
			slowed: map[string]bool{},
			daemon: newDaemon(defaults(), s, cards, nil),
			state:  saved, pages: &pages{}, core: core.New(core.Config{MaxShares: 10}, []core.Card{
				{UUID: testUUID, Name: "one", UsableBytes: 80 * gib}, {UUID: otherUUID, Name: "the other", UsableBytes: 80 * gib},
			}, &pages{}),
		}
		ctx, leave := context.WithCancel(t.Context())
		end := make(chan struct{})
		d := l.driverWatch
		go l.run(ctx, end)
		watched := make(chan struct{})
		go func() {
			d.watchCards(ctx)
			close(watched)
		}()
		within := func(most time.Duration, f func()) {
			t.Helper()
			began := time.Now() // by the clock of the bubble
			f()
			if took := time.Since(began); took > most {
				t.Errorf("it took %v, more than %v", took, most)
			}
		}
		conditions := func(one, other core.Condition) {
			t.Helper()
			var unresponsive []string
			_ = d.do(ctx, func(l *loop) {
				if a, b := l.core.Condition(testUUID), l.core.Condition(otherUUID); a != one || b != other {
					t.Errorf("the cards are %q and %q, want %q and %q", a, b, one, other)
				}
				unresponsive = l.unresponsive()
			})
			if silent := other == core.ConditionUnresponsive; silent != (len(unresponsive) == 1 && unresponsive[0] == otherUUID) {
				t.Errorf("unresponsive: %v", unresponsive)
			}
		}
		create := func(name, card string) error {
			var err error
			_ = d.do(ctx, func(l *loop) {
				_, err = l.core.CreateShare(l.now, core.Spec{Name: name, GPU: card, MemoryBytes: gib}, 0)
			})
			return err
		}
		within(answerFor, func() { d.reconcile(ctx) })
		conditions(core.ConditionWell, core.ConditionUnresponsive)
		within(0, func() { d.reconcile(ctx) }) // it has had its time
		within(0, func() { d.examine(ctx) })
		var failure *core.Failure
		if err := create("there", otherUUID); !errors.As(err, &failure) || failure.Kind != core.Unavailable ||
			!strings.Contains(failure.Message, otherUUID) || !strings.Contains(failure.Message, "its driver has not answered for 3s") ||
			!strings.Contains(failure.Hint, "reset") {
			t.Errorf("a share on it: %+v", failure)
		}
		if err := create("elsewhere", ""); err != nil {
			t.Errorf("a share on the other card: %v", err)
		}
		if err := create("one", testUUID); err != nil {
			t.Errorf("another one: %v", err)
		}
		<-time.After(time.Hour)
		conditions(core.ConditionWell, core.ConditionUnresponsive)
		s.answer()
		<-time.After(2 * sickEvery)
		conditions(core.ConditionWell, core.ConditionWell)
		if err := create("there", otherUUID); err != nil {
			t.Errorf("a share on a card that answers again: %v", err)
		}
		// The agent ends while a driver hangs.
		s.hang()
		<-time.After(time.Minute)
		within(0, func() {
			leave()
			<-watched
		})
		close(end)
		s.answer()
	})
}

// Each question about limits has its time, and those that come meanwhile have none;
// those about other cards are answered.
func TestHangingLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHangingSource()
		limits := newDriverLimits(s)
		ask := func(uuid string, want error, takes time.Duration) {
			t.Helper()
			began := time.Now()
			_, _, err := limits.MemoryLimit(uuid, "group")
			if took := time.Since(began); !errors.Is(err, want) || took != takes {
				t.Errorf("%v after %v, want %v after %v", err, took, want, takes)
			}
		}
		ask(otherUUID, errSlow, answerFor)
		ask(otherUUID, errSlow, 0)
		ask(testUUID, nil, 0)
		if err := limits.SetMemoryLimit(otherUUID, "group", 1); !errors.Is(err, errSlow) {
			t.Errorf("to set a limit: %v", err)
		}
		s.answer()
		synctest.Wait()
		ask(otherUUID, nil, 0)
		if err := errors.Join(limits.LimitsMemory(otherUUID), limits.SetMemoryLimit(otherUUID, "group", 1)); err != nil {
			t.Error(err)
		}
	})
}
