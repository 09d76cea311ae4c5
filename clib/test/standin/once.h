/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel of a few instructions, run once. */
#ifndef DIVVY_TEST_STANDIN_ONCE_H
#define DIVVY_TEST_STANDIN_ONCE_H

#include "program.h"

static uint32_t word(uint32_t index)
{
	uint32_t value;

	memcpy(&value, memory + index * 4, 4);
	return value;
}

/* A kernel with one parameter, where results go; %r0 is the thread, %rd1 its word. */
#define KERNEL(body) HEADER BODY(body)
#define BODY(body)                                                                                                   \
	".visible .entry k(.param .u64 to)\n{\n.reg .pred %p<16>; .reg .b32 %r<32>; .reg .b64 %rd<16>;\n"      \
	       ".reg .f32 %f<8>;\nld.param.u64 %rd0, [to]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4;\n"        \
	       "add.u64 %rd1, %rd0, %rd1;\n" body "\nst.global.u32 [%rd1], %r9;\nret;\n}\n"

static struct ptx_outcome once(const char *source, uint32_t blocks, uint32_t threads)
{
	const uint64_t to = BASE;
	struct program program;

	must_build(&program, source);
	memset(memory, 0, 65536);
	struct ptx_outcome outcome = run(&program, "k", blocks, threads, &to);

	drop(&program);
	return outcome;
}

/* The same as KERNEL, of a version and for cards of one's own. */
#define LATER(body)                                                                                                  \
	".version 8.8\n.target sm_100\n.address_size 64\n" BODY(body)

#endif
