// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Driver changes cards.
type Driver interface {
	// Observe reads how the card with this ID is divided and who uses it.
	Observe(ctx context.Context, id string) (Card, error)
	// Do takes one step.
	Do(ctx context.Context, id string, s Step) error
}

// Log keeps records over a crash; a record is safe when Append returns.
type Log interface {
	Append(record []byte) error
}

// ErrChanged says that a card is not as it was when the plan was made.
var ErrChanged = errors.New("the card changed since it was planned for")

// Records of the log: a card's change begins, and has ended one way or the
// other.
const (
	recordBegin = "begin"
	recordEnd   = "end"
)

type record struct {
	Event  string `json:"event"`
	ID     string `json:"id"` // of the card
	Before *Card  `json:"before,omitempty"`
	After  *Card  `json:"after,omitempty"`
}

func write(log Log, r record) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("keep the plan: %w", err)
	}
	if err := log.Append(raw); err != nil {
		return fmt.Errorf("keep the plan: %w", err)
	}
	return nil
}

// Apply carries out a card's plan, with the steps that can only be planned on the
// way, and returns all that it took. It ends in the planned state, or, with an
// error, in the state that was; only when the way back fails too is the card
// somewhere between, and Recover takes it up from the log.
func Apply(ctx context.Context, all Techniques, d Driver, log Log, p CardPlan) ([]Step, error) {
	if p.Refused != "" {
		return nil, fmt.Errorf("card %s: %s", p.UUID, p.Reason)
	}
	if len(p.Steps) == 0 {
		return nil, nil
	}
	id := p.Before.ID()
	now, err := d.Observe(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("observe card %s: %w", p.UUID, err)
	}
	if !now.alike(p.Before) {
		return nil, fmt.Errorf("card %s: %w: it was %q and is %q", p.UUID, ErrChanged, p.Before.Layout(), now.Layout())
	}
	if busy := all.Busy(now, p.Steps, p.Force); busy != "" {
		return nil, fmt.Errorf("card %s: %w: %s", p.UUID, ErrInUse, busy)
	}
	begin := record{Event: recordBegin, ID: id, Before: &p.Before, After: &p.After}
	if p.Awaits != "" {
		begin.After = &p.Before // what these steps lead to is not what is wanted
	}
	if err := write(log, begin); err != nil {
		return nil, err
	}
	taken := p.Steps
	if err = follow(ctx, d, id, p.Steps, p.After); err == nil && p.Awaits != "" {
		var more []Step
		more, err = finish(ctx, all, d, log, p)
		taken = slices.Concat(taken, more)
	}
	if err != nil {
		if back := restore(ctx, all, d, id, p.Before); back != nil {
			return nil, errors.Join(fmt.Errorf("card %s: %w", p.UUID, err), fmt.Errorf("card %s: the way back: %w", p.UUID, back))
		}
		return nil, errors.Join(fmt.Errorf("card %s: %w; it is as it was", p.UUID, err), write(log, record{Event: recordEnd, ID: id}))
	}
	return taken, write(log, record{Event: recordEnd, ID: id})
}

// finish plans what waited for the steps of a plan, and takes those steps. The way
// back from there is to where that plan began.
func finish(ctx context.Context, all Techniques, d Driver, log Log, p CardPlan) ([]Step, error) {
	id := p.Before.ID()
	now, err := d.Observe(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	rest := Planner{Techniques: all, Force: p.Force}.Card(now, p.rule)
	switch {
	case rest.Refused != "":
		return nil, fmt.Errorf("the rest: %s", rest.Reason)
	case rest.Awaits != "":
		return nil, fmt.Errorf("the rest: %w: %s", ErrImpossible, rest.Awaits)
	}
	if busy := all.Busy(now, rest.Steps, p.Force); busy != "" {
		return nil, fmt.Errorf("the rest: %w: %s", ErrInUse, busy)
	}
	if err := write(log, record{Event: recordBegin, ID: id, Before: &p.Before, After: &rest.After}); err != nil {
		return nil, err
	}
	return rest.Steps, follow(ctx, d, id, rest.Steps, rest.After)
}

// follow takes steps and looks whether they led where they should.
func follow(ctx context.Context, d Driver, id string, steps []Step, to Card) error {
	for _, s := range steps {
		if err := d.Do(ctx, id, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	now, err := d.Observe(ctx, id)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if !now.alike(to) {
		return fmt.Errorf("verify: the driver reported success, but the card is %q and not %q", now.asking(to).Layout(), to.Layout())
	}
	return nil
}

// restore brings a card from wherever it is to a state.
func restore(ctx context.Context, all Techniques, d Driver, id string, to Card) error {
	now, err := d.Observe(ctx, id)
	if err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	return follow(ctx, d, id, all.Steps(now, to), to)
}

// Outcomes of Recover.
const (
	OutcomeDone   = "done"   // the card is as it was planned
	OutcomeUndone = "undone" // the card is as it was
)

// Recover ends what an interrupted Apply began, by the log's records: back to
// the state that was, or forward where the card is there already or something
// has begun to use what was made. It returns the outcome by the card's ID; a card that
// could not be brought to either state is in the error, and is taken up again
// by the next Recover.
func Recover(ctx context.Context, all Techniques, d Driver, log Log, records [][]byte) (map[string]string, error) {
	open := map[string]record{}
	for n, raw := range records {
		var r record
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("record %d of the log: %w", n, err)
		}
		switch {
		case r.Event == recordBegin && r.Before != nil && r.After != nil:
			open[r.ID] = r
		case r.Event == recordEnd:
			delete(open, r.ID)
		default:
			return nil, fmt.Errorf("record %d of the log: event %q", n, r.Event)
		}
	}
	outcomes := map[string]string{}
	var failures []error
	for id, r := range open {
		outcome, err := recoverCard(ctx, all, d, r)
		if err == nil {
			err = write(log, record{Event: recordEnd, ID: id})
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("card %s: %w", id, err))
			continue
		}
		outcomes[id] = outcome
	}
	return outcomes, errors.Join(failures...)
}

func recoverCard(ctx context.Context, all Techniques, d Driver, r record) (string, error) {
	now, err := d.Observe(ctx, r.ID)
	if err != nil {
		return "", fmt.Errorf("observe: %w", err)
	}
	switch {
	case now.alike(*r.After):
		return OutcomeDone, nil
	case now.alike(*r.Before):
		return OutcomeUndone, nil
	}
	back := all.Steps(now, *r.Before)
	busy := all.Busy(now, back, false)
	if busy == "" {
		return OutcomeUndone, follow(ctx, d, r.ID, back, *r.Before)
	}
	forth := all.Steps(now, *r.After)
	if alsoBusy := all.Busy(now, forth, false); alsoBusy != "" {
		return "", fmt.Errorf("%w, both for the way back and for the way on: %s", ErrInUse, busy)
	}
	return OutcomeDone, follow(ctx, d, r.ID, forth, *r.After)
}
