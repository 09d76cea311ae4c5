// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// kind is what a value is: a register class in PTX, raw bits in C.
type kind byte

const (
	b16 kind = iota // integers have no sign in registers
	b32
	b64
	f16
	f16x2
	bf16
	f32
	f64
	pred
	kinds
)

// kindFacts says how a kind is written: register type, C type of its bits, the
// letter by which the harness compares (NaNs of one kind are all equal).
var kindFacts = [kinds]struct {
	reg, c, load, letter string
	bytes                int
}{
	b16:   {".b16", "u16", "b16", "i", 2},
	b32:   {".b32", "u32", "b32", "i", 4},
	b64:   {".b64", "u64", "b64", "i", 8},
	f16:   {".b16", "u16", "b16", "h", 2},
	f16x2: {".b32", "u32", "b32", "x", 4},
	bf16:  {".b16", "u16", "b16", "b", 2},
	f32:   {".f32", "u32", "f32", "f", 4},
	f64:   {".f64", "u64", "f64", "d", 8},
	pred:  {".pred", "u32", "pred", "i", 4},
}

// template is one instruction, or a few that belong together. In ptx and c the
// letters after $ stand for values: d and e are made, a, b and c are used; $m,
// $s and $g are places in local, shared and generic memory; $t is a scratch
// predicate. c gives one expression for each result.
type template struct {
	ptx  string
	c    []string
	outs []kind
	ins  []kind
	// registers says that operands must be in registers, not immediate.
	registers bool
}

// pairs are names and what is written for each in C, in this order: a map's order
// differs from run to run, and with it the case of a seed.
func pairs(texts ...string) iter.Seq2[string, string] {
	return func(yield func(name, c string) bool) {
		for pair := range slices.Chunk(texts, 2) {
			if !yield(pair[0], pair[1]) {
				return
			}
		}
	}
}

// family is a group of templates that is as likely as any other group.
type family struct {
	name      string
	templates []template
}

// one makes a template with one result; the PTX gets its operands from ins.
func one(instruction, c string, out kind, ins ...kind) template {
	operands := []string{"$d"}
	for i := range ins {
		operands = append(operands, "$"+string("abc"[i]))
	}
	return template{ptx: instruction + " " + strings.Join(operands, ", ") + ";", c: []string{c}, outs: []kind{out}, ins: ins}
}

// inRegisters forbids immediate operands.
func inRegisters(t template) template {
	t.registers = true
	return t
}

// integer is b16, b32 or b64.
func integer(bits int) kind {
	switch bits {
	case 16:
		return b16
	case 32:
		return b32
	case 64:
		return b64
	}
	panic(fmt.Sprintf("no integers of %d bits", bits))
}

// families lists all that is generated.
func families() []family {
	return append(append(append(integerFamilies(), floatFamilies()...), convertFamilies()...), moveFamilies()...)
}
