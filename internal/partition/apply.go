// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Driver changes cards.
type Driver interface {
	// Observe reads how a card is partitioned and who uses it.
	Observe(ctx context.Context, uuid string) (Card, error)
	// Do takes one step.
	Do(ctx context.Context, uuid string, s Step) error
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
	Event      string `json:"event"`
	UUID       string `json:"uuid"`
	Before     *Card  `json:"before,omitempty"`
	After      *Card  `json:"after,omitempty"`
	NeedsReset bool   `json:"needsReset,omitempty"`
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

// Apply carries out a card's plan. It ends in the planned state, or, with an
// error, in the state that was; only when the way back fails too is the card
// somewhere between, and Recover takes it up from the log.
func Apply(ctx context.Context, d Driver, log Log, p CardPlan) error {
	if p.Refused != "" {
		return fmt.Errorf("card %s: %s", p.UUID, p.Reason)
	}
	if len(p.Steps) == 0 {
		return nil
	}
	now, err := d.Observe(ctx, p.UUID)
	if err != nil {
		return fmt.Errorf("observe card %s: %w", p.UUID, err)
	}
	if now.Layout() != p.Before.Layout() {
		return fmt.Errorf("card %s: %w: it was %q and is %q", p.UUID, ErrChanged, p.Before.Layout(), now.Layout())
	}
	if busy := stopped(now, p.Steps); busy != "" && !p.Force {
		return fmt.Errorf("card %s: %w: %s", p.UUID, ErrInUse, busy)
	}
	if err := write(log, record{Event: recordBegin, UUID: p.UUID, Before: &p.Before, After: &p.After, NeedsReset: p.NeedsReset}); err != nil {
		return err
	}
	err = follow(ctx, d, p.UUID, p.Steps, p.After)
	if err != nil {
		if back := restore(ctx, d, p.UUID, p.Before, p.NeedsReset); back != nil {
			return errors.Join(fmt.Errorf("card %s: %w", p.UUID, err), fmt.Errorf("card %s: the way back: %w", p.UUID, back))
		}
		return errors.Join(fmt.Errorf("card %s: %w; it is as it was", p.UUID, err), write(log, record{Event: recordEnd, UUID: p.UUID}))
	}
	return write(log, record{Event: recordEnd, UUID: p.UUID})
}

// stopped words who would lose an instance to steps.
func stopped(c Card, steps []Step) string {
	var gone []Instance
	for _, s := range steps {
		if s.Action != ActionDestroy && s.Action != ActionClear {
			continue
		}
		for _, i := range c.Instances {
			if i.Profile == s.Profile && i.Start == s.Start {
				gone = append(gone, i)
			}
		}
	}
	return busyOf(gone)
}

// follow takes steps and looks whether they led where they should.
func follow(ctx context.Context, d Driver, uuid string, steps []Step, to Card) error {
	for _, s := range steps {
		if err := d.Do(ctx, uuid, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	now, err := d.Observe(ctx, uuid)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if now.Layout() != to.Layout() {
		return fmt.Errorf("verify: the driver reported success, but the card is %q and not %q", now.Layout(), to.Layout())
	}
	return nil
}

// restore brings a card from wherever it is to a state.
func restore(ctx context.Context, d Driver, uuid string, to Card, needsReset bool) error {
	now, err := d.Observe(ctx, uuid)
	if err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	return follow(ctx, d, uuid, transition(now, to, needsReset), to)
}

// Outcomes of Recover.
const (
	OutcomeDone   = "done"   // the card is as it was planned
	OutcomeUndone = "undone" // the card is as it was
)

// Recover ends what an interrupted Apply began, by the log's records: back to
// the state that was, or forward where the card is there already or something
// has begun to use what was made. It returns the outcome by card; a card that
// could not be brought to either state is in the error, and is taken up again
// by the next Recover.
func Recover(ctx context.Context, d Driver, log Log, records [][]byte) (map[string]string, error) {
	open := map[string]record{}
	for n, raw := range records {
		var r record
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("record %d of the log: %w", n, err)
		}
		switch {
		case r.Event == recordBegin && r.Before != nil && r.After != nil:
			open[r.UUID] = r
		case r.Event == recordEnd:
			delete(open, r.UUID)
		default:
			return nil, fmt.Errorf("record %d of the log: event %q", n, r.Event)
		}
	}
	outcomes := map[string]string{}
	var failures []error
	for uuid, r := range open {
		outcome, err := recoverCard(ctx, d, r)
		if err == nil {
			err = write(log, record{Event: recordEnd, UUID: uuid})
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("card %s: %w", uuid, err))
			continue
		}
		outcomes[uuid] = outcome
	}
	return outcomes, errors.Join(failures...)
}

func recoverCard(ctx context.Context, d Driver, r record) (string, error) {
	now, err := d.Observe(ctx, r.UUID)
	if err != nil {
		return "", fmt.Errorf("observe: %w", err)
	}
	switch now.Layout() {
	case r.After.Layout():
		return OutcomeDone, nil
	case r.Before.Layout():
		return OutcomeUndone, nil
	}
	back := transition(now, *r.Before, r.NeedsReset)
	busy := stopped(now, back)
	if busy == "" {
		return OutcomeUndone, follow(ctx, d, r.UUID, back, *r.Before)
	}
	forth := transition(now, *r.After, r.NeedsReset)
	if alsoBusy := stopped(now, forth); alsoBusy != "" {
		return "", fmt.Errorf("%w, both for the way back and for the way on: %s", ErrInUse, busy)
	}
	return OutcomeDone, follow(ctx, d, r.UUID, forth, *r.After)
}
