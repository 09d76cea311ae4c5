/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front_memory.c: the memory hooks over fakedriver.h. Whatever order the calls
 * come in and whichever of them the driver refuses, the ledger says what the
 * driver holds, and the driver never holds more than the quota.
 */
#include <pthread.h>
#include "check.h"
#include "fakedriver.h"

#define LIMIT (1ull << 30)
#define MIB (1ull << 20)

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static CUdeviceptr alloc_ok(uint64_t bytes)
{
	CUdeviceptr pointer = 0;

	CHECK(hook_cuMemAlloc_v2(SYM_cuMemAlloc_v2, &pointer, bytes) == CUDA_SUCCESS && pointer);
	return pointer;
}

static void free_ok(CUdeviceptr pointer)
{
	CHECK(hook_cuMemFree_v2(SYM_cuMemFree_v2, pointer) == CUDA_SUCCESS);
}

#define BALANCED() CHECK(fake_charged() == fake_held())

/* -- one rule after the other ---------------------------------------------- */

static void linear_rules(void)
{
	uint64_t base = fake_charged();
	unsigned denied = fake_denials();
	CUdeviceptr pointer = 77;
	size_t pitch = 0;

	pointer = alloc_ok(1);
	CHECK(fake_charged() == base + 512);
	free_ok(pointer);
	CHECK(hook_cuMemFree_v2(SYM_cuMemFree_v2, pointer) == CUDA_ERROR_INVALID_VALUE); /* twice */
	CHECK(fake_charged() == base);
	pointer = 77;
	CHECK(hook_cuMemAlloc_v2(SYM_cuMemAlloc_v2, &pointer, LIMIT) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(hook_cuMemAlloc_v2(SYM_cuMemAlloc_v2, &pointer, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(hook_cuMemAllocPitch_v2(SYM_cuMemAllocPitch_v2, &pointer, &pitch, SIZE_MAX / 2, 3, 4) ==
	      CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(pointer == 77 && pitch == 0 && fake_denials() == denied + 3 && fake_charged() == base);
	CHECK(hook_cuMemAllocPitch_v2(SYM_cuMemAllocPitch_v2, &pointer, &pitch, 100, 10, 4) == CUDA_SUCCESS);
	CHECK(pitch == 256 && fake_charged() == base + 2560); /* the driver's pitch, not our estimate */
	free_ok(pointer);
	fake_fail(1);
	CHECK(hook_cuMemAlloc_v2(SYM_cuMemAlloc_v2, &pointer, 4096) == CUDA_ERROR_OUT_OF_MEMORY);
	fake_fail(0);
	BALANCED();
}

static void context_rules(void)
{
	uint64_t base = fake_charged();
	CUcontext old = NULL, context = NULL, other = NULL;

	CHECK(REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&old) == CUDA_SUCCESS);
	CHECK(hook_cuCtxCreate_v2(SYM_cuCtxCreate_v2, &context, 0, 1) == CUDA_ERROR_INVALID_DEVICE);
	CHECK(hook_cuCtxCreate_v2(SYM_cuCtxCreate_v2, &context, 0, FAKE_CARD) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + FAKE_CONTEXT);
	alloc_ok(5 * MIB);
	alloc_ok(3 * MIB);
	CHECK(hook_cuCtxSetLimit(SYM_cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, 64 * MIB) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + FAKE_CONTEXT + 64 * MIB);
	CHECK(hook_cuCtxSetLimit(SYM_cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, 16 * MIB) == CUDA_SUCCESS);
	CHECK(hook_cuCtxSetLimit(SYM_cuCtxSetLimit, CU_LIMIT_STACK_SIZE, SIZE_MAX / 2) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(fake_charged() == base + FAKE_CONTEXT + 16 * MIB);
	BALANCED();
	CHECK(hook_cuCtxDestroy_v2(SYM_cuCtxDestroy_v2, context) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	BALANCED();

	CHECK(hook_cuDevicePrimaryCtxRetain(SYM_cuDevicePrimaryCtxRetain, &context, FAKE_CARD) == CUDA_SUCCESS);
	CHECK(hook_cuDevicePrimaryCtxRetain(SYM_cuDevicePrimaryCtxRetain, &other, FAKE_CARD) == CUDA_SUCCESS);
	CHECK(context == other && fake_charged() == base + FAKE_CONTEXT);
	CHECK(hook_cuCtxDestroy_v2(SYM_cuCtxDestroy_v2, context) == CUDA_ERROR_INVALID_CONTEXT);
	CHECK(REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(context) == CUDA_SUCCESS);
	alloc_ok(MIB);
	CHECK(hook_cuDevicePrimaryCtxRelease_v2(SYM_cuDevicePrimaryCtxRelease_v2, FAKE_CARD) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + FAKE_CONTEXT + MIB);
	CHECK(hook_cuDevicePrimaryCtxRelease_v2(SYM_cuDevicePrimaryCtxRelease_v2, FAKE_CARD) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	CHECK(hook_cuDevicePrimaryCtxRetain(SYM_cuDevicePrimaryCtxRetain, &context, FAKE_CARD) == CUDA_SUCCESS);
	CHECK(REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(context) == CUDA_SUCCESS);
	alloc_ok(MIB);
	CHECK(hook_cuDevicePrimaryCtxReset_v2(SYM_cuDevicePrimaryCtxReset_v2, FAKE_CARD) == CUDA_SUCCESS);
	CHECK(fake_charged() == base && fake_contexts() == FAKE_CONTEXT);

	/* made behind our back: found at the first allocation, and gone like the others */
	CHECK(REAL(SYM_cuCtxCreate_v2, cuCtxCreate_v2)(&context, 0, FAKE_CARD) == CUDA_SUCCESS);
	alloc_ok(MIB);
	CHECK(fake_charged() == base + FAKE_CONTEXT + MIB);
	CHECK(hook_cuCtxDestroy_v2(SYM_cuCtxDestroy_v2, context) == CUDA_SUCCESS);
	CHECK(REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(old) == CUDA_SUCCESS);
	BALANCED();
}

static void virtual_rules(void)
{
	uint64_t base = fake_charged();
	CUmemAllocationProp prop = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, FAKE_CARD } };
	CUmemGenericAllocationHandle a = 0, b = 0, again = 0;
	CUdeviceptr at = 0x500000000;

	CHECK(hook_cuMemCreate(SYM_cuMemCreate, &a, 2 * MIB, &prop, 0) == CUDA_SUCCESS);
	CHECK(hook_cuMemMap(SYM_cuMemMap, at, 2 * MIB, 0, a, 0) == CUDA_SUCCESS);
	CHECK(hook_cuMemMap(SYM_cuMemMap, at + 2 * MIB, 2 * MIB, 0, a, 0) == CUDA_SUCCESS);
	CHECK(hook_cuMemRelease(SYM_cuMemRelease, a) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + 2 * MIB); /* mapped still */
	CHECK(hook_cuMemRetainAllocationHandle(SYM_cuMemRetainAllocationHandle, &again, (void *)(at + MIB)) ==
	      CUDA_SUCCESS);
	CHECK(hook_cuMemCreate(SYM_cuMemCreate, &b, 4 * MIB, &prop, 0) == CUDA_SUCCESS);
	CHECK(hook_cuMemMap(SYM_cuMemMap, at + 4 * MIB, 4 * MIB, 0, b, 0) == CUDA_SUCCESS);
	CHECK(hook_cuMemRelease(SYM_cuMemRelease, b) == CUDA_SUCCESS);
	CHECK(hook_cuMemUnmap(SYM_cuMemUnmap, at, 8 * MIB) == CUDA_SUCCESS); /* three at once */
	CHECK(fake_charged() == base + 2 * MIB);                             /* the retained one */
	CHECK(hook_cuMemRelease(SYM_cuMemRelease, again) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	prop.location.id = 1;
	CHECK(hook_cuMemCreate(SYM_cuMemCreate, &a, 2 * MIB, &prop, 0) == CUDA_ERROR_INVALID_DEVICE);
	BALANCED();
}

/* What a sparse array or a multicast object uses stays charged when its handle is released. */
static void user_rules(void)
{
	uint64_t base = fake_charged();
	CUmemAllocationProp prop = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, FAKE_CARD } };
	CUmulticastObjectProp multicast = { .numDevices = 1, .size = 2 * MIB };
	CUDA_ARRAY3D_DESCRIPTOR sparse = {
		.Width = 4096, .Height = 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = 0x40,
	};
	CUarrayMapInfo info = { .memOperationType = CU_MEM_OPERATION_TYPE_MAP };
	CUmemGenericAllocationHandle handle = 0, object = 0;
	CUarray array = NULL;

	CHECK(hook_cuArray3DCreate_v2(SYM_cuArray3DCreate_v2, &array, &sparse) == CUDA_SUCCESS);
	CHECK(fake_charged() == base); /* no memory of its own */
	CHECK(hook_cuMemCreate(SYM_cuMemCreate, &handle, 2 * MIB, &prop, 0) == CUDA_SUCCESS);
	info.resource.array = array;
	info.memHandle.memHandle = handle;
	CHECK(hook_cuMemMapArrayAsync(SYM_cuMemMapArrayAsync, &info, 1, NULL) == CUDA_SUCCESS);
	CHECK(hook_cuMemRelease(SYM_cuMemRelease, handle) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + 2 * MIB);
	info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
	CHECK(hook_cuMemMapArrayAsync(SYM_cuMemMapArrayAsync, &info, 1, NULL) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	CHECK(hook_cuMemCreate(SYM_cuMemCreate, &handle, 2 * MIB, &prop, 0) == CUDA_SUCCESS);
	info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
	info.memHandle.memHandle = handle;
	CHECK(hook_cuMemMapArrayAsync(SYM_cuMemMapArrayAsync, &info, 1, NULL) == CUDA_SUCCESS);
	CHECK(hook_cuArrayDestroy(SYM_cuArrayDestroy, array) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + 2 * MIB); /* the handle's again */
	CHECK(hook_cuMemRelease(SYM_cuMemRelease, handle) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	CHECK(REAL(SYM_cuMemUnmap, cuMemUnmap)((uintptr_t)array, 1) == CUDA_SUCCESS); /* our driver forgets nothing */

	CHECK(hook_cuMulticastCreate(SYM_cuMulticastCreate, &object, &multicast) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	for (int unbind = 0; unbind < 2; unbind++) {
		CHECK(hook_cuMemCreate(SYM_cuMemCreate, &handle, 2 * MIB, &prop, 0) == CUDA_SUCCESS);
		CHECK(hook_cuMulticastBindMem(SYM_cuMulticastBindMem, object, 0, handle, 0, 2 * MIB, 0) == CUDA_SUCCESS);
		CHECK(hook_cuMemRelease(SYM_cuMemRelease, handle) == CUDA_SUCCESS);
		CHECK(fake_charged() == base + 2 * MIB);
		if (unbind)
			break;
		CHECK(hook_cuMulticastUnbind(SYM_cuMulticastUnbind, object, FAKE_CARD, 0, 2 * MIB) == CUDA_SUCCESS);
		CHECK(fake_charged() == base);
	}
	CHECK(hook_cuMemRelease(SYM_cuMemRelease, object) == CUDA_SUCCESS); /* with what is bound to it */
	CHECK(fake_charged() == base);
	CHECK(REAL(SYM_cuMemUnmap, cuMemUnmap)(object, 2 * MIB) == CUDA_SUCCESS);
	BALANCED();
}

static void pool_rules(void)
{
	uint64_t base = fake_charged();
	CUstream stream = (CUstream)64;
	CUmemPoolProps props = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, FAKE_CARD } };
	CUmemoryPool pool = NULL;
	CUdeviceptr a = 0, b = 0;

	CHECK(hook_cuMemAllocAsync(SYM_cuMemAllocAsync, &a, MIB, stream) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + FAKE_CHUNK); /* what is reserved */
	CHECK(hook_cuMemAllocAsync(SYM_cuMemAllocAsync, &b, MIB, stream) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + FAKE_CHUNK);
	CHECK(hook_cuMemFreeAsync(SYM_cuMemFreeAsync, a, stream) == CUDA_SUCCESS);
	free_ok(b);
	CHECK(fake_charged() == base + FAKE_CHUNK);
	CHECK(hook_cuStreamSynchronize(SYM_cuStreamSynchronize, stream) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);

	/* kept by the pool, wanted elsewhere: the denial is not final */
	CHECK(hook_cuMemAllocAsync(SYM_cuMemAllocAsync, &a, 600 * MIB, stream) == CUDA_SUCCESS);
	CHECK(hook_cuMemFreeAsync(SYM_cuMemFreeAsync, a, stream) == CUDA_SUCCESS);
	a = alloc_ok(600 * MIB);
	CHECK(hook_cuMemAllocAsync(SYM_cuMemAllocAsync, &b, 500 * MIB, stream) == CUDA_ERROR_OUT_OF_MEMORY && b != a);
	free_ok(a);
	CHECK(fake_charged() == base);

	CHECK(hook_cuMemPoolCreate(SYM_cuMemPoolCreate, &pool, &props) == CUDA_SUCCESS);
	CHECK(hook_cuMemAllocFromPoolAsync(SYM_cuMemAllocFromPoolAsync, &a, 3 * MIB, pool, stream) == CUDA_SUCCESS);
	CHECK(hook_cuMemPoolDestroy(SYM_cuMemPoolDestroy, pool) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + 4 * MIB); /* until its last allocation goes */
	CHECK(hook_cuMemFreeAsync(SYM_cuMemFreeAsync, a, stream) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	props.location.id = 1;
	CHECK(hook_cuMemPoolCreate(SYM_cuMemPoolCreate, &pool, &props) == CUDA_ERROR_INVALID_DEVICE);
	BALANCED();
}

static void graph_rules(void)
{
	uint64_t base = fake_charged();
	CUstream stream = (CUstream)64;
	CUgraph graph = NULL, big = NULL;
	CUgraphExec exec = NULL, twin = NULL, none = NULL;
	CUdeviceptr a;

	CHECK(REAL(SYM_cuStreamBeginCapture, cuStreamBeginCapture)(stream) == CUDA_SUCCESS);
	CHECK(hook_cuMemAllocAsync(SYM_cuMemAllocAsync, &a, 300 * MIB, stream) == CUDA_SUCCESS);
	CHECK(REAL(SYM_cuStreamEndCapture, cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
	CHECK(fake_charged() == base); /* a node reserves nothing */
	CHECK(hook_cuGraphInstantiateWithFlags(SYM_cuGraphInstantiateWithFlags, &exec, graph, 0) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + 300 * MIB);
	CHECK(hook_cuGraphLaunch(SYM_cuGraphLaunch, exec, stream) == CUDA_SUCCESS);
	CHECK(hook_cuGraphLaunch(SYM_cuGraphLaunch, exec, stream) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + 300 * MIB);
	CHECK(hook_cuGraphInstantiateWithFlags(SYM_cuGraphInstantiateWithFlags, &twin, graph, 0) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + 600 * MIB); /* it might run beside the other */
	CHECK(hook_cuGraphLaunch(SYM_cuGraphLaunch, twin, stream) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + 300 * MIB); /* it did not */
	CHECK(hook_cuDeviceGraphMemTrim(SYM_cuDeviceGraphMemTrim, FAKE_CARD) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	a = alloc_ok(800 * MIB);
	CHECK(hook_cuGraphLaunch(SYM_cuGraphLaunch, exec, stream) == CUDA_ERROR_OUT_OF_MEMORY);
	free_ok(a);
	CHECK(hook_cuGraphLaunch(SYM_cuGraphLaunch, exec, stream) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + 300 * MIB);

	CHECK(REAL(SYM_cuStreamBeginCapture, cuStreamBeginCapture)(stream) == CUDA_SUCCESS);
	CHECK(hook_cuMemAllocAsync(SYM_cuMemAllocAsync, &a, LIMIT, stream) == CUDA_SUCCESS);
	CHECK(REAL(SYM_cuStreamEndCapture, cuStreamEndCapture)(stream, &big) == CUDA_SUCCESS);
	CHECK(hook_cuGraphInstantiateWithFlags(SYM_cuGraphInstantiateWithFlags, &none, big, 0) ==
	      CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(!none);
	CHECK(hook_cuGraphDestroy(SYM_cuGraphDestroy, big) == CUDA_SUCCESS);
	CHECK(hook_cuGraphInstantiateWithFlags(SYM_cuGraphInstantiateWithFlags, &none, graph, 0) == CUDA_SUCCESS);
	CHECK(hook_cuGraphExecDestroy(SYM_cuGraphExecDestroy, none) == CUDA_SUCCESS);
	CHECK(hook_cuGraphExecDestroy(SYM_cuGraphExecDestroy, twin) == CUDA_SUCCESS);
	CHECK(hook_cuGraphExecDestroy(SYM_cuGraphExecDestroy, exec) == CUDA_SUCCESS);
	CHECK(hook_cuGraphDestroy(SYM_cuGraphDestroy, graph) == CUDA_SUCCESS);
	CHECK(hook_cuDeviceGraphMemTrim(SYM_cuDeviceGraphMemTrim, FAKE_CARD) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	BALANCED();
}

static void module_rules(void)
{
	uint64_t base = fake_charged();
	CUmodule module = NULL, none = NULL;
	CUdeviceptr rest;

	CHECK(hook_cuModuleLoadData(SYM_cuModuleLoadData, &module, "x") == CUDA_SUCCESS);
	CHECK(fake_charged() == base + FAKE_MODULE);
	rest = alloc_ok((LIMIT - fake_charged()) / 512 * 512);
	CHECK(hook_cuModuleLoadData(SYM_cuModuleLoadData, &none, "x") == CUDA_ERROR_OUT_OF_MEMORY && !none);
	free_ok(rest);
	BALANCED();
	CHECK(hook_cuModuleUnload(SYM_cuModuleUnload, module) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	fake_secretive(true);
	CHECK(hook_cuModuleLoadData(SYM_cuModuleLoadData, &module, "x") == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	CHECK(hook_cuModuleUnload(SYM_cuModuleUnload, module) == CUDA_SUCCESS);
	fake_secretive(false);
	BALANCED();
}

static CUlibrary load_ok(void)
{
	CUlibrary library = NULL;

	CHECK(hook_cuLibraryLoadData(SYM_cuLibraryLoadData, &library, "x", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
	return library;
}

static void library_rules(void)
{
	uint64_t base = fake_charged();
	CUlibrary library = load_ok();
	CUmodule module = NULL;
	CUkernel kernel = NULL;
	CUfunction function = NULL;
	CUdeviceptr address = 77, rest;

	CHECK(fake_charged() == base);
	CHECK(hook_cuLibraryGetKernel(SYM_cuLibraryGetKernel, &kernel, library, "k") == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	CHECK(hook_cuKernelGetFunction(SYM_cuKernelGetFunction, &function, kernel) == CUDA_SUCCESS);
	CHECK(hook_cuLibraryGetModule(SYM_cuLibraryGetModule, &module, library) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + FAKE_MODULE); /* once */
	CHECK(hook_cuLibraryUnload(SYM_cuLibraryUnload, library) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);

	/* a name that is missing loads it all the same */
	library = load_ok();
	CHECK(hook_cuLibraryGetGlobal(SYM_cuLibraryGetGlobal, &address, NULL, library, "g") == CUDA_ERROR_NOT_FOUND);
	CHECK(address == 77 && fake_charged() == base + FAKE_MODULE);
	CHECK(hook_cuLibraryUnload(SYM_cuLibraryUnload, library) == CUDA_SUCCESS);

	/* no room: refused until there is some */
	library = load_ok();
	module = NULL;
	rest = alloc_ok((LIMIT - fake_charged()) / 512 * 512);
	for (int i = 0; i < 2; i++) {
		CHECK(hook_cuLibraryGetModule(SYM_cuLibraryGetModule, &module, library) == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(!module && fake_held() == fake_charged() + FAKE_MODULE);
	}
	free_ok(rest);
	CHECK(hook_cuLibraryGetModule(SYM_cuLibraryGetModule, &module, library) == CUDA_SUCCESS && module);
	BALANCED();
	CHECK(hook_cuLibraryUnload(SYM_cuLibraryUnload, library) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	BALANCED();
}

/* -- any order, any failure ------------------------------------------------- */

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

/* A program's life around it: a context, and at the end nothing. */
static void within(void (*run)(void))
{
	CUcontext context = NULL;

	fake_start(LIMIT);
	CHECK(hook_cuCtxCreate_v2(SYM_cuCtxCreate_v2, &context, 0, FAKE_CARD) == CUDA_SUCCESS);
	run();
	CHECK(hook_cuCtxDestroy_v2(SYM_cuCtxDestroy_v2, context) == CUDA_SUCCESS);
	CHECK(fake_charged() == 0 && fake_held() == 0 && fake_contexts() == 0);
}

static void random_walks(void)
{
	for (uint64_t seed = 1; seed <= 8; seed++)
		random_walk(seed * 0x9e3779b97f4a7c15ull);
}

#define SCENARIO(function) \
	static void run_##function(void) \
	{ \
		within(function); \
	}
SCENARIO(linear_rules)
SCENARIO(context_rules)
SCENARIO(virtual_rules)
SCENARIO(user_rules)
SCENARIO(module_rules)
SCENARIO(library_rules)
SCENARIO(pool_rules)
SCENARIO(graph_rules)
SCENARIO(random_walks)
SCENARIO(in_threads)

static const struct scenario scenarios[] = {
	{"linear", run_linear_rules},
	{"contexts", run_context_rules},
	{"virtual", run_virtual_rules},
	{"users-of-handles", run_user_rules},
	{"modules", run_module_rules},
	{"libraries", run_library_rules},
	{"pools", run_pool_rules},
	{"graphs", run_graph_rules},
	{"any-order", run_random_walks},
	{"threads", run_in_threads},
};

RUN_SCENARIOS(scenarios)
