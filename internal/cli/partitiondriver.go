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
	CreateCompute(uuid string, kind, start, slices int) error
}

// migDriver lets plans be carried out by NVIDIA's driver.
type migDriver struct {
	source   migSource
	products *mig.Table
	command  func(pid int) string
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
	product, known := d.product(card)
	for _, i := range m.Instances {
		instance := partition.Instance{
			ID: i.ID, Start: i.Start, Compute: i.Compute, Processes: d.processes(i.Processes), Profile: fmt.Sprintf("unknown-%d", i.Kind),
		}
		if known {
			if p := profileOf(product, i.Kind); p >= 0 {
				instance.Profile = product.Profiles[p].Name
			}
		}
		card.Instances = append(card.Instances, instance)
	}
	return card, nil
}

func (d *migDriver) product(c partition.Card) (*mig.Product, bool) {
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
	card, err := d.Observe(ctx, id)
	if err != nil {
		return err
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
	kind := kindOf(product, product.Index(s.Profile))
	if kind < 0 {
		return fmt.Errorf("the driver has no number for profile %s", s.Profile)
	}
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

// profileOf finds the profile of a product that one of NVML's numbers stands
// for, -1 if none. Names differ between drivers, the numbers do not.
func profileOf(p *mig.Product, kind int) int {
	kinds := nvml.Kinds()
	if kind < 0 || kind >= len(kinds) {
		return -1
	}
	var alike []int
	for i, f := range p.Profiles {
		_, suffix, _ := strings.Cut(f.Name, "gb")
		if f.Slices == kinds[kind].Slices && suffix == kinds[kind].Suffix {
			alike = append(alike, i)
		}
	}
	slices.SortFunc(alike, func(a, b int) int { return p.Profiles[a].Size - p.Profiles[b].Size })
	n := 0
	if kinds[kind].Wide {
		n = 1
	}
	if n >= len(alike) {
		return -1
	}
	return alike[n]
}

// kindOf is the way back.
func kindOf(p *mig.Product, profile int) int {
	for kind := range nvml.Kinds() {
		if profile >= 0 && profileOf(p, kind) == profile {
			return kind
		}
	}
	return -1
}

// techniques are the ways of dividing cards that this program knows.
func techniques(products *mig.Table) partition.Techniques {
	return partition.Techniques{partition.MIGTechnique{Products: products}}
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
