// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/scenario"
	terms "github.com/divvy-gpu/divvy/internal/share"
)

func TestScenarios(t *testing.T) {
	scenario.Play(t, func(t *testing.T, out *strings.Builder) func(words []string) {
		w := &stage{t: t, out: out, used: map[string]*Usage{}}
		w.arbiter = New(Default(10*time.Millisecond), w)
		return func(words []string) {
			w.do(words)
			w.drain()
		}
	})
}

// stage is one card in a scenario; its programs say what the scenario lets
// them say.
type stage struct {
	t       *testing.T
	arbiter *Arbiter
	now     time.Duration
	terms   []Terms
	used    map[string]*Usage
	out     *strings.Builder
}

func (w *stage) Usage(_ time.Duration, name string) Usage { return *w.usage(name) }

func (w *stage) usage(name string) *Usage {
	if w.used[name] == nil {
		w.used[name] = &Usage{}
	}
	return w.used[name]
}

func (w *stage) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *stage) do(words []string) {
	name, process := "", uint64(1)
	if len(words) > 1 {
		name = words[1]
	}
	if len(words) > 2 {
		if n, err := strconv.ParseUint(words[2], 10, 64); err == nil {
			process = n
		}
	}
	switch words[0] {
	// want, back, ended NAME [PROCESS]
	case "share": // share NAME POLICY CORES [PRIORITY [WEIGHT]]
		t := Terms{Name: name, Policy: terms.Policy(words[2]), Weight: 1}
		t.CoresPercent, _ = strconv.Atoi(words[3])
		if len(words) > 4 {
			t.Priority, _ = strconv.Atoi(words[4])
		}
		if len(words) > 5 {
			t.Weight, _ = strconv.Atoi(words[5])
		}
		w.terms = append(w.terms, t)
		w.arbiter.Set(w.now, w.terms)
	case "change": // like share, of one that is there
		kept := w.terms[:0]
		for _, t := range w.terms {
			if t.Name != name {
				kept = append(kept, t)
			}
		}
		w.terms = kept
		w.do(append([]string{"share"}, words[1:]...))
	case "remove":
		kept := w.terms[:0]
		for _, t := range w.terms {
			if t.Name != name {
				kept = append(kept, t)
			}
		}
		w.terms = kept
		w.arbiter.Set(w.now, w.terms)
	case "pause", "resume":
		for i := range w.terms {
			if w.terms[i].Name == name {
				w.terms[i].Paused = words[0] == "pause"
			}
		}
		w.arbiter.Set(w.now, w.terms)
	case "gated":
		fmt.Fprintln(w.out, w.arbiter.Gated(name))
	case "want":
		w.arbiter.Want(w.now, name, process)
	case "back":
		w.usage(name).Submitted, w.usage(name).Remaining = 0, 0
		w.arbiter.Back(w.now, name, process)
	case "busy": // busy NAME TIME: measured so much more
		w.usage(name).Busy += w.duration(words[2])
	case "flight": // flight NAME TIME: has so much in flight
		w.usage(name).Submitted, w.usage(name).Remaining = w.duration(words[2]), w.duration(words[2])
	case "ended":
		w.arbiter.Ended(w.now, name, process, words[len(words)-1] == "last")
	case "moved": // moved NAME PROCESS TO
		to, _ := strconv.ParseUint(words[3], 10, 64)
		w.arbiter.Moved(w.now, name, process, to)
	case "released":
		w.arbiter.Released(w.now, name)
	case "wake":
		w.wake()
	case "balance":
		w.arbiter.fill(w.now)
		s := w.arbiter.find(name)
		fmt.Fprintf(w.out, "%s %v\n", name, time.Duration(s.balance/100))
	case "after": // nothing happens but what time brings
		w.after(w.duration(name))
	case "late": // late TIME: the caller comes so late to whatever time brings
		w.elapse(w.duration(name))
	default:
		w.t.Fatalf("unknown command %q", words[0])
	}
}

func (w *stage) wake() {
	if next := w.arbiter.NextWake(w.now); next == 0 {
		fmt.Fprintln(w.out, "nobody waits")
	} else {
		fmt.Fprintf(w.out, "next at %v\n", next)
	}
}

func (w *stage) after(d time.Duration) {
	end := w.now + d
	for rounds := 0; ; rounds++ {
		next := w.arbiter.NextWake(w.now)
		if next == 0 || next > end {
			break
		}
		w.elapse(next - w.now)
		w.arbiter.Tick(w.now)
		w.drain()
		if rounds > 1000 {
			w.t.Fatal("the arbiter asks to be woken without end")
		}
	}
	w.elapse(end - w.now)
}

// elapse lets time pass: what is in flight runs, one share's work beside the
// other's.
func (w *stage) elapse(d time.Duration) {
	w.now += max(d, 0)
	for _, u := range w.used {
		u.Remaining = max(u.Remaining-max(d, 0), 0)
	}
}

func (w *stage) drain() {
	orders := w.arbiter.Drain()
	for _, l := range orders.Leases {
		what := "no lease"
		if l.End > 0 {
			what = fmt.Sprintf("lease until %v", l.End)
			if l.Process > 1 {
				what += fmt.Sprintf(" for process %d", l.Process)
			}
		}
		if l.Backlog < w.arbiter.config.Backlog {
			what += fmt.Sprintf(", backlog %v", l.Backlog)
		}
		fmt.Fprintf(w.out, "%v %s: %s\n", w.now, l.Share, what)
	}
	for _, e := range orders.Events {
		fmt.Fprintf(w.out, "%v %s: %s\n", w.now, e.Share, e.Message)
	}
}
