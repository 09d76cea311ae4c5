// SPDX-License-Identifier: Apache-2.0

// Package demo shows the product at work: one simulated card, three shares, and
// under each three unmodified programs. One computes and compares with the CPU, one
// takes all the memory it can get and one all the time. What they had is read from
// the simulator, not from our own ledger.
//
// It starts no daemon: the caller brings an agent over a simulated card.
package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/size"
)

// Schema names the version of Report.
const Schema = "divvy.demo/v1"

const (
	samplePeriod = 100 * time.Millisecond
	// warmUpSamples are not counted: not all programs have begun.
	warmUpSamples = 3
	kernel        = time.Millisecond
	// endAllowance is added to the asked time before a program that does not
	// end is killed.
	endAllowance = 60 * time.Second
)

// Options say what to show, and with what.
type Options struct {
	Agent     *client.Client
	Simulator string // socket
	Program   string // lib/divvy/tools/memload
	Burn      string // lib/divvy/tools/burn
	Compute   string // lib/divvy/examples/matmul
	Seconds   int
	// Environ is the environment of a program under a share.
	Environ func(api.Share) []string
	// Control runs the same programs in an environment without Divvy: shares
	// then hold nobody, and the demo must not pass.
	Control bool
	// Watch, if there is one, is told how it goes, a few times per second.
	Watch func(Report)
}

// Report is `divvy demo --json`.
type Report struct {
	Schema    string        `json:"schema"`
	Simulated bool          `json:"simulated"`
	Control   bool          `json:"control,omitempty"`
	Seconds   int           `json:"seconds"`
	Card      Card          `json:"card"`
	Shares    []ShareReport `json:"shares"`
	Pass      bool          `json:"pass"`
	// Idle is why the card was idle while the shares' time was measured, and Host how late
	// the host woke threads meanwhile; nil: nothing was held.
	Idle *bench.Idle  `json:"idle,omitempty"`
	Host *bench.Wakes `json:"host,omitempty"`
}

// Card is the card that was divided.
type Card struct {
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	MemoryBytes uint64 `json:"memoryBytes"`
}

// ShareReport is what came of one share. What it got, and the most memory it
// had, are the simulator's account.
type ShareReport struct {
	Name                 string  `json:"name"`
	Policy               string  `json:"policy"`
	CoresPercent         float64 `json:"coresPercent"`
	CoresAchievedPercent float64 `json:"coresAchievedPercent"`
	MemoryLimitBytes     uint64  `json:"memoryLimitBytes"`
	MemoryPeakBytes      uint64  `json:"memoryPeakBytes"`
	DeniedAllocations    uint64  `json:"deniedAllocations"`
	ResultsCorrect       bool    `json:"resultsCorrect"`
	Fault                string  `json:"fault,omitempty"` // why it did not pass

	nowBytes uint64
}

// NowBytes is what the share's program held when last looked at.
func (r ShareReport) NowBytes() uint64 { return r.nowBytes }

// plan are the three shares.
var plan = []struct {
	name  string
	bytes uint64
	cores int
}{
	{"notebook", 8 * size.GiB, 20}, {"inference", 16 * size.GiB, 30}, {"training", 40 * size.GiB, 50},
}

// tenant is one share with its programs.
type tenant struct {
	report  ShareReport
	burn    *bench.Burner
	first   cardTime // of burn, when it had got going
	last    cardTime
	samples int
	correct bool   // what compute made
	wrong   string // or what went wrong
	program *exec.Cmd
	output  bytes.Buffer
	errors  bytes.Buffer
	pid     int
	ended   error
}

// Run shows it.
func Run(ctx context.Context, o Options) (Report, error) {
	report := Report{Schema: Schema, Control: o.Control, Seconds: o.Seconds}
	devices, err := o.Agent.Devices(ctx)
	if err != nil {
		return report, err
	}
	if len(devices.Cards) != 1 || !devices.Simulated {
		return report, fmt.Errorf("the demo wants one simulated GPU, not %d GPUs", len(devices.Cards))
	}
	card := devices.Cards[0]
	report.Simulated, report.Card = true, Card{UUID: card.UUID, Name: card.Name, MemoryBytes: card.MemoryBytes}
	truth, err := simgpu.Dial(ctx, o.Simulator)
	if err != nil {
		return report, err
	}
	defer truth.Close()
	tenants, err := start(ctx, o)
	defer func() {
		for _, t := range tenants {
			if t.burn != nil {
				t.burn.Kill()
			}
			_ = o.Agent.DeleteShare(context.WithoutCancel(ctx), t.report.Name, true)
		}
	}()
	if err != nil {
		return report, err
	}
	w := &watch{Options: o, report: report, tenants: tenants, truth: truth}
	host := bench.WatchHost()
	err = w.run(ctx)
	wakes := host()
	if err != nil {
		return report, err
	}
	if idle, leased := bench.IdleBetween(w.first, w.last); leased && !o.Control {
		report.Idle, report.Host = &idle, &wakes
	}
	report.Pass = true
	for _, t := range tenants {
		t.judge(o.Seconds)
		report.Pass = report.Pass && t.report.Fault == ""
		report.Shares = append(report.Shares, t.report)
	}
	return report, nil
}

// start makes the shares and starts a program under each.
func start(ctx context.Context, o Options) ([]*tenant, error) {
	var tenants []*tenant
	for _, p := range plan {
		share, err := o.Agent.CreateShare(ctx, api.ShareSpec{Name: p.name, MemoryBytes: p.bytes, CoresPercent: p.cores, Policy: share.Fixed})
		if err != nil {
			return tenants, fmt.Errorf("create share %s: %w", p.name, err)
		}
		t := &tenant{report: ShareReport{Name: share.Name, Policy: string(share.Policy),
			CoresPercent: float64(share.CoresPercent), MemoryLimitBytes: share.LimitBytes}}
		t.program = exec.CommandContext(ctx, o.Program, strconv.Itoa(o.Seconds))
		t.program.Env = o.Environ(share)
		t.program.Stdout, t.program.Stderr = &t.output, &t.errors
		tenants = append(tenants, t)
	}
	// What takes time needs a little memory: it comes before what takes all.
	for _, t := range tenants {
		burn, err := bench.StartBurner(ctx, o.Burn, t.program.Env, bench.PatternAsync, kernel)
		if err != nil {
			return tenants, err
		}
		t.burn = burn
	}
	for _, t := range tenants {
		if err := t.burn.Begin(); err != nil {
			return tenants, err
		}
	}
	var computing sync.WaitGroup
	for _, t := range tenants {
		computing.Go(func() { t.compute(ctx, o.Compute) })
	}
	computing.Wait()
	for _, t := range tenants {
		if err := t.program.Start(); err != nil {
			stopAll(tenants)
			return tenants, fmt.Errorf("start %s: %w", o.Program, err)
		}
		t.pid = t.program.Process.Pid
	}
	return tenants, nil
}

// compute runs a program that computes beside the one that burns.
func (t *tenant) compute(ctx context.Context, program string) {
	ctx, cancel := context.WithTimeout(ctx, endAllowance)
	defer cancel()
	process := exec.CommandContext(ctx, program, "--json")
	process.Env = t.program.Env
	var complaint bytes.Buffer
	process.Stderr = &complaint
	output, err := process.Output()
	var saw struct {
		Values  int  `json:"values"`
		Correct bool `json:"correct"`
	}
	if err == nil {
		err = json.Unmarshal(output, &saw)
	}
	t.correct = err == nil && saw.Correct && saw.Values > 0
	if err != nil {
		t.wrong = fmt.Sprintf(": %v: %s", err, bytes.TrimSpace(complaint.Bytes()))
	}
}

// stopAll ends programs that were started and waits for them.
func stopAll(tenants []*tenant) {
	for _, t := range tenants {
		if t.program.Process != nil {
			_ = t.program.Process.Kill()
			_ = t.program.Wait()
		}
	}
}

// watch follows the programs to their end.
type watch struct {
	Options
	report      Report
	tenants     []*tenant
	truth       *simgpu.Truth
	samples     int
	first, last *api.CardTime // by the agent's account, when the simulator's was read
}

func (w *watch) run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, t := range w.tenants {
		running.Go(func() { t.ended = t.program.Wait() })
	}
	all := make(chan struct{})
	go func() { // ends with the programs
		defer close(all)
		running.Wait()
	}()
	kill := func() {
		for _, t := range w.tenants {
			_ = t.program.Process.Kill()
		}
		<-all
	}
	ticker := time.NewTicker(samplePeriod)
	defer ticker.Stop()
	deadline := time.NewTimer(time.Duration(w.Seconds)*time.Second + endAllowance)
	defer deadline.Stop()
	for {
		select {
		case <-all:
			return w.sample(ctx)
		case <-ctx.Done():
			kill()
			return ctx.Err()
		case <-deadline.C:
			kill()
			return errors.New("a program of the demo did not end")
		case <-ticker.C:
			if err := w.sample(ctx); err != nil {
				kill()
				return err
			}
		}
	}
}

// sample reads the simulator's account, and the agent's.
func (w *watch) sample(ctx context.Context) error {
	live, err := w.truth.Processes(ctx)
	if err != nil {
		return fmt.Errorf("ask the simulator: %w", err)
	}
	times, err := w.truth.CardTime(ctx)
	if err != nil {
		return fmt.Errorf("ask the simulator: %w", err)
	}
	if w.last, err = bench.TimeOfCard(ctx, w.Agent); err != nil {
		return err
	}
	if w.samples++; w.samples <= warmUpSamples {
		w.first = w.last
	}
	report := w.report
	for _, t := range w.tenants {
		t.spent(times)
		// One holds nothing but its context, and that all the time: the sum of
		// both peaks was held at once.
		sum := uint64(0)
		for _, pid := range []int{t.pid, t.burn.PID} {
			peak, err := w.truth.PeakBytes(ctx, pid, 0)
			if err != nil {
				return fmt.Errorf("ask the simulator: %w", err)
			}
			sum += peak
		}
		t.report.MemoryPeakBytes = max(t.report.MemoryPeakBytes, sum)
		t.report.nowBytes = 0
		for _, p := range live {
			if (p.PID == t.pid || p.PID == t.burn.PID) && p.Card == 0 {
				t.report.nowBytes += p.Bytes
			}
		}
		report.Shares = append(report.Shares, t.report)
	}
	if w.Watch != nil {
		w.Watch(report)
	}
	return nil
}

// outcome is what the program prints at its end.
type outcome struct {
	TotalBytes     uint64 `json:"totalBytes"`
	AllocatedBytes uint64 `json:"allocatedBytes"`
	ComparedBytes  uint64 `json:"comparedBytes"`
	Denials        uint64 `json:"denials"`
	Correct        bool   `json:"correct"`
}

// cardTime is what a process has had of the card at a moment.
type cardTime struct{ at, busy time.Duration }

// spent takes what the simulator says of the share's time.
func (t *tenant) spent(times []simgpu.TimeState) {
	for _, s := range times {
		if s.PID != t.burn.PID || s.Card != 0 || s.Dead {
			continue
		}
		t.last = cardTime{time.Duration(s.AtNS), time.Duration(s.BusyNS)}
		t.samples++
		if t.samples <= warmUpSamples {
			t.first = t.last
		}
	}
	if whole := t.last.at - t.first.at; whole > 0 {
		t.report.CoresAchievedPercent = 100 * float64(t.last.busy-t.first.busy) / float64(whole)
	}
}

// tolerance is by how many points a share may miss its part: one, and more in a
// run so short that single leases count.
func tolerance(seconds int) float64 { return max(1, 3/float64(seconds)) }

// MissedTime says whether a share did not get its part of the time.
func (r Report) MissedTime() bool {
	return slices.ContainsFunc(r.Shares, func(s ShareReport) bool {
		return math.Abs(s.CoresAchievedPercent-s.CoresPercent) > tolerance(r.Seconds)
	})
}

// judge decides whether the share was held to its limits.
func (t *tenant) judge(seconds int) {
	r := &t.report
	var saw outcome
	err := json.Unmarshal(t.output.Bytes(), &saw)
	r.DeniedAllocations = saw.Denials
	r.ResultsCorrect = t.correct && saw.Correct && saw.ComparedBytes > 0
	switch {
	case r.MemoryPeakBytes > r.MemoryLimitBytes:
		r.Fault = "limit exceeded"
	case err != nil || t.ended != nil:
		r.Fault = fmt.Sprintf("program failed: %v: %s", t.ended, bytes.TrimSpace(t.errors.Bytes()))
	case !r.ResultsCorrect:
		r.Fault = "results wrong" + t.wrong
	case r.DeniedAllocations == 0:
		r.Fault = "no allocation was denied"
	case r.MemoryPeakBytes < r.MemoryLimitBytes/10*9:
		r.Fault = "its own memory was denied to it"
	case saw.TotalBytes != r.MemoryLimitBytes:
		r.Fault = "the GPU did not look like the share"
	case math.Abs(r.CoresAchievedPercent-r.CoresPercent) > tolerance(seconds):
		r.Fault = fmt.Sprintf("got %.1f %% of the GPU's time, not %v %%", r.CoresAchievedPercent, r.CoresPercent)
	}
}
