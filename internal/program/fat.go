// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/binary"
	"io"
	"slices"
)

const (
	fatMagic  = 0xba55ed50
	fatHeader = 16
	partBytes = 64 // of a part's header that are read
	kindPTX   = 1
	kindCode  = 2
)

// readFat walks the fat binaries of a section: for which GPUs they have which code. What
// makes no sense ends the walk; what was found until then counts.
func readFat(r io.ReaderAt, size int64) Code {
	var code Code
	var header [partBytes]byte
	parts := 0
	for at := int64(0); at+fatHeader <= size; {
		if _, err := r.ReadAt(header[:fatHeader], at); err != nil {
			break
		}
		if binary.LittleEndian.Uint32(header[:]) != fatMagic {
			at += 8 // between two there may be padding
			if parts++; parts > maxParts {
				break
			}
			continue
		}
		begin := int64(binary.LittleEndian.Uint16(header[6:]))
		bytes := binary.LittleEndian.Uint64(header[8:])
		if begin < fatHeader || bytes > uint64(size-at) {
			break
		}
		end := min(at+begin+int64(bytes), size)
		for at += begin; at+partBytes <= end; {
			if _, err := r.ReadAt(header[:], at); err != nil {
				return code.sorted()
			}
			kind := binary.LittleEndian.Uint16(header[:])
			own := int64(binary.LittleEndian.Uint32(header[4:]))
			bytes := binary.LittleEndian.Uint64(header[8:])
			if parts++; parts > maxParts || own < partBytes || bytes > uint64(size) {
				return code.sorted()
			}
			code.add(int(kind), int(binary.LittleEndian.Uint32(header[28:])))
			at += own + int64(bytes)
		}
		at = max(at, end)
	}
	return code.sorted()
}

func (c *Code) add(kind, target int) {
	if target < 10 || target > 999 {
		return
	}
	switch {
	case kind == kindPTX && !slices.Contains(c.PTX, target):
		c.PTX = append(c.PTX, target)
	case kind == kindCode && !slices.Contains(c.Machine, target):
		c.Machine = append(c.Machine, target)
	}
}

func (c Code) sorted() Code {
	slices.Sort(c.PTX)
	slices.Sort(c.Machine)
	return c
}
