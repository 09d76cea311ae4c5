// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/enforce"
)

// driverLimits asks a driver about limits of control groups, one question about a card
// at a time, and waits for each for answerFor at most: nobody who asks how strongly
// shares are held hangs because a driver does. A limit that was to be set may then still
// be, later.
type driverLimits struct {
	driver enforce.Limiter
	mutex  sync.Mutex // guards lines
	lines  map[string]*line
}

// line is where questions about one card stand.
type line struct {
	free  chan struct{} // holds one while a question is on its way
	mutex sync.Mutex    // guards asked
	asked time.Time     // when that was put; zero: none is
}

var _ enforce.Limiter = (*driverLimits)(nil)

func newDriverLimits(driver enforce.Limiter) *driverLimits {
	return &driverLimits{driver: driver, lines: map[string]*line{}}
}

// LimitsMemory says why the driver of a card has no limits.
func (d *driverLimits) LimitsMemory(uuid string) error {
	var answer error
	if err := d.ask(uuid, func() { answer = d.driver.LimitsMemory(uuid) }); err != nil {
		return err
	}
	return answer
}

// SetMemoryLimit sets a limit and reads it back.
func (d *driverLimits) SetMemoryLimit(uuid, group string, bytes uint64) error {
	var answer error
	if err := d.ask(uuid, func() { answer = d.driver.SetMemoryLimit(uuid, group, bytes) }); err != nil {
		return err
	}
	return answer
}

// MemoryLimit returns the limit of a group and what is held.
func (d *driverLimits) MemoryLimit(uuid, group string) (uint64, uint64, error) {
	var limit, held uint64
	var answer error
	if err := d.ask(uuid, func() { limit, held, answer = d.driver.MemoryLimit(uuid, group) }); err != nil {
		return 0, 0, err
	}
	return limit, held, answer
}

// ask puts a question. With errSlow its answer may still come, and is nobody's.
func (d *driverLimits) ask(uuid string, put func()) error {
	d.mutex.Lock()
	l := d.lines[uuid]
	if l == nil {
		l = &line{free: make(chan struct{}, 1)}
		d.lines[uuid] = l
	}
	d.mutex.Unlock()
	patience := time.NewTimer(answerFor - min(l.waits(), answerFor))
	defer patience.Stop()
	select {
	case l.free <- struct{}{}:
	case <-patience.C:
		return errSlow
	}
	l.note(time.Now())
	done := make(chan struct{})
	go func() { // ends when the driver answers
		put()
		close(done)
		l.note(time.Time{})
		<-l.free
	}()
	patience.Reset(answerFor)
	select {
	case <-done:
		return nil
	case <-patience.C:
		return errSlow
	}
}

// waits says for how long the question has been on its way that is.
func (l *line) waits() time.Duration {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.asked.IsZero() {
		return 0
	}
	return time.Since(l.asked)
}

func (l *line) note(asked time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.asked = asked
}
