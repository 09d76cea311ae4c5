// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// header is what parse found.
type header struct {
	constants []constant
	structs   []structure
}

type constant struct {
	name    string // without DIVVY_
	value   uint64
	comment string
}

type structure struct {
	name   string // without divvy_
	fields []field
	size   int
	align  int
}

type field struct {
	name    string
	base    string // uint8_t ..., char, or the name of a structure
	count   int    // 0: not an array
	offset  int
	size    int // of all elements
	comment string
}

var (
	defineLine = regexp.MustCompile(`^#define\s+DIVVY_(\w+)\s+(\w+)\s*(?:/\*\s*(.*?)\s*\*/)?$`)
	guardLine  = regexp.MustCompile(`^#define DIVVY_\w+_H$`)
	included   = regexp.MustCompile(`(?m)^#include "(\w+\.h)"$`)
	structLine = regexp.MustCompile(`^struct\s+divvy_(\w+)\s*\{$`)
	fieldLine  = regexp.MustCompile(`^\s+(?:struct\s+divvy_(\w+)|(\w+))\s+(\w+)(?:\[(\w+)\])?;\s*(?:/\*\s*(.*?)\s*\*/)?$`)
	sizeCheck  = regexp.MustCompile(`^_Static_assert\(sizeof\(struct divvy_(\w+)\) == ([0-9+* ]+|DIVVY_\w+), `)
	placeCheck = regexp.MustCompile(`^_Static_assert\(offsetof\(struct divvy_(\w+), (\w+)\) == (\d+), `)
	limitCheck = regexp.MustCompile(`^_Static_assert\(sizeof\(struct divvy_(\w+)\) <= DIVVY_(\w+), `)
	integer    = regexp.MustCompile(`^(0x[0-9a-fA-F]+|[0-9]+)(u|ull)?$`)
)

var scalars = map[string]int{"uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "uint64_t": 8, "char": 1}

// parse reads a header, or one more, line by line; what it does not understand
// inside a struct, a define or an assertion is an error, never skipped.
func (h *header) parse(text string) error {
	var open *structure
	comment := false
	for i, line := range strings.Split(text, "\n") {
		err := func() error {
			trimmed := strings.TrimSpace(line)
			if comment || strings.HasPrefix(trimmed, "/*") {
				comment = !strings.Contains(trimmed, "*/")
				return nil
			}
			switch {
			case trimmed == "":
				return nil
			case open != nil && trimmed == "};":
				open.close()
				h.structs = append(h.structs, *open)
				open = nil
				return nil
			case open != nil:
				return h.addField(open, line)
			case strings.HasPrefix(line, "#define"):
				return h.addConstant(line)
			case strings.HasPrefix(line, "struct"):
				m := structLine.FindStringSubmatch(line)
				if m == nil {
					return fmt.Errorf("not the start of a struct: %q", line)
				}
				open = &structure{name: m[1]}
				return nil
			case strings.HasPrefix(line, "_Static_assert"):
				return h.check(line)
			case strings.HasPrefix(line, "#include"), strings.HasPrefix(line, "#ifndef"), strings.HasPrefix(line, "#endif"):
				return nil
			}
			return fmt.Errorf("not understood: %q", line)
		}()
		if err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if open != nil || comment {
		return fmt.Errorf("ends inside a struct or comment")
	}
	return nil
}

func (h *header) addConstant(line string) error {
	if guardLine.MatchString(line) {
		return nil
	}
	m := defineLine.FindStringSubmatch(line)
	if m == nil {
		return fmt.Errorf("not a define with one number: %q", line)
	}
	value, err := number(m[2])
	if err != nil {
		return err
	}
	h.constants = append(h.constants, constant{name: m[1], value: value, comment: m[3]})
	return nil
}

func number(text string) (uint64, error) {
	m := integer.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("not a number: %q", text)
	}
	return strconv.ParseUint(m[1], 0, 64)
}

func (h *header) constant(name string) (uint64, bool) {
	for _, c := range h.constants {
		if "DIVVY_"+c.name == name {
			return c.value, true
		}
	}
	return 0, false
}

func (h *header) structure(name string) *structure {
	for i := range h.structs {
		if h.structs[i].name == name {
			return &h.structs[i]
		}
	}
	return nil
}

func (h *header) addField(s *structure, line string) error {
	m := fieldLine.FindStringSubmatch(line)
	if m == nil {
		return fmt.Errorf("not a field: %q", line)
	}
	f := field{name: m[3], base: m[2], comment: m[5]}
	align := scalars[m[2]]
	f.size = align
	if m[1] != "" {
		inner := h.structure(m[1])
		if inner == nil {
			return fmt.Errorf("struct divvy_%s is not known yet", m[1])
		}
		f.base, f.size, align = m[1], inner.size, inner.align
	}
	if align == 0 {
		return fmt.Errorf("%q is not a fixed-width type", m[2])
	}
	if strings.Contains(f.name, "_") {
		return fmt.Errorf("field %s has an underscore", f.name)
	}
	if m[4] != "" {
		n, ok := h.constant(m[4])
		if !ok {
			var err error
			if n, err = number(m[4]); err != nil {
				return err
			}
		}
		f.count = int(n)
		f.size *= f.count
	}
	f.offset = (s.size + align - 1) / align * align
	if f.offset != s.size {
		return fmt.Errorf("%d bytes of padding before %s", f.offset-s.size, f.name)
	}
	s.size = f.offset + f.size
	s.align = max(s.align, align)
	s.fields = append(s.fields, f)
	return nil
}

func (s *structure) close() {
	s.size = (s.size + s.align - 1) / s.align * s.align
}

// check compares an assertion of the header with our layout.
func (h *header) check(line string) error {
	if m := sizeCheck.FindStringSubmatch(line); m != nil {
		named, ok := h.constant(m[2])
		want := int(named)
		if !ok {
			var err error
			if want, err = sum(m[2]); err != nil {
				return err
			}
		}
		if s := h.structure(m[1]); s == nil || s.size != want {
			return fmt.Errorf("struct divvy_%s does not have %d bytes", m[1], want)
		}
		return nil
	}
	if m := placeCheck.FindStringSubmatch(line); m != nil {
		if s := h.structure(m[1]); s != nil {
			for _, f := range s.fields {
				if f.name == m[2] && strconv.Itoa(f.offset) == m[3] {
					return nil
				}
			}
		}
		return fmt.Errorf("struct divvy_%s has no %s at %s", m[1], m[2], m[3])
	}
	if m := limitCheck.FindStringSubmatch(line); m != nil {
		limit, ok := h.constant("DIVVY_" + m[2])
		if s := h.structure(m[1]); !ok || s == nil || uint64(s.size) > limit {
			return fmt.Errorf("struct divvy_%s does not fit DIVVY_%s", m[1], m[2])
		}
		return nil
	}
	return fmt.Errorf("assertion not understood: %q", line)
}

// sum evaluates a + b * c.
func sum(expression string) (int, error) {
	total := 0
	for _, term := range strings.Split(expression, "+") {
		product := 1
		for _, factor := range strings.Split(term, "*") {
			n, err := strconv.Atoi(strings.TrimSpace(factor))
			if err != nil {
				return 0, err
			}
			product *= n
		}
		total += product
	}
	return total, nil
}
