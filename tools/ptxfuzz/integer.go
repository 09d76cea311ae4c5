// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// integerFamilies are the integer, bit and comparison instructions. In C the
// operands are unsigned; u16, s32 and the like are its types, u128 and s128 too.
func integerFamilies() []family {
	found := map[string][]template{}
	var order []string
	add := func(name string, t template) {
		if found[name] == nil {
			order = append(order, name)
		}
		found[name] = append(found[name], t)
	}
	for _, bits := range []int{16, 32, 64} {
		w := integer(bits)
		u, s := fmt.Sprintf("u%d", bits), fmt.Sprintf("s%d", bits)
		b := fmt.Sprintf("b%d", bits)
		for _, t := range []string{u, s} {
			wide := t[:1] + "128"
			// the operand as a value of its type
			x := func(operand string) string { return fmt.Sprintf("(%s)(%s)$%s", wide, t, operand) }
			add("add", one("add."+t, fmt.Sprintf("(%s)($a + $b)", u), w, w, w))
			add("sub", one("sub."+t, fmt.Sprintf("(%s)($a - $b)", u), w, w, w))
			add("mul", one("mul.lo."+t, fmt.Sprintf("(%s)((u64)$a * (u64)$b)", u), w, w, w))
			add("mul", one("mul.hi."+t, fmt.Sprintf("(%s)((%s * %s) >> %d)", u, x("a"), x("b"), bits), w, w, w))
			add("mad", one("mad.lo."+t, fmt.Sprintf("(%s)((u64)$a * (u64)$b + (u64)$c)", u), w, w, w, w))
			add("mad", one("mad.hi."+t, fmt.Sprintf("(%s)(((%s * %s) >> %d) + $c)", u, x("a"), x("b"), bits), w, w, w, w))
			if bits < 64 {
				d := integer(bits * 2)
				add("mul", one("mul.wide."+t, fmt.Sprintf("(u%d)(%s * %s)", bits*2, x("a"), x("b")), d, w, w))
				add("mad", one("mad.wide."+t, fmt.Sprintf("(u%d)(%s * %s + $c)", bits*2, x("a"), x("b")), d, w, w, d))
			}
			add("sad", one("sad."+t, fmt.Sprintf("(%s)(((%s)$a < (%s)$b ? $b - $a : $a - $b) + $c)", u, t, t), w, w, w, w))
			// neither 0 nor -1: what those give is not defined everywhere
			divisor := fmt.Sprintf("or.%s $d, $b, 1; and.%s $d, $d, -3; ", b, b)
			c := fmt.Sprintf("(%s)(($b | 1) & ~(%s)2)", t, u)
			for name, sign := range pairs("div", "/", "rem", "%") {
				add(name, template{ptx: divisor + name + "." + t + " $d, $a, $d;", outs: []kind{w}, ins: []kind{w, w},
					c: []string{fmt.Sprintf("(%s)(%s %s %s)", u, x("a"), sign, c)}})
			}
			for name, sign := range pairs("min", "<", "max", ">") {
				add("minmax", one(name+"."+t, fmt.Sprintf("((%s)$a %s (%s)$b ? $a : $b)", t, sign, t), w, w, w))
			}
			add("shift", one("shr."+t, fmt.Sprintf("(%s)shift_right_%s($a, $b)", u, t), w, w, b32))
			for name, sign := range pairs("eq", "==", "ne", "!=", "lt", "<", "le", "<=", "gt", ">", "ge", ">=") {
				compare := fmt.Sprintf("((%s)$a %s (%s)$b)", t, sign, t)
				add("setp", one("setp."+name+"."+t, compare, pred, w, w))
				compared(add, name, t, compare, w)
			}
			if bits == 16 {
				continue
			}
			add("bfe", one("bfe."+t, fmt.Sprintf("bfe_%s($a, $b, $c)", t), w, w, b32, b32))
			add("bfind", one("bfind."+t, fmt.Sprintf("bfind_%s($a, 0)", t), b32, w))
			add("bfind", one("bfind.shiftamt."+t, fmt.Sprintf("bfind_%s($a, 1)", t), b32, w))
		}
		for name, sign := range pairs("lo", "<", "ls", "<=", "hi", ">", "hs", ">=") {
			add("setp", one("setp."+name+"."+u, fmt.Sprintf("($a %s $b)", sign), pred, w, w))
		}
		add("setp", one("setp.eq."+b, "($a == $b)", pred, w, w))
		add("setp", one("setp.ne."+b, "($a != $b)", pred, w, w))
		add("sign", one("abs."+s, fmt.Sprintf("(%s)((%s)$a < 0 ? -$a : $a)", u, s), w, w))
		add("sign", one("neg."+s, fmt.Sprintf("(%s)(-$a)", u), w, w))
		for name, sign := range pairs("and", "&", "or", "|", "xor", "^") {
			add("logic", one(name+"."+b, fmt.Sprintf("(%s)($a %s $b)", u, sign), w, w, w))
		}
		add("not", one("not."+b, fmt.Sprintf("(%s)(~$a)", u), w, w))
		add("not", one("cnot."+b, fmt.Sprintf("(%s)($a == 0)", u), w, w))
		add("shift", one("shl."+b, fmt.Sprintf("(%s)($b >= %d ? 0 : (u64)$a << ($b & 63))", u, bits), w, w, b32))
		add("shift", one("shr."+b, fmt.Sprintf("(%s)shift_right_%s($a, $b)", u, u), w, w, b32))
		add("select", inRegisters(one("selp."+b, "($c ? $a : $b)", w, w, w, pred)))
		for _, t := range []string{"b", "u", "s"} {
			name := fmt.Sprintf("%s%d", t, bits)
			add("slct", one("slct."+name+".s32", "((s32)$c >= 0 ? $a : $b)", w, w, w, b32))
			add("slct", inRegisters(one("slct."+name+".f32", "(f32_compare(CMP_GE, $c, 0, 0) ? $a : $b)", w, w, w, f32)))
			add("slct", inRegisters(one("slct.ftz."+name+".f32", "(f32_compare(CMP_GE, $c, 0, 1) ? $a : $b)", w, w, w, f32)))
		}
		if bits == 16 {
			continue
		}
		add("count", one("popc."+b, "(u32)__builtin_popcountll($a)", b32, w))
		add("count", one("clz."+b, fmt.Sprintf("($a ? (u32)__builtin_clzll($a) - %d : %d)", 64-bits, bits), b32, w))
		add("count", one("brev."+b, fmt.Sprintf("(%s)(reverse($a) >> %d)", u, 64-bits), w, w))
		add("bfi", template{ptx: "bfi." + b + " $d, $a, $b, $c, 7;", outs: []kind{w}, ins: []kind{w, w, b32},
			c: []string{fmt.Sprintf("(%s)bfi($a, $b, $c, 7, %d)", u, bits)}})
		add("bfi", template{ptx: "bfi." + b + " $d, $a, $b, 5, $c;", outs: []kind{w}, ins: []kind{w, w, b32},
			c: []string{fmt.Sprintf("(%s)bfi($a, $b, 5, $c, %d)", u, bits)}})
		carries(add, bits)
	}
	only32(add)
	predicates(add)
	var result []family
	for _, name := range order {
		result = append(result, family{name, found[name]})
	}
	return result
}

// compared are set and setp with a second predicate.
func compared(add func(string, template), name, t, compare string, w kind) {
	add("set", one("set."+name+".u32."+t, "("+compare+" ? 0xffffffffu : 0)", b32, w, w))
	add("set", one("set."+name+".s32."+t, "("+compare+" ? 0xffffffffu : 0)", b32, w, w))
	add("set", one("set."+name+".f32."+t, "("+compare+" ? 0x3f800000u : 0)", f32, w, w))
	for operation, sign := range pairs("and", "&", "or", "|", "xor", "^") {
		add("setp.bool", inRegisters(one("setp."+name+"."+operation+"."+t, "("+compare+" "+sign+" $c)", pred, w, w, pred)))
		add("setp.bool", template{ptx: "setp." + name + "." + operation + "." + t + " $d|$e, $a, $b, $c;",
			c:    []string{"(" + compare + " " + sign + " $c)", "(!" + compare + " " + sign + " $c)"},
			outs: []kind{pred, pred}, ins: []kind{w, w, pred}, registers: true})
		add("setp.bool", inRegisters(template{ptx: "setp." + name + "." + operation + "." + t + " $d, $a, $b, !$c;",
			c: []string{"(" + compare + " " + sign + " !$c)"}, outs: []kind{pred}, ins: []kind{w, w, pred}}))
		add("set", inRegisters(one("set."+name+"."+operation+".u32."+t, "(("+compare+" "+sign+" $c) ? 0xffffffffu : 0)",
			b32, w, w, pred)))
	}
}

// carries are additions of more than one word.
func carries(add func(string, template), bits int) {
	w, u := integer(bits), fmt.Sprintf("u%d", bits)
	two := func(ptx, low, high string, ins ...kind) {
		add("carry", template{ptx: ptx, c: []string{low, high}, outs: []kind{w, w}, ins: ins})
	}
	for _, t := range []string{u, fmt.Sprintf("s%d", bits)} {
		two(fmt.Sprintf("add.cc.%s $d, $a, $b; addc.%s $e, $c, $a;", t, t),
			fmt.Sprintf("(%s)($a + $b)", u), fmt.Sprintf("(%s)($c + $a + ((%s)($a + $b) < $a))", u, u), w, w, w)
		two(fmt.Sprintf("sub.cc.%s $d, $a, $b; subc.%s $e, $c, $a;", t, t),
			fmt.Sprintf("(%s)($a - $b)", u), fmt.Sprintf("(%s)($c - $a - ($a < $b))", u), w, w, w)
		two(fmt.Sprintf("add.cc.%s $d, $a, $b; addc.cc.%s $e, $b, $c; addc.%s $e, $e, 0;", t, t, t),
			fmt.Sprintf("(%s)($a + $b)", u),
			fmt.Sprintf("(%s)($b + $c + ((%s)($a + $b) < $a) + (((u128)$b + $c + ((%s)($a + $b) < $a)) >> %d))", u, u, u, bits), w, w, w)
		low := fmt.Sprintf("(%s)($a * $b)", u)
		high := fmt.Sprintf("(((u128)$a * $b) >> %d)", bits)
		if t[0] == 's' {
			high = fmt.Sprintf("(((s128)(%s)$a * (%s)$b) >> %d)", t, t, bits)
		}
		two(fmt.Sprintf("mad.lo.cc.%s $d, $a, $b, $c; madc.hi.%s $e, $a, $b, $c;", t, t),
			fmt.Sprintf("(%s)(%s + $c)", u, low), fmt.Sprintf("(%s)(%s + $c + ((%s)(%s + $c) < $c))", u, high, u, low), w, w, w)
	}
}

// only32 are the instructions of 32 bits alone.
func only32(add func(string, template)) {
	add("sat", one("add.sat.s32", "saturate_s32((s64)(s32)$a + (s32)$b)", b32, b32, b32))
	add("sat", one("sub.sat.s32", "saturate_s32((s64)(s32)$a - (s32)$b)", b32, b32, b32))
	add("sat", one("mad.hi.sat.s32", "saturate_s32((((s64)(s32)$a * (s32)$b) >> 32) + (s32)$c)", b32, b32, b32, b32))
	for _, t := range []string{"u32", "s32"} {
		add("mul24", one("mul24.lo."+t, "(u32)mul24_"+t+"($a, $b)", b32, b32, b32))
		add("mul24", one("mul24.hi."+t, "(u32)(mul24_"+t+"($a, $b) >> 16)", b32, b32, b32))
		add("mul24", one("mad24.lo."+t, "(u32)(mul24_"+t+"($a, $b) + $c)", b32, b32, b32, b32))
		add("mul24", one("mad24.hi."+t, "(u32)((mul24_"+t+"($a, $b) >> 16) + $c)", b32, b32, b32, b32))
		for _, s := range []string{"u32", "s32"} {
			signs := fmt.Sprintf("%t, %t", t == "s32", s == "s32")
			add("dot", one("dp4a."+t+"."+s, "dp4a($a, $b, $c, "+signs+")", b32, b32, b32, b32))
			add("dot", one("dp2a.lo."+t+"."+s, "dp2a($a, $b, $c, "+signs+", 0)", b32, b32, b32, b32))
			add("dot", one("dp2a.hi."+t+"."+s, "dp2a($a, $b, $c, "+signs+", 1)", b32, b32, b32, b32))
		}
	}
	for _, mode := range []string{"wrap", "clamp"} {
		n := map[string]string{"wrap": "($c & 31)", "clamp": "($c > 32 ? 32 : $c)"}[mode]
		add("funnel", one("shf.l."+mode+".b32", "(u32)(((u64)$b << 32 | $a) << "+n+" >> 32)", b32, b32, b32, b32))
		add("funnel", one("shf.r."+mode+".b32", "(u32)(((u64)$b << 32 | $a) >> "+n+")", b32, b32, b32, b32))
	}
	add("permute", one("prmt.b32", "prmt($a, $b, $c)", b32, b32, b32, b32))
	for i, name := range []string{"min", "max"} {
		sign := []string{"<", ">"}[i]
		half := func(t, at string, relu bool) string {
			chosen := fmt.Sprintf("((%s)%s($a) %s (%s)%s($b) ? %s($a) : %s($b))", t, at, sign, t, at, at, at)
			if relu {
				return fmt.Sprintf("((s16)%s < 0 ? 0 : %s)", chosen, chosen)
			}
			return chosen
		}
		add("relu", one(name+".relu.s32", fmt.Sprintf("relu((s32)$a %s (s32)$b ? $a : $b)", sign), b32, b32, b32))
		add("relu", one(name+".relu.s16x2", "PAIR2("+half("s16", "LOW", true)+", "+half("s16", "HIGH", true)+")", b32, b32, b32))
		for _, t := range []string{"u16", "s16"} {
			add("pairs", one(name+"."+t+"x2", "PAIR2("+half(t, "LOW", false)+", "+half(t, "HIGH", false)+")", b32, b32, b32))
			add("pairs", one("add."+t+"x2", "PAIR2((u16)(LOW($a) + LOW($b)), (u16)(HIGH($a) + HIGH($b)))", b32, b32, b32))
		}
	}
	for _, bits := range []int{2, 4, 8, 16} {
		for _, sign := range []string{"u", "s"} {
			packed := fmt.Sprintf("packed((s32)$a, (s32)$b, %d, %t)", bits, sign == "s")
			if bits == 16 {
				add("pack", one("cvt.pack.sat."+sign+"16.s32", packed, b32, b32, b32))
				continue
			}
			add("pack", one(fmt.Sprintf("cvt.pack.sat.%s%d.s32.b32", sign, bits), fmt.Sprintf("($c << %d | %s)", 2*bits, packed), b32, b32, b32, b32))
		}
	}
	for i, mode := range []string{"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"} {
		add("permute", one("prmt.b32."+mode, fmt.Sprintf("prmt_mode($a, $b, $c, %d)", i), b32, b32, b32, b32))
	}
	for table := 1; table < 255; table += 23 {
		add("lop3", template{ptx: fmt.Sprintf("lop3.b32 $d, $a, $b, $c, 0x%02x;", table), outs: []kind{b32}, ins: []kind{b32, b32, b32},
			c: []string{fmt.Sprintf("lop3($a, $b, $c, 0x%02x)", table)}})
	}
}

func predicates(add func(string, template)) {
	for name, sign := range pairs("and", "&", "or", "|", "xor", "^") {
		add("predicate", inRegisters(one(name+".pred", "($a "+sign+" $b)", pred, pred, pred)))
	}
	add("predicate", inRegisters(one("not.pred", "(!$a)", pred, pred)))
	add("predicate", inRegisters(one("mov.pred", "$a", pred, pred)))
}
