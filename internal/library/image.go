// SPDX-License-Identifier: Apache-2.0

package library

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
)

// Report says what a preparation changed.
type Report struct {
	Blanked []string // exports of the built front that the driver lacks
	Spares  []string // exports of the driver that the built front lacks, now passed on
	Left    []string // the same, but with no spare left, or with a name too long
}

const (
	maxFrontBytes   = 64 << 20
	symbolBytes     = 24
	relocationBytes = 24
	sparePrefix     = "divvy_spare_"
	sparesSection   = ".divvy.spares"
	absentSection   = ".divvy.absent"
)

// image is the file of a front in memory, with the tables that are edited.
type image struct {
	data    []byte
	id      []byte
	symbols []byte // .dynsym
	names   []byte // .dynstr
	hash    []byte // .hash: bucket count, chain count, buckets, chains
	spares  []byte // front_spare_names
	absent  map[string]bool
	used    map[uint32]bool // symbols that the front's own relocations name
}

// readImage reads the front, or another driver library, as it was built.
func readImage(path string, front bool) (*image, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFrontBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFrontBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFrontBytes)
	}
	image, err := parseImage(data, front)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return image, nil
}

// parseImage finds the tables in the file and checks that they are as the
// build makes them. Only a front has spares.
func parseImage(data []byte, front bool) (*image, error) {
	library, err := readLibrary(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	i := &image{data: data, id: library.id, absent: map[string]bool{}, used: map[uint32]bool{}}
	for _, section := range f.Sections {
		var table *[]byte
		switch {
		case section.Type == elf.SHT_GNU_HASH:
			return nil, errors.New("has a GNU hash table, which cannot be edited: link with --hash-style=sysv")
		case section.Type == elf.SHT_DYNSYM:
			table = &i.symbols
			if section.Link >= uint32(len(f.Sections)) {
				return nil, errors.New("dynamic symbols without names")
			}
			if i.names, err = i.cut(f.Sections[section.Link]); err != nil {
				return nil, err
			}
		case section.Type == elf.SHT_HASH:
			table = &i.hash
		case section.Type == elf.SHT_RELA && section.Flags&elf.SHF_ALLOC != 0:
			relocations, err := i.cut(section)
			if err != nil {
				return nil, err
			}
			for ; len(relocations) >= relocationBytes; relocations = relocations[relocationBytes:] {
				i.used[binary.LittleEndian.Uint32(relocations[12:])] = true
			}
			continue
		case section.Name == sparesSection:
			table = &i.spares
		case section.Name == absentSection:
			names, err := i.cut(section)
			if err != nil {
				return nil, err
			}
			for _, name := range strings.Split(string(names), "\x00") {
				i.absent[name] = true
			}
			continue
		default:
			continue
		}
		if *table != nil {
			return nil, fmt.Errorf("has two sections %s", section.Name)
		}
		if *table, err = i.cut(section); err != nil {
			return nil, err
		}
	}
	if i.symbols == nil || i.hash == nil {
		return nil, errors.New("is no driver library: it lacks .dynsym or .hash")
	}
	if front && (i.spares == nil || len(i.absent) == 0) {
		return nil, fmt.Errorf("is no front: it lacks %s or %s", sparesSection, absentSection)
	}
	return i, i.check()
}

// cut returns the bytes of a section within the file, to read and to write.
func (i *image) cut(section *elf.Section) ([]byte, error) {
	size := uint64(len(i.data))
	if section.Type == elf.SHT_NOBITS || section.Offset > size || section.FileSize > size-section.Offset {
		return nil, fmt.Errorf("section %.64q is not in the file", section.Name)
	}
	return i.data[section.Offset : section.Offset+section.FileSize : section.Offset+section.FileSize], nil
}

// check walks the hash table once: what we are about to rebuild is understood
// only if it finds every symbol now.
func (i *image) check() error {
	if len(i.symbols)%symbolBytes != 0 || len(i.hash) < 8 {
		return errors.New("a table has an odd size")
	}
	count := len(i.symbols) / symbolBytes
	buckets, chains := i.word(0), i.word(1)
	if buckets == 0 || int64(chains) != int64(count) || int64(len(i.hash)) != 4*(2+int64(buckets)+int64(chains)) {
		return errors.New("the hash table does not fit the symbols")
	}
	for n := 1; n < count; n++ {
		name, err := i.name(n)
		if err != nil {
			return err
		}
		if !i.defined(n) {
			continue
		}
		at, steps := i.word(2+int(hashOf(name)%buckets)), 0
		for at != 0 && int(at) != n {
			if at >= chains || steps > count {
				return errors.New("the hash table is broken")
			}
			at = i.word(2 + int(buckets) + int(at))
			steps++
		}
		if at == 0 {
			return fmt.Errorf("the hash table does not find %.64q", name)
		}
	}
	return nil
}

func (i *image) word(n int) uint32       { return binary.LittleEndian.Uint32(i.hash[4*n:]) }
func (i *image) setWord(n int, v uint32) { binary.LittleEndian.PutUint32(i.hash[4*n:], v) }
func (i *image) symbol(n int) []byte     { return i.symbols[n*symbolBytes : (n+1)*symbolBytes] }

func (i *image) nameOffset(n int) uint32 { return binary.LittleEndian.Uint32(i.symbol(n)) }

func (i *image) defined(n int) bool {
	return binary.LittleEndian.Uint16(i.symbol(n)[6:]) != uint16(elf.SHN_UNDEF)
}

// name reads the name of a symbol.
func (i *image) name(n int) (string, error) {
	offset := uint64(i.nameOffset(n))
	if offset >= uint64(len(i.names)) {
		return "", fmt.Errorf("symbol %d has its name outside of the names", n)
	}
	end := bytes.IndexByte(i.names[offset:], 0)
	if end < 0 {
		return "", fmt.Errorf("the name of symbol %d has no end", n)
	}
	return string(i.names[offset : offset+uint64(end)]), nil
}

// blank turns a symbol into a weak undefined one, which no loader finds and no
// linker minds. The front must not look it up by name itself.
func (i *image) blank(n int) error {
	if i.used[uint32(n)] {
		return fmt.Errorf("symbol %d has a relocation: link with -Bsymbolic", n)
	}
	entry := i.symbol(n)
	entry[4] = byte(elf.STB_WEAK)<<4 | byte(elf.STT_NOTYPE)
	entry[5] = 0
	clear(entry[6:])
	return nil
}

// hashOf is the hash function of the System V ABI.
func hashOf(name string) uint32 {
	var h uint32
	for n := range len(name) {
		h = h<<4 + uint32(name[n])
		high := h & 0xf0000000
		h ^= high >> 24
		h &^= high
	}
	return h
}

// rehash builds the hash table anew; undefined symbols are not in it.
func (i *image) rehash() error {
	buckets, count := i.word(0), len(i.symbols)/symbolBytes
	clear(i.hash[8:])
	for n := count - 1; n > 0; n-- {
		if !i.defined(n) {
			continue
		}
		name, err := i.name(n)
		if err != nil {
			return err
		}
		bucket := 2 + int(hashOf(name)%buckets)
		i.setWord(2+int(buckets)+n, i.word(bucket))
		i.setWord(bucket, uint32(n))
	}
	return nil
}

// spare is a slot for an export that the front does not know: its number is
// its place in front_spare_names and, in clib/gen, of its jump.
type spare struct {
	number int
	symbol int
}

// prepare edits the tables for a driver.
func (i *image) prepare(driver *Driver) (Report, error) {
	wanted := map[string]bool{}
	for _, name := range driver.Exports {
		wanted[name] = true
	}
	var report Report
	var spares []spare
	for n := 1; n < len(i.symbols)/symbolBytes; n++ {
		name, err := i.name(n)
		if err != nil {
			return Report{}, err
		}
		if !i.defined(n) {
			continue
		}
		if rest, ok := strings.CutPrefix(name, sparePrefix); ok {
			var number int
			if _, err := fmt.Sscanf(rest, "%d_", &number); err != nil {
				return Report{}, fmt.Errorf("spare %.64q has no number: %w", name, err)
			}
			spares = append(spares, spare{number, n})
			continue
		}
		if wanted[name] {
			delete(wanted, name)
			continue
		}
		report.Blanked = append(report.Blanked, name)
		if err := i.blank(n); err != nil {
			return Report{}, err
		}
	}
	extra := []string{}
	for name := range wanted {
		if !i.absent[name] {
			extra = append(extra, name)
		}
	}
	sort.Strings(extra)
	sort.Strings(report.Blanked)
	if err := i.fill(spares, extra, &report); err != nil {
		return Report{}, err
	}
	return report, i.rehash()
}

// fill gives each extra name a spare and blanks the spares that are left.
func (i *image) fill(spares []spare, extra []string, report *Report) error {
	if len(spares) == 0 && i.spares == nil {
		report.Left = extra
		return nil
	}
	if len(spares) == 0 || len(i.spares)%len(spares) != 0 {
		return fmt.Errorf("%d spares and %d bytes of names do not fit", len(spares), len(i.spares))
	}
	sort.Slice(spares, func(a, b int) bool { return spares[a].number < spares[b].number })
	room := len(i.spares) / len(spares)
	used := 0
	for _, name := range extra {
		if used == len(spares) || len(name) >= room {
			report.Left = append(report.Left, name)
			continue
		}
		s := spares[used]
		placeholder, err := i.name(s.symbol)
		if err != nil {
			return err
		}
		if s.number != used || len(placeholder) != room-1 {
			return fmt.Errorf("spare %d is not as it was built", used)
		}
		offset := int(i.nameOffset(s.symbol))
		text := i.names[offset : offset+room]
		clear(text)
		copy(text, name)
		slot := i.spares[used*room : (used+1)*room]
		clear(slot)
		copy(slot, name)
		report.Spares = append(report.Spares, name)
		used++
	}
	for _, s := range spares[used:] {
		if err := i.blank(s.symbol); err != nil {
			return err
		}
	}
	return nil
}
