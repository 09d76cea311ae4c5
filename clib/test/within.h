/* SPDX-License-Identifier: Apache-2.0 */
/*
 * within.h: a program's life over fakedriver.h, for tests of the memory hooks.
 * SCENARIO(f) makes run_f: f within a context, and at the end nothing is held.
 */
#ifndef DIVVY_TEST_WITHIN_H
#define DIVVY_TEST_WITHIN_H

#include "check.h"
#include "fakedriver.h"

#define LIMIT (1ull << 30)
#define MIB (1ull << 20)

static inline CUdeviceptr alloc_ok(uint64_t bytes)
{
	CUdeviceptr pointer = 0;

	CHECK(hook_cuMemAlloc_v2(SYM_cuMemAlloc_v2, &pointer, bytes) == CUDA_SUCCESS && pointer);
	return pointer;
}

static inline void free_ok(CUdeviceptr pointer)
{
	CHECK(hook_cuMemFree_v2(SYM_cuMemFree_v2, pointer) == CUDA_SUCCESS);
}

#define BALANCED() CHECK(fake_charged() == fake_held())

static inline void within(void (*run)(void))
{
	CUcontext context = NULL;

	fake_start(LIMIT);
	CHECK(hook_cuCtxCreate_v2(SYM_cuCtxCreate_v2, &context, 0, FAKE_CARD) == CUDA_SUCCESS);
	run();
	CHECK(hook_cuCtxDestroy_v2(SYM_cuCtxDestroy_v2, context) == CUDA_SUCCESS);
	CHECK(fake_charged() == 0 && fake_held() == 0 && fake_contexts() == 0);
}

#define SCENARIO(function) \
	static void run_##function(void) \
	{ \
		within(function); \
	}

#endif
