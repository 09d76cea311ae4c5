// SPDX-License-Identifier: Apache-2.0

package library

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
)

// Bounds of what a driver file may make us read. A 13.0 driver exports about
// 1,200 names from some 120 KiB of tables.
const (
	maxTableBytes  = 16 << 20
	maxExports     = 1 << 16
	maxNameBytes   = 4096
	maxNoteBytes   = 64 << 10
	maxBuildIDSize = 64
)

// Driver is what the preparation needs to know of a driver's two libraries.
type Driver struct {
	Exports  []string // functions, sorted, of both libraries
	CUDA     []string // those of libcuda.so.1, sorted
	NVML     []string // those of libnvidia-ml.so.1, sorted
	Versions []string // version nodes, if the driver defines any; the front has none, which ld.so warns of and accepts
	id       []byte   // changes when either library is another build
	hasNVML  bool
}

// ReadDriver reads libcuda.so.1 and, where it exists, libnvidia-ml.so.1.
func ReadDriver(dir string) (*Driver, error) {
	driver := &Driver{}
	seen := map[string]bool{}
	id := sha256.New()
	for _, name := range []string{CUDAName, NVMLName} {
		path := filepath.Join(dir, name)
		file, err := os.Open(path)
		if name == NVMLName && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the driver: %w", err)
		}
		library, err := readLibrary(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("read the driver: %s: %w", path, err)
		}
		driver.hasNVML = driver.hasNVML || name == NVMLName
		driver.Versions = append(driver.Versions, library.versions...)
		sort.Strings(library.exports)
		if name == NVMLName {
			driver.NVML = library.exports
		} else {
			driver.CUDA = library.exports
		}
		for _, export := range library.exports {
			if !seen[export] {
				seen[export] = true
				driver.Exports = append(driver.Exports, export)
			}
		}
		writeID(id, name, library.id)
	}
	sort.Strings(driver.Exports)
	driver.id = id.Sum(nil)
	return driver, nil
}

// BuildID changes when either library is another build.
func (d *Driver) BuildID() string { return hex.EncodeToString(d.id) }

// exported is what one shared library shows.
type exported struct {
	exports  []string
	versions []string
	id       []byte // build id, else a digest of its symbol tables
}

// readLibrary reads the dynamic symbols and the build id of an x86-64 library.
func readLibrary(r io.ReaderAt) (exported, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return exported{}, err
	}
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || f.Machine != elf.EM_X86_64 || f.Type != elf.ET_DYN {
		return exported{}, fmt.Errorf("%v %v %v is no x86-64 shared library", f.Class, f.Machine, f.Type)
	}
	if err := checkTables(f); err != nil {
		return exported{}, err
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return exported{}, fmt.Errorf("dynamic symbols: %w", err)
	}
	if len(symbols) > maxExports {
		return exported{}, fmt.Errorf("%d dynamic symbols, more than %d", len(symbols), maxExports)
	}
	var result exported
	digest := sha256.New()
	for _, symbol := range symbols {
		if !isExportedFunction(symbol) {
			continue
		}
		if symbol.Name == "" || len(symbol.Name) > maxNameBytes {
			return exported{}, fmt.Errorf("an exported name has %d bytes", len(symbol.Name))
		}
		result.exports = append(result.exports, symbol.Name)
		fmt.Fprintf(digest, "%s %x\n", symbol.Name, symbol.Value)
	}
	if result.versions, err = versionNodes(f); err != nil {
		return exported{}, fmt.Errorf("version nodes: %w", err)
	}
	if result.id, err = buildID(f); err != nil {
		return exported{}, err
	}
	if result.id == nil {
		result.id = digest.Sum(nil)
	}
	return result, nil
}

// versionNodes names the versions that a library defines; most drivers have none.
func versionNodes(f *elf.File) ([]string, error) {
	if f.SectionByType(elf.SHT_GNU_VERDEF) == nil {
		return nil, nil
	}
	versions, err := f.DynamicVersions()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, version := range versions {
		if version.Flags&elf.VER_FLG_BASE == 0 {
			names = append(names, version.Name)
		}
	}
	return names, nil
}

// checkTables bounds the tables that are about to be read.
func checkTables(f *elf.File) error {
	small := func(section *elf.Section) error {
		if section.Size > maxTableBytes || section.FileSize > maxTableBytes || section.Flags&elf.SHF_COMPRESSED != 0 {
			return fmt.Errorf("section %.64q has %d bytes, more than %d, or is compressed", section.Name, section.Size, maxTableBytes)
		}
		return nil
	}
	for _, section := range f.Sections {
		switch section.Type {
		case elf.SHT_DYNSYM, elf.SHT_GNU_VERSYM, elf.SHT_GNU_VERDEF, elf.SHT_GNU_VERNEED, elf.SHT_DYNAMIC:
			if err := small(section); err != nil {
				return err
			}
			if section.Link < uint32(len(f.Sections)) {
				if err := small(f.Sections[section.Link]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// isExportedFunction leaves out data: a front cannot pass on a variable.
func isExportedFunction(symbol elf.Symbol) bool {
	binding, kind := elf.ST_BIND(symbol.Info), elf.ST_TYPE(symbol.Info)
	visibility := elf.ST_VISIBILITY(symbol.Other)
	return symbol.Section != elf.SHN_UNDEF &&
		(binding == elf.STB_GLOBAL || binding == elf.STB_WEAK || binding == elf.STB_LOOS) &&
		(kind == elf.STT_FUNC || kind == elf.STT_GNU_IFUNC) &&
		(visibility == elf.STV_DEFAULT || visibility == elf.STV_PROTECTED)
}

// buildID reads the GNU build id note; nil without one.
func buildID(f *elf.File) ([]byte, error) {
	for _, section := range f.Sections {
		if section.Type != elf.SHT_NOTE || section.FileSize > maxNoteBytes || section.Flags&elf.SHF_COMPRESSED != 0 {
			continue
		}
		notes, err := section.Data()
		if err != nil {
			return nil, fmt.Errorf("section %.64q: %w", section.Name, err)
		}
		if id := findBuildID(notes); id != nil {
			return id, nil
		}
	}
	return nil, nil
}

// findBuildID walks the notes of a section.
func findBuildID(notes []byte) []byte {
	const gnuBuildID = 3
	for len(notes) >= 12 {
		nameSize := uint64(binary.LittleEndian.Uint32(notes))
		size := uint64(binary.LittleEndian.Uint32(notes[4:]))
		kind := binary.LittleEndian.Uint32(notes[8:])
		start := 12 + (nameSize+3)&^3
		end := start + (size+3)&^3
		if end > uint64(len(notes)) {
			return nil
		}
		if kind == gnuBuildID && nameSize == 4 && string(notes[12:16]) == "GNU\x00" && size > 0 && size <= maxBuildIDSize {
			return notes[start : start+size]
		}
		notes = notes[end:]
	}
	return nil
}

// keyOf names the folder of a front that was prepared for a driver.
func keyOf(frontID, driverID []byte) string {
	front := sha256.Sum256(frontID)
	return hex.EncodeToString(driverID[:10]) + "-" + hex.EncodeToString(front[:10])
}

// quickKey is keyOf by what the beginnings of the files say; empty where they do not
// say enough.
func quickKey(front, driverDir string) string {
	frontID, err := quickID(front)
	if err != nil {
		return ""
	}
	id := sha256.New()
	for _, name := range []string{CUDAName, NVMLName} {
		library, err := quickID(filepath.Join(driverDir, name))
		if name == NVMLName && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return ""
		}
		writeID(id, name, library)
	}
	return keyOf(frontID, id.Sum(nil))
}

// writeID adds a library's id to a driver's.
func writeID(to io.Writer, name string, id []byte) { fmt.Fprintf(to, "%s %x\n", name, id) }

// quickBytes are read of a file: its headers and, right behind them, its notes.
const quickBytes = 4096

var errNoBuildID = errors.New("no build id at its beginning")

// quickID reads the build id of a library, and nothing else of it.
func quickID(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	head := make([]byte, quickBytes)
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if id := headID(head[:n]); id != nil {
		return id, nil
	}
	return nil, errNoBuildID
}

// headID finds the build id in the beginning of an x86-64 library, by its program
// headers; nil: it is not there.
func headID(head []byte) []byte {
	var file elf.Header64
	if _, err := binary.Decode(head, binary.LittleEndian, &file); err != nil ||
		string(file.Ident[:elf.EI_DATA+1]) != elf.ELFMAG+"\x02\x01" || elf.Machine(file.Machine) != elf.EM_X86_64 {
		return nil
	}
	for i := range uint64(file.Phnum) {
		at := file.Phoff + i*uint64(file.Phentsize)
		var part elf.Prog64
		if at >= uint64(len(head)) {
			return nil
		}
		if _, err := binary.Decode(head[at:], binary.LittleEndian, &part); err != nil {
			return nil
		}
		end := part.Off + part.Filesz
		if elf.ProgType(part.Type) != elf.PT_NOTE || end < part.Off || end > uint64(len(head)) {
			continue
		}
		if id := findBuildID(head[part.Off:end]); id != nil {
			return id
		}
	}
	return nil
}
