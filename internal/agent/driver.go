// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

// driver asks the source who uses what, one question per card at a time; all
// who ask while a question is on its way share the next one.
type driver struct {
	source gpu.Source
	cards  map[string]*question
}

type question struct {
	mutex   sync.Mutex // guards next and running
	next    *answer
	running bool
}

type answer struct {
	done    chan struct{}
	account core.Account
	took    time.Duration
	err     error
}

func newDriver(source gpu.Source, cards []gpu.Card) *driver {
	d := &driver{source: source, cards: map[string]*question{}}
	for _, c := range cards {
		d.cards[c.UUID] = &question{}
	}
	return d
}

// errSlow says that the driver does not answer in time.
var errSlow = errors.New("the driver does not answer")

// account asks about a card, and gives up when quit closes or after patience.
// What it returns was asked for after the call.
func (d *driver) account(quit <-chan struct{}, card string, patience time.Duration) (core.Account, time.Duration, error) {
	q := d.cards[card]
	if q == nil {
		return core.Account{}, 0, gpu.ErrNoCard
	}
	q.mutex.Lock()
	if q.next == nil {
		q.next = &answer{done: make(chan struct{})}
	}
	mine := q.next
	if !q.running {
		q.running = true
		go d.ask(card, q) // ends when nobody asks any more
	}
	q.mutex.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-timer.C:
		return core.Account{}, 0, errSlow
	case <-mine.done:
		return mine.account, mine.took, mine.err
	case <-quit:
		return core.Account{}, 0, errStopped
	}
}

func (d *driver) ask(card string, q *question) {
	for {
		q.mutex.Lock()
		current := q.next
		q.next = nil
		q.running = current != nil
		q.mutex.Unlock()
		if current == nil {
			return
		}
		begun := time.Now()
		told, err := d.source.Account(card)
		current.took = time.Since(begun)
		current.err = err
		current.account = core.Account{At: begun, UsedBytes: told.UsedBytes}
		for _, p := range told.Processes {
			current.account.Processes = append(current.account.Processes, core.Holding{PID: p.PID, Bytes: p.Bytes, Known: p.Known})
		}
		close(current.done)
	}
}
