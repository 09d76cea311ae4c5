// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/admission"
	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/size"
	"github.com/divvy-gpu/divvy/internal/socket"
)

const (
	lookTwice   = 5  // parts of ReconcileEvery until what was seen once is looked at again
	mostNotices = 16 // of a run are kept

	environmentPatience = 200 * time.Millisecond // with a process whose environment does not come
)

// attendee is a run: a command under a share: the process that started it, and whatever descends
// from that.
type attendee struct {
	share string
	pid   int
	start uint64
	uid   int
	told  chan api.Notice // what it has not been sent yet
	said  []api.Notice    // all of them
}

// bypass is a process of a run, or else of a share, that holds memory of a GPU and is
// on no ledger: the front is not in it.
type bypass struct {
	core.Holding
	start uint64
	uid   int // below 0: not known
	payer *int
	name  string
	share string
	level share.Enforcement // what holds it all the same
	run   *attendee         // nil: of no run that we know
	sure  bool              // seen twice: a process that has just ended may be seen once
	at    time.Time         // when the driver was asked last
}

func (b bypass) same(other bypass) bool { return b.PID == other.PID && b.start == other.start }

func (b bypass) String() string {
	return fmt.Sprintf("process %d (%s) holds %s of the GPU past Divvy's library", b.PID, b.name, size.Short(b.Bytes))
}

// bypasses are the processes that bypass the front of shares, by GPU.
type bypasses map[string][]bypass

// of lists those of a share that are sure.
func (all bypasses) of(share string) (found []bypass) {
	if len(all) == 0 { // it is asked for of a thousand shares
		return nil
	}
	for _, card := range slices.Sorted(maps.Keys(all)) {
		for _, b := range all[card] {
			if b.sure && b.share == share {
				found = append(found, b)
			}
		}
	}
	return found
}

// shown is how strongly a share is held as far as is seen: no more than each process
// of its runs is. And why no stronger.
func (l *loop) shown(name string) (share.Enforcement, string) {
	g := l.enforcements[name]
	why := g.Why()
	level := l.lowered(name, func(b bypass) { why = admission.JoinReason(string(g.Level)+": "+b.String(), why) })
	return level, why
}

// level is the first of the two.
func (l *loop) level(name string) share.Enforcement { return l.lowered(name, func(bypass) {}) }

// lowered is how strongly a share is held, and tells of each process that lowers it.
func (l *loop) lowered(name string, by func(bypass)) share.Enforcement {
	level := l.enforcements[name].Level
	for _, b := range l.bypasses.of(name) {
		if !b.level.Meets(level) {
			level = b.level
			by(b)
		}
	}
	return level
}

// attend makes a process known that is about to start a command under a share.
func (h handlers) attend(r *http.Request, name string, peer asker) *attendee {
	start, err := h.table.Start(peer.PID)
	if err != nil {
		return nil // it has gone, or we do not see it
	}
	attended := &attendee{share: name, pid: peer.PID, start: start, uid: peer.UID, told: make(chan api.Notice, mostNotices)}
	if h.do(r.Context(), func(l *loop) {
		l.runs = append(l.runs, attended)
		l.wantReconcile()
	}) != nil {
		return nil
	}
	return attended
}

// leaves forgets a run.
func (h handlers) leaves(r *http.Request, gone *attendee) {
	_ = h.do(context.WithoutCancel(r.Context()), func(l *loop) {
		l.runs = slices.DeleteFunc(l.runs, func(other *attendee) bool { return other == gone })
	})
}

// getNotices answers what has been said to the runs of the process that asks. As the loop
// answers, nothing that share or event shows by then is missing.
func (h handlers) getNotices(w http.ResponseWriter, r *http.Request, peer asker) error {
	start, err := h.table.Start(peer.PID)
	if err != nil {
		return err
	}
	notices := api.Notices{Notices: []api.Notice{}}
	if err := h.do(r.Context(), func(l *loop) {
		for _, run := range l.runs {
			if run.pid == peer.PID && run.start == start {
				notices.Notices = append(notices.Notices, run.said...)
			}
		}
	}); err != nil {
		return err
	}
	write(w, http.StatusOK, notices)
	return nil
}

// notices is what a run is to be told; nil: nothing ever.
func (r *attendee) notices() <-chan api.Notice {
	if r == nil {
		return nil
	}
	return r.told
}

// send tells a run that listens to a response.
func send(w http.ResponseWriter, stream *http.ResponseController, n api.Notice) error {
	if err := stream.SetWriteDeadline(time.Now().Add(streamDeadline)); err != nil {
		return err
	}
	if err := json.NewEncoder(w).Encode(n); err != nil {
		return err
	}
	return stream.Flush()
}

// compare compares the ledger of a card with the driver's account, and looks who the
// processes are that are on none: which belong to runs and shares whose front they bypass.
func (d *driverWatch) compare(ctx context.Context, card string, account core.Account) {
	var unaccounted []core.Holding
	var runs []*attendee
	var enforcements map[string]admission.Enforcement
	if d.do(ctx, func(l *loop) {
		if unaccounted = l.core.Unaccounted(card, account); len(unaccounted) > 0 {
			runs, enforcements = slices.Clone(l.runs), maps.Clone(l.enforcements)
		}
	}) != nil {
		return
	}
	var found []bypass
	account.Owners = map[int]core.Owner{}
	for _, h := range unaccounted {
		b, owner := d.unaccounted(ctx, h, runs)
		account.Owners[h.PID] = owner
		if b.start != 0 && d.bypasses(ctx, &b, enforcements) {
			b.at = account.At
			found = append(found, b)
		}
	}
	comparison := core.NewComparison(card, account)
	for done := false; !done; {
		if d.do(ctx, func(l *loop) {
			if done = l.core.Compare(l.now, comparison); done {
				l.compared(card, account, found)
			}
		}) != nil {
			return
		}
	}
}

// compared enters what a comparison has found.
func (l *loop) compared(card string, account core.Account, found []bypass) {
	if l.core.Unsure() {
		l.wantReconcile()
	}
	if len(l.core.Unaccounted(card, account)) == 0 {
		found = nil // by what this account shows, the driver does not name ours
	}
	l.setBypasses(card, account.At, found)
}

// unaccounted looks who a process on no ledger is: the share and the run that it belongs to,
// if any. One that is not there any more has no start.
func (d *driverWatch) unaccounted(ctx context.Context, h core.Holding, runs []*attendee) (bypass, core.Owner) {
	owner := core.Owner{UID: -1}
	start, err := d.table.Start(h.PID)
	if err != nil || !d.table.Running(h.PID, start) {
		return bypass{}, owner
	}
	b := bypass{Holding: h, start: start, uid: owner.UID, name: d.table.Name(h.PID), level: share.Booked}
	byPID := map[int]*attendee{}
	for _, r := range runs {
		byPID[r.pid] = r
	}
	pid, _ := d.table.Ancestor(h.PID, func(pid int) bool {
		if pid == os.Getpid() {
			return true // what we start is of no run, though a run may have started us
		}
		r := byPID[pid]
		if r == nil {
			return false
		}
		start, err := d.table.Start(pid)
		return err == nil && start == r.start
	})
	if r := byPID[pid]; r != nil {
		b.run, b.share = r, r.share
	} else if b.share = d.shareAround(ctx, h.PID); b.share != "" {
		b.run = d.onlyRun(h.PID, b.share, runs)
	}
	owner.Name, owner.Share = b.name, b.share
	if uid, err := d.table.Owner(h.PID); err == nil {
		owner.UID, b.uid = uid, uid
		b.payer = new(payer(d.table, d.subordinates, d.uid, socket.Peer{PID: h.PID, UID: uid}))
		owner.Payer = b.payer
	}
	return b, owner
}

// bypasses says whether a process on no ledger belongs to one of the shares and is held
// less than that.
func (d *driverWatch) bypasses(ctx context.Context, b *bypass, enforcements map[string]admission.Enforcement) bool {
	g, known := enforcements[b.share]
	if !known {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, admission.HoldFor)
	defer cancel()
	for _, m := range g.Enforcers {
		if m.Level().Meets(b.level) && m.Verify(ctx, g.Share, b.PID) == nil {
			b.level = m.Level()
		}
	}
	return !b.level.Meets(g.Level)
}

// shareAround is the share of a process whose run is not among its ancestors, as of one
// that has become a daemon: that whose control group it is in, or whose socket it was
// started with by a user who may come to it. Empty: none.
func (d *driverWatch) shareAround(ctx context.Context, pid int) string {
	for _, m := range d.enforcers.All {
		if groups, ok := m.(interface{ ShareOf(pid int) (string, bool) }); ok {
			if name, in := groups.ShareOf(pid); in {
				return name
			}
		}
	}
	reading, cancel := context.WithTimeout(ctx, environmentPatience)
	defer cancel()
	path := d.environments.Variable(reading, pid, "DIVVY_SOCKET")
	name := filepath.Base(filepath.Dir(path))
	if path == "" || path != d.cfg.ShareSocket(name) {
		return ""
	}
	uid, err := d.table.Owner(pid)
	if err != nil {
		return ""
	}
	may := false
	_ = d.do(ctx, func(l *loop) { may = l.core.MayJoin(name, uid) == nil })
	if !may {
		return ""
	}
	return name
}

// onlyRun is the run of a share that has no other, by the user of a process; nil: that
// cannot be told.
func (d *driverWatch) onlyRun(pid int, share string, runs []*attendee) *attendee {
	var only *attendee
	for _, r := range runs {
		if r.share != share {
			continue
		}
		if only != nil {
			return nil
		}
		only = r
	}
	if uid, err := d.table.Owner(pid); only == nil || err != nil || uid != only.uid {
		return nil
	}
	return only
}

// setBypasses keeps what was found on a GPU, and tells of what is new: everybody by
// events, and the runs.
func (l *loop) setBypasses(card string, at time.Time, found []bypass) {
	before := l.bypasses[card]
	if slices.ContainsFunc(before, func(b bypass) bool { return at.Before(b.at) }) {
		return // somebody was quicker
	}
	levels := map[string]share.Enforcement{}
	for _, b := range slices.Concat(before, found) {
		levels[b.share] = l.level(b.share)
	}
	found = slices.DeleteFunc(found, func(b bypass) bool { return l.core.OnLedger(b.PID) })
	var told []bypass
	for i := range found {
		b := &found[i]
		was := slices.IndexFunc(before, b.same)
		if was < 0 {
			l.lookSoon()
			continue
		}
		b.sure = before[was].sure || b.at.After(before[was].at)
		if b.sure && !before[was].sure {
			told = append(told, *b)
		}
	}
	if delete(l.bypasses, card); len(found) > 0 {
		l.bypasses[card] = found
	}
	for _, b := range told {
		l.tellBypass(card, b)
	}
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		if _, known := l.enforcements[name]; !known {
			continue
		}
		if level, why := l.shown(name); level != levels[name] {
			l.logBounded(core.Event{Time: l.now, Kind: event.EnforcementChanged, Share: name, Card: card,
				Message: fmt.Sprintf("held at level %q instead of %q: %s", level, levels[name], why)})
		}
	}
}

// tellBypass says that a process is not held as its share is.
func (l *loop) tellBypass(card string, b bypass) {
	e := core.Event{Time: l.now, Kind: event.NotEnforced, Share: b.share, Card: card, PID: b.PID, Bytes: b.Bytes,
		Message: fmt.Sprintf("held at level %q: %s", b.level, b)}
	if b.uid >= 0 {
		e.UID = &b.uid // its flood, whosever the share is
		e.CausedBy(b.payer)
	}
	l.logBounded(e)
	if b.run == nil {
		return
	}
	n := api.Notice{PID: b.PID, Start: b.start, Command: b.name, Bytes: b.Bytes, Level: b.level}
	if demanded := l.enforcements[b.share].Demanded; !b.level.Meets(demanded) {
		n.Demanded = demanded
	}
	if len(b.run.said) < mostNotices {
		b.run.said = append(b.run.said, n)
	}
	select {
	case b.run.told <- n:
	default: // it has heard of others and does not listen
	}
}

// lookSoon has the driver asked again before long.
func (l *loop) lookSoon() {
	if soon := l.now.Add(l.cfg.ReconcileEvery / lookTwice); l.reconcileAt.IsZero() || soon.Before(l.reconcileAt) {
		l.reconcileAt = soon
	}
}
