/* SPDX-License-Identifier: Apache-2.0 */
/* waiting.h: kernels that wait for the host and for each other, and where they run. */
#ifndef DIVVY_TEST_STANDIN_WAITING_H
#define DIVVY_TEST_STANDIN_WAITING_H

#include <stdatomic.h>

#include "driver.h"

/* await: goes on when a word is no longer 0 or, with value, when it is value; pass: writes one;
 * turns: two of them count a word up in turn; add: to a word, late. */
static const char source[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry await(.param .u64 a)\n{\n.reg .u64 %a; .reg .u32 %v; .reg .pred %p;\nld.param.u64 %a, [a];\n"
	"L: ld.volatile.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @%p bra L; ret;\n}\n"
	".visible .entry pass(.param .u64 a)\n{\n.reg .u64 %a; ld.param.u64 %a, [a]; st.volatile.u32 [%a], 1; ret;\n}\n"
	".visible .entry turns(.param .u64 a, .param .u32 me, .param .u32 times)\n{\n.reg .u64 %a; .reg .u32 %v, %m, %n, %w; .reg .pred %p;\n"
	"ld.param.u64 %a, [a]; ld.param.u32 %m, [me]; ld.param.u32 %n, [times];\n"
	"L: ld.volatile.u32 %v, [%a]; and.b32 %w, %v, 1; setp.ne.u32 %p, %w, %m; @%p bra L;\n"
	"add.u32 %v, %v, 1; st.volatile.u32 [%a], %v; sub.u32 %n, %n, 1; setp.ne.u32 %p, %n, 0; @%p bra L; ret;\n}\n"
	".visible .entry add(.param .u64 a, .param .u32 what)\n{\n.reg .u64 %a; .reg .u32 %v, %w; .reg .pred %p;\n"
	"ld.param.u64 %a, [a]; ld.param.u32 %w, [what]; mov.u32 %v, 50000;\n"
	"L: sub.u32 %v, %v, 1; setp.ne.u32 %p, %v, 0; @%p bra L;\n"
	"ld.global.u32 %v, [%a]; mad.lo.u32 %v, %v, 3, %w; st.global.u32 [%a], %v; ret;\n}\n"
	".visible .entry stop()\n{\ntrap; ret;\n}\n"
	/* the last block of a grid waits */
	".visible .entry last(.param .u64 a)\n{\n.reg .u64 %a; .reg .u32 %v, %n; .reg .pred %p;\nld.param.u64 %a, [a];\n"
	"mov.u32 %v, %ctaid.x; mov.u32 %n, %nctaid.x; sub.u32 %n, %n, 1; setp.ne.u32 %p, %v, %n; @%p ret;\n"
	"L: ld.volatile.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @%p bra L; ret;\n}\n"
	/* waits, and reads a texture then */
	".visible .entry sample(.param .u64 a, .param .u64 t)\n{\n.reg .u64 %a, %t; .reg .u32 %v, %x, %y, %z; .reg .s32 %i; .reg .pred %p;\n"
	"ld.param.u64 %a, [a]; ld.param.u64 %t, [t]; mov.s32 %i, 1;\n"
	"L: ld.volatile.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @%p bra L;\n"
	"tex.1d.v4.u32.s32 {%v, %x, %y, %z}, [%t, {%i}]; st.volatile.u32 [%a+4], %v; ret;\n}\n"
	".visible .entry divvy_busy_20ms()\n{\nret;\n}\n";

static CUmodule module;
static CUstream one, two;
static _Atomic uint32_t *word; /* the host's and the card's */

static inline CUcontext begin(void)
{
	CUcontext context = start();

	OK(cuModuleLoadData(&module, source));
	OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	OK(cuMemHostAlloc((void **)(void *)&word, 4096, 2));
	memset((void *)(uintptr_t)word, 0, 4096);
	return context;
}

static inline CUfunction function(const char *name)
{
	CUfunction found = NULL;

	OK(cuModuleGetFunction(&found, module, name));
	return found;
}

static inline void launch(const char *name, CUstream stream, _Atomic uint32_t *at)
{
	void *arguments[] = { &at };

	OK(cuLaunchKernel(function(name), 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

#endif
