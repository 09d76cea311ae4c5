/* SPDX-License-Identifier: Apache-2.0 */
#include "walk.h"

uint64_t walk_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void step_linear(struct world *w)
{
	CUdeviceptr *pointer = &w->pointer[walk_next(&w->state) % POINTERS];
	uint64_t bytes = walk_next(&w->state) % (80 * MIB);
	size_t pitch;

	if (*pointer) {
		/* it may have died with its context */
		if (bytes % 3 == 0) {
			(void)hook_cuMemFreeAsync(SYM_cuMemFreeAsync, *pointer, NULL);
			*pointer = 0; /* by now the address may be another's */
		} else if (hook_cuMemFree_v2(SYM_cuMemFree_v2, *pointer) != CUDA_ERROR_UNKNOWN) {
			*pointer = 0;
		}
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
	unsigned i = walk_next(&w->state) % ARRAYS;
	CUDA_ARRAY3D_DESCRIPTOR d = {
		.Width = 1 + walk_next(&w->state) % 3000, .Height = walk_next(&w->state) % 900, .Depth = walk_next(&w->state) % 3,
		.Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1u << walk_next(&w->state) % 3,
		.Flags = walk_next(&w->state) % 9 == 0 ? 0x40 : 0,
	};

	switch (walk_next(&w->state) % 3) {
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
	unsigned i = walk_next(&w->state) % HANDLES, m = walk_next(&w->state) % MAPS;
	CUmemGenericAllocationHandle *handle = &w->handle[i];

	switch (walk_next(&w->state) % 4) {
	case 0:
		if (!*handle)
			(void)hook_cuMemCreate(SYM_cuMemCreate, handle, 2 * MIB * (1 + walk_next(&w->state) % 30), &prop, 0);
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
	CUdeviceptr *pointer = &w->async[walk_next(&w->state) % ASYNCS];
	uint64_t bytes = 1 + walk_next(&w->state) % (40 * MIB);

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

static void capture(struct world *w, CUgraph *graph)
{
	CUstream stream = (CUstream)64;
	CUdeviceptr pointer;

	(void)REAL(SYM_cuStreamBeginCapture, cuStreamBeginCapture)(stream);
	(void)hook_cuMemAllocAsync(SYM_cuMemAllocAsync, &pointer, 1 + walk_next(&w->state) % (60 * MIB), stream);
	(void)REAL(SYM_cuStreamEndCapture, cuStreamEndCapture)(stream, graph);
}

static void step_graph(struct world *w)
{
	unsigned i = walk_next(&w->state) % GRAPHS;

	if (!w->graph[i])
		capture(w, &w->graph[i]);
	else if (!w->exec[i])
		(void)hook_cuGraphInstantiateWithFlags(SYM_cuGraphInstantiateWithFlags, &w->exec[i], w->graph[i], 0);
	else if (walk_next(&w->state) % 3)
		(void)hook_cuGraphUpload(SYM_cuGraphUpload, w->exec[i], NULL); /* a launch, without the gate */
	else if (walk_next(&w->state) % 2)
		(void)hook_cuDeviceGraphMemTrim(SYM_cuDeviceGraphMemTrim, FAKE_CARD);
	else if (hook_cuGraphExecDestroy(SYM_cuGraphExecDestroy, w->exec[i]) == CUDA_SUCCESS)
		w->exec[i] = NULL;
	else if (hook_cuGraphDestroy(SYM_cuGraphDestroy, w->graph[i]) == CUDA_SUCCESS)
		w->graph[i] = NULL;
}

static void step_context(struct world *w)
{
	CUcontext *context = &w->context[walk_next(&w->state) % CONTEXTS];

	if (!*context)
		(void)hook_cuCtxCreate_v2(SYM_cuCtxCreate_v2, context, 0, FAKE_CARD);
	else if (walk_next(&w->state) % 3 == 0 && hook_cuCtxDestroy_v2(SYM_cuCtxDestroy_v2, *context) == CUDA_SUCCESS)
		*context = NULL;
	(void)REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(w->context[walk_next(&w->state) % CONTEXTS]);
	(void)hook_cuCtxSetLimit(SYM_cuCtxSetLimit, (CUlimit)(walk_next(&w->state) % 3), walk_next(&w->state) % (12 * MIB));
}

void walk_step(struct world *w)
{
	switch (w->pooled ? 5 : walk_next(&w->state) % 9) {
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
	case 7:
		step_graph(w);
		break;
	default:
		if (w->contexts && walk_next(&w->state) % 4 == 0)
			step_context(w);
	}
}

void walk_clear(struct world *w)
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
	for (unsigned i = 0; i < GRAPHS; i++) {
		if (w->exec[i])
			CHECK(hook_cuGraphExecDestroy(SYM_cuGraphExecDestroy, w->exec[i]) == CUDA_SUCCESS);
		if (w->graph[i])
			CHECK(hook_cuGraphDestroy(SYM_cuGraphDestroy, w->graph[i]) == CUDA_SUCCESS);
	}
	CHECK(hook_cuDeviceGraphMemTrim(SYM_cuDeviceGraphMemTrim, FAKE_CARD) == CUDA_SUCCESS);
	if (w->pool)
		CHECK(hook_cuMemPoolDestroy(SYM_cuMemPoolDestroy, w->pool) == CUDA_SUCCESS);
	for (unsigned i = 0; i < CONTEXTS; i++) {
		if (w->context[i])
			CHECK(hook_cuCtxDestroy_v2(SYM_cuCtxDestroy_v2, w->context[i]) == CUDA_SUCCESS);
	}
	CHECK(hook_cuStreamSynchronize(SYM_cuStreamSynchronize, NULL) == CUDA_SUCCESS);
}
