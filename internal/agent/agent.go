// SPDX-License-Identifier: Apache-2.0

// Package agent is the node daemon. One goroutine owns a loop, and in it a pure
// core (internal/core) whose orders it carries out; adapters around it feed it
// with what happens on share sockets, the HTTP interface, the driver and the
// clock. They have a door, whose do alone leads to the loop. It decides
// nothing about memory itself and never runs in the process of a user's program.
//
// Lock order: none of the locks here (events, driver questions) is held while
// another is taken, and the loop takes them only for as long as a copy takes.
package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divvy-gpu/divvy/internal/admission"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/enforce"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
	"github.com/divvy-gpu/divvy/internal/health"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/socket"
)

// ErrIdle is what Run returns when the agent left because nobody needed it.
var ErrIdle = errors.New("agent idle")

// ErrRunning says that another agent has the directory.
var ErrRunning = errors.New("an agent is running already")

const (
	simulatedContextBytes = 64 << 20
	// estimatedContextBytes is what a context on a real card is booked with
	// unless the configuration knows better: an estimate for data centre cards,
	// not a measurement.
	estimatedContextBytes = 512 << 20
)

// Run serves until ctx ends (nil) or the agent has been idle for
// cfg.IdleExit (ErrIdle). It uses descriptors that a supervisor keeps for it,
// if there is one.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	store, kept, err := openStore()
	if err != nil {
		return err
	}
	err = run(ctx, cfg, store, kept)
	if store != nil {
		if err != nil && !errors.Is(err, ErrIdle) {
			_ = store.Leave(leaveFailed + err.Error())
		}
		store.Close()
	}
	return err
}

func run(ctx context.Context, cfg Config, store *socket.Store, kept map[string]*os.File) error {
	if store == nil {
		if err := makeFolders(cfg); err != nil {
			return err
		}
		locks, err := takeLocks(ctx, cfg)
		if err != nil {
			return err
		}
		defer closeAll(locks)
	}
	source, err := nvml.Open(cfg.DriverDirectory)
	if err != nil {
		return err
	}
	defer letGo(source)
	cfg.Enforcers = append(cfg.Enforcers, enforce.NewDriver(newDriverLimits(source), "/proc", cfg.GroupFolder()), enforce.NewMPS(cfg.MPSFolder()))
	l, err := newLoop(ctx, cfg, source, store, kept)
	if err != nil {
		return err
	}
	return serve(ctx, l)
}

// closeFor is how long is waited for a driver to close. One cannot be woken while it waits for
// faults.
const closeFor = 250 * time.Millisecond

// letGo closes the driver, if that does not take too long: the process ends anyhow.
func letGo(source gpu.Source) {
	closed := make(chan struct{})
	go func() {
		_ = source.Close()
		close(closed)
	}()
	timer := time.NewTimer(closeFor)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
}

func makeFolders(cfg Config) error {
	mode := os.FileMode(0o755)
	if cfg.Private {
		mode = 0o700
	}
	for _, path := range []string{cfg.Directory, cfg.SharesFolder()} {
		if err := socket.MakeFolder(path, mode); err != nil {
			return err
		}
	}
	if cfg.JournalDirectory == cfg.Directory {
		return nil
	}
	return socket.MakeFolder(cfg.JournalDirectory, 0o700)
}

// daemon is what all goroutines of an agent share: nothing here changes while it
// serves, or it is safe by itself. What changes is the loop's, and the door alone leads there.
type daemon struct {
	*door
	cfg       Config
	beganNs   int64  // monotonic
	life      string // tells this agent's events from those of the one before
	cards     []gpu.Card
	driver    *driver
	enforcers admission.Enforcers
	enforcing queues // what they are asked to hold and to let go
	events    *eventLog
	table     process.Table
	dying     func(pid int, start uint64) bool // by the kernel's account
	store     *socket.Store                    // nil without a supervisor
	clock     func() time.Duration             // of the pages and of the arbiters
	api       *socket.Listener

	idle    chan struct{} // closed when the loop decides to leave
	turns   atomic.Uint64 // that processes have been given
	syncing sync.Mutex    // one at a time waits for the journal to be on disk
	usage   usageKeeper
	history historyKeeper
	audit   *auditKeeper
	// connections at once: of processes, and of the HTTP interface
	attachments, conns *limiter
	acceptor           acceptor
	poller             *socket.Poller // of processes, and of sockets on which all is quiet
	subordinates       subordinates
	samples            *sampler
	requests           requestCounts
	handles            *handles
	driverWatch        *driverWatch
}

// newDaemon makes what all goroutines of an agent share.
func newDaemon(cfg Config, source gpu.Source, cards []gpu.Card, store *socket.Store) *daemon {
	door := newDoor(cfg.Logger)
	d := &daemon{
		door: door, cfg: cfg, life: rand.Text(), beganNs: int64(monotonic()), cards: cards, driver: newDriver(source, cards), enforcers: admission.Enforcers{All: cfg.Enforcers, Front: cfg.Front}, events: newEventLog(cfg.MaxEvents),
		table: process.New("/proc"), dying: process.New("/proc").Dying, store: store, clock: monotonic, idle: make(chan struct{}),
		attachments: newLimiter(cfg.MaxClients+4*pendingHandshakes, os.Geteuid()), conns: newLimiter(maxAPIConnections, os.Geteuid()), acceptor: newAcceptor(os.Geteuid()), handles: openHandles(), subordinates: subordinates{path: "/etc/subuid", users: "/etc/passwd"},
		audit: newAuditKeeper(door, cfg),
	}
	d.driverWatch = newDriverWatch(d)
	d.samples = newSampler(d)
	d.usage = usageKeeper{door: door, cfg: cfg, life: d.life, beganNs: d.beganNs, samples: d.samples, audit: d.audit}
	d.history = historyKeeper{door: door, cfg: cfg, samples: d.samples, events: d.events}
	return d
}

// newLoop makes an agent that is to serve, and takes over what one before it left.
func newLoop(ctx context.Context, cfg Config, source gpu.Source, store *socket.Store, kept map[string]*os.File) (*loop, error) {
	defer func() {
		for _, file := range kept {
			_ = file.Close()
		}
	}()
	cards, err := source.Cards()
	if err != nil {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	if cfg.Health.IsZero() {
		if cfg.Health, err = health.Default(); err != nil {
			return nil, err
		}
	}
	var described []core.Card
	islands := islandsOf(source, cards)
	for i, c := range cards {
		uuid, err := gpu.ParseUUID(c.UUID)
		if err != nil {
			return nil, fmt.Errorf("GPU %s: %w", c.Name, err)
		}
		described = append(described, core.Card{
			UUID: c.UUID, UUIDBytes: uuid, Name: c.Name, PCIAddress: c.PCIAddress,
			UsableBytes: c.MemoryBytes, ContextBytes: cfg.contextBytes(c), Island: islands[i],
		})
	}
	l := &loop{
		daemon:  newDaemon(cfg, source, cards, store),
		members: map[core.ClientID]*member{}, sockets: map[string]*shareSocket{}, enforcements: map[string]admission.Enforcement{}, releases: map[string]*releaseWatch{}, bypasses: bypasses{}, slowed: map[string]bool{},
		idleExit: cfg.IdleExit,
	}
	l.pages = &pages{of: l.members, clock: func() time.Duration { return l.clock() }}
	l.core = core.New(core.Config{
		MaxShares: cfg.MaxShares, MaxClients: cfg.MaxClients, MaxShareClients: cfg.MaxShareClients,
		RestartGrace: cfg.RestartGrace, EphemeralGrace: cfg.EphemeralGrace, ShrinkDeadline: cfg.ShrinkDeadline,
		AgentUID: os.Geteuid(),
	}, described, l.pages)
	if l.poller, err = socket.NewPoller(); err != nil {
		return nil, err
	}
	if err := errors.Join(l.openLeases(), l.openReleases()); err != nil {
		return nil, err
	}
	l.audit.noteStart(cfg, l.life)
	if err := l.recover(ctx, kept); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// islandsOf numbers the cards so that those that are linked, or linked with a linked one,
// have one number.
func islandsOf(source gpu.Source, cards []gpu.Card) []int {
	islands := make([]int, len(cards))
	at := map[string]int{} // by address
	for i, c := range cards {
		islands[i], at[c.PCIAddress] = i, i
	}
	linked, ok := source.(interface{ Links() []gpu.Link })
	if !ok || len(cards) < 2 {
		return islands
	}
	for _, link := range linked.Links() {
		a, here := at[link.A]
		b, there := at[link.B]
		if !here || !there {
			continue
		}
		one, other := islands[a], islands[b]
		for i, island := range islands {
			if island == other {
				islands[i] = one
			}
		}
	}
	return islands
}

func (c Config) contextBytes(card gpu.Card) uint64 {
	switch {
	case card.Simulated:
		return simulatedContextBytes
	case c.ContextBytes > 0:
		return c.ContextBytes
	}
	return estimatedContextBytes
}

// simulated says whether any card is.
func simulated(cards []gpu.Card) bool {
	return slices.ContainsFunc(cards, func(c gpu.Card) bool { return c.Simulated })
}

// recover takes over what the journal and the store have of an earlier agent.
func (l *loop) recover(ctx context.Context, kept map[string]*os.File) error {
	l.now = time.Now()
	state, was, lostBytes, err := readState(filepath.Join(l.cfg.JournalDirectory, "journal"))
	if err != nil {
		return err
	}
	l.state = state
	if l.kept, err = readEvents(filepath.Join(l.cfg.JournalDirectory, "events"), l.events); err != nil {
		l.cfg.Logger.Error("events of the agents before are not known, and none are kept", "error", err)
	}
	if kept := l.state.journal.Kept(); kept != "" {
		l.tell(event.JournalCut, fmt.Sprintf("the journal was damaged: %d bytes of it could not be read, what came after them is used; "+
			"as it was it is kept in %s", lostBytes, kept))
	} else if lostBytes > 0 {
		l.tell(event.JournalCut, fmt.Sprintf("%d bytes at the end of the journal could not be read", lostBytes))
	}
	l.core.RecoverCards(was.cards)
	l.core.Recover(l.now, was.shares, was.clients)
	l.recoverPipes(kept)
	for _, s := range l.core.Shares() {
		if err := l.openShare(s.Name, kept[shareKey(s.Name)]); err != nil {
			return err
		}
	}
	for key := range kept {
		if name, ok := shareOfKey(key); ok && l.sockets[name] == nil {
			l.dropSocket(name)
		}
	}
	l.recoverEnforcements(ctx)
	l.offerAll()
	for _, c := range l.core.Clients() {
		l.recoverClient(c)
	}
	l.setTerms(l.core.ShareNames())
	l.api, err = l.listen(socket.Stream, apiKey, l.cfg.APISocket(), l.cfg.apiMode(), kept[apiKey])
	if err != nil {
		return err
	}
	l.lastRequest = l.now
	l.carryOut()
	// What was read holds, and programs wait: a full disk is no reason to be away.
	if err := l.state.compact(l.core); err != nil {
		l.notSaved(err)
	}
	l.tellAll()
	return nil
}

// recoverClient watches a client of the agent before: it returns, or dies.
func (l *loop) recoverClient(c core.ClientView) {
	m := &member{share: c.Share}
	l.members[c.ID] = m
	p, err := socket.OpenProcess(c.PID)
	if err == nil {
		if start, failed := l.table.Start(c.PID); failed != nil || start != c.Start {
			p.Close()
			err = socket.ErrGone
		}
	}
	if err != nil {
		l.core.Died(l.now, c.ID)
		return
	}
	m.process = p
	name := l.table.Name(c.PID)
	l.begin(func(ctx context.Context, d *daemon) {
		if err := d.awaitDeath(ctx, cmp.Or(c.Payer, c.UID), c.ID, p, func() { d.audit.noteLeft(c, name) }); err != nil {
			d.cfg.Logger.Warn("recover", "pid", c.PID, "error", err)
		}
	})
}

// serve gives the loop to a goroutine of its own, and serves until ctx ends or nobody
// needs the agent.
func serve(ctx context.Context, l *loop) error {
	d := l.daemon
	d.cfg.Logger.Info("agent serves", "socket", d.cfg.APISocket(), "cards", len(d.cards), "shares", len(l.sockets))
	alive, end := context.WithCancel(ctx)
	defer end()
	auditing, endAudit := context.WithCancel(context.WithoutCancel(ctx)) // for as long as anything is answered
	defer endAudit()
	timer := l.time.timer
	l.openDivisions()
	d.task(func() { d.poller.Run(d.task) })
	context.AfterFunc(alive, d.poller.Close)
	d.task(func() { d.awaitLeaseTimer(alive, timer, d.cfg.SlowHost) })
	for _, w := range l.releases {
		r := w.reminder
		d.task(r.awaitTimer)
		d.task(func() { d.driverWatch.watchReleases(alive, r) })
	}
	d.task(func() { d.driverWatch.watchCards(alive) })
	d.task(func() { d.driverWatch.watchKernelLog(alive) })
	d.task(func() { d.driverWatch.watchMPS(alive) })
	d.task(func() { d.samples.run(alive) })
	d.task(func() { d.settleInstances(alive) })
	d.task(func() { d.driverWatch.divideTimes(alive) })
	var writers sync.WaitGroup
	for _, keep := range []func(context.Context){d.usage.keep, d.history.keep} {
		writers.Add(1)
		d.task(func() {
			defer writers.Done()
			keep(alive)
		})
	}
	var auditors sync.WaitGroup
	for _, keep := range []func(context.Context){d.audit.keep, d.audit.sync} {
		auditors.Add(1)
		d.task(func() {
			defer auditors.Done()
			keep(auditing)
		})
	}
	loopEnd := make(chan struct{})
	go func() {
		defer close(d.stopped)
		l.run(alive, loopEnd)
	}()
	d.task(d.dispatch)
	server := d.serveAPI(alive)
	if d.store != nil {
		_ = d.store.Ready() // without a supervisor there is nobody to care
	}
	var left error
	select {
	case <-ctx.Done():
	case <-d.idle:
		left = ErrIdle
		d.leave(ctx)
	}
	d.events.end()
	end()
	stopAPI(ctx, server)
	close(loopEnd)
	<-d.stopped // the loop is ours again
	d.cfg.Logger.Info("agent ends", "turns", l.turnTimes.all, "p99", l.turnTimes.within(99), "longest", l.turnTimes.longest, "long", l.turnTimes.long)
	l.measureAll()
	writers.Wait()
	l.lastUsage()
	d.history.last()
	endAudit()
	auditors.Wait()
	if err := l.state.compact(l.core); err != nil { // with the counts of today
		d.cfg.Logger.Warn("journal", "error", err)
	}
	l.close()
	d.tasks.Wait()
	d.audit.last(context.WithoutCancel(ctx))
	d.acceptor.close()
	for _, g := range l.enforcements {
		if err := d.enforcers.Rest(g); err != nil {
			d.cfg.Logger.Warn("rest", "share", g.Share.Name, "error", err)
		}
	}
	return left
}
