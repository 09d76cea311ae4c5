// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"
)

// Call is one call of an arbiter, with all that it was told and what it answered:
// as it is pure, the calls since it was made lead any other one to the same orders.
type Call struct {
	Card    string        `json:"card"`
	Method  string        `json:"method"`
	Now     time.Duration `json:"now,omitempty"`
	Share   string        `json:"share,omitempty"`
	Process uint64        `json:"process,omitempty"`
	To      uint64        `json:"to,omitempty"`
	Alone   bool          `json:"alone,omitempty"`
	Config  *Config       `json:"config,omitempty"`
	Terms   []Terms       `json:"terms,omitempty"`
	Usages  []Usage       `json:"usages,omitempty"` // what its meter answered meanwhile, in order
	Wake    time.Duration `json:"wake,omitempty"`   // what NextWake answered
	Orders  *Orders       `json:"orders,omitempty"` // what Drain did
}

// Names of calls.
const (
	callNew      = "new"
	callSet      = "set"
	callWant     = "want"
	callBack     = "back"
	callEnded    = "ended"
	callMoved    = "moved"
	callReleased = "released"
	callTick     = "tick"
	callWake     = "wake"
	callDrain    = "drain"
)

// Record gives keep every call from now on; call it right after New.
func (a *Arbiter) Record(card string, keep func(Call)) {
	a.trace = &trace{card: card, keep: keep, meter: a.meter}
	a.meter = a.trace
	a.trace.end(Call{Method: callNew, Config: &a.config})
}

// trace is what one call has asked of the meter so far.
type trace struct {
	card   string
	keep   func(Call)
	meter  Meter
	usages []Usage
}

func (t *trace) Usage(now time.Duration, share string) Usage {
	u := t.meter.Usage(now, share)
	t.usages = append(t.usages, u)
	return u
}

// end keeps a call that has been answered.
func (t *trace) end(c Call) {
	if t == nil {
		return
	}
	c.Card, c.Usages, t.usages = t.card, t.usages, nil
	t.keep(c)
}

// maxCallBytes bounds a line of a trace.
const maxCallBytes = 1 << 20

// ErrDiverged says that a replayed arbiter answered otherwise than the trace says.
var ErrDiverged = errors.New("the replay goes another way")

// Replay leads new arbiters through a trace, lines of JSON, and compares all that
// they answer; look, which may be nil, is told of each call after it was made. It
// returns how many there were. A line that was cut off is passed over where the
// next one makes the card's arbiter anew, or none follows.
func Replay(trace io.Reader, look func(Call, *Arbiter)) (calls int, err error) {
	lines := bufio.NewScanner(trace)
	lines.Buffer(nil, maxCallBytes)
	cards := map[string]*replayed{}
	var cut error
	for lines.Scan() {
		var c Call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			if cut != nil {
				return calls, cut
			}
			cut = fmt.Errorf("line %d of the trace: %w", calls+1, err)
			clear(cards)
			continue
		}
		calls++
		if c.Method == callNew {
			if c.Config == nil {
				return calls, fmt.Errorf("line %d of the trace: no configuration", calls)
			}
			if err := c.Config.Validate(); err != nil {
				return calls, fmt.Errorf("line %d of the trace: %w", calls, err)
			}
			r := &replayed{}
			r.arbiter = New(*c.Config, r)
			cards[c.Card], cut = r, nil
			continue
		}
		r := cards[c.Card]
		if r == nil {
			return calls, fmt.Errorf("line %d of the trace: nothing is known of GPU %q (%w)", calls, c.Card, cut)
		}
		if err := r.call(c); err != nil {
			return calls, fmt.Errorf("line %d of the trace, %s at %v: %w", calls, c.Method, c.Now, err)
		}
		if look != nil {
			look(c, r.arbiter)
		}
	}
	return calls, lines.Err()
}

// replayed is an arbiter that is led through a trace, and its meter.
type replayed struct {
	arbiter *Arbiter
	usages  []Usage
	short   bool
}

func (r *replayed) Usage(time.Duration, string) Usage {
	if len(r.usages) == 0 {
		r.short = true
		return Usage{}
	}
	u := r.usages[0]
	r.usages = r.usages[1:]
	return u
}

func (r *replayed) call(c Call) error {
	a := r.arbiter
	r.usages = c.Usages
	switch c.Method {
	case callSet:
		a.Set(c.Now, c.Terms)
	case callWant:
		a.Want(c.Now, c.Share, c.Process)
	case callBack:
		a.Back(c.Now, c.Share, c.Process)
	case callEnded:
		a.Ended(c.Now, c.Share, c.Process, c.Alone)
	case callMoved:
		a.Moved(c.Now, c.Share, c.Process, c.To)
	case callReleased:
		a.Released(c.Now, c.Share)
	case callTick:
		a.Tick(c.Now)
	case callWake:
		if wake := a.NextWake(c.Now); wake != c.Wake {
			return fmt.Errorf("%w: next at %v, was %v", ErrDiverged, wake, c.Wake)
		}
	case callDrain:
		if orders := a.Drain(); c.Orders == nil || !reflect.DeepEqual(orders, *c.Orders) {
			return fmt.Errorf("%w: orders %+v, were %+v", ErrDiverged, orders, c.Orders)
		}
	default:
		return fmt.Errorf("unknown call %q", c.Method)
	}
	if r.short || len(r.usages) > 0 {
		return fmt.Errorf("%w: it asked for %d uses, and %d are left (more than there were: %v)", ErrDiverged, len(c.Usages), len(r.usages), r.short)
	}
	return nil
}
