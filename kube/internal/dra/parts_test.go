// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/divvy-gpu/divvy/internal/api"
	facts "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/fakeagent"
	"github.com/divvy-gpu/divvy/kube/internal/names"
)

func amountsIn(slices int, e facts.Engines) api.MIGAmounts {
	return api.MIGAmounts{Slices: slices, Decoders: e.Dec, Encoders: e.Enc, JPEG: e.JPEG, OFA: e.OFA}
}

// inMIG is a GPU of a product in MIG mode, as the agent tells.
func inMIG(p *facts.Product) api.MIGCard {
	card := api.MIGCard{CardUUID: gpuUUID, Units: p.Units, All: amountsIn(p.Slices, p.Engines)}
	for _, f := range p.Profiles {
		card.Profiles = append(card.Profiles, api.MIGProfile{
			Name: f.Name, MemoryBytes: uint64(f.Memory()) << 20, Takes: amountsIn(f.Slices, f.Engines), Size: f.Size, Starts: f.Starts, Most: f.Most,
		})
	}
	return card
}

func products(t *testing.T) []*facts.Product {
	t.Helper()
	table, err := facts.Default()
	if err != nil {
		t.Fatal(err)
	}
	return table.Products()
}

// ledger is what the scheduler has of counters.
type ledger struct {
	free map[string]int64
}

func newLedger(t *testing.T, sets []resourceapi.CounterSet) ledger {
	t.Helper()
	if len(sets) != 1 || sets[0].Name != names.Device(gpuUUID) {
		t.Fatalf("%+v", sets)
	}
	l := ledger{map[string]int64{}}
	for name, c := range sets[0].Counters {
		l.free[name] = c.Value.Value()
	}
	return l
}

func (l ledger) fits(d resourceapi.Device) bool {
	for name, c := range d.ConsumesCounters[0].Counters {
		if c.Value.Value() > l.free[name] {
			return false
		}
	}
	return true
}

func (l ledger) take(d resourceapi.Device, times int64) {
	for name, c := range d.ConsumesCounters[0].Counters {
		l.free[name] -= times * c.Value.Value()
	}
}

// On every product the counters let the scheduler give away what fits beside each other, and nothing
// else.
func TestCountersAreLayouts(t *testing.T) {
	cards := []api.Card{{UUID: gpuUUID, Name: "A100"}}
	for _, p := range products(t) {
		sets, devices := parts(cards, api.Instances{Cards: []api.MIGCard{inMIG(p)}})
		if len(devices) == 0 {
			t.Errorf("%s: nothing can be made", p.Key)
			continue
		}
		if n := len(sets[0].Counters); n > mostCounters {
			t.Errorf("%s: %d counters", p.Key, n)
		}
		given, refused := 0, 0
		r := rand.New(rand.NewSource(7))
		for range 30 {
			l, layout := newLedger(t, sets), facts.Layout{Product: p}
			for _, n := range r.Perm(len(devices)) {
				d := devices[n]
				_, profile, start, ok := names.PartOf(d.Name)
				if !ok {
					t.Fatalf("%s is no name", d.Name)
				}
				i := p.Index(profile)
				if fits := layout.Opens(i, start); fits != l.fits(d) {
					t.Fatalf("%s: %s at %d fits: %v, by counters %v", p.Key, profile, start, fits, l.fits(d))
				} else if !fits {
					refused++
					continue
				}
				given++
				layout.Add(i, start)
				l.take(d, 1)
			}
		}
		if given == 0 || refused == 0 {
			t.Errorf("%s: %d given, %d refused", p.Key, given, refused)
		}
	}
}

// What others made is taken off, what claims have is not, and both stay in their places.
func TestPartsBesideOthers(t *testing.T) {
	p := products(t)[slices.IndexFunc(products(t), func(p *facts.Product) bool { return p.Key == "a100-40gb" })]
	card := inMIG(p)
	cards := []api.Card{{UUID: gpuUUID, Name: "A100", Health: "unshareable"}}
	made := api.Instances{Cards: []api.MIGCard{card}, Instances: []api.Instance{
		{InstanceSpec: api.InstanceSpec{Name: "pod", Labels: share.Labels{names.LabelBy: names.ByDRA}}},
		{InstanceSpec: api.InstanceSpec{Name: "person"}},
	}}
	_, all := parts(cards, made)
	made.Cards[0].Has = []api.MIGPart{{Profile: "3g.20gb", Start: 4, Name: "pod"}}
	if sets, same := parts(cards, made); len(same) != len(all) || newLedger(t, sets).free["unit-4"] != 1 {
		t.Errorf("%d of %d beside a claim's", len(same), len(all))
	}
	made.Cards[0].Has = []api.MIGPart{{Profile: "3g.20gb", Start: 4, Name: "person"}, {Profile: "1g.5gb", Start: 0}}
	sets, devices := parts(cards, made)
	var starts []string
	for _, d := range devices {
		_, profile, start, _ := names.PartOf(d.Name)
		if profile == "1g.5gb" || profile == "2g.10gb" || start >= 4 || start == 0 || strings.HasPrefix(profile, "7g") || strings.HasPrefix(profile, "4g") {
			starts = append(starts, fmt.Sprint(profile, "@", start))
		}
		if d.Attributes[names.AttributeUUID].StringValue != nil || *d.Attributes[names.AttributeType].StringValue != names.TypeMIG || *d.Attributes[names.AttributeGPU].StringValue != gpuUUID ||
			len(d.Taints) > 0 || *d.Attributes[names.AttributeProfile].StringValue != profile {
			t.Errorf("%+v", d)
		}
	}
	if got := strings.Join(starts, " "); got != "1g.5gb@3 1g.5gb@2 1g.5gb@1 2g.10gb@2" || newLedger(t, sets).free["slices"] != 3 {
		t.Errorf("%s, %v", got, newLedger(t, sets).free)
	}
	made.Cards[0].Has = []api.MIGPart{{Profile: "unknown-9", Start: 0}}
	if _, devices := parts(cards, made); len(devices) > 0 {
		t.Errorf("%d beside what is not known", len(devices))
	}
	if _, devices := parts(nil, made); len(devices) > 0 {
		t.Errorf("%d of no GPU", len(devices))
	}
	slices := resources(node, []api.Card{{UUID: gpuUUID}}, nil, nil, api.Instances{Cards: []api.MIGCard{card}}).Pools[node].Slices
	if last := slices[len(slices)-1]; len(last.Devices) > 0 || len(last.SharedCounters) != 1 || len(slices[0].SharedCounters) > 0 {
		t.Errorf("a slice has devices or counters, not both: %+v", last)
	}
}

// partClaim is a claim with a MIG device that can be made, at a start.
func partClaim(profile string, start int) *resourceapi.ResourceClaim {
	claim := migClaim("r0")
	name, _ := names.Part(gpuUUID, profile, start)
	claim.Status.Allocation.Devices.Results[0].Device = name
	return claim
}

// A MIG device is made for a claim, by its name, and gone after; the kubelet may call twice, and out of
// order, and what is in the way is waited for.
func TestPartOfClaim(t *testing.T) {
	agent := fakeagent.New(10<<30, gpuUUID)
	server := &fakeServer{}
	d := newDriver(t, agent, server)
	if err := d.unprepareOne(t.Context()); err != nil {
		t.Error(err)
	}
	for range 2 {
		r := d.prepareOne(t.Context(), partClaim("3g.20gb", 4))
		if r.Err != nil || len(r.Devices) != 1 || r.Devices[0].CDIDeviceIDs[0] != "divvy.dev/instance=k8s-"+claimUID+"-0" {
			t.Fatalf("%+v", r)
		}
		made := agent.Made()
		if len(made) != 1 || made[0].Profile != "3g.20gb" || *made[0].Start != 4 || made[0].GPU != gpuUUID || made[0].Labels[names.LabelClaim] != claimUID {
			t.Fatalf("%+v", made)
		}
	}
	if raw := string(server.written.Devices[0].Data.Raw); !strings.Contains(raw, `"device":"MIG-k8s-`+claimUID+`-0","profile":"3g.20gb"`) {
		t.Error(raw)
	}
	// Of an allocation before this one, which nobody took back.
	if r := d.prepareOne(t.Context(), partClaim("2g.10gb", 0)); r.Err != nil || agent.Made()[0].Profile != "2g.10gb" {
		t.Errorf("%v, %+v", r.Err, agent.Made())
	}
	other := api.InstanceSpec{Name: "other", GPU: gpuUUID, Profile: "1g.5gb", Start: new(int)}
	*other.Start = 6
	if _, _, err := agent.EnsureInstance(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if r := d.prepareOne(t.Context(), partClaim("1g.5gb", 6)); r.Err == nil || !strings.Contains(r.Err.Error(), "no room") {
		t.Errorf("in another's place: %v", r.Err)
	}
	agent.Busy = 2
	d.config.Patience = time.Hour
	for range 2 {
		if err := d.unprepareOne(t.Context()); err != nil || len(agent.Made()) != 1 || agent.Made()[0].Name != "other" {
			t.Errorf("%v, %+v", err, agent.Made())
		}
	}
	twice := partClaim("1g.5gb", 1)
	twice.Status.Allocation.Devices.Results = append(twice.Status.Allocation.Devices.Results, twice.Status.Allocation.Devices.Results[0])
	if r := d.prepareOne(t.Context(), twice); r.Err == nil || !strings.Contains(r.Err.Error(), "several MIG devices") {
		t.Errorf("two for one container: %v", r.Err)
	}
}

// Whichever call to the agent breaks, before or after it was carried out, the next try comes to the same
// end.
func TestPartBroken(t *testing.T) {
	for failAt := 1; failAt <= 6; failAt++ {
		agent := fakeagent.New(6<<30, gpuUUID)
		agent.FailAt = failAt
		d := newDriver(t, agent, &fakeServer{})
		for _, step := range []struct {
			do   func() error
			left int
		}{
			{func() error { return d.prepareOne(t.Context(), partClaim("3g.20gb", 0)).Err }, 1},
			{func() error { return d.unprepareOne(t.Context()) }, 0},
		} {
			tries := 1
			for step.do() != nil {
				tries++
			}
			if tries > 2 || len(agent.Made()) != step.left {
				t.Errorf("call %d broken: %d tries, %+v", failAt, tries, agent.Made())
			}
		}
	}
}

// fixedInstances answers what it is told to.
type fixedInstances struct {
	*fakeagent.Agent
	all api.Instances
	err error
}

func (f *fixedInstances) Instances(context.Context) (api.Instances, error) { return f.all, f.err }

// What can be made is published anew when it changes; an agent of before makes none, and while a driver
// does not answer what was published stays.
func TestPartsChange(t *testing.T) {
	agent := fakeagent.New(10<<30, gpuUUID)
	fixed := &fixedInstances{all: api.Instances{Cards: []api.MIGCard{inMIG(products(t)[0])}}}
	d := newDriver(t, agent, &fakeServer{})
	d.config.Instances = fixed
	published := &publisher{}
	publish := func(want bool) {
		t.Helper()
		if err := d.publish(t.Context(), published); err != nil {
			t.Fatal(err)
		}
		can := false
		for _, slice := range published.last.Pools[node].Slices {
			can = can || len(slice.SharedCounters) > 0
		}
		if can != want || d.changedMIG(t.Context()) {
			t.Errorf("can be made: %v, changed %v", can, d.changedMIG(t.Context()))
		}
	}
	publish(false) // no GPU is in MIG mode
	agent.Become(gpuUUID, "unshareable")
	publish(true)
	if d.health[len(d.health)-1].Health != kubeletplugin.HealthStatusHealthy || len(d.health) < 10 {
		t.Errorf("%+v", d.health)
	}
	cards := fixed.all.Cards
	fixed.all.Cards = nil
	publish(true)
	fixed.all.Cards = slices.Clone(cards)
	fixed.all.Cards[0].Has = []api.MIGPart{{Profile: cards[0].Profiles[0].Name}}
	if !d.changedMIG(t.Context()) {
		t.Error("another's instance is no change")
	}
	publish(true)
	fixed.err = &api.Error{Code: api.CodeNotFound}
	publish(false)
	fixed.err = errors.New("away")
	if err := d.publish(t.Context(), published); err == nil || d.changedMIG(t.Context()) {
		t.Errorf("%v", err)
	}
}

type publisher struct{ last resourceslice.DriverResources }

func (p *publisher) PublishResources(_ context.Context, resources resourceslice.DriverResources) error {
	p.last = resources
	return nil
}
