/* SPDX-License-Identifier: Apache-2.0 */
/* What warps and blocks do: part and meet, wait, call, fault, print. */
#include "once.h"

static void lanes_part_and_meet(void)
{
	/* each lane goes round as often as its number says, then all vote */
	struct ptx_outcome outcome = once(KERNEL("mov.u32 %r9, 0; mov.u32 %r8, %r0;\n"
						 "L: setp.eq.u32 %p0, %r8, 0; @%p0 bra E;\n"
						 "add.u32 %r9, %r9, 3; sub.u32 %r8, %r8, 1; bra L;\n"
						 "E: activemask.b32 %r7; popc.b32 %r7, %r7; mad.lo.u32 %r9, %r7, 1000, %r9;"),
					  1, 40);

	CHECK(outcome.fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 40; i++)
		CHECK(word(i) == i * 3 + (i < 32 ? 32000u : 8000u));
	/* a table of targets, lanes that end in between, and a predicate before an end */
	outcome = once(KERNEL("mov.u32 %r9, 7; and.b32 %r8, %r0, 3;\nT: .branchtargets A, B, C, D;\nbrx.idx %r8, T;\n"
			      "A: mov.u32 %r9, 10; bra E;\nB: mov.u32 %r9, 11; bra E;\nC: setp.gt.u32 %p1, %r0, 5; @%p1 exit;\n"
			      "mov.u32 %r9, 12; bra E;\nD: mov.u32 %r9, 13;\nE: activemask.b32 %r7; popc.b32 %r7, %r7;\n"
			      "mad.lo.u32 %r9, %r7, 100, %r9;"),
		       1, 32);
	CHECK(outcome.fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 32; i++)
		CHECK(word(i) == (i % 4 == 2 && i > 5 ? 0 : 2510 + i % 4));
}

static void predicates_guard(void)
{
	struct ptx_outcome outcome = once(KERNEL("mov.u32 %r9, 1; setp.lt.u32 %p0, %r0, 5; setp.ge.u32 %p1, %r0, 100;\n"
						 "@%p0 add.u32 %r9, %r9, 10; @!%p0 add.u32 %r9, %r9, 20; @%p1 mov.u32 %r9, 99;\n"
						 "@!%p1 add.u32 %r9, %r9, 100;"),
					  1, 32);

	CHECK(outcome.fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 32; i++)
		CHECK(word(i) == (i < 5 ? 111u : 121u));
}

static void lanes_work_together(void)
{
	struct ptx_outcome outcome =
		once(KERNEL("mov.u32 %r9, %r0;\n"
			    "shfl.sync.down.b32 %r8|%p0, %r9, 16, 31, -1; @%p0 add.u32 %r9, %r9, %r8;\n"
			    "shfl.sync.bfly.b32 %r8, %r9, 1, 31, -1; shfl.sync.idx.b32 %r7, %r9, 3, 0x1c1f, -1;\n"
			    "shfl.sync.up.b32 %r6|%p1, %r9, 2, 0, -1;\n"
			    "mad.lo.u32 %r9, %r7, 100, %r8; selp.u32 %r5, 10000, 0, %p1; add.u32 %r9, %r9, %r5;\n"),
		     1, 32);
	uint32_t sum[32];

	CHECK(outcome.fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 32; i++)
		sum[i] = i < 16 ? i + i + 16 : i;
	/* 0x1c1f: segments of four */
	for (uint32_t i = 0; i < 32; i++)
		CHECK(word(i) == sum[i / 4 * 4 + 3] * 100 + sum[i ^ 1] + (i >= 2 ? 10000 : 0));
	outcome = once(KERNEL("setp.lt.u32 %p0, %r0, 3; vote.sync.ballot.b32 %r9, %p0, -1; vote.sync.any.pred %p1, %p0, -1;\n"
			      "vote.sync.all.pred %p2, %p0, -1; vote.sync.uni.pred %p3, !%p0, -1; @%p1 add.u32 %r9, %r9, 100;\n"
			      "@%p2 add.u32 %r9, %r9, 1000; @%p3 add.u32 %r9, %r9, 10000; and.b32 %r8, %r0, 1;\n"
			      "match.any.sync.b32 %r7, %r8, -1; match.all.sync.b32 %r6|%p4, %r8, -1; @%p4 add.u32 %r9, %r9, 1;\n"
			      "setp.eq.u32 %p5, %r7, 0x55555555; @%p5 add.u32 %r9, %r9, 20; redux.sync.add.u32 %r5, %r0, -1;\n"
			      "add.u32 %r9, %r9, %r5; redux.sync.max.s32 %r5, %r0, -1; add.u32 %r9, %r9, %r5;"),
		       1, 32);
	CHECK(outcome.fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 32; i++)
		CHECK(word(i) == 7 + 100 + (i % 2 ? 0 : 20) + 496 + 31);
	/* -16 to 15 and a NaN: the least, the greatest magnitude, and what a NaN makes of it */
	outcome = once(".version 8.6\n.target sm_100a\n.address_size 64\n" BODY(
			      "cvt.rn.f32.u32 %f0, %r0; sub.f32 %f0, %f0, 0f41800000; setp.eq.u32 %p0, %r0, 3;\n"
			      "@%p0 mov.f32 %f0, 0fffc00001; redux.sync.min.f32 %f1, %f0, -1; redux.sync.max.abs.f32 %f2, %f0, -1;\n"
			      "redux.sync.max.NaN.f32 %f3, %f0, -1; mov.b32 %r9, %f1; setp.ge.u32 %p1, %r0, 10; @%p1 mov.b32 %r9, %f2;\n"
			      "setp.ge.u32 %p1, %r0, 20; @%p1 mov.b32 %r9, %f3;"),
		       1, 32);
	CHECK(outcome.fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 32; i++)
		CHECK(word(i) == (i < 10 ? 0xc1800000 : i < 20 ? 0x41800000 : 0x7fffffff));
	/* lanes that come to the same vote from two sides */
	outcome = once(KERNEL("mov.u32 %r9, 0; setp.lt.u32 %p0, %r0, 9; @%p0 bra A;\nadd.u32 %r9, %r9, 1; bra J;\n"
			      "A: add.u32 %r9, %r9, 2; add.u32 %r9, %r9, 2;\nJ: vote.sync.ballot.b32 %r9, %p0, -1;"),
		       1, 32);
	for (uint32_t i = 0; i < 32; i++)
		CHECK(word(i) == 511);
}

static void barriers_hold(void)
{
	/* each thread reads what another warp wrote; the last warp has ended before */
	struct ptx_outcome outcome = once(
		KERNEL(".shared .b32 all[256];\nmov.u32 %r9, 77; setp.ge.u32 %p0, %r0, 128; @%p0 exit;\nmov.u32 %r1, all;\n"
		       "shl.b32 %r2, %r0, 2; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %r0; bar.sync 0; xor.b32 %r3, %r0, 127;\n"
		       "shl.b32 %r3, %r3, 2; mov.u32 %r4, all; add.u32 %r4, %r4, %r3; ld.shared.u32 %r9, [%r4];\n"
		       "setp.lt.u32 %p1, %r0, 10; bar.red.popc.u32 %r5, 1, %p1; mad.lo.u32 %r9, %r5, 1000, %r9;\n"
		       "bar.red.and.pred %p2, 2, %p1; @%p2 add.u32 %r9, %r9, 100000; bar.red.or.pred %p3, 3, %p1;\n"
		       "@%p3 add.u32 %r9, %r9, 1000000;"),
		1, 160);

	CHECK(outcome.fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 128; i++)
		CHECK(word(i) == (i ^ 127) + 10000 + 1000000);
	CHECK(word(140) == 0);
	/* producers arrive, consumers wait */
	outcome = once(KERNEL(".shared .b32 box;\nmov.u32 %r9, 1; setp.ge.u32 %p0, %r0, 32; @%p0 bra W;\n"
			      "st.shared.u32 [box], 42; bar.arrive 5, 64; bra E;\nW: bar.sync 5, 64; ld.shared.u32 %r9, [box];\nE:"),
		       1, 64);
	CHECK(outcome.fault == PTX_FAULT_NONE);
	CHECK(word(0) == 1 && word(32) == 42 && word(63) == 42);
	/* in a loop, with lanes that come late */
	outcome = once(KERNEL("mov.u32 %r9, 0; mov.u32 %r8, 0;\nL: and.b32 %r7, %r0, %r8; setp.eq.u32 %p0, %r7, 0; @%p0 bra S;\n"
			      "add.u32 %r9, %r9, 1;\nS: bar.sync 0; add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 8; @%p1 bra L;"),
		       1, 96);
	CHECK(outcome.fault == PTX_FAULT_NONE);
	CHECK(word(0) == 0 && word(7) == 7 && word(71) == 7 && word(1) == 4);
	/* nobody else will come */
	outcome = once(KERNEL("mov.u32 %r9, 0; setp.lt.u32 %p0, %r0, 32; @%p0 bra E;\nbar.sync 0, 64;\nE: bar.sync 1;"), 1, 64);
	CHECK(outcome.fault == PTX_FAULT_TRAP);
}

/* Lanes that went ahead into a function wait there for one that comes by a call of its own. */
static void lanes_meet_in_functions(void)
{
	struct ptx_outcome outcome =
		once(HEADER ".func (.param .b32 sum) g(.param .b32 a)\n{\n.reg .b32 %r<9>; .reg .b64 %d; .reg .pred %p;\n"
			    "ld.param.b32 %r1, [a]; cvt.u64.u32 %d, %r1; setp.lt.u32 %p, %r1, 16;\n"
			    "shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1; add.u32 %r3, %r1, %r2; cvt.u32.u64 %r4, %d;\n"
			    "mad.lo.u32 %r3, %r4, 1000, %r3; @%p add.u32 %r3, %r3, 100000; st.param.b32 [sum], %r3; ret;\n}\n"
			    ".func (.param .b32 sum) f(.param .b32 a)\n{\n.reg .b32 %r<3>;\nld.param.b32 %r1, [a];\n"
			    "{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call.uni (y), g, (x); ld.param.b32 %r2, [y]; }\n"
			    "st.param.b32 [sum], %r2; ret;\n}\n"
			    ".visible .entry k(.param .u64 to)\n{\n.reg .pred %p; .reg .b32 %r<10>; .reg .b64 %rd<2>;\n"
			    "ld.param.u64 %rd0, [to]; mov.u32 %r0, %tid.x; mad.wide.u32 %rd1, %r0, 4, %rd0;\n"
			    "setp.eq.u32 %p, %r0, 7; selp.u32 %r1, 400000, 1, %p;\n"
			    "L: sub.u32 %r1, %r1, 1; setp.ne.u32 %p, %r1, 0; @%p bra L;\n"
			    "{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r0; call.uni (y), f, (x); ld.param.b32 %r9, [y]; }\n"
			    "st.global.u32 [%rd1], %r9; ret;\n}\n",
		     1, 32);

	CHECK(outcome.fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 32; i++)
		CHECK(word(i) == i + (i ^ 16) + i * 1000 + (i < 16 ? 100000u : 0));
}

static void lanes_wait_for_lanes(void)
{
	/* a lock that the lanes of one warp take in turn */
	struct ptx_outcome outcome =
		once(KERNEL("mov.u32 %r9, 0; add.u64 %rd4, %rd0, 4096;\nL: atom.global.cas.b32 %r8, [%rd4], 0, 1;\n"
			    "setp.ne.u32 %p0, %r8, 0; @%p0 bra L;\nld.volatile.global.u32 %r9, [%rd4+4]; add.u32 %r9, %r9, 1;\n"
			    "st.volatile.global.u32 [%rd4+4], %r9; membar.gl; atom.global.exch.b32 %r7, [%rd4], 0;"),
		     2, 20);

	CHECK(outcome.fault == PTX_FAULT_NONE);
	CHECK(word(1025) == 40);
	/* a warp that waits for another one of its block, and a block for the next one */
	outcome = once(KERNEL("mov.u32 %r9, 1; mov.u32 %r1, %ctaid.x; setp.ne.u32 %p0, %r1, 0; @%p0 bra S;\n"
			      "W: ld.acquire.gpu.global.u32 %r2, [%rd0+8192]; setp.eq.u32 %p1, %r2, 0; @%p1 bra W;\nbra E;\n"
			      "S: st.release.gpu.global.u32 [%rd0+8192], 5;\nE:"),
		       2, 64);
	CHECK(outcome.fault == PTX_FAULT_NONE);
}

static const char calls[] = HEADER
	".visible .func (.param .u32 r) twice(.param .u32 x)\n{ .reg .b32 %r<4>; ld.param.u32 %r1, [x]; add.u32 %r1, %r1, %r1;\n"
	"st.param.u32 [r], %r1; ret; }\n"
	".visible .func (.reg .u32 r) plus(.reg .u32 x, .reg .u32 y)\n{ add.u32 r, x, y; ret; }\n"
	".visible .func (.param .u32 r) factorial(.param .u32 n)\n{ .reg .b32 %r<8>; .reg .pred %p<2>;\nld.param.u32 %r1, [n];\n"
	"mov.u32 %r2, 1; setp.le.u32 %p1, %r1, 1; @%p1 bra E;\nsub.u32 %r3, %r1, 1;\n{ .param .u32 a; .param .u32 b;\n"
	"st.param.u32 [a], %r3; call.uni (b), factorial, (a); ld.param.u32 %r4, [b]; }\nmul.lo.u32 %r2, %r1, %r4;\n"
	"E: st.param.u32 [r], %r2; ret; }\n"
	".global .u64 table[2] = { twice, factorial };\n"
	".visible .entry k(.param .u64 to)\n{ .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .pred %p<4>; .local .align 8 .b8 room[64];\n"
	"ld.param.u64 %rd0, [to]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd0, %rd1;\n"
	"and.b32 %r1, %r0, 7;\n{ .param .u32 a; .param .u32 b; st.param.u32 [a], %r1; call.uni (b), factorial, (a);\n"
	"ld.param.u32 %r2, [b]; }\nsetp.lt.u32 %p0, %r0, 10; @%p0 call (%r3), plus, (%r2, 5);\n@!%p0 mov.u32 %r3, %r2;\n"
	"and.b32 %r4, %r0, 1; mul.wide.u32 %rd2, %r4, 8; mov.u64 %rd3, table; add.u64 %rd3, %rd3, %rd2;\n"
	"ld.global.u64 %rd4, [%rd3];\nP: .callprototype (.param .u32 _) _ (.param .u32 _);\n"
	"{ .param .u32 a; .param .u32 b; st.param.u32 [a], %r1; call (b), %rd4, (a), P; ld.param.u32 %r5, [b]; }\n"
	"mov.u64 %rd5, room; cvta.local.u64 %rd6, %rd5; st.u32 [%rd6+8], %r5; ld.local.u32 %r6, [room+8];\n"
	"mad.lo.u32 %r9, %r3, 100, %r6; st.global.u32 [%rd1], %r9; ret; }\n";

static void functions_call(void)
{
	static const uint32_t factorial[8] = { 1, 1, 2, 6, 24, 120, 720, 5040 };
	struct ptx_outcome outcome = once(calls, 1, 64);

	CHECK(outcome.fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t n = i & 7;

		CHECK(word(i) == (factorial[n] + (i < 10 ? 5 : 0)) * 100 + (i & 1 ? factorial[n] : n * 2));
	}
	/* without an end */
	outcome = once(HEADER ".visible .func f()\n{ .local .b8 big[4096]; .reg .b32 %r<2>; st.local.u32 [big], %r1; call.uni f; ret; }\n"
			      ".visible .entry k(.param .u64 to)\n{ call.uni f; ret; }\n",
		       1, 32);
	CHECK(outcome.fault == PTX_FAULT_STACK);
	outcome = once(HEADER ".visible .func f()\n{ ret; }\n.visible .entry k(.param .u64 to)\n{ .reg .b64 %rd<4>; mov.u64 %rd1, f;\n"
			      "add.u64 %rd1, %rd1, 4096;\nP: .callprototype _ ();\ncall %rd1, (), P; ret; }\n",
		       1, 32);
	CHECK(outcome.fault == PTX_FAULT_PC);
}

static void memory_faults(void)
{
	struct ptx_outcome outcome = once(KERNEL("mov.u32 %r9, 0; mov.u64 %rd2, 0; st.global.u32 [%rd2], %r9;"), 1, 32);

	CHECK(outcome.fault == PTX_FAULT_ADDRESS && outcome.address == 0 && outcome.line > 0);
	outcome = once(KERNEL("mov.u32 %r9, 0; ld.global.u32 %r9, [%rd1+1048572];"), 1, 32);
	CHECK(outcome.fault == PTX_FAULT_ADDRESS && outcome.address == BASE + BYTES);
	outcome = once(KERNEL("mov.u32 %r9, 0; ld.global.u32 %r9, [%rd1+2];"), 1, 32);
	CHECK(outcome.fault == PTX_FAULT_MISALIGNED);
	outcome = once(KERNEL("mov.u32 %r9, 0; setp.eq.u32 %p0, %r0, 3; @%p0 ld.global.v2.u32 {%r9, %r8}, [%rd1];"), 1, 32);
	CHECK(outcome.fault == PTX_FAULT_MISALIGNED);
	outcome = once(KERNEL(".shared .b32 s[4];\nmov.u32 %r9, 0; ld.shared.u32 %r9, [s+1024];"), 1, 32);
	CHECK(outcome.fault == PTX_FAULT_ADDRESS);
	outcome = once(KERNEL(".local .b32 s[4];\nmov.u32 %r9, 0; ld.local.u32 %r9, [s+1024];"), 1, 32);
	CHECK(outcome.fault == PTX_FAULT_ADDRESS);
	outcome = once(KERNEL("mov.u32 %r9, 0; setp.eq.u32 %p0, %r0, 31; @%p0 trap;"), 4, 32);
	CHECK(outcome.fault == PTX_FAULT_TRAP);
}

static void memory_of_all_kinds(void)
{
	struct ptx_outcome outcome = once(
		KERNEL(".shared .align 8 .b8 s[1024]; .local .align 8 .b8 l[64];\nmov.u64 %rd2, s; cvta.shared.u64 %rd3, %rd2;\n"
		       "mul.wide.u32 %rd4, %r0, 8; add.u64 %rd3, %rd3, %rd4; st.v2.u16 [%rd3], {5, 6}; add.u64 %rd5, %rd2, %rd4;\n"
		       "ld.shared.u32 %r9, [%rd5]; isspacep.shared %p0, %rd3; isspacep.global %p1, %rd0; isspacep.local %p2, %rd0;\n"
		       "@%p0 add.u32 %r9, %r9, 1; @%p1 add.u32 %r9, %r9, 2; @%p2 add.u32 %r9, %r9, 4; mov.u64 %rd6, l;\n"
		       "cvta.local.u64 %rd7, %rd6; st.local.u8 [l+3], 0xff; ld.s8 %r8, [%rd7+3]; add.u32 %r9, %r9, %r8;\n"
		       "cvta.to.shared.u64 %rd8, %rd3; sub.u64 %rd8, %rd8, %rd5; cvt.u32.u64 %r7, %rd8; add.u32 %r9, %r9, %r7;"),
		1, 64);

	CHECK(outcome.fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 64; i++)
		CHECK(word(i) == 0x60005 + 3 - 1);
	outcome = once(HEADER ".const .align 4 .b32 c[3] = { 10, 20, 30 }; .global .b32 g = 5;\n.extern .shared .align 16 .b8 d[];\n"
			      ".visible .entry k(.param .align 4 .b8 to[8])\n{ .reg .b64 %rd<4>; .reg .b32 %r<8>; ld.param.u64 %rd0, [to];\n"
			      "ld.const.u32 %r1, [c+8]; ld.global.u32 %r2, [g]; add.u32 %r1, %r1, %r2; st.shared.u32 [d+12], %r1;\n"
			      "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [d]; st.global.u32 [%rd0], %r7; ret; }\n",
		       1, 1);
	CHECK(outcome.fault == PTX_FAULT_ADDRESS); /* no dynamic shared memory */
}

/* A copy whose source a predicate ignores is of zeros, and the source may be anywhere. */
static void copies_ignore_their_source(void)
{
	struct ptx_outcome outcome = once(
		".version 8.2\n.target sm_80\n.address_size 64\n"
		BODY(".shared .align 16 .b8 s[512]; add.u64 %rd4, %rd0, 4096; mul.wide.u32 %rd5, %r0, 4; add.u64 %rd6, %rd4, %rd5;\n"
		     "add.u32 %r8, %r0, 1000; st.mmio.relaxed.sys.global.u32 [%rd6], %r8; mov.u32 %r7, s; shl.b32 %r6, %r0, 2; add.u32 %r7, %r7, %r6;\n"
		     "and.b32 %r5, %r0, 1; setp.eq.u32 %p0, %r5, 1; selp.u64 %rd6, 0, %rd6, %p0; mov.u32 %r4, 77; st.shared.u32 [%r7], %r4;\n"
		     "cp.async.ca.shared.global [%r7], [%rd6], 4, %p0; cp.async.wait_all; ld.shared.u32 %r9, [%r7]; fence.proxy.alias;\n"
		     "not.pred %p1, %p0; cp.async.ca.shared.global [%r7], [%rd6], 4, !%p1; ld.shared.u32 %r3, [%r7]; add.u32 %r9, %r9, %r3;\n"),
		1, 64);

	CHECK(outcome.fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 64; i++)
		CHECK(word(i) == (i % 2 ? 0 : 2 * (1000 + i)));
}


static void registers_say_where(void)
{
	const struct {
		uint64_t to;
	} parameters = { BASE };
	struct program program;

	must_build(&program,
		   HEADER ".visible .entry k(.param .u64 to)\n{ .reg .b64 %rd<8>; .reg .b32 %r<32>; ld.param.u64 %rd0, [to];\n"
			  "mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y;\n"
			  "mad.lo.u32 %r6, %r3, %r5, %r2; mad.lo.u32 %r6, %r6, %r4, %r1; mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ctaid.y;\n"
			  "mov.u32 %r9, %nctaid.x; mad.lo.u32 %r10, %r8, %r9, %r7; mad.lo.u32 %r11, %r10, 24, %r6;\n"
			  "mul.wide.u32 %rd1, %r11, 4; add.u64 %rd1, %rd0, %rd1; mov.u32 %r12, %laneid; mov.u32 %r13, %lanemask_lt;\n"
			  "popc.b32 %r13, %r13; sub.u32 %r12, %r12, %r13; mov.u32 %r14, %nwarpid; mov.u32 %r15, %warpid;\n"
			  "add.u32 %r11, %r11, %r12; mad.lo.u32 %r11, %r14, 1000, %r11; mad.lo.u32 %r11, %r15, 10000, %r11;\n"
			  "st.global.u32 [%rd1], %r11; ret; }\n");
	struct ptx_outcome outcome = run_as(&program, "k", &parameters,
					    (struct ptx_launch){ .grid = { 3, 2, 1 }, .block = { 4, 3, 2 } });

	CHECK(outcome.fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 24 * 6; i++)
		CHECK(word(i) == i + 1000);
	drop(&program);
}

static void kernels_print(void)
{
	struct ptx_outcome outcome =
		once(HEADER ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n"
			    ".global .align 1 .b8 format[24] = {37,100,32,37,53,46,50,102,32,37,115,32,37,108,108,120,32,37,99,37,37,124,10,0};\n.global .align 1 .b8 name[5] = {108,97,110,101,0};\n"
			    ".visible .entry k(.param .u64 to)\n{ .reg .b64 %rd<8>; .reg .b32 %r<8>; .local .align 8 .b8 a[40];\n"
			    "mov.u32 %r1, %tid.x; neg.s32 %r1, %r1; mov.u64 %rd1, a; cvta.local.u64 %rd2, %rd1; st.local.u32 [a], %r1;\n"
			    "mov.u64 %rd3, 0d3FF8000000000000; st.local.u64 [a+8], %rd3; mov.u64 %rd4, name;\n"
			    "cvta.global.u64 %rd5, %rd4; st.local.u64 [a+16], %rd5; st.local.u64 [a+24], 0xabcdef0123;\n"
			    "st.local.u32 [a+32], 120; mov.u64 %rd6, format; cvta.global.u64 %rd7, %rd6;\n"
			    "{ .param .b64 p; .param .b64 q; .param .b32 s; st.param.b64 [p], %rd7; st.param.b64 [q], %rd2;\n"
			    "call.uni (s), vprintf, (p, q); ld.param.b32 %r2, [s]; }\nret; }\n",
		     1, 2);

	CHECK(outcome.fault == PTX_FAULT_NONE);
	if (strcmp(printed, "0  1.50 lane abcdef0123 x%|\n-1  1.50 lane abcdef0123 x%|\n") != 0)
		fprintf(stderr, "printed: %s", printed);
	CHECK(strcmp(printed, "0  1.50 lane abcdef0123 x%|\n-1  1.50 lane abcdef0123 x%|\n") == 0);
}

static void all_blocks_of_a_cooperative_grid_go_on(void)
{
	const uint64_t to = BASE;
	struct program program;

	/* every block waits until all have come */
	must_build(&program, KERNEL("setp.ne.u32 %p0, %r0, 0; @%p0 bra S;\nred.release.gpu.global.add.u32 [%rd0+4096], 1;\n"
				    "W: ld.acquire.gpu.global.u32 %r9, [%rd0+4096]; setp.lt.u32 %p1, %r9, 32; @%p1 bra W;\nS: bar.sync 0;"));
	memset(memory, 0, 8192);
	struct ptx_outcome outcome = run_as(&program, "k", &to,
					    (struct ptx_launch){ .grid = { 32, 1, 1 }, .block = { 64, 1, 1 }, .cooperative = true });

	CHECK(outcome.fault == PTX_FAULT_NONE);
	CHECK(word(1024) == 32 && word(0) == 32);
	drop(&program);
}

/* The tests run these scenarios with each engine: that the environment chooses it. */
static void the_environment_chooses_an_engine(void)
{
	static const char source[] = KERNEL("mov.u32 %r9, 3;");

	CHECK(setenv("DIVVY_PTX_ENGINE", "plain", 1) == 0);
	CHECK(strcmp(once(source, 1, 32).engine, "plain") == 0);
	CHECK(setenv("DIVVY_PTX_ENGINE", "none such", 1) == 0);
	const char *best = once(source, 1, 32).engine;

	CHECK(setenv("DIVVY_PTX_ENGINE", "avx2", 1) == 0);
	CHECK(strcmp(once(source, 1, 32).engine, strcmp(best, "plain") == 0 ? "plain" : "avx2") == 0);
	CHECK(unsetenv("DIVVY_PTX_ENGINE") == 0);
	CHECK(strcmp(once(source, 1, 32).engine, best) == 0 && word(0) == 3);
}

static void what_cannot_run_is_refused(void)
{
	static const char *const bodies[] = {
		"mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, {%r1,%r2}, {%r1,%r2}, "
		"{%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8};",
		"wgmma.fence.sync.aligned;",
		"mbarrier.init.shared.b64 [%r1], 4;",
		"vadd.s32.u32.s32.sat %r1, %r2.b0, -%r3.h1;",
		"tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [picture, {%f5, %f6}];",
		"suq.width.b32 %r1, [picture];",
	};

	for (size_t i = 0; i < COUNT(bodies); i++) {
		struct program program;
		char source[2048];

		snprintf(source, sizeof(source), "%s.global .texref picture;\n.visible .entry k()\n{ .reg .b32 %%r<16>; .reg .f32 %%f<16>;\n%s\nret; }\n", HEADER,
			 bodies[i]);
		CHECK(build(&program, source) != 0);
		char name[32] = "";

		sscanf(bodies[i], "%31[a-z]", name);
		if (!strstr(program.log.text, name))
			fprintf(stderr, "%s\n", program.log.text);
		CHECK(strstr(program.log.text, name) != NULL && strncmp(program.log.text, "line ", 5) == 0);
		drop(&program);
	}
}


/* Each value of a vector by itself, whatever lanes meet there; what was there comes back. */
static void vectors_are_added(void)
{
	struct ptx_outcome outcome = once(
		LATER("mov.f32 %f0, 0f3f800000; mov.f32 %f1, 0f40000000; mov.u64 %rd2, %rd0; add.u64 %rd3, %rd0, 1024;\n"
		      "red.global.add.v4.f32 [%rd2], {%f0, %f1, %f0, %f1};\n"
		      "{ .reg .b16 %h<8>; mov.b16 %h0, 0x3c00; cvt.rn.f16.u32 %h1, %r0; cvt.rn.f16.u32 %h2, %r0;\n"
		      "red.global.v4.f16.max.noftz [%rd3], {%h1, %h0, %h1, %h0}; red.global.v2.f16.min.noftz [%rd3+8], {%h0, %h2}; }\n"
		      "{ .reg .b32 %x, %y; mov.b32 %x, 0x3c003c00; mov.b32 %y, 0x40003c00; red.global.add.noftz.v2.f16x2 [%rd3+16], {%x, %y}; }\n"
		      "setp.ne.u32 %p0, %r0, 0; @%p0 exit; add.u64 %rd2, %rd0, 2048; mov.f32 %f2, 0f40400000; st.global.v2.f32 [%rd2], {%f1, %f2};\n"
		      /* the results are also what is added */
		      "atom.global.add.v2.f32 {%f0, %f1}, [%rd2], {%f1, %f0}; st.global.v2.f32 [%rd2+8], {%f0, %f1}; mov.u32 %r9, 7; add.u64 %rd1, %rd0, 3072;"),
		1, 32);

	CHECK(outcome.fault == PTX_FAULT_NONE);
	CHECK(word(0) == 0x42000000 && word(1) == 0x42800000 && word(2) == 0x42000000 && word(3) == 0x42800000);
	CHECK(word(256) == 0x3c004fc0 && word(257) == 0x3c004fc0); /* 31 and 1 */
	CHECK(word(258) == 0);                                     /* nothing is less than nothing */
	CHECK(word(260) == 0x50005000 && word(261) == 0x54005000); /* 32 and 64 */
	CHECK(word(512) == 0x40800000 && word(513) == 0x40800000); /* 2 + 2, 3 + 1 */
	CHECK(word(514) == 0x40000000 && word(515) == 0x40400000 && word(768) == 7);
	outcome = once(LATER("mov.f32 %f0, 0f3f800000; add.u64 %rd2, %rd0, 8; red.global.add.v4.f32 [%rd2], {%f0, %f0, %f0, %f0};"), 1, 1);
	CHECK(outcome.fault == PTX_FAULT_MISALIGNED);
}

static void wide_loads_and_stores(void)
{
	struct ptx_outcome outcome = once(
		LATER("{ .reg .b128 %q<3>; .reg .b64 %x<4>; mov.u64 %x0, 0x1111111122222222; mov.u64 %x1, 0x3333333344444444;\n"
		      "mov.b128 %q0, {%x0, %x1}; st.global.b128 [%rd0+256], %q0; ld.global.b128 %q1, [%rd0+256]; mov.b128 {%x2, %x3}, %q1;\n"
		      "st.global.v4.b64 [%rd0+512], {%x2, %x3, %x0, %x1}; .reg .b32 %y<8>; ld.global.v8.b32 {%y0, %y1, %y2, %y3, %y4, %y5, %y6, %y7}, [%rd0+512];\n"
		      "add.u32 %r9, %y3, %y4; .shared .align 16 .b128 box; st.shared.b128 [box], %q1; ld.shared.v2.b64 {%x0, %x1}, [box]; st.global.u64 [%rd0+768], %x1; }"),
		1, 1);

	CHECK(outcome.fault == PTX_FAULT_NONE);
	CHECK(word(64) == 0x22222222 && word(67) == 0x33333333 && word(128) == 0x22222222 && word(135) == 0x33333333);
	CHECK(word(192) == 0x44444444 && word(0) == 0x33333333 + 0x22222222);
}

/* Both halves at once, whatever lanes and blocks meet there. */
/* Each lane has its own stack; it is as before when a function returns, and ends somewhere. */
static void stacks_grow(void)
{
	static const char takes[] =
		".func (.param .b32 r) sum(.param .b32 n)\n{\n.reg .b32 %n, %i, %s, %v; .reg .b64 %a, %b, %c; .reg .pred %p;\n"
		"ld.param.b32 %n, [n]; mul.wide.u32 %b, %n, 4; alloca.u64 %a, %b, 64; cvta.local.u64 %c, %a; mov.u32 %i, 0; mov.u32 %s, 0;\n"
		"W: setp.ge.u32 %p, %i, %n; @%p bra R; mul.wide.u32 %b, %i, 4; add.u64 %b, %c, %b; mul.lo.u32 %v, %i, %i; st.u32 [%b], %v;\n"
		"add.u32 %i, %i, 1; bra W;\nR: setp.eq.u32 %p, %i, 0; @%p bra E; sub.u32 %i, %i, 1; mul.wide.u32 %b, %i, 4;\n"
		"add.u64 %b, %a, %b; ld.local.u32 %v, [%b]; add.u32 %s, %s, %v; bra R;\nE: st.param.b32 [r], %s; ret;\n}\n";
	char source[8192];
	struct ptx_outcome outcome;

	snprintf(source, sizeof(source), "%s%s%s", HEADER, takes,
		 BODY("mov.u32 %r8, 0; mov.u32 %r9, 0;\nL: { .param .b32 a; .param .b32 b; and.b32 %r7, %r0, 31; add.u32 %r7, %r7, %r8;\n"
		      "st.param.b32 [a], %r7; call (b), sum, (a); ld.param.b32 %r6, [b]; }\n"
		      "add.u32 %r9, %r9, %r6; add.u32 %r8, %r8, 1; setp.lt.u32 %p0, %r8, 200; @%p0 bra L;"));
	outcome = once(source, 1, 64); /* 200 times up to 900 bytes: more than there is, were it not given back */
	CHECK(outcome.fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t sum = 0;

		for (uint32_t n = i % 32; n < i % 32 + 200; n++) {
			for (uint32_t j = 0; j < n; j++)
				sum += j * j;
		}
		CHECK(word(i) == sum);
	}
	outcome = once(KERNEL("stacksave.u64 %rd2; mov.u64 %rd3, 1000; mov.u32 %r8, 0;\n"
			      "L: alloca.u64 %rd4, %rd3; st.local.u32 [%rd4], %r8; ld.local.u32 %r9, [%rd4]; stackrestore.u64 %rd2;\n"
			      "add.u32 %r8, %r8, 1; setp.lt.u32 %p0, %r8, 500; @%p0 bra L;"),
		       1, 32);
	CHECK(outcome.fault == PTX_FAULT_NONE && word(3) == 499);
	outcome = once(KERNEL("mov.u64 %rd3, 1000; L: alloca.u64 %rd4, %rd3; st.local.u32 [%rd4], %r0; bra L;"), 1, 32);
	CHECK(outcome.fault == PTX_FAULT_STACK);
	outcome = once(KERNEL("mov.u64 %rd3, -8; alloca.u64 %rd4, %rd3; mov.u32 %r9, 1;"), 1, 1);
	CHECK(outcome.fault == PTX_FAULT_STACK);
}

/* What clang 19 makes of test/corpus/current.cu, against the same in C. */
static void a_current_compiler(void)
{
	enum { COUNT_ = 64, IN = 4096, OTHER = 8192 };
	static char source[65536];
	FILE *file = fopen("test/corpus/current.ptx", "r");
	struct program program;
	float *in = (float *)(void *)(memory + IN);
	float *other = (float *)(void *)(memory + OTHER);
	float *out = (float *)(void *)memory;
	float sums[4] = { 0 };

	CHECK(file);
	source[fread(source, 1, sizeof(source) - 1, file)] = '\0';
	fclose(file);
	must_build(&program, source);
	memset(memory, 0, 65536);
	for (uint32_t i = 0; i < COUNT_; i++)
		memcpy(memory + IN + i * 4, &(uint32_t){ i % 40 }, 4);
	const uint64_t pointers[3] = { BASE, BASE + IN, BASE + OTHER };

	CHECK(run(&program, "stacks", 2, 32, pointers).fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < COUNT_; i++) {
		uint32_t sum = 0;

		for (uint32_t j = 0; j < i % 40; j++)
			sum += j * j;
		CHECK(word(i) == sum);
	}
	for (uint32_t i = 0; i < COUNT_ * 4; i++) {
		in[i] = (float)(i * 7 % 50) - 20;
		other[i] = (float)(i % 9) - 4;
		sums[i % 4] += in[i];
	}
	CHECK(run(&program, "policies", 2, 32, pointers).fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < COUNT_ * 4; i++)
		CHECK(out[i] == in[i] + 1);
	memset(memory, 0, 4096);
	memcpy(memory + OTHER, &(int32_t){ -100 }, 4);
	const uint64_t vectors[3] = { BASE, BASE + OTHER, BASE + IN };

	CHECK(run(&program, "vectors", 2, 32, vectors).fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < 4; i++)
		CHECK(out[i] == sums[i]); /* small whole numbers: in any order */
	int32_t largest = -100;
	int32_t got;

	for (uint32_t i = 0; i < COUNT_; i++)
		largest = (int32_t)in[i * 4] > largest ? (int32_t)in[i * 4] : largest;
	memcpy(&got, memory + OTHER, 4);
	CHECK(got == largest);
	other[0] = -4;
	CHECK(run(&program, "halves", 2, 32, pointers).fault == PTX_FAULT_NONE);
	for (uint32_t i = 0; i < COUNT_; i++) {
		float low = in[i] * other[i] - 1;
		float high = other[i] * 2 - 1;

		CHECK(out[i] == (low > 0 ? low : 0) + (high > 0 ? high : 0));
	}
	drop(&program);
}

static const struct scenario scenarios[] = {
	{ "lanes_part_and_meet", lanes_part_and_meet },
	{ "predicates_guard", predicates_guard },
	{ "lanes_work_together", lanes_work_together },
	{ "barriers_hold", barriers_hold },
	{ "lanes_meet_in_functions", lanes_meet_in_functions },
	{ "lanes_wait_for_lanes", lanes_wait_for_lanes },
	{ "functions_call", functions_call },
	{ "memory_faults", memory_faults },
	{ "memory_of_all_kinds", memory_of_all_kinds },
	{ "copies_ignore_their_source", copies_ignore_their_source },
	{ "registers_say_where", registers_say_where },
	{ "kernels_print", kernels_print },
	{ "all_blocks_of_a_cooperative_grid_go_on", all_blocks_of_a_cooperative_grid_go_on },
	{ "the_environment_chooses_an_engine", the_environment_chooses_an_engine },
	{ "what_cannot_run_is_refused", what_cannot_run_is_refused },
	{ "vectors_are_added", vectors_are_added },
	{ "wide_loads_and_stores", wide_loads_and_stores },
	{ "stacks_grow", stacks_grow },
	{ "a_current_compiler", a_current_compiler },
};

RUN_SCENARIOS(scenarios)
