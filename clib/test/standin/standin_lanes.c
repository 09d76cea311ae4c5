/* SPDX-License-Identifier: Apache-2.0 */
/* What instructions compute, for all lanes of a warp, some, and one. */
#include <stdarg.h>

#include "program.h"

/*
 * One instruction or a few: %rd0 %rd1 %rd2 are a b c, and so are their low parts
 * in %r0-2 %h0-2 and as floats %f0-2 %d0-2; the result is what `out` names.
 */
struct row {
	const char *body;
	const char *out; /* r15 rd15 h15 f15 d15 p15 */
	uint64_t a, b, c;
	uint64_t want;
};

static const struct row rows[] = {
	/* integers */
	{ "add.s32 %r15, %r0, %r1;", "r15", 0xffffffff, 2, 0, 1 },
	{ "add.sat.s32 %r15, %r0, %r1;", "r15", 0x7fffffff, 2, 0, 0x7fffffff },
	{ "sub.sat.s32 %r15, %r0, %r1;", "r15", 0x80000000, 2, 0, 0x80000000 },
	{ "add.u16 %h15, %h0, %h1;", "h15", 0xffff, 3, 0, 2 },
	{ "add.cc.u32 %r14, %r0, %r1; addc.u32 %r15, %r2, 0;", "r15", 0xffffffff, 1, 5, 6 },
	{ "sub.cc.u32 %r14, %r0, %r1; subc.u32 %r15, %r2, 0;", "r15", 0, 1, 5, 4 },
	{ "add.cc.u64 %rd14, %rd0, %rd1; addc.u64 %rd15, %rd2, 0;", "rd15", ~0ull, 1, 5, 6 },
	{ "mad.lo.cc.u32 %r14, %r0, %r1, %r2; madc.hi.u32 %r15, %r0, %r1, 0;", "r15", 0x80000000, 2, 1, 1 },
	{ "mul.hi.s32 %r15, %r0, %r1;", "r15", 0xffffffff, 2, 0, 0xffffffff },
	{ "mul.hi.u32 %r15, %r0, %r1;", "r15", 0xffffffff, 2, 0, 1 },
	{ "mul.hi.s64 %rd15, %rd0, %rd1;", "rd15", ~0ull, 2, 0, ~0ull },
	{ "mul.hi.u64 %rd15, %rd0, %rd1;", "rd15", ~0ull, ~0ull, 0, ~0ull - 1 },
	{ "mul.wide.s32 %rd15, %r0, %r1;", "rd15", 0xffffffff, 3, 0, ~0ull - 2 },
	{ "mul.wide.u16 %r15, %h0, %h1;", "r15", 0xffff, 0xffff, 0, 0xfffe0001 },
	{ "mul.wide.s16 %r15, %h0, %h1;", "r15", 0xffff, 0xffff, 0, 1 },
	{ "mad.wide.s16 %r15, %h0, %h1, %r2;", "r15", 0xffff, 2, 10, 8 },
	{ "mad.wide.u32 %rd15, %r0, %r1, %rd2;", "rd15", 0xffffffff, 0xffffffff, 1, 0xfffffffe00000002 },
	{ "mad.hi.sat.s32 %r15, %r0, %r1, %r2;", "r15", 0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff },
	{ "mul24.lo.s32 %r15, %r0, %r1;", "r15", 0xffffff, 2, 0, 0xfffffffe },
	{ "mul24.hi.u32 %r15, %r0, %r1;", "r15", 0xffffff, 0xffffff, 0, 0xfffffe00 },
	{ "mad24.lo.u32 %r15, %r0, %r1, %r2;", "r15", 3, 4, 5, 17 },
	{ "div.s32 %r15, %r0, %r1;", "r15", 0x80000000, 0xffffffff, 0, 0x80000000 },
	{ "div.s32 %r15, %r0, %r1;", "r15", 7, 0, 0, 0xffffffff },
	{ "div.u32 %r15, %r0, %r1;", "r15", 7, 0, 0, 0xffffffff },
	{ "div.s64 %rd15, %rd0, %rd1;", "rd15", 1ull << 63, ~0ull, 0, 1ull << 63 },
	{ "rem.s32 %r15, %r0, %r1;", "r15", 0xfffffff9, 4, 0, 0xfffffffd },
	{ "rem.u32 %r15, %r0, %r1;", "r15", 7, 0, 0, 7 },
	{ "rem.s64 %rd15, %rd0, %rd1;", "rd15", 1ull << 63, ~0ull, 0, 0 },
	{ "abs.s32 %r15, %r0;", "r15", 0x80000000, 0, 0, 0x80000000 },
	{ "abs.s16 %h15, %h0;", "h15", 0xffff, 0, 0, 1 },
	{ "neg.s64 %rd15, %rd0;", "rd15", 5, 0, 0, ~0ull - 4 },
	{ "min.s16 %h15, %h0, %h1;", "h15", 0xffff, 1, 0, 0xffff },
	{ "max.u64 %rd15, %rd0, %rd1;", "rd15", ~0ull, 1, 0, ~0ull },
	{ "min.s64 %rd15, %rd0, %rd1;", "rd15", ~0ull, 1, 0, ~0ull },
	{ "sad.u32 %r15, %r0, %r1, %r2;", "r15", 3, 10, 1, 8 },
	{ "dp4a.u32.u32 %r15, %r0, %r1, %r2;", "r15", 0x01020304, 0x01010101, 100, 110 },
	{ "dp4a.s32.s32 %r15, %r0, %r1, %r2;", "r15", 0xffffffff, 0x01010101, 0, 0xfffffffc },
	{ "dp2a.lo.s32.u32 %r15, %r0, %r1, %r2;", "r15", 0xffff0002, 0x0302, 10, 11 },
	/* bits */
	{ "and.b64 %rd15, %rd0, %rd1;", "rd15", 0xff00ff00ff00, 0x0ff00ff00ff0, 0, 0x0f000f000f00 },
	{ "shl.b32 %r15, %r0, %r1;", "r15", 1, 32, 0, 0 },
	{ "shl.b64 %rd15, %rd0, %r1;", "rd15", 1, 63, 0, 1ull << 63 },
	{ "shl.b16 %h15, %h0, %r1;", "h15", 0x8001, 1, 0, 2 },
	{ "shr.s32 %r15, %r0, %r1;", "r15", 0x80000000, 40, 0, 0xffffffff },
	{ "shr.u32 %r15, %r0, %r1;", "r15", 0x80000000, 40, 0, 0 },
	{ "shr.s16 %h15, %h0, %r1;", "h15", 0x8000, 3, 0, 0xf000 },
	{ "shf.l.wrap.b32 %r15, %r0, %r1, %r2;", "r15", 0x80000000, 1, 33, 3 },
	{ "shf.l.clamp.b32 %r15, %r0, %r1, %r2;", "r15", 0x80000001, 1, 33, 0x80000001 },
	{ "shf.r.clamp.b32 %r15, %r0, %r1, %r2;", "r15", 0x80000000, 7, 40, 7 },
	{ "shf.r.wrap.b32 %r15, %r0, %r1, %r2;", "r15", 0x10, 1, 4, 0x10000001 },
	{ "bfe.u32 %r15, %r0, %r1, %r2;", "r15", 0xabcd1234, 8, 8, 0x12 },
	{ "bfe.s32 %r15, %r0, %r1, %r2;", "r15", 0xabcd8234, 8, 8, 0xffffff82 },
	{ "bfe.s32 %r15, %r0, %r1, %r2;", "r15", 0x80000000, 28, 8, 0xfffffff8 },
	{ "bfe.u64 %rd15, %rd0, %r1, %r2;", "rd15", 0xabcd123400000000, 40, 8, 0x12 },
	{ "bfe.u32 %r15, %r0, %r1, %r2;", "r15", 0xffffffff, 4, 0, 0 },
	{ "bfi.b32 %r15, %r0, %r1, %r2, 8;", "r15", 0xff, 0, 4, 0xff0 },
	{ "bfi.b64 %rd15, %rd0, %rd1, %r2, 16;", "rd15", 0xffff, 0, 48, 0xffffull << 48 },
	{ "brev.b32 %r15, %r0;", "r15", 1, 0, 0, 0x80000000 },
	{ "brev.b64 %rd15, %rd0;", "rd15", 2, 0, 0, 1ull << 62 },
	{ "clz.b32 %r15, %r0;", "r15", 0, 0, 0, 32 },
	{ "clz.b64 %r15, %rd0;", "r15", 1, 0, 0, 63 },
	{ "popc.b64 %r15, %rd0;", "r15", ~0ull, 0, 0, 64 },
	{ "bfind.u32 %r15, %r0;", "r15", 0x10, 0, 0, 4 },
	{ "bfind.s32 %r15, %r0;", "r15", 0xffffffff, 0, 0, 0xffffffff },
	{ "bfind.shiftamt.u32 %r15, %r0;", "r15", 0x10, 0, 0, 27 },
	{ "fns.b32 %r15, %r0, %r1, %r2;", "r15", 0xaaaa, 3, 0, 3 },
	{ "fns.b32 %r15, %r0, %r1, %r2;", "r15", 0xaaaa, 3, 2, 5 },
	{ "fns.b32 %r15, %r0, %r1, %r2;", "r15", 0xaaaa, 2, 0xffffffff, 1 },
	{ "fns.b32 %r15, %r0, %r1, %r2;", "r15", 0, 0, 1, 0xffffffff },
	{ "bmsk.clamp.b32 %r15, %r0, %r1;", "r15", 4, 40, 0, 0xfffffff0 },
	{ "bmsk.wrap.b32 %r15, %r0, %r1;", "r15", 36, 3, 0, 0x70 },
	{ "szext.clamp.s32 %r15, %r0, %r1;", "r15", 0x80, 8, 0, 0xffffff80 },
	{ "szext.wrap.u32 %r15, %r0, %r1;", "r15", 0x1ff, 8, 0, 0xff },
	{ "prmt.b32 %r15, %r0, %r1, %r2;", "r15", 0x33221100, 0x77665544, 0x7531, 0x77553311 },
	{ "prmt.b32 %r15, %r0, %r1, 0x8;", "r15", 0x80, 0, 0, 0x808080ff },
	{ "prmt.b32.f4e %r15, %r0, %r1, %r2;", "r15", 0x33221100, 0x77665544, 2, 0x55443322 },
	{ "prmt.b32.rc8 %r15, %r0, %r1, %r2;", "r15", 0x33221100, 0, 2, 0x22222222 },
	{ "lop3.b32 %r15, %r0, %r1, %r2, 0x96;", "r15", 0xf0, 0xcc, 0xaa, 0x96 },
	{ "lop3.b32 %r15, %r0, %r1, %r2, 0xe8;", "r15", 0xf0, 0xcc, 0xaa, 0xe8 },
	{ "cnot.b32 %r15, %r0;", "r15", 0, 0, 0, 1 },
	{ "mov.b32 {%h13, %h14}, %r0; mov.b32 %r15, {%h14, %h13};", "r15", 0x12345678, 0, 0, 0x56781234 },
	{ "mov.b64 {%r13, %r14}, %rd0; mov.b64 %rd15, {%r14, %r13};", "rd15", 0x123456789abcdef0, 0, 0, 0x9abcdef012345678 },
	{ "mov.b64 {%h11, %h12, %h13, %h14}, %rd0; mov.b64 %rd15, {%h14, %h13, %h12, %h11};", "rd15", 0x123456789abcdef0, 0, 0,
	  0xdef09abc56781234 },
	/* tests */
	{ "setp.lt.s32 %p15, %r0, %r1;", "p15", 0xffffffff, 1, 0, 1 },
	{ "setp.lt.u32 %p15, %r0, %r1;", "p15", 0xffffffff, 1, 0, 0 },
	{ "setp.hi.u32 %p15, %r0, %r1;", "p15", 0xffffffff, 1, 0, 1 },
	{ "setp.lt.s16 %p15, %h0, %h1;", "p15", 0xffff, 1, 0, 1 },
	{ "setp.eq.f32 %p15, %f0, %f0;", "p15", 0x7fc00000, 0, 0, 0 },
	{ "setp.ne.f32 %p15, %f0, %f0;", "p15", 0x7fc00000, 0, 0, 0 },
	{ "setp.neu.f32 %p15, %f0, %f0;", "p15", 0x7fc00000, 0, 0, 1 },
	{ "setp.ltu.f64 %p15, %d0, %d1;", "p15", 0x7ff8000000000000, 0, 0, 1 },
	{ "setp.nan.f32 %p15, %f0, %f1;", "p15", 0x7fc00000, 0, 0, 1 },
	{ "setp.num.f32 %p15, %f0, %f1;", "p15", 0x3f800000, 0, 0, 1 },
	{ "setp.gt.ftz.f32 %p15, %f0, 0f00000000;", "p15", 1, 0, 0, 0 },
	{ "setp.eq.s32 %p14, %r0, %r0; setp.gt.and.s32 %p15|%p13, %r0, %r1, !%p14;", "p15", 3, 1, 0, 0 },
	{ "setp.eq.s32 %p14, %r0, %r0; setp.gt.or.s32 %p13|%p15, %r0, %r1, !%p14;", "p15", 1, 3, 0, 1 },
	{ "setp.eq.s32 %p14, %r0, %r0; setp.gt.xor.s32 %p15, %r0, %r1, %p14;", "p15", 3, 1, 0, 0 },
	{ "set.lt.u32.s32 %r15, %r0, %r1;", "r15", 0xffffffff, 1, 0, 0xffffffff },
	{ "set.lt.f32.f32 %f15, %f0, %f1;", "f15", 0, 0x3f800000, 0, 0x3f800000 },
	{ "slct.u32.s32 %r15, %r0, %r1, %r2;", "r15", 1, 2, 0xffffffff, 2 },
	{ "slct.f32.f32 %f15, %f0, %f1, %f2;", "f15", 1, 2, 0x80000000, 1 },
	{ "testp.subnormal.f32 %p15, %f0;", "p15", 1, 0, 0, 1 },
	{ "testp.finite.f64 %p15, %d0;", "p15", 0x7ff0000000000000, 0, 0, 0 },
	/* f32 and f64 */
	{ "add.f32 %f15, %f0, %f1;", "f15", 0x3f800000, 0x40000000, 0, 0x40400000 },
	{ "add.rz.f32 %f15, %f0, %f1;", "f15", 0x3f800000, 0x33c00000, 0, 0x3f800000 },
	{ "add.rp.f32 %f15, %f0, %f1;", "f15", 0x3f800000, 0x30000000, 0, 0x3f800001 },
	{ "add.rm.f32 %f15, %f0, %f1;", "f15", 0xbf800000, 0xb0000000, 0, 0xbf800001 },
	{ "add.ftz.f32 %f15, %f0, %f1;", "f15", 1, 1, 0, 0 },
	{ "add.f32 %f15, %f0, %f1;", "f15", 1, 1, 0, 2 },
	{ "add.sat.f32 %f15, %f0, %f1;", "f15", 0x3f800000, 0x3f800000, 0, 0x3f800000 },
	{ "add.sat.f32 %f15, %f0, %f1;", "f15", 0x7fc00000, 0x3f800000, 0, 0 },
	{ "mul.rz.f64 %d15, %d0, %d1;", "d15", 0x3ff0000000000001, 0x3ff0000000000001, 0, 0x3ff0000000000002 },
	{ "mul.rp.f64 %d15, %d0, %d1;", "d15", 0x3ff0000000000001, 0x3ff0000000000001, 0, 0x3ff0000000000003 },
	{ "fma.rn.f32 %f15, %f0, %f1, %f2;", "f15", 0x3f800001, 0x3f800001, 0xbf800002, 0x28800000 },
	{ "fma.rz.f64 %d15, %d0, %d1, %d2;", "d15", 0x3ff0000000000001, 0x3ff0000000000001, 0xbff0000000000002, 0x3970000000000000 },
	{ "div.rn.f32 %f15, %f0, %f1;", "f15", 0x3f800000, 0x40400000, 0, 0x3eaaaaab },
	{ "div.rz.f32 %f15, %f0, %f1;", "f15", 0x3f800000, 0x40400000, 0, 0x3eaaaaaa },
	{ "div.approx.f32 %f15, %f0, %f1;", "f15", 0x3f800000, 0x7f000000, 0, 0 },
	{ "rcp.rn.f64 %d15, %d0;", "d15", 0x4000000000000000, 0, 0, 0x3fe0000000000000 },
	{ "sqrt.rp.f32 %f15, %f0;", "f15", 0x40000000, 0, 0, 0x3fb504f4 },
	{ "sqrt.rn.f32 %f15, %f0;", "f15", 0x40000000, 0, 0, 0x3fb504f3 },
	{ "rsqrt.approx.f32 %f15, %f0;", "f15", 0x40800000, 0, 0, 0x3f000000 },
	{ "ex2.approx.f32 %f15, %f0;", "f15", 0x41200000, 0, 0, 0x44800000 },
	{ "lg2.approx.f32 %f15, %f0;", "f15", 0x44800000, 0, 0, 0x41200000 },
	{ "sin.approx.f32 %f15, %f0;", "f15", 0, 0, 0, 0 },
	{ "cos.approx.f32 %f15, %f0;", "f15", 0, 0, 0, 0x3f800000 },
	{ "min.f32 %f15, %f0, %f1;", "f15", 0x7fc00000, 0x3f800000, 0, 0x3f800000 },
	{ "min.NaN.f32 %f15, %f0, %f1;", "f15", 0x7fc00000, 0x3f800000, 0, 0x7fffffff },
	{ "min.f32 %f15, %f0, %f1;", "f15", 0, 0x80000000, 0, 0x80000000 },
	{ "max.f32 %f15, %f0, %f1;", "f15", 0x80000000, 0, 0, 0 },
	{ "max.f64 %d15, %d0, %d1;", "d15", 0x8000000000000000, 0, 0, 0 },
	{ "neg.f32 %f15, %f0;", "f15", 0, 0, 0, 0x80000000 },
	{ "abs.f64 %d15, %d0;", "d15", 0xbff0000000000000, 0, 0, 0x3ff0000000000000 },
	{ "copysign.f32 %f15, %f0, %f1;", "f15", 0x80000000, 0x3f800000, 0, 0xbf800000 },
	/* halves */
	{ "add.f16 %h15, %h0, %h1;", "h15", 0x3c00, 0x3c00, 0, 0x4000 },
	{ "fma.rn.f16 %h15, %h0, %h1, %h2;", "h15", 0x3c01, 0x3c01, 0xbc02, 0x0010 },
	{ "mul.f16x2 %r15, %r0, %r1;", "r15", 0x40003c00, 0x3c004000, 0, 0x40004000 },
	{ "fma.rn.bf16 %h15, %h0, %h1, %h2;", "h15", 0x3f80, 0x3f80, 0x3f80, 0x4000 },
	{ "max.bf16x2 %r15, %r0, %r1;", "r15", 0x3f804000, 0x40003f80, 0, 0x40004000 },
	/* conversions */
	{ "cvt.u32.u16 %r15, %h0;", "r15", 0xffff, 0, 0, 0xffff },
	{ "cvt.s32.s16 %r15, %h0;", "r15", 0xffff, 0, 0, 0xffffffff },
	{ "cvt.s32.s8 %r15, %r0;", "r15", 0x180, 0, 0, 0xffffff80 },
	{ "cvt.u8.u32 %h15, %r0;", "h15", 0x1ff, 0, 0, 0xff },
	{ "cvt.sat.u8.s32 %h15, %r0;", "h15", 0xffffffff, 0, 0, 0 },
	{ "cvt.sat.s8.s32 %r15, %r0;", "r15", 300, 0, 0, 127 },
	{ "cvt.s64.s32 %rd15, %r0;", "rd15", 0x80000000, 0, 0, 0xffffffff80000000 },
	{ "cvt.rzi.s32.f32 %r15, %f0;", "r15", 0xbfc00000, 0, 0, 0xffffffff },
	{ "cvt.rni.s32.f32 %r15, %f0;", "r15", 0x40200000, 0, 0, 2 },
	{ "cvt.rpi.s32.f32 %r15, %f0;", "r15", 0x3f8ccccd, 0, 0, 2 },
	{ "cvt.rmi.s32.f64 %r15, %d0;", "r15", 0xbff199999999999a, 0, 0, 0xfffffffe },
	{ "cvt.rzi.u32.f32 %r15, %f0;", "r15", 0xbfc00000, 0, 0, 0 },
	{ "cvt.rzi.s32.f32 %r15, %f0;", "r15", 0x7f800000, 0, 0, 0x7fffffff },
	{ "cvt.rzi.s32.f32 %r15, %f0;", "r15", 0x7fc00000, 0, 0, 0 },
	{ "cvt.rzi.s32.f32 %r15, %f0;", "r15", 0xff800000, 0, 0, 0x80000000 },
	{ "cvt.rn.f32.s32 %f15, %r0;", "f15", 0x01000001, 0, 0, 0x4b800000 },
	{ "cvt.rp.f32.s32 %f15, %r0;", "f15", 0x01000001, 0, 0, 0x4b800001 },
	{ "cvt.rn.f32.u32 %f15, %r0;", "f15", 0xffffffff, 0, 0, 0x4f800000 },
	{ "cvt.rn.f32.u64 %f15, %rd0;", "f15", 0x8000008000000001, 0, 0, 0x5f000001 },
	{ "cvt.rn.f64.s64 %d15, %rd0;", "d15", 0x20000000000001, 0, 0, 0x4340000000000000 },
	{ "cvt.rz.f32.f64 %f15, %d0;", "f15", 0x3ff0000030000000, 0, 0, 0x3f800001 },
	{ "cvt.rn.f32.f64 %f15, %d0;", "f15", 0x3ff0000030000000, 0, 0, 0x3f800002 },
	{ "cvt.f64.f32 %d15, %f0;", "d15", 0x3f800000, 0, 0, 0x3ff0000000000000 },
	{ "cvt.rn.f16.f32 %h15, %f0;", "h15", 0x477ff000, 0, 0, 0x7c00 },
	{ "cvt.rz.f16.f32 %h15, %f0;", "h15", 0x477ff000, 0, 0, 0x7bff },
	{ "cvt.rn.f16.f32 %h15, %f0;", "h15", 0x33000001, 0, 0, 1 },
	{ "cvt.f32.f16 %f15, %h0;", "f15", 0x0001, 0, 0, 0x33800000 },
	{ "cvt.rn.bf16.f32 %h15, %f0;", "h15", 0x3f808000, 0, 0, 0x3f80 },
	{ "cvt.rn.f16x2.f32 %r15, %f0, %f1;", "r15", 0x3f800000, 0x40000000, 0, 0x3c004000 },
	{ "cvt.rn.bf16x2.f32 %r15, %f0, %f1;", "r15", 0x3f800000, 0x40000000, 0, 0x3f804000 },
	{ "cvt.rna.tf32.f32 %r15, %f0;", "r15", 0x3f801000, 0, 0, 0x3f802000 },
	{ "cvt.rni.f32.f32 %f15, %f0;", "f15", 0x40200000, 0, 0, 0x40000000 },
	{ "cvt.rmi.f64.f64 %d15, %d0;", "d15", 0xbff8000000000000, 0, 0, 0xc000000000000000 },
	{ "cvt.sat.f32.f32 %f15, %f0;", "f15", 0x40000000, 0, 0, 0x3f800000 },
	{ "cvt.ftz.f32.f32 %f15, %f0;", "f15", 0x80000001, 0, 0, 0x80000000 },
	{ "cvt.rn.satfinite.e4m3x2.f32 %h15, %f0, %f1;", "h15", 0x3f800000, 0x44800000, 0, 0x387e },
	{ "cvt.rn.f16x2.e4m3x2 %r15, %h0;", "r15", 0x387e, 0, 0, 0x3c005f00 },
	{ "cvt.rn.satfinite.e5m2x2.f16x2 %h15, %r0;", "h15", 0x3c007bff, 0, 0, 0x3c7b },
	{ "cvt.pack.sat.u16.s32 %r15, %r0, %r1;", "r15", 0x12345, 0xfffffff0, 0, 0xffff0000 },
	{ "cvt.pack.sat.s16.s32 %r15, %r0, %r1;", "r15", 0xffff0000, 0x7fff1234, 0, 0x80007fff },
	{ "cvt.pack.sat.s8.s32.b32 %r15, %r0, %r1, %r2;", "r15", 200, 0xfffffffe, 0xabcd1234, 0x12347ffe },
	{ "cvt.pack.sat.u4.s32.b32 %r15, %r0, %r1, %r2;", "r15", 3, 99, 0xabcd1234, 0xcd12343f },
	/* of later cards */
	{ "add.s16x2 %r15, %r0, %r1;", "r15", 0x7fff0001, 0x00010001, 0, 0x80000002 },
	{ "max.u16x2 %r15, %r0, %r1;", "r15", 0x80000001, 0x00010002, 0, 0x80000002 },
	{ "min.relu.s16x2 %r15, %r0, %r1;", "r15", 0x80000005, 0x00010002, 0, 0x00000002 },
	{ "max.relu.s32 %r15, %r0, %r1;", "r15", 0xfffffff0, 0xfffffff1, 0, 0 },
	{ "fma.rn.relu.f16 %h15, %h0, %h1, %h2;", "h15", 0x3c00, 0xbc00, 0, 0 },
	{ "fma.rn.oob.f16 %h15, %h0, %h1, %h2;", "h15", 0xffff, 0x3c00, 0x3c00, 0 },
	{ "fma.rn.oob.bf16x2 %r15, %r0, %r1, %r2;", "r15", 0x3f80ffff, 0x3f803f80, 0x3f803f80, 0x40000000 },
	{ "add.rz.f32x2 %rd15, %rd0, %rd1;", "rd15", 0x3f8000003f800000, 0x4000000033c00000, 0, 0x404000003f800000 },
	{ "add.rp.ftz.f32x2 %rd15, %rd0, %rd1;", "rd15", 0x000000013f800000, 0x0000000130000000, 0, 0x000000003f800001 },
	{ "sub.f32x2 %rd15, %rd0, %rd1;", "rd15", 0x4040000040000000, 0x3f8000003f800000, 0, 0x400000003f800000 },
	{ "mul.rn.f32x2 %rd15, %rd0, %rd1;", "rd15", 0x4040000040000000, 0x4000000040400000, 0, 0x40c0000040c00000 },
	{ "fma.rn.f32x2 %rd15, %rd0, %rd1, %rd2;", "rd15", 0x3f80000140000000, 0x3f80000140400000, 0xbf8000023f800000, 0x2880000040e00000 },
	{ "add.f32.f16 %f15, %h0, %f1;", "f15", 0x3c00, 0x40000000, 0, 0x40400000 },
	{ "sub.rz.f32.bf16 %f15, %h0, %f1;", "f15", 0x4040, 0x3f800000, 0, 0x40000000 },
	{ "fma.rn.sat.f32.f16 %f15, %h0, %h1, %f2;", "f15", 0x4000, 0x4200, 0x3f800000, 0x3f800000 },
	/* 128 bits */
	{ "{ .reg .b128 %q, %p; mov.b128 %q, {%rd0, %rd1}; mov.b128 %p, %q; mov.b128 {%rd14, %rd15}, %p; }", "rd15", 5, 77, 0, 77 },
	{ "{ .reg .b128 %q; mov.b128 %q, {%rd0, %rd1}; mov.b128 {%rd15, _}, %q; }", "rd15", 5, 77, 0, 5 },
	/* policies are hints */
	{ "{ .reg .b64 %q; createpolicy.fractional.L2::evict_last.b64 %q, 1.0; ld.global.L1::evict_last.L2::cache_hint.b64 %rd14, [%rd20], %q;"
	  " and.b64 %rd15, %rd14, 255; st.global.L2::cache_hint.b64 [%rd20], %rd0, %q; }", "rd15", 5, 0, 0, 0xee },
	{ "griddepcontrol.launch_dependents; griddepcontrol.wait; mov.u64 %rd15, %rd0;", "rd15", 5, 0, 0, 5 },
};

static char *text;
static size_t textsize;
static size_t textroom;

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...)
{
	va_list list;

	if (textroom - textsize < 8192) {
		textroom = textroom ? textroom * 2 : 65536;
		text = realloc(text, textroom);
		CHECK(text);
	}
	va_start(list, format);
	textsize += (size_t)vsnprintf(text + textsize, 8192, format, list);
	va_end(list);
}

static void add_kernel(const struct row *row, size_t number, int form)
{
	static const char *const moves[] = { "cvt.u64.u32 %rd15, %r15;", "", "cvt.u64.u16 %rd15, %h15;",
					     "mov.b32 %r15, %f15; cvt.u64.u32 %rd15, %r15;", "mov.b64 %rd15, %d15;",
					     "selp.b64 %rd15, 1, 0, %p15;" };
	int kind = row->out[0] == 'r' ? (row->out[1] == 'd' ? 1 : 0)
		   : row->out[0] == 'h' ? 2
		   : row->out[0] == 'f' ? 3
		   : row->out[0] == 'd' ? 4
					: 5;

	add(".visible .entry k%zu_%d(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 to)\n{\n"
	    "\t.reg .pred %%p<16>; .reg .b16 %%h<16>; .reg .b32 %%r<24>; .reg .b64 %%rd<24>; .reg .f32 %%f<16>; .reg .f64 %%d<16>;\n"
	    "\tld.param.u64 %%rd0, [a]; ld.param.u64 %%rd1, [b]; ld.param.u64 %%rd2, [c]; ld.param.u64 %%rd20, [to];\n",
	    number, form);
	for (int i = 0; i < 3; i++)
		add("\tcvt.u32.u64 %%r%d, %%rd%d; cvt.u16.u64 %%h%d, %%rd%d; mov.b32 %%f%d, %%r%d; mov.b64 %%d%d, %%rd%d;\n", i, i,
		    i, i, i, i, i, i);
	add("\tmov.u32 %%r20, %%tid.x; mul.wide.u32 %%rd21, %%r20, 8; add.u64 %%rd20, %%rd20, %%rd21;\n");
	/* some lanes, or one, do it; the others keep what they had */
	if (form == 1)
		add("\tand.b32 %%r21, %%r20, 3; setp.eq.u32 %%p0, %%r21, 1; @!%%p0 bra OVER;\n");
	if (form == 2)
		add("\tsetp.eq.u32 %%p0, %%r20, 7; @!%%p0 bra OVER;\n");
	add("\t%s\n\t%s\n\tst.global.u64 [%%rd20], %%rd15;\nOVER:\n\tret;\n}\n", row->body, moves[kind]);
}

static void instructions_in_every_form(void)
{
	struct program program;

	textsize = 0;
	add(".version 8.8\n.target sm_100\n.address_size 64\n");
	for (size_t i = 0; i < COUNT(rows); i++) {
		for (int form = 0; form < 3; form++)
			add_kernel(&rows[i], i, form);
	}
	must_build(&program, text);
	int wrong = 0;

	for (size_t i = 0; i < COUNT(rows); i++) {
		for (int form = 0; form < 3; form++) {
			const uint64_t parameters[4] = { rows[i].a, rows[i].b, rows[i].c, BASE };
			char name[32];

			snprintf(name, sizeof(name), "k%zu_%d", i, form);
			memset(memory, 0xee, 32 * 8);
			struct ptx_outcome outcome = run(&program, name, 1, 32, parameters);

			CHECK(outcome.fault == PTX_FAULT_NONE);
			for (unsigned int lane = 0; lane < 32; lane++) {
				bool does = form == 0 || (form == 1 ? lane % 4 == 1 : lane == 7);
				uint64_t want = does ? rows[i].want : 0xeeeeeeeeeeeeeeeeull;
				uint64_t got;

				memcpy(&got, memory + lane * 8, 8);
				if (got == want)
					continue;
				fprintf(stderr, "%s, form %d, lane %u: %llx, want %llx\n", rows[i].body, form, lane,
					(unsigned long long)got, (unsigned long long)want);
				wrong++;
				break;
			}
		}
	}
	drop(&program);
	CHECK(wrong == 0);
}

static const struct scenario scenarios[] = {
	{ "instructions_in_every_form", instructions_in_every_form },
};

RUN_SCENARIOS(scenarios)
