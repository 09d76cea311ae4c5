// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// machine is the files and links of one machine.
type machine struct {
	comment string
	files   map[string]string
	links   map[string]string
}

func newMachine(comment string) *machine {
	return &machine{comment: comment, files: map[string]string{}, links: map[string]string{}}
}

// attributes are files of a folder by name, without the line end.
type attributes map[string]string

func (m *machine) put(folder string, a attributes) {
	for name, value := range a {
		if value != "" {
			value += "\n"
		}
		m.files[path.Join(folder, name)] = value
	}
}

// card is a PCI function to be put on the bus.
type card struct {
	at             string // pci0000:c0/0000:c0:01.1/0000:c1:00.0
	vendor, device uint16
	class          uint32
	driver         string
	node           int // NUMA; -1: not told
	group          int // IOMMU; -1: none
	drm            []string
	link           string // "16.0 GT/s x16"
	more           attributes
}

// add puts the function and the bridges before it on the bus.
func (m *machine) add(c card) string {
	steps := strings.Split(c.at, "/")
	for i := 1; i < len(steps)-1; i++ {
		folder := "sys/devices/" + strings.Join(steps[:i+1], "/")
		if _, there := m.files[folder+"/class"]; !there {
			m.put(folder, attributes{"vendor": "0x1022", "device": "0x1483", "class": "0x060400"})
			m.onBus(steps[:i+1])
		}
	}
	folder := "sys/devices/" + c.at
	m.put(folder, attributes{
		"vendor": fmt.Sprintf("0x%04x", c.vendor), "device": fmt.Sprintf("0x%04x", c.device), "class": fmt.Sprintf("0x%06x", c.class),
		"numa_node": fmt.Sprint(c.node),
	})
	if speed, width, ok := strings.Cut(c.link, " x"); ok {
		m.put(folder, attributes{
			"current_link_speed": speed + " PCIe", "current_link_width": width, "max_link_speed": speed + " PCIe", "max_link_width": width,
		})
	}
	m.put(folder, attributes{"driver_override": "(null)"})
	m.put(folder, c.more)
	m.files["sys/bus/pci/drivers_probe"], m.files["sys/bus/pci/drivers/vfio-pci/unbind"] = "", ""
	if c.driver != "" {
		m.files["sys/bus/pci/drivers/"+c.driver+"/unbind"] = ""
		m.links[folder+"/driver"] = "../../../../bus/pci/drivers/" + c.driver
	}
	if c.group >= 0 {
		m.inGroup(c.group, c.at)
	}
	for _, name := range c.drm {
		m.files[folder+"/drm/"+name+"/dev"] = "226:0\n"
		m.files["dev/dri/"+name] = ""
	}
	m.onBus(steps)
	return folder
}

func (m *machine) onBus(steps []string) {
	m.links["sys/bus/pci/devices/"+steps[len(steps)-1]] = "../../../devices/" + strings.Join(steps, "/")
}

func (m *machine) inGroup(group int, at string) {
	m.links["sys/devices/"+at+"/iommu_group"] = fmt.Sprintf("../../../kernel/iommu_groups/%d", group)
	m.links[fmt.Sprintf("sys/kernel/iommu_groups/%d/devices/%s", group, path.Base(at))] = "../../../../devices/" + at
}

// mediated puts a mediated device of a type of a function on its bus.
func (m *machine) mediated(parent, kind, uuid string, group int) {
	m.links[parent+"/mdev_supported_types/"+kind+"/devices/"+uuid] = "../../../" + uuid
	m.files[parent+"/"+uuid+"/remove"] = ""
	m.links[parent+"/"+uuid+"/mdev_type"] = "../mdev_supported_types/" + kind
	m.links[parent+"/"+uuid+"/iommu_group"] = fmt.Sprintf("../../../../../kernel/iommu_groups/%d", group)
	m.links["sys/bus/mdev/devices/"+uuid] = "../../../" + strings.TrimPrefix(parent, "sys/") + "/" + uuid
}

// process lets a process have a device file open.
func (m *machine) process(pid int, command, node, fdinfo string) {
	folder := fmt.Sprintf("proc/%d", pid)
	m.put(folder, attributes{"comm": command, "fdinfo/7": fdinfo})
	m.links[folder+"/fd/7"] = node
}

// text is the machine as an archive, in order of name.
func (m *machine) text() string {
	var out strings.Builder
	out.WriteString(m.comment)
	names := slices.Sorted(maps.Keys(m.files))
	names = append(names, slices.Collect(maps.Keys(m.links))...)
	slices.Sort(names)
	for _, name := range names {
		if target, ok := m.links[name]; ok {
			fmt.Fprintf(&out, "-- %s -> %s --\n", name, target)
			continue
		}
		fmt.Fprintf(&out, "-- %s --\n%s", name, m.files[name])
	}
	return out.String()
}
