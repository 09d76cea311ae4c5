// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/inventory"
	"github.com/divvy-gpu/divvy/internal/size"
)

const unknown = "unknown"

func (c deviceCard) memory() string {
	text := ""
	if c.Managed {
		text = size.Short(c.MemoryBytes)
	} else {
		text = bytesOr(c.Hardware.MemoryBytes)
	}
	if c.MemoryShared || c.Hardware != nil && c.Hardware.MemoryShared {
		text += " shared"
	}
	return text
}

func (c deviceCard) used() string {
	if c.Managed {
		return size.Short(c.UsedBytes)
	}
	return bytesOr(c.Hardware.Use.MemoryUsedBytes)
}

func bytesOr(f gpu.Fact[uint64]) string {
	if !f.Known {
		return unknown
	}
	return size.Short(f.Value)
}

// driver names the kernel's driver and its version, as far as they are known.
func (c deviceCard) driver() string {
	if c.Hardware == nil {
		return c.DriverVersion
	}
	name := c.Hardware.Driver.Or("none")
	if version := c.Hardware.DriverVersion.Or(c.DriverVersion); version != "" {
		name += " " + version
	}
	return name
}

// can lists what a card can do, with what is set now.
func (c deviceCard) can(current bool) string {
	if c.Hardware == nil {
		return gpu.CanShare
	}
	var words []string
	for _, capability := range c.Hardware.Capabilities {
		if capability.Can != gpu.Yes || capability.Name == gpu.CanReplicas {
			continue // every card can be handed out several times
		}
		word := capability.Name
		if current && capability.Current != "" {
			word += "=" + strings.ReplaceAll(capability.Current, " ", "-")
		}
		words = append(words, word)
	}
	return strings.Join(words, ",")
}

// deviceTable prints one line a card. What only agents know is left out where
// no card has one.
func (a *app) deviceTable(list deviceList) error {
	managed := slices.ContainsFunc(list.Cards, func(c deviceCard) bool { return c.Managed })
	header := []string{"GPU", "NAME", "MEMORY", "USED", "PROMISED", "FREE TO PROMISE", "SHARES", "HEALTH", "DRIVER", "CAN"}
	columns := func(cells []string) []string {
		if managed {
			return cells
		}
		return slices.Delete(slices.Clone(cells), 4, 7)
	}
	rows := newTable(columns(header)...)
	for _, c := range list.Cards {
		cells := []string{c.id(), c.Name, c.memory(), c.used(), "", "", "", c.shownHealth(), c.driver(), c.can(false)}
		if c.Managed {
			cells[4], cells[5], cells[6] = size.Short(c.BookedBytes), size.Short(c.FreeToBookBytes), strconv.Itoa(c.Shares)
		}
		rows.add(columns(cells)...)
	}
	return rows.write(a.stdout)
}

// deviceWide prints more of each card, and how they are connected.
func (a *app) deviceWide(list deviceList) error {
	rows := newTable("GPU", "ADDRESS", "VENDOR", "NAME", "MEMORY", "USED", "BUSY", "POWER", "TEMP", "NUMA", "PCIE", "DRIVER", "HEALTH", "CAN")
	for _, c := range list.Cards {
		d := c.Hardware
		if d == nil {
			rows.add(c.id(), c.PCIAddress, gpu.VendorNVIDIA, c.Name, c.memory(), c.used(), unknown, unknown, unknown, unknown, unknown,
				c.driver(), c.shownHealth(), c.can(true))
			continue
		}
		rows.add(c.id(), d.Address, d.Vendor, c.Name, c.memory(), c.used(),
			measure(d.Use.BusyPercent, "%"), measure(d.Use.PowerWatts, "W"), measure(d.Use.TemperatureC, "C"),
			d.NUMANode.String(), pcie(d.PCIe), c.driver(), c.shownHealth(), c.can(true))
	}
	if err := rows.write(a.stdout); err != nil {
		return err
	}
	return a.matrix(list.Ways)
}

func measure(f gpu.Fact[float64], unit string) string {
	if !f.Known {
		return unknown
	}
	return strconv.FormatFloat(f.Value, 'f', 0, 64) + unit
}

func pcie(link gpu.PCIe) string {
	if !link.Speed.Known || !link.Width.Known {
		return unknown
	}
	return fmt.Sprintf("%s x%d", link.Speed.Value, link.Width.Value)
}

// shownHealth says besides that it is cordoned.
func (c deviceCard) shownHealth() string {
	is := c.health()
	if c.Cordon == nil {
		return is
	}
	return is + ",cordoned"
}

// health is what an agent says that watches the card, else what the kernel
// shows: ok only where something was read that could have said otherwise.
func (c deviceCard) health() string {
	if c.Hardware == nil || c.Card.Health != "" && c.Card.Health != string(gpu.Well) {
		return c.Card.Health
	}
	h := c.Hardware.Health
	var words []string
	if len(h.Troubles) > 0 {
		words = append(words, "trouble")
	}
	if h.UncorrectedErrors.Value > 0 {
		words = append(words, fmt.Sprintf("%d-uncorrected", h.UncorrectedErrors.Value))
	}
	if h.CorrectedErrors.Value > 0 {
		words = append(words, fmt.Sprintf("%d-corrected", h.CorrectedErrors.Value))
	}
	if h.Throttled.Value != "" {
		words = append(words, "throttled")
	}
	switch {
	case words != nil:
		return strings.Join(words, ",")
	case c.Managed || h.UncorrectedErrors.Known || h.Throttled.Known:
		return "ok"
	}
	return unknown
}

// matrix prints how cards reach each other.
func (a *app) matrix(w ways) error {
	if len(w.Addresses) < 2 {
		return nil
	}
	fmt.Fprintln(a.stdout)
	rows := newTable(append([]string{"WAY TO"}, w.Addresses...)...)
	used := map[string]bool{}
	for i, row := range w.Rows {
		rows.add(append([]string{w.Addresses[i]}, row...)...)
		for _, way := range row {
			used[way] = true
		}
	}
	if err := rows.write(a.stdout); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	for _, l := range [][2]string{
		{inventory.WayPIX, "at most one PCIe switch"}, {inventory.WayPXB, "several PCIe switches"},
		{inventory.WayPHB, "a PCIe host bridge"}, {inventory.WayNode, "host bridges of one NUMA node"},
		{inventory.WaySystem, "between NUMA nodes"}, {inventory.WayUnknown, "unknown"},
	} {
		if used[l[0]] {
			fmt.Fprintf(a.stdout, "%-5s %s\n", l[0], l[1])
		}
	}
	return nil
}

// deviceTree prints cards below their NUMA node and PCIe root, each with its
// partitions, who has it open, and what it can do.
func (a *app) deviceTree(list deviceList) error {
	type place struct{ node, root string }
	var order []place
	below := map[place][]deviceCard{}
	for _, c := range list.Cards {
		at := place{unknown, unknown}
		if c.Hardware != nil {
			at = place{c.Hardware.NUMANode.String(), c.Hardware.Root.String()}
		}
		if below[at] == nil {
			order = append(order, at)
		}
		below[at] = append(below[at], c)
	}
	slices.SortStableFunc(order, func(x, y place) int { return strings.Compare(x.node, y.node) })
	last := ""
	for _, at := range order {
		if at.node != last {
			fmt.Fprintf(a.stdout, "NUMA node %s\n", at.node)
			last = at.node
		}
		fmt.Fprintf(a.stdout, "  %s\n", at.root)
		for _, c := range below[at] {
			a.deviceBranch(c)
		}
	}
	return nil
}

func (a *app) deviceBranch(c deviceCard) {
	d := c.Hardware
	if d == nil {
		fmt.Fprintf(a.stdout, "    %s  %s, %s\n", c.id(), oneLine(c.Name), c.memory())
		return
	}
	say := func(format string, args ...any) {
		fmt.Fprintf(a.stdout, "      %s\n", oneLine(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(a.stdout, "    %s  %s, %s, %s\n", d.Address, oneLine(c.Name), c.memory(), c.driver())
	if len(d.Bridges) > 0 {
		say("behind %s", strings.Join(d.Bridges, " "))
	}
	if len(d.Nodes) > 0 {
		say("files %s", strings.Join(d.Nodes, " "))
	}
	for _, trouble := range d.Health.Troubles {
		say("trouble: %s", trouble)
	}
	if d.Health.Throttled.Value != "" {
		say("slowed down: %s", d.Health.Throttled.Value)
	}
	for _, h := range d.Use.Holders {
		say("open in %d %s, memory %s", h.PID, h.Command, bytesOr(h.MemoryBytes))
	}
	for _, p := range d.Partitions {
		line := fmt.Sprintf("%s %s  %s, memory %s", p.Kind, p.ID, p.Name, bytesOr(p.MemoryBytes))
		if p.Units.Known {
			line += fmt.Sprintf(", %d units", p.Units.Value)
		}
		if p.Driver.Known {
			line += ", " + p.Driver.Value
		}
		say("%s", line)
	}
	for _, capability := range d.Capabilities {
		line := fmt.Sprintf("%-7s %s", capability.Can, capability.Name)
		if capability.Current != "" {
			line += " = " + capability.Current
		}
		if len(capability.Options) > 0 {
			line += " of " + strings.Join(capability.Options, ", ")
		}
		if capability.Reason != "" {
			line += ": " + capability.Reason
		}
		say("%s", line)
	}
}
