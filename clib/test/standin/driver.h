/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h: what the tests of the stand-in driver share: a context, and checks of results. */
#ifndef DIVVY_TEST_STANDIN_DRIVER_H
#define DIVVY_TEST_STANDIN_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "../check.h"
#include "cuda_abi.h"

#define MIB ((uint64_t)1 << 20)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define GIVES(call, want)                                                                                  \
	do {                                                                                               \
		CUresult result_ = (call);                                                                 \
		if (result_ != (want)) {                                                                   \
			fprintf(stderr, "%s:%d: %s = %d, want %d\n", __FILE__, __LINE__, #call, result_, want); \
			_exit(1);                                                                          \
		}                                                                                          \
	} while (0)
#define OK(call) GIVES(call, CUDA_SUCCESS)

static inline uint64_t room(void)
{
	size_t freebytes = 0;
	size_t total = 0;

	OK(cuMemGetInfo_v2(&freebytes, &total));
	return freebytes;
}

static inline CUcontext start(void)
{
	CUcontext context = NULL;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	return context;
}

/* the same numbers in every run */
static inline uint64_t random64(void)
{
	static uint64_t state = 88172645463325252ull;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static inline void fill(unsigned char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		bytes[i] = (unsigned char)random64();
}

static inline CUmemAllocationProp physical(void)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
	};
}

/* Ends the context; everything must be back. */
static inline void finish(uint64_t before)
{
	CHECK(room() == before);
	OK(cuDevicePrimaryCtxRelease_v2(0));
}

#endif
