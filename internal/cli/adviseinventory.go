// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/advise"
	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
)

// adviseCards are the cards that advice is on: those of a file, simulated ones, or
// this machine's. No agent is started; one that runs is asked what it promised.
func (a *app) adviseCards(ctx context.Context, f *adviseFlags, file *reference.File) (advise.Inventory, error) {
	switch {
	case f.devices != "" && f.simulate != "":
		return advise.Inventory{}, usage(errors.New("--devices and --simulate exclude each other"))
	case f.devices != "":
		raw, err := a.readBounded(f.devices)
		if err != nil {
			return advise.Inventory{}, err
		}
		list, err := parseDevices(raw)
		if err != nil {
			return advise.Inventory{}, withHint(usage(fmt.Errorf("%s: %w", f.devices, err)), "divvy devices --json >FILE")
		}
		return a.adviseInventory(list, file)
	case f.simulate != "":
		list, err := simulatedDevices(f.simulate)
		if err != nil {
			return advise.Inventory{}, usage(fmt.Errorf("--simulate: %w", err))
		}
		return a.adviseInventory(list, file)
	}
	machine, err := a.machine("")
	if err != nil {
		return advise.Inventory{}, err
	}
	var known api.Devices
	ask, cancel := context.WithTimeout(ctx, completionDeadline)
	defer cancel()
	if at, err := a.find(ask); err == nil {
		if known, err = at.client.Devices(ask); err != nil {
			known = api.Devices{} // its promises are not known; the cards are
		}
	}
	inv, err := a.adviseInventory(merge(known, machine), file)
	inv.WSL = a.underWSL()
	return inv, err
}

// parseDevices reads what `divvy devices --json` printed.
func parseDevices(raw []byte) (deviceList, error) {
	var list deviceList
	if err := json.Unmarshal(raw, &list); err != nil {
		return list, fmt.Errorf("not what divvy devices --json prints: %w", err)
	}
	if list.Schema != api.SchemaDevices {
		return list, fmt.Errorf("schema %.60q is not %s", list.Schema, api.SchemaDevices)
	}
	const most = 1024
	if len(list.Cards) > most || len(list.Links) > most*most {
		return list, fmt.Errorf("more than %d GPUs", most)
	}
	for i, c := range list.Cards {
		if memory := c.MemoryBytes; memory > 1<<50 || c.FreeToBookBytes > memory {
			return list, fmt.Errorf("GPU %d: %d bytes, %d free, make no sense", i, memory, c.FreeToBookBytes)
		}
		if c.id() == "" && c.Hardware == nil {
			return list, fmt.Errorf("GPU %d has no identity", i)
		}
		words := []string{c.UUID, c.PCIAddress}
		if h := c.Hardware; h != nil {
			if len(h.Capabilities) > 100 || len(h.Partitions) > 1024 || h.MemoryBytes.Value > 1<<50 {
				return list, fmt.Errorf("GPU %d: its hardware makes no sense", i)
			}
			words = append(words, h.Address)
			for _, can := range h.Capabilities {
				words = append(append(words, can.Options...), can.Current)
			}
			for _, p := range h.Partitions {
				words = append(words, p.Name)
			}
		}
		for _, word := range words {
			if !harmless(word) {
				return list, fmt.Errorf("GPU %d: %.40q cannot be part of a command", i, word)
			}
		}
	}
	return list, nil
}

// harmless says that a word from a file stays one word in a command or in a goal.
func harmless(word string) bool {
	return len(word) <= 200 && !strings.ContainsFunc(word, func(r rune) bool {
		return r < ' ' || r > '~' || strings.ContainsRune("'\"`$\\;&|<>{}#*?[]!,", r)
	})
}

// simulatedDevices are the cards that --simulate would make.
func simulatedDevices(spec string) (deviceList, error) {
	cards, err := silicon.ParseSpec(spec, 0)
	list := deviceList{Schema: api.SchemaDevices, Simulated: true}
	for _, c := range cards {
		list.Cards = append(list.Cards, deviceCard{Managed: true, Card: api.Card{UUID: c.UUIDString(), Name: c.Name + " (simulated)", Simulated: true,
			MemoryBytes: c.UsableBytes(), FreeToBookBytes: c.UsableBytes()}})
	}
	return list, err
}

// adviseInventory is what advice needs of a list of devices.
func (a *app) adviseInventory(list deviceList, file *reference.File) (advise.Inventory, error) {
	products, err := mig.Default()
	if err != nil {
		return advise.Inventory{}, err
	}
	inv := advise.Inventory{Built: a.built(), Products: products}
	for _, c := range list.Cards {
		inv.Cards = append(inv.Cards, adviseCard(c, list.Links, file, products))
	}
	if list.Simulated && len(list.Cards) > 0 {
		if inv.Simulated, err = simulatedSpec(list); err != nil {
			return inv, err
		}
		inv.Standin = "lib/divvy/standin"
		if dir, err := a.libraries(); err == nil {
			if standin, err := dir.Standin(defaultDriver); err == nil {
				inv.Standin = standin
			}
		}
	}
	return inv, nil
}

// simulatedSpec is the list by which equal simulated cards are made.
func simulatedSpec(list deviceList) (string, error) {
	var words []string
	last, count := "", 0
	end := func() {
		switch {
		case count == 1:
			words = append(words, last)
		case count > 1:
			words = append(words, fmt.Sprintf("%dx%s", count, last))
		}
	}
	for _, c := range list.Cards {
		name := strings.TrimSuffix(c.Name, " (simulated)")
		at := slices.IndexFunc(silicon.Models(), func(m silicon.Model) bool { return m.Name == name })
		if at < 0 {
			return "", usage(fmt.Errorf("no simulated GPU is called %q", c.Name))
		}
		key := silicon.Models()[at].Key
		if key != last {
			end()
			last, count = key, 0
		}
		count++
	}
	end()
	return strings.Join(words, ","), nil
}

func adviseCard(c deviceCard, links []gpu.Link, file *reference.File, products *mig.Table) advise.Card {
	x := advise.Card{ID: c.id(), Match: c.id(), Name: c.Name, Vendor: gpu.VendorNVIDIA, MemoryBytes: c.MemoryBytes, FreeBytes: c.FreeToBookBytes, Can: map[string]advise.Can{}, Linked: 1}
	if d := c.Hardware; d != nil {
		x.Vendor = d.Vendor
		if x.ID == "" {
			x.ID, x.Match = d.Address, d.Address
		}
		if x.Name == "" {
			x.Name = d.Name
		}
		if x.MemoryBytes == 0 {
			x.MemoryBytes = d.MemoryBytes.Value
		}
		for _, can := range d.Capabilities {
			x.Can[can.Name] = advise.Can{Can: can.Can, Reason: can.Reason, Current: can.Current, Options: can.Options}
		}
		x.Linked = linkedWith(d.Address, links)
		x.Parts = partsOf(d)
		for _, h := range d.Use.Holders {
			x.Holder = fmt.Sprintf("%s (pid %d)", h.Command, h.PID)
		}
	} else {
		simulatedCan(&x, products)
	}
	if kinds := file.CardsNamed(x.Name); len(kinds) > 0 {
		x.Kind = kinds[0].Name
		if x.MemoryBytes == 0 { // the driver does not tell
			x.MemoryBytes, x.Labelled = uint64(kinds[0].MemoryGiB*(1<<30)), true
		}
	}
	x.Shares = c.Shares
	if !c.Managed {
		x.FreeBytes, x.Shares = x.MemoryBytes, 0
	}
	if x.Labelled { // more than the driver will count
		x.FreeBytes -= x.FreeBytes / 10
	}
	if c.Card.Health == "lost" || c.Card.Health == "needs-reset" {
		for name := range x.Can {
			x.Can[name] = advise.Can{Can: gpu.No, Reason: "the GPU is " + c.Card.Health}
		}
	}
	product, ok := products.ByName(x.Name)
	if !ok && c.Hardware != nil {
		var id uint16
		if _, err := fmt.Sscanf(c.Hardware.DeviceID, "0x%x", &id); err == nil {
			product, ok = products.ByDevice(id)
		}
	}
	if ok {
		x.MIG = advise.ProfilesOf(product)
	}
	return x
}

// partsOf are the parts that a card is divided into, by technique and kind.
func partsOf(d *gpu.Device) map[string]map[string]int {
	parts := map[string]map[string]int{}
	add := func(technique, kind string) {
		if parts[technique] == nil {
			parts[technique] = map[string]int{}
		}
		parts[technique][kind]++
	}
	for _, p := range d.Partitions {
		switch p.Kind {
		case gpu.PartitionMIG:
			add(advise.MIG, p.Name)
		case gpu.PartitionMdev:
			add(advise.VGPU, p.Name)
		case gpu.PartitionVF:
			add(advise.SRIOV, "")
			if _, vgpu, ok := strings.Cut(p.Name, " "); ok {
				add(advise.VGPU, vgpu)
			}
		}
	}
	return parts
}

// simulatedCan is what a card without hardware can: shares, and MIG where its
// model has it. The rest takes hardware.
func simulatedCan(x *advise.Card, products *mig.Table) {
	no := advise.Can{Can: gpu.No, Reason: "it is simulated"}
	x.Can = map[string]advise.Can{gpu.CanShare: {Can: gpu.Yes}, gpu.CanReplicas: no, gpu.CanMPS: no, gpu.CanVGPU: no, gpu.CanSRIOV: no, gpu.CanPassthrough: no,
		gpu.CanComputePartitions: no, gpu.CanMIG: {Can: gpu.No, Reason: "its model has no MIG"}}
	if _, ok := products.ByName(x.Name); ok {
		x.Can[gpu.CanMIG] = advise.Can{Can: gpu.Yes}
	}
}

// linkedWith counts the cards that fabric joins with one, itself too.
func linkedWith(address string, links []gpu.Link) int {
	reached := map[string]bool{address: true}
	for grown := true; grown; {
		grown = false
		for _, l := range links {
			if reached[l.A] != reached[l.B] {
				reached[l.A], reached[l.B], grown = true, true, true
			}
		}
	}
	return len(reached)
}

// built says which parts this version has, by its own commands.
func (a *app) built() advise.Built {
	root := a.root(nil, a.commands())
	has := func(flag string, words ...string) bool {
		cmd, rest, err := root.Find(words)
		if err != nil || len(rest) > 0 || cmd == root {
			return false
		}
		return flag == "" || cmd.Flags().Lookup(flag) != nil
	}
	return advise.Built{Movable: has("mem-max", "share", "create"), Remote: has("remote", "run") && has("", "serve")}
}

// underWSL says that this Linux runs under Windows.
func (a *app) underWSL() bool {
	tree, err := a.openTree("")
	if err != nil {
		return false
	}
	release := tree.Text("proc/sys/kernel/osrelease").Value
	return tree.Close() == nil && strings.Contains(strings.ToLower(release), "microsoft")
}
