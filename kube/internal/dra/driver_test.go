// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/kube/internal/fakeagent"
	"github.com/divvy-gpu/divvy/kube/internal/mig"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
)

const gpu2UUID = "GPU-5404041a-04cf-1ccf-9e70-f139a9b1e23d"

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

// fakeMIG has MIG devices.
type fakeMIG struct{ devices []mig.Device }

func (m *fakeMIG) List(context.Context) ([]mig.Device, error) { return m.devices, nil }

func newDriver(t *testing.T, agent *fakeagent.Agent, server Server) *Driver {
	t.Helper()
	d, err := New(Config{Node: node, Agent: agent, Instances: agent, MIG: &fakeMIG{}, Server: server, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Settle: time.Second, Patience: 0,
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
	agent := fakeagent.New(10<<30, gpuUUID)
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
		if len(agent.Held()) != 2 {
			t.Fatalf("%+v", agent.Held())
		}
	}
	if n := len(server.written.Devices); n != 2 || !strings.Contains(string(server.written.Devices[0].Data.Raw), `"enforcement":"front"`) {
		t.Errorf("%d devices in the status", n)
	}
	for range 2 {
		if err := d.unprepareOne(t.Context()); err != nil || len(agent.Held()) != 0 {
			t.Errorf("%v, %+v", err, agent.Held())
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
		agent := fakeagent.New(6<<30, gpuUUID)
		agent.FailAt = failAt
		d := newDriver(t, agent, &fakeServer{})
		claim := allocated([2]string{"4Gi", "30"}, [2]string{"2Gi", "0"})
		tries := 1
		for d.prepareOne(t.Context(), claim).Err != nil {
			tries++
		}
		if tries > 2 || len(agent.Held()) != 2 {
			t.Errorf("call %d broken: %d tries, shares %+v", failAt, tries, agent.Held())
		}
		tries = 1
		for d.unprepareOne(t.Context()) != nil {
			tries++
		}
		if tries > 2 || len(agent.Held()) != 0 {
			t.Errorf("call %d broken: %d tries, shares %+v", failAt, tries, agent.Held())
		}
	}
}

// A share that is there in another shape is made anew; one whose programs are not gone is
// waited for.
func TestPrepareFindsAnother(t *testing.T) {
	agent := fakeagent.New(10<<30, gpuUUID)
	d := newDriver(t, agent, &fakeServer{})
	if r := d.prepareOne(t.Context(), allocated([2]string{"4Gi", "30"})); r.Err != nil {
		t.Fatal(r.Err)
	}
	if r := d.prepareOne(t.Context(), allocated([2]string{"5Gi", "30"})); r.Err != nil || agent.Held()[0].MemoryBytes != 5<<30 {
		t.Errorf("%v, %+v", r.Err, agent.Held())
	}
	name := agent.Held()[0].Name
	end, err := agent.Run(name)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r := d.prepareOne(t.Context(), allocated([2]string{"3Gi", "30"})); r.Err == nil || !errors.Is(r.Err, nodeagent.ErrHeld) {
			t.Errorf("%v", r.Err)
		}
	}
	if err := d.unprepareOne(t.Context()); err != nil || len(agent.Held()) != 1 {
		t.Errorf("%v, %+v: it goes by itself", err, agent.Held())
	}
	end()
	if r := d.prepareOne(t.Context(), allocated([2]string{"3Gi", "30"})); r.Err != nil {
		t.Error(r.Err)
	}
	if err := d.unprepareOne(t.Context()); err != nil {
		t.Error(err)
	}
	if _, _, err := agent.EnsureShare(t.Context(), api.ShareSpec{Name: "other", MemoryBytes: 4 << 30}); err != nil {
		t.Fatal(err)
	}
	if r := d.prepareOne(t.Context(), allocated([2]string{"9Gi", "30"})); r.Err == nil || nodeagent.Code(r.Err) != api.CodeNoRoom || !strings.Contains(r.Err.Error(), "(") {
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

// What the cluster has given away and the node has not back yet is waited for, and claims
// do not wait for each other meanwhile.
func TestPrepareWaitsForRoom(t *testing.T) {
	agent := fakeagent.New(10<<30, gpuUUID)
	agent.Full = 3
	d := newDriver(t, agent, &fakeServer{})
	if r := d.prepareOne(t.Context(), allocated([2]string{"4Gi", "30"})); r.Err == nil {
		t.Error("there was no room and no patience")
	}
	d.config.Patience = time.Hour
	unlock := d.claims.Lock("another")
	defer unlock()
	if r := d.prepareOne(t.Context(), allocated([2]string{"4Gi", "30"})); r.Err != nil || agent.Full != 0 {
		t.Errorf("%v, %d times more", r.Err, agent.Full)
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
			agent := fakeagent.New(8<<30, gpuUUID)
			d := newDriver(t, agent, &fakeServer{pod: c.pod, claims: map[string]*resourceapi.ResourceClaim{"d": other}})
			r := d.prepareOne(t.Context(), claim)
			switch {
			case c.want == "" && r.Err != nil:
				t.Error(r.Err)
			case c.want != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), c.want)):
				t.Errorf("%v, want %q", r.Err, c.want)
			case c.want != "" && len(agent.Held()) != 0:
				t.Errorf("booked all the same: %+v", agent.Held())
			}
		})
	}
}

// What is booked for claims does not change what is published; what others booked does.
func TestResources(t *testing.T) {
	agent := fakeagent.New(10<<30+12345, gpuUUID)
	d := newDriver(t, agent, &fakeServer{})
	memory := func() (int64, int64, int) {
		cards, shares, err := d.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		device := resources(node, cards, shares, nil, api.Instances{}).Pools[node].Slices[0].Devices[0]
		m, c := device.Capacity["memory"].Value, device.Capacity["cores"].Value
		if policy := device.Capacity["memory"].RequestPolicy; policy.Default.Cmp(m) != 0 || policy.ValidRange.Max.Cmp(m) != 0 ||
			(m.Value()-policy.ValidRange.Min.Value())%nodeagent.MiB != 0 {
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
	if _, _, err := agent.EnsureShare(t.Context(), api.ShareSpec{Name: "train", GPU: gpuUUID, MemoryBytes: 2 << 30, CoresPercent: 20}); err != nil {
		t.Fatal(err)
	}
	if m, c, n := memory(); m != 8<<30 || c != 80 || n != 0 {
		t.Errorf("%d bytes, %d cores, %d taints", m, c, n)
	}
	if _, _, err := agent.EnsureShare(t.Context(), api.ShareSpec{Name: "more", GPU: gpuUUID, MemoryBytes: 4 << 30}); err != nil {
		t.Fatal(err)
	}
	if err := d.unprepareOne(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := agent.EnsureShare(t.Context(), api.ShareSpec{Name: "rest", GPU: gpuUUID, MemoryBytes: 4 << 30}); err != nil {
		t.Fatal(err)
	}
	if m, _, n := memory(); m != 64*nodeagent.MiB || n != 1 {
		t.Errorf("%d bytes, %d taints: nothing fits", m, n)
	}
}

func TestTaints(t *testing.T) {
	for health, want := range map[string]int{"": 0, "ok": 0, "degraded": 0, "lost": 1, "needs-reset": 1, "unshareable": 1, "unresponsive": 1} {
		if got := taints(api.Card{Health: health}); len(got) != want || want > 0 && got[0].Value != health {
			t.Errorf("%q: %v", health, got)
		}
	}
	for root, want := range map[string]bool{"": false, "pci0000:c0": true} {
		if got, is := attributes(api.Card{PCIeRoot: root})[names.AttributePCIeRoot]; is != want || is && *got.StringValue != root {
			t.Errorf("root %q: %v", root, got)
		}
	}
	if got := taints(api.Card{Health: "ok", Cordon: &api.Cordon{}}); len(got) != 1 || got[0].Value != "cordoned" {
		t.Errorf("cordoned: %v", got)
	}
}

// whole is a claim for whole GPUs of one request.
func whole(uuids ...string) *resourceapi.ResourceClaim {
	var amounts [][2]string
	for range uuids {
		amounts = append(amounts, [2]string{"10Gi", "0"})
	}
	claim := allocated(amounts...)
	for i, uuid := range uuids {
		claim.Status.Allocation.Devices.Results[i].Request = "r0"
		claim.Status.Allocation.Devices.Results[i].Device = names.Device(uuid)
	}
	configure(claim, resourceapi.AllocationConfigSourceClass, `{"apiVersion":"divvy.dev/v1","kind":"ShareParameters","exclusive":true}`)
	return claim
}

// Whole GPUs are booked: no share is on them meanwhile, and they are none while one is.
func TestWholeGPUs(t *testing.T) {
	agent := fakeagent.New(10<<30, gpuUUID, gpu2UUID)
	server := &fakeServer{}
	d := newDriver(t, agent, server)
	claim := whole(gpuUUID, gpu2UUID)
	for range 2 {
		r := d.prepareOne(t.Context(), claim)
		if r.Err != nil || len(r.Devices) != 2 || len(r.Devices[0].CDIDeviceIDs) != 1 || len(r.Devices[1].CDIDeviceIDs) != 0 {
			t.Fatalf("%+v", r)
		}
		held := agent.Held()
		if len(held) != 1 || !held[0].Exclusive || len(held[0].CardUUIDs()) != 2 {
			t.Fatalf("%+v", held)
		}
	}
	if n := len(server.written.Devices); n != 2 {
		t.Errorf("%d devices in the status", n)
	}
	small := allocated([2]string{"1Gi", "0"})
	small.UID = "1c9f7a6e-3c1b-4a58-9d0e-2b8a4f6c1d35"
	if r := d.prepareOne(t.Context(), small); nodeagent.Code(r.Err) != api.CodeNoRoom {
		t.Errorf("%v: a share on a GPU that is another's", r.Err)
	}
	cards, shares, err := d.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range resources(node, cards, shares, nil, api.Instances{}).Pools[node].Slices[0].Devices {
		if m := device.Capacity["memory"].Value; m.Value() != 10<<30 || len(device.Taints) != 0 || !*device.Attributes[names.AttributeWhole].BoolValue {
			t.Errorf("%+v: the scheduler counts what claims have", device)
		}
	}
	if err := d.unprepareOne(t.Context()); err != nil || len(agent.Held()) != 0 {
		t.Errorf("%v, %+v", err, agent.Held())
	}
	if r := d.prepareOne(t.Context(), small); r.Err != nil {
		t.Fatal(r.Err)
	}
	if r := d.prepareOne(t.Context(), whole(gpuUUID)); nodeagent.Code(r.Err) != api.CodeNoRoom {
		t.Errorf("%v: a whole GPU that a share is on", r.Err)
	}
	if _, _, err := agent.EnsureShare(t.Context(), api.ShareSpec{Name: "train", GPU: gpu2UUID}); err != nil {
		t.Fatal(err)
	}
	if cards, shares, err = d.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, device := range resources(node, cards, shares, nil, api.Instances{}).Pools[node].Slices[0].Devices {
		if got, want := *device.Attributes[names.AttributeWhole].BoolValue, device.Name == names.Device(gpuUUID); got != want {
			t.Errorf("%s is whole: %v", device.Name, got)
		}
	}
}

// The GPUs of one request are one share, with as much of each.
func TestShareOverGPUs(t *testing.T) {
	agent := fakeagent.New(10<<30, gpuUUID, gpu2UUID)
	d := newDriver(t, agent, &fakeServer{})
	claim := allocated([2]string{"2Gi", "10"}, [2]string{"2Gi", "10"})
	claim.Status.Allocation.Devices.Results[1].Request = "r0"
	if r := d.prepareOne(t.Context(), claim); r.Err == nil || !strings.Contains(r.Err.Error(), "distinctAttribute") {
		t.Errorf("%v: one GPU twice", r.Err)
	}
	claim.Status.Allocation.Devices.Results[1].Device = names.Device(gpu2UUID)
	if r := d.prepareOne(t.Context(), claim); r.Err != nil {
		t.Fatal(r.Err)
	}
	if held := agent.Held(); len(held) != 1 || held[0].MemoryBytes != 2<<30 || len(held[0].CardUUIDs()) != 2 || shareCount(claim, "") != 1 {
		t.Errorf("%+v", held)
	}
}

const migUUID = "MIG-6404041a-04cf-1ccf-9e70-f139a9b1e23e"

// migClaim is a claim with a MIG device for each of so many requests.
func migClaim(requests ...string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{}
	claim.Name, claim.Namespace, claim.UID = "c", "team-a", claimUID
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	for _, r := range requests {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: r, Driver: names.Driver, Pool: node, Device: names.Device(migUUID),
		})
	}
	return claim
}

// A MIG device is published behind the GPUs with what its GPU has, and its GPU's health, but for
// that the GPU takes no shares.
func TestMIGPublished(t *testing.T) {
	agent := fakeagent.New(10<<30, gpuUUID, gpu2UUID)
	d := newDriver(t, agent, &fakeServer{})
	migs := []mig.Device{{ID: migUUID, Profile: "1g.5gb+me", MemoryBytes: 5 << 30, CardUUID: gpu2UUID, Ready: true}, {ID: "MIG-odd", CardUUID: gpu2UUID}}
	for _, step := range []struct {
		health string
		ready  bool
		taint  string
		well   kubeletplugin.HealthStatus
	}{
		{"ok", true, "", kubeletplugin.HealthStatusHealthy}, {"unshareable", true, "", kubeletplugin.HealthStatusHealthy},
		{"lost", true, "lost", kubeletplugin.HealthStatusUnhealthy}, {"unshareable", false, "incomplete", kubeletplugin.HealthStatusHealthy},
	} {
		agent.Become(gpu2UUID, step.health)
		migs[0].Ready = step.ready
		cards, shares, err := d.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pool := resources(node, cards, shares, migs, api.Instances{}).Pools[node]
		devices := pool.Slices[0].Devices
		if len(devices) != 3 {
			t.Fatalf("%d devices", len(devices))
		}
		m := devices[2]
		text := func(name resourceapi.QualifiedName) string { return *m.Attributes[name].StringValue }
		if memory := m.Capacity["memory"].Value; m.Name != names.Device(migUUID) || text("type") != "mig" || text("uuid") != migUUID || text("gpu") != gpu2UUID ||
			text("profile") != "1g.5gb+me" || text("enforcement") != "mig" || text("productName") != "A100" || memory.Value() != 5<<30 || m.AllowMultipleAllocations != nil {
			t.Errorf("%+v", m)
		}
		if (len(m.Taints) > 0) != (step.taint != "") || step.taint != "" && m.Taints[0].Value != step.taint {
			t.Errorf("%+v: taints %v", step, m.Taints)
		}
		d.setHealth(cards, pool)
		if h := d.health[len(d.health)-1]; h.DeviceName != names.Device(migUUID) || h.Health != step.well {
			t.Errorf("%+v: %+v", step, h)
		}
	}
}

// A slice has no more devices than the API server takes.
func TestManyMIGDevices(t *testing.T) {
	cards := []api.Card{{UUID: gpuUUID}}
	var migs []mig.Device
	for i := range 150 {
		migs = append(migs, mig.Device{ID: fmt.Sprintf("MIG-6404041a-04cf-1ccf-9e70-%012d", i), CardUUID: gpuUUID})
	}
	all := 0
	for _, slice := range resources(node, cards, nil, migs, api.Instances{}).Pools[node].Slices {
		if all += len(slice.Devices); len(slice.Devices) > mostDevices || len(slice.Devices) == 0 {
			t.Errorf("a slice of %d", len(slice.Devices))
		}
	}
	if all != 151 {
		t.Errorf("%d devices", all)
	}
}

// A claim gets the CDI device of the MIG device that it was allocated, as long as it is there, and
// one for a container.
func TestPrepareMIG(t *testing.T) {
	agent := fakeagent.New(10<<30, gpuUUID)
	server := &fakeServer{}
	d := newDriver(t, agent, server)
	has := &fakeMIG{}
	d.config.MIG = has
	if r := d.prepareOne(t.Context(), migClaim("r0")); r.Err == nil || !strings.Contains(r.Err.Error(), migUUID) {
		t.Errorf("%v: it is not there", r.Err)
	}
	has.devices = []mig.Device{{ID: migUUID, Profile: "1g.5gb", MemoryBytes: 5 << 30, CardUUID: gpuUUID}}
	if r := d.prepareOne(t.Context(), migClaim("r0")); r.Err == nil {
		t.Error("it is not ready")
	}
	has.devices[0].Ready = true
	for range 2 {
		r := d.prepareOne(t.Context(), migClaim("r0"))
		if r.Err != nil || len(r.Devices) != 1 || len(r.Devices[0].CDIDeviceIDs) != 1 || r.Devices[0].CDIDeviceIDs[0] != "divvy.dev/mig="+migUUID {
			t.Fatalf("%+v", r)
		}
		if raw := string(server.written.Devices[0].Data.Raw); !strings.Contains(raw, `"profile":"1g.5gb"`) || !strings.Contains(raw, `"enforcement":"mig"`) {
			t.Errorf("%s", raw)
		}
		if made := agent.Made(); len(made) != 1 || made[0].Device != migUUID || made[0].GPU != gpuUUID || made[0].Labels[names.LabelBy] != names.ByDRA {
			t.Errorf("the agent has booked %+v", made)
		}
	}
	if len(agent.Held()) != 0 {
		t.Errorf("%+v", agent.Held())
	}
	if err := d.unprepareOne(t.Context()); err != nil || len(agent.Made()) > 0 {
		t.Errorf("%+v (%v)", agent.Made(), err)
	}
	if r := d.prepareOne(t.Context(), migClaim("r0", "r0")); r.Err == nil || !strings.Contains(r.Err.Error(), "several MIG devices") {
		t.Errorf("%v: two of one request", r.Err)
	}
	odd := migClaim("r0")
	configure(odd, resourceapi.AllocationConfigSourceClaim, `{"apiVersion":"divvy.dev/v1","kind":"ShareParameters","policy":"equal"}`)
	if r := d.prepareOne(t.Context(), odd); r.Err == nil || !strings.Contains(r.Err.Error(), "ShareParameters") {
		t.Errorf("%v: a policy of a MIG device", r.Err)
	}
	both := migClaim("r0", "r1")
	both.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "pod-uid"}}
	server.pod = pod([]string{"c"})
	if r := d.prepareOne(t.Context(), both); r.Err == nil || !strings.Contains(r.Err.Error(), "2 shares or MIG devices") {
		t.Errorf("%v: two for one container", r.Err)
	}
}
