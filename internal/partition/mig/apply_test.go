// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	facts "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// fakeDriver is one card in memory that holds to the order of things, and fails
// or "crashes" when told to.
type fakeDriver struct {
	State
	card   partition.Card
	nextID int
	calls  int
	failAt int  // the call that fails, from 1; 0: none
	late   bool // it fails after its effect
	dead   bool // all that comes after a crash fails
	crash  bool
	lie    bool   // reports success and does nothing
	begun  func() // what happens while a call runs; nil: nothing
}

func (d *fakeDriver) Observe(context.Context, string) (partition.Card, error) {
	if d.dead {
		return partition.Card{}, errFake
	}
	return d.now(), nil
}

func (d *fakeDriver) Do(_ context.Context, _ string, s partition.Step) error {
	if d.dead {
		return errFake
	}
	d.calls++
	if d.begun != nil {
		d.begun()
	}
	fails := d.calls == d.failAt
	if fails && !d.late {
		d.dead = d.crash
		return errFake
	}
	if d.lie {
		return nil
	}
	if err := d.do(s); err != nil {
		return err
	}
	if fails {
		d.dead = d.crash
		return errFake
	}
	return nil
}

// fake is a card in memory, with a driver that fails so.
func fake(c partition.Card, d fakeDriver) *fakeDriver {
	d.State, d.card = Of(c), c
	return &d
}

// now is the card as it is.
func (d *fakeDriver) now() partition.Card {
	s := d.State
	s.Instances = slices.Clone(s.Instances)
	return d.card.With(partition.TechniqueMIG, &s)
}

func (d *fakeDriver) do(s partition.Step) error {
	at := slices.IndexFunc(d.Instances, func(i Instance) bool { return i.Profile == s.Profile && i.Start == s.Start })
	d.Instances = slices.Clone(d.Instances)
	switch s.Action {
	case actionOn, actionOff:
		if len(d.Instances) > 0 || d.On == (s.Action == actionOn) {
			return fmt.Errorf("%s with %s", s, d.now().Layout())
		}
		d.On = s.Action == actionOn
	case partition.ActionReset:
	case actionCreate:
		if at >= 0 || !d.On {
			return fmt.Errorf("%s with %s", s, d.now().Layout())
		}
		d.nextID++
		d.Instances = append(d.Instances, Instance{ID: 100 + d.nextID, Profile: s.Profile, Start: s.Start, Compute: []int{}})
	case actionDestroy, actionClear, actionCompute:
		if at < 0 {
			return fmt.Errorf("%s with %s", s, d.now().Layout())
		}
		switch s.Action {
		case actionDestroy:
			d.Instances = slices.Delete(d.Instances, at, at+1)
		case actionClear:
			d.Instances[at].Compute = []int{}
		default:
			d.Instances[at].Compute = sorted(append(slices.Clone(d.Instances[at].Compute), s.Slices))
		}
	}
	return nil
}

// fakeLog keeps records, and fails when told to.
type fakeLog struct {
	records [][]byte
	failAt  int
	late    bool
	calls   int
}

func (l *fakeLog) Append(record []byte) error {
	l.calls++
	if l.calls == l.failAt && !l.late {
		return errFake
	}
	l.records = append(l.records, record)
	if l.calls == l.failAt {
		return errFake
	}
	return nil
}

func planner(t *testing.T) partition.Planner {
	t.Helper()
	return migPlanner(products(t))
}

func products(t *testing.T) *facts.Table {
	t.Helper()
	table, err := facts.Default()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func migPlanner(table *facts.Table) partition.Planner {
	return partition.Planner{Techniques: partition.Techniques{New(table, nil)}}
}

// rule wants MIG.
func rule(m Goal) partition.Rule {
	return partition.Rule{Wants: partition.Wants{partition.TechniqueMIG: &m}}
}

// on is a card with its mode on, and instances.
func on(c partition.Card, instances ...Instance) partition.Card {
	return c.With(partition.TechniqueMIG, &State{On: true, Instances: instances})
}

func a100(mode bool, instances ...Instance) partition.Card {
	c := partition.Card{UUID: "GPU-a100-0001", Name: "NVIDIA A100-SXM4-40GB", DeviceID: "0x20B0"}
	return c.With(partition.TechniqueMIG, &State{On: mode, Instances: instances})
}

// TestCrashAtEveryStep ends Apply at every call it makes, before and after the
// call's effect: what Recover leaves is the old state or the new one.
func TestCrashAtEveryStep(t *testing.T) {
	old := without(a100(true, Instance{ID: 1, Profile: "3g.20gb", Start: 0}, Instance{ID: 2, Profile: "2g.10gb", Start: 4}, Instance{ID: 3, Profile: "4g.20gb", Start: 9}), 2)
	for name, c := range map[string]struct {
		card partition.Card
		goal Goal
	}{
		"other instances": {old, Goal{Enabled: true, Devices: map[string]int{"1g.5gb": 7}}},
		"mode on":         {a100(false), Goal{Enabled: true, Devices: map[string]int{"3g.20gb": 1, "1g.5gb": 2}}},
		"mode off":        {old, Goal{}},
		"compute":         {old, Goal{Enabled: true, Devices: map[string]int{"1c.3g.20gb": 3, "2g.10gb": 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := planner(t)
			plan := p.Card(c.card, rule(c.goal))
			if plan.Refused != "" || len(plan.Steps) < 3 {
				t.Fatalf("%+v", plan)
			}
			ends := map[string]int{}
			for at := 1; at <= len(plan.Steps)+1; at++ {
				for _, late := range []bool{false, true} {
					d := fake(c.card, fakeDriver{failAt: at, late: late, crash: true})
					log := &fakeLog{}
					_, err := partition.Apply(t.Context(), planner(t).Techniques, d, log, plan)
					if (err == nil) != (at > len(plan.Steps)) {
						t.Fatalf("call %d: %v", at, err)
					}
					d.dead, d.failAt = false, 0
					outcome, err := partition.Recover(t.Context(), planner(t).Techniques, d, log, log.records)
					if err != nil {
						t.Fatalf("call %d, late %v: recover: %v", at, late, err)
					}
					switch d.now().Layout() {
					case plan.Before.Layout(), plan.After.Layout():
						ends[d.now().Layout()]++
					default:
						t.Fatalf("call %d, late %v: left between: %s (%v)", at, late, d.now().Layout(), outcome)
					}
					if again, err := partition.Recover(t.Context(), planner(t).Techniques, d, log, log.records); err != nil || len(again) > 0 {
						t.Fatalf("recovered twice: %v %v", again, err)
					}
				}
			}
			if len(ends) != 2 {
				t.Errorf("ended only in %v", ends)
			}
		})
	}
}

func without(c partition.Card, n int) partition.Card {
	s := Of(c)
	s.Instances = slices.Delete(slices.Clone(s.Instances), n, n+1)
	return c.With(partition.TechniqueMIG, &s)
}

// TestFailureRollsBack: a step that the driver refuses leaves the card as it was.
func TestFailureRollsBack(t *testing.T) {
	card := a100(true, Instance{ID: 1, Profile: "3g.20gb", Start: 4}, Instance{ID: 2, Profile: "2g.10gb", Start: 0})
	plan := planner(t).Card(card, rule(Goal{Enabled: true, Devices: map[string]int{"1g.5gb": 7}}))
	for at := 1; at <= len(plan.Steps); at++ {
		d := fake(card, fakeDriver{failAt: at})
		log := &fakeLog{}
		if _, err := partition.Apply(t.Context(), planner(t).Techniques, d, log, plan); !errors.Is(err, errFake) || !strings.Contains(err.Error(), "it is as it was") {
			t.Fatalf("step %d: %v", at, err)
		}
		if d.now().Layout() != card.Layout() {
			t.Errorf("step %d: left as %s", at, d.now().Layout())
		}
		if open, err := partition.Recover(t.Context(), planner(t).Techniques, d, log, log.records); err != nil || len(open) > 0 {
			t.Errorf("step %d: something to recover: %v %v", at, open, err)
		}
	}
}

// TestSuccessIsVerified: a driver that reports success and does nothing is found
// out.
func TestSuccessIsVerified(t *testing.T) {
	card := a100(true)
	plan := planner(t).Card(card, rule(Goal{Enabled: true, Devices: map[string]int{"7g.40gb": 1}}))
	if _, err := partition.Apply(t.Context(), planner(t).Techniques, fake(card, fakeDriver{lie: true}), &fakeLog{}, plan); err == nil || !strings.Contains(err.Error(), "reported success") {
		t.Errorf("%v", err)
	}
}

// TestLogFailures: nothing is changed before the plan is safe.
func TestLogFailures(t *testing.T) {
	card := a100(true)
	plan := planner(t).Card(card, rule(Goal{Enabled: true, Devices: map[string]int{"7g.40gb": 1}}))
	d := fake(card, fakeDriver{})
	if _, err := partition.Apply(t.Context(), planner(t).Techniques, d, &fakeLog{failAt: 1}, plan); !errors.Is(err, errFake) || d.calls != 0 {
		t.Errorf("%v after %d steps", err, d.calls)
	}
	d = fake(card, fakeDriver{})
	log := &fakeLog{failAt: 2}
	if _, err := partition.Apply(t.Context(), planner(t).Techniques, d, log, plan); !errors.Is(err, errFake) || !strings.Contains(err.Error(), "it is as planned") {
		t.Errorf("%v", err)
	}
	if outcome, err := partition.Recover(t.Context(), planner(t).Techniques, d, &fakeLog{}, log.records); err != nil || outcome[card.ID()] != partition.OutcomeDone {
		t.Errorf("%v %v", outcome, err)
	}
}

// TestWhatHappensBetween: a card that changed since, or is used now, is left
// alone; after a crash what is in use decides the direction.
func TestWhatHappensBetween(t *testing.T) {
	card := a100(true, Instance{ID: 1, Profile: "3g.20gb", Start: 0})
	plan := planner(t).Card(card, rule(Goal{Enabled: true, Devices: map[string]int{"1g.5gb": 2}}))
	d := fake(a100(true), fakeDriver{})
	if _, err := partition.Apply(t.Context(), planner(t).Techniques, d, &fakeLog{}, plan); !errors.Is(err, partition.ErrChanged) || d.calls > 0 {
		t.Errorf("changed: %v", err)
	}
	used := a100(true, Instance{ID: 1, Profile: "3g.20gb", Start: 0, Processes: []partition.Process{{PID: 42, Command: "train"}}})
	d = fake(used, fakeDriver{})
	if _, err := partition.Apply(t.Context(), planner(t).Techniques, d, &fakeLog{}, plan); !errors.Is(err, partition.ErrInUse) || !strings.Contains(err.Error(), "42 (train)") || d.calls > 0 {
		t.Errorf("used: %v", err)
	}

	d = fake(card, fakeDriver{failAt: 4, crash: true}) // one of two instances is complete
	log := &fakeLog{}
	if _, err := partition.Apply(t.Context(), planner(t).Techniques, d, log, plan); err == nil {
		t.Fatal("no crash")
	}
	d.dead, d.failAt = false, 0
	d.Instances[0].Processes = []partition.Process{{PID: 43}}
	outcome, err := partition.Recover(t.Context(), planner(t).Techniques, d, log, log.records)
	if err != nil || outcome[card.ID()] != partition.OutcomeDone || d.now().Layout() != plan.After.Layout() {
		t.Errorf("%v %v: %s", outcome, err, d.now().Layout())
	}
}

// TestWayBackInUse: what somebody began to use meanwhile is not taken on the way
// back either, and the next apply goes on.
func TestWayBackInUse(t *testing.T) {
	card := a100(true, Instance{ID: 1, Profile: "3g.20gb", Start: 0})
	plan := planner(t).Card(card, rule(Goal{Enabled: true, Devices: map[string]int{"1g.5gb": 2}}))
	d, log := fake(card, fakeDriver{failAt: 4}), &fakeLog{}
	d.begun = func() {
		if d.calls == d.failAt {
			d.Instances[0].Processes = []partition.Process{{PID: 43}}
		}
	}
	if _, err := partition.Apply(t.Context(), planner(t).Techniques, d, log, plan); !errors.Is(err, partition.ErrInUse) || !strings.Contains(err.Error(), "the way back, which the next apply goes on with: in use: ") || d.calls != 4 {
		t.Fatalf("%v after %d steps", err, d.calls)
	}
	if outcome, err := partition.Recover(t.Context(), planner(t).Techniques, d, log, log.records); err != nil || outcome[card.ID()] != partition.OutcomeDone {
		t.Errorf("%v %v", outcome, err)
	}
}

// TestInterrupted: an apply whose context ends takes no further step and goes back.
func TestInterrupted(t *testing.T) {
	card := a100(true, Instance{ID: 1, Profile: "3g.20gb", Start: 0})
	plan := planner(t).Card(card, rule(Goal{Enabled: true, Devices: map[string]int{"1g.5gb": 2}}))
	for at := 1; at < len(plan.Steps); at++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		d := fake(card, fakeDriver{})
		d.begun = func() {
			if d.calls == at {
				cancel(errors.New("interrupt"))
			}
		}
		_, err := partition.Apply(ctx, planner(t).Techniques, d, &fakeLog{}, plan)
		if want := plan.Steps[at].String() + ": not begun: interrupt; it is as it was"; err == nil || !strings.Contains(err.Error(), want) || d.now().Layout() != card.Layout() {
			t.Errorf("step %d: %v, left as %s", at, err, d.now().Layout())
		}
	}
}

func TestBrokenLog(t *testing.T) {
	for _, records := range [][][]byte{{[]byte("{")}, {[]byte(`{"event":"x"}`)}, {[]byte(`{"event":"begin","id":"a"}`)}} {
		if _, err := partition.Recover(t.Context(), planner(t).Techniques, &fakeDriver{}, &fakeLog{}, records); !errors.Is(err, partition.ErrLog) {
			t.Errorf("%s: %v", records, err)
		}
	}
}
