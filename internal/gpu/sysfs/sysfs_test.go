// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

func TestMissingIsUnknown(t *testing.T) {
	tree := Of(fstest.MapFS{"a/number": {Data: []byte("0x10\n")}, "a/word": {Data: []byte("\x1b[2Jword\x00\n")}})
	if n := tree.Uint("a/number"); n != gpu.Known(uint64(16)) {
		t.Errorf("number %v", n)
	}
	if w := tree.Text("a/word"); w != gpu.Known("?[2Jword") {
		t.Errorf("word %q", w.Value)
	}
	for _, name := range []string{"a/none", "a", "../up", ""} {
		if tree.Text(name).Known || tree.Uint(name).Known || tree.Link(name).Known {
			t.Errorf("%q is known", name)
		}
	}
	if tree.Uint("a/word").Known || tree.Int("a/word").Known || tree.Names("none") != nil {
		t.Error("what is no number, or no folder, is known")
	}
}

func TestNatural(t *testing.T) {
	names := []string{"card10", "card2", "card02", "a", "card2b", "vf1", "card"}
	slices.SortFunc(names, Natural)
	want := []string{"a", "card", "card2", "card02", "card2b", "card10", "vf1"}
	if !slices.Equal(names, want) && !slices.Equal(names, []string{"a", "card", "card02", "card2", "card2b", "card10", "vf1"}) {
		t.Errorf("%v, want %v", names, want)
	}
}

func TestPassthrough(t *testing.T) {
	files := fstest.MapFS{}
	function := func(address, class string, group string) {
		folder := "sys/bus/pci/devices/" + address + "/"
		for name, value := range map[string]string{"vendor": "0x10de", "device": "0x2331", "class": class} {
			files[folder+name] = &fstest.MapFile{Data: []byte(value)}
		}
		if group != "" {
			files[folder+"iommu_group"] = &fstest.MapFile{Data: []byte("../../kernel/iommu_groups/" + group), Mode: os.ModeSymlink}
			files["sys/kernel/iommu_groups/"+group+"/devices/"+address] = &fstest.MapFile{}
		}
	}
	function("0000:01:00.0", "0x030000", "1")
	function("0000:01:00.1", "0x040300", "1") // its sound
	function("0000:00:01.0", "0x060400", "1") // the bridge before it
	function("0000:02:00.0", "0x030000", "2")
	function("0000:03:00.0", "0x020000", "2") // a stranger
	function("0000:04:00.0", "0x030000", "")
	bus := ReadBus(Of(files))
	for address, want := range map[string]gpu.Capability{
		"0000:01:00.0": {Can: gpu.Yes, Reason: "IOMMU group 1, together with 0000:01:00.1"},
		"0000:02:00.0": {Can: gpu.No, Reason: "IOMMU group 2 also holds 0000:03:00.0"},
		"0000:04:00.0": {Can: gpu.No, Reason: "it is in no IOMMU group: switch the IOMMU on in firmware and kernel"},
	} {
		f, ok := bus.Find(address)
		if c := bus.Passthrough(f); !ok || c.Can != want.Can || c.Reason != want.Reason {
			t.Errorf("%s: %+v", address, c)
		}
	}
}

// TestArchiveStaysInside: links of a recorded machine lead nowhere else.
func TestArchiveStaysInside(t *testing.T) {
	folder := t.TempDir()
	secret := filepath.Join(folder, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(folder, "m.txtar")
	write := func(text string) {
		if err := os.WriteFile(archive, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("-- sys/up -> ../../../../../../../.." + secret + " --\n-- sys/in -> a --\n-- sys/a --\nhello\n")
	tree, err := OpenRecorded(archive)
	if err != nil {
		t.Fatal(err)
	}
	if got := tree.Text("sys/up"); got.Known {
		t.Errorf("read %q outside", got.Value)
	}
	if got := tree.Text("sys/in"); got != gpu.Known("hello") {
		t.Errorf("a link inside: %v", got)
	}
	if err := tree.Close(); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"-- ../x --\nhello", "-- /etc/x --\n", "-- a --\n-- a --\n", "-- a -> /etc/passwd --\n", "-- a --\n-- a/b --\nx"} {
		write(text)
		if tree, err := OpenRecorded(archive); err == nil {
			t.Errorf("accepted %q", text)
			_ = tree.Close()
		}
	}
}

func FuzzArchive(f *testing.F) {
	f.Add([]byte("comment\n-- a/b -> c --\n-- a/d --\ntext\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		records, err := ParseArchive(raw)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, r := range records {
			if seen[r.Name] || filepath.IsAbs(r.Name) || !filepath.IsLocal(r.Name) {
				t.Errorf("record %q", r.Name)
			}
			seen[r.Name] = true
		}
	})
}

func FuzzClientMemory(f *testing.F) {
	f.Add("drm-client-id:\t3\ndrm-pdev:\t0000:01:00.0\ndrm-memory-vram:\t5 KiB\ndrm-resident-vram0: 1 MiB", "0000:01:00.0")
	f.Fuzz(func(t *testing.T, text, address string) {
		if _, bytes := ClientMemory(text, address); bytes.Known && address == "" {
			// Only a text that names no card belongs to the card without a name.
			if _, other := ClientMemory(text, "0000:01:00.0"); other.Known {
				t.Error("memory on two GPUs")
			}
		}
	})
}

func FuzzAddress(f *testing.F) {
	f.Add("0000:c1:00.0")
	f.Fuzz(func(t *testing.T, text string) {
		if IsAddress(text) && (len(text) < 12 || len(text) > 16 || filepath.Base(text) != text) {
			t.Errorf("%q is an address", text)
		}
	})
}

// TestWrite: what is there is written, as the kernel's own files take it; nothing
// is made anew or outside, and recordings do not change.
func TestWrite(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "mode"), []byte("longer than that\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(folder, "out")); err != nil {
		t.Fatal(err)
	}
	tree, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Write("mode", "CPX"); err != nil || tree.Text("mode").Value != "CPX" {
		t.Errorf("%v, %v", err, tree.Text("mode"))
	}
	for _, name := range []string{"none", "../mode", "out/divvy-test"} {
		if tree.Write(name, "x") == nil {
			t.Errorf("wrote %s", name)
		}
	}
	if err := Of(os.DirFS(folder)).Write("mode", "SPX"); !errors.Is(err, ErrReadOnly) {
		t.Errorf("recorded: %v", err)
	}
	kernel, err := Open("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	before := kernel.Text("comm").Value
	if err := kernel.Write("comm", "divvytest"); err != nil || kernel.Text("comm").Value != "divvytest" {
		t.Errorf("the kernel's: %v, %v", err, kernel.Text("comm"))
	}
	if err := errors.Join(kernel.Write("comm", before), kernel.Close(), tree.Close()); err != nil {
		t.Error(err)
	}
}
