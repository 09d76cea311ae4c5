// SPDX-License-Identifier: Apache-2.0

package mig

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
	facts "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// Source is the part of NVIDIA's driver that MIG takes.
type Source interface {
	Cards() ([]gpu.Card, error)
	MIG(uuid string) (nvml.MIG, error)
	SetMIG(uuid string, on bool) error
	CreateInstance(uuid string, kind, start int) error
	DestroyInstance(uuid string, kind, start int, computeOnly bool) error
	CreateCompute(uuid string, kind, start, size int) error
}

// Driver is NVIDIA's driver, which is opened by the first question and let go of
// before a card is taken from it. A nil one is not there. It is not for concurrent
// use.
type Driver struct {
	open    func() (Source, func() error, error)
	source  Source // nil: not open
	close   func() error
	differs []string // from the table: what Differences returns
}

// NewDriver returns the driver that is opened so.
func NewDriver(open func() (Source, func() error, error)) *Driver { return &Driver{open: open} }

// Source opens the driver; nil if there is none.
func (d *Driver) Source() (Source, error) {
	if d == nil {
		return nil, nil
	}
	if d.source == nil {
		source, closeSource, err := d.open()
		if errors.Is(err, gpu.ErrNoDriver) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		d.source, d.close = source, closeSource
	}
	return d.source, nil
}

// Close lets go of the driver.
func (d *Driver) Close() error {
	if d == nil || d.source == nil {
		return nil
	}
	d.source = nil
	return d.close()
}

// Differences words how the drivers of the cards that were observed differ from
// the table, each model once.
func (d *Driver) Differences() []string {
	if d == nil {
		return nil
	}
	return d.differs
}

// Cards lists the driver's cards, without how they are divided.
func (d *Driver) Cards() ([]partition.Card, error) {
	source, err := d.Source()
	if err != nil || source == nil {
		return nil, err
	}
	cards, err := source.Cards()
	var list []partition.Card
	for i, c := range cards {
		list = append(list, partition.Card{Index: i, Vendor: gpu.VendorNVIDIA, UUID: c.UUID, Address: c.PCIAddress, Name: c.Name})
	}
	return list, err
}

// Observe asks a card's driver how it is divided; what it says of the card itself and
// of who uses it counts.
func (t Technique) Observe(_ context.Context, c *partition.Card) error {
	if !c.NVIDIA() {
		*c = c.With(t.Name(), &State{})
		return nil
	}
	cards, err := t.driver.Cards()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(cards, func(o partition.Card) bool { return o.UUID == c.UUID || o.Address != "" && o.Address == c.Address })
	if at < 0 {
		*c = c.With(t.Name(), &State{Unknown: true}) // another driver has it
		return nil
	}
	c.Vendor, c.UUID, c.Name = cards[at].Vendor, cards[at].UUID, cards[at].Name
	m, err := t.driver.source.MIG(c.UUID)
	if err != nil && !errors.Is(err, gpu.ErrNotSupported) {
		return fmt.Errorf("GPU %s: %w", c.UUID, err)
	}
	if m.DeviceID != 0 {
		c.DeviceID = fmt.Sprintf("0x%04x", m.DeviceID)
	}
	c.Processes = t.processes(m.Processes)
	s := &State{On: m.On}
	if s.Model, err = t.model(*c, m.Profiles); err != nil {
		return fmt.Errorf("GPU %s: %w", c.UUID, err)
	}
	*c = c.With(t.Name(), s)
	product, notKnown := t.Product(*c)
	for _, i := range m.Instances {
		instance := Instance{
			ID: i.ID, Start: i.Start, Compute: i.Compute, Devices: i.Devices, Processes: t.processes(i.Processes), Profile: fmt.Sprintf("unknown-%d", i.Kind),
		}
		if notKnown == nil {
			if p := slices.IndexFunc(product.Profiles, func(f facts.Profile) bool { return f.NVML == i.Kind }); p >= 0 {
				instance.Profile = product.Profiles[p].Name
			}
		}
		s.Instances = append(s.Instances, instance)
	}
	return nil
}

// model is the card's model by what its driver tells; nil if that is nothing.
func (t Technique) model(c partition.Card, told []facts.Profile) (*facts.Product, error) {
	if len(told) == 0 {
		return nil, nil
	}
	table, _ := t.Product(c)
	model, differences, err := facts.WithDriver(table, c.Name, told)
	if err != nil || len(differences) == 0 {
		return model, err
	}
	var words []string
	for _, difference := range differences {
		words = append(words, difference.String())
	}
	text := fmt.Sprintf("%s: the driver counts, where it differs: %s", c.Name, strings.Join(words, "; "))
	if !slices.Contains(t.driver.differs, text) {
		t.driver.differs = append(t.driver.differs, text)
	}
	return model, nil
}

func (Technique) processes(pids []int) []partition.Process {
	var list []partition.Process
	for _, pid := range pids {
		list = append(list, partition.Process{PID: pid, Command: commandOf(pid)})
	}
	return list
}

func (t Technique) Do(_ context.Context, card partition.Card, s partition.Step) error {
	source, err := t.driver.Source()
	if err != nil {
		return err
	}
	if source == nil {
		return fmt.Errorf("%s: %w", s, gpu.ErrNoDriver)
	}
	uuid := card.UUID
	switch s.Action {
	case actionOn, actionOff:
		return source.SetMIG(uuid, s.Action == actionOn)
	case partition.ActionReset:
		// The driver resets the card when its mode is set; here it is seen.
		m, err := source.MIG(uuid)
		if err == nil && m.On != m.Pending {
			err = fmt.Errorf("the new mode waits for a reset: nvidia-smi --gpu-reset -i %s", uuid)
		}
		return err
	}
	product, err := t.Product(card)
	if err != nil {
		return err
	}
	profile := product.Index(s.Profile)
	if profile < 0 || product.Profiles[profile].NVML < 0 {
		return fmt.Errorf("the driver has no number for profile %s", s.Profile)
	}
	kind := product.Profiles[profile].NVML
	switch s.Action {
	case actionCreate:
		return source.CreateInstance(uuid, kind, s.Start)
	case actionDestroy, actionClear:
		return source.DestroyInstance(uuid, kind, s.Start, s.Action == actionClear)
	case actionCompute:
		return source.CreateCompute(uuid, kind, s.Start, s.Slices)
	}
	return fmt.Errorf("unknown step %q", s.Action)
}

// commandOf is what a process is called, empty when it cannot be seen.
func commandOf(pid int) string {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
