// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/admission"
	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/share"
)

func (h handlers) getDevices(w http.ResponseWriter, r *http.Request, _ asker) error {
	h.driverWatch.reconcile(r.Context()) // a driver that does not answer in time leaves the figures of last time
	levels := map[string]share.Enforcement{}
	for _, c := range h.cards { // not in the loop: a driver and a control daemon are asked
		levels[c.UUID] = h.enforcers.Strongest(r.Context(), c.UUID)
	}
	devices := api.Devices{Schema: api.SchemaDevices, Simulated: simulated(h.cards), Cards: []api.Card{}}
	if err := h.ask(r, func(l *loop) error {
		for i, c := range l.core.Cards() {
			told := l.cards[i] // the core has them in the same order
			devices.Cards = append(devices.Cards, api.Card{
				UUID: c.UUID, Name: c.Name, PCIAddress: c.PCIAddress, Simulated: told.Simulated, DriverVersion: told.DriverVersion,
				MemoryBytes: c.UsableBytes, UsedBytes: c.DriverUsedBytes, BookedBytes: c.BookedBytes,
				FreeToBookBytes: c.FreeToBookBytes, ContextBytes: c.ContextBytes, CoresBooked: c.CoresBooked,
				Shares: c.Shares, UnledgeredBytes: c.UnledgeredBytes, DriftBytes: c.DriftBytes,
				Health: string(c.Condition), HealthDetail: c.Detail, Time: l.timeOf(c.UUID), Cordon: apiCordon(c.Cordon),
				Enforcement: levels[c.UUID], Architecture: told.Architecture, NUMANode: told.NUMANode, PCIeRoot: told.PCIeRoot, Island: &c.Island, MIG: string(told.MIG), MemoryShared: told.MemoryShared,
			})
		}
		devices.Unresponsive = l.unresponsive()
		return nil
	}); err != nil {
		return err
	}
	write(w, http.StatusOK, devices)
	return nil
}

func (l *loop) apiShare(v core.ShareView) api.Share {
	level, why := l.shown(v.Name)
	share := api.Share{
		ShareSpec: api.ShareSpec{
			Name: v.Name, GPU: v.GPU, GPUs: v.GPUs, MemoryBytes: v.MemoryBytes, CoresPercent: v.CoresPercent, Policy: v.Policy,
			Weight: v.Weight, Priority: v.Priority, Tenant: v.Tenant, Labels: v.Labels, Enforce: v.Enforce, Exclusive: v.Exclusive, Ephemeral: v.Ephemeral,
			Open: v.Open, JoinUID: v.JoinUID, ThreadsPercent: v.ThreadsPercent,
		},
		CardUUID: v.CardUUID, CardName: v.CardName, Socket: l.cfg.ShareSocket(v.Name), Enforcement: level, EnforcementWhy: why, MPS: l.enforcements[v.Name].Inside(),
		State: v.State, LimitBytes: v.LimitBytes, UsedBytes: v.UsedBytes, ContextBytes: v.ContextBytes, PeakBytes: v.PeakBytes,
		Clients: v.Clients, Denials: v.Denials, Launches: v.Launches, Created: v.Created, OwnerUID: v.Owner,
		CardTimeAtNs: uint64(monotonic()), WaitNs: v.WaitNs,
	}
	var cards []api.ShareCard
	for i, of := range v.Slots {
		card := api.ShareCard{
			CardUUID: of.CardUUID, CardName: of.CardName, Health: string(of.Condition), LimitBytes: of.LimitBytes, UsedBytes: of.UsedBytes,
			ContextBytes: of.ContextBytes, PeakBytes: of.PeakBytes, Denials: of.Denials, Launches: of.Launches,
			CardTimeNs: l.cardTime(core.Slot{Share: v.Name, Number: i}, of), WaitNs: of.WaitNs, Overruns: l.overruns(v.Name, of),
		}
		cards = append(cards, card)
		share.CardTimeNs += card.CardTimeNs
		share.Overruns += card.Overruns
	}
	share.Cards = several(cards)
	return share
}

func (h handlers) getShares(w http.ResponseWriter, r *http.Request, _ asker) error {
	wanted, err := wantedLabels(r)
	if err != nil {
		return err
	}
	h.driverWatch.lookAtAll(r.Context())
	shares := api.Shares{Schema: api.SchemaShares, Simulated: simulated(h.cards), Shares: []api.Share{}}
	if shares.Unresponsive, err = h.eachShare(r, func(l *loop, name string) {
		if v, err := l.core.Share(name); err == nil && v.Labels.Match(wanted) {
			shares.Shares = append(shares.Shares, l.apiShare(v))
		}
	}); err != nil {
		return err
	}
	write(w, http.StatusOK, shares)
	return nil
}

// eachShare calls f in the loop for all shares, some in a turn, and returns the cards whose
// driver does not answer.
func (h handlers) eachShare(r *http.Request, f func(l *loop, name string)) (unresponsive []string, err error) {
	var names []string
	if err := h.ask(r, func(l *loop) error {
		names, unresponsive = l.core.ShareNames(), l.unresponsive()
		return nil
	}); err != nil {
		return nil, err
	}
	leaving := false
	if inTurns(r.Context(), h.door, names, sharesAtOnce, func(l *loop, some []string) {
		if leaving = leaving || l.leaving; leaving {
			return
		}
		for _, name := range some {
			f(l, name)
		}
	}) != nil || leaving {
		return nil, errLeaving
	}
	return unresponsive, nil
}

func (h handlers) getShare(w http.ResponseWriter, r *http.Request, _ asker) error {
	h.driverWatch.lookAt(r.Context(), r.PathValue("name"))
	return h.answerShare(w, r, http.StatusOK, func(l *loop) (core.ShareView, error) {
		return l.core.Share(r.PathValue("name"))
	})
}

func (h handlers) answerShare(w http.ResponseWriter, r *http.Request, status int, f func(*loop) (core.ShareView, error)) error {
	var share api.Share
	if err := h.ask(r, func(l *loop) error {
		view, err := f(l)
		if err == nil {
			share = l.apiShare(view)
		}
		return err
	}); err != nil {
		return err
	}
	write(w, status, share)
	return nil
}

func (h handlers) postShare(w http.ResponseWriter, r *http.Request, peer asker) error {
	var spec api.ShareSpec
	if err := h.read(w, r, &spec); err != nil {
		return err
	}
	auditOf(r).about(spec.Name)
	share, _, err := h.create(r, spec, peer, func(*loop, string) error { return nil })
	if err != nil {
		return err
	}
	auditOf(r).about(share.Name)
	write(w, http.StatusCreated, share)
	return nil
}

// create makes a share, calls also in the loop as soon as it is there, and returns
// what holds it. A failure leaves nothing behind.
func (h handlers) create(r *http.Request, spec api.ShareSpec, peer asker, also func(*loop, string) error) (api.Share, admission.Enforcement, error) {
	if err := h.mayCreate(peer, spec); err != nil {
		return api.Share{}, admission.Enforcement{}, err
	}
	h.driverWatch.examine(r.Context())
	var made toHold
	if err := h.promise(r, func(l *loop) error {
		view, err := l.core.CreateShare(l.now, h.coreSpec(spec, peer), peer.UID)
		if err == nil {
			made = l.toHold(view)
		}
		return err
	}); err != nil {
		return api.Share{}, admission.Enforcement{}, err
	}
	return h.secure(r, made, peer, also)
}

// promise is ask for what may find no room. Memory that no ledger knew when the driver was
// asked last may be free again: then it is asked once more.
func (h handlers) promise(r *http.Request, f func(*loop) error) error {
	held := false
	err := h.ask(r, func(l *loop) error {
		err := f(l)
		var failure *core.Failure
		held = errors.As(err, &failure) && failure.Kind == core.NoRoom && l.core.AnyUnaccounted()
		return err
	})
	if !held {
		return err
	}
	h.driverWatch.compareAll(r.Context())
	return h.ask(r, f)
}

func (h handlers) coreSpec(spec api.ShareSpec, peer asker) core.Spec {
	return core.Spec{
		Name: spec.Name, GPU: spec.GPU, GPUs: spec.GPUs, Among: spec.Among, MemoryBytes: spec.MemoryBytes, CoresPercent: spec.CoresPercent,
		Policy: spec.Policy, Weight: spec.Weight, Priority: spec.Priority, Tenant: spec.Tenant, Labels: spec.Labels,
		Enforce: spec.Enforce, ThreadsPercent: spec.ThreadsPercent, Exclusive: spec.Exclusive, Ephemeral: spec.Ephemeral, Open: spec.Open, JoinUID: spec.JoinUID,
		Payer: peer.payer,
	}
}

// namedByPath is the name in the path of a request, which names what is to be made; the request may say it, too.
func namedByPath(r *http.Request, what, said string) (string, error) {
	name := r.PathValue("name")
	if said != "" && said != name {
		return "", &api.Error{Code: api.CodeUsage, Message: fmt.Sprintf("the path names %s %q, the request %q", what, name, said)}
	}
	return name, nil
}

// putShare makes a share, or finds it as asked for: who does not know what came of the
// request before asks again.
func (h handlers) putShare(w http.ResponseWriter, r *http.Request, peer asker) error {
	var spec api.ShareSpec
	if err := h.read(w, r, &spec); err != nil {
		return err
	}
	name, err := namedByPath(r, "share", spec.Name)
	if err != nil {
		return err
	}
	spec.Name = name
	if err := h.mayCreate(peer, spec); err != nil {
		return err
	}
	h.driverWatch.examine(r.Context())
	var made toHold
	var fresh bool
	if err := h.promise(r, func(l *loop) (err error) {
		var view core.ShareView
		if view, fresh, err = l.core.EnsureShare(l.now, h.coreSpec(spec, peer), peer.UID); err != nil {
			return err
		}
		if fresh {
			made = l.toHold(view)
			return nil
		}
		if _, held := l.enforcements[name]; !held {
			return &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("share %q is being made", name), Hint: "ask again"}
		}
		return nil
	}); err != nil {
		return err
	}
	if !fresh {
		auditOf(r).unchanged()
		h.driverWatch.lookAt(r.Context(), name)
		return h.answerShare(w, r, http.StatusOK, func(l *loop) (core.ShareView, error) { return l.core.Share(name) })
	}
	share, _, err := h.secure(r, made, peer, func(*loop, string) error { return nil })
	if err != nil {
		return err
	}
	write(w, http.StatusCreated, share)
	return nil
}

// wantedLabels are those that a request names in its query.
func wantedLabels(r *http.Request) (share.Labels, error) {
	wanted, err := share.ParseLabels(r.URL.Query()["label"])
	if err != nil {
		return nil, &api.Error{Code: api.CodeUsage, Message: err.Error()}
	}
	return wanted, nil
}

// open lets processes come to a share that is held; the loop's part of create.
func (l *loop) open(name string, also func(*loop, string) error) (api.Share, error) {
	view, err := l.core.Share(name)
	if err != nil {
		return api.Share{}, err
	}
	if err := l.openShare(name, nil); err != nil {
		return api.Share{}, err
	}
	if err := l.keep(view); err != nil {
		return api.Share{}, err
	}
	if err := also(l, name); err != nil {
		return api.Share{}, err
	}
	l.offer(view)
	return l.apiShare(view), nil
}

// keep makes a declared share survive the agent, and the machine once it is onDisk.
func (l *loop) keep(view core.ShareView) error {
	if view.Ephemeral {
		return nil
	}
	l.carryOut()
	if err := l.saveAll(); err != nil {
		return &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("what is asked of share %q would not outlive the agent: %v", view.Name, err),
			Hint: "make room on the disk that has " + l.cfg.JournalDirectory}
	}
	return nil
}

// onDisk waits until what was kept of a declared share is on disk. The loop does not: a disk
// may take a second for it, and whoever declares shares one after the other would keep all.
func (h handlers) onDisk(r *http.Request, view core.ShareView) {
	if !view.Ephemeral {
		h.synced(r)
	}
}

// synced waits until what was kept is on disk.
func (h handlers) synced(r *http.Request) {
	var wait func() error
	if h.ask(r, func(l *loop) error { wait = l.state.journal.Syncer(); return nil }) != nil {
		return
	}
	h.syncing.Lock()
	defer h.syncing.Unlock()
	if err := wait(); err != nil {
		h.cfg.Logger.Warn("sync journal", "error", err)
	}
}

func (h handlers) patchShare(w http.ResponseWriter, r *http.Request, peer asker) error {
	var change api.ShareChange
	if err := h.read(w, r, &change); err != nil {
		return err
	}
	if change.Paused != nil {
		auditOf(r).as(map[bool]string{true: "share.pause", false: "share.resume"}[*change.Paused], change)
	}
	if change.Priority != nil {
		if err := h.mayHavePriority(peer, *change.Priority); err != nil {
			return err
		}
	}
	var changed toHold
	if err := h.promise(r, func(l *loop) (err error) {
		changed.ShareView, err = l.core.ChangeShare(l.now, r.PathValue("name"), core.Change{
			MemoryBytes: change.MemoryBytes, CoresPercent: change.CoresPercent, Policy: change.Policy,
			Weight: change.Weight, Priority: change.Priority, Paused: change.Paused,
		}, h.rights(peer))
		if err == nil {
			err = l.keep(changed.ShareView)
		}
		if err == nil && change.MemoryBytes != nil {
			changed = l.toHold(changed.ShareView)
		}
		return err
	}); err != nil {
		return err
	}
	h.onDisk(r, changed.ShareView)
	if change.MemoryBytes != nil {
		if err := h.secureAgain(r, changed); err != nil {
			return err
		}
	}
	return h.answerShare(w, r, http.StatusOK, func(l *loop) (core.ShareView, error) { return l.core.Share(changed.Name) })
}

// deleteShare is refused under living processes. Those that are being ended it waits
// for: who has seen the last one end need not know that its socket is still read.
func (h handlers) deleteShare(w http.ResponseWriter, r *http.Request, peer asker) error {
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.EndDeadline)
	defer cancel()
	alive := 0 // looks at which one lived
	for {
		var under []core.ClientView
		err := h.ask(r, func(l *loop) error {
			name := r.PathValue("name")
			err := l.core.DeleteShare(l.now, name, r.URL.Query().Get("force") == "1", h.rights(peer))
			if errors.Is(err, core.ErrAttached) {
				under = l.core.ClientsOf(name)
			}
			return err
		})
		switch {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
			return nil
		case under == nil:
			return err
		case slices.ContainsFunc(under, func(c core.ClientView) bool { return !h.dying(c.PID, c.Start) }):
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

// holdShare keeps a share for as long as the connection is open.
func (h handlers) holdShare(w http.ResponseWriter, r *http.Request, peer asker) error {
	name := r.PathValue("name")
	var held core.ShareView
	if err := h.answerShare(w, r, http.StatusOK, func(l *loop) (_ core.ShareView, err error) {
		if err = l.core.Hold(name, h.rights(peer)); err == nil {
			held, err = l.core.Share(name)
		}
		return held, err
	}); err != nil {
		return err
	}
	defer h.letGo(r, name, held.Created)
	var attended *attendee
	if r.URL.Query().Get("run") == "1" {
		attended = h.attend(r, name, peer)
		defer h.leaves(r, attended)
	}
	h.stay(w, r, peer, attended)
	return nil
}

// letGo ends a hold, unless the agent ends: who holds may come back to the next one.
func (h handlers) letGo(r *http.Request, name string, created time.Time) {
	select {
	case <-h.ending:
	default:
		_ = h.do(context.WithoutCancel(r.Context()), func(l *loop) {
			if l.core.Is(name, created) {
				l.core.Release(l.now, name)
			}
		})
	}
}

// stay sends what has been answered, then what a run is to be told, until the asker or
// the agent leaves. An asker that was stopped by force with its command, which has ended
// since, cannot leave.
func (h handlers) stay(w http.ResponseWriter, r *http.Request, peer asker, attended *attendee) {
	stream := http.NewResponseController(w)
	if !patient(stream) || stream.Flush() != nil {
		return
	}
	look := time.NewTicker(h.cfg.LookEvery)
	defer look.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-h.ending:
			return
		case n := <-attended.notices():
			if send(w, stream, n) != nil {
				return
			}
		case <-look.C:
			if h.table.Stopped(peer.PID) && h.table.ChildrenEnded(peer.PID) {
				return
			}
		}
	}
}

// postRun answers all that a command needs to run under a share, in one request: a
// hundred commands may be started at once.
func (h handlers) postRun(w http.ResponseWriter, r *http.Request, peer asker) error {
	var spec api.RunSpec
	if err := h.read(w, r, &spec); err != nil {
		return err
	}
	run := api.Run{Version: h.version()}
	var g admission.Enforcement
	var err error
	hold := func(l *loop, name string) error { return l.core.Hold(name, h.rights(peer)) }
	switch {
	case (spec.New == nil) == (spec.Share == ""):
		return &api.Error{Code: api.CodeUsage, Message: "either a declared share or a new one"}
	case spec.New != nil:
		run.Share, g, err = h.create(r, *spec.New, peer, hold)
	default:
		run.Share, g, err = h.join(r, spec.Share, hold)
	}
	if err != nil {
		return err
	}
	auditOf(r).about(run.Share.Name)
	defer h.letGo(r, run.Share.Name, run.Share.Created)
	if run.Entry, err = g.Enter(r.Context(), peer.PID); err != nil {
		return err
	}
	attended := h.attend(r, run.Share.Name, peer)
	defer h.leaves(r, attended)
	write(w, http.StatusOK, run)
	h.stay(w, r, peer, attended)
	return nil
}

// join is create for a share that is there.
func (h handlers) join(r *http.Request, name string, also func(*loop, string) error) (api.Share, admission.Enforcement, error) {
	g, err := h.enforcementNow(r, name, func(l *loop) error {
		_, err := l.core.Share(name)
		return err
	})
	if err != nil {
		return api.Share{}, g, err
	}
	var share api.Share
	err = h.ask(r, func(l *loop) error {
		view, err := l.core.Share(name)
		if err == nil {
			err = also(l, name)
		}
		share = l.apiShare(view)
		return err
	})
	return share, g, err
}

// enforcementNow finds out what holds a share now, if may allows it.
func (h handlers) enforcementNow(r *http.Request, name string, may func(*loop) error) (admission.Enforcement, error) {
	found := make([]admission.Enforcement, 1)
	if err := h.ask(r, func(l *loop) error {
		found[0] = l.enforcements[name]
		return may(l)
	}); err != nil {
		return found[0], err
	}
	h.driverWatch.lookAgain(r.Context(), found)
	return found[0], nil
}

// several are the parts of something that has more than one.
func several[T any](parts []T) []T {
	if len(parts) == 1 {
		return nil
	}
	return parts
}

// enterShare puts the process that asks under a share, before it starts a program.
func (h handlers) enterShare(w http.ResponseWriter, r *http.Request, peer asker) error {
	name := r.PathValue("name")
	g, err := h.enforcementNow(r, name, func(l *loop) error { return l.core.MayJoin(name, h.rights(peer)) })
	if err != nil {
		return err
	}
	entry, err := g.Enter(r.Context(), peer.PID)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, entry)
	return nil
}
