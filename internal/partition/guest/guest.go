// SPDX-License-Identifier: Apache-2.0

// Package guest words what a virtual machine needs to get a card or a part of one:
// elements of libvirt's domains, arguments of QEMU. Forms are from libvirt's
// domain format (hostdev of type pci and mdev) and QEMU's vfio-pci device.
package guest

import (
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/sriov"
	"github.com/divvy-gpu/divvy/internal/partition/vfio"
	"github.com/divvy-gpu/divvy/internal/partition/vgpu"
)

// Device is something that a guest can be given.
type Device struct {
	Title   string   // for people
	PCI     []string // addresses of functions
	UUID    string   // of a mediated device
	Managed bool     // libvirt has to give its functions to vfio-pci
}

// Devices lists what of a card guests can be given: the whole of it, its virtual
// functions, its virtual cards.
func Devices(c partition.Card) []Device {
	var all []Device
	if p := vfio.Of(c); p != nil && p.Handed() && p.Cannot == "" {
		whole := Device{Title: c.Name + ", whole"}
		for _, f := range p.Functions {
			whole.PCI = append(whole.PCI, f.Address)
		}
		all = append(all, whole)
	}
	carries := map[string]bool{}
	for _, hosts := range []*vgpu.Hosts{vgpu.Of(c), vgpu.OfGVTg(c)} {
		if hosts == nil {
			continue
		}
		for _, host := range hosts.On {
			carries[host.Address] = true // itself no device for a guest
			for _, card := range host.Made {
				d := Device{Title: c.Name + ", " + hosts.Name(card.Type), UUID: card.UUID}
				if card.UUID == "" {
					d.PCI = []string{host.Address}
				}
				all = append(all, d)
			}
		}
	}
	if functions := sriov.Of(c); functions != nil {
		for n, vf := range functions.On {
			if vf.Address != "" && !carries[vf.Address] {
				all = append(all, Device{Title: fmt.Sprintf("%s, vf%d", c.Name, n+1), PCI: []string{vf.Address}, Managed: vf.Driver != vfio.DriverVFIO})
			}
		}
	}
	return all
}

// Libvirt is the elements of a domain's devices.
func (d Device) Libvirt() string {
	if d.UUID != "" {
		return fmt.Sprintf("<hostdev mode='subsystem' type='mdev' managed='no' model='vfio-pci'>\n  <source>\n    <address uuid='%s'/>\n  </source>\n</hostdev>\n", d.UUID)
	}
	managed := map[bool]string{true: "yes", false: "no"}[d.Managed]
	var out strings.Builder
	for _, address := range d.PCI {
		domain, rest, _ := strings.Cut(address, ":")
		bus, rest, _ := strings.Cut(rest, ":")
		slot, function, _ := strings.Cut(rest, ".")
		fmt.Fprintf(&out, "<hostdev mode='subsystem' type='pci' managed='%s'>\n  <source>\n    <address domain='0x%s' bus='0x%s' slot='0x%s' function='0x%s'/>\n  </source>\n</hostdev>\n",
			managed, domain, bus, slot, function)
	}
	return out.String()
}

// QEMU is arguments, a line each.
func (d Device) QEMU() string {
	if d.UUID != "" {
		return "-device vfio-pci,sysfsdev=/sys/bus/mdev/devices/" + d.UUID + "\n"
	}
	var out strings.Builder
	if d.Managed {
		out.WriteString("# QEMU does not give it to vfio-pci: do so first\n")
	}
	for _, address := range d.PCI {
		fmt.Fprintf(&out, "-device vfio-pci,host=%s\n", address)
	}
	return out.String()
}
