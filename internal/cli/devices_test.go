// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/inventory"
)

// TestDevicesOfMachines compares what divvy devices prints of each recorded
// machine, in each form, with testdata/devices.
func TestDevicesOfMachines(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	machines, err := filepath.Glob("../gpu/testdata/machines/*.txtar")
	if err != nil || len(machines) < 10 {
		t.Fatalf("%d machines, %v", len(machines), err)
	}
	for _, machine := range machines {
		name := strings.TrimSuffix(filepath.Base(machine), ".txtar")
		t.Run(name, func(t *testing.T) {
			for _, form := range []string{formTable, formWide, formJSON, formTree, formNFD} {
				var out, complaints bytes.Buffer
				if code := Main([]string{"devices", "--root", machine, "-o", form}, strings.NewReader(""), &out, &complaints); code != exitOK {
					t.Fatalf("%s: exit code %d\n%s", form, code, complaints.String())
				}
				golden := filepath.Join("testdata/devices", name+"."+form)
				if *update {
					if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if out.String() != string(want) {
					t.Errorf("%s differs from %s:\n%s", form, golden, out.String())
				}
				if form == formJSON && !json.Valid(out.Bytes()) {
					t.Error("invalid JSON")
				}
			}
		})
	}
}

// TestMergeDevices: an agent's card and the kernel's are one entry, a simulated
// one is not taken for hardware at the same address.
func TestMergeDevices(t *testing.T) {
	machine := inventory.Machine{Devices: []gpu.Device{
		{Address: "0000:01:00.0", Name: "kernel's"}, {Address: "0000:02:00.0", UUID: gpu.Known("GPU-2")}, {Address: "0000:03:00.0"},
	}}
	known := api.Devices{Cards: []api.Card{
		{UUID: "GPU-1", PCIAddress: "0000:01:00.0", MemoryBytes: 5}, {UUID: "GPU-2", PCIAddress: ""},
		{UUID: "GPU-3", PCIAddress: "0000:03:00.0", Simulated: true},
	}}
	list := merge(known, machine)
	if len(list.Cards) != 4 {
		t.Fatalf("%d GPUs: %+v", len(list.Cards), list.Cards)
	}
	for i, want := range []struct {
		managed bool
		address string
	}{{true, "0000:01:00.0"}, {true, "0000:02:00.0"}, {true, ""}, {false, "0000:03:00.0"}} {
		c := list.Cards[i]
		address := ""
		if c.Hardware != nil {
			address = c.Hardware.Address
		}
		if c.Managed != want.managed || address != want.address {
			t.Errorf("GPU %d: managed %v at %q, want %+v", i, c.Managed, address, want)
		}
	}
}
