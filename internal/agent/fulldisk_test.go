// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
)

// fillDisk makes every way to write the journal fail, until the function that
// it returns is called.
func (r *rig) fillDisk() (makeRoom func()) {
	r.t.Helper()
	inTheWay := filepath.Join(r.cfg.JournalDirectory, "journal.next")
	must(r.t, os.MkdirAll(filepath.Join(inTheWay, "full"), 0o700))
	if r.cancel != nil {
		r.do(func(l *loop) { must(r.t, l.state.journal.Close()) })
	}
	return func() { must(r.t, os.RemoveAll(inTheWay)) }
}

// A declared share that a restart would forget is not promised.
func TestFullDisk(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "before", MemoryBytes: gib})
	makeRoom := r.fillDisk()
	_, err := r.client.CreateShare(context.Background(), api.ShareSpec{Name: "declared", MemoryBytes: gib})
	wantCode(t, err, api.CodeUnavailable)
	r.share(api.ShareSpec{Name: "run", MemoryBytes: gib, Ephemeral: true})
	f := r.front("before")
	must(t, f.alloc(mib))
	r.awaitEvent("journal-failed")
	shares, err := r.client.Shares(context.Background())
	must(t, err)
	if len(shares.Shares) != 2 {
		t.Errorf("shares %+v", shares.Shares)
	}
	makeRoom()
	r.awaitEvent("journal-written")
	r.share(api.ShareSpec{Name: "declared", MemoryBytes: gib})
	_, was, _, err := readState(filepath.Join(r.cfg.JournalDirectory, "journal"))
	must(t, err)
	if len(was.shares) != 3 || len(was.clients) != 1 || was.clients[0].Granted == 0 {
		t.Errorf("the journal has %+v", was)
	}
}

// A journal that was damaged costs the share whose record it was; an event says so, and where the
// file is kept as it was. The control is the same journal without damage.
func TestDamagedJournal(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "first", MemoryBytes: gib})
	r.share(api.ShareSpec{Name: "second", MemoryBytes: gib})
	cuts := func() (cuts []string) {
		events, err := r.client.Events(t.Context(), 0)
		must(t, err)
		for _, e := range events.Events {
			if e.Kind == event.JournalCut {
				cuts = append(cuts, e.Message)
			}
		}
		return cuts
	}
	must(t, r.stop())
	r.start()
	if told := cuts(); told != nil {
		t.Errorf("without damage: %q", told)
	}
	must(t, r.stop())
	path := filepath.Join(r.cfg.JournalDirectory, "journal")
	damaged, err := os.ReadFile(path)
	must(t, err)
	at := bytes.Index(damaged, []byte(`"first"`))
	if at < 0 || at > bytes.Index(damaged, []byte(`"second"`)) {
		t.Fatalf("the journal is another one: %q", damaged)
	}
	damaged[at] ^= 1
	must(t, os.WriteFile(path, damaged, 0o600))
	r.start()
	kept := path + ".damaged"
	if told := cuts(); len(told) != 1 || !strings.HasSuffix(told[0], "kept in "+kept) {
		t.Errorf("told %q", told)
	}
	if is, err := os.ReadFile(kept); err != nil || !bytes.Equal(is, damaged) {
		t.Errorf("the file is not kept: %v", err)
	}
	shares, err := r.client.Shares(t.Context())
	must(t, err)
	if len(shares.Shares) != 1 || shares.Shares[0].Name != "second" {
		t.Errorf("shares %+v", shares.Shares)
	}
}

// slowJournal takes long to write.
type slowJournal struct {
	records
	takes time.Duration
}

func (j slowJournal) Append(records ...[]byte) error {
	<-time.After(j.takes)
	return j.records.Append(records...)
}

// On a slow disk all is slower, and told; nothing fails, and no promise is broken.
func TestSlowDisk(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	before := r.front("s")
	must(t, before.alloc(300*mib))
	r.do(func(l *loop) { l.state.journal = slowJournal{l.state.journal, slowDisk + 100*time.Millisecond} })
	second := r.front("s")
	must(t, second.alloc(gib-300*mib))
	if err := before.alloc(512); err != errDenied {
		t.Errorf("more than there is: %v", err)
	}
	if e := r.awaitEvent(event.JournalSlow); e.Message == "" {
		t.Error("the event says nothing")
	}
	events, err := r.client.Events(t.Context(), 0)
	must(t, err)
	told := 0
	for _, e := range events.Events {
		if e.Kind == event.JournalSlow {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	second.close()
	r.do(func(l *loop) { l.state.journal = l.state.journal.(slowJournal).records })
	checkLedger(t, r)
}

// unsyncedJournal is a journal on a disk that takes what is written, and does not come to
// an end with it.
type unsyncedJournal struct {
	records
	waits, goOn chan struct{}
}

func (j unsyncedJournal) Syncer() func() error {
	return func() error {
		j.waits <- struct{}{}
		<-j.goOn
		return nil
	}
}

// Who declares a share waits until it is on disk, and nobody else does.
func TestSlowSync(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	f := r.front("s")
	waits, goOn := make(chan struct{}), make(chan struct{})
	r.do(func(l *loop) { l.state.journal = unsyncedJournal{l.state.journal, waits, goOn} })
	made := make(chan error, 1)
	go func() {
		_, err := r.client.CreateShare(t.Context(), api.ShareSpec{Name: "declared", MemoryBytes: gib})
		made <- err
	}()
	<-waits
	must(t, f.alloc(gib))
	r.share(api.ShareSpec{Name: "passing", MemoryBytes: gib, Ephemeral: true})
	_, err := r.client.Shares(t.Context())
	must(t, err)
	select {
	case err := <-made:
		t.Errorf("it was not waited for: %v", err)
	default:
	}
	close(goOn)
	must(t, <-made)
}

// An agent that starts on a full disk knows what it read, and serves.
func TestStartOnFullDisk(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	must(t, r.stop())
	makeRoom := r.fillDisk()
	r.start()
	r.awaitEvent("journal-failed")
	f := r.front("s")
	must(t, f.alloc(mib))
	makeRoom()
	r.awaitEvent("journal-written")
}
