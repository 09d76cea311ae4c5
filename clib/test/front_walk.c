/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front_walk.c: the memory hooks in any order, from several threads, with any of
 * the driver's calls failing: the ledger says what the driver holds, and the
 * driver never holds more than the quota.
 */
#include <pthread.h>

#include "within.h"

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

enum { POINTERS = 24, ARRAYS = 8, CONTEXTS = 4, HANDLES = 8, MAPS = 8, ASYNCS = 12 };

struct world {
	uint64_t state;
	CUdeviceptr pointer[POINTERS];
	CUarray array[ARRAYS];
	CUmipmappedArray mipmap[ARRAYS];
	CUmodule module[ARRAYS];
	CUcontext context[CONTEXTS];
	CUmemGenericAllocationHandle handle[HANDLES];
	uint64_t map[MAPS];
	CUdeviceptr async[ASYNCS];
	CUmemoryPool pool;
	uint64_t base; /* of the addresses to map at */
	bool contexts; /* make and destroy them */
};

static void step_linear(struct world *w)
{
	CUdeviceptr *pointer = &w->pointer[next(&w->state) % POINTERS];
	uint64_t bytes = next(&w->state) % (80 * MIB);
	size_t pitch;

	if (*pointer) {
		/* it may have died with its context */
		if (hook_cuMemFree_v2(SYM_cuMemFree_v2, *pointer) != CUDA_ERROR_UNKNOWN)
			*pointer = 0;
	} else if (bytes % 3 == 0) {
		(void)hook_cuMemAlloc_v2(SYM_cuMemAlloc_v2, pointer, bytes);
	} else if (bytes % 3 == 1) {
		(void)hook_cuMemAllocManaged(SYM_cuMemAllocManaged, pointer, bytes, 1);
	} else {
		(void)hook_cuMemAllocPitch_v2(SYM_cuMemAllocPitch_v2, pointer, &pitch, 1 + bytes % 9000,
					      1 + bytes % 3001, 4);
	}
}

static void step_array(struct world *w)
{
	unsigned i = next(&w->state) % ARRAYS;
	CUDA_ARRAY3D_DESCRIPTOR d = {
		.Width = 1 + next(&w->state) % 3000, .Height = next(&w->state) % 900, .Depth = next(&w->state) % 3,
		.Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1u << next(&w->state) % 3,
		.Flags = next(&w->state) % 9 == 0 ? 0x40 : 0,
	};

	switch (next(&w->state) % 3) {
	case 0:
		if (!w->array[i])
			(void)hook_cuArray3DCreate_v2(SYM_cuArray3DCreate_v2, &w->array[i], &d);
		else if (hook_cuArrayDestroy(SYM_cuArrayDestroy, w->array[i]) != CUDA_ERROR_UNKNOWN)
			w->array[i] = NULL;
		break;
	case 1:
		d.Flags = 0;
		if (!w->mipmap[i])
			(void)hook_cuMipmappedArrayCreate(SYM_cuMipmappedArrayCreate, &w->mipmap[i], &d, 3);
		else if (hook_cuMipmappedArrayDestroy(SYM_cuMipmappedArrayDestroy, w->mipmap[i]) != CUDA_ERROR_UNKNOWN)
			w->mipmap[i] = NULL;
		break;
	default:
		if (!w->contexts)
			break; /* measured loads are exact only where nobody else allocates */
		if (!w->module[i])
			(void)hook_cuModuleLoadData(SYM_cuModuleLoadData, &w->module[i], "x");
		else if (hook_cuModuleUnload(SYM_cuModuleUnload, w->module[i]) != CUDA_ERROR_UNKNOWN)
			w->module[i] = NULL;
	}
}

static void step_virtual(struct world *w)
{
	CUmemAllocationProp prop = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, FAKE_CARD } };
	unsigned i = next(&w->state) % HANDLES, m = next(&w->state) % MAPS;
	CUmemGenericAllocationHandle *handle = &w->handle[i];

	switch (next(&w->state) % 4) {
	case 0:
		if (!*handle)
			(void)hook_cuMemCreate(SYM_cuMemCreate, handle, 2 * MIB * (1 + next(&w->state) % 30), &prop, 0);
		else if (hook_cuMemRelease(SYM_cuMemRelease, *handle) == CUDA_SUCCESS)
			*handle = 0;
		break;
	case 1:
	case 2:
		if (w->map[m] && hook_cuMemUnmap(SYM_cuMemUnmap, w->map[m], 2 * MIB) == CUDA_SUCCESS)
			w->map[m] = 0;
		else if (!w->map[m] && *handle &&
			 hook_cuMemMap(SYM_cuMemMap, w->base + m * 2 * MIB, 2 * MIB, 0, *handle, 0) == CUDA_SUCCESS)
			w->map[m] = w->base + m * 2 * MIB;
		break;
	default:
		if (!*handle && w->map[m])
			(void)hook_cuMemRetainAllocationHandle(SYM_cuMemRetainAllocationHandle, handle,
							       (void *)(uintptr_t)(w->map[m] + 5));
	}
}

static void step_pool(struct world *w)
{
	CUmemPoolProps props = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, FAKE_CARD } };
	CUdeviceptr *pointer = &w->async[next(&w->state) % ASYNCS];
	uint64_t bytes = 1 + next(&w->state) % (40 * MIB);

	if (!*pointer && bytes % 2)
		(void)hook_cuMemAllocAsync(SYM_cuMemAllocAsync, pointer, bytes, NULL);
	else if (!*pointer && w->pool)
		(void)hook_cuMemAllocFromPoolAsync(SYM_cuMemAllocFromPoolAsync, pointer, bytes, w->pool, NULL);
	else if (*pointer && bytes % 5 == 0 && hook_cuMemFree_v2(SYM_cuMemFree_v2, *pointer) == CUDA_SUCCESS)
		*pointer = 0;
	else if (*pointer && hook_cuMemFreeAsync(SYM_cuMemFreeAsync, *pointer, NULL) == CUDA_SUCCESS)
		*pointer = 0;
	if (bytes % 7 == 0)
		(void)hook_cuStreamSynchronize(SYM_cuStreamSynchronize, NULL);
	if (!w->pool)
		(void)hook_cuMemPoolCreate(SYM_cuMemPoolCreate, &w->pool, &props);
	else if (bytes % 11 == 0 && hook_cuMemPoolDestroy(SYM_cuMemPoolDestroy, w->pool) == CUDA_SUCCESS)
		w->pool = NULL;
}

static void step_context(struct world *w)
{
	CUcontext *context = &w->context[next(&w->state) % CONTEXTS];

	if (!*context)
		(void)hook_cuCtxCreate_v2(SYM_cuCtxCreate_v2, context, 0, FAKE_CARD);
	else if (next(&w->state) % 3 == 0 && hook_cuCtxDestroy_v2(SYM_cuCtxDestroy_v2, *context) == CUDA_SUCCESS)
		*context = NULL;
	(void)REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(w->context[next(&w->state) % CONTEXTS]);
	(void)hook_cuCtxSetLimit(SYM_cuCtxSetLimit, (CUlimit)(next(&w->state) % 3), next(&w->state) % (12 * MIB));
}

static void step(struct world *w)
{
	switch (next(&w->state) % 8) {
	case 0: case 1: case 2:
		step_linear(w);
		break;
	case 3:
		step_array(w);
		break;
	case 4:
		step_virtual(w);
		break;
	case 5: case 6:
		step_pool(w);
		break;
	default:
		if (w->contexts && next(&w->state) % 4 == 0)
			step_context(w);
	}
}

/* Everything goes back. Some has died with its context, and its address may be another's by now. */
static void clear(struct world *w)
{
	for (unsigned i = 0; i < POINTERS; i++)
		(void)hook_cuMemFree_v2(SYM_cuMemFree_v2, w->pointer[i]);
	for (unsigned i = 0; i < ARRAYS; i++) {
		(void)hook_cuArrayDestroy(SYM_cuArrayDestroy, w->array[i]);
		(void)hook_cuMipmappedArrayDestroy(SYM_cuMipmappedArrayDestroy, w->mipmap[i]);
		(void)hook_cuModuleUnload(SYM_cuModuleUnload, w->module[i]);
	}
	for (unsigned i = 0; i < MAPS; i++) {
		if (w->map[i])
			CHECK(hook_cuMemUnmap(SYM_cuMemUnmap, w->map[i], 2 * MIB) == CUDA_SUCCESS);
	}
	for (unsigned i = 0; i < HANDLES; i++) {
		if (w->handle[i])
			CHECK(hook_cuMemRelease(SYM_cuMemRelease, w->handle[i]) == CUDA_SUCCESS);
	}
	for (unsigned i = 0; i < ASYNCS; i++)
		(void)hook_cuMemFreeAsync(SYM_cuMemFreeAsync, w->async[i], NULL);
	if (w->pool)
		CHECK(hook_cuMemPoolDestroy(SYM_cuMemPoolDestroy, w->pool) == CUDA_SUCCESS);
	for (unsigned i = 0; i < CONTEXTS; i++) {
		if (w->context[i])
			CHECK(hook_cuCtxDestroy_v2(SYM_cuCtxDestroy_v2, w->context[i]) == CUDA_SUCCESS);
	}
	CHECK(hook_cuStreamSynchronize(SYM_cuStreamSynchronize, NULL) == CUDA_SUCCESS);
}

static void random_walk(uint64_t seed)
{
	struct world w = { .state = seed, .base = 0x600000000, .contexts = true };
	CUcontext old = NULL;
	uint64_t base = fake_charged();

	(void)REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&old);
	for (int i = 0; i < 60000; i++) {
		fake_fail(i / 10000 % 2 ? 9 : 0);
		step(&w);
		if (i % 16 == 0) {
			fake_fail(0);
			front_pools_settle();
			/* a destroyed pool is held at its last figure until it is empty */
			CHECK(fake_charged() >= fake_held());
			CHECK(fake_held() <= LIMIT);
		}
	}
	fake_fail(0);
	clear(&w);
	(void)REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(old);
	CHECK(fake_charged() == base);
	BALANCED();
}

static CUcontext shared_context;

static void *walk_in_thread(void *arg)
{
	uintptr_t me = (uintptr_t)arg;
	struct world w = { .state = 0x1234567 * (me + 3), .base = 0x600000000 + me * 0x10000000 };

	(void)REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(shared_context);
	for (int i = 0; i < 40000; i++)
		step(&w);
	clear(&w);
	return NULL;
}

static void in_threads(void)
{
	pthread_t thread[4];
	uint64_t base = fake_charged();

	(void)REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&shared_context);
	(void)fake_most();
	for (uintptr_t i = 0; i < 4; i++)
		CHECK(pthread_create(&thread[i], NULL, walk_in_thread, (void *)i) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	CHECK(fake_most() <= LIMIT);
	CHECK(fake_charged() == base);
	BALANCED();
}

static void random_walks(void)
{
	for (uint64_t seed = 1; seed <= 8; seed++)
		random_walk(seed * 0x9e3779b97f4a7c15ull);
}

SCENARIO(random_walks)
SCENARIO(in_threads)

static const struct scenario scenarios[] = {
	{"any-order", run_random_walks},
	{"threads", run_in_threads},
};

RUN_SCENARIOS(scenarios)
