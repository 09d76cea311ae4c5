/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forms.h: the forms of each instruction of PTX, with the version of the language and the
 * cards that have them first, after its public description. Whether the simulated GPU
 * takes one is not said here: the parser and the compiler are asked (standin_forms.c).
 *
 * FORM(version, target, "what it is called", "an instance of it")
 * Registers: %p (pred), %h (b16), %r (b32), %f (f32), %d (b64), %e (f64), %q (b128).
 */
#ifndef DIVVY_TEST_STANDIN_FORMS_H
#define DIVVY_TEST_STANDIN_FORMS_H

#define FORMS(FORM) \
	/* 6.0 and before count as one */ \
	FORM(60, 30, "integers: add sub mul mad div rem abs neg min max", "add.s32 %r1, %r2, %r3; sub.u64 %d1, %d2, %d3; mul.wide.u16 %r1, %h1, %h2; mad.hi.s32 %r1, %r2, %r3, %r4; div.u16 %h1, %h2, %h3; rem.s64 %d1, %d2, %d3; abs.s32 %r1, %r2; neg.s16 %h1, %h2; min.u32 %r1, %r2, %r3; max.s16 %h1, %h2, %h3;") \
	FORM(60, 30, "carries: add.cc addc sub.cc subc mad.cc madc", "add.cc.u32 %r1, %r2, %r3; addc.u32 %r1, %r2, %r3; sub.cc.u32 %r1, %r2, %r3; subc.u32 %r1, %r2, %r3; mad.lo.cc.u32 %r1, %r2, %r3, %r4; madc.hi.u32 %r1, %r2, %r3, %r4;") \
	FORM(60, 30, "mul24 mad24 sad", "mul24.lo.s32 %r1, %r2, %r3; mad24.hi.u32 %r1, %r2, %r3, %r4; sad.s32 %r1, %r2, %r3, %r4;") \
	FORM(60, 61, "dp4a dp2a", "dp4a.u32.s32 %r1, %r2, %r3, %r4; dp2a.lo.s32.u32 %r1, %r2, %r3, %r4;") \
	FORM(60, 30, "bits: and or xor not cnot shl shr bfe bfi bfind brev clz popc prmt", "and.b32 %r1, %r2, %r3; or.b64 %d1, %d2, %d3; xor.b16 %h1, %h2, %h3; not.pred %p1, %p2; cnot.b32 %r1, %r2; shl.b32 %r1, %r2, 3; shr.s64 %d1, %d2, %r1; bfe.u32 %r1, %r2, 1, 2; bfi.b64 %d1, %d2, %d3, 1, 2; bfind.u32 %r1, %r2; brev.b32 %r1, %r2; clz.b64 %r1, %d1; popc.b32 %r1, %r2; prmt.b32 %r1, %r2, %r3, %r4;") \
	FORM(60, 50, "lop3 shf", "lop3.b32 %r1, %r2, %r3, %r4, 0x96; shf.l.wrap.b32 %r1, %r2, %r3, %r4;") \
	FORM(60, 30, "f32 and f64: add sub mul fma mad div rcp sqrt rsqrt, all roundings", "add.rz.ftz.f32 %f1, %f2, %f3; sub.rm.f64 %e1, %e2, %e3; mul.rp.sat.f32 %f1, %f2, %f3; fma.rn.f64 %e1, %e2, %e3, %e4; mad.rn.f32 %f1, %f2, %f3, %f4; div.rn.f32 %f1, %f2, %f3; div.full.f32 %f1, %f2, %f3; rcp.rn.f64 %e1, %e2; sqrt.rz.f32 %f1, %f2; rsqrt.approx.f64 %e1, %e2;") \
	FORM(60, 30, "sin cos lg2 ex2 copysign testp", "sin.approx.f32 %f1, %f2; cos.approx.ftz.f32 %f1, %f2; lg2.approx.f32 %f1, %f2; ex2.approx.f32 %f1, %f2; copysign.f64 %e1, %e2, %e3; testp.normal.f32 %p1, %f1;") \
	FORM(60, 53, "f16 and f16x2: add sub mul fma", "add.rn.f16 %h1, %h2, %h3; sub.f16x2 %r1, %r2, %r3; mul.ftz.f16 %h1, %h2, %h3; fma.rn.sat.f16x2 %r1, %r2, %r3, %r4;") \
	FORM(60, 30, "set setp selp slct", "set.lt.u32.s32 %r1, %r2, %r3; setp.geu.and.f32 %p1|%p2, %f1, %f2, !%p2; selp.b64 %d1, %d2, %d3, %p1; slct.f32.s32 %f1, %f2, %f3, %r1;") \
	FORM(60, 30, "mov, vectors packed and unpacked, cvt of integers and floats, cvta, isspacep", "mov.b64 {%r1, %r2}, %d1; mov.b32 %r1, {%h1, %h2}; cvt.rni.s32.f32 %r1, %f1; cvt.sat.u8.s32 %r1, %r2; cvt.rp.f32.u64 %f1, %d1; cvta.to.global.u64 %d1, %d2; isspacep.shared %p1, %d1;") \
	FORM(60, 70, "ld st, every space, vectors, cache operators, volatile relaxed acquire release", "ld.global.cg.v4.f32 {%f1, %f2, %f3, %f4}, [%d1]; ld.global.nc.u8 %r1, [%d1]; ldu.global.u32 %r1, [%d1]; st.shared.v2.b32 [tile], {%r1, %r2}; ld.acquire.gpu.global.u32 %r1, [%d1]; st.release.sys.global.u32 [%d1], %r1; st.wt.f64 [%d1], %e1;") \
	FORM(60, 30, "prefetch prefetchu membar", "prefetch.global.L2 [%d1]; prefetchu.L1 [%d1]; membar.sys;") \
	FORM(60, 60, "atom red", "atom.global.cas.b64 %d1, [%d2], %d3, %d4; atom.shared.inc.u32 %r1, [tile], %r2; red.global.add.f64 [%d1], %e1; red.max.s64 [%d1], %d2;") \
	FORM(60, 70, "fence", "fence.acq_rel.gpu; fence.sc.sys;") \
	FORM(60, 30, "bra call ret exit trap brkpt pmevent", "bra.uni L1; call callee0; ret; exit; trap; brkpt; pmevent 1; pmevent.mask 3;") \
	FORM(60, 30, "bar barrier", "bar.sync 0; bar.red.popc.u32 %r1, 0, %p1; barrier.sync 1;") \
	FORM(60, 30, "shfl.sync vote.sync match.sync bar.warp.sync", "shfl.sync.idx.b32 %r1|%p1, %r2, 0, 31, -1; vote.sync.ballot.b32 %r1, %p1, -1; bar.warp.sync -1;") \
	FORM(60, 30, "shfl vote without .sync", "shfl.bfly.b32 %r1, %r2, 1, 31; vote.ballot.b32 %r1, %p1;") \
	FORM(60, 70, "match", "match.any.sync.b32 %r1, %r2, -1; match.all.sync.b64 %r1|%p1, %d1, -1;") \
	FORM(60, 30, "fns", "fns.b32 %r1, %r2, %r3, 1;") \
	FORM(60, 30, "tex tld4 txq of handles", "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f5, %f6}]; tld4.r.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f5, %f6}]; txq.width.b32 %r1, [%d1];") \
	FORM(60, 30, "istypep", "istypep.texref %p1, %d1;") \
	FORM(60, 30, "tex.grad", "tex.grad.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f5, %f6}], {%f1, %f2}, {%f3, %f4};") \
	FORM(60, 30, "tex of cubemaps", "tex.cube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f5, %f6, %f7, %f8}];") \
	FORM(60, 30, "suld.b sust.b sured.b suq", "suld.b.2d.b32.trap {%r1}, [%d1, {%r5, %r6}]; sust.b.2d.b32.clamp [%d1, {%r1, %r2}], {%r3}; sured.b.add.2d.u32.trap [%d1, {%r1, %r2}], %r3; suq.height.b32 %r1, [%d1];") \
	FORM(60, 30, "sust.p", "sust.p.2d.b32.trap [%d1, {%r1, %r2}], {%r3};") \
	FORM(60, 30, "vadd vsub vabsdiff vmin vmax vmad vset vshl vshr", "vadd.s32.s32.s32 %r1, %r2, %r3; vsub.s32.s32.s32 %r1, %r2, %r3; vabsdiff.s32.s32.s32 %r1, %r2, %r3; vmin.s32.s32.s32 %r1, %r2, %r3; vmax.s32.s32.s32 %r1, %r2, %r3; vmad.s32.s32.s32 %r1, %r2, %r3, %r4; vset.s32.s32.lt %r1, %r2, %r3; vshl.u32.u32.u32.clamp %r1, %r2, %r3; vshr.u32.u32.u32.clamp %r1, %r2, %r3;") \
	FORM(60, 30, "vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2, the same of four", "vadd2.s32.s32.s32 %r1, %r2, %r3, %r4; vsub2.s32.s32.s32 %r1, %r2, %r3, %r4; vavrg2.s32.s32.s32 %r1, %r2, %r3, %r4; vabsdiff2.s32.s32.s32 %r1, %r2, %r3, %r4; vmin2.s32.s32.s32 %r1, %r2, %r3, %r4; vmax2.s32.s32.s32 %r1, %r2, %r3, %r4; vset2.s32.s32.lt %r1, %r2, %r3, %r4; vadd4.s32.s32.s32 %r1, %r2, %r3, %r4; vsub4.s32.s32.s32 %r1, %r2, %r3, %r4; vavrg4.s32.s32.s32 %r1, %r2, %r3, %r4; vabsdiff4.s32.s32.s32 %r1, %r2, %r3, %r4; vmin4.s32.s32.s32 %r1, %r2, %r3, %r4; vmax4.s32.s32.s32 %r1, %r2, %r3, %r4; vset4.s32.s32.lt %r1, %r2, %r3, %r4;") \
	FORM(60, 30, "brx.idx", "T: .branchtargets L1; brx.idx %r1, T;") \
	FORM(60, 70, "wmma", "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%d1];") \
	FORM(62, 30, "activemask", "activemask.b32 %r1;") \
	FORM(63, 70, "nanosleep, atom of f16 and f16x2, red.noftz", "nanosleep.u32 100; atom.add.noftz.f16x2 %r1, [%d1], %r2; red.global.add.noftz.f16x2 [%d1], %r1;") \
	FORM(64, 70, "mma.m8n8k4 of f16", "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7, %r8}, {%r1, %r2, %r3, %r4};") \
	FORM(65, 72, "cvt.pack.sat", "cvt.pack.sat.u16.s32 %r1, %r2, %r3; cvt.pack.sat.s8.s32.b32 %r1, %r2, %r3, %r4;") \
	FORM(65, 75, "cvt.pack.sat of 4 and 2 bits", "cvt.pack.sat.u4.s32.b32 %r1, %r2, %r3, %r4; cvt.pack.sat.s2.s32.b32 %r1, %r2, %r3, %r4;") \
	FORM(65, 75, "ldmatrix", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2]; ldmatrix.sync.aligned.m8n8.x4.trans.b16 {%r1, %r2, %r3, %r4}, [%d1];") \
	FORM(65, 75, "mma.m16n8k8 of f16, m8n8k16 of 8 bits", "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r3, %r4}, {%r5}, {%r1, %r2}; mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r3, %r4}, {%r5}, {%f1, %f2, %f3, %f4}; mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.u8.s32 {%r1, %r2}, {%r3}, {%r4}, {%r1, %r2};") \
	FORM(65, 75, "mma of 4 bits and 1", "mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32 {%r1, %r2}, {%r3}, {%r4}, {%r1, %r2};") \
	FORM(70, 80, "cp.async, its groups", "cp.async.ca.shared.global [%r1], [%d1], 16; cp.async.cg.shared.global.L2::128B [%r1], [%d1], 16, %r2; cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all;") \
	FORM(70, 80, "mbarrier", "mbarrier.init.shared.b64 [%r1], %r2;") \
	FORM(70, 80, "mma.m16n8k16 of f16, bf16 and 8 bits, of tf32 and f64, m16n8k32 of 8 bits", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}; mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7}, {%r1, %r2, %r3, %r4}; mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}; mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1, %d2}, {%d3}, {%d4}, {%d1, %d2}; mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1, %r2, %r3, %r4}, {%r5, %r6, %r7, %r8}, {%r1, %r2}, {%r1, %r2, %r3, %r4};") \
	FORM(70, 80, "redux.sync", "redux.sync.add.s32 %r1, %r2, -1;") \
	FORM(70, 80, "bf16: fma min max neg abs, conversions, .relu", "fma.rn.relu.bf16x2 %r1, %r2, %r3, %r4; min.NaN.bf16 %h1, %h2, %h3; max.f16x2 %r1, %r2, %r3; neg.bf16 %h1, %h2; abs.bf16x2 %r1, %r2; cvt.rn.relu.bf16x2.f32 %r1, %f1, %f2; cvt.rna.tf32.f32 %r1, %f1;") \
	FORM(70, 75, "tanh, ex2 of halves", "tanh.approx.f32 %f1, %f2; tanh.approx.f16x2 %r1, %r2; ex2.approx.f16 %h1, %h2;") \
	FORM(71, 80, "mma.sp", "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3, %r4}, {%f1, %f2, %f3, %f4}, %r5, 0;") \
	FORM(72, 86, "min max .xorsign.abs", "max.xorsign.abs.f32 %f1, %f2, %f3; min.NaN.xorsign.abs.f16 %h1, %h2, %h3;") \
	FORM(73, 52, "alloca stacksave stackrestore", "stacksave.u64 %d1; alloca.u64 %d2, %d3, 16; alloca.u64 %d2, %d3; stackrestore.u64 %d1;") \
	FORM(74, 70, "ld and st with .L1 and .L2 evictions and prefetch sizes", "ld.global.L1::no_allocate.L2::256B.u32 {%r1}, [%d1]; ld.global.L1::evict_last.f32 %f1, [%d1]; st.global.L1::evict_first.u32 [%d1], %r1; ld.global.L2::128B.v2.b64 {%d1, %d2}, [%d3];") \
	FORM(74, 80, "createpolicy, .L2::cache_hint of ld st atom red cp.async, prefetch and applypriority by priority, discard", "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %d1, 1.0; createpolicy.fractional.L2::evict_first.b64 %d1; createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %d1, [%d2], %r1, %r2; createpolicy.cvt.L2.b64 %d1, %d2; ld.global.L1::evict_last.L2::cache_hint.b32 %r1, [%d1], %d2; st.global.L2::cache_hint.v2.b32 [%d1], {%r1, %r2}, %d2; atom.global.add.L2::cache_hint.u32 %r1, [%d1], %r2, %d3; red.global.add.L2::cache_hint.u32 [%d1], %r2, %d3; cp.async.ca.shared.global.L2::cache_hint [%r1], [%d1], 16, %d2; prefetch.global.L2::evict_last [%d1]; applypriority.global.L2::evict_normal [%d1], 128; discard.global.L2 [%d1], 128;") \
	FORM(75, 80, "cp.async with a predicate to ignore the source, fence.proxy.alias", "cp.async.cg.shared.global [%r1], [%d1], 16, %p1; cp.async.ca.shared.global.L2::cache_hint [%r1], [%d1], 4, !%p1, %d2; fence.proxy.alias;") \
	FORM(76, 70, "bmsk szext", "bmsk.clamp.b32 %r1, %r2, %r3; szext.wrap.s32 %r1, %r2, %r3;") \
	FORM(78, 90, "griddepcontrol", "griddepcontrol.launch_dependents; griddepcontrol.wait;") \
	FORM(78, 90, "getctarank mapa, barrier.cluster", "getctarank.u64 %r1, %d1; mapa.u64 %d1, %d2, %r1; barrier.cluster.arrive;") \
	FORM(78, 75, "movmatrix", "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;") \
	FORM(78, 90, "stmatrix", "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};") \
	FORM(78, 90, "e4m3x2 e5m2x2, conversions of bf16 and all other types", "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2; cvt.rn.f16x2.e5m2x2 %r1, %h1; cvt.rn.satfinite.relu.e4m3x2.f16x2 %h1, %r1; cvt.rn.bf16.s32 %h1, %r1; cvt.rzi.u32.bf16 %r1, %h1; cvt.rz.tf32.f32 %r1, %f1;") \
	FORM(80, 90, "add min max of .u16x2 .s16x2, min max .relu of .s32 .s16x2", "add.u16x2 %r1, %r2, %r3; min.s16x2 %r1, %r2, %r3; max.relu.s16x2 %r1, %r2, %r3; min.relu.s32 %r1, %r2, %r3;") \
	FORM(80, 90, "cp.async.bulk", "cp.async.bulk.commit_group;") \
	FORM(80, 90, "elect", "elect.sync %r1|%p1, -1;") \
	FORM(80, 90, "setmaxnreg", "setmaxnreg.inc.sync.aligned.u32 64;") \
	FORM(80, 90, "wgmma", "wgmma.fence.sync.aligned;") \
	FORM(81, 90, "atom red of vectors", "atom.global.v4.f32.add {%f1, %f2, %f3, %f4}, [%d1], {%f5, %f6, %f7, %f8}; red.global.v8.bf16.max.noftz [%d1], {%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8}; red.relaxed.gpu.global.add.noftz.v2.f16x2 [%d1], {%r1, %r2};") \
	FORM(81, 90, "fma.oob, cvt.satfinite of halves", "fma.rn.oob.relu.f16x2 %r1, %r2, %r3, %r4; cvt.rn.satfinite.f16x2.f32 %r1, %f1, %f2;") \
	FORM(81, 90, "multimem", "multimem.red.global.add.u32 [%d1], %r1;") \
	FORM(82, 70, "ld.mmio st.mmio", "ld.mmio.relaxed.sys.global.u32 %r1, [%d1]; st.mmio.relaxed.sys.global.u32 [%d1], %r1;") \
	FORM(83, 70, "ld st mov of .b128", "ld.global.b128 %q1, [%d1]; mov.b128 {%d1, %d2}, %q1; mov.b128 %q2, {%d3, %d4}; st.global.b128 [%d1], %q2;") \
	FORM(83, 90, "atom of .b128", "atom.global.exch.b128 %q1, [%d1], %q2; atom.global.cas.b128 %q1, [%d1], %q2, %q2;") \
	FORM(83, 90, "tensormap", "tensormap.replace.tile.rank.global.b1024.b32 [%d1], 2;") \
	FORM(84, 89, "mma.m16n8k32 of e4m3 and e5m2", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4};") \
	FORM(86, 100, "add sub mul fma of .f32x2", "add.rn.f32x2 %d1, %d2, %d3; sub.rz.ftz.f32x2 %d1, %d2, %d3; mul.rm.f32x2 %d1, %d2, %d3; fma.rp.f32x2 %d1, %d2, %d3, %d4;") \
	FORM(86, 100, "add sub fma of .f32 and a half", "add.f32.f16 %f1, %h1, %f2; sub.rz.sat.f32.bf16 %f1, %h1, %f2; fma.rn.f32.bf16 %f1, %h1, %h2, %f3;") \
	FORM(86, 100, "clusterlaunchcontrol", "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q1;") \
	FORM(86, 100, "redux.sync of f32", "redux.sync.max.f32 %f1, %f2, -1; redux.sync.min.abs.NaN.f32 %f1, %f2, -1;") \
	FORM(86, 100, "min max of three f32", "min.f32 %f1, %f2, %f3, %f4; max.NaN.f32 %f1, %f2, %f3, %f4;") \
	FORM(86, 100, "e2m1x2 e2m3x2 e3m2x2 ue8m0x2", "cvt.rn.satfinite.e2m1x2.f32 %h1, %f1, %f2;") \
	FORM(88, 100, "ld st of 32 bytes", "ld.global.v8.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%d1]; st.global.v4.b64 [%d1], {%d1, %d2, %d3, %d4};")

#endif
