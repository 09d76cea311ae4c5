// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

const (
	// stepsLeast and stepsMost bound the instructions of one kernel.
	stepsLeast, stepsMost = 8, 24
	// valuesMost is how many values the harness has room for, per thread.
	valuesMost = 96
	// inputWords is what each thread gets: 8 bytes each, see loads.
	inputWords = 12
)

// loads are the values that a kernel begins with, from words of its input.
var loads = []kind{b64, b64, b32, b32, b16, f32, f32, f64, f64, f16, f16x2, bf16}

// value is one register, assigned once but for guards and loops.
type value struct {
	kind kind
	text string // the instruction that made it, for messages
}

// kernel is a random program under construction, in both languages.
type kernel struct {
	name      string
	random    *rand.Rand
	values    []value
	functions strings.Builder // PTX functions that it calls
	cFuncs    strings.Builder
	ptx, c    strings.Builder
	labels    int
	called    int
}

// newKernel generates one.
func newKernel(name string, random *rand.Rand, all []family) *kernel {
	k := &kernel{name: name, random: random}
	for i, kd := range loads {
		v := k.value(kd, "input")
		fmt.Fprintf(&k.ptx, "\tld.global.%s %s, [%%in+%d];\n", kindFacts[kd].load, reg(v), i*8)
		fmt.Fprintf(&k.c, "\t%s = (%s)in[%d];\n", cvar(v), kindFacts[kd].c, i)
	}
	for _, compare := range []string{"lt", "ne"} {
		v := k.value(pred, "setp."+compare)
		fmt.Fprintf(&k.ptx, "\tsetp.%s.s32 %s, %s, 77;\n", compare, reg(v), reg(2+v%2))
		fmt.Fprintf(&k.c, "\t%s = (s32)%s %s 77;\n", cvar(v), cvar(2+v%2), map[string]string{"lt": "<", "ne": "!="}[compare])
	}
	steps := stepsLeast + random.IntN(stepsMost-stepsLeast+1)
	for range steps {
		f := all[random.IntN(len(all))]
		k.step(f.templates[random.IntN(len(f.templates))])
	}
	return k
}

func (k *kernel) value(kd kind, text string) int {
	k.values = append(k.values, value{kd, text})
	return len(k.values) - 1
}

func reg(v int) string  { return fmt.Sprintf("%%v%d", v) }
func cvar(v int) string { return fmt.Sprintf("v%d", v) }

// pick chooses an existing value of a kind; later ones are likelier.
func (k *kernel) pick(kd kind) int {
	var found []int
	for i, v := range k.values {
		if v.kind == kd {
			found = append(found, i)
		}
	}
	if n := len(found); n > 3 && k.random.IntN(2) == 0 {
		found = found[n-3:]
	}
	return found[k.random.IntN(len(found))]
}

// operand is a value, or sometimes a constant, in PTX and in C.
func (k *kernel) operand(kd kind, registers bool) (string, string) {
	if registers || k.random.IntN(6) != 0 {
		v := k.pick(kd)
		return reg(v), cvar(v)
	}
	bits := interesting(k.random, kd)
	switch kd {
	case b16:
		return fmt.Sprintf("%d", uint16(bits)), fmt.Sprintf("((u16)%du)", uint16(bits))
	case b32:
		if k.random.IntN(2) == 0 {
			return fmt.Sprintf("%d", int32(bits)), fmt.Sprintf("((u32)%#xu)", uint32(bits))
		}
		return fmt.Sprintf("%#x", uint32(bits)), fmt.Sprintf("((u32)%#xu)", uint32(bits))
	case b64:
		return fmt.Sprintf("%#x", bits), fmt.Sprintf("((u64)%#xull)", bits)
	case f32:
		return fmt.Sprintf("0f%08X", uint32(bits)), fmt.Sprintf("((u32)%#xu)", uint32(bits))
	case f64:
		return fmt.Sprintf("0d%016X", bits), fmt.Sprintf("((u64)%#xull)", bits)
	}
	v := k.pick(kd)
	return reg(v), cvar(v)
}

// interesting are bits of a kind that tend to matter.
func interesting(r *rand.Rand, kd kind) uint64 {
	var choices []uint64
	switch kd {
	case f32:
		choices = []uint64{0, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 1, 0x807fffff, 0x7f7fffff, 0x3f000000, 0x40490fdb, 0x4f000000}
	case f64:
		choices = []uint64{0, 1 << 63, 0x3ff0000000000000, 0xbff0000000000000, 0x7ff0000000000000, 1, 0x7fefffffffffffff,
			0x3fe0000000000000, 0x400921fb54442d18, 0x43e0000000000000, 0x41dfffffffe00000}
	default:
		choices = []uint64{0, 1, 2, 3, 7, 15, 31, 32, 33, 63, 64, 255, 0x7fff, 0x8000, 0x7fffffff, 0x80000000, 0xffffffff, 1 << 63, ^uint64(0)}
	}
	if r.IntN(3) == 0 {
		return r.Uint64()
	}
	return choices[r.IntN(len(choices))]
}

// fill puts operands into a pattern.
func fill(pattern string, with map[string]string) string {
	var text strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '$' {
			text.WriteByte(pattern[i])
			continue
		}
		i++
		text.WriteString(with[pattern[i:i+1]])
	}
	return text.String()
}

// step adds an instruction: as it is, under a guard, in a branch, in a loop or
// in a function.
func (k *kernel) step(t template) {
	if len(k.values)+2 > valuesMost {
		return
	}
	ptx := map[string]string{"m": "%local", "s": "%shared", "g": "%generic", "t": "%scratch"}
	c := map[string]string{}
	for i, kd := range t.ins {
		letter := "abc"[i : i+1]
		// an instruction has one constant at most, and not as its first operand
		ptx[letter], c[letter] = k.operand(kd, t.registers || i != len(t.ins)-1 || i == 0)
	}
	form := k.random.IntN(8)
	single := len(t.outs) == 1 && t.outs[0] != pred
	var guard, initial int
	if single {
		guard, initial = k.pick(pred), k.pick(t.outs[0])
	}
	made := make([]int, len(t.outs))
	for i, kd := range t.outs {
		made[i] = k.value(kd, "")
		ptx["de"[i:i+1]] = reg(made[i])
	}
	instruction := fill(t.ptx, ptx)
	expressions := make([]string, len(t.c))
	for i, pattern := range t.c {
		expressions[i] = fill(pattern, c)
	}
	for _, v := range made {
		k.values[v].text = instruction
	}
	d := made[0]
	switch {
	case single && form == 0 && !strings.Contains(t.ptx, "; "): // guarded
		k.move(d, initial)
		fmt.Fprintf(&k.ptx, "\t@%s %s\n", reg(guard), instruction)
		fmt.Fprintf(&k.c, "\tif (%s)\n\t\t%s = %s;\n", cvar(guard), cvar(d), expressions[0])
	case single && form == 1: // in a branch
		k.labels++
		k.move(d, initial)
		fmt.Fprintf(&k.ptx, "\t@!%s bra $L%d;\n\t%s\n$L%d:\n", reg(guard), k.labels, instruction, k.labels)
		fmt.Fprintf(&k.c, "\tif (%s)\n\t\t%s = %s;\n", cvar(guard), cvar(d), expressions[0])
	case single && form == 2 && t.ins[0] == t.outs[0] && !strings.Contains(t.ptx, "; "): // some times over, another number in each thread
		k.labels++
		k.move(d, initial)
		count := k.pick(b32)
		ptx["a"], c["a"] = reg(d), cvar(d)
		fmt.Fprintf(&k.ptx, "\tand.b32 %%count, %s, 7;\n$B%d:\n\tsetp.eq.u32 %%done, %%count, 0;\n\t@%%done bra $L%d;\n\t%s\n"+
			"\tsub.u32 %%count, %%count, 1;\n\tbra $B%d;\n$L%d:\n", reg(count), k.labels, k.labels, fill(t.ptx, ptx), k.labels, k.labels)
		fmt.Fprintf(&k.c, "\tfor (u32 count = %s & 7; count > 0; count--)\n\t\t%s = %s;\n", cvar(count), cvar(d), fill(t.c[0], c))
	case single && form == 3 && k.callable(t):
		k.call(t, d, ptx, c)
	default:
		fmt.Fprintf(&k.ptx, "\t%s\n", instruction)
		for i, v := range made {
			fmt.Fprintf(&k.c, "\t%s = %s;\n", cvar(v), expressions[i])
		}
	}
}

func (k *kernel) move(to, from int) {
	fmt.Fprintf(&k.ptx, "\tmov%s %s, %s;\n", kindFacts[k.values[to].kind].reg, reg(to), reg(from))
	fmt.Fprintf(&k.c, "\t%s = %s;\n", cvar(to), cvar(from))
}

// callable: its operands are in registers of 32 bits or more, and it uses no
// memory of the kernel.
func (k *kernel) callable(t template) bool {
	for _, kd := range append([]kind{t.outs[0]}, t.ins...) {
		if kd == pred || kindFacts[kd].bytes < 4 {
			return false
		}
	}
	return !strings.ContainsAny(t.ptx, "[") && !strings.Contains(t.ptx, "$t")
}

// call wraps the instruction in a function of its own.
func (k *kernel) call(t template, d int, ptx, c map[string]string) {
	k.called++
	name := fmt.Sprintf("%s_f%d", k.name, k.called)
	inside, insideC := map[string]string{"d": "%d"}, map[string]string{}
	var parameters, loads, stores, names, cParameters, cArguments []string
	for i, kd := range t.ins {
		letter := "abc"[i : i+1]
		inside[letter], insideC[letter] = "%"+letter, letter
		width := fmt.Sprintf(".b%d", kindFacts[kd].bytes*8)
		parameters = append(parameters, fmt.Sprintf(".param %s %s_%s", width, name, letter))
		loads = append(loads, fmt.Sprintf("\t.reg %s %%%s;\n\tld.param%s %%%s, [%s_%s];\n", kindFacts[kd].reg, letter, kindFacts[kd].reg, letter, name, letter))
		stores = append(stores, fmt.Sprintf("\t.param %s p%s;\n\tst.param%s [p%s], %s;\n", width, letter, kindFacts[kd].reg, letter, ptx[letter]))
		names = append(names, "p"+letter)
		cParameters = append(cParameters, kindFacts[kd].c+" "+letter)
		cArguments = append(cArguments, c[letter])
	}
	out := kindFacts[t.outs[0]]
	width := fmt.Sprintf(".b%d", out.bytes*8)
	fmt.Fprintf(&k.functions, ".func (.param %s %s_r) %s(%s)\n{\n\t.reg %s %%d;\n%s\t%s\n\tst.param%s [%s_r], %%d;\n\tret;\n}\n",
		width, name, name, strings.Join(parameters, ", "), out.reg, strings.Join(loads, ""), fill(t.ptx, inside), out.reg, name)
	fmt.Fprintf(&k.ptx, "\t{\n%s\t.param %s pr;\n\tcall.uni (pr), %s, (%s);\n\tld.param%s %s, [pr];\n\t}\n",
		strings.Join(stores, ""), width, name, strings.Join(names, ", "), out.reg, reg(d))
	fmt.Fprintf(&k.cFuncs, "static %s %s(%s)\n{\n\treturn %s;\n}\n", out.c, name, strings.Join(cParameters, ", "), fill(t.c[0], insideC))
	fmt.Fprintf(&k.c, "\t%s = %s(%s);\n", cvar(d), name, strings.Join(cArguments, ", "))
}
