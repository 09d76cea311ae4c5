// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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
var ErrChanged = errors.New("the GPU changed since it was planned for")

// ErrLog says that a log's records are not of changes to cards.
var ErrLog = errors.New("no log of changes to GPUs")

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
	// Rest is what becomes of cards that change together with it.
	Rest []change `json:"rest,omitempty"`
}

// change is what becomes of a card.
type change struct {
	Before Card `json:"before"`
	After  Card `json:"after"`
}

// record reads a record of the log.
func (all Techniques) record(raw []byte) (r record, err error) {
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, err
	}
	cards := []*Card{r.Before, r.After}
	for i := range r.Rest {
		cards = append(cards, &r.Rest[i].Before, &r.Rest[i].After)
	}
	for _, c := range cards {
		if c == nil {
			continue
		}
		err := all.divide(c, func(f Field) (bool, error) {
			raw, ok := c.unread[f.Name]
			if !ok {
				return false, nil
			}
			return true, json.Unmarshal(raw, f.Value)
		})
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

func begin(band []CardPlan) record {
	r := record{Event: recordBegin, ID: band[0].Before.ID(), Before: &band[0].Before, After: &band[0].After}
	for _, p := range band[1:] {
		r.Rest = append(r.Rest, change{p.Before, p.After})
	}
	return r
}

// undoing is a record whose changes are not to be finished.
func undoing(r record) record {
	r.After = r.Before
	for i, c := range r.Rest {
		r.Rest[i].After = c.Before
	}
	return r
}

// befores and afters are the two states of all cards of a record.
func (r record) befores() []Card {
	cards := []Card{*r.Before}
	for _, c := range r.Rest {
		cards = append(cards, c.Before)
	}
	return cards
}

func (r record) afters() []Card {
	cards := []Card{*r.After}
	for _, c := range r.Rest {
		cards = append(cards, c.After)
	}
	return cards
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

// Apply carries out the plan of a card, or of those of one of Plan.Bands, with the
// steps that can only be planned on the way, and returns all that it took. It
// ends in the planned state, or, with an error, in the state that was; only when
// the way back fails too is a card somewhere between, and Recover takes it up
// from the log. When ctx ends it goes back after the step that it is at.
func Apply(ctx context.Context, all Techniques, d Driver, log Log, band ...CardPlan) ([]Step, error) {
	var names []string
	for _, p := range band {
		if p.Refused != "" {
			return nil, fmt.Errorf("GPU %s: %w", p.UUID, p.refusal)
		}
		names = append(names, p.UUID)
	}
	name := strings.Join(names, ", ")
	steps := stepsOf(band)
	if len(steps) == 0 {
		return nil, nil
	}
	for _, p := range band {
		now, err := d.Observe(ctx, p.Before.ID())
		if err != nil {
			return nil, fmt.Errorf("observe GPU %s: %w", p.UUID, err)
		}
		if !now.alike(p.Before) {
			return nil, fmt.Errorf("GPU %s: %w: it was %q and is %q", p.UUID, ErrChanged, p.Before.Layout(), now.Layout())
		}
		if busy := all.Busy(now, p.Steps, p.Force); busy != "" {
			return nil, fmt.Errorf("GPU %s: %w: %s", p.UUID, ErrInUse, busy)
		}
	}
	more := slices.ContainsFunc(band, func(p CardPlan) bool { return p.Awaits != "" })
	r := begin(band)
	if more {
		r = undoing(r) // what these steps lead to is not what is wanted
	}
	if err := write(log, r); err != nil {
		return nil, err
	}
	taken := plain(steps)
	err := follow(ctx, d, steps, begin(band).afters())
	if err == nil && more {
		var rest []Step
		rest, err = finish(ctx, all, d, log, band)
		taken = append(taken, rest...)
	}
	if err != nil {
		if back := restore(context.WithoutCancel(ctx), all, d, r.befores()); back != nil {
			return nil, errors.Join(fmt.Errorf("GPU %s: %w", name, err), fmt.Errorf("GPU %s: the way back, which the next apply goes on with: %w", name, back))
		}
		return nil, errors.Join(fmt.Errorf("GPU %s: %w; it is as it was", name, err), write(log, record{Event: recordEnd, ID: r.ID}))
	}
	if err := write(log, record{Event: recordEnd, ID: r.ID}); err != nil {
		return taken, fmt.Errorf("GPU %s: it is as planned, but the next apply looks again: %w", name, err)
	}
	return taken, nil
}

// finish plans what waited for the steps of plans, and takes those steps. The way
// back from there is to where these plans began.
func finish(ctx context.Context, all Techniques, d Driver, log Log, band []CardPlan) ([]Step, error) {
	whole, rest := slices.Clone(band), slices.Clone(band)
	for i, p := range band {
		now, err := d.Observe(ctx, p.Before.ID())
		if err != nil {
			return nil, fmt.Errorf("observe: %w", err)
		}
		rest[i] = Planner{Techniques: all, Force: p.Force}.Card(now, p.rule)
		switch {
		case rest[i].Refused != "":
			return nil, fmt.Errorf("the rest: %s", rest[i].Reason)
		case rest[i].Awaits != "":
			return nil, fmt.Errorf("the rest: %w: %s", ErrImpossible, rest[i].Awaits)
		}
		if busy := all.Busy(now, rest[i].Steps, p.Force); busy != "" {
			return nil, fmt.Errorf("the rest: %w: %s", ErrInUse, busy)
		}
		whole[i].After = rest[i].After
	}
	if err := write(log, begin(whole)); err != nil {
		return nil, err
	}
	steps := stepsOf(rest)
	return plain(steps), follow(ctx, d, steps, begin(rest).afters())
}

// follow takes steps and looks whether they led where they should.
func follow(ctx context.Context, d Driver, steps []cardStep, to []Card) error {
	if err := take(ctx, d, steps); err != nil {
		return err
	}
	now, err := observe(ctx, d, to)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return verify(now, to)
}

func take(ctx context.Context, d Driver, steps []cardStep) error {
	for _, s := range steps {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: not begun: %w", s, context.Cause(ctx))
		}
		if err := d.Do(ctx, s.id, s.Step); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// observe reads how cards are now.
func observe(ctx context.Context, d Driver, cards []Card) ([]Card, error) {
	var now []Card
	for _, c := range cards {
		seen, err := d.Observe(ctx, c.ID())
		if err != nil {
			return nil, fmt.Errorf("observe: %w", err)
		}
		now = append(now, seen)
	}
	return now, nil
}

// verify says whether cards are as they should be.
func verify(now, to []Card) error {
	for i, c := range now {
		if !c.alike(to[i]) {
			return fmt.Errorf("verify: the driver reported success, but the GPU is %q and not %q", c.asking(to[i]).Layout(), to[i].Layout())
		}
	}
	return nil
}

// maxRounds bounds how often restore looks where cards are and goes on from there.
const maxRounds = 3

// restore brings cards from wherever they are to a state, and ends nobody's use. A
// driver that came back on the way may show what takes further steps.
func restore(ctx context.Context, all Techniques, d Driver, to []Card) error {
	for round := 0; ; round++ {
		now, err := observe(ctx, d, to)
		if err != nil {
			return err
		}
		astray := verify(now, to)
		if astray == nil {
			return nil
		}
		steps, busy := all.way(now, to)
		switch {
		case round == maxRounds || len(steps) == 0:
			return astray
		case busy != "":
			return fmt.Errorf("%w: %s", ErrInUse, busy)
		}
		if err := take(ctx, d, steps); err != nil {
			return err
		}
	}
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
		r, err := all.record(raw)
		if err != nil {
			return nil, fmt.Errorf("%w: record %d: %w", ErrLog, n, err)
		}
		switch {
		case r.Event == recordBegin && r.Before != nil && r.After != nil:
			open[r.ID] = r
		case r.Event == recordEnd:
			delete(open, r.ID)
		default:
			return nil, fmt.Errorf("%w: record %d is of event %q", ErrLog, n, r.Event)
		}
	}
	outcomes := map[string]string{}
	var failures []error
	for id, r := range open {
		outcome, err := recoverCards(ctx, all, d, r)
		if err == nil {
			err = write(log, record{Event: recordEnd, ID: id})
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("GPU %s: %w", id, err))
			continue
		}
		for _, c := range r.befores() {
			outcomes[c.ID()] = outcome
		}
	}
	return outcomes, errors.Join(failures...)
}

func recoverCards(ctx context.Context, all Techniques, d Driver, r record) (string, error) {
	before, after := r.befores(), r.afters()
	now, err := observe(ctx, d, before)
	if err != nil {
		return "", err
	}
	switch {
	case verify(now, before) == nil: // first: a record whose steps are not all known leads nowhere else
		return OutcomeUndone, nil
	case verify(now, after) == nil:
		return OutcomeDone, nil
	}
	_, busy := all.way(now, before)
	if busy == "" {
		return OutcomeUndone, restore(ctx, all, d, before)
	}
	if _, alsoBusy := all.way(now, after); alsoBusy != "" {
		return "", fmt.Errorf("%w, both for the way back and for the way on: %s", ErrInUse, busy)
	}
	return OutcomeDone, restore(ctx, all, d, after)
}
