// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// SchemaChange names the version of ChangeReport.
const SchemaChange = "divvy.bench.change/v1"

const (
	changeKernel = time.Millisecond
	changeLook   = 60 * time.Millisecond  // for which a change is looked at
	changeRate   = 600 * time.Millisecond // for which a part is
	changeBound  = 10*time.Millisecond + changeKernel
	changeLess   = 20 // percent, and back
	changeMore   = 60
)

// ChangeReport says how soon a change of a share holds, by the simulator's own record.
type ChangeReport struct {
	Schema    string       `json:"schema"`
	Simulated bool         `json:"simulated"`
	Rounds    int          `json:"rounds"`
	KernelUs  float64      `json:"kernelUs"`
	Changes   []ChangeSeen `json:"changes"`
	Parts     []PartRate   `json:"parts"`
}

// Changes of one of two busy equal shares.
const (
	ChangeNothing  = "nothing"  // the control
	ChangePriority = "priority" // the other one is given a higher one
	ChangePause    = "pause"
	ChangeResume   = "resume"
)

// ChangeSeen is what became of a share that was changed.
type ChangeSeen struct {
	Change string `json:"change"`
	// Ms is from the call to the beginning of its first kernel, when it was resumed, or
	// else to the end of its last one; at most for how long it was looked at.
	Ms Quantiles `json:"ms"`
	// AfterPercent is what it had of the card from 10 ms and one kernel after the call
	// on, on average, and MostPercent in any round.
	AfterPercent float64 `json:"afterPercent"`
	MostPercent  float64 `json:"mostPercent"`
}

// PartRate is what a fixed share alone on the card had from 10 ms and one kernel
// after its part was changed on.
type PartRate struct {
	FromPercent int     `json:"fromPercent"`
	ToPercent   int     `json:"toPercent"`
	GotPercent  float64 `json:"gotPercent"` // on average
	WorstPoints float64 `json:"worstPoints"`
}

// ChangeOptions says how often to look.
type ChangeOptions struct {
	Target
	Rounds int
}

// Change measures it.
func Change(ctx context.Context, o ChangeOptions) (ChangeReport, error) {
	report := ChangeReport{Schema: SchemaChange, Simulated: true, Rounds: o.Rounds, KernelUs: float64(changeKernel.Microseconds())}
	if o.Rounds < 1 {
		return report, fmt.Errorf("%d rounds are none", o.Rounds)
	}
	if err := o.Validate(); err != nil {
		return report, err
	}
	truth, err := simgpu.Dial(ctx, o.SimulatorSocket)
	if err != nil {
		return report, fmt.Errorf("open the simulator's account: %w", err)
	}
	defer truth.Close()
	if err := o.turns(ctx, truth, &report); err != nil {
		return report, err
	}
	return report, o.parts(ctx, truth, &report)
}

// turns changes who of two busy shares may launch.
func (o ChangeOptions) turns(ctx context.Context, truth *simgpu.Truth, report *ChangeReport) error {
	shares, remove, err := o.pair(ctx, 0)
	defer remove()
	if err != nil {
		return err
	}
	var programs [2]*watched
	for i, share := range shares {
		if programs[i], err = o.watch(ctx, truth, share); err != nil {
			return err
		}
		defer programs[i].Kill()
	}
	one, other := programs[0], programs[1]
	if err := pause(ctx, quotaWarmUp); err != nil {
		return err
	}
	steps := []struct {
		name  string
		of    *watched // is changed
		to    api.ShareChange
		times []time.Duration
	}{
		{ChangeNothing, one, api.ShareChange{}, nil},
		{ChangePriority, other, api.ShareChange{Priority: new(10)}, nil},
		{"", other, api.ShareChange{Priority: new(0)}, nil}, // not looked at
		{ChangePause, one, api.ShareChange{Paused: new(true)}, nil},
		{ChangeResume, one, api.ShareChange{Paused: new(false)}, nil},
	}
	seen := map[string]*ChangeSeen{}
	for range o.Rounds {
		for i := range steps {
			step := &steps[i]
			since, err := step.of.change(ctx, step.to)
			if err != nil {
				return err
			}
			if err := pause(ctx, changeLook); err != nil {
				return err
			}
			runs, err := one.since(ctx, since)
			if err != nil {
				return err
			}
			if seen[step.name] == nil {
				seen[step.name] = &ChangeSeen{Change: step.name}
			}
			step.times = append(step.times, turned(runs, since, step.name == ChangeResume))
			after := partOf(runs, since+changeBound, since+changeLook)
			seen[step.name].AfterPercent += after / float64(o.Rounds)
			seen[step.name].MostPercent = max(seen[step.name].MostPercent, after)
		}
	}
	for _, step := range steps {
		if s := seen[step.name]; step.name != "" {
			s.Ms = quantiles(step.times)
			report.Changes = append(report.Changes, *s)
		}
	}
	return nil
}

// turned is how long after a moment the first of some runs begins, or the last one
// ends.
func turned(runs []simgpu.Run, since time.Duration, first bool) time.Duration {
	switch {
	case first && len(runs) == 0:
		return changeLook
	case first:
		return time.Duration(runs[0].FromNS) - since
	case len(runs) == 0:
		return 0
	}
	return min(time.Duration(runs[len(runs)-1].ToNS)-since, changeLook)
}

// partOf is how many percent of a time runs fill.
func partOf(runs []simgpu.Run, from, to time.Duration) float64 {
	got := int64(0)
	for _, r := range runs {
		got += max(min(r.ToNS, int64(to))-max(r.FromNS, int64(from)), 0)
	}
	return 100 * float64(got) / float64(to-from)
}

// parts changes the part of a share that is alone on the card.
func (o ChangeOptions) parts(ctx context.Context, truth *simgpu.Truth, report *ChangeReport) error {
	spec := api.ShareSpec{Name: fmt.Sprintf("bench-change-%d", time.Now().UnixNano()), MemoryBytes: 1 << 30, Policy: share.Fixed, CoresPercent: changeLess}
	share, err := o.client().CreateShare(ctx, spec)
	if err != nil {
		return fmt.Errorf("create share %s: %w", spec.Name, err)
	}
	defer func() { _ = o.client().DeleteShare(context.WithoutCancel(ctx), share.Name, true) }()
	w, err := o.watch(ctx, truth, share)
	if err != nil {
		return err
	}
	defer w.Kill()
	report.Parts = []PartRate{
		{FromPercent: changeLess, ToPercent: changeMore}, {FromPercent: changeMore, ToPercent: changeLess},
	}
	for range o.Rounds {
		for i := range report.Parts {
			p := &report.Parts[i]
			since, err := w.change(ctx, api.ShareChange{CoresPercent: &p.ToPercent})
			if err != nil {
				return err
			}
			if err := pause(ctx, changeBound+changeRate); err != nil {
				return err
			}
			runs, err := w.since(ctx, since+changeBound)
			if err != nil {
				return err
			}
			percent := partOf(runs, since+changeBound, since+changeBound+changeRate)
			p.GotPercent += percent / float64(o.Rounds)
			p.WorstPoints = max(p.WorstPoints, percent-float64(p.ToPercent), float64(p.ToPercent)-percent)
		}
	}
	return nil
}

// watched is a busy program in a share, and when it had the card.
type watched struct {
	*Burner
	target  Target
	share   string
	process uint64
	truth   *simgpu.Truth
}

func (t Target) watch(ctx context.Context, truth *simgpu.Truth, share api.Share) (*watched, error) {
	b, err := t.burnerIn(ctx, t.Environ(share.Socket), changeKernel)
	if err != nil {
		return nil, err
	}
	w := &watched{Burner: b, target: t, share: share.Name, truth: truth}
	if err := pause(ctx, quotaWarmUp); err != nil {
		w.Kill()
		return nil, err
	}
	states, err := truth.CardTime(ctx)
	for _, s := range states {
		if s.PID == b.PID && !s.Dead {
			w.process = uint64(s.Process)
		}
	}
	if err == nil && w.process == 0 {
		err = fmt.Errorf("the simulator's account does not know process %d", b.PID)
	}
	if err != nil {
		w.Kill()
		return nil, err
	}
	_, _, _ = truth.Runs(ctx, 0, 0) // from now on it remembers
	return w, nil
}

// change changes the share, and returns when it was asked to.
func (w *watched) change(ctx context.Context, to api.ShareChange) (time.Duration, error) {
	since, err := now()
	if err != nil || to == (api.ShareChange{}) {
		return since, err
	}
	_, err = w.target.client().ChangeShare(ctx, w.share, to)
	return since, err
}

// since is when it has had the card from a moment on.
func (w *watched) since(ctx context.Context, moment time.Duration) ([]simgpu.Run, error) {
	list, _, err := w.truth.Runs(ctx, 0, int64(moment))
	if err != nil {
		return nil, fmt.Errorf("ask who had the GPU: %w", err)
	}
	var runs []simgpu.Run
	for _, r := range list {
		if uint64(r.Process) == w.process {
			runs = append(runs, r)
		}
	}
	return runs, nil
}
