// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/health"
	"github.com/divvy-gpu/divvy/internal/kernellog"
)

const (
	// logGrace is how long a fault that a driver tells of waits for the kernel's log, which may
	// say whose it is.
	logGrace = 100 * time.Millisecond
	// echoFor is within what time both tell of one fault.
	echoFor = 10 * time.Second
	// mostHeard bounds the faults of which the other may still tell.
	mostHeard = 256
)

// heardFault is one of which one of both has told.
type heardFault struct {
	card  string
	xid   uint64
	byLog bool
	at    time.Time
}

// heardFaults are those of a driver and those of the kernel's log, each of which counts once.
type heardFaults []heardFault

// again says that the other has told of a fault, and notes it if it has not.
func (h *heardFaults) again(f heardFault) bool {
	*h = slices.DeleteFunc(*h, func(old heardFault) bool { return f.at.Sub(old.at) > echoFor })
	if i := slices.IndexFunc(*h, func(old heardFault) bool { return old.card == f.card && old.xid == f.xid && old.byLog != f.byLog }); i >= 0 {
		*h = slices.Delete(*h, i, i+1)
		return true
	}
	if len(*h) < mostHeard {
		*h = append(*h, f)
	}
	return false
}

// driverFaults tells the core of what a driver has told.
func (d *driverWatch) driverFaults(ctx context.Context, faults []gpu.Fault) error {
	logged := d.logged.Load()
	if len(faults) > 0 && logged {
		pauseFor(ctx, logGrace)
	}
	for _, f := range faults {
		if err := d.do(ctx, func(l *loop) {
			if !logged || !l.heard.again(heardFault{f.UUID, f.XID, false, l.now}) {
				l.fault(f, 0, "")
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// watchKernelLog tells the core of faults that the kernel's log has, until ctx ends. Where it may
// not be read, there are the driver's events alone.
func (d *driverWatch) watchKernelLog(ctx context.Context) {
	if d.cfg.KernelLog == "" || !slices.ContainsFunc(d.cards, func(c gpu.Card) bool { return !c.Simulated }) {
		return
	}
	log, err := kernellog.Open(d.cfg.KernelLog)
	if err != nil {
		d.cfg.Logger.Info("faults are those of which the driver tells", "error", err)
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = log.Close() })
	defer stop()
	d.logged.Store(true)
	defer d.logged.Store(false)
	for {
		faults, err := log.Next()
		if err != nil {
			if ctx.Err() == nil {
				d.cfg.Logger.Warn("faults are those of which the driver tells from now on", "error", err)
			}
			return
		}
		for _, x := range faults {
			i := slices.IndexFunc(d.cards, func(c gpu.Card) bool { return !c.Simulated && strings.EqualFold(c.PCIAddress, x.PCIAddress) })
			if i < 0 {
				continue // somebody else's
			}
			f := gpu.Fault{UUID: d.cards[i].UUID, XID: x.Number}
			if d.do(ctx, func(l *loop) {
				if !l.heard.again(heardFault{f.UUID, f.XID, true, l.now}) {
					l.fault(f, x.PID, x.Program)
				}
			}) != nil {
				return
			}
		}
	}
}

// fault has the core count an XID, of a program where it is known, and do what the policy says.
func (l *loop) fault(f gpu.Fault, pid int, program string) {
	known := l.cfg.Health.Of(f.XID)
	told := core.Fault{Class: string(known.Class), XID: f.XID, What: f.String(), Advice: known.Advice}
	if known.Class == health.Application {
		told.PID = pid // its user's events; all else is the machine's
	}
	if pid != 0 {
		told.What += fmt.Sprintf(", of process %d", pid)
		if program != "" {
			told.What += " (" + program + ")"
		}
	}
	l.classed(f.UUID, told)
}

// classed has the core count a fault, and do what the policy says of its class.
func (l *loop) classed(card string, f core.Fault) {
	rule := l.cfg.Health.Rules[health.Class(f.Class)]
	f.Cordon, f.LiftAfter = rule.Cordon, rule.LiftAfter
	l.core.Fault(l.now, card, f)
}
