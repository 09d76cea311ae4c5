// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/socket"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// checkLedger fails unless promises fit the card, and grants their shares.
func checkLedger(t *testing.T, r *rig) {
	t.Helper()
	must(t, r.daemon.do(t.Context(), func(l *loop) {
		for _, card := range l.core.Cards() {
			if card.BookedBytes > card.UsableBytes {
				t.Errorf("%d of %d bytes promised", card.BookedBytes, card.UsableBytes)
			}
		}
		granted := map[string]uint64{}
		for _, c := range l.core.Clients() {
			granted[c.Share] += c.GrantedBytes
		}
		for _, s := range l.core.Shares() {
			if s.MemoryBytes > 0 && granted[s.Name] > s.LimitBytes || s.UsedBytes > s.LimitBytes {
				t.Errorf("share %s: %d granted, %d used of %d", s.Name, granted[s.Name], s.UsedBytes, s.LimitBytes)
			}
		}
	}))
}

// witness is a process of a share beside those that are attacked.
type witness struct {
	*front
	r *rig
}

const (
	witnessName  = "witness"
	witnessBytes = gib
	witnessKeeps = 600 * mib
)

func (r *rig) witness() witness {
	r.t.Helper()
	r.share(api.ShareSpec{Name: witnessName, MemoryBytes: witnessBytes})
	w := witness{r.front(witnessName), r}
	must(r.t, w.alloc(witnessKeeps))
	return w
}

// exact fails unless the witness has what it had, gets all that its share was promised,
// and not a byte more.
func (w witness) exact(t *testing.T) {
	t.Helper()
	used := func(want uint64) {
		t.Helper()
		must(t, w.r.daemon.do(t.Context(), func(l *loop) {
			if v, err := l.core.Share(witnessName); err != nil || v.UsedBytes != want || v.LimitBytes != witnessBytes || v.State != core.StateActive {
				t.Errorf("the witness should use %d bytes: %+v, %v", want, v, err)
			}
		}))
	}
	used(witnessKeeps)
	if err := w.alloc(witnessBytes - witnessKeeps); err != nil {
		t.Errorf("the rest of the witness's share: %v", err)
	}
	if err := w.alloc(512); err != errDenied {
		t.Errorf("more than the witness's share: %v", err)
	}
	used(witnessBytes)
	w.free(witnessBytes - witnessKeeps)
}

// Whatever is asked of the interface, it answers as documented, and promises
// never exceed the card.
func FuzzAPI(f *testing.F) {
	r := newRig(f)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	w := r.witness()
	handler := handlers{daemon: r.daemon}.handler()
	f.Add("POST", "/v1/shares", []byte(`{"name":"a","memoryBytes":1073741824}`))
	f.Add("POST", "/v1/shares", []byte(`{"memoryBytes":0,"policy":"fixed","coresPercent":30,"ephemeral":true}`))
	f.Add("POST", "/v1/shares", []byte(`{"name":"s","memoryBytes":1073741824}`))
	f.Add("POST", "/v1/shares", []byte(`{"name":"large","memoryBytes":85899345920}`))
	f.Add("PATCH", "/v1/shares/s", []byte(`{"memoryBytes":2147483648}`))
	f.Add("DELETE", "/v1/shares/a?force=1", []byte{})
	f.Add("GET", "/v1/events?since=3", []byte{})
	f.Add("GET", "/v1/shares/../devices", []byte{})
	f.Fuzz(func(t *testing.T, method, path string, body []byte) {
		if strings.Contains(path, "hold") || strings.Contains(path, "follow") {
			return // these answer for as long as the asker stays
		}
		request, err := http.NewRequest(method, "http://agent"+path, bytes.NewReader(body))
		if err != nil {
			return // no HTTP client could send it
		}
		if strings.Contains(request.URL.Path, witnessName) {
			return // who asks here may change it
		}
		peer := context.WithValue(context.Background(), askerKey{}, asker{Peer: socket.Peer{UID: unix.Getuid()}, payer: unix.Getuid()})
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request.WithContext(peer))
		switch answer.Code {
		case http.StatusOK, http.StatusCreated, http.StatusNoContent, http.StatusMovedPermanently, http.StatusTemporaryRedirect:
		case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable, http.StatusInsufficientStorage:
			var e api.Error
			if err := json.Unmarshal(answer.Body.Bytes(), &e); err != nil || e.Code == "" || e.Message == "" {
				t.Errorf("%s %q: error without code or message: %q", method, path, answer.Body)
			}
		default:
			t.Errorf("%s %q: status %d", method, path, answer.Code)
		}
		checkLedger(t, r)
		w.exact(t)
	})
}

// Whatever a process writes into its page, others get all that is theirs, and
// its share stays within its limit.
func FuzzClientPage(f *testing.F) {
	f.Add(uint16(0), make([]byte, wire.ClientSize))
	f.Add(uint16(0), bytes.Repeat([]byte{0xff}, wire.ClientSize))
	f.Add(uint16(64), bytes.Repeat([]byte{0xff, 0x7f}, 64))
	f.Fuzz(func(t *testing.T, offset uint16, words []byte) {
		r := newRig(t)
		r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
		w := r.witness()
		bad, err := attachFront(&front{path: r.cfg.ShareSocket("s"), keepFile: true})
		must(t, err)
		defer bad.conn.Close()
		at := int(offset) % wire.ClientSize
		_, err = unix.Pwrite(bad.page.Load().File(), words[:min(len(words), wire.ClientSize-at)], int64(at))
		must(t, err)
		w.exact(t)
		if err := r.front("s").alloc(mib); err != nil && err != errDenied {
			t.Errorf("another process of the share: %v", err)
		}
		if _, err := r.client.Clients(context.Background()); err != nil {
			t.Error(err)
		}
		checkLedger(t, r)
		w.exact(t)
	})
}
