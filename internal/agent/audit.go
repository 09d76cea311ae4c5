// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/audit"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/socket"
)

// AuditMode says whether who did what is kept, and whether anything is changed without.
type AuditMode string

const (
	AuditOn       AuditMode = "on"       // what cannot be written waits, and what is missing is said
	AuditRequired AuditMode = "required" // nothing is changed while it cannot be written
	AuditOff      AuditMode = "off"
)

const (
	// auditPatience is for how long an answer waits until its line is written, and slowAudit after how
	// long writing counts as failed.
	auditPatience = time.Second
	slowAudit     = time.Second
	// syncAfter is how long what is written may be lost with the machine.
	syncAfter = time.Second
	inboxMost = 4096 // that the loop noted, until the writer has taken it
	// Names of what an actor came by.
	viaAPI, viaShare, viaAgent = "api", "share", "agent"
)

// Reasons for which the audit is not kept.
const (
	auditUnwritten = iota
	auditSlow
	auditUnsynced
	auditReasons
)

// auditKeeper has the audit. A goroutine beside the loop writes it, and who ends the agent when that has
// ended; another one has it brought to disk.
type auditKeeper struct {
	*door
	mode   AuditMode
	folder string
	open   func() (auditLog, error)
	log    auditLog // of the writer alone; nil: it is not open

	added    chan struct{} // holds one when there is something to write
	unsynced chan struct{} // holds one when there is something to bring to disk

	inbox struct {
		mutex   sync.Mutex // guards the rest
		entries []audit.Entry
	} // of the loop, which waits for nothing that takes longer

	mutex    sync.Mutex // guards everything below; never held while something is written
	pending  audit.Pending
	written  uint64        // ticket of the last line that is
	progress chan struct{} // closed and replaced when lines are written, or fail
	failures [auditReasons]error
	syncer   func() error
	head     audit.Head
}

// auditLog is where lines are written.
type auditLog interface {
	Append(now time.Time, lines []api.AuditLine) (written int, err error)
	Head() audit.Head
	Syncer() func() error
	Close() error
}

func newAuditKeeper(d *door, cfg Config) *auditKeeper {
	open := func() (auditLog, error) { return audit.Open(cfg.auditFolder(), cfg.AuditBounds) }
	return &auditKeeper{door: d, mode: cfg.Audit, folder: cfg.auditFolder(), open: open, added: make(chan struct{}, 1), unsynced: make(chan struct{}, 1), progress: make(chan struct{})}
}

func (c Config) auditFolder() string { return filepath.Join(c.JournalDirectory, "audit") }

// note has a line written, and returns its ticket; 0: it is told as a number, or cannot be kept.
func (k *auditKeeper) note(e audit.Entry) (ticket uint64) {
	if k.mode == AuditOff {
		return 0
	}
	k.mutex.Lock()
	ticket = k.pending.Add(time.Now(), e)
	k.mutex.Unlock()
	wake(k.added)
	return ticket
}

// noteLater is note for the loop.
func (k *auditKeeper) noteLater(e audit.Entry) {
	if k.mode == AuditOff {
		return
	}
	in := &k.inbox
	in.mutex.Lock()
	full := len(in.entries) >= inboxMost
	if !full {
		e.Time = time.Now()
		in.entries = append(in.entries, e)
	}
	in.mutex.Unlock()
	if full {
		k.note(e) // which counts what cannot be kept
		return
	}
	wake(k.added)
}

// takeInbox has what the loop noted wait with the rest.
func (k *auditKeeper) takeInbox() {
	k.inbox.mutex.Lock()
	entries := k.inbox.entries
	k.inbox.entries = nil
	k.inbox.mutex.Unlock()
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for _, e := range entries {
		k.pending.Add(e.Time, e)
	}
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// noted waits until a line is written, for a while.
func (k *auditKeeper) noted(ctx context.Context, ticket uint64) error {
	ctx, cancel := context.WithTimeout(ctx, auditPatience)
	defer cancel()
	for {
		k.mutex.Lock()
		written, failed, progress := k.written, k.failedLocked(), k.progress
		k.mutex.Unlock()
		switch {
		case ticket > 0 && written >= ticket:
			return nil
		case failed != nil || ticket == 0:
			return failed
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return fmt.Errorf("the audit is not written in time: %w", ctx.Err())
		}
	}
}

func (k *auditKeeper) failedLocked() error {
	for _, err := range k.failures {
		if err != nil {
			return err
		}
	}
	return nil
}

func (k *auditKeeper) state() (head audit.Head, failed error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.head, k.failedLocked()
}

func (k *auditKeeper) unwritten() bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.failures[auditUnwritten] != nil
}

// became notes that it fails for a reason, or does not any more, and tells when that makes a difference.
func (k *auditKeeper) became(ctx context.Context, reason int, err error) {
	k.mutex.Lock()
	before := k.failedLocked()
	k.failures[reason] = err
	now := k.failedLocked()
	close(k.progress)
	k.progress = make(chan struct{})
	k.mutex.Unlock()
	if (before == nil) != (now == nil) {
		k.tellWritten(ctx, "audit", now, [2]event.Kind{event.AuditFailed, event.AuditWritten},
			"who did what cannot be written, and waits", "who did what is written again")
	}
}

// keep writes until ctx ends.
func (k *auditKeeper) keep(ctx context.Context) {
	if k.mode == AuditOff {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.added:
			if k.unwritten() {
				continue // it is tried again in a while
			}
		case <-timer.C:
		}
		next := k.write(ctx)
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// write writes what waits, and says when it is to be called if nothing is added; zero: not at all.
func (k *auditKeeper) write(ctx context.Context) (next time.Time) {
	for {
		now := time.Now()
		k.takeInbox()
		k.mutex.Lock()
		lines := k.pending.Take(now)
		k.mutex.Unlock()
		written, err := k.append(ctx, now, lines)
		k.mutex.Lock()
		k.written = k.pending.Done(written)
		if k.log != nil {
			k.head, k.syncer = k.log.Head(), k.log.Syncer()
		}
		more := k.pending.Count() > 0
		next = k.pending.Next()
		k.mutex.Unlock()
		if written > 0 {
			wake(k.unsynced)
		}
		k.became(ctx, auditUnwritten, err)
		if err != nil {
			return now.Add(saveAgain)
		}
		if !more {
			return next
		}
	}
}

// append appends lines to the file, and tells when that takes long.
func (k *auditKeeper) append(ctx context.Context, now time.Time, lines []api.AuditLine) (written int, err error) {
	defer k.whileSlow(ctx, "written")()
	if k.log == nil {
		log, err := k.open()
		if err != nil {
			return 0, err
		}
		k.log = log
	}
	return k.log.Append(now, lines)
}

// whileSlow tells that it fails when what follows takes long, until that has ended.
func (k *auditKeeper) whileSlow(ctx context.Context, what string) (ended func()) {
	told := make(chan struct{})
	timer := time.AfterFunc(slowAudit, func() {
		defer close(told)
		k.became(ctx, auditSlow, fmt.Errorf("it is not %s within %v", what, slowAudit))
	})
	return func() {
		if !timer.Stop() {
			<-told
			k.became(ctx, auditSlow, nil)
		}
	}
}

// sync brings what is written to disk, soon after, until ctx ends.
func (k *auditKeeper) sync(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return // who ends the agent does it
		case <-k.unsynced:
		}
		if !pauseFor(ctx, syncAfter) {
			return
		}
		k.mutex.Lock()
		sync := k.syncer
		k.mutex.Unlock()
		err := sync()
		k.became(ctx, auditUnsynced, err)
		if err != nil {
			wake(k.unsynced)
		}
	}
}

// last writes what came since, when all else has ended.
func (k *auditKeeper) last(ctx context.Context) {
	if k.mode == AuditOff {
		return
	}
	k.note(audit.Entry{AuditLine: api.AuditLine{Actor: k.itself(), Verb: "agent.stop", Outcome: audit.Done}})
	k.write(ctx)
	_, failed := k.state()
	if k.log != nil {
		failed = errors.Join(failed, k.log.Close())
	}
	if failed != nil {
		k.logger.Warn("audit", "error", failed)
	}
}

// itself is the agent as an actor.
func (k *auditKeeper) itself() api.AuditActor {
	return api.AuditActor{UID: k.uid, PID: os.Getpid(), Name: "divvy", Via: viaAgent}
}

// noteStart writes that this agent has begun, and how it is configured: by its flags, as a rule, of which nobody
// else tells.
func (k *auditKeeper) noteStart(c Config, life string) {
	k.pending.Agent = k.itself()
	policy, _ := json.Marshal(c.Health) // of words and numbers
	detail, _ := json.Marshal(map[string]any{
		"version": c.ProductVersion, "life": life, "private": c.Private, "driverDirectory": c.DriverDirectory, "creation": c.Creation, "operators": c.Operators,
		"priorityLimits": c.PriorityLimits, "commandLines": c.CommandLines, "quantum": c.Quantum.String(), "backlog": c.Backlog.String(), "overlap": c.Overlap,
		"historyBytes": c.History.Bytes, "historyDays": c.History.Days, "audit": c.Audit, "auditBytes": c.AuditBounds.Bytes, "healthDigest": audit.Digest(policy),
	})
	k.note(audit.Entry{AuditLine: api.AuditLine{Actor: k.itself(), Verb: "agent.start", Outcome: audit.Done, Detail: detail}})
}

// ofEvent are the events of what nobody asked for, that changes what there is.
var ofEvent = map[event.Kind]string{
	event.ShareDeleted: "share.gone", event.ShareLost: "share.lost", event.CardCordoned: "card.cordon", event.CardUncordoned: "card.uncordon", event.EventsDropped: "events.dropped",
}

// noteEvent writes what changed by itself.
func (k *auditKeeper) noteEvent(e core.Event) {
	verb := ofEvent[e.Kind]
	ofCard := e.Kind == event.CardCordoned || e.Kind == event.CardUncordoned
	if verb == "" || ofCard && e.Class == "" { // by somebody, who has a line
		return
	}
	line := api.AuditLine{Actor: k.itself(), Verb: verb, Object: e.Share, Outcome: audit.Done, Reason: e.Message}
	if ofCard {
		line.Object = e.Card
	}
	user, known := e.User()
	k.noteLater(audit.Entry{AuditLine: line, User: user, Counted: known && !core.Trusted(user, k.uid)})
}

// noteProgram writes what a program did at its share's socket.
func (c *connection) noteProgram(verb, outcome, reason string, detail any) {
	line := api.AuditLine{Actor: c.actor, Verb: verb, Object: c.share, Outcome: outcome, Reason: reason}
	if detail != nil {
		line.Detail, _ = json.Marshal(detail) // of words and numbers
	}
	// Root's programs count, too: they may be containers'.
	c.audit.note(audit.Entry{AuditLine: line, User: c.payer, Counted: true, Repeats: outcome == audit.Refused})
}

// noteDenied writes that a program was refused memory.
func (c *connection) noteDenied(slot int, bytes uint64, call string, reason core.Reason) {
	c.noteProgram("deny", audit.Refused, string(reason), map[string]any{"bytes": bytes, "call": call, "cardUuid": c.cards[slot]})
}

// noteLeft writes that a process has ended which an agent before had attached.
func (k *auditKeeper) noteLeft(c core.ClientView, name string) {
	actor := api.AuditActor{UID: c.UID, PID: c.PID, Name: name, Via: viaShare}
	k.note(audit.Entry{AuditLine: api.AuditLine{Actor: actor, Verb: "leave", Object: c.Share, Outcome: audit.Done}, User: cmp.Or(c.Payer, c.UID), Counted: true})
}

// noteTurnedAway writes that a connection was closed because its user has too many.
func (k *auditKeeper) noteTurnedAway(peer socket.Peer, payer int, via, object string) {
	k.note(audit.Entry{AuditLine: api.AuditLine{Actor: api.AuditActor{UID: peer.UID, PID: peer.PID, Via: via}, Verb: "connect", Object: object, Outcome: audit.Refused, Reason: "too many connections"},
		User: payer, Counted: true, Repeats: true})
}

type auditedKey struct{}

// audited is what a request leaves in the audit.
type audited struct {
	*auditKeeper
	table  process.Table
	entry  audit.Entry
	change bool // it may change something
	told   bool
}

// auditRequest begins what a request leaves; verb is empty where it changes nothing.
func (h handlers) auditRequest(r *http.Request, asker asker, verb string) *audited {
	a := &audited{auditKeeper: h.audit, table: h.table, change: verb != ""}
	if !a.change {
		verb = "read"
	}
	a.entry = audit.Entry{User: asker.payer, Counted: !h.trusted(asker), AuditLine: api.AuditLine{
		Actor: api.AuditActor{UID: asker.UID, PID: asker.PID, Via: viaAPI}, Verb: verb, Object: r.PathValue("name") + r.PathValue("card"),
	}}
	if !a.change {
		a.entry.Object = r.URL.Path
	}
	return a
}

// auditOf is what a request leaves; without meaning where nothing is kept.
func auditOf(r *http.Request) *audited {
	a, _ := r.Context().Value(auditedKey{}).(*audited)
	if a == nil {
		a = &audited{}
	}
	return a
}

// about says of what a request is.
func (a *audited) about(object string) { a.entry.Object = object }

// unchanged says that nothing was to be done.
func (a *audited) unchanged() { a.told = true }

// as says more exactly what a request does, and how.
func (a *audited) as(verb string, detail any) {
	a.entry.Verb = verb
	a.entry.Detail, _ = json.Marshal(detail) // it came as JSON
}

// ask writes what is about to be done, where nothing is done without: an error says that it must not be.
func (a *audited) ask(ctx context.Context) error {
	if a.auditKeeper == nil || a.mode != AuditRequired || !a.change {
		return nil
	}
	e := a.entry
	e.Outcome = audit.Asked
	a.entry.Actor.Name = a.table.Name(a.entry.Actor.PID)
	e.Actor = a.entry.Actor
	if err := a.noted(ctx, a.note(e)); err != nil {
		return &api.Error{Code: api.CodeUnavailable, Message: "who does what cannot be written, and without that this agent changes nothing: " + err.Error(),
			Hint: "make room on the disk that has " + a.folder}
	}
	return nil
}

// tell writes what came of a request, before it is answered.
func (a *audited) tell(ctx context.Context, status int, err error) {
	if a.told {
		return
	}
	a.told = true
	switch {
	case status < http.StatusBadRequest && a.change:
		a.entry.Outcome = audit.Done
	case status == http.StatusForbidden:
		a.entry.Outcome = audit.Refused
	case status >= http.StatusBadRequest && a.change:
		a.entry.Outcome = audit.Failed
	default:
		return
	}
	if err != nil {
		a.entry.Reason, a.entry.Repeats = apiError(err).Message, true
	}
	if a.entry.Actor.Name == "" {
		a.entry.Actor.Name = a.table.Name(a.entry.Actor.PID)
	}
	// A request that has been carried out is told of, written or not; that it fails is an event.
	_ = a.noted(context.WithoutCancel(ctx), a.note(a.entry))
}

// read is for requests that change something: what they ask for is in the audit, before it is done where it has
// to be.
func (h handlers) read(w http.ResponseWriter, r *http.Request, into any) error {
	if err := read(w, r, into); err != nil {
		return err
	}
	a := auditOf(r)
	a.as(a.entry.Verb, into)
	return a.ask(r.Context())
}

// getAudit answers lines.
func (h handlers) getAudit(w http.ResponseWriter, r *http.Request, peer asker) error {
	if !h.trusted(peer) {
		return &api.Error{Code: api.CodeNotAllowed, Message: fmt.Sprintf("only root, uid %d and operators read the audit of this agent", h.uid)}
	}
	wanted := audit.Wanted{Last: 100, Verb: r.URL.Query().Get("verb")}
	for name, into := range map[string]func(uint64){"since": func(n uint64) { wanted.Since = n }, "last": func(n uint64) { wanted.Last = int(min(n, audit.MostLines)) }} {
		if text := r.URL.Query().Get(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 63)
			if err != nil {
				return &api.Error{Code: api.CodeUsage, Message: fmt.Sprintf("%s=%.40q is not a number", name, text)}
			}
			into(n)
		}
	}
	if err := h.keepsAudit(); err != nil {
		return err
	}
	lines, unread, err := audit.Read(h.cfg.auditFolder(), wanted)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if lines == nil {
		lines = []api.AuditLine{}
	}
	write(w, http.StatusOK, api.Audit{Schema: api.SchemaAudit, Lines: lines, Unread: unread})
	return nil
}

func (h handlers) keepsAudit() error {
	if h.cfg.Audit == AuditOff {
		return &api.Error{Code: api.CodeNotFound, Message: "this agent keeps no audit", Hint: "divvy agent --audit on"}
	}
	return nil
}

// getAuditHead answers the last line's number and hash, which everybody may keep.
func (h handlers) getAuditHead(w http.ResponseWriter, _ *http.Request, _ asker) error {
	if err := h.keepsAudit(); err != nil {
		return err
	}
	head, failed := h.audit.state()
	if head == (audit.Head{}) {
		return &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("the audit is not written: %v", failed), Hint: "divvy events says why"}
	}
	write(w, http.StatusOK, api.AuditHead{Schema: api.SchemaAuditHead, Sequence: head.Sequence, Hash: head.Hash, Directory: h.cfg.auditFolder()})
	return nil
}
