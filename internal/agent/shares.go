// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/socket"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// reconcileFor bounds how long a reader waits for the driver.
const reconcileFor = 2 * time.Second

func (d *daemon) version() api.Version {
	v := api.Version{
		Schema: api.SchemaVersion, Version: d.cfg.ProductVersion, Wire: wire.Version, PID: os.Getpid(),
		Simulated: d.simulated(), DriverDirectory: d.cfg.DriverDirectory,
	}
	if v.Simulated {
		v.Simulator = simulatorSocket()
	}
	return v
}

func (d *daemon) getVersion(w http.ResponseWriter, _ *http.Request, _ socket.Peer) error {
	write(w, http.StatusOK, d.version())
	return nil
}

// current compares the ledger with the driver before it is shown. A driver
// that does not answer in time leaves the figures of last time.
func (d *daemon) current(r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), reconcileFor)
	defer cancel()
	d.reconcile(ctx.Done())
}

// look finds out how cards are, for at most so long.
func (d *daemon) look(r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), reconcileFor)
	defer cancel()
	d.examine(ctx.Done())
}

func (d *daemon) getDevices(w http.ResponseWriter, r *http.Request, _ socket.Peer) error {
	d.current(r)
	devices := api.Devices{Schema: api.SchemaDevices, Simulated: d.simulated(), Cards: []api.Card{}}
	if err := d.ask(r, func(time.Time) error {
		for _, c := range d.core.Cards() {
			devices.Cards = append(devices.Cards, api.Card{
				UUID: c.UUID, Name: c.Name, PCIAddress: c.PCIAddress, Simulated: c.Simulated, DriverVersion: c.DriverVersion,
				MemoryBytes: c.UsableBytes, UsedBytes: c.DriverUsedBytes, BookedBytes: c.BookedBytes,
				FreeToBookBytes: c.FreeToBookBytes, ContextBytes: c.ContextBytes, CoresBooked: c.CoresBooked,
				Shares: c.Shares, UnledgeredBytes: c.UnledgeredBytes, DriftBytes: c.DriftBytes,
				Health: string(c.Condition), HealthDetail: c.Detail, Time: d.timeOf(c.UUID),
			})
		}
		return nil
	}); err != nil {
		return err
	}
	write(w, http.StatusOK, devices)
	return nil
}

func (d *daemon) apiShare(v core.ShareView) api.Share {
	return api.Share{
		ShareSpec: api.ShareSpec{
			Name: v.Name, GPU: v.GPU, MemoryBytes: v.MemoryBytes, CoresPercent: v.CoresPercent, Policy: v.Policy,
			Weight: v.Weight, Priority: v.Priority, Tenant: v.Tenant, Enforce: v.Enforce, Ephemeral: v.Ephemeral,
			Open: v.Open, JoinUID: v.JoinUID, ThreadsPercent: v.ThreadsPercent,
		},
		CardUUID: v.CardUUID, CardName: v.CardName, Socket: d.cfg.ShareSocket(v.Name), Enforcement: d.grips[v.Name].level, EnforcementWhy: d.grips[v.Name].why(), MPS: d.grips[v.Name].inside(),
		State: v.State, LimitBytes: v.LimitBytes, UsedBytes: v.UsedBytes, ContextBytes: v.ContextBytes, PeakBytes: v.PeakBytes,
		Clients: v.Clients, Denials: v.Denials, Launches: v.Launches, Created: v.Created, OwnerUID: v.Owner,
		CardTimeNs: d.cardTime(v), CardTimeAtNs: uint64(monotonic()), WaitNs: v.WaitNs, Overruns: d.overruns(v),
	}
}

func (d *daemon) getShares(w http.ResponseWriter, r *http.Request, _ socket.Peer) error {
	d.lookAtAll(r.Context())
	shares := api.Shares{Schema: api.SchemaShares, Simulated: d.simulated(), Shares: []api.Share{}}
	if err := d.ask(r, func(time.Time) error {
		for _, v := range d.core.Shares() {
			shares.Shares = append(shares.Shares, d.apiShare(v))
		}
		return nil
	}); err != nil {
		return err
	}
	write(w, http.StatusOK, shares)
	return nil
}

func (d *daemon) getShare(w http.ResponseWriter, r *http.Request, _ socket.Peer) error {
	d.lookAtAll(r.Context())
	return d.answerShare(w, r, http.StatusOK, func(time.Time) (core.ShareView, error) {
		return d.core.Share(r.PathValue("name"))
	})
}

func (d *daemon) answerShare(w http.ResponseWriter, r *http.Request, status int, f func(time.Time) (core.ShareView, error)) error {
	var share api.Share
	if err := d.ask(r, func(now time.Time) error {
		view, err := f(now)
		if err == nil {
			share = d.apiShare(view)
		}
		return err
	}); err != nil {
		return err
	}
	write(w, status, share)
	return nil
}

func (d *daemon) postShare(w http.ResponseWriter, r *http.Request, peer socket.Peer) error {
	var spec api.ShareSpec
	if err := read(w, r, &spec); err != nil {
		return err
	}
	share, _, err := d.create(r, spec, peer, func(string) error { return nil })
	if err != nil {
		return err
	}
	write(w, http.StatusCreated, share)
	return nil
}

// create makes a share, calls also in the loop as soon as it is there, and returns
// what holds it. A failure leaves nothing behind.
func (d *daemon) create(r *http.Request, spec api.ShareSpec, peer socket.Peer, also func(name string) error) (api.Share, grip, error) {
	if err := d.mayCreate(peer, spec); err != nil {
		return api.Share{}, grip{}, err
	}
	d.look(r)
	var view core.ShareView
	if err := d.ask(r, func(now time.Time) (err error) {
		view, err = d.core.CreateShare(now, core.Spec{
			Name: spec.Name, GPU: spec.GPU, MemoryBytes: spec.MemoryBytes, CoresPercent: spec.CoresPercent,
			Policy: spec.Policy, Weight: spec.Weight, Priority: spec.Priority, Tenant: spec.Tenant,
			Enforce: spec.Enforce, ThreadsPercent: spec.ThreadsPercent, Ephemeral: spec.Ephemeral, Open: spec.Open, JoinUID: spec.JoinUID,
		}, peer.UID)
		return err
	}); err != nil {
		return api.Share{}, grip{}, err
	}
	// Not in the loop: a driver and a control daemon are asked.
	g := d.take(r.Context(), view)
	failed := g.short()
	var share api.Share
	if failed == nil {
		failed = d.ask(r, func(now time.Time) (err error) {
			d.grips[view.Name] = g
			share, err = d.open(now, view.Name, also)
			return err
		})
	}
	if failed != nil {
		var known bool // to the loop, which lets it go with the share
		_ = d.do(d.quit, func(now time.Time) {
			_, known = d.grips[view.Name]
			_ = d.core.DeleteShare(now, view.Name, true, peer.UID)
		})
		if !known {
			failed = errors.Join(failed, d.release(g))
		}
	}
	return share, g, failed
}

// open lets processes come to a share that is held; the loop's part of create.
func (d *daemon) open(now time.Time, name string, also func(name string) error) (api.Share, error) {
	view, err := d.core.Share(name)
	if err != nil {
		return api.Share{}, err
	}
	if err := d.openShare(name, nil); err != nil {
		return api.Share{}, err
	}
	if err := d.keep(now, view); err != nil {
		return api.Share{}, err
	}
	if err := also(name); err != nil {
		return api.Share{}, err
	}
	d.offer(now, view)
	return d.apiShare(view), nil
}

// keep makes a declared share survive the machine.
func (d *daemon) keep(now time.Time, view core.ShareView) error {
	if view.Ephemeral {
		return nil
	}
	d.carryOut(now)
	if err := d.saveAll(now); err != nil {
		return &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("what is asked of share %q would not outlive the agent: %v", view.Name, err),
			Hint: "make room on the disk that has " + d.cfg.JournalDirectory}
	}
	if err := d.state.journal.Sync(); err != nil {
		d.cfg.Logger.Warn("sync journal", "error", err)
	}
	return nil
}

func (d *daemon) patchShare(w http.ResponseWriter, r *http.Request, peer socket.Peer) error {
	var change api.ShareChange
	if err := read(w, r, &change); err != nil {
		return err
	}
	var view core.ShareView
	if err := d.ask(r, func(now time.Time) (err error) {
		view, err = d.core.ChangeShare(now, r.PathValue("name"), core.Change{
			MemoryBytes: change.MemoryBytes, CoresPercent: change.CoresPercent, Policy: change.Policy,
			Weight: change.Weight, Priority: change.Priority, Paused: change.Paused,
		}, peer.UID)
		if err != nil {
			return err
		}
		return d.keep(now, view)
	}); err != nil {
		return err
	}
	if change.MemoryBytes != nil {
		if err := d.secureAgain(r, view); err != nil {
			return err
		}
	}
	return d.answerShare(w, r, http.StatusOK, func(time.Time) (core.ShareView, error) { return d.core.Share(view.Name) })
}

// deleteShare is refused under living processes. Those that are being ended it waits
// for: who has seen the last one end need not know that its socket is still read.
func (d *daemon) deleteShare(w http.ResponseWriter, r *http.Request, peer socket.Peer) error {
	ctx, cancel := context.WithTimeout(r.Context(), d.cfg.EndDeadline)
	defer cancel()
	alive := 0 // looks at which one lived
	for {
		var under []core.ClientView
		err := d.ask(r, func(now time.Time) error {
			name := r.PathValue("name")
			err := d.core.DeleteShare(now, name, r.URL.Query().Get("force") == "1", peer.UID)
			if errors.Is(err, core.ErrAttached) {
				under = d.core.ClientsOf(name)
			}
			return err
		})
		switch {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
			return nil
		case under == nil:
			return err
		case slices.ContainsFunc(under, func(c core.ClientView) bool { return !d.dying(c.PID, c.Start) }):
			alive++
		default:
			alive = 0
		}
		// The kernel may not tell for an instant: process.Table.Dying.
		if alive == 2 || !pauseFor(ctx, endPoll) {
			return err
		}
	}
}

// endPoll is how often is looked whether processes that are being ended have.
const endPoll = 2 * time.Millisecond

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

// holdShare keeps a share for as long as the connection is open.
func (d *daemon) holdShare(w http.ResponseWriter, r *http.Request, peer socket.Peer) error {
	name := r.PathValue("name")
	if err := d.answerHold(w, r, name, peer); err != nil {
		return err
	}
	defer d.letGo(name)
	d.stay(w, r)
	return nil
}

// letGo ends a hold. The loop may be gone when the agent ends: then there is nothing
// to let go.
func (d *daemon) letGo(name string) {
	_ = d.do(d.quit, func(now time.Time) { d.core.Release(now, name) })
}

// stay sends what has been answered and waits until the asker or the agent leaves.
func (d *daemon) stay(w http.ResponseWriter, r *http.Request) {
	stream := http.NewResponseController(w)
	if !patient(stream) || stream.Flush() != nil {
		return
	}
	select {
	case <-r.Context().Done():
	case <-d.quit:
	}
}

// postRun answers all that a command needs to run under a share, in one request: a
// hundred commands may be started at once.
func (d *daemon) postRun(w http.ResponseWriter, r *http.Request, peer socket.Peer) error {
	var spec api.RunSpec
	if err := read(w, r, &spec); err != nil {
		return err
	}
	run := api.Run{Version: d.version()}
	var g grip
	var err error
	hold := func(name string) error { return d.core.Hold(name, peer.UID) }
	switch {
	case (spec.New == nil) == (spec.Share == ""):
		return &api.Error{Code: api.CodeUsage, Message: "either a declared share or a new one"}
	case spec.New != nil:
		run.Share, g, err = d.create(r, *spec.New, peer, hold)
	default:
		run.Share, g, err = d.join(r, spec.Share, hold)
	}
	if err != nil {
		return err
	}
	defer d.letGo(run.Share.Name)
	if run.Entry, err = d.enter(r.Context(), g, peer.PID); err != nil {
		return err
	}
	write(w, http.StatusOK, run)
	if run.Share.Ephemeral {
		d.stay(w, r)
	}
	return nil
}

// join is create for a share that is there.
func (d *daemon) join(r *http.Request, name string, also func(name string) error) (api.Share, grip, error) {
	var g grip
	if err := d.ask(r, func(time.Time) error {
		_, err := d.core.Share(name)
		g = d.grips[name]
		return err
	}); err != nil {
		return api.Share{}, g, err
	}
	fresh := []grip{g}
	d.lookAgain(r.Context(), fresh)
	var share api.Share
	err := d.ask(r, func(time.Time) error {
		view, err := d.core.Share(name)
		if err == nil {
			err = also(name)
		}
		share = d.apiShare(view)
		return err
	})
	return share, fresh[0], err
}

func (d *daemon) answerHold(w http.ResponseWriter, r *http.Request, name string, peer socket.Peer) error {
	return d.answerShare(w, r, http.StatusOK, func(time.Time) (core.ShareView, error) {
		if err := d.core.Hold(name, peer.UID); err != nil {
			return core.ShareView{}, err
		}
		return d.core.Share(name)
	})
}

func (d *daemon) getClients(w http.ResponseWriter, r *http.Request, _ socket.Peer) error {
	d.current(r)
	d.lookAtAll(r.Context())
	clients := api.Clients{Schema: api.SchemaClients, Simulated: d.simulated(), Clients: []api.Client{}}
	if err := d.ask(r, func(time.Time) error {
		for _, c := range d.core.Clients() {
			clients.Clients = append(clients.Clients, api.Client{
				PID: c.PID, UID: c.UID, Command: c.Command, Share: c.Share, CardUUID: c.CardUUID, State: string(c.State),
				UsedBytes: c.UsedBytes, ContextBytes: c.ContextBytes, DriverBytes: c.DriverBytes, Allocations: c.Allocations,
				Denials: c.Denials, Launches: c.Launches, Since: c.Since, Enforcement: d.levelOf(c),
			})
		}
		return nil
	}); err != nil {
		return err
	}
	write(w, http.StatusOK, clients)
	return nil
}

// levelOf is how strongly a process is held: no more than its share is now.
func (d *daemon) levelOf(c core.ClientView) share.Enforcement {
	level := d.grips[c.Share].level
	if m := d.members[c.ID]; m != nil && m.level != "" && !m.level.Meets(level) {
		level = m.level
	}
	return level
}
