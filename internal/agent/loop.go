// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divvy-gpu/divvy/internal/admission"
	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// errStopped says that the agent ends and does nothing more.
var errStopped = errors.New("the agent is stopping")

// saveAgain is how long a journal that could not be written is left alone.
const saveAgain = time.Second

// slowDisk is how long writing the journal may take before it is told, and slowAgain
// after how long it is told again.
const (
	slowDisk  = time.Second
	slowAgain = time.Minute
)

// loop is what one goroutine owns, the only one that calls its methods. All others
// have a door, and reach it by do.
type loop struct {
	*daemon
	now          time.Time // when this turn of it began
	core         *core.Core
	members      map[core.ClientID]*member
	pages        *pages
	sockets      map[string]*shareSocket // by share
	state        *state
	saveAgainAt  time.Time                        // zero: the journal lacks nothing
	slowToldAt   time.Time                        // zero: the disk was never slow
	releases     map[string]*releaseWatch         // by card
	enforcements map[string]admission.Enforcement // by share
	runs         []*attendee
	bypasses     bypasses
	pipes        int       // in the store
	reconcileAt  time.Time // zero: nothing has changed since
	reconciling  bool
	reconciled   time.Time
	lastRequest  time.Time // or since when nobody needs the agent
	idleExit     time.Duration
	wasIdle      bool
	time         leases
	slowed       map[string]bool // cards whose clocks are held down, as far as was seen
	heard        heardFaults
	leaving      bool
	turnTimes    turnTimes
	kept         *eventFile
	untold       []api.Event                      // logged in this turn
	begun        []func(context.Context, *daemon) // started at the end of this turn
}

// job is what the loop is asked to do.
type job struct {
	user int
	f    func(*loop) (more bool) // more: it has another turn, in the order of its user's
	done chan struct{}
	// mine is set by the loop, which then does it, or by who asked, who then does
	// not wait for it any more.
	mine  atomic.Bool
	begun bool // of the loop
}

// door is the only way of other goroutines to the loop.
type door struct {
	jobs    *fairQueue[*job]
	stopped chan struct{}  // closed when the loop has ended
	uid     int            // of the agent
	tasks   sync.WaitGroup // that serve waits for
	logger  *slog.Logger
}

func newDoor(logger *slog.Logger) *door {
	return &door{jobs: newFairQueue[*job](), stopped: make(chan struct{}), uid: os.Geteuid(), logger: logger}
}

// task starts a goroutine that serve waits for.
func (d *door) task(f func()) {
	d.tasks.Add(1)
	go func() {
		defer d.tasks.Done()
		f()
	}()
}

// itself is whose turns the agent's own work has: not root's, who asks, nor those of the user
// whose the agent is.
const itself = math.MinInt

// do runs f in the loop and returns when its consequences are carried out:
// saved, on the pages, told. It gives up when ctx ends first. It is done in the turns of who
// asked, if ctx is that of a request.
func (d *door) do(ctx context.Context, f func(*loop)) error {
	return d.doFor(ctx, turnsOf(ctx), f)
}

// turnsOf says whose turns a context's are.
func turnsOf(ctx context.Context) (user int) {
	if asker, asked := ctx.Value(askerKey{}).(asker); asked {
		return asker.payer
	}
	return itself
}

// doFor is do for a user. The users have turns, so that nobody starves anybody.
func (d *door) doFor(ctx context.Context, user int, f func(*loop)) error {
	return d.doWhile(ctx, user, func(l *loop) bool {
		f(l)
		return false
	})
}

// doWhile is doFor in as many turns as f wants, or fewer if the loop ends.
func (d *door) doWhile(ctx context.Context, user int, f func(*loop) (more bool)) error {
	j := &job{user: user, f: f, done: make(chan struct{})}
	d.jobs.put(user, j)
	select {
	case <-j.done:
		return nil
	case <-ctx.Done():
	case <-d.stopped:
	}
	if j.mine.CompareAndSwap(false, true) {
		return errStopped
	}
	// The loop has it: it will be done.
	select {
	case <-j.done:
	case <-d.stopped: // between its turns, or done
	}
	return nil
}

// takeJob takes what is asked of the loop next; nil: nobody waits for it.
func (d *door) takeJob() *job {
	j, ok := d.jobs.take()
	if !ok || !j.begun && !j.mine.CompareAndSwap(false, true) {
		return nil
	}
	j.begun = true
	return j
}

// inTurns calls f in the loop for all of them, so many in a turn, so that none takes long. Who
// asked sleeps until the last.
func inTurns[T any](ctx context.Context, d *door, all []T, most int, f func(l *loop, some []T)) error {
	if len(all) == 0 {
		return nil
	}
	err := d.doWhile(ctx, turnsOf(ctx), func(l *loop) (more bool) {
		some := all[:min(most, len(all))]
		all = all[len(some):]
		f(l, some)
		return len(all) > 0 && ctx.Err() == nil
	})
	if err == nil && len(all) > 0 {
		return errStopped
	}
	return err
}

// tellWritten tells that something cannot be written, or can be again.
func (d *door) tellWritten(ctx context.Context, what string, err error, kinds [2]event.Kind, failed, written string) {
	kind, message := kinds[1], written
	if err != nil {
		kind, message = kinds[0], failed+": "+err.Error()
		d.logger.Error(what, "error", err)
	}
	_ = d.do(ctx, func(l *loop) { l.tell(kind, message) })
}

// begin has f run beside the loop, which it reaches by do, until ctx ends with the agent.
func (l *loop) begin(f func(ctx context.Context, d *daemon)) { l.begun = append(l.begun, f) }

// next does what is asked of the loop next.
func (l *loop) next() {
	j := l.takeJob()
	if j == nil {
		return
	}
	l.now = time.Now()
	more := j.f(l)
	l.carryOut()
	if more {
		l.jobs.put(j.user, j)
	} else {
		close(j.done)
	}
	l.turnTimes.add(time.Since(l.now))
}

// run does what is asked of the loop and what is due, until end is closed. It sleeps
// without a timer while nothing is pending.
func (l *loop) run(ctx context.Context, end <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		d := l.daemon
		for _, f := range l.begun {
			d.task(func() { f(ctx, d) })
		}
		l.begun = nil
		select {
		case <-end:
			return
		case <-l.jobs.some:
			l.next()
		case <-timer.C:
			l.now = time.Now()
			l.core.Tick(l.now)
			l.carryOut()
			l.tick()
			l.tellAll()
			l.turnTimes.add(time.Since(l.now))
		}
		if l.leaving {
			timer.Stop()
			continue
		}
		if next := l.nextWake(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

func (l *loop) nextWake() time.Time {
	next := l.core.NextWake()
	for _, at := range [...]time.Time{l.saveAgainAt, l.reconcileAt, l.leaveAt()} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// leaveAt is when the agent leaves if nobody needs it until then; zero: somebody does.
func (l *loop) leaveAt() time.Time {
	if l.idleExit == 0 || l.leaving || !l.core.Idle() {
		return time.Time{}
	}
	return l.lastRequest.Add(l.idleExit)
}

// due says whether a time that may be zero has come.
func (l *loop) due(at time.Time) bool { return !at.IsZero() && !l.now.Before(at) }

// tick does what is due besides the core's own.
func (l *loop) tick() {
	if l.due(l.saveAgainAt) {
		_ = l.saveAll() // it was told when it began
	}
	if l.due(l.reconcileAt) {
		l.reconcileAt = time.Time{}
		l.reconciled = l.now
		if !l.reconciling { // a driver may take long
			l.reconciling = true
			l.begin(func(ctx context.Context, d *daemon) {
				d.driverWatch.reconcile(ctx)
				_ = d.do(ctx, func(l *loop) {
					if l.reconciling = false; len(l.runs)+len(l.bypasses) > 0 {
						l.wantReconcile() // of what runs start nobody else tells, nor of its end
					}
				})
			})
		}
	}
	if l.due(l.leaveAt()) {
		// From here on everybody is refused: what was asked before has been
		// answered, and it was not a reason to stay.
		l.leaving = true
		close(l.idle)
	}
}

// carryOut does what the core orders.
func (l *loop) carryOut() {
	orders := l.core.Drain()
	l.watchEnded() // first: meanwhile the driver is asked
	begun := time.Now()
	for _, name := range orders.SaveShares {
		l.correct(name)
	}
	if err := l.state.save(l.core, orders); err != nil {
		l.notSaved(err)
	}
	l.savedIn(time.Since(begun))
	l.pages.write()
	for _, name := range orders.Limits {
		l.writeLimits(name)
	}
	for _, e := range orders.Events {
		l.log(e)
	}
	for _, name := range orders.GoneNames {
		l.handles.forget(name)
	}
	for _, id := range orders.GoneClients {
		if m := l.members[id]; m != nil {
			delete(l.members, id)
			l.task(m.close) // which takes longer than all else here
		}
	}
	for _, of := range orders.Released {
		l.clientReleased(of)
	}
	for _, name := range orders.GoneShares {
		l.removeSocket(name)
		l.dropEnforcement(name)
	}
	for _, a := range orders.Answers {
		if m := l.members[a.Client]; m != nil && m.waiter != nil {
			l.answered(m, a)
			m.waiter <- a
			m.waiter = nil
		}
	}
	if len(orders.SaveClients) > 0 || len(orders.GoneClients) > 0 {
		l.wantReconcile()
	}
	if len(orders.SaveShares) > 0 {
		l.setTerms(orders.SaveShares)
	}
	if len(orders.SaveShares)+len(orders.SaveCards) > 0 {
		l.samples.changes.Add(1)
	}
	for _, name := range orders.Limits {
		l.writeLeases(name) // how many processes there are has changed, perhaps
	}
	l.carryOutLeases()
	if shared := len(l.sockets) > 0; shared != l.driverWatch.shared.Load() {
		l.driverWatch.shared.Store(shared)
		select {
		case l.driverWatch.sharing <- struct{}{}:
		default: // watchCards has not seen the one before
		}
	}
	if idle := l.core.Idle(); idle != l.wasIdle {
		l.wasIdle, l.lastRequest = idle, l.now
	}
	l.tellAll()
}

// notSaved tells that the journal could not be written, once, and has it tried
// again.
func (l *loop) notSaved(err error) {
	if !l.saveAgainAt.IsZero() {
		return
	}
	l.saveAgainAt = l.now.Add(saveAgain)
	l.tell(event.JournalFailed, "a restart would not know the latest changes: "+err.Error())
	l.cfg.Logger.Error("journal", "error", err)
}

// savedIn tells when the disk is so slow that those who wait for the agent notice.
func (l *loop) savedIn(took time.Duration) {
	if took < slowDisk || !l.slowToldAt.IsZero() && l.now.Sub(l.slowToldAt) < slowAgain {
		return
	}
	l.slowToldAt = l.now
	l.tell(event.JournalSlow, fmt.Sprintf("to write the journal took %v, for which the agent did nothing else", took.Round(time.Millisecond)))
}

// saveAll tries to write what the journal lacks, if it lacks anything.
func (l *loop) saveAll() error {
	if l.saveAgainAt.IsZero() {
		return nil
	}
	if err := l.state.compact(l.core); err != nil {
		l.saveAgainAt = l.now.Add(saveAgain)
		return err
	}
	l.saveAgainAt = time.Time{}
	l.tell(event.JournalWritten, "the journal has everything again")
	return nil
}

// answered writes what a denial has just counted on the limits page.
func (l *loop) answered(m *member, a core.Answer) {
	if !a.Granted && m.conn != nil && l.sockets[m.conn.share] != nil {
		l.sockets[m.conn.share].limits.Used(a.Slot, a.UsedBytes, wire.MonotonicNs())
	}
}

func (l *loop) writeLimits(name string) {
	s := l.sockets[name]
	if s == nil {
		return
	}
	if v, err := l.core.Limits(l.now, name); err == nil {
		s.limits.Write(words(v), wire.MonotonicNs())
	}
}

// pauseFor waits; false: ctx has ended before.
func pauseFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// log puts an event into the log, at the end of this turn.
func (l *loop) log(e core.Event) {
	if e.Labels == nil {
		e.Labels = l.core.Labels(e.Share)
	}
	l.untold = append(l.untold, api.Event{
		Time: e.Time, Kind: e.Kind, Share: e.Share, Labels: e.Labels, CardUUID: e.Card, PID: e.PID, UID: e.UID, Bytes: e.Bytes, XID: e.XID, Class: e.Class, Life: l.life,
		Message: e.Message,
	})
	l.audit.noteEvent(e)
	l.cfg.Logger.Debug("event", "kind", e.Kind, "share", e.Share, "card", e.Card, "pid", e.PID, "bytes", e.Bytes, "message", e.Message)
}

// tellAll numbers what was logged in this turn, keeps it for the next agent, and tells it.
func (l *loop) tellAll() {
	if len(l.untold) == 0 {
		return
	}
	l.events.number(l.untold)
	if err := l.kept.add(l.now, l.untold, l.events); err != nil {
		l.cfg.Logger.Error("events", "error", err)
	}
	l.events.add(l.untold...)
	l.untold = l.untold[:0]
}

// logBounded does the same with an event that a process causes, unless it is one too many.
func (l *loop) logBounded(e core.Event) {
	if l.core.MayTell(l.now, e) {
		l.log(e)
	}
}

// wantReconcile asks for a comparison with the driver before long.
func (l *loop) wantReconcile() {
	if l.reconcileAt.IsZero() {
		l.reconcileAt = l.reconciled.Add(l.cfg.ReconcileEvery)
		if soon := l.now.Add(l.cfg.ReconcileEvery / 10); l.reconcileAt.Before(soon) {
			l.reconcileAt = soon
		}
	}
}

// close ends every connection and watcher; the loop has ended.
func (l *loop) close() {
	l.time.timer.close()
	for _, w := range l.releases {
		w.timer.close()
	}
	if err := l.time.trace.close(); err != nil {
		l.cfg.Logger.Warn("leases", "error", err)
	}
	for _, m := range l.members {
		m.close()
	}
	for _, s := range l.sockets {
		s.close()
	}
	l.handles.close()
	l.poller.Close()
	if l.api != nil {
		_ = l.api.Close()
	}
	if l.state != nil {
		_ = l.state.journal.Close()
	}
	if l.kept != nil {
		_ = l.kept.journal.Close()
	}
}

func (m *member) close() {
	if m.conn != nil {
		m.conn.hangUp()
		m.conn = nil
	}
	if m.process != nil {
		m.process.Close()
	}
	if m.page != nil {
		m.page.Close()
		m.page = nil
	}
}

func (l *loop) tell(kind event.Kind, message string) {
	l.log(core.Event{Time: l.now, Kind: kind, Message: message})
}
