// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
)

// SchemaTruth names the version of TruthReport.
const SchemaTruth = "divvy.bench.truth/v1"

const (
	// TruthCards is how many cards the loads need: shares that nothing holds, shares that are
	// held, and memory.
	TruthCards = 3
	// TruthLeast is the shortest that can be measured: kernels of 100 ms run in it.
	TruthLeast = 8 * time.Second

	truthPart        = 0.01                   // by which part of the truth a figure may be off
	truthUnseen      = 5 * time.Millisecond   // work that a program need not have counted yet
	truthUnsaved     = 2 * time.Second        // of a program that ends while no agent is there
	truthLate        = 500 * time.Millisecond // by which a figure may be late where several programs run without leases
	truthZero        = time.Second            // after the last death all use is 0
	truthXID         = 92                     // ends no program
	truthUnaccounted = 96 * mib               // what a program outside of Divvy holds
	truthMeets       = 40                     // tries to read two views of one snapshot
	truthMeet        = 100 * time.Millisecond // from one to the next
	truthWritten     = 20 * time.Second       // until usage or history is written, which is every ten
	truthSettle      = 10 * time.Second       // until the agent has seen all programs go
)

// TruthOptions says for how long the loads run.
type TruthOptions struct {
	Target
	Duration time.Duration
}

// TruthRow is one figure at one moment, where it is shown.
type TruthRow struct {
	Figure string `json:"figure"`
	Of     string `json:"of"`   // a share, or a GPU
	When   string `json:"when"` // the moment
	Shown  string `json:"shown"`
	// Said is what was shown; null: nothing was. True is the simulator's own account, or what
	// the load is known to have done. ErrorPercent is of it, null where one is not known.
	Said         *float64 `json:"said"`
	True         float64  `json:"true"`
	ErrorPercent *float64 `json:"errorPercent"`
	Least        float64  `json:"least"` // what may be said
	Most         float64  `json:"most"`
	Missed       bool     `json:"missed"`
}

// TruthReport compares what is shown with what was.
type TruthReport struct {
	Schema    string     `json:"schema"`
	Simulated bool       `json:"simulated"`
	Seconds   float64    `json:"seconds"`
	Rows      []TruthRow `json:"rows"`
	// Differ are figures of which two views of one snapshot show different ones.
	Differ []string `json:"differ"`
	// Control gives each sharer of a GPU what the GPU was busy, as monitors do that know no
	// shares: every row must be missed.
	Control []TruthRow `json:"control"`
	Pass    bool       `json:"pass"`
}

// truthLoad is a share, the programs in it, and what is known of them.
type truthLoad struct {
	name    string
	card    int // that it is on, by the simulator's number
	kernel  time.Duration
	pattern string
	cores   int
	part    float64 // of the duration, for which its program runs; 0: it is killed

	socket   string
	pids     []int
	burners  []*Burner
	denied   uint64
	ahead    float64 // launches that a killed program had queued, at most
	unsaved  bool    // a program ended while no agent was there
	launches bool    // it does
	deaths   int     // programs that have ended
}

// truth is a run.
type truth struct {
	TruthOptions
	truth   *simgpu.Truth
	report  *TruthReport
	loads   []*truthLoad
	cards   []string // by the simulator's number
	context uint64   // bytes of one
	xids    float64
	began   []time.Duration     // for which each card was busy before
	start   time.Time           // of the loads
	said    map[figure]expected // of the snapshot that was looked at last
	away    time.Duration       // for which no agent was there, or knew all programs
	bench   struct{ unaccounted, first, second *Holder }
}

// Truth runs known loads, kills some of them and the agent meanwhile, and compares what
// snapshot, metrics and the list of shares show with the simulator's account.
func Truth(ctx context.Context, o TruthOptions) (TruthReport, error) {
	report := TruthReport{Schema: SchemaTruth, Simulated: true, Seconds: o.Duration.Seconds(), Rows: []TruthRow{}, Differ: []string{}, Control: []TruthRow{}}
	if err := o.Validate(); err != nil {
		return report, err
	}
	if o.Duration < TruthLeast {
		return report, fmt.Errorf("%v is less than %v, which the loads need", o.Duration, TruthLeast)
	}
	account, err := simgpu.Dial(ctx, o.SimulatorSocket)
	if err != nil {
		return report, fmt.Errorf("open the simulator's account: %w", err)
	}
	defer account.Close()
	t := &truth{TruthOptions: o, truth: account, report: &report, loads: truthLoads()}
	defer t.end(context.WithoutCancel(ctx))
	if err := t.run(ctx); err != nil {
		return report, err
	}
	report.Pass = len(report.Differ) == 0 && len(report.Control) > 0
	for _, row := range report.Rows {
		report.Pass = report.Pass && !row.Missed
	}
	for _, row := range report.Control {
		report.Pass = report.Pass && row.Missed
	}
	return report, nil
}

// Names of loads that something is done to.
const (
	loadKilled      = "killed"
	loadAway        = "ends-away"
	loadGatedKilled = "gated-killed"
	loadMemory      = "memory"
)

// truthLoads are the loads: on the first card nothing is held, on the second everything waits
// for its turn, on the third memory is.
func truthLoads() []*truthLoad {
	return []*truthLoad{
		{name: "short", kernel: 200 * time.Microsecond, pattern: PatternAsync, part: 1},
		{name: "long", kernel: 100 * time.Millisecond, pattern: PatternAsync, part: 0.4},
		{name: "waits", kernel: time.Millisecond, pattern: PatternSync, part: 1},
		{name: loadKilled, kernel: time.Millisecond, pattern: PatternAsync},
		{name: loadAway, kernel: time.Millisecond, pattern: PatternAsync},
		{name: "gated-fixed", card: 1, kernel: 20 * time.Millisecond, pattern: PatternAsync, cores: 20, part: 1},
		{name: "gated-waits", card: 1, kernel: time.Millisecond, pattern: PatternSync, part: 1},
		{name: loadGatedKilled, card: 1, kernel: time.Millisecond, pattern: PatternAsync, cores: 30},
		{name: loadMemory, card: 2},
	}
}

func (t *truth) load(name string) *truthLoad {
	return t.loads[slices.IndexFunc(t.loads, func(l *truthLoad) bool { return l.name == name })]
}

func (t *truth) end(ctx context.Context) {
	for _, l := range t.loads {
		for _, b := range l.burners {
			b.Kill()
		}
	}
	for _, h := range []*Holder{t.bench.unaccounted, t.bench.first, t.bench.second} {
		if h != nil {
			h.Kill()
		}
	}
	for _, l := range t.loads {
		if l.socket != "" {
			_ = t.client().DeleteShare(ctx, l.name, true)
		}
	}
}

func (t *truth) run(ctx context.Context) error {
	if err := t.makeShares(ctx); err != nil {
		return err
	}
	if err := t.look(ctx, "created"); err != nil {
		return err
	}
	if err := t.fillMemory(ctx); err != nil {
		return err
	}
	for _, l := range t.loads {
		if l.pattern != "" {
			if err := t.launch(ctx, l, time.Duration(l.part*float64(t.Duration))); err != nil {
				return err
			}
		}
	}
	t.start = time.Now()
	for _, l := range t.loads {
		for _, b := range l.burners {
			if err := b.Begin(); err != nil {
				return err
			}
		}
	}
	quarter := t.Duration / 4
	steps := []struct {
		at   time.Duration
		what string // is looked at
		do   func(context.Context) error
	}{
		{quarter, "running", t.killPrograms},
		{quarter * 3 / 2, "after a kill", t.control},
		{quarter * 2, "", t.killAgent},
		{quarter * 3, "after an agent was killed", nil},
	}
	for _, step := range steps {
		if err := pause(ctx, time.Until(t.start.Add(step.at))); err != nil {
			return err
		}
		if step.what != "" {
			if err := t.look(ctx, step.what); err != nil {
				return err
			}
		}
		if step.do != nil {
			if err := step.do(ctx); err != nil {
				return err
			}
		}
	}
	for _, l := range t.loads {
		for _, b := range l.burners {
			if b.ends {
				if err := b.Wait(); err != nil {
					return err
				}
				l.deaths++
				continue
			}
			b.Kill()
			l.killed()
		}
	}
	if err := t.settled(ctx); err != nil {
		return err
	}
	if err := pause(ctx, truthZero); err != nil { // the driver is asked how full a GPU is each second
		return err
	}
	if err := t.look(ctx, "ended"); err != nil {
		return err
	}
	t.bench.first.Kill()
	t.bench.second.Kill()
	if err := pause(ctx, truthZero); err != nil {
		return err
	}
	if err := t.look(ctx, "a second after the last death"); err != nil {
		return err
	}
	since := time.Now()
	if err := t.lookAtUsage(ctx); err != nil {
		return err
	}
	return t.lookAtHistory(ctx, since)
}

func (t *truth) makeShares(ctx context.Context) error {
	cards, err := t.truth.Cards(ctx)
	if err != nil {
		return err
	}
	if len(cards) < TruthCards {
		return fmt.Errorf("%d GPUs are not %d", len(cards), TruthCards)
	}
	if t.context, err = t.contextBytes(ctx); err != nil {
		return err
	}
	for i, c := range cards {
		t.cards = append(t.cards, c.UUID)
		_, _, _ = t.truth.Runs(ctx, i, 0) // from now on it remembers
	}
	if err := t.truth.Reset(ctx); err != nil {
		return err
	}
	for _, l := range t.loads {
		l.launches = l.pattern != ""
		spec := api.ShareSpec{Name: l.name, GPU: t.cards[l.card], MemoryBytes: 1 << 30}
		if l.cores > 0 {
			spec.Policy, spec.CoresPercent = share.Fixed, l.cores
		}
		made, err := t.client().CreateShare(ctx, spec)
		if err != nil {
			return fmt.Errorf("create share %s: %w", l.name, err)
		}
		l.socket = made.Socket
	}
	for i := range t.cards {
		busy, _, err := t.truth.CardBusy(ctx, i)
		if err != nil {
			return err
		}
		t.began = append(t.began, time.Duration(busy))
	}
	return nil
}

// launch starts a program that launches, for a while or until it is killed.
func (t *truth) launch(ctx context.Context, l *truthLoad, lasts time.Duration) error {
	var more []string
	if lasts > 0 {
		more = []string{"--seconds", strconv.FormatFloat(lasts.Seconds(), 'f', 3, 64)}
	}
	b, err := StartBurner(ctx, t.burn(), t.Environ(l.socket), l.pattern, l.kernel, more...)
	if err != nil {
		return err
	}
	b.ends = lasts > 0
	l.burners, l.pids = append(l.burners, b), append(l.pids, b.PID)
	return nil
}

// killed notes that a program was, with all that it had queued.
func (l *truthLoad) killed() {
	const ahead = 100 * time.Millisecond // burn.c, in two batches
	l.ahead++
	l.deaths++
	if l.pattern == PatternAsync {
		l.ahead += float64(2 * (ahead/2/l.kernel + 1))
	}
}

// killPrograms kills two programs, and starts others in their shares.
func (t *truth) killPrograms(ctx context.Context) error {
	for _, name := range []string{loadKilled, loadGatedKilled} {
		l := t.load(name)
		l.burners[0].Kill()
		l.killed()
		if err := t.launch(ctx, l, t.Duration*3/5); err != nil {
			return err
		}
		l.burners = l.burners[1:]
		if err := l.burners[0].Begin(); err != nil {
			return err
		}
	}
	return nil
}

// killAgent kills the agent, and a program while there is none.
func (t *truth) killAgent(ctx context.Context) error {
	since := time.Now()
	defer func() { t.away += time.Since(since) }()
	if err := killAgent(ctx, t.Target); err != nil {
		return err
	}
	l := t.load(loadAway)
	l.burners[0].Kill()
	l.burners = nil
	l.killed()
	l.unsaved = true
	return t.settled(ctx)
}

// settled waits until the agent has just those programs in its shares that live.
func (t *truth) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, truthSettle)
	defer cancel()
	for {
		live, err := t.live(ctx)
		if err != nil {
			return err
		}
		shares, err := t.client().Shares(ctx)
		if err != nil && !errors.Is(err, client.ErrUnreachable) {
			return err
		}
		settled := err == nil
		for _, s := range shares.Shares {
			if i := slices.IndexFunc(t.loads, func(l *truthLoad) bool { return l.name == s.Name }); i >= 0 && s.Clients != live[s.Name].clients {
				settled = false
			}
		}
		if settled {
			return nil
		}
		if err := pause(ctx, emptyPoll); err != nil {
			return fmt.Errorf("wait until the agent has seen who lives: %w", err)
		}
	}
}

// fillMemory lets two programs of one share hold memory, be denied more, and another one past
// Divvy; and lets the driver tell of the same XID twice.
func (t *truth) fillMemory(ctx context.Context) error {
	l := t.load(loadMemory)
	env := append(t.Unheld(), "CUDA_VISIBLE_DEVICES="+t.cards[l.card])
	var err error
	if t.bench.unaccounted, err = t.StartHolder(ctx, env); err != nil {
		return err
	}
	if _, err := t.bench.unaccounted.Do("start"); err != nil {
		return err
	}
	if _, err := t.bench.unaccounted.Do("alloc %d", truthUnaccounted); err != nil {
		return err
	}
	for _, h := range []**Holder{&t.bench.first, &t.bench.second} {
		if *h, err = t.StartHolder(ctx, t.Environ(l.socket)); err != nil {
			return err
		}
		l.pids = append(l.pids, (*h).PID)
		if _, err := (*h).Do("start"); err != nil {
			return err
		}
		if h == &t.bench.first { // it holds for a moment the most that the share ever does
			address, err := (*h).Number("alloc %d", 500*mib)
			if err != nil {
				return err
			}
			if _, err := (*h).Do("free %d", address); err != nil {
				return err
			}
		}
	}
	for h, bytes := range map[*Holder]int{t.bench.first: 100*mib + 7, t.bench.second: 150 * mib} {
		if _, err := h.Do("alloc %d", bytes); err != nil {
			return err
		}
		for range 3 {
			if _, err := h.Do("alloc %d", 1<<30); !errors.Is(err, ErrRefused) {
				return fmt.Errorf("more than its quota was not refused: %v", err)
			}
			l.denied++
		}
	}
	for range 2 {
		if _, _, err := t.truth.Inject(ctx, simgpu.Injection{Fault: condition.Fault{Card: l.card, Kind: condition.XID, XID: truthXID}}); err != nil {
			return fmt.Errorf("inject XID %d: %w", truthXID, err)
		}
		t.xids++
	}
	return nil
}

// control gives all sharers of a card what the card was busy.
func (t *truth) control(ctx context.Context) error {
	for card := range 2 {
		busy, at, err := t.truth.CardBusy(ctx, card)
		if err != nil {
			return err
		}
		had, err := t.busyAt(ctx, card, time.Duration(at))
		if err != nil {
			return err
		}
		for _, l := range t.loads {
			if l.card == card && l.launches {
				said := (time.Duration(busy) - t.began[card]).Seconds()
				row := judge(cardSeconds, l.name, expected{value: had[l.name].Seconds(), slack: l.kernel.Seconds()}, &said)
				row.When, row.Shown = "after a kill", "utilisation of its GPU"
				t.report.Control = append(t.report.Control, row)
			}
		}
	}
	return nil
}
