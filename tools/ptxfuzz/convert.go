// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// convertFamilies are cvt of all kinds. Values go through a floating point type
// that holds each of them, and are rounded once.
func convertFamilies() []family {
	var ints, fromInts, toInts, floats, whole, packed []template
	for _, to := range []int{8, 16, 32, 64} {
		for _, from := range []int{8, 16, 32, 64} {
			for _, d := range []string{"u", "s"} {
				for _, s := range []string{"u", "s"} {
					out, in := integer(max(to, 16)), integer(max(from, 16))
					name := fmt.Sprintf("%s%d.%s%d", d, to, s, from)
					ints = append(ints, inRegisters(one("cvt."+name, fmt.Sprintf("(%s)(%s%d)(%s%d)$a", kindFacts[out].c, d, to, s, from), out, in)))
					ints = append(ints, inRegisters(one("cvt.sat."+name, fmt.Sprintf("(%s)saturate_%s%d((%s%d)$a)", kindFacts[out].c, d, to, s, from), out, in)))
				}
			}
		}
	}
	types := []struct {
		name string
		kind kind
	}{{"f16", f16}, {"f32", f32}, {"f64", f64}}
	for _, bits := range []int{8, 16, 32, 64} {
		for _, sign := range []string{"u", "s"} {
			t, k := fmt.Sprintf("%s%d", sign, bits), integer(max(bits, 16))
			for _, f := range types {
				for r, round := range rounds {
					fromInts = append(fromInts, inRegisters(one("cvt."+round+"."+f.name+"."+t,
						fmt.Sprintf("%s_round((wide)(%s)$a, %d, 0, 0)", f.name, t, r), f.kind, k)))
					toInts = append(toInts, inRegisters(one("cvt."+round+"i."+t+"."+f.name,
						fmt.Sprintf("(%s)%s_to_int($a, %d, %d, %t, 0)", kindFacts[k].c, f.name, r, bits, sign == "s"), k, f.kind)))
				}
				if f.kind == f32 {
					toInts = append(toInts, inRegisters(one("cvt.rzi.ftz."+t+".f32",
						fmt.Sprintf("(%s)f32_to_int($a, 1, %d, %t, 1)", kindFacts[k].c, bits, sign == "s"), k, f32)))
				}
			}
		}
	}
	for r, round := range rounds {
		floats = append(floats,
			inRegisters(one("cvt."+round+".f32.f64", fmt.Sprintf("f32_round(f64_value($a), %d, 0, 0)", r), f32, f64)),
			inRegisters(one("cvt."+round+".ftz.f32.f64", fmt.Sprintf("f32_round(f64_value($a), %d, 1, 0)", r), f32, f64)),
			inRegisters(one("cvt."+round+".sat.f32.f64", fmt.Sprintf("f32_round(f64_value($a), %d, 0, 1)", r), f32, f64)),
			inRegisters(one("cvt."+round+".f16.f32", fmt.Sprintf("f16_round(f32_value($a), %d, 0, 0)", r), f16, f32)),
			inRegisters(one("cvt."+round+".f16.f64", fmt.Sprintf("f16_round(f64_value($a), %d, 0, 0)", r), f16, f64)))
		for _, t := range types {
			whole = append(whole, inRegisters(one("cvt."+round+"i."+t.name+"."+t.name,
				fmt.Sprintf("%s_whole($a, %d, 0, 0)", t.name, r), t.kind, t.kind)))
		}
		whole = append(whole,
			inRegisters(one("cvt."+round+"i.ftz.f32.f32", fmt.Sprintf("f32_whole($a, %d, 1, 0)", r), f32, f32)),
			inRegisters(one("cvt."+round+"i.sat.f32.f32", fmt.Sprintf("f32_whole($a, %d, 0, 1)", r), f32, f32)))
	}
	floats = append(floats,
		inRegisters(one("cvt.f64.f32", "f64_round(f32_value($a), 0, 0, 0)", f64, f32)),
		inRegisters(one("cvt.ftz.f64.f32", "f64_round(f32_value(f32_flush($a)), 0, 0, 0)", f64, f32)),
		inRegisters(one("cvt.f32.f16", "f32_round(f16_value($a), 0, 0, 0)", f32, f16)),
		inRegisters(one("cvt.sat.f32.f16", "f32_round(f16_value($a), 0, 0, 1)", f32, f16)),
		inRegisters(one("cvt.f64.f16", "f64_round(f16_value($a), 0, 0, 0)", f64, f16)),
		inRegisters(one("cvt.sat.f32.f32", "f32_round(f32_value($a), 0, 0, 1)", f32, f32)),
		inRegisters(one("cvt.ftz.f32.f32", "f32_round(f32_value(f32_flush($a)), 0, 1, 0)", f32, f32)))
	packed = append(packed,
		inRegisters(one("cvt.rn.bf16.f32", "bf16_round(f32_value($a), 0, 0)", bf16, f32)),
		inRegisters(one("cvt.rz.bf16.f32", "bf16_round(f32_value($a), 1, 0)", bf16, f32)),
		inRegisters(one("cvt.rn.relu.bf16.f32", "bf16_round(f32_value($a), 0, 1)", bf16, f32)),
		inRegisters(one("cvt.rn.f16x2.f32", "PAIR2(f16_round(f32_value($b), 0, 0, 0), f16_round(f32_value($a), 0, 0, 0))", f16x2, f32, f32)),
		inRegisters(one("cvt.rz.f16x2.f32", "PAIR2(f16_round(f32_value($b), 1, 0, 0), f16_round(f32_value($a), 1, 0, 0))", f16x2, f32, f32)))
	for _, relu := range []string{"", ".relu"} {
		in := map[string]string{"": "0", ".relu": "1"}[relu]
		packed = append(packed,
			inRegisters(template{ptx: "{ .reg .b32 %x; cvt.rn" + relu + ".bf16x2.f32 %x, $a, $b; mov.b32 {$d, $e}, %x; }",
				c:    []string{"bf16_round(f32_value($b), 0, " + in + ")", "bf16_round(f32_value($a), 0, " + in + ")"},
				outs: []kind{bf16, bf16}, ins: []kind{f32, f32}}))
	}
	return []family{{"cvt ints", ints}, {"cvt from ints", fromInts}, {"cvt to ints", toInts}, {"cvt floats", floats},
		{"cvt whole", whole}, {"cvt packed", packed}}
}
