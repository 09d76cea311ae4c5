// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
)

func scrapeDCGM(t *testing.T, s *api.Snapshot) (lines []string) {
	t.Helper()
	w := httptest.NewRecorder()
	DCGMHandler("node-1")(func(context.Context) (*api.Snapshot, error) { return s, nil }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/dcgm", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "# HELP") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// Names, labels, units and types are dcgm-exporter's.
func TestDCGM(t *testing.T) {
	of := func(f float64) *float64 { return &f }
	s := &api.Snapshot{Cards: []api.SnapshotCard{
		{UUID: "GPU-a", Name: "NVIDIA A100", PCIAddress: "0000:1b:00.0", DriverVersion: "535.1", Vendor: "nvidia", MemoryBytes: 40 << 30, UsedBytes: 1<<30 + 5, LastXID: new(uint64(31)),
			Instruments: &api.Instruments{
				BusyPercent: of(97), MemoryBusyPercent: of(20), EncoderPercent: of(0), DecoderPercent: of(3), PCIeReplays: of(7), PowerWatts: of(300.5), EnergyJoules: of(1234.5), TemperatureC: of(60),
				MemoryTemperatureC: of(70), SMClockMHz: of(1980), MemoryClockMHz: of(2619), Rows: &api.Rows{Correctable: 1, Uncorrectable: 2, Failed: true},
				Devices: []api.Device{{ID: "MIG-1", Instance: 5, Profile: "1g.5gb", MemoryBytes: 5 << 30, UsedBytes: 1 << 30}},
			}},
		{UUID: "card-x", Vendor: "amd", MemoryBytes: 1 << 30},
		{UUID: "GPU-b", Name: "NVIDIA A100", PCIAddress: "00000001:2c:00.0", DriverVersion: "535.1", Vendor: "nvidia", MemoryBytes: 40 << 30, LastXID: new(uint64(0))},
		{UUID: "GPU-c", Name: "NVIDIA A100", PCIAddress: "0000:2d:00.0", DriverVersion: "535.1", Vendor: "nvidia", MemoryBytes: 40 << 30},
	}}
	lines := scrapeDCGM(t, s)
	labels := `DCGM_FI_DRIVER_VERSION="535.1",%sHostname="node-1",UUID="GPU-a",device="nvidia0",gpu="0",modelName="NVIDIA A100",pci_bus_id="00000000:1B:00.0"`
	own, device := fmt.Sprintf(labels, ""), fmt.Sprintf(labels, `GPU_I_ID="5",GPU_I_PROFILE="1g.5gb",`)
	for name, value := range map[string]string{
		"SM_CLOCK": "1980", "MEM_CLOCK": "2619", "MEMORY_TEMP": "70", "GPU_TEMP": "60", "POWER_USAGE": "300.5", "TOTAL_ENERGY_CONSUMPTION": "1.2345e+06", "PCIE_REPLAY_COUNTER": "7", "GPU_UTIL": "97",
		"MEM_COPY_UTIL": "20", "ENC_UTIL": "0", "DEC_UTIL": "3", "XID_ERRORS": "31", "FB_FREE": "39935", "FB_USED": "1024", "UNCORRECTABLE_REMAPPED_ROWS": "2", "CORRECTABLE_REMAPPED_ROWS": "1", "ROW_REMAP_FAILURE": "1",
	} {
		if want := "DCGM_FI_DEV_" + name + "{" + own + "} " + value; !slices.Contains(lines, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(lines, "\n"))
		}
	}
	for _, want := range []string{
		"DCGM_FI_DEV_FB_USED{" + device + "} 1024", "DCGM_FI_DEV_FB_FREE{" + device + "} 4096",
		"# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter", "# TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter", "# TYPE DCGM_FI_DEV_GPU_UTIL gauge",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(lines, "\n"))
		}
	}
	all := strings.Join(lines, "\n")
	if strings.Contains(all, "card-x") || strings.Contains(all, "DCGM_FI_PROF") {
		t.Errorf("another vendor's, or what nobody measures:\n%s", all)
	}
	for _, line := range lines {
		known := strings.HasPrefix(line, "DCGM_FI_DEV_FB_") || strings.HasPrefix(line, "DCGM_FI_DEV_XID_ERRORS") && strings.Contains(line, `UUID="GPU-b"`)
		if (strings.Contains(line, "GPU-b") || strings.Contains(line, "GPU-c")) && !known {
			t.Errorf("nobody knows that: %s", line)
		}
	}
	if n := strings.Count(all, `UUID="GPU-b",device="nvidia1",gpu="1",modelName="NVIDIA A100",pci_bus_id="00000001:2C:00.0"`); n != 3 {
		t.Errorf("%d of the second GPU:\n%s", n, all)
	}
}
