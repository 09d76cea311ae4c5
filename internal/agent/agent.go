// SPDX-License-Identifier: Apache-2.0

// Package agent is the node daemon. One goroutine owns a pure core
// (internal/core); adapters around it feed it with what happens on share
// sockets, the HTTP interface, the driver and the clock, and carry out its
// orders. It decides nothing about memory itself and never runs in the process
// of a user's program.
//
// Lock order: none of the locks here (events, driver questions) is held while
// another is taken, and the loop takes them only for as long as a copy takes.
package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/enforce"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
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
		lock, err := takeLock(ctx, cfg)
		if err != nil {
			return err
		}
		defer lock.Close()
	}
	source, err := nvml.Open(cfg.DriverDirectory)
	if err != nil {
		return err
	}
	defer source.Close()
	cfg.Means = append(cfg.Means, enforce.NewDriver(source, "/proc", cfg.GroupFolder()), enforce.NewMPS(cfg.MPSFolder()))
	d, err := newDaemon(cfg, source, store, kept)
	if err != nil {
		return err
	}
	return d.run(ctx)
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

// daemon is a running agent. What is not safe by itself belongs to the loop:
// functions passed to do, and what they call.
type daemon struct {
	cfg    Config
	cards  []gpu.Card
	driver *driver
	events *eventLog
	table  process.Table
	dying  func(pid int, start uint64) bool // by the kernel's account
	store  *socket.Store                    // nil without a supervisor
	uid    int                              // of the agent

	work    chan func(now time.Time)
	stopped chan struct{} // closed when the loop has ended
	tasks   sync.WaitGroup
	quit    chan struct{} // closed to end them
	api     *net.UnixListener
	turns   atomic.Uint64 // that processes have been given
	sick    atomic.Bool   // a card was not well when last looked at
	// places for connections: of processes, and of the HTTP interface
	attachments, conns *places

	// The loop's.
	core        *core.Core
	members     map[core.ClientID]*member
	pages       *pages
	sockets     map[string]*shareSocket
	state       *state
	saveAgainAt time.Time       // zero: the journal lacks nothing
	releases    []*releaseWatch // of each card
	grips       map[string]grip // by share
	reconcileAt time.Time       // zero: nothing has changed since
	reconciling bool
	reconciled  time.Time
	lastRequest time.Time // or since when nobody needs the agent
	wasIdle     bool
	time        leases
	leaving     bool
	idle        chan struct{} // closed when the loop decides to leave
}

func newDaemon(cfg Config, source gpu.Source, store *socket.Store, kept map[string]*os.File) (*daemon, error) {
	defer func() {
		for _, file := range kept {
			_ = file.Close()
		}
	}()
	cards, err := source.Cards()
	if err != nil {
		return nil, fmt.Errorf("list cards: %w", err)
	}
	d := &daemon{
		cfg: cfg, cards: cards, driver: newDriver(source, cards), events: newEventLog(cfg.MaxEvents),
		table: process.New("/proc"), store: store, uid: os.Geteuid(),
		dying: process.New("/proc").Dying,
		work:  make(chan func(time.Time)), quit: make(chan struct{}), stopped: make(chan struct{}), idle: make(chan struct{}),
		attachments: newPlaces(cfg.MaxClients+4*pendingHandshakes, os.Geteuid()), conns: newPlaces(maxAPIConnections, os.Geteuid()),
		members: map[core.ClientID]*member{}, sockets: map[string]*shareSocket{}, grips: map[string]grip{},
	}
	var described []core.Card
	for _, c := range cards {
		uuid, err := gpu.ParseUUID(c.UUID)
		if err != nil {
			return nil, fmt.Errorf("card %s: %w", c.Name, err)
		}
		described = append(described, core.Card{
			UUID: c.UUID, UUIDBytes: uuid, Name: c.Name, PCIAddress: c.PCIAddress, DriverVersion: c.DriverVersion,
			Simulated: c.Simulated, UsableBytes: c.MemoryBytes, ContextBytes: cfg.contextBytes(c),
		})
	}
	d.pages = &pages{of: d.members}
	d.core = core.New(core.Config{
		MaxShares: cfg.MaxShares, MaxClients: cfg.MaxClients, MaxShareClients: cfg.MaxShareClients,
		RestartGrace: cfg.RestartGrace, EphemeralGrace: cfg.EphemeralGrace, ShrinkDeadline: cfg.ShrinkDeadline,
		AgentUID: os.Geteuid(),
	}, described, d.pages)
	if err := errors.Join(d.openLeases(), d.openReleases()); err != nil {
		return nil, err
	}
	if err := d.recover(kept); err != nil {
		close(d.quit)
		d.closeAll()
		return nil, err
	}
	return d, nil
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
func (d *daemon) simulated() bool {
	for _, c := range d.cards {
		if c.Simulated {
			return true
		}
	}
	return false
}

// recover takes over what the journal and the store have of an earlier agent.
func (d *daemon) recover(kept map[string]*os.File) error {
	now := time.Now()
	saved, shares, clients, lostBytes, err := readState(filepath.Join(d.cfg.JournalDirectory, "journal"))
	if err != nil {
		return err
	}
	d.state = saved
	if lostBytes > 0 {
		d.tell(now, event.JournalCut, fmt.Sprintf("%d bytes at the end of the journal could not be read", lostBytes))
	}
	d.core.Recover(now, shares, clients)
	for _, s := range d.core.Shares() {
		if err := d.openShare(s.Name, kept[shareKey(s.Name)]); err != nil {
			return err
		}
	}
	for key := range kept {
		if name, ok := shareOfKey(key); ok && d.sockets[name] == nil {
			d.dropSocket(name)
		}
	}
	d.recoverGrips(now)
	d.offerAll(now)
	for _, c := range d.core.Clients() {
		d.recoverClient(now, c)
	}
	d.setTerms()
	d.api, err = d.listen(socket.Stream, apiKey, d.cfg.APISocket(), d.cfg.apiMode(), kept[apiKey])
	if err != nil {
		return err
	}
	d.lastRequest = now
	d.carryOut(now)
	// What was read holds, and programs wait: a full disk is no reason to be away.
	if err := d.state.compact(d.core); err != nil {
		d.notSaved(now, err)
	}
	return nil
}

// recoverClient watches a client of the agent before: it returns, or dies.
func (d *daemon) recoverClient(now time.Time, c core.ClientView) {
	m := &member{share: c.Share}
	d.members[c.ID] = m
	p, err := socket.OpenProcess(c.PID)
	if err == nil {
		if start, failed := d.table.Start(c.PID); failed != nil || start != c.Start {
			p.Close()
			err = socket.ErrGone
		}
	}
	if err != nil {
		d.core.Died(now, c.ID)
		return
	}
	m.process = p
	d.task(func() { d.awaitDeath(c.ID, p) })
}

// task starts a goroutine that run waits for.
func (d *daemon) task(f func()) {
	d.tasks.Add(1)
	go func() {
		defer d.tasks.Done()
		f()
	}()
}

// run serves until ctx ends or nobody needs the agent.
func (d *daemon) run(ctx context.Context) error {
	d.cfg.Logger.Info("agent serves", "socket", d.cfg.APISocket(), "cards", len(d.cards), "shares", len(d.sockets))
	loopEnd := make(chan struct{})
	d.task(d.awaitLeaseTimer)
	for _, w := range d.releases {
		d.task(w.awaitReleaseTimer)
		d.task(func() { d.watchReleases(w) })
	}
	d.task(d.watchFaults)
	watched, stop := context.WithCancel(ctx)
	defer stop()
	d.task(func() { d.watchMPS(watched) })
	go func() {
		defer close(d.stopped)
		d.loop(loopEnd)
	}()
	server := d.serveAPI()
	if d.store != nil {
		_ = d.store.Ready() // without a supervisor there is nobody to care
	}
	var left error
	select {
	case <-ctx.Done():
	case <-d.idle:
		left = ErrIdle
		d.leave()
	}
	d.events.end()
	close(d.quit)
	stop()
	d.stopAPI(server)
	close(loopEnd)
	<-d.stopped
	if err := d.state.compact(d.core); err != nil { // with the counts of today
		d.cfg.Logger.Warn("journal", "error", err)
	}
	d.closeAll()
	d.tasks.Wait()
	d.restGrips()
	return left
}

// closeAll ends every connection and watcher; the loop has ended.
func (d *daemon) closeAll() {
	d.time.timer.close()
	for _, w := range d.releases {
		w.timer.close()
	}
	if err := d.time.trace.close(); err != nil {
		d.cfg.Logger.Warn("leases", "error", err)
	}
	for _, m := range d.members {
		m.close()
	}
	for _, s := range d.sockets {
		s.close()
	}
	if d.api != nil {
		_ = d.api.Close()
	}
	if d.state != nil {
		_ = d.state.journal.Close()
	}
}

func (m *member) close() {
	if m.conn != nil {
		_ = m.conn.conn.Close()
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

func (d *daemon) tell(now time.Time, kind event.Kind, message string) {
	d.log(core.Event{Time: now, Kind: kind, Message: message})
}
