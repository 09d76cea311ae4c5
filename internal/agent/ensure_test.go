// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/share"
)

func TestEnsureShare(t *testing.T) {
	r := newRig(t)
	spec := api.ShareSpec{Name: "a", MemoryBytes: gib, CoresPercent: 30, Labels: share.Labels{"claim": "c-1"}}
	for i, want := range []bool{true, false, false} {
		s, made, err := r.client.EnsureShare(t.Context(), spec)
		if err != nil || made != want || s.Socket != r.cfg.ShareSocket("a") || s.Labels["claim"] != "c-1" {
			t.Errorf("request %d: %+v, made %v, %v", i, s, made, err)
		}
	}
	other := spec
	other.MemoryBytes, other.Tenant = 2*gib, "t"
	_, _, err := r.client.EnsureShare(t.Context(), other)
	if f := wantCode(t, err, api.CodeExists); !slices.Equal(f.Differs, []string{"memoryBytes", "tenant"}) {
		t.Errorf("differs in %q", f.Differs)
	}
	_, err = r.client.CreateShare(t.Context(), spec)
	wantCode(t, err, api.CodeExists)
	_, _, err = r.client.EnsureShare(t.Context(), api.ShareSpec{Name: "b", CoresPercent: 90})
	if f := wantCode(t, err, api.CodeNoRoom); f.Missing == nil || *f.Missing != (api.Missing{CoresPercent: 20}) {
		t.Errorf("missing %+v", f.Missing)
	}
	_, _, err = r.client.EnsureShare(t.Context(), api.ShareSpec{Name: "B!"})
	wantCode(t, err, api.CodeUsage)
	must(t, r.client.DeleteShare(t.Context(), "a", false))
	if _, made, err := r.client.EnsureShare(t.Context(), other); !made || err != nil {
		t.Errorf("after the other was deleted: made %v, %v", made, err)
	}
}

// What a client made it finds by its labels, in all lists and after a restart.
func TestLabels(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "mine", MemoryBytes: gib, Labels: share.Labels{"pod": "p", "claim": ""}})
	r.share(api.ShareSpec{Name: "other", MemoryBytes: gib})
	mine := r.front("mine")
	defer mine.close()
	defer r.front("other").close()
	only := r.client.Labelled(share.Labels{"pod": "p"})
	shares, err := only.Shares(t.Context())
	if err != nil || len(shares.Shares) != 1 || shares.Shares[0].Name != "mine" || len(shares.Shares[0].Labels) != 2 {
		t.Errorf("shares %+v, %v", shares.Shares, err)
	}
	clients, err := only.Clients(t.Context())
	if err != nil || len(clients.Clients) != 1 || clients.Clients[0].Labels["pod"] != "p" {
		t.Errorf("clients %+v, %v", clients.Clients, err)
	}
	events, err := only.Events(t.Context(), 0)
	must(t, err)
	for _, e := range events.Events {
		if e.Share != "" && e.Share != "mine" || e.Kind == event.ShareCreated && e.Labels["pod"] != "p" {
			t.Errorf("event %+v", e)
		}
	}
	version, err := r.client.Version(t.Context())
	if err != nil || version.Life == "" || events.Life != version.Life {
		t.Errorf("life %q of events, %q of the agent, %v", events.Life, version.Life, err)
	}
	_, err = r.client.Labelled(share.Labels{"a b": ""}).Shares(t.Context())
	wantCode(t, err, api.CodeUsage)
}
