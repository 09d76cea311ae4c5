// SPDX-License-Identifier: Apache-2.0

package intel

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
)

func TestChoice(t *testing.T) {
	for text, want := range map[string]string{"[low] normal high": "low", "low normal [high]": "high", "20": "20", "": "", "[": "[", "] [x]": "x"} {
		if got := Choice(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestHostsMemory: that of the card in the processor is the host's, whatever its driver; a card
// elsewhere of which nothing is told has some of its own.
func TestHostsMemory(t *testing.T) {
	for name, c := range map[string]struct {
		address, driver, meminfo, own string
		bytes                         gpu.Fact[uint64]
		shared                        bool
	}{
		"i915":           {"0000:00:02.0", "i915", "MemTotal:       16303428 kB\nMemFree: 1 kB\n", "", gpu.Known(uint64(16303428 << 10)), true},
		"xe":             {"0000:00:02.0", "xe", "MemTotal: 1 kB\n", "", gpu.Known(uint64(1 << 10)), true},
		"not told":       {"0000:00:02.0", "xe", "", "", gpu.Fact[uint64]{}, true},
		"no number":      {"0000:00:02.0", "xe", "MemTotal: many kB\n", "", gpu.Fact[uint64]{}, true},
		"too large":      {"0000:00:02.0", "xe", "MemTotal: 18446744073709551615 kB\n", "", gpu.Fact[uint64]{}, true},
		"its own":        {"0000:00:02.0", "xe", "MemTotal: 1 kB\n", "4096", gpu.Known(uint64(4096)), false},
		"another card":   {"0000:03:00.0", "i915", "MemTotal: 1 kB\n", "", gpu.Fact[uint64]{}, false},
		"without driver": {"0000:00:02.0", "vfio-pci", "MemTotal: 1 kB\n", "", gpu.Fact[uint64]{}, false},
	} {
		card := "sys/bus/pci/devices/" + c.address
		files := fstest.MapFS{"proc/meminfo": &fstest.MapFile{Data: []byte(c.meminfo)}, card + "/driver": &fstest.MapFile{Data: []byte("../../drivers/" + c.driver), Mode: fs.ModeSymlink}}
		for name, value := range map[string]string{"vendor": "0x8086", "device": "0x9a49", "class": "0x030000", "tile0/physical_vram_size_bytes": c.own} {
			files[card+"/"+name] = &fstest.MapFile{Data: []byte(value)}
		}
		devices := New(sysfs.ReadBus(sysfs.Of(files))).Inventory()
		if len(devices) != 1 || devices[0].MemoryBytes != c.bytes || devices[0].MemoryShared != c.shared {
			t.Errorf("%s: %+v", name, devices)
		}
	}
}

func FuzzChoice(f *testing.F) {
	f.Add("low [normal] high")
	f.Fuzz(func(t *testing.T, text string) {
		if got := Choice(text); !strings.Contains(text, got) {
			t.Errorf("%q chose %q", text, got)
		}
	})
}
