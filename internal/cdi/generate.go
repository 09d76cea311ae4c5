// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

// Shares writes the files of an agent's declared shares of its cards, and removes those of
// shares that are gone. A share whose name no runtime accepts is skipped.
func (o *Offers) Shares(shares []api.Share, cards []api.Card, skipped func(error)) error {
	shares = slices.DeleteFunc(slices.Clone(shares), func(s api.Share) bool { return s.Ephemeral })
	var names []string
	for _, s := range shares {
		names = append(names, s.Name)
	}
	if err := o.Keep(names); err != nil {
		return err
	}
	for _, s := range shares {
		var on []gpu.Card
		for _, uuid := range s.CardUUIDs() {
			if i := slices.IndexFunc(cards, func(c api.Card) bool { return c.UUID == uuid }); i >= 0 {
				on = append(on, described(cards[i]))
			}
		}
		if len(on) == 0 {
			continue
		}
		err := o.Offer(s, on)
		if errors.Is(err, ErrName) {
			skipped(err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func described(c api.Card) gpu.Card {
	return gpu.Card{UUID: c.UUID, Name: c.Name, PCIAddress: c.PCIAddress, Simulated: c.Simulated}
}

// Cards writes the files of whole cards: those that an agent knows, then all others that have
// device files.
func (o *Offers) Cards(known []api.Card) error {
	var all []gpu.Card
	taken := map[string]bool{} // by address
	for _, c := range known {
		card := described(c)
		d := o.find(card)
		if card.Simulated || d != nil && len(d.Nodes) > 0 {
			all = append(all, card)
		}
		if !card.Simulated && d != nil {
			taken[d.Address] = true
		}
	}
	for _, d := range o.Devices {
		if !taken[d.Address] && len(d.Nodes) > 0 {
			all = append(all, gpu.Card{UUID: d.UUID.Value, PCIAddress: d.Address})
		}
	}
	for _, card := range all {
		name := card.PCIAddress
		if strings.HasPrefix(card.UUID, "GPU-") {
			name = card.UUID
		}
		if err := o.Whole(ClassCard, name, card); err != nil {
			return err
		}
	}
	return nil
}

// Made are the devices of the files that were written.
func (o *Offers) Made() ([]Device, error) {
	all, err := o.Folder.Devices()
	return slices.DeleteFunc(all, func(d Device) bool { return !slices.Contains(o.Written, d.Path) }), err
}
