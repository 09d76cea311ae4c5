// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// moveFamilies take values apart, put them together, and bring them through
// memory in pieces of another size. A thread's place in each memory has 16 bytes.
func moveFamilies() []family {
	packs := []template{
		inRegisters(template{ptx: "mov.b64 $d, {$a, $b};", c: []string{"((u64)$b << 32 | $a)"}, outs: []kind{b64}, ins: []kind{b32, b32}}),
		inRegisters(template{ptx: "mov.b32 $d, {$a, $b};", c: []string{"((u32)$b << 16 | $a)"}, outs: []kind{b32}, ins: []kind{b16, b16}}),
		inRegisters(template{ptx: "mov.b32 $d, {$a, $b};", c: []string{"((u32)$b << 16 | $a)"}, outs: []kind{f16x2}, ins: []kind{f16, f16}}),
		inRegisters(template{ptx: "mov.b64 $d, {$a, $b, $c, $a};", outs: []kind{b64}, ins: []kind{b16, b16, b16},
			c: []string{"((u64)$a << 48 | (u64)$c << 32 | (u64)$b << 16 | $a)"}}),
		inRegisters(template{ptx: "mov.b64 {$d, $e}, $a;", c: []string{"(u32)$a", "(u32)($a >> 32)"}, outs: []kind{b32, b32}, ins: []kind{b64}}),
		inRegisters(template{ptx: "mov.b32 {$d, $e}, $a;", c: []string{"(u16)$a", "(u16)($a >> 16)"}, outs: []kind{b16, b16}, ins: []kind{b32}}),
		inRegisters(template{ptx: "mov.b32 {$d, $e}, $a;", c: []string{"(u16)$a", "(u16)($a >> 16)"}, outs: []kind{f16, f16}, ins: []kind{f16x2}}),
	}
	// Bits of floats: the payload of a NaN is nobody's business.
	bits := []template{
		inRegisters(one("mov.b32", "$a", f32, b32)),
		inRegisters(one("mov.b64", "$a", f64, b64)),
		inRegisters(one("mov.b16", "$a", f16, b16)),
		inRegisters(one("mov.b16", "$a", bf16, b16)),
		inRegisters(template{ptx: "setp.nan.f32 $t, $a, $a; mov.b32 $d, $a; selp.b32 $d, 0x7fffffff, $d, $t;",
			c: []string{"f32_canonical($a)"}, outs: []kind{b32}, ins: []kind{f32}}),
		inRegisters(template{ptx: "setp.nan.f64 $t, $a, $a; mov.b64 $d, $a; selp.b64 $d, 0x7fffffffffffffff, $d, $t;",
			c: []string{"f64_canonical($a)"}, outs: []kind{b64}, ins: []kind{f64}}),
		one("mov.u16", "$a", b16, b16), one("mov.u32", "$a", b32, b32), one("mov.s64", "$a", b64, b64),
		one("mov.f32", "$a", f32, f32), one("mov.f64", "$a", f64, f64),
	}
	var memory []template
	for _, place := range []struct{ space, letter string }{{".local", "$m"}, {".shared", "$s"}, {"", "$g"}} {
		store := func(t, value string) string {
			return fmt.Sprintf("st%s.%s [%s], %s; ", place.space, t, place.letter, value)
		}
		for at := range 8 {
			for _, sign := range []string{"u", "s"} {
				load := func(bits int, out kind) {
					memory = append(memory, inRegisters(template{
						ptx:  store("b64", "$a") + fmt.Sprintf("ld%s.%s%d $d, [%s+%d];", place.space, sign, bits, place.letter, at),
						c:    []string{fmt.Sprintf("(%s)(%s%d)($a >> %d)", kindFacts[out].c, sign, bits, at*8)},
						outs: []kind{out}, ins: []kind{b64}}))
				}
				load(8, b32)
				load(8, b16)
				if at%2 == 0 {
					load(16, b32)
					load(16, b16)
				}
				if at%4 == 0 {
					load(32, b64)
				}
			}
			memory = append(memory, inRegisters(template{
				ptx: store("b64", "$a") + fmt.Sprintf("st%s.b8 [%s+%d], $b; ld%s.b64 $d, [%s];", place.space, place.letter, at, place.space, place.letter),
				c:   []string{fmt.Sprintf("(($a & ~(0xffull << %d)) | (u64)(u8)$b << %d)", at*8, at*8)}, outs: []kind{b64}, ins: []kind{b64, b32}}))
		}
		memory = append(memory,
			inRegisters(template{ptx: store("v2.b32", "{$a, $b}") + fmt.Sprintf("ld%s.b64 $d, [%s];", place.space, place.letter),
				c: []string{"((u64)$b << 32 | $a)"}, outs: []kind{b64}, ins: []kind{b32, b32}}),
			inRegisters(template{ptx: store("v2.b64", "{$a, $b}") + fmt.Sprintf("ld%s.v2.b64 {$e, $d}, [%s];", place.space, place.letter),
				c: []string{"$b", "$a"}, outs: []kind{b64, b64}, ins: []kind{b64, b64}}),
			inRegisters(template{ptx: store("v4.b32", "{$a, $b, $c, $a}") + fmt.Sprintf("ld%s.v2.u64 {$d, $e}, [%s];", place.space, place.letter),
				c: []string{"((u64)$b << 32 | $a)", "((u64)$a << 32 | $c)"}, outs: []kind{b64, b64}, ins: []kind{b32, b32, b32}}),
			inRegisters(template{ptx: store("f32", "$a") + fmt.Sprintf("ld%s.f32 $d, [%s];", place.space, place.letter),
				c: []string{"$a"}, outs: []kind{f32}, ins: []kind{f32}}))
	}
	return []family{{"pack", packs}, {"bits", bits}, {"memory", memory}}
}
