// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/mig"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
)

const (
	maxAttribute = 64 // characters
	mostDevices  = 64 // of a slice in which one has a taint or takes of a counter
	mostSets     = 8  // of counters, in a slice, which has no devices then
)

// resources is what a node publishes: one pool, a device for each GPU, one for each MIG device
// behind them, and then one for each that can be made. The allocator takes the first device that
// fits, so the fullest GPU stands first.
//
// What people and programs outside of the cluster have booked on a GPU is taken off its
// capacity; what is booked for claims is not, since the scheduler counts that itself.
func resources(pool string, cards []api.Card, shares []api.Share, migs []mig.Device, made api.Instances) resourceslice.DriverResources {
	type use struct {
		memory        uint64
		cores, shares int
	}
	ours := map[string]use{}
	whole := map[string]bool{} // one of ours has all of it
	for _, s := range shares {
		if s.Labels[names.LabelBy] != names.ByDRA || s.State == nodeagent.StateRevoked {
			continue
		}
		for _, uuid := range s.CardUUIDs() {
			u := ours[uuid]
			u.shares++
			u.memory += s.MemoryBytes
			if s.Policy == share.Fixed {
				u.cores += s.CoresPercent
			}
			ours[uuid] = u
			whole[uuid] = whole[uuid] || s.Exclusive
		}
	}
	cards = slices.Clone(cards)
	slices.SortStableFunc(cards, func(a, b api.Card) int {
		return cmp.Or(cmp.Compare(a.FreeToBookBytes, b.FreeToBookBytes), cmp.Compare(a.PCIAddress, b.PCIAddress))
	})
	devices := []resourceapi.Device{}
	for _, card := range cards {
		if _, ok := names.UUID(names.Device(card.UUID)); !ok {
			continue // a name that is no UUID cannot be found again
		}
		u := ours[card.UUID]
		memory := min(card.FreeToBookBytes+u.memory, card.MemoryBytes) / nodeagent.MiB * nodeagent.MiB
		cores := max(0, 100-max(0, card.CoresBooked-u.cores))
		if whole[card.UUID] {
			memory, cores = card.MemoryBytes/nodeagent.MiB*nodeagent.MiB, 100
		}
		devices = append(devices, device(card, memory, cores, card.Shares == u.shares))
	}
	for _, m := range migs {
		at := slices.IndexFunc(cards, func(c api.Card) bool { return c.UUID == m.CardUUID })
		if _, ok := names.MIG(names.Device(m.ID)); ok && at >= 0 {
			devices = append(devices, migDevice(m, cards[at]))
		}
	}
	sets, possible := parts(cards, made)
	devices = append(devices, possible...)
	all := []resourceslice.Slice{{Devices: devices[:min(len(devices), mostDevices)]}}
	for some := range slices.Chunk(devices[len(all[0].Devices):], mostDevices) {
		all = append(all, resourceslice.Slice{Devices: some})
	}
	for some := range slices.Chunk(sets, mostSets) {
		all = append(all, resourceslice.Slice{SharedCounters: some})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{pool: {Slices: all}}}
}

// text is an attribute, cut to what one may have.
func text(value string) resourceapi.DeviceAttribute {
	if len(value) > maxAttribute {
		value = value[:maxAttribute]
	}
	return resourceapi.DeviceAttribute{StringValue: &value}
}

// attributes are those that a GPU and its MIG devices have alike.
func attributes(card api.Card) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	all := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		names.AttributeProduct:   text(card.Name),
		names.AttributeSimulated: {BoolValue: &card.Simulated},
		names.AttributePCI:       text(card.PCIAddress),
	}
	for name, value := range map[resourceapi.QualifiedName]string{names.AttributeDriver: card.DriverVersion, names.AttributeArchitecture: card.Architecture, names.AttributePCIeRoot: card.PCIeRoot} {
		if value != "" {
			all[name] = text(value)
		}
	}
	for name, value := range map[resourceapi.QualifiedName]*int{names.AttributeNUMA: card.NUMANode, names.AttributeIsland: card.Island} {
		if value != nil {
			number := int64(*value)
			all[name] = resourceapi.DeviceAttribute{IntValue: &number}
		}
	}
	return all
}

// migDevice is a MIG device as claims see it: one claim has all of it.
func migDevice(m mig.Device, card api.Card) resourceapi.Device {
	d := resourceapi.Device{
		Name: names.Device(m.ID), Attributes: attributes(card), Taints: migTaints(m, card),
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{names.CapacityMemory: {Value: *quantity(m.MemoryBytes)}},
	}
	d.Attributes[names.AttributeType] = text(names.TypeMIG)
	d.Attributes[names.AttributeUUID] = text(m.ID)
	d.Attributes[names.AttributeGPU] = text(m.CardUUID)
	d.Attributes[names.AttributeProfile] = text(m.Profile)
	d.Attributes[names.AttributeEnforcement] = text(string(share.EnforcedMIG))
	return d
}

// migTaints keeps claims away from a MIG device that cannot be used. That its GPU takes no shares is
// as it should be.
func migTaints(m mig.Device, card api.Card) []resourceapi.DeviceTaint {
	if card.Health == nodeagent.HealthUnshareable {
		card.Health = nodeagent.HealthOK
	}
	all := taints(card)
	if !m.Ready {
		all = append(all, resourceapi.DeviceTaint{Key: names.TaintHealth, Value: "incomplete", Effect: resourceapi.DeviceTaintEffectNoSchedule})
	}
	return all[:min(len(all), 1)]
}

// device is a GPU as claims see it; whole says that nothing of it is others'.
func device(card api.Card, memory uint64, cores int, whole bool) resourceapi.Device {
	shared := true
	least := (max(card.ContextBytes, nodeagent.MiB) + nodeagent.MiB - 1) / nodeagent.MiB * nodeagent.MiB
	d := resourceapi.Device{
		Name:                     names.Device(card.UUID),
		AllowMultipleAllocations: &shared,
		Attributes:               attributes(card),
		Capacity:                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{},
		Taints:                   taints(card),
	}
	d.Attributes[names.AttributeType] = text(names.TypeShare)
	d.Attributes[names.AttributeUUID] = text(card.UUID)
	d.Attributes[names.AttributeWhole] = resourceapi.DeviceAttribute{BoolValue: &whole}
	if card.Enforcement != "" {
		d.Attributes[names.AttributeEnforcement] = text(string(card.Enforcement))
	}
	if memory < least { // others have booked it outside of the cluster; the range below must hold something
		memory = least
		d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: names.TaintRoom, Value: "none", Effect: resourceapi.DeviceTaintEffectNoSchedule})
	}
	d.Capacity[names.CapacityMemory] = resourceapi.DeviceCapacity{
		Value: *quantity(memory),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default:    quantity(memory), // without a request the whole GPU is meant
			ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: quantity(least), Max: quantity(memory), Step: quantity(nodeagent.MiB)},
		},
	}
	d.Capacity[names.CapacityCores] = resourceapi.DeviceCapacity{
		Value: *resource.NewQuantity(int64(cores), resource.DecimalSI),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default: resource.NewQuantity(0, resource.DecimalSI),
			ValidRange: &resourceapi.CapacityRequestPolicyRange{
				Min: resource.NewQuantity(0, resource.DecimalSI), Max: resource.NewQuantity(int64(cores), resource.DecimalSI),
				Step: resource.NewQuantity(1, resource.DecimalSI),
			},
		},
	}
	return d
}

func quantity(bytes uint64) *resource.Quantity {
	return resource.NewQuantity(int64(min(bytes, 1<<62)), resource.BinarySI)
}

// taints keeps claims away from a GPU that takes no new share; those that are there stay.
func taints(card api.Card) []resourceapi.DeviceTaint {
	if nodeagent.TakesShares(card.Health) {
		if card.Cordon == nil {
			return nil
		}
		return []resourceapi.DeviceTaint{{Key: names.TaintHealth, Value: "cordoned", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	}
	return []resourceapi.DeviceTaint{{Key: names.TaintHealth, Value: card.Health, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
}
