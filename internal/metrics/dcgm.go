// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/divvy-gpu/divvy/internal/api"
)

// dcgmMetric is a metric under the name that dcgm-exporter has for it, in its unit.
type dcgmMetric struct {
	name, help string
	counter    bool
	value      func(api.SnapshotCard, *api.Instruments) *float64
}

const mebibyte = 1 << 20

// dcgmMetrics are those of dcgm-exporter's own list that are known. What is not measured, all that
// DCGM profiles among it, is absent, never 0.
func dcgmMetrics() []dcgmMetric {
	of := func(value func(*api.Instruments) *float64) func(api.SnapshotCard, *api.Instruments) *float64 {
		return func(_ api.SnapshotCard, i *api.Instruments) *float64 {
			if i == nil {
				return nil
			}
			return value(i)
		}
	}
	rows := func(value func(*api.Rows) float64) func(api.SnapshotCard, *api.Instruments) *float64 {
		return of(func(i *api.Instruments) *float64 {
			if i.Rows == nil {
				return nil
			}
			return new(value(i.Rows))
		})
	}
	return []dcgmMetric{
		{"DCGM_FI_DEV_SM_CLOCK", "SM clock (MHz).", false, of(func(i *api.Instruments) *float64 { return i.SMClockMHz })},
		{"DCGM_FI_DEV_MEM_CLOCK", "Memory clock (MHz).", false, of(func(i *api.Instruments) *float64 { return i.MemoryClockMHz })},
		{"DCGM_FI_DEV_MEMORY_TEMP", "Temperature of the memory (C).", false, of(func(i *api.Instruments) *float64 { return i.MemoryTemperatureC })},
		{"DCGM_FI_DEV_GPU_TEMP", "Temperature of the GPU (C).", false, of(func(i *api.Instruments) *float64 { return i.TemperatureC })},
		{"DCGM_FI_DEV_POWER_USAGE", "Power (W).", false, of(func(i *api.Instruments) *float64 { return i.PowerWatts })},
		{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since the driver was loaded (mJ).", true, of(func(i *api.Instruments) *float64 {
			if i.EnergyJoules == nil {
				return nil
			}
			return new(*i.EnergyJoules * 1000)
		})},
		{"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe replays.", true, of(func(i *api.Instruments) *float64 { return i.PCIeReplays })},
		{"DCGM_FI_DEV_GPU_UTIL", "Part of the time in which some kernel ran, whoever's (%).", false, of(func(i *api.Instruments) *float64 { return i.BusyPercent })},
		{"DCGM_FI_DEV_MEM_COPY_UTIL", "Part of the time in which memory was read or written (%).", false, of(func(i *api.Instruments) *float64 { return i.MemoryBusyPercent })},
		{"DCGM_FI_DEV_ENC_UTIL", "How busy the encoder is (%).", false, of(func(i *api.Instruments) *float64 { return i.EncoderPercent })},
		{"DCGM_FI_DEV_DEC_UTIL", "How busy the decoder is (%).", false, of(func(i *api.Instruments) *float64 { return i.DecoderPercent })},
		{"DCGM_FI_DEV_XID_ERRORS", "Number of the last XID; 0: there was none.", false, func(c api.SnapshotCard, _ *api.Instruments) *float64 {
			if c.LastXID == nil {
				return nil
			}
			return new(float64(*c.LastXID))
		}},
		{"DCGM_FI_DEV_FB_FREE", "Memory that is free (MiB).", false, func(c api.SnapshotCard, _ *api.Instruments) *float64 {
			return new(float64((c.MemoryBytes - min(c.UsedBytes, c.MemoryBytes)) / mebibyte))
		}},
		{"DCGM_FI_DEV_FB_USED", "Memory that is used (MiB).", false, func(c api.SnapshotCard, _ *api.Instruments) *float64 { return new(float64(c.UsedBytes / mebibyte)) }},
		{"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Rows of memory that were remapped for uncorrectable errors.", true, rows(func(r *api.Rows) float64 { return float64(r.Uncorrectable) })},
		{"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Rows of memory that were remapped for correctable errors.", true, rows(func(r *api.Rows) float64 { return float64(r.Correctable) })},
		{"DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether rows could not be remapped.", false, rows(func(r *api.Rows) float64 { return truth(r.Failed) })},
	}
}

// busID is a PCI address as DCGM writes it.
func busID(address string) string {
	domain, rest, _ := strings.Cut(address, ":")
	return strings.ToUpper(strings.Repeat("0", max(8-len(domain), 0)) + domain + ":" + rest)
}

// gatherDCGM words NVIDIA's GPUs, and the MIG devices of each.
func gatherDCGM(s *api.Snapshot, host string) []*dto.MetricFamily {
	var families []*dto.MetricFamily
	for _, m := range dcgmMetrics() {
		kind := dto.MetricType_GAUGE
		if m.counter {
			kind = dto.MetricType_COUNTER
		}
		family := &dto.MetricFamily{Name: new(m.name), Help: new(m.help), Type: kind.Enum()}
		add := func(value *float64, labels ...string) {
			if value == nil {
				return
			}
			series := &dto.Metric{}
			for i := 0; i < len(labels); i += 2 {
				series.Label = append(series.Label, &dto.LabelPair{Name: new(labels[i]), Value: new(strings.ToValidUTF8(labels[i+1], "?"))})
			}
			if m.counter {
				series.Counter = &dto.Counter{Value: value}
			} else {
				series.Gauge = &dto.Gauge{Value: value}
			}
			family.Metric = append(family.Metric, series)
		}
		index := 0
		for _, c := range s.Cards {
			if c.Vendor != "nvidia" {
				continue
			}
			name := func(more ...string) []string {
				n := strconv.Itoa(index)
				return slices.Concat([]string{"DCGM_FI_DRIVER_VERSION", c.DriverVersion}, more, []string{
					"Hostname", host, "UUID", c.UUID, "device", "nvidia" + n, "gpu", n, "modelName", c.Name, "pci_bus_id", busID(c.PCIAddress)})
			}
			add(m.value(c, c.Instruments), name()...)
			if c.Instruments != nil && strings.HasPrefix(m.name, "DCGM_FI_DEV_FB_") {
				for _, d := range c.Instruments.Devices {
					of := api.SnapshotCard{MemoryBytes: d.MemoryBytes, UsedBytes: d.UsedBytes}
					add(m.value(of, nil), name("GPU_I_ID", strconv.Itoa(d.Instance), "GPU_I_PROFILE", d.Profile)...)
				}
			}
			index++
		}
		if len(family.Metric) > 0 {
			families = append(families, family)
		}
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return families
}

// DCGMHandler answers scrapes of a host with the names and labels that dcgm-exporter has, for dashboards and rules that
// know those. They are apart from all others: beside a dcgm-exporter sums would be twice as large.
func DCGMHandler(host string) func(snapshot func(context.Context) (*api.Snapshot, error)) http.Handler {
	return func(snapshot func(context.Context) (*api.Snapshot, error)) http.Handler {
		return handler(snapshot, func(s *api.Snapshot) ([]*dto.MetricFamily, error) { return gatherDCGM(s, host), nil })
	}
}

// dcgmDocument is the part of docs/metrics.md that lists them.
func dcgmDocument() string {
	var b strings.Builder
	b.WriteString("| Name | What |\n| --- | --- |\n")
	for _, m := range dcgmMetrics() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", m.name, m.help)
	}
	return b.String()
}
