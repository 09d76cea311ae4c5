// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

var rounds = []string{"rn", "rz", "rm", "rp"}

// floatFamilies are the arithmetic and comparisons of floating point, where PTX
// says each bit. In C a rounding is its place in rounds; the two numbers after
// it are .ftz and .sat.
func floatFamilies() []family {
	var found []family
	add := func(name string, templates ...template) { found = append(found, family{name, templates}) }
	number := map[bool]int{true: 1}
	for _, t := range []string{"f32", "f64"} {
		k := f32
		modifiers := []string{"", ".ftz", ".sat", ".ftz.sat"}
		if t == "f64" {
			k, modifiers = f64, []string{""}
		}
		var arithmetic, fma, divide []template
		for r, round := range rounds {
			for _, modifier := range modifiers {
				ftz, sat := number[len(modifier) > 1 && modifier[1] == 'f'], number[len(modifier) > 3 && modifier[len(modifier)-3:] == "sat"]
				how := fmt.Sprintf("%d, %d, %d", r, ftz, sat)
				for _, name := range []string{"add", "sub", "mul"} {
					arithmetic = append(arithmetic, one(name+"."+round+modifier+"."+t, t+"_"+name+"($a, $b, "+how+")", k, k, k))
				}
				fma = append(fma, one("fma."+round+modifier+"."+t, t+"_fma($a, $b, $c, "+how+")", k, k, k, k))
				fma = append(fma, one("mad."+round+modifier+"."+t, t+"_fma($a, $b, $c, "+how+")", k, k, k, k))
				if sat == 1 {
					continue
				}
				divide = append(divide,
					one("div."+round+modifier+"."+t, t+"_div($a, $b, "+how+")", k, k, k),
					inRegisters(one("sqrt."+round+modifier+"."+t, t+"_sqrt($a, "+how+")", k, k)),
					inRegisters(one("rcp."+round+modifier+"."+t, t+"_rcp($a, "+how+")", k, k)))
			}
		}
		add(t+" add", arithmetic...)
		add(t+" fma", fma...)
		add(t+" div", divide...)
		add(t+" sign", floatSigns(t, k)...)
		add(t+" setp", floatCompares(t, k)...)
		add(t+" select", inRegisters(one("selp."+t, "($c ? $a : $b)", k, k, k, pred)),
			one("slct."+t+".s32", "((s32)$c >= 0 ? $a : $b)", k, k, k, b32),
			inRegisters(one("slct."+t+".f32", "(f32_compare(CMP_GE, $c, 0, 0) ? $a : $b)", k, k, k, f32)))
	}
	add("f16", halves()...)
	add("f32x2", twos()...)
	add("mixed", mixed()...)
	return found
}

// twos are pairs of f32 in one register: each half is what the instruction of one is.
func twos() []template {
	var found []template
	for r, round := range rounds {
		for ftz, modifier := range []string{"", ".ftz"} {
			how := fmt.Sprintf("%d, %d, 0", r, ftz)
			for _, name := range []string{"add", "sub", "mul"} {
				found = append(found, inRegisters(template{
					ptx:  "{ .reg .b64 %x, %y; mov.b64 %x, {$a, $b}; mov.b64 %y, {$b, $c}; " + name + "." + round + modifier + ".f32x2 %x, %x, %y; mov.b64 {$d, $e}, %x; }",
					c:    []string{"f32_" + name + "($a, $b, " + how + ")", "f32_" + name + "($b, $c, " + how + ")"},
					outs: []kind{f32, f32}, ins: []kind{f32, f32, f32}}))
			}
			found = append(found, inRegisters(template{
				ptx:  "{ .reg .b64 %x, %y, %z; mov.b64 %x, {$a, $b}; mov.b64 %y, {$b, $c}; mov.b64 %z, {$c, $a}; fma." + round + modifier + ".f32x2 %x, %x, %y, %z; mov.b64 {$d, $e}, %x; }",
				c:    []string{"f32_fma($a, $b, $c, " + how + ")", "f32_fma($b, $c, $a, " + how + ")"},
				outs: []kind{f32, f32}, ins: []kind{f32, f32, f32}}))
		}
	}
	return found
}

// mixed are sums of an f32 and a half, which is an f32 before anything else.
func mixed() []template {
	var found []template
	for _, half := range []kind{f16, bf16} {
		name := map[kind]string{f16: "f16", bf16: "bf16"}[half]
		wide := func(operand string) string {
			return map[kind]string{f16: "f32_round(f16_value($" + operand + "), 0, 0, 0)", bf16: "((u32)$" + operand + " << 16)"}[half]
		}
		for r, round := range rounds {
			for sat, modifier := range []string{"", ".sat"} {
				how := fmt.Sprintf("%d, 0, %d", r, sat)
				for _, operation := range []string{"add", "sub"} {
					found = append(found, inRegisters(one(operation+"."+round+modifier+".f32."+name,
						"f32_"+operation+"("+wide("a")+", $b, "+how+")", f32, half, f32)))
				}
				found = append(found, inRegisters(one("fma."+round+modifier+".f32."+name,
					"f32_fma("+wide("a")+", "+wide("b")+", $c, "+how+")", f32, half, half, f32)))
			}
		}
	}
	return found
}

func floatSigns(t string, k kind) []template {
	found := []template{
		inRegisters(one("abs."+t, t+"_abs($a, 0)", k, k)),
		inRegisters(one("neg."+t, t+"_neg($a, 0)", k, k)),
		signed("copysign."+t, t, fmt.Sprintf("%s_copysign(%s_canonical($a), %s_canonical($b))", t, t, t), k),
	}
	for i, name := range []string{"min", "max"} {
		found = append(found, one(name+"."+t, fmt.Sprintf("%s_extreme($a, $b, %d, 0, 0, 0)", t, i), k, k, k))
		if k == f32 {
			found = append(found,
				one(name+".ftz.f32", fmt.Sprintf("f32_extreme($a, $b, %d, 1, 0, 0)", i), k, k, k),
				one(name+".NaN.f32", fmt.Sprintf("f32_extreme($a, $b, %d, 0, 1, 0)", i), k, k, k),
				one(name+".ftz.NaN.f32", fmt.Sprintf("f32_extreme($a, $b, %d, 1, 1, 0)", i), k, k, k),
				signed(name+".xorsign.abs.f32", t, fmt.Sprintf("f32_extreme(f32_canonical($a), f32_canonical($b), %d, 0, 0, 1)", i), k))
		}
	}
	if k == f32 {
		found = append(found,
			inRegisters(one("abs.ftz.f32", "f32_abs($a, 1)", k, k)),
			inRegisters(one("neg.ftz.f32", "f32_neg($a, 1)", k, k)))
	}
	return found
}

// signed is an instruction that looks at signs: that of a NaN belongs to what
// is nobody's business, so both operands have theirs made the same first.
func signed(instruction, t, c string, k kind) template {
	nan := map[kind]string{f32: "0f7FFFFFFF", f64: "0d7FFFFFFFFFFFFFFF"}[k]
	return inRegisters(template{
		ptx: fmt.Sprintf("setp.nan.%s $t, $a, $a; selp.%s $d, %s, $a, $t; setp.nan.%s $t, $b, $b; selp.%s $e, %s, $b, $t; %s $d, $d, $e;",
			t, t, nan, t, t, nan, instruction),
		c: []string{c, fmt.Sprintf("%s_canonical($b)", t)}, outs: []kind{k, k}, ins: []kind{k, k}})
}

func floatCompares(t string, k kind) []template {
	var found []template
	names := []string{"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}
	for i, name := range names {
		for ftz, modifier := range []string{"", ".ftz"} {
			if ftz == 1 && k != f32 {
				continue
			}
			compare := fmt.Sprintf("%s_compare(%d, $a, $b, %d)", t, i, ftz)
			found = append(found,
				one("setp."+name+modifier+"."+t, compare, pred, k, k),
				one("set."+name+modifier+".u32."+t, "("+compare+" ? 0xffffffffu : 0)", b32, k, k),
				one("set."+name+modifier+".f32."+t, "("+compare+" ? 0x3f800000u : 0)", f32, k, k))
			for operation, sign := range pairs("and", "&", "or", "|", "xor", "^") {
				found = append(found, inRegisters(template{ptx: "setp." + name + "." + operation + modifier + "." + t + " $d|$e, $a, $b, $c;",
					c:    []string{"(" + compare + " " + sign + " $c)", "(!" + compare + " " + sign + " $c)"},
					outs: []kind{pred, pred}, ins: []kind{k, k, pred}}))
			}
		}
	}
	for i, name := range []string{"finite", "infinite", "number", "notanumber", "normal", "subnormal"} {
		found = append(found, inRegisters(one("testp."+name+"."+t, fmt.Sprintf("%s_test(%d, $a)", t, i), pred, k)))
	}
	return found
}

// halves are the 16-bit floats, alone and in pairs. Their sums and products are
// exact in the type that C works them out in, and are rounded once.
func halves() []template {
	var found []template
	for _, t := range []string{"f16", "bf16"} {
		k := f16
		if t == "bf16" {
			k = bf16
		}
		found = append(found,
			inRegisters(one("fma.rn."+t, t+"_fma($a, $b, $c, 0, 0, 0)", k, k, k, k)),
			inRegisters(one("fma.rn.relu."+t, t+"_fma($a, $b, $c, 0, 0, 1)", k, k, k, k)),
			inRegisters(one("fma.rn.oob."+t, "($a == 0xffff || $b == 0xffff ? 0 : "+t+"_fma($a, $b, $c, 0, 0, 0))", k, k, k, k)),
			inRegisters(one("abs."+t, "(u16)($a & 0x7fff)", k, k)),
			inRegisters(one("neg."+t, "(u16)($a ^ 0x8000)", k, k)))
		for i, name := range []string{"min", "max"} {
			found = append(found,
				inRegisters(one(name+"."+t, fmt.Sprintf("%s_extreme($a, $b, %d, 0)", t, i), k, k, k)),
				inRegisters(one(name+".NaN."+t, fmt.Sprintf("%s_extreme($a, $b, %d, 1)", t, i), k, k, k)))
		}
	}
	for ftz, modifier := range []string{"", ".ftz"} {
		for sat, saturate := range []string{"", ".sat"} {
			how := fmt.Sprintf("%d, %d", ftz, sat)
			for i, name := range []string{"add", "sub", "mul"} {
				found = append(found,
					inRegisters(one(name+".rn"+modifier+saturate+".f16", fmt.Sprintf("f16_arithmetic(%d, $a, $b, %s)", i, how), f16, f16, f16)),
					inRegisters(one(name+".rn"+modifier+saturate+".f16x2",
						fmt.Sprintf("PAIR2(f16_arithmetic(%d, LOW($a), LOW($b), %s), f16_arithmetic(%d, HIGH($a), HIGH($b), %s))", i, how, i, how),
						f16x2, f16x2, f16x2)))
			}
			found = append(found, inRegisters(one("fma.rn"+modifier+saturate+".f16x2",
				"PAIR2(f16_fma(LOW($a), LOW($b), LOW($c), "+how+", 0), f16_fma(HIGH($a), HIGH($b), HIGH($c), "+how+", 0))",
				f16x2, f16x2, f16x2, f16x2)))
		}
	}
	for i, name := range []string{"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"} {
		found = append(found, inRegisters(one("setp."+name+".f16", fmt.Sprintf("f16_compare(%d, $a, $b)", i), pred, f16, f16)))
		found = append(found, inRegisters(template{ptx: "setp." + name + ".f16x2 $d|$e, $a, $b;", outs: []kind{pred, pred}, ins: []kind{f16x2, f16x2},
			c: []string{fmt.Sprintf("f16_compare(%d, LOW($a), LOW($b))", i), fmt.Sprintf("f16_compare(%d, HIGH($a), HIGH($b))", i)}}))
	}
	return found
}
