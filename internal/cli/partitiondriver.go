// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// migSource is the part of a driver that MIG takes.
type migSource interface {
	Cards() ([]gpu.Card, error)
	MIG(uuid string) (nvml.MIG, error)
	SetMIG(uuid string, on bool) error
	CreateInstance(uuid string, kind, start int) error
	DestroyInstance(uuid string, kind, start int, computeOnly bool) error
	CreateCompute(uuid string, kind, start, size int) error
}

// migDriver lets plans be carried out by NVIDIA's driver. What the driver tells
// of a card's profiles counts more than the table.
type migDriver struct {
	source   migSource
	products *mig.Table
	command  func(pid int) string
	differs  []string // from the table: what Differences returns
	// known are cards as they were last observed, by what they were asked for:
	// what does not change by steps counts.
	known map[string]partition.Card
}

var _ partition.Driver = (*migDriver)(nil)

// State observes all cards.
func (d *migDriver) State(ctx context.Context) (partition.State, error) {
	state := partition.State{Schema: partition.SchemaState, Cards: []partition.Card{}}
	cards, err := d.source.Cards()
	if err != nil {
		return state, err
	}
	for _, c := range cards {
		card, err := d.Observe(ctx, c.UUID)
		if err != nil {
			return state, err
		}
		state.Cards = append(state.Cards, card)
	}
	return state, nil
}

// Observe reads how a card is divided.
func (d *migDriver) Observe(_ context.Context, id string) (partition.Card, error) {
	cards, err := d.source.Cards()
	if err != nil {
		return partition.Card{}, err
	}
	index := slices.IndexFunc(cards, func(c gpu.Card) bool { return c.UUID == id || c.PCIAddress == id })
	if index < 0 {
		return partition.Card{}, fmt.Errorf("%w: %s", gpu.ErrNoCard, id)
	}
	uuid := cards[index].UUID
	card := partition.Card{Index: index, Vendor: gpu.VendorNVIDIA, UUID: uuid, Address: cards[index].PCIAddress, Name: cards[index].Name}
	m, err := d.source.MIG(uuid)
	if err != nil && !errors.Is(err, gpu.ErrNotSupported) {
		return card, fmt.Errorf("card %s: %w", uuid, err)
	}
	if m.DeviceID != 0 {
		card.DeviceID = fmt.Sprintf("0x%04x", m.DeviceID)
	}
	card.MIG, card.Processes = m.On, d.processes(m.Processes)
	if card.Model, err = d.model(card, m.Profiles); err != nil {
		return card, fmt.Errorf("card %s: %w", uuid, err)
	}
	product, known := d.product(card)
	for _, i := range m.Instances {
		instance := partition.Instance{
			ID: i.ID, Start: i.Start, Compute: i.Compute, Devices: i.Devices, Processes: d.processes(i.Processes), Profile: fmt.Sprintf("unknown-%d", i.Kind),
		}
		if known {
			if p := slices.IndexFunc(product.Profiles, func(f mig.Profile) bool { return f.NVML == i.Kind }); p >= 0 {
				instance.Profile = product.Profiles[p].Name
			}
		}
		card.Instances = append(card.Instances, instance)
	}
	if d.known == nil {
		d.known = map[string]partition.Card{}
	}
	d.known[id] = card
	return card, nil
}

// model is the card's model by what its driver tells; nil if that is nothing.
func (d *migDriver) model(c partition.Card, told []mig.Profile) (*mig.Product, error) {
	if len(told) == 0 {
		return nil, nil
	}
	table, _ := d.product(c)
	model, differences, err := mig.WithDriver(table, c.Name, told)
	if err != nil || len(differences) == 0 {
		return model, err
	}
	var words []string
	for _, difference := range differences {
		words = append(words, difference.String())
	}
	text := fmt.Sprintf("%s: the driver counts, where it differs: %s", c.Name, strings.Join(words, "; "))
	if !slices.Contains(d.differs, text) {
		d.differs = append(d.differs, text)
	}
	return model, nil
}

// Differences words how the drivers of the cards that were observed differ from
// the table, each model once.
func (d *migDriver) Differences() []string { return d.differs }

// product is the card's model: by its driver, else by the table.
func (d *migDriver) product(c partition.Card) (*mig.Product, bool) {
	if c.Model != nil {
		return c.Model, true
	}
	if id, err := strconv.ParseUint(strings.TrimPrefix(c.DeviceID, "0x"), 16, 16); err == nil {
		if p, ok := d.products.ByDevice(uint16(id)); ok {
			return p, true
		}
	}
	return d.products.ByName(c.Name)
}

func (d *migDriver) processes(pids []int) []partition.Process {
	var list []partition.Process
	for _, pid := range pids {
		list = append(list, partition.Process{PID: pid, Command: d.command(pid)})
	}
	return list
}

// Do takes one step.
func (d *migDriver) Do(ctx context.Context, id string, s partition.Step) error {
	card, ok := d.known[id]
	if !ok {
		var err error
		if card, err = d.Observe(ctx, id); err != nil {
			return err
		}
	}
	uuid := card.UUID
	switch s.Action {
	case partition.ActionOn, partition.ActionOff:
		return d.source.SetMIG(uuid, s.Action == partition.ActionOn)
	case partition.ActionReset:
		// The driver resets the card when its mode is set; here it is seen.
		m, err := d.source.MIG(uuid)
		if err == nil && m.On != m.Pending {
			err = fmt.Errorf("the new mode waits for a reset: nvidia-smi --gpu-reset -i %s", uuid)
		}
		return err
	}
	product, ok := d.product(card)
	if !ok {
		return fmt.Errorf("%s is not in the table of cards with MIG", card.Name)
	}
	profile := product.Index(s.Profile)
	if profile < 0 || product.Profiles[profile].NVML < 0 {
		return fmt.Errorf("the driver has no number for profile %s", s.Profile)
	}
	kind := product.Profiles[profile].NVML
	switch s.Action {
	case partition.ActionCreate:
		return d.source.CreateInstance(uuid, kind, s.Start)
	case partition.ActionDestroy, partition.ActionClear:
		return d.source.DestroyInstance(uuid, kind, s.Start, s.Action == partition.ActionClear)
	case partition.ActionCompute:
		return d.source.CreateCompute(uuid, kind, s.Start, s.Slices)
	}
	return fmt.Errorf("unknown step %q", s.Action)
}

// openMIG opens the driver in a folder, or the one the linker finds.
func (a *app) openMIG(folder string) (*migDriver, func() error, error) {
	products, err := mig.Default()
	if err != nil {
		return nil, nil, err
	}
	if folder == "" && a.getenv("DIVVY_SOCKET") != "" {
		return nil, nil, usage(errors.New("cards are not divided from within a share"))
	}
	source, err := nvml.Open(folder)
	if errors.Is(err, gpu.ErrNoDriver) {
		return nil, nil, withHint(notThere(err), "--state FILE plans without a driver")
	}
	if err != nil {
		return nil, nil, err
	}
	return &migDriver{source: source, products: products, command: commandOf}, source.Close, nil
}

// commandOf is what a process is called, empty when it cannot be seen.
func commandOf(pid int) string {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
