// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// SchemaQuota names the version of QuotaReport.
const SchemaQuota = "divvy.bench.quota/v1"

// Patterns in which programs launch.
const (
	PatternAsync     = "async"     // far ahead
	PatternSync      = "sync"      // wait for each kernel
	PatternGraph     = "graph"     // graphs, far ahead
	PatternStreams   = "streams"   // on several streams, far ahead
	PatternProcesses = "processes" // several processes in the share, each far ahead
)

// Patterns are all of them.
func Patterns() []string {
	return []string{PatternAsync, PatternSync, PatternGraph, PatternProcesses, PatternStreams}
}

const (
	patternProcesses = 4
	quotaWarmUp      = 300 * time.Millisecond
	quotaSample      = 50 * time.Millisecond
	quotaControl     = 2 * time.Second // for which the control runs, or as long as the rest
	// quotaAttainable is the part of what the load gets without Divvy that a
	// share must be able to get with it.
	quotaAttainable = 0.97
	quotaRead       = 0.001 // points by which percents are rounded
	modeUngated     = "ungated"

	graphNodes = 8 // of the graphs of burn.c, or fewer where that would take longer than graphMost
	graphMost  = 20 * time.Millisecond
)

// QuotaCase is one load: shares of so many percent of a card, alone one after
// the other or together at once.
type QuotaCase struct {
	Cores    []int
	Together bool
	Policy   share.Policy // empty: fixed; best-effort: nothing is held, only accounted
	Kernel   time.Duration
	Pattern  string
}

// QuotaOptions says what to measure.
type QuotaOptions struct {
	Target
	Cases    []QuotaCase // none: QuotaSuite
	Duration time.Duration
	// Resolve measures longer where a launch is more than a quarter of what a share may
	// be off.
	Resolve  bool
	Progress func(QuotaRow) // may be nil; told of each row when it is known
}

// QuotaSuite is the accuracy matrix.
func QuotaSuite() []QuotaCase {
	var cases []QuotaCase
	alone := []int{10, 30, 60}
	for _, kernel := range []time.Duration{50 * time.Microsecond, time.Millisecond, 20 * time.Millisecond} {
		cases = append(cases, QuotaCase{Cores: alone, Kernel: kernel, Pattern: PatternAsync})
	}
	return append(cases,
		QuotaCase{Cores: []int{20, 30, 50}, Together: true, Kernel: time.Millisecond, Pattern: PatternAsync},
		QuotaCase{Cores: []int{30}, Kernel: time.Millisecond, Pattern: PatternSync},
		QuotaCase{Cores: []int{30}, Kernel: time.Millisecond, Pattern: PatternProcesses},
		QuotaCase{Cores: []int{100}, Kernel: time.Millisecond, Pattern: PatternAsync, Policy: share.BestEffort},
		QuotaCase{Cores: []int{50, 50}, Together: true, Kernel: time.Millisecond, Pattern: PatternAsync, Policy: share.BestEffort})
}

// QuotaMatrix is every quota with every kernel and way to launch, each alone.
func QuotaMatrix() []QuotaCase {
	var cases []QuotaCase
	for _, pattern := range Patterns() {
		for _, kernel := range []time.Duration{50 * time.Microsecond, time.Millisecond, 20 * time.Millisecond} {
			cases = append(cases, QuotaCase{Cores: []int{5, 10, 30, 60, 90}, Kernel: kernel, Pattern: pattern})
		}
	}
	return cases
}

// Validate says what is wrong with a case.
func (c QuotaCase) Validate() error {
	var errs []error
	sum := 0
	for _, cores := range c.Cores {
		sum += cores
		if cores < 1 || cores > 100 {
			errs = append(errs, fmt.Errorf("%d is not between 1 and 100 percent of a GPU", cores))
		}
	}
	if len(c.Cores) == 0 {
		errs = append(errs, errors.New("no shares"))
	}
	if c.Together && sum > 100 {
		errs = append(errs, fmt.Errorf("%v together are more than a GPU", c.Cores))
	}
	if c.Kernel < time.Microsecond || c.Kernel > time.Second {
		errs = append(errs, fmt.Errorf("kernels of %v are not between 1us and 1s", c.Kernel))
	}
	if !slices.Contains(Patterns(), c.Pattern) {
		errs = append(errs, fmt.Errorf("pattern %q is not one of %v", c.Pattern, Patterns()))
	}
	return errors.Join(errs...)
}

// launch is how long one launch takes.
func (c QuotaCase) launch() time.Duration {
	if c.Pattern != PatternGraph {
		return c.Kernel
	}
	return c.Kernel * min(graphNodes, max(graphMost/c.Kernel, 1))
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// QuotaRow is what one share got. Percents are of the card's time, by the
// simulator's own account.
type QuotaRow struct {
	CoresPercent    int     `json:"coresPercent"`
	AchievedPercent float64 `json:"achievedPercent"`
	ErrorPoints     float64 `json:"errorPoints"` // against the quota, or what 97 % of the control allow
	KernelUs        float64 `json:"kernelUs"`
	Pattern         string  `json:"pattern"`
	Mode            string  `json:"mode"` // alone, together, ungated
	ControlPercent  float64 `json:"controlPercent"`
	DemandLimited   bool    `json:"demandLimited"` // the load could not use its quota without Divvy either
	// MostPercent is the most that it had of any second, AccountedPercent what
	// Divvy's own account says.
	MostPercent      float64 `json:"mostPercent"`
	AccountedPercent float64 `json:"accountedPercent"`
	// AccountErrorPercent is by how much that is off, of what it had by the simulator's
	// account in the same time, to the nanosecond.
	AccountErrorPercent float64 `json:"accountErrorPercent"`
	// Idle is why the card was idle while this was measured; nil: nothing was held.
	Idle *Idle `json:"idle,omitempty"`
	// Host is how late the host woke threads meanwhile.
	Host     Wakes   `json:"host"`
	Seconds  float64 `json:"seconds"`  // for which it was measured
	LaunchUs float64 `json:"launchUs"` // what cannot be taken apart: a kernel, or a graph of some
	// Missed are the targets that were not met: MissedError, MissedSecond.
	Missed []string `json:"missed"`

	together int // percent that all shares measured at once were promised
}

// Targets of a quota that can be missed.
const (
	MissedError  = "error"  // QuotaErrorTarget
	MissedSecond = "second" // no second has more than the quota and one launch
)

// QuotaReport says how exactly shares of a card's time are held.
type QuotaReport struct {
	Schema    string     `json:"schema"`
	Simulated bool       `json:"simulated"`
	Seconds   float64    `json:"seconds"`
	Rows      []QuotaRow `json:"rows"`
}

// Quota measures it.
func Quota(ctx context.Context, o QuotaOptions) (QuotaReport, error) {
	if len(o.Cases) == 0 {
		o.Cases = QuotaSuite()
	}
	report := QuotaReport{Schema: SchemaQuota, Simulated: true, Seconds: o.Duration.Seconds(), Rows: []QuotaRow{}}
	errs := []error{o.Validate()}
	for _, c := range o.Cases {
		errs = append(errs, c.Validate())
	}
	if o.Duration < 2*quotaSample {
		errs = append(errs, fmt.Errorf("%v is too short to measure", o.Duration))
	}
	if err := errors.Join(errs...); err != nil {
		return report, err
	}
	truth, err := simgpu.Dial(ctx, o.SimulatorSocket)
	if err != nil {
		return report, fmt.Errorf("open the simulator's account: %w", err)
	}
	defer truth.Close()
	q := &quota{QuotaOptions: o, truth: truth}
	for _, c := range o.Cases {
		rows, err := q.measure(ctx, c)
		if err != nil {
			return report, err
		}
		report.Rows = append(report.Rows, rows...)
	}
	return report, nil
}

type quota struct {
	QuotaOptions
	truth *simgpu.Truth
	made  int // shares
}

// measure runs the control of a case, then its shares.
func (q *quota) measure(ctx context.Context, c QuotaCase) ([]QuotaRow, error) {
	control, err := q.run(ctx, c, []string{""}, min(q.Duration, quotaControl))
	if err != nil {
		return nil, fmt.Errorf("control without Divvy: %w", err)
	}
	groups := [][]int{c.Cores}
	if !c.Together {
		groups = nil
		for _, cores := range c.Cores {
			groups = append(groups, []int{cores})
		}
	}
	var rows []QuotaRow
	for _, cores := range groups {
		found, err := q.shares(ctx, c, cores)
		if err != nil {
			return nil, err
		}
		for i := range found {
			found[i].judge(control.shares[0].percent)
			if q.Progress != nil {
				q.Progress(found[i])
			}
		}
		rows = append(rows, found...)
	}
	return rows, nil
}

// shares runs the load in shares of so many cores, at once.
func (q *quota) shares(ctx context.Context, c QuotaCase, cores []int) ([]QuotaRow, error) {
	agent := q.client()
	var names []string
	defer func() {
		for _, name := range names {
			_ = agent.DeleteShare(context.WithoutCancel(ctx), name, true)
		}
	}()
	for _, percent := range cores {
		// A share lives on until the driver has let go of its last program.
		q.made++
		name := fmt.Sprintf("bench-quota-%d", q.made)
		spec := api.ShareSpec{Name: name, CoresPercent: percent, Policy: share.Fixed, MemoryBytes: 4 << 30}
		if c.Policy != "" {
			spec.CoresPercent, spec.Policy = 0, c.Policy
		}
		if _, err := agent.CreateShare(ctx, spec); err != nil {
			return nil, fmt.Errorf("create share %s: %w", name, err)
		}
		names = append(names, name)
	}
	duration := q.Duration
	if q.Resolve {
		duration = max(duration, resolved(c.launch(), slices.Min(cores)))
	}
	run, err := q.run(ctx, c, names, duration)
	if err != nil {
		return nil, err
	}
	together := 0
	if c.Together {
		for _, percent := range cores {
			together += percent
		}
	}
	var rows []QuotaRow
	for i, percent := range cores {
		row := QuotaRow{CoresPercent: percent, KernelUs: us(c.Kernel), LaunchUs: us(c.launch()), Seconds: duration.Seconds(), Pattern: c.Pattern, Mode: "alone",
			AchievedPercent: run.shares[i].percent, MostPercent: run.shares[i].most, AccountedPercent: run.shares[i].accounted,
			AccountErrorPercent: run.shares[i].off, Idle: run.idle, Host: run.host, together: together}
		if c.Together {
			row.Mode = "together"
		}
		if c.Policy == share.BestEffort {
			row.Mode = modeUngated
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// judge compares with what the share was promised and could use, and Divvy's
// account with the simulator's.
func (r *QuotaRow) judge(control float64) {
	r.ControlPercent = control
	promised := float64(r.CoresPercent)
	attainable := quotaAttainable * control
	r.DemandLimited = promised > attainable
	switch {
	case !r.DemandLimited || r.AchievedPercent > promised:
		r.ErrorPoints = r.AchievedPercent - promised
	case r.AchievedPercent < attainable:
		r.ErrorPoints = r.AchievedPercent - attainable
	}
	r.Missed = []string{}
	if r.Mode == modeUngated {
		return
	}
	if math.Abs(r.ErrorPoints) > allowedPoints(r.CoresPercent) {
		r.Missed = append(r.Missed, MissedError)
	}
	if r.MostPercent > promised+r.slack()+100*r.LaunchUs/1e6+quotaRead {
		r.Missed = append(r.Missed, MissedSecond)
	}
}

// By how many points of the card's time a share may be off.
const (
	mostPoints      = 0.5
	mostPointsSmall = 0.2 // of a share of at most smallPercent
	smallPercent    = 5
)

// slack is by how many points a share may go beyond its quota in a second: shares that
// were promised nearly all of a card could not make up for a moment in which it stood
// idle otherwise (docs/sharing-time.md).
func (r *QuotaRow) slack() float64 {
	const nearlyAll, points = 97, 0.5
	if r.together >= nearlyAll {
		return points
	}
	return 0
}

// QuotaErrorTarget is that in words.
func QuotaErrorTarget() string {
	return fmt.Sprintf("%v point (%v up to %d%%)", mostPoints, mostPointsSmall, smallPercent)
}

// allowedPoints is how far a share of so many percent may be off.
func allowedPoints(cores int) float64 {
	if cores <= smallPercent {
		return mostPointsSmall
	}
	return mostPoints
}

// resolved is for how long a share must be measured until a launch is a quarter of
// what it may be off.
func resolved(launch time.Duration, cores int) time.Duration {
	return time.Duration(float64(launch) * 4 * 100 / allowedPoints(cores))
}

// outcome is what the processes of one share had, in percent of the time, and by how
// many percent of that Divvy's account is off.
type outcome struct{ percent, most, accounted, off float64 }

// outcomes is what came of a run.
type outcomes struct {
	shares []outcome
	idle   *Idle
	host   Wakes
}

// run runs the load once in each of the named shares, and says what each had.
// The name "" stands for no Divvy in between.
func (q *quota) run(ctx context.Context, c QuotaCase, names []string, duration time.Duration) (*outcomes, error) {
	agent := q.client()
	owner := map[int]int{} // process to share
	var burners []*Burner
	defer func() {
		for _, b := range burners {
			b.Kill()
		}
	}()
	processes, pattern := 1, c.Pattern
	if pattern == PatternProcesses {
		processes, pattern = patternProcesses, PatternAsync
	}
	for i, name := range names {
		env := q.Unheld()
		if name != "" {
			share, err := agent.Share(ctx, name)
			if err != nil {
				return nil, err
			}
			env = q.Environ(share.Socket)
		}
		for range processes {
			b, err := StartBurner(ctx, q.burn(), env, pattern, c.Kernel)
			if err != nil {
				return nil, err
			}
			burners = append(burners, b)
			owner[b.PID] = i
		}
	}
	for _, b := range burners {
		if err := b.Begin(); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, quotaWarmUp); err != nil {
		return nil, err
	}
	return q.watch(ctx, names, owner, duration)
}

// sample is what the shares had had at a moment.
type sample struct {
	at    time.Duration
	busy  []time.Duration
	owner map[uint64]int // share of a process
}

// watch samples the simulator's account for a while.
func (q *quota) watch(ctx context.Context, names []string, owner map[int]int, duration time.Duration) (*outcomes, error) {
	history := history{truth: q.truth, runs: make([][]simgpu.Run, len(names))}
	if err := history.read(ctx, nil); err != nil {
		return nil, err
	}
	before, err := q.accounted(ctx, names)
	if err != nil {
		return nil, err
	}
	host := WatchHost()
	var samples []sample
	for {
		s, err := q.sample(ctx, len(names), owner)
		if err != nil {
			return nil, err
		}
		samples = append(samples, s)
		if err := history.read(ctx, s.owner); err != nil {
			return nil, err
		}
		if s.at-samples[0].at >= duration {
			break
		}
		if err := pause(ctx, quotaSample); err != nil {
			return nil, err
		}
	}
	after, err := q.accounted(ctx, names)
	result := &outcomes{shares: make([]outcome, len(names)), host: host()}
	if err != nil {
		return nil, err
	}
	if err := history.read(ctx, samples[len(samples)-1].owner); err != nil {
		return nil, err
	}
	if idle, leased := IdleBetween(before.card, after.card); leased {
		result.idle = &idle
	}
	first, last := samples[0], samples[len(samples)-1]
	percent := func(busy, of time.Duration) float64 { return 100 * float64(busy) / float64(max(of, 1)) }
	for i := range result.shares {
		from, to := before.shares[i], after.shares[i]
		result.shares[i] = outcome{
			percent:   percent(last.busy[i]-first.busy[i], last.at-first.at),
			most:      100 * mostOf(history.runs[i], min(time.Second, last.at-first.at)).Seconds() / min(time.Second, last.at-first.at).Seconds(),
			accounted: percent(to.busy-from.busy, to.at-from.at),
		}
		if had := between(history.runs[i], from.at, to.at); had > 0 {
			result.shares[i].off = percent(to.busy-from.busy-had, had)
		}
	}
	return result, nil
}

func (q *quota) sample(ctx context.Context, shares int, owner map[int]int) (sample, error) {
	s := sample{busy: make([]time.Duration, shares), owner: map[uint64]int{}}
	states, err := q.truth.CardTime(ctx)
	if err != nil {
		return s, err
	}
	for _, state := range states {
		if i, ok := owner[state.PID]; ok {
			s.busy[i] += time.Duration(state.BusyNS)
			s.owner[uint64(state.Process)] = i
			s.at = time.Duration(state.AtNS)
		}
	}
	if s.at == 0 {
		return s, errors.New("the simulator's account knows none of the programs")
	}
	return s, nil
}

// reading is what Divvy's own account says of a share at a moment.
type reading struct{ at, busy time.Duration }

// readings is what it says of all, and of their card.
type readings struct {
	shares []reading
	card   *api.CardTime
}

func (q *quota) accounted(ctx context.Context, names []string) (readings, error) {
	all := readings{shares: make([]reading, len(names))}
	var err error
	if all.card, err = TimeOfCard(ctx, q.client()); err != nil {
		return all, err
	}
	for i, name := range names {
		if name == "" {
			continue
		}
		share, err := q.client().Share(ctx, name)
		if err != nil {
			return all, err
		}
		all.shares[i] = reading{time.Duration(share.CardTimeAtNs), time.Duration(share.CardTimeNs)}
	}
	return all, nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
