// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/share"
)

// fakeAgent has a ledger of one GPU: what fits is made, names are taken once.
type fakeAgent struct {
	memory uint64
	shares []api.Share
	failAt int // the n-th call fails, and every second time it was carried out all the same
	calls  int
}

func (a *fakeAgent) broken() (failed, carriedOut bool) {
	a.calls++
	return a.calls == a.failAt, a.calls%2 == 0
}

func (a *fakeAgent) index(name string) int {
	return slices.IndexFunc(a.shares, func(s api.Share) bool { return s.Name == name })
}

func (a *fakeAgent) Devices(context.Context) (api.Devices, error) {
	card := api.Card{UUID: gpuUUID, Name: "A100", PCIAddress: "0000:65:00.0", MemoryBytes: a.memory, FreeToBookBytes: a.memory, ContextBytes: 64 * mib, Health: healthOK}
	for _, s := range a.shares {
		card.BookedBytes += s.MemoryBytes
		card.FreeToBookBytes -= s.MemoryBytes
		card.CoresBooked += s.CoresPercent
	}
	return api.Devices{Cards: []api.Card{card}}, nil
}

func (a *fakeAgent) Share(_ context.Context, name string) (api.Share, error) {
	if failed, _ := a.broken(); failed {
		return api.Share{}, fmt.Errorf("ask: %w", client.ErrUnreachable)
	}
	if i := a.index(name); i >= 0 {
		return a.shares[i], nil
	}
	return api.Share{}, &api.Error{Code: api.CodeNotFound, Message: "no share " + name}
}

func (a *fakeAgent) Shares(context.Context) (api.Shares, error) {
	if failed, _ := a.broken(); failed {
		return api.Shares{}, fmt.Errorf("ask: %w", client.ErrUnreachable)
	}
	return api.Shares{Shares: slices.Clone(a.shares)}, nil
}

func (a *fakeAgent) CreateShare(_ context.Context, spec api.ShareSpec) (api.Share, error) {
	failed, carriedOut := a.broken()
	if failed && !carriedOut {
		return api.Share{}, fmt.Errorf("ask: %w", client.ErrUnreachable)
	}
	if a.index(spec.Name) >= 0 {
		return api.Share{}, &api.Error{Code: api.CodeNotAllowed, Message: "share " + spec.Name + " exists"}
	}
	booked := spec.MemoryBytes
	for _, s := range a.shares {
		booked += s.MemoryBytes
	}
	if booked > a.memory {
		return api.Share{}, &api.Error{Code: api.CodeNotAllowed, Message: "no room", Hint: "divvy share list"}
	}
	s := api.Share{ShareSpec: spec, CardUUID: spec.GPU, State: "active", Enforcement: share.EnforcedFront, Created: time.Unix(1, 0)}
	a.shares = append(a.shares, s)
	if failed {
		return api.Share{}, fmt.Errorf("ask: %w", client.ErrUnreachable)
	}
	return s, nil
}

func (a *fakeAgent) DeleteShare(_ context.Context, name string, _ bool) error {
	failed, carriedOut := a.broken()
	if failed && !carriedOut {
		return fmt.Errorf("ask: %w", client.ErrUnreachable)
	}
	i := a.index(name)
	if i < 0 {
		return &api.Error{Code: api.CodeNotFound, Message: "no share " + name}
	}
	a.shares = slices.Delete(a.shares, i, i+1)
	if failed {
		return fmt.Errorf("ask: %w", client.ErrUnreachable)
	}
	return nil
}

func (a *fakeAgent) Follow(ctx context.Context, _ uint64, _ func(api.Event) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// fakeServer has one pod and some claims.
type fakeServer struct {
	pod     *corev1.Pod
	claims  map[string]*resourceapi.ResourceClaim
	written *resourceapply.ResourceClaimStatusApplyConfiguration
	refuses error
}

func (s *fakeServer) Pod(_ context.Context, _, name string) (*corev1.Pod, error) {
	if s.pod == nil || s.pod.Name != name {
		return nil, fmt.Errorf("no pod %s", name)
	}
	return s.pod, nil
}

func (s *fakeServer) Claim(_ context.Context, _, name string) (*resourceapi.ResourceClaim, error) {
	if c := s.claims[name]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("no claim %s", name)
}

func (s *fakeServer) WriteStatus(_ context.Context, _ *resourceapi.ResourceClaim, status *resourceapply.ResourceClaimStatusApplyConfiguration) error {
	s.written = status
	return s.refuses
}

func newDriver(t *testing.T, agent Agent, server Server) *Driver {
	t.Helper()
	d, err := New(Config{Node: node, Agent: agent, Server: server, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Settle: time.Second, Patience: 0,
		Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *Driver) prepareOne(ctx context.Context, claim *resourceapi.ResourceClaim) kubeletplugin.PrepareResult {
	results, err := d.PrepareResourceClaims(ctx, []*resourceapi.ResourceClaim{claim})
	if err != nil {
		return kubeletplugin.PrepareResult{Err: err}
	}
	return results[claim.UID]
}

func (d *Driver) unprepareOne(ctx context.Context) error {
	results, err := d.UnprepareResourceClaims(ctx, []kubeletplugin.NamespacedObject{{UID: claimUID}})
	return errors.Join(err, results[types.UID(claimUID)])
}

// The kubelet calls twice, and out of order: the same shares, and then none.
func TestPrepareAgain(t *testing.T) {
	agent := &fakeAgent{memory: 10 << 30}
	server := &fakeServer{}
	d := newDriver(t, agent, server)
	claim := allocated([2]string{"4Gi", "30"}, [2]string{"2Gi", "0"})
	if err := d.unprepareOne(t.Context()); err != nil {
		t.Error(err)
	}
	for range 2 {
		if r := d.prepareOne(t.Context(), claim); r.Err != nil || len(r.Devices) != 2 {
			t.Fatalf("%+v", r)
		}
		if len(agent.shares) != 2 {
			t.Fatalf("%+v", agent.shares)
		}
	}
	if n := len(server.written.Devices); n != 2 || !strings.Contains(string(server.written.Devices[0].Data.Raw), `"enforcement":"front"`) {
		t.Errorf("%d devices in the status", n)
	}
	for range 2 {
		if err := d.unprepareOne(t.Context()); err != nil || len(agent.shares) != 0 {
			t.Errorf("%v, %+v", err, agent.shares)
		}
	}
	server.refuses = errors.New("forbidden")
	if r := d.prepareOne(t.Context(), claim); r.Err != nil {
		t.Errorf("%v: the status is for people", r.Err)
	}
}

// Whichever call to the agent breaks, before or after it was carried out, the next try comes
// to the same end.
func TestPrepareBroken(t *testing.T) {
	for failAt := 1; failAt <= 12; failAt++ {
		agent := &fakeAgent{memory: 6 << 30, failAt: failAt}
		d := newDriver(t, agent, &fakeServer{})
		claim := allocated([2]string{"4Gi", "30"}, [2]string{"2Gi", "0"})
		tries := 1
		for d.prepareOne(t.Context(), claim).Err != nil {
			tries++
		}
		if tries > 2 || len(agent.shares) != 2 {
			t.Errorf("call %d broken: %d tries, shares %+v", failAt, tries, agent.shares)
		}
		tries = 1
		for d.unprepareOne(t.Context()) != nil {
			tries++
		}
		if tries > 2 || len(agent.shares) != 0 {
			t.Errorf("call %d broken: %d tries, shares %+v", failAt, tries, agent.shares)
		}
	}
}

// A share that is there in another shape is made anew; one whose programs are not gone is
// waited for.
func TestPrepareFindsAnother(t *testing.T) {
	agent := &fakeAgent{memory: 10 << 30}
	d := newDriver(t, agent, &fakeServer{})
	if r := d.prepareOne(t.Context(), allocated([2]string{"4Gi", "30"})); r.Err != nil {
		t.Fatal(r.Err)
	}
	if r := d.prepareOne(t.Context(), allocated([2]string{"5Gi", "30"})); r.Err != nil || agent.shares[0].MemoryBytes != 5<<30 {
		t.Errorf("%v, %+v", r.Err, agent.shares)
	}
	agent.shares[0].State, agent.shares[0].UsedBytes = stateRevoked, 3<<30
	if r := d.prepareOne(t.Context(), allocated([2]string{"5Gi", "30"})); r.Err == nil || !strings.Contains(r.Err.Error(), "3072 MiB") {
		t.Errorf("%v", r.Err)
	}
	if err := d.unprepareOne(t.Context()); err != nil || len(agent.shares) != 1 {
		t.Errorf("%v, %+v: it goes by itself", err, agent.shares)
	}
	agent.shares[0].Name = "other"
	if r := d.prepareOne(t.Context(), allocated([2]string{"9Gi", "30"})); r.Err == nil || !strings.Contains(r.Err.Error(), "divvy share list") {
		t.Errorf("%v: the event says what would help", r.Err)
	}
}

// pod has containers by the claims that they have, CLAIM or CLAIM/REQUEST.
func pod(containers ...[]string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.UID, p.Spec.NodeName = "p", "pod-uid", node
	known := map[string]bool{}
	for i, claims := range containers {
		c := corev1.Container{Name: fmt.Sprint("c", i)}
		for _, reference := range claims {
			claim, request, _ := strings.Cut(reference, "/")
			c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: claim, Request: request})
			if !known[claim] {
				known[claim] = true
				p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
			}
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// slowAgent has room only after some tries.
type slowAgent struct {
	fakeAgent
	tries int
}

func (a *slowAgent) CreateShare(ctx context.Context, spec api.ShareSpec) (api.Share, error) {
	if a.tries++; a.tries < 3 {
		return api.Share{}, &api.Error{Code: api.CodeNotAllowed, Message: "no room"}
	}
	return a.fakeAgent.CreateShare(ctx, spec)
}

// What the cluster has given away and the node has not back yet is waited for, and claims
// do not wait for each other meanwhile.
func TestPrepareWaitsForRoom(t *testing.T) {
	agent := &slowAgent{fakeAgent: fakeAgent{memory: 10 << 30}}
	d := newDriver(t, agent, &fakeServer{})
	if r := d.prepareOne(t.Context(), allocated([2]string{"4Gi", "30"})); r.Err == nil {
		t.Error("there was no room and no patience")
	}
	d.config.Patience = time.Hour
	unlock := d.claims.lock("another")
	defer unlock()
	if r := d.prepareOne(t.Context(), allocated([2]string{"4Gi", "30"})); r.Err != nil || agent.tries != 3 {
		t.Errorf("%v after %d tries", r.Err, agent.tries)
	}
}

func TestTwoSharesOfOneContainer(t *testing.T) {
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		results int
		want    string
	}{
		"one":                  {pod([]string{"c"}), 1, ""},
		"two containers":       {pod([]string{"c"}, []string{"c"}), 1, ""},
		"a request for each":   {pod([]string{"c/r0"}, []string{"c/r1"}), 2, ""},
		"both for one":         {pod([]string{"c"}), 2, "container c0 of pod p would have 2 shares"},
		"both requests of one": {pod([]string{"c/r0", "c/r1"}), 2, "2 shares"},
		"two claims":           {pod([]string{"c", "d"}), 1, "2 shares"},
		"another's pod":        {func() *corev1.Pod { p := pod([]string{"c"}); p.UID = "other"; return p }(), 2, ""},
		"none there":           {nil, 1, "no pod p"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := allocated([][2]string{{"1Gi", "0"}, {"1Gi", "0"}}[:c.results]...)
			claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "pod-uid"}}
			other := allocated([2]string{"1Gi", "0"})
			other.Name = "d"
			agent := &fakeAgent{memory: 8 << 30}
			d := newDriver(t, agent, &fakeServer{pod: c.pod, claims: map[string]*resourceapi.ResourceClaim{"d": other}})
			r := d.prepareOne(t.Context(), claim)
			switch {
			case c.want == "" && r.Err != nil:
				t.Error(r.Err)
			case c.want != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), c.want)):
				t.Errorf("%v, want %q", r.Err, c.want)
			case c.want != "" && len(agent.shares) != 0:
				t.Errorf("booked all the same: %+v", agent.shares)
			}
		})
	}
}

// What is booked for claims does not change what is published; what others booked does.
func TestResources(t *testing.T) {
	agent := &fakeAgent{memory: 10<<30 + 12345}
	d := newDriver(t, agent, &fakeServer{})
	memory := func() (int64, int64, int) {
		cards, shares, err := d.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		device := resources(node, cards, shares).Pools[node].Slices[0].Devices[0]
		m, c := device.Capacity["memory"].Value, device.Capacity["cores"].Value
		if policy := device.Capacity["memory"].RequestPolicy; policy.Default.Cmp(m) != 0 || policy.ValidRange.Max.Cmp(m) != 0 ||
			(m.Value()-policy.ValidRange.Min.Value())%mib != 0 {
			t.Errorf("%+v", policy)
		}
		return m.Value(), c.Value(), len(device.Taints)
	}
	if m, c, n := memory(); m != 10<<30 || c != 100 || n != 0 {
		t.Errorf("%d bytes, %d cores, %d taints", m, c, n)
	}
	if r := d.prepareOne(t.Context(), allocated([2]string{"4Gi", "30"})); r.Err != nil {
		t.Fatal(r.Err)
	}
	if m, c, _ := memory(); m != 10<<30 || c != 100 {
		t.Errorf("%d bytes, %d cores", m, c)
	}
	if _, err := agent.CreateShare(t.Context(), api.ShareSpec{Name: "train", GPU: gpuUUID, MemoryBytes: 2 << 30, CoresPercent: 20}); err != nil {
		t.Fatal(err)
	}
	if m, c, n := memory(); m != 8<<30 || c != 80 || n != 0 {
		t.Errorf("%d bytes, %d cores, %d taints", m, c, n)
	}
	if _, err := agent.CreateShare(t.Context(), api.ShareSpec{Name: "more", GPU: gpuUUID, MemoryBytes: 4 << 30}); err != nil {
		t.Fatal(err)
	}
	agent.shares = slices.DeleteFunc(agent.shares, func(s api.Share) bool { return strings.HasPrefix(s.Name, "k8s-") })
	if _, err := agent.CreateShare(t.Context(), api.ShareSpec{Name: "rest", GPU: gpuUUID, MemoryBytes: 4 << 30}); err != nil {
		t.Fatal(err)
	}
	if m, _, n := memory(); m != 64*mib || n != 1 {
		t.Errorf("%d bytes, %d taints: nothing fits", m, n)
	}
}

func TestTaints(t *testing.T) {
	for health, want := range map[string]int{"": 0, "ok": 0, "degraded": 0, "lost": 1, "needs-reset": 1, "unshareable": 1, "unresponsive": 1} {
		if got := taints(api.Card{Health: health}); len(got) != want || want > 0 && got[0].Value != health {
			t.Errorf("%q: %v", health, got)
		}
	}
}
