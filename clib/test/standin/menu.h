/* SPDX-License-Identifier: Apache-2.0 */
/* menu.h: PTX instructions in all their forms, one or a few on a line, over the
 * registers %p (pred), %h (b16), %r (b32), %f (f32), %d (b64), %e (f64). */
#ifndef DIVVY_TEST_STANDIN_MENU_H
#define DIVVY_TEST_STANDIN_MENU_H

#define MENU_VARIABLES \
	".global .align 16 .b8 memory[256]; .shared .align 16 .b8 tile[256]; .const .align 16 .b8 fixed[256] = {1};\n" \
	".func (.param .b32 r) callee(.param .b32 x) { ret; }\n"

static const char *const menu[] = {
	/* integers */
	"add.s32 %r1, %r2, %r3; add.sat.s32 %r1, %r2, 1; add.u64 %d1, %d2, 7; add.s16 %h1, %h2, %h3;",
	"add.cc.u32 %r1, %r2, %r3; addc.cc.u32 %r1, %r2, %r3; addc.u32 %r1, %r2, %r3; sub.cc.s64 %d1, %d2, %d3; subc.s64 %d1, %d2, %d3;",
	"mul.lo.s32 %r1, %r2, %r3; mul.hi.u64 %d1, %d2, %d3; mul.wide.s16 %r1, %h1, %h2; mul.wide.u32 %d1, %r1, %r2;",
	"mad.lo.s32 %r1, %r2, %r3, %r4; mad.hi.sat.s32 %r1, %r2, %r3, %r4; mad.wide.u32 %d1, %r1, %r2, %d2;",
	"mad.lo.cc.u32 %r1, %r2, %r3, %r4; madc.hi.cc.u32 %r1, %r2, %r3, %r4; madc.lo.u32 %r1, %r2, %r3, %r4;",
	"mul24.lo.u32 %r1, %r2, %r3; mad24.hi.sat.s32 %r1, %r2, %r3, %r4; sad.u32 %r1, %r2, %r3, %r4;",
	"div.s32 %r1, %r2, %r3; div.u64 %d1, %d2, %d3; rem.s16 %h1, %h2, %h3; rem.u32 %r1, %r2, 10;",
	"abs.s32 %r1, %r2; neg.s64 %d1, %d2; min.u32 %r1, %r2, %r3; max.s64 %d1, %d2, %d3; min.s16x2 %r1, %r2, %r3;",
	"popc.b64 %r1, %d1; clz.b32 %r1, %r2; bfind.s32 %r1, %r2; bfind.shiftamt.u64 %r1, %d1; fns.b32 %r1, %r2, %r3, 1;",
	"brev.b32 %r1, %r2; bfe.u32 %r1, %r2, 4, 8; bfe.s64 %d1, %d2, %r1, %r2; bfi.b32 %r1, %r2, %r3, 8, 4;",
	"szext.wrap.s32 %r1, %r2, %r3; bmsk.clamp.b32 %r1, %r2, %r3; dp4a.u32.s32 %r1, %r2, %r3, %r4; dp2a.lo.s32.u32 %r1, %r2, %r3, %r4;",
	"and.b32 %r1, %r2, %r3; or.pred %p1, %p2, %p1; xor.b64 %d1, %d2, -1; not.b16 %h1, %h2; cnot.b32 %r1, %r2;",
	"shl.b32 %r1, %r2, 3; shr.s64 %d1, %d2, %r1; shr.u16 %h1, %h2, 2; shf.l.wrap.b32 %r1, %r2, %r3, %r4; shf.r.clamp.b32 %r1, %r2, %r3, 5;",
	"lop3.b32 %r1, %r2, %r3, %r4, 0xe8; prmt.b32 %r1, %r2, %r3, 0x5410; prmt.b32.f4e %r1, %r2, %r3, %r4; prmt.b32.rc16 %r1, %r2, %r3, %r4;",
	/* floats */
	"add.f32 %f1, %f2, %f3; add.rz.ftz.sat.f32 %f1, %f2, 1.5; sub.rm.f64 %e1, %e2, %e3; mul.rp.f32 %f1, %f2, 0f3f000000;",
	"fma.rn.f32 %f1, %f2, %f3, %f4; fma.rz.f64 %e1, %e2, %e3, %e4; mad.rn.ftz.f32 %f1, %f2, %f3, %f4; mad.f32 %f1, %f2, %f3, %f4;",
	"div.rn.f32 %f1, %f2, %f3; div.full.f32 %f1, %f2, %f3; div.approx.ftz.f32 %f1, %f2, %f3; div.rn.f64 %e1, %e2, %e3;",
	"rcp.rn.f32 %f1, %f2; rcp.approx.ftz.f64 %e1, %e2; sqrt.rn.f64 %e1, %e2; sqrt.approx.f32 %f1, %f2; rsqrt.approx.f32 %f1, %f2;",
	"sin.approx.f32 %f1, %f2; cos.approx.ftz.f32 %f1, %f2; lg2.approx.f32 %f1, %f2; ex2.approx.ftz.f32 %f1, %f2; tanh.approx.f32 %f1, %f2;",
	"abs.ftz.f32 %f1, %f2; neg.f64 %e1, %e2; min.NaN.f32 %f1, %f2, %f3; max.ftz.f32 %f1, %f2, %f3; max.xorsign.abs.f32 %f1, %f2, %f3;",
	"copysign.f32 %f1, %f2, %f3; testp.notanumber.f32 %p1, %f1; testp.subnormal.f64 %p1, %e1;",
	"add.f16 %h1, %h2, %h3; add.rn.f16x2 %r1, %r2, %r3; fma.rn.relu.f16 %h1, %h2, %h3, %h4; fma.rn.bf16x2 %r1, %r2, %r3, %r4; neg.f16 %h1, %h2;",
	/* comparing and choosing */
	"setp.lt.s32 %p1, %r1, %r2; setp.geu.and.ftz.f32 %p1|%p2, %f1, 0.0, !%p2; setp.hi.u64 %p1, %d1, %d2; setp.nan.f64 %p1, %e1, %e2; setp.ne.b16 %p1, %h1, 0; setp.lt.and.f16x2 %p1|%p2, %r1, %r2, %p2;",
	"set.eq.u32.s32 %r1, %r2, %r3; set.lt.xor.f32.f32 %f1, %f2, %f3, %p1; selp.b32 %r1, %r2, %r3, %p1; selp.f64 %e1, %e2, 1.0, %p1;",
	"slct.f32.s32 %f1, %f2, %f3, %r1; slct.u64.f32 %d1, %d2, %d3, %f1;",
	/* moving */
	"mov.u32 %r1, %tid.x; mov.u64 %d1, memory+4; mov.pred %p1, 1; mov.f32 %f1, 0f7fc00000; mov.u32 %r1, WARP_SZ; mov.b64 %d1, callee;",
	"mov.b64 {%r1, %r2}, %d1; mov.b32 %r1, {%h1, %h2}; mov.b64 {_, %r2}, %d1; mov.u64 %d1, %clock64; mov.u32 %r1, %lanemask_lt;",
	"cvt.u64.u32 %d1, %r1; cvt.s32.s8 %r1, %r2; cvt.rzi.s32.f32 %r1, %f1; cvt.rn.f32.s64 %f1, %d1; cvt.rn.f32.f64 %f1, %e1; cvt.f64.f32 %e1, %f1;",
	"cvt.rn.f16.f32 %h1, %f1; cvt.f32.f16 %f1, %h1; cvt.rni.f32.f32 %f1, %f2; cvt.sat.u8.s32 %r1, %r2; cvt.rn.bf16.f32 %h1, %f1; cvt.rn.f16x2.f32 %r1, %f1, %f2;",
	"cvta.to.global.u64 %d1, %d2; cvta.shared.u64 %d1, %d2; cvta.local.u64 %d1, %d2; isspacep.global %p1, %d1; isspacep.shared %p1, %d1;",
	/* memory */
	"ld.global.u32 %r1, [%d1+4]; ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%d1]; ld.u8 %r1, [%d1]; ld.const.b64 %d1, [fixed+8]; ld.volatile.global.s16 %h1, [memory];",
	"ld.shared.v2.b64 {%d1, %d2}, [tile+16]; ld.acquire.gpu.global.u32 %r1, [%d1]; ld.relaxed.sys.b32 %r1, [%d1]; ld.global.ca.L2::128B.f32 %f1, [%d1]; ldu.global.u32 %r1, [%d1];",
	"st.global.u8 [%d1], %r1; st.shared.v4.b32 [tile], {%r1, %r2, %r3, %r4}; st.release.gpu.global.u32 [%d1], %r1; st.global.cs.f64 [%d1+8], %e1; st.volatile.shared.u32 [tile+4], 7;",
	"atom.global.add.u32 %r1, [%d1], 1; atom.shared.cas.b32 %r1, [tile], %r2, %r3; atom.global.cas.b64 %d1, [%d2], %d3, %d4; atom.global.add.f32 %f1, [%d1], %f2; atom.global.exch.b32 %r1, [%d1], %r2;",
	"atom.acq_rel.gpu.global.inc.u32 %r1, [%d1], 9; atom.global.min.s64 %d1, [%d2], %d3; atom.add.f64 %e1, [%d1], %e2; atom.global.add.noftz.f16x2 %r1, [%d1], %r2; atom.global.and.b32 %r1, [%d1], %r2;",
	"red.global.add.u32 [%d1], 1; red.shared.max.s32 [tile], %r1; red.relaxed.gpu.global.or.b32 [%d1], %r1; red.global.add.f64 [%d1], %e1;",
	"prefetch.global.L2 [%d1]; prefetchu.L1 [%d1]; membar.gl; membar.cta; membar.sys; fence.acq_rel.gpu; fence.sc.cta;",
	"cp.async.ca.shared.global [%r1], [%d1], 16; cp.async.cg.shared.global.L2::128B [tile], [%d1], 16, %r1; cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all;",
	"stacksave.u64 %d1; alloca.u64 %d2, 24, 16; st.local.b32 [%d2], %r1; stackrestore.u64 %d1; alloca.u64 %d1, %d2;",
	"createpolicy.fractional.L2::evict_first.b64 %d1, 0.5; ld.global.L2::cache_hint.b32 %r1, [%d2], %d1; griddepcontrol.launch_dependents;",
	/* warps and blocks */
	"bar.sync 0; bar.sync 1, 64; bar.arrive 2, 64; bar.red.popc.u32 %r1, 0, %p1; bar.red.and.pred %p1, 0, 64, !%p2; barrier.sync 3; bar.warp.sync 0xffffffff;",
	"vote.sync.ballot.b32 %r1, %p1, -1; vote.sync.all.pred %p1, !%p2, -1; vote.ballot.b32 %r1, %p1; activemask.b32 %r1; elect.sync %r1|%p1, -1; elect.sync _|%p1, -1;",
	"shfl.sync.idx.b32 %r1|%p1, %r2, 0, 31, -1; shfl.sync.bfly.b32 %r1, %r2, 16, 0x1f, -1; shfl.up.b32 %r1, %r2, 1, 0; shfl.sync.down.b32 %r1, %r2, %r3, %r4, %r5;",
	"match.any.sync.b32 %r1, %r2, -1; match.all.sync.b64 %r1|%p1, %d1, -1; redux.sync.add.s32 %r1, %r2, -1; redux.sync.xor.b32 %r1, %r2, -1;",
	/* flow */
	"@%p1 bra L1; @!%p1 bra.uni L1; bra L1;",
	"targets: .branchtargets L1, L1; brx.idx %r1, targets;",
	"{ .param .b32 x; .param .b32 r; st.param.b32 [x], %r1; call.uni (r), callee, (x); ld.param.b32 %r2, [r]; }",
	"{ .param .b32 x; .param .b32 r; proto: .callprototype (.param .b32 _) _ (.param .b32 _); mov.u64 %d1, callee; call (r), %d1, (x), proto; }",
	"@%p1 exit; @%p1 ret; @%p1 trap; brkpt; nanosleep.u32 100; pmevent 1;",
	/* textures and surfaces */
	"tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f5, %f6}]; tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%d1, {%r5}]; tex.3d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f5, %f6, %f7, %f8}];",
	"tex.level.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f5, %f6}], %f7; tex.a2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%r1, %f5, %f6, %f6}]; tld4.r.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f5, %f6}];",
	"suld.b.2d.v4.b32.trap {%r1, %r2, %r3, %r4}, [%d1, {%r5, %r6}]; sust.b.2d.b32.clamp [%d1, {%r1, %r2}], {%r3}; sust.b.1d.v2.b16.zero [%d1, {%r1}], {%h1, %h2}; sured.b.add.2d.u32.trap [%d1, {%r1, %r2}], %r3;",
	"txq.width.b32 %r1, [%d1]; suq.height.b32 %r1, [%d1];",
};

#endif
