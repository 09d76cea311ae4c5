// SPDX-License-Identifier: Apache-2.0

package library

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzReadLibrary: whatever a driver file holds, reading it ends in an error
// or in bounded names, and never in a panic.
func FuzzReadLibrary(f *testing.F) {
	data, err := os.ReadFile(filepath.Join(buildDriver(f, "", "-s"), CUDAName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		library, err := readLibrary(bytes.NewReader(data))
		if err != nil {
			return
		}
		if len(library.id) == 0 {
			t.Error("no identity")
		}
		for _, name := range library.exports {
			if name == "" || len(name) > maxNameBytes || strings.ContainsRune(name, 0) {
				t.Errorf("export %.80q", name)
			}
		}
	})
}

// FuzzBuildID: notes of any content give no id or a short one.
func FuzzBuildID(f *testing.F) {
	f.Add([]byte("\x04\x00\x00\x00\x04\x00\x00\x00\x03\x00\x00\x00GNU\x00abcd"))
	f.Add([]byte("\x04\x00\x00\x00\xff\xff\xff\xff\x03\x00\x00\x00GNU\x00abcd"))
	f.Fuzz(func(t *testing.T, notes []byte) {
		if id := findBuildID(notes); len(id) > maxBuildIDSize || id != nil && !bytes.Contains(notes, id) {
			t.Errorf("id %x", id)
		}
	})
}

// FuzzHeadID: the beginning of a file gives no id or a short one that is in it.
func FuzzHeadID(f *testing.F) {
	data, err := os.ReadFile(filepath.Join(buildDriver(f, "", "-s"), CUDAName))
	if err != nil {
		f.Fatal(err)
	}
	if headID(data) == nil {
		f.Fatal("no id in a library")
	}
	f.Add(data[:quickBytes])
	f.Add(data[:100])
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, head []byte) {
		if id := headID(head); len(id) > maxBuildIDSize || id != nil && !bytes.Contains(head, id) {
			t.Errorf("id %x", id)
		}
	})
}

// FuzzPrepare: for any set of driver exports, the prepared front finds exactly
// those that its report does not leave out, by the loader's way (hash chains)
// and by the slow one (a look at every symbol).
func FuzzPrepare(f *testing.F) {
	data, err := os.ReadFile(buildFront(f, f.TempDir(), "-s"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("cuInit\ncuMemAlloc_v2\ncuBrandNew")
	f.Add(lines("cuMany%d", 0, 200))
	f.Add("")
	f.Add("_init\ndivvy_standin\n" + strings.Repeat("c", 95) + "\n" + strings.Repeat("c", 96))
	f.Fuzz(func(t *testing.T, text string) {
		image, err := parseImage(bytes.Clone(data), true)
		if err != nil {
			t.Fatal(err)
		}
		driver := &Driver{}
		for _, name := range strings.Split(text, "\n") {
			if name != "" && len(name) <= maxNameBytes && !strings.ContainsRune(name, 0) && !slices.Contains(driver.Exports, name) {
				driver.Exports = append(driver.Exports, name)
			}
		}
		report, err := image.prepare(driver)
		if err != nil {
			t.Fatal(err)
		}
		if err := image.check(); err != nil {
			t.Fatalf("the prepared front is broken: %v", err)
		}
		shown := map[string]bool{}
		for n := 1; n < len(image.symbols)/symbolBytes; n++ {
			if name, err := image.name(n); err == nil && image.defined(n) {
				shown[name] = true
			}
		}
		want := 0
		for _, name := range driver.Exports {
			visible := !image.absent[name] && !slices.Contains(report.Left, name)
			if visible {
				want++
			}
			if shown[name] != visible || image.find(name) != visible {
				t.Errorf("%.100q: seen %v, found %v, want %v", name, shown[name], image.find(name), visible)
			}
		}
		if len(shown) != want {
			t.Errorf("%d symbols shown, want %d", len(shown), want)
		}
		for _, name := range report.Blanked {
			if image.find(name) {
				t.Errorf("%s is still found", name)
			}
		}
		if _, err := readLibrary(bytes.NewReader(image.data)); err != nil {
			t.Errorf("the prepared front cannot be read: %v", err)
		}
	})
}

// find looks a name up as ld.so does.
func (i *image) find(name string) bool {
	buckets := i.word(0)
	for at := i.word(2 + int(hashOf(name)%buckets)); at != 0; at = i.word(2 + int(buckets) + int(at)) {
		if got, err := i.name(int(at)); err == nil && got == name && i.defined(int(at)) {
			return true
		}
	}
	return false
}

// FuzzParseImage: a damaged front is refused, or can be prepared without a panic.
func FuzzParseImage(f *testing.F) {
	data, err := os.ReadFile(buildFront(f, f.TempDir(), "-s"))
	if err != nil {
		f.Fatal(err)
	}
	// One changed word is what damages do; the fuzzer says where.
	f.Add(uint32(0), uint64(0))
	f.Add(uint32(0x3c), uint64(1))
	f.Fuzz(func(t *testing.T, offset uint32, word uint64) {
		damaged := bytes.Clone(data)
		for n := range 8 {
			damaged[(int(offset)+n)%len(damaged)] ^= byte(word >> (8 * n))
		}
		image, err := parseImage(damaged, true)
		if err != nil {
			return
		}
		if _, err := image.prepare(&Driver{Exports: []string{"cuInit", "cuBrandNew"}}); err != nil {
			return
		}
		if len(damaged) != len(data) {
			t.Error("the file changed its size")
		}
	})
}
