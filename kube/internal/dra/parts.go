// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/kube/internal/mig"
	"github.com/divvy-gpu/divvy/kube/internal/names"
)

const mostCounters = 32 // of a set, by the API server

// amounts are what MIG instances take of a GPU, by the names of counters.
type amounts map[string]int

func amountsOf(a api.MIGAmounts) amounts {
	return amounts{"slices": a.Slices, "decoders": a.Decoders, "encoders": a.Encoders, "jpeg": a.JPEG, "ofa": a.OFA}
}

// takes is what an instance of a profile takes at a start.
func takes(p api.MIGProfile, start int) amounts {
	all := amountsOf(p.Takes)
	for unit := start; unit < start+p.Size; unit++ {
		all[fmt.Sprint("unit-", unit)] = 1
	}
	if p.Most < len(p.Starts) {
		all["most-"+strings.NewReplacer(".", "-", "+", "--").Replace(p.Name)] = 1
	}
	return all
}

func (a amounts) counters() map[string]resourceapi.Counter {
	all := map[string]resourceapi.Counter{}
	for name, n := range a {
		if n > 0 {
			all[name] = resourceapi.Counter{Value: *resource.NewQuantity(int64(n), resource.DecimalSI)}
		}
	}
	return all
}

// parts are the MIG devices that can be made for claims, and what they take of their GPUs. What is
// made for a claim stays published as long as it is the claim's, since the scheduler counts it; what
// is others' is taken off. Those that start high come first: that leaves the most room.
func parts(cards []api.Card, made api.Instances) (sets []resourceapi.CounterSet, devices []resourceapi.Device) {
	ours := map[string]bool{}
	for _, i := range made.Instances {
		ours[i.Name] = i.Device == "" && i.Labels[names.LabelBy] == names.ByDRA
	}
	for _, c := range made.Cards {
		at := slices.IndexFunc(cards, func(card api.Card) bool { return card.UUID == c.CardUUID })
		left, known := left(c, ours)
		if at < 0 || !known {
			continue
		}
		of := len(devices)
		for _, p := range c.Profiles {
			for _, start := range slices.Backward(slices.Sorted(slices.Values(p.Starts))) {
				name, ok := names.Part(c.CardUUID, p.Name, start)
				if ok && left.hold(takes(p, start)) {
					devices = append(devices, partDevice(name, names.Device(c.CardUUID), p, start, cards[at]))
				}
			}
		}
		if len(devices) > of {
			sets = append(sets, resourceapi.CounterSet{Name: names.Device(c.CardUUID), Counters: left.counters()})
		}
	}
	return sets, devices
}

// left is what others leave of a GPU; false: it is not known, or more than the API server counts.
func left(c api.MIGCard, ours map[string]bool) (amounts, bool) {
	left := amountsOf(c.All)
	for unit := range c.Units {
		left[fmt.Sprint("unit-", unit)] = 1
	}
	profiles := map[string]api.MIGProfile{}
	for _, p := range c.Profiles {
		profiles[p.Name] = p
		for name := range takes(p, 0) {
			if strings.HasPrefix(name, "most-") {
				left[name] = p.Most
			}
		}
	}
	for _, has := range c.Has {
		if ours[has.Name] {
			continue
		}
		p, ok := profiles[has.Profile]
		if !ok {
			return nil, false
		}
		for name, n := range takes(p, has.Start) {
			left[name] -= n
		}
	}
	return left, len(left) <= mostCounters
}

// hold says whether something is left for what is taken.
func (a amounts) hold(taken amounts) bool {
	for name, n := range taken {
		if n > max(a[name], 0) {
			return false
		}
	}
	return true
}

// partDevice is a MIG device that can be made, as claims see it: like one that is there, without a UUID.
func partDevice(name, set string, p api.MIGProfile, start int, card api.Card) resourceapi.Device {
	d := migDevice(mig.Device{Profile: p.Name, MemoryBytes: p.MemoryBytes, CardUUID: card.UUID, Ready: true}, card)
	d.Name = name
	delete(d.Attributes, names.AttributeUUID)
	d.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: set, Counters: takes(p, start).counters()}}
	return d
}
