// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

// driver asks the source who uses what, and how cards are: one question of a
// kind per card at a time; all who ask while a question is on its way share the
// next one.
type driver struct {
	source   gpu.Source
	accounts map[string]*question
	holders  map[string]*question
	healths  map[string]*question
	readings map[string]*question
	acts     map[string]*question
}

type question struct {
	put     func(*answer) error
	mutex   sync.Mutex // guards what stands below
	next    *answer
	running bool
	asked   time.Time // when the one was put that is on its way; zero: none is
}

type answer struct {
	done    chan struct{}
	account core.Account
	health  gpu.Health
	reading gpu.Telemetry
	active  gpu.Activity
	took    time.Duration
	err     error
}

func newDriver(source gpu.Source, cards []gpu.Card) *driver {
	d := &driver{source: source, accounts: map[string]*question{}, holders: map[string]*question{}, healths: map[string]*question{}, readings: map[string]*question{},
		acts: map[string]*question{}}
	for _, c := range cards {
		d.accounts[c.UUID] = &question{put: func(a *answer) error {
			told, err := source.Account(c.UUID)
			a.account.UsedBytes, a.account.Processes = told.UsedBytes, holdings(told.Processes)
			return err
		}}
		d.holders[c.UUID] = &question{put: func(a *answer) error {
			told, err := source.Processes(c.UUID)
			a.account.Processes = holdings(told)
			return err
		}}
		d.healths[c.UUID] = &question{put: func(a *answer) (err error) {
			a.health, err = source.Health(c.UUID)
			return err
		}}
		d.readings[c.UUID] = &question{put: func(a *answer) (err error) {
			a.reading, err = source.Telemetry(c.UUID)
			return err
		}}
		since := time.Now()
		d.acts[c.UUID] = &question{put: func(a *answer) (err error) {
			at := time.Now()
			if a.active, err = source.Activity(c.UUID, since); err == nil {
				since = at // one question of a kind at a time
			}
			return err
		}}
	}
	return d
}

func holdings(of []gpu.Process) []core.Holding {
	all := make([]core.Holding, 0, len(of))
	for _, p := range of {
		all = append(all, core.Holding{PID: p.PID, Bytes: p.Bytes, Known: p.Known})
	}
	return all
}

// errSlow says that the driver does not answer in time.
var errSlow = errors.New("the driver does not answer")

// answerFor is how long a driver may take to answer. One that takes longer does not
// answer, for those who ask now and then: they go on with what is known.
const answerFor = 3 * time.Second

// silentSince says since when an answer about a card has been due, if it is overdue.
func (d *driver) silentSince(card string) (since time.Time, silent bool) {
	for _, q := range []*question{d.accounts[card], d.holders[card], d.healths[card]} {
		if asked := q.onItsWay(); !asked.IsZero() && (since.IsZero() || asked.Before(since)) {
			since = asked
		}
	}
	return since, !since.IsZero() && time.Since(since) >= answerFor
}

// account asks about a card, and gives up when ctx ends or after patience, or at once
// when the driver owes an answer already.
// What it returns was asked for after the call.
func (d *driver) account(ctx context.Context, card string, patience time.Duration) (core.Account, error) {
	if _, silent := d.silentSince(card); silent {
		return core.Account{}, errSlow
	}
	a, err := d.accounts[card].await(ctx, patience)
	return a.account, err
}

// processes is the like for who uses a card alone, which costs less; and it says
// how long the driver took. It waits whatever is due.
func (d *driver) processes(ctx context.Context, card string, patience time.Duration) (core.Account, time.Duration, error) {
	a, err := d.holders[card].await(ctx, patience)
	return a.account, a.took, err
}

// health is like account, for how a card is.
func (d *driver) health(ctx context.Context, card string, patience time.Duration) (gpu.Health, error) {
	if _, silent := d.silentSince(card); silent {
		return gpu.Health{}, errSlow
	}
	a, err := d.healths[card].await(ctx, patience)
	return a.health, err
}

// telemetry is like health, for what a card's instruments say.
func (d *driver) telemetry(ctx context.Context, card string, patience time.Duration) (gpu.Telemetry, error) {
	if _, silent := d.silentSince(card); silent {
		return gpu.Telemetry{}, errSlow
	}
	a, err := d.readings[card].await(ctx, patience)
	return a.reading, err
}

// activity is like health, for whose kernels a card ran since the question before.
func (d *driver) activity(ctx context.Context, card string, patience time.Duration) (gpu.Activity, error) {
	if _, silent := d.silentSince(card); silent {
		return gpu.Activity{}, errSlow
	}
	a, err := d.acts[card].await(ctx, patience)
	return a.active, err
}

func (q *question) await(ctx context.Context, patience time.Duration) (answer, error) {
	if q == nil {
		return answer{}, gpu.ErrNoCard
	}
	q.mutex.Lock()
	if q.next == nil {
		q.next = &answer{done: make(chan struct{})}
	}
	mine := q.next
	if !q.running {
		q.running = true
		go q.ask() // ends when nobody asks any more
	}
	q.mutex.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-timer.C:
		return answer{}, errSlow
	case <-mine.done:
		return *mine, mine.err
	case <-ctx.Done():
		return answer{}, errStopped
	}
}

// onItsWay says when the question was put that has no answer yet; zero: there is none.
func (q *question) onItsWay() time.Time {
	if q == nil {
		return time.Time{}
	}
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return q.asked
}

func (q *question) ask() {
	for {
		q.mutex.Lock()
		current := q.next
		q.next = nil
		q.running = current != nil
		q.asked = time.Time{}
		if q.running {
			q.asked = time.Now()
		}
		q.mutex.Unlock()
		if current == nil {
			return
		}
		current.account.At = time.Now()
		current.err = q.put(current)
		current.account.Index()
		current.took = time.Since(current.account.At)
		close(current.done)
	}
}
