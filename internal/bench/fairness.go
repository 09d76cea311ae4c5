// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// SchemaFairness names the version of FairnessReport.
const SchemaFairness = "divvy.bench.fairness/v1"

// FairnessOptions says how long to look at how many shares.
type FairnessOptions struct {
	Target
	Shares   []int         // equal ones at once; none: 4 and 16
	Duration time.Duration // 0: 10 s
	Rounds   int           // of lending; 0: 20
}

// FairnessRow is so many equal shares at once.
type FairnessRow struct {
	Shares int     `json:"shares"`
	Jain   float64 `json:"jain"` // 1: all had the same of the card, by the simulator's own account
	// What they had of the card together, and the same programs without Divvy.
	TotalPercent   float64 `json:"totalPercent"`
	ControlPercent float64 `json:"controlPercent"`
	ControlJain    float64 `json:"controlJain"`
}

// FairnessReport says how evenly equal shares divide a card, and how soon one
// gets what another does not use any more.
type FairnessReport struct {
	Schema    string        `json:"schema"`
	Simulated bool          `json:"simulated"`
	Jain      float64       `json:"jain"` // the worst of the rows
	Rows      []FairnessRow `json:"rows"`
	// From when one of two busy shares stops to when the other has the card alone.
	LentMs Delays `json:"lentMs"`
}

// Fairness measures it.
func Fairness(ctx context.Context, o FairnessOptions) (FairnessReport, error) {
	report := FairnessReport{Schema: SchemaFairness, Simulated: true, Jain: 1, Rows: []FairnessRow{}}
	if len(o.Shares) == 0 {
		o.Shares = []int{4, 16}
	}
	if o.Duration == 0 {
		o.Duration = 10 * time.Second
	}
	if o.Rounds == 0 {
		o.Rounds = 20
	}
	errs := []error{o.Validate()}
	for _, n := range o.Shares {
		if n < 2 || n > 16 {
			errs = append(errs, fmt.Errorf("%d shares are not between 2 and 16", n))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return report, err
	}
	truth, err := simgpu.Dial(ctx, o.SimulatorSocket)
	if err != nil {
		return report, fmt.Errorf("open the simulator's account: %w", err)
	}
	defer truth.Close()
	q := &quota{QuotaOptions: QuotaOptions{Target: o.Target, Duration: o.Duration}, truth: truth}
	for _, n := range o.Shares {
		row, err := q.fairness(ctx, n)
		if err != nil {
			return report, err
		}
		report.Jain = min(report.Jain, row.Jain)
		report.Rows = append(report.Rows, row)
	}
	lent, err := o.lending(ctx)
	report.LentMs = delays(lent)
	return report, err
}

// fairness measures n equal shares, and as many programs without Divvy.
func (q *quota) fairness(ctx context.Context, n int) (FairnessRow, error) {
	row := FairnessRow{Shares: n}
	c := QuotaCase{Cores: make([]int, n), Kernel: time.Millisecond, Pattern: PatternAsync, Policy: share.Equal, Together: true}
	control, err := q.run(ctx, c, make([]string, n), min(q.Duration, quotaControl))
	if err != nil {
		return row, fmt.Errorf("control without Divvy: %w", err)
	}
	var parts []float64
	for _, one := range control.shares {
		parts = append(parts, one.percent)
		row.ControlPercent += one.percent
	}
	row.ControlJain = jain(parts)
	rows, err := q.shares(ctx, c, c.Cores)
	if err != nil {
		return row, err
	}
	parts = parts[:0]
	for _, one := range rows {
		parts = append(parts, one.AchievedPercent)
		row.TotalPercent += one.AchievedPercent
	}
	row.Jain = jain(parts)
	return row, nil
}

// jain is Jain's index of fairness (R. Jain, D. Chiu, W. Hawe: A Quantitative
// Measure of Fairness, DEC-TR-301, 1984): 1 when all are the same, 1/n when one
// has all.
func jain(parts []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range parts {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(parts)) * squares)
}

// lending stops one of two busy programs again and again, and measures when the
// other has the card alone.
func (o FairnessOptions) lending(ctx context.Context) ([]time.Duration, error) {
	account, err := openAccount(ctx, o.SimulatorSocket)
	if err != nil {
		return nil, err
	}
	defer account.close()
	shares, remove, err := o.pair(ctx, 0)
	defer remove()
	if err != nil {
		return nil, err
	}
	stays, err := o.burnerIn(ctx, o.Environ(shares[1].Socket), time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer stays.Kill()
	var all []time.Duration
	for range o.Rounds {
		one, err := o.lend(ctx, account, shares[0], stays.PID)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// lend measures one time.
func (o FairnessOptions) lend(ctx context.Context, account *account, share api.Share, stays int) (time.Duration, error) {
	const (
		span  = 20 * time.Millisecond // in which it must have had nearly all
		least = 95                    // percent
	)
	stops, err := o.burnerIn(ctx, o.Environ(share.Socket), time.Millisecond)
	if err != nil {
		return 0, err
	}
	defer stops.Kill()
	if err := pause(ctx, quotaWarmUp); err != nil {
		return 0, err
	}
	stopped, err := now()
	if err != nil {
		return 0, err
	}
	stops.Kill()
	type look struct{ at, busy time.Duration }
	var looks []look
	for {
		busy, err := account.busy(ctx, stays, 0)
		if err != nil {
			return 0, err
		}
		at, err := now()
		if err != nil {
			return 0, err
		}
		looks = append(looks, look{at, busy[0]})
		for looks[0].at < at-span-time.Millisecond {
			looks = looks[1:]
		}
		first := looks[0]
		if at-first.at >= span && 100*(busy[0]-first.busy) >= least*(at-first.at) {
			return max(first.at-stopped, 0), nil
		}
		if at-stopped > 10*time.Second {
			return 0, errors.New("the other share never got the whole GPU")
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return 0, err
		}
	}
}
