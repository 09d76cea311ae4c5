// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/audit"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/history"
)

// audited are the lines that the agent has written, each in a few words.
func (r *rig) audited() (all []string) {
	r.t.Helper()
	lines, unread, err := audit.Read(r.cfg.auditFolder(), audit.Wanted{Last: audit.MostLines})
	must(r.t, err)
	if unread > 0 {
		r.t.Errorf("%d lines cannot be read", unread)
	}
	for _, l := range lines {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", l.Actor.Via, l.Verb, l.Outcome, l.Object)))
	}
	return all
}

func (r *rig) wantChain(lines uint64) {
	r.t.Helper()
	report, err := audit.Verify(r.cfg.auditFolder(), nil)
	must(r.t, err)
	if !report.OK || lines > 0 && report.Lines != lines {
		r.t.Errorf("%+v, bad %+v", report, report.Bad)
	}
}

// Who did what is written before it is answered, what happens by itself soon after, and all of it in one chain
// over restarts.
func TestAudit(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.share(api.ShareSpec{Name: "train", MemoryBytes: gib, Labels: map[string]string{"a": "b", "hash": "c"}})
	if all := r.audited(); all[len(all)-1] != "api share.create done train" {
		t.Errorf("answered before it was written: %q", all)
	}
	weight, paused, resumed := 3, true, false
	for _, change := range []api.ShareChange{{Weight: &weight}, {Paused: &paused}, {Paused: &resumed}} {
		_, err := r.client.ChangeShare(ctx, "train", change)
		must(t, err)
	}
	_, err := r.client.CreateShare(ctx, api.ShareSpec{Name: "train"})
	wantCode(t, err, api.CodeExists)
	f := r.front("train")
	must(t, f.alloc(gib))
	for range 5 {
		if err := f.alloc(gib); !errors.Is(err, errDenied) {
			t.Fatal(err)
		}
	}
	f.close()
	eventually(t, "it has ended", func() bool { return r.client.DeleteShare(ctx, "train", false) == nil })
	_, err = r.client.Cordon(ctx, testUUID, "loud")
	must(t, err)
	_, err = r.client.Uncordon(ctx, testUUID)
	must(t, err)
	must(t, r.stop())
	r.start()
	_, _, err = r.client.EnsureShare(ctx, api.ShareSpec{Name: "again", MemoryBytes: gib})
	must(t, err)
	_, _, err = r.client.EnsureShare(ctx, api.ShareSpec{Name: "again", MemoryBytes: gib})
	must(t, err)
	must(t, r.stop())
	want := []string{
		"agent agent.start done", "api share.create done train", "api share.change done train", "api share.pause done train", "api share.resume done train", "api share.create failed train",
		"share attach done train", "share deny refused train",
	}
	all := r.audited()
	if !slices.Equal(all[:min(len(want), len(all))], want) {
		t.Errorf("%q, want %q", all, want)
	}
	for _, line := range []string{"api share.delete done train", "agent share.gone done train", "api card.cordon done " + testUUID, "api card.uncordon done " + testUUID, "agent agent.stop done"} {
		if !slices.Contains(all, line) {
			t.Errorf("no %q in %q", line, all)
		}
	}
	creates := 0
	for _, line := range all {
		if line == "api share.create done again" {
			creates++
		}
	}
	if creates != 1 {
		t.Errorf("what was there already was made %d times: %q", creates, all)
	}
	r.wantChain(uint64(len(all)))
	lines, _, err := audit.Read(r.cfg.auditFolder(), audit.Wanted{Last: 1, Verb: "share.change"})
	must(t, err)
	if a := lines[0].Actor; a.UID != os.Getuid() || a.PID != os.Getpid() || a.Name == "" || string(lines[0].Detail) == "" {
		t.Errorf("%+v, %s", a, lines[0].Detail)
	}
	lines, _, err = audit.Read(r.cfg.auditFolder(), audit.Wanted{Last: 1, Verb: "agent.start"})
	must(t, err)
	if !strings.Contains(string(lines[0].Detail), `"creation":"owner"`) {
		t.Errorf("the configuration is not told: %s", lines[0].Detail)
	}
}

// fakeAudit is a disk that fails, or takes its time.
type fakeAudit struct {
	auditLog
	full   atomic.Bool
	gate   sync.Mutex // held: it takes nothing, and does not fail
	synced atomic.Int32
}

var errNoSpace = errors.New("no space left on device")

func (f *fakeAudit) Append(now time.Time, lines []api.AuditLine) (int, error) {
	f.gate.Lock()
	defer f.gate.Unlock()
	if f.full.Load() {
		return 0, errNoSpace
	}
	return f.auditLog.Append(now, lines)
}

func (f *fakeAudit) Syncer() func() error {
	sync := f.auditLog.Syncer()
	return func() error {
		f.synced.Add(1)
		return sync()
	}
}

// newAuditRig is an agent whose audit's disk the test decides about.
func newAuditRig(t *testing.T, mode AuditMode) (*rig, *fakeAudit) {
	t.Helper()
	f := &fakeAudit{}
	r := &rig{t: t, cfg: testConfig(t), source: newFakeSource()}
	r.cfg.Audit = mode
	r.prepare = func(d *daemon) {
		open := d.audit.open
		d.audit.open = func() (auditLog, error) {
			if f.full.Load() {
				return nil, errNoSpace
			}
			log, err := open()
			f.auditLog = log
			return f, err
		}
	}
	r.client = client.New(r.cfg.APISocket())
	r.start()
	t.Cleanup(func() { r.stop() })
	return r, f
}

func TestAuditOnAFullDisk(t *testing.T) {
	r, disk := newAuditRig(t, AuditOn)
	r.share(api.ShareSpec{Name: "before", MemoryBytes: gib})
	disk.full.Store(true)
	r.share(api.ShareSpec{Name: "during", MemoryBytes: gib})
	if e := r.awaitEvent(event.AuditFailed); !strings.Contains(e.Message, "no space left") {
		t.Errorf("%+v", e)
	}
	f := r.front("during") // programs go on
	must(t, f.alloc(gib))
	eventually(t, "the snapshot says so", func() bool {
		s, err := r.client.Snapshot(t.Context())
		return err == nil && s.Agent.AuditFailed && s.Agent.AuditSequence != nil
	})
	disk.full.Store(false)
	r.awaitEvent(event.AuditWritten)
	all := r.audited()
	for _, line := range []string{"api share.create done before", "api share.create done during", "share attach done during"} {
		if !slices.Contains(all, line) {
			t.Errorf("no %q in %q", line, all)
		}
	}
	eventually(t, "it is brought to disk", func() bool { return disk.synced.Load() > 0 })
	r.wantChain(0)
}

// Where the audit is required, nothing is changed while it cannot be written, from the first moment on; what is
// there goes on, and everybody may look.
func TestAuditRequired(t *testing.T) {
	r, disk := newAuditRig(t, AuditRequired)
	r.share(api.ShareSpec{Name: "before", MemoryBytes: gib})
	if all := r.audited(); !slices.Equal(all[len(all)-2:], []string{"api share.create asked", "api share.create done before"}) {
		t.Errorf("%q", all)
	}
	disk.full.Store(true)
	weight := 3
	ctx := t.Context()
	refused := func() {
		t.Helper()
		_, err := r.client.CreateShare(ctx, api.ShareSpec{Name: "during", MemoryBytes: gib, Ephemeral: true})
		if e := wantCode(t, err, api.CodeUnavailable); !strings.Contains(e.Message, "cannot be written") || e.Hint == "" {
			t.Errorf("%+v", e)
		}
		_, _, err = r.client.EnsureShare(ctx, api.ShareSpec{Name: "during", MemoryBytes: gib})
		wantCode(t, err, api.CodeUnavailable)
		_, err = r.client.ChangeShare(ctx, "before", api.ShareChange{Weight: &weight})
		wantCode(t, err, api.CodeUnavailable)
		wantCode(t, r.client.DeleteShare(ctx, "before", true), api.CodeUnavailable)
		_, err = r.client.Cordon(ctx, testUUID, "loud")
		wantCode(t, err, api.CodeUnavailable)
		_, err = r.client.Uncordon(ctx, testUUID)
		wantCode(t, err, api.CodeUnavailable)
	}
	refused()
	f := r.front("before")
	must(t, f.alloc(gib))
	shares, err := r.client.Shares(ctx)
	must(t, err)
	if len(shares.Shares) != 1 || shares.Shares[0].Weight == weight {
		t.Errorf("%+v", shares.Shares)
	}
	disk.full.Store(false)
	r.awaitEvent(event.AuditWritten)
	_, err = r.client.ChangeShare(ctx, "before", api.ShareChange{Weight: &weight})
	must(t, err)

	must(t, r.stop())
	disk.full.Store(true)
	r.start()
	refused()
}

// A disk that takes long keeps nobody for more than a moment; it is told, and nothing is lost.
func TestAuditOnASlowDisk(t *testing.T) {
	r, disk := newAuditRig(t, AuditOn)
	r.share(api.ShareSpec{Name: "before", MemoryBytes: gib})
	disk.gate.Lock()
	r.share(api.ShareSpec{Name: "during", MemoryBytes: gib})
	f := r.front("during")
	must(t, f.alloc(gib))
	if e := r.awaitEvent(event.AuditFailed); !strings.Contains(e.Message, "within 1s") {
		t.Errorf("%+v", e)
	}
	disk.gate.Unlock()
	r.awaitEvent(event.AuditWritten)
	eventually(t, "nothing is lost", func() bool { return slices.Contains(r.audited(), "share attach done during") })
	r.wantChain(0)
}

// One that comes and goes without end does not fill the disk, whoever it is: what is too much is a number.
func TestAuditOfAFlood(t *testing.T) {
	r := newRig(t)
	must(t, r.stop())
	const many = 25_000
	d := r.daemon
	for range many {
		d.audit.noteTurnedAway(asker{}.Peer, 4711, viaAPI, "")
		d.audit.note(audit.Entry{AuditLine: api.AuditLine{Verb: "attach", Outcome: audit.Done}, User: 4711, Counted: true})
	}
	d.audit.mutex.Lock()
	defer d.audit.mutex.Unlock()
	if n := d.audit.pending.Count(); n > audit.MostPending+1 {
		t.Errorf("%d lines wait", n)
	}
}

func TestNoAudit(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Audit = AuditOff })
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	_, err := r.client.AuditHead(t.Context())
	wantCode(t, err, api.CodeNotFound)
	must(t, r.stop())
	if _, err := os.Stat(r.cfg.auditFolder()); err == nil {
		t.Error("there is one")
	}
}

// A closed hour is in the audit, once.
func TestClosedHours(t *testing.T) {
	r := newRig(t)
	eventually(t, "usage is open", func() bool { return r.daemon.usage.database() != nil })
	db := r.daemon.usage.database()
	at := time.Now().Add(-3 * time.Hour)
	closed := 0
	eventually(t, "hours are closed", func() bool {
		hours, err := db.Untold(10)
		must(t, err)
		closed = len(hours)
		if closed == 0 {
			must(t, db.Add(history.Moment{Life: "b", Time: at, MonotonicNs: at.UnixNano(), Cards: []history.CardCounters{{UUID: testUUID, Model: "H100", MemoryKiB: 1 << 20}}}))
			at = at.Add(10 * time.Minute)
		}
		return closed > 0
	})
	for range 2 {
		r.daemon.usage.noteClosed(context.Background())
	}
	lines, _, err := audit.Read(r.cfg.auditFolder(), audit.Wanted{Last: 10, Verb: "usage.closed"})
	must(t, err)
	if len(lines) != closed || !strings.HasPrefix(string(lines[0].Detail), `{"digest":"`) {
		t.Errorf("%+v, of %d hours", lines, closed)
	}
}

// The audit is for root, the agent's user and operators; its head is for everybody.
func TestWhoReadsTheAudit(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	a, err := r.client.Audit(t.Context(), 0, 1, "share.")
	must(t, err)
	if len(a.Lines) != 1 || a.Lines[0].Object != "s" || a.Schema != api.SchemaAudit {
		t.Errorf("%+v", a)
	}
	head, err := r.client.AuditHead(t.Context())
	must(t, err)
	if head.Sequence < a.Lines[0].Sequence || head.Directory != r.cfg.auditFolder() {
		t.Errorf("%+v", head)
	}
	h := handlers{daemon: &daemon{door: &door{uid: 4711}}}
	stranger := asker{}
	stranger.UID = 12001
	if h.trusted(stranger) {
		t.Error("anybody may")
	}
	stranger.operator = true
	if !h.trusted(stranger) || h.rights(stranger) != 4711 {
		t.Error("an operator may not")
	}
}
