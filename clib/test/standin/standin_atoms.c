/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on memory that nobody comes between. */
#include "once.h"

static void atomics_add_up(void)
{
	struct ptx_outcome outcome = once(
		KERNEL("add.u64 %rd4, %rd0, 4096; mov.u32 %r9, 0; atom.global.add.u32 %r9, [%rd4], 1; red.global.max.s32 [%rd4+4], %r0;\n"
		       "red.global.add.f32 [%rd4+8], 0f3f800000; atom.global.inc.u32 %r8, [%rd4+12], 6; red.global.or.b32 [%rd4+16], %r0;\n"
		       "mov.u64 %rd5, 2; red.global.add.u64 [%rd4+24], %rd5; atom.global.exch.b64 %rd6, [%rd4+32], %rd5;\n"
		       "atom.global.dec.u32 %r8, [%rd4+40], 3; atom.global.min.u32 %r8, [%rd4+44], %r0;"),
		8, 64);
	uint64_t sum;

	CHECK(outcome.fault == PTX_FAULT_NONE);
	CHECK(word(1024) == 512 && word(1025) == 63 && word(1026) == 0x44000000 && word(1027) == 512 % 7 && word(1028) == 63);
	memcpy(&sum, memory + 4096 + 24, 8);
	CHECK(sum == 1024 && word(1032) == 2 && word(1034) == 0 && word(1035) == 0);
}

static void wide_atoms(void)
{
	struct ptx_outcome outcome = once(
		LATER("{ .reg .b128 %q<4>; .reg .b64 %x<6>; .reg .pred %e; .shared .align 16 .b128 box;\n"
		      "L: ld.global.v2.b64 {%x0, %x1}, [%rd0+256]; add.u64 %x2, %x0, 1; add.u64 %x3, %x1, 0x100000002;\n"
		      "mov.b128 %q0, {%x0, %x1}; mov.b128 %q1, {%x2, %x3}; atom.global.cas.b128 %q2, [%rd0+256], %q0, %q1;\n"
		      "mov.b128 {%x4, %x5}, %q2; setp.ne.u64 %e, %x4, %x0; @%e bra L; setp.ne.u64 %e, %x5, %x1; @%e bra L;\n"
		      "setp.ne.u32 %p0, %r0, 0; @%p0 exit; mov.b128 %q3, {%x2, %x3}; st.shared.b128 [box], %q1;\n"
		      "mov.u64 %x0, 7; mov.u64 %x1, 8; mov.b128 %q0, {%x0, %x1}; atom.shared.exch.b128 %q0, [box], %q0;\n"
		      "atom.global.exch.b128 _, [%rd0+288], %q0; ld.shared.v2.b64 {%x4, %x5}, [box]; st.global.v2.b64 [%rd0+304], {%x4, %x5};\n"
		      "st.global.b128 [%rd0+320], %q3; mov.u32 %r9, 7; }"),
		2, 64);

	CHECK(outcome.fault == PTX_FAULT_NONE);
	CHECK(word(64) == 128 && word(65) == 0 && word(66) == 256 && word(67) == 128);
	CHECK(word(72) == word(80) && word(73) == word(81) && word(74) == word(82) && word(75) == word(83) && word(74) == 2 * word(72));
	CHECK(word(76) == 7 && word(78) == 8);
	outcome = once(LATER("{ .reg .b128 %q; .reg .b64 %x; mov.u64 %x, 0; mov.b128 %q, {%x, %x}; add.u64 %rd2, %rd0, 8; atom.global.exch.b128 %q, [%rd2], %q; }"), 1, 1);
	CHECK(outcome.fault == PTX_FAULT_MISALIGNED);
}

/* Where a function's frame has local memory below it, each atomic is still of the place that it names. */
static void atoms_in_functions(void)
{
	static const char *const atoms[] = { "add.u32 %r2, [%d], %r1", "and.b32 %r2, [%d], %r1", "or.b32 %r2, [%d], %r1", "xor.b32 %r2, [%d], %r1",
					     "exch.b32 %r2, [%d], %r1", "cas.b32 %r2, [%d], 5, %r1", "inc.u32 %r2, [%d], %r1",
					     "dec.u32 %r2, [%d], %r1", "min.s32 %r2, [%d], %r1", "max.u32 %r2, [%d], %r1" };
	static const uint32_t become[] = { 5 + 12, 5 & 12, 5 | 12, 5 ^ 12, 12, 12, 6, 4, 5, 12 };
	char text[2048];

	for (size_t i = 0; i < sizeof(atoms) / sizeof(*atoms); i++) {
		snprintf(text, sizeof(text),
			 HEADER ".func (.param .b32 old) f(.param .b64 at)\n{ .reg .b32 %%r<3>; .reg .b64 %%d; ld.param.b64 %%d, [at]; mov.u32 %%r1, 12;\n"
				"atom.%s; st.param.b32 [old], %%r2; ret; }\n"
				".visible .entry k(.param .u64 to)\n{ .reg .b32 %%r; .reg .b64 %%rd<2>; .local .align 8 .b8 room[64];\n"
				"ld.param.u64 %%rd0, [to]; st.local.u32 [room], 1; st.global.u32 [%%rd0], 5;\n"
				"{ .param .b64 x; .param .b32 y; st.param.b64 [x], %%rd0; call.uni (y), f, (x); ld.param.b32 %%r, [y]; }\n"
				"st.global.u32 [%%rd0+4], %%r; ret; }\n",
			 atoms[i]);
		struct ptx_outcome outcome = once(text, 1, 1);

		CHECK(outcome.fault == PTX_FAULT_NONE);
		CHECK(word(0) == become[i] && word(1) == 5);
	}
}

static const struct scenario scenarios[] = {
	{ "atomics_add_up", atomics_add_up },
	{ "wide_atoms", wide_atoms },
	{ "atoms_in_functions", atoms_in_functions },
};

RUN_SCENARIOS(scenarios)
