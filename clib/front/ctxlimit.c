/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctxlimit.c: what a context reserves because cuCtxSetLimit asked for it.
 *
 * Rule: divvy_limits.h, the stand-in's own and, on hardware, an estimate: above
 * the default, the heap for malloc in kernels and the printf fifo cost the
 * difference, the stack costs it for every thread that can be resident. Other
 * limits cost nothing. The driver may round a limit: the charge follows what
 * cuCtxGetLimit says afterwards. It dies with its context.
 *
 * One lock around it all, since limits are set once or twice in a program's
 * life; it is held across front_charge, which does not come back here.
 */
#include "memory.h"
#include "front_hooks.h"
#include "divvy_limits.h"

static struct front_lock lock;

static uint32_t multiprocessors(int slot)
{
	int count = 0;

	if (REAL(SYM_cuDeviceGetAttribute, cuDeviceGetAttribute)(
		    &count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, front_device(slot)) != CUDA_SUCCESS || count < 0)
		return 0;
	return (uint32_t)count;
}

static CUresult set(enum divvy_symbol called, CUcontext context, CUlimit limit, size_t value)
{
	static const char call[] = "cuCtxSetLimit";
	struct front_place place = context_place();
	uint16_t space = (uint16_t)(SPACE_LIMIT + limit);
	struct table_record record = {
		.key = (uintptr_t)context, .owner = place.owner, .space = space, .slot = (uint8_t)place.slot,
	};
	struct table_record old = { 0 };
	uint64_t wanted, charged;
	uint32_t processors;
	size_t actual = value, before = 0;
	CUresult result;

	(void)REAL(SYM_cuCtxGetLimit, cuCtxGetLimit)(&before, limit);
	processors = multiprocessors(place.slot);
	wanted = memory_round(divvy_limit_bytes((int)limit, value, processors), DIVVY_ALLOCATION_UNIT);
	(void)table_get(&front_held, space, record.key, &old);
	charged = old.bytes;
	if (wanted > charged) {
		result = memory_charge(place.slot, wanted - charged, call);
		if (result != CUDA_SUCCESS)
			return result;
		charged = wanted;
	}
	result = REAL(called, cuCtxSetLimit)(limit, value);
	if (result != CUDA_SUCCESS) {
		if (charged > old.bytes)
			memory_refused(place.slot, charged - old.bytes, result, call);
		return result;
	}
	if (REAL(SYM_cuCtxGetLimit, cuCtxGetLimit)(&actual, limit) == CUDA_SUCCESS && actual)
		wanted = memory_round(divvy_limit_bytes((int)limit, actual, processors), DIVVY_ALLOCATION_UNIT);
	if (memory_settle(place.slot, charged, wanted, call) != 0) {
		(void)REAL(called, cuCtxSetLimit)(limit, before);
		if (charged > old.bytes)
			front_uncharge(place.slot, charged - old.bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	record.bytes = wanted;
	(void)table_put(&front_held, &record, NULL); /* without a place the charge stays */
	return CUDA_SUCCESS;
}

CUresult hook_cuCtxSetLimit(enum divvy_symbol called, CUlimit limit, size_t value)
{
	CUcontext context = NULL;
	CUresult result;

	if ((unsigned)limit > CU_LIMIT_MALLOC_HEAP_SIZE || !front_enter())
		return REAL(called, cuCtxSetLimit)(limit, value);
	if (REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&context) != CUDA_SUCCESS || !context ||
	    context_place().slot < 0) {
		result = REAL(called, cuCtxSetLimit)(limit, value);
	} else {
		front_lock_take(&lock);
		result = set(called, context, limit, value);
		front_lock_drop(&lock);
	}
	front_leave();
	return result;
}
