// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/advise"
	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/inventory"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
)

// nvidiaMachine is a machine of equal NVIDIA cards, as the kernel's files and the
// driver's library show it.
type nvidiaMachine struct {
	cards  int
	name   string
	device uint16
	gib    uint64
	mig    bool // its model has MIG
	linked bool // NVLink joins all
}

// nvidiaMachines are those that advice is compared on; ids of pci.ids.
var nvidiaMachines = map[string]nvidiaMachine{
	"h100":     {8, "NVIDIA H100 80GB HBM3", 0x2330, 80, true, true},
	"a100-40":  {2, "NVIDIA A100-PCIE-40GB", 0x20f1, 40, true, false},
	"l4":       {2, "NVIDIA L4", 0x27b8, 24, false, false},
	"l40s":     {2, "NVIDIA L40S", 0x26b9, 48, false, false},
	"a10":      {1, "NVIDIA A10", 0x2236, 24, false, false},
	"t4":       {1, "Tesla T4", 0x1eb8, 16, false, false},
	"rtx-4090": {1, "NVIDIA GeForce RTX 4090", 0x2684, 24, false, false},
}

// Reading and Links are what NVIDIA's library would say.
func (m nvidiaMachine) Reading(address string) (gpu.Reading, bool) {
	r := gpu.Reading{MemoryBytes: gpu.Known(m.gib << 30), Name: gpu.Known(m.name)}
	if m.mig {
		r.MIG = gpu.Known(false)
	}
	return r, true
}

func (m nvidiaMachine) Links() []gpu.Link {
	links := []gpu.Link{}
	for b := range m.cards {
		for a := range b {
			if m.linked {
				links = append(links, gpu.Link{A: m.address(a), B: m.address(b), Kind: "nvlink"})
			}
		}
	}
	return links
}

func (m nvidiaMachine) address(i int) string { return fmt.Sprintf("0000:%x1:00.0", i+1) }

// files are the machine as an archive.
func (m nvidiaMachine) files() string {
	var b strings.Builder
	put := func(name, text string) { fmt.Fprintf(&b, "-- %s --\n%s\n", name, text) }
	put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.10  x")
	put("sys/bus/pci/drivers/nvidia/unbind", "")
	for i := range m.cards {
		at := m.address(i)
		folder := fmt.Sprintf("sys/devices/pci0000:%x0/%s", i+1, at)
		put(folder+"/vendor", "0x10de")
		put(folder+"/device", fmt.Sprintf("0x%04x", m.device))
		put(folder+"/class", "0x030200")
		fmt.Fprintf(&b, "-- %s/driver -> ../../../bus/pci/drivers/nvidia --\n", folder)
		fmt.Fprintf(&b, "-- sys/bus/pci/devices/%s -> ../../../devices/pci0000:%x0/%s --\n", at, i+1, at)
		fmt.Fprintf(&b, "-- %s/iommu_group -> ../../../kernel/iommu_groups/%d --\n", folder, 10+i)
		fmt.Fprintf(&b, "-- sys/kernel/iommu_groups/%d/devices/%s -> ../../../../devices/pci0000:%x0/%s --\n", 10+i, at, i+1, at)
		put("proc/driver/nvidia/gpus/"+at+"/information", fmt.Sprintf("Model: \t\t %s\nGPU UUID: \t GPU-%08x-0000-4000-8000-000000000000\nDevice Minor: \t %d", m.name, int(m.device)<<8+i, i))
	}
	return b.String()
}

// devicesOf writes what `divvy devices --json` prints of a machine into a file:
// one of those above, or one of the archives' golden files.
func devicesOf(t *testing.T, name string) string {
	t.Helper()
	if archive, ok := strings.CutSuffix(name, "-undivided"); ok {
		return undivided(t, archive)
	}
	m, ok := nvidiaMachines[name]
	if !ok {
		return filepath.Join("testdata/devices", name+".json")
	}
	folder := t.TempDir()
	archive := filepath.Join(folder, "machine.txtar")
	if err := os.WriteFile(archive, []byte(m.files()), 0o600); err != nil {
		t.Fatal(err)
	}
	tree, err := sysfs.OpenRecorded(archive)
	if err != nil {
		t.Fatal(err)
	}
	products, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	read := inventory.Read(inventory.Sources{Tree: tree, Products: products, Library: m})
	if err := tree.Close(); err != nil {
		t.Fatal(err)
	}
	if len(read.Devices) != m.cards {
		t.Fatalf("%s: %d GPUs", name, len(read.Devices))
	}
	var out bytes.Buffer
	a := &app{stdout: &out}
	if err := a.writeJSON(merge(api.Devices{}, read)); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(out.Bytes()) {
		t.Fatal("no JSON")
	}
	file := filepath.Join(folder, name+".json")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// undivided is a machine of the archives without its virtual functions.
func undivided(t *testing.T, archive string) string {
	t.Helper()
	m := openFake(t, archive, "proc")
	m.run(t, "divvy partition apply - <<'EOF'\nschema: divvy.partition/v1\ncards:\n  - sriov: {vfs: 0}\nEOF")
	var out bytes.Buffer
	if code := Main([]string{"devices", "--root", m.folder, "--json"}, strings.NewReader(""), &out, &out); code != exitOK {
		t.Fatal(out.String())
	}
	file := filepath.Join(t.TempDir(), archive+".json")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestOneOrderOfIsolation: divvy advise and divvy partition rank the techniques that
// both know alike.
func TestOneOrderOfIsolation(t *testing.T) {
	var explained []string
	for _, e := range machine.Techniques(nil).Explanations() {
		if slices.Contains(advise.Techniques(), e.Name) {
			explained = append(explained, e.Name)
		}
	}
	advised := slices.DeleteFunc(advise.Techniques(), func(name string) bool { return !slices.Contains(explained, name) })
	if len(advised) < 8 || !slices.Equal(advised, explained) {
		t.Errorf("divvy advise ranks %v, divvy partition %v", advised, explained)
	}
}
