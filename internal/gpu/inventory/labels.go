// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

// LabelPrefix is the namespace of the labels.
const LabelPrefix = "divvy.dev/"

const maxLabel = 63

// Labels describes the machine's cards as Kubernetes node labels; docs/devices.md
// lists them. What is unknown has no label.
func (m Machine) Labels() map[string]string {
	labels := map[string]string{LabelPrefix + "gpu.count": strconv.Itoa(len(m.Devices))}
	byVendor := map[string][]gpu.Device{}
	for _, d := range m.Devices {
		byVendor[d.Vendor] = append(byVendor[d.Vendor], d)
	}
	for vendor, devices := range byVendor {
		at := func(name string) string { return LabelPrefix + vendor + "." + name }
		labels[at("count")] = strconv.Itoa(len(devices))
		common := func(name string, of func(gpu.Device) gpu.Fact[string]) {
			if value := same(devices, of); value != "" {
				labels[at(name)] = value
			}
		}
		common("product", func(d gpu.Device) gpu.Fact[string] { return gpu.Known(d.Name) })
		common("architecture", func(d gpu.Device) gpu.Fact[string] { return d.Architecture })
		common("driver", func(d gpu.Device) gpu.Fact[string] { return d.Driver })
		common("driver-version", func(d gpu.Device) gpu.Fact[string] { return d.DriverVersion })
		common("memory-mib", func(d gpu.Device) gpu.Fact[string] {
			if !d.MemoryBytes.Known {
				return gpu.Fact[string]{}
			}
			return gpu.Known(strconv.FormatUint(d.MemoryBytes.Value>>20, 10))
		})
		if slices.ContainsFunc(devices, func(d gpu.Device) bool { return d.MemoryShared }) {
			labels[at("memory-shared")] = "true"
		}
		for _, mode := range []string{gpu.CanMIG, gpu.CanComputePartitions, gpu.CanMemoryPartitions} {
			common(mode, func(d gpu.Device) gpu.Fact[string] {
				for _, c := range d.Capabilities {
					if c.Name == mode && c.Current != "" {
						return gpu.Known(c.Current)
					}
				}
				return gpu.Fact[string]{}
			})
		}
		for _, d := range devices {
			for _, c := range d.Capabilities {
				if c.Can == gpu.Yes {
					labels[at("can-"+c.Name)] = "true"
				}
			}
		}
	}
	for _, l := range m.Links {
		labels[LabelPrefix+"gpu.fabric"] = l.Kind
	}
	return labels
}

// same is the value that all devices have, "mixed" where they differ, empty
// where none tells.
func same(devices []gpu.Device, of func(gpu.Device) gpu.Fact[string]) string {
	value := ""
	for _, d := range devices {
		switch v := Value(of(d).Value); {
		case v == "" || v == value:
		case value == "":
			value = v
		default:
			return "mixed"
		}
	}
	return value
}

// Value makes a label's value of a text: at most 63 letters, digits and "-_.",
// beginning and ending with a letter or digit.
func Value(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_':
			return r
		}
		return '-'
	}, text)
	for strings.Contains(text, "--") {
		text = strings.ReplaceAll(text, "--", "-")
	}
	text = strings.Trim(text, "-_.")
	return strings.TrimRight(text[:min(len(text), maxLabel)], "-_.")
}

// FeatureFile is what Node Feature Discovery reads from its features.d folder:
// lines "name=value", in order of name.
func (m Machine) FeatureFile() string {
	var out strings.Builder
	labels := m.Labels()
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out.WriteString(name + "=" + labels[name] + "\n")
	}
	return out.String()
}
