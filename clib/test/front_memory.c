/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front_memory.c: the memory hooks over fakedriver.h, one rule after the other:
 * the ledger says what the driver holds, and the driver never holds more than
 * the quota. front_walk.c does the same in any order.
 */
#include <pthread.h>

#include "within.h"

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
	CHECK(fake_charged() == base + 4 * MIB); /* until the driver has its last allocation back */
	CHECK(hook_cuMemFreeAsync(SYM_cuMemFreeAsync, a, stream) == CUDA_SUCCESS);
	CHECK(hook_cuStreamSynchronize(SYM_cuStreamSynchronize, stream) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	props.location.id = 1;
	CHECK(hook_cuMemPoolCreate(SYM_cuMemPoolCreate, &pool, &props) == CUDA_ERROR_INVALID_DEVICE);
	BALANCED();
}

/*
 * Plain memory that is freed in stream order is on the card, and on the ledger, until the
 * stream gets there; and memory of a pool may be freed at once.
 */
static void stream_ordered_rules(void)
{
	uint64_t base = fake_charged();
	CUcontext old = NULL, context = NULL;
	CUdeviceptr a = alloc_ok(300 * MIB), b = alloc_ok(200 * MIB), c = 0;

	CHECK(hook_cuMemFreeAsync(SYM_cuMemFreeAsync, b, NULL) == CUDA_SUCCESS); /* it is there already */
	CHECK(fake_charged() == base + 300 * MIB);
	fake_queueing(true);
	CHECK(hook_cuMemFreeAsync(SYM_cuMemFreeAsync, a, NULL) == CUDA_SUCCESS);
	CHECK(hook_cuMemFreeAsync(SYM_cuMemFreeAsync, a, NULL) == CUDA_ERROR_INVALID_VALUE); /* twice */
	CHECK(fake_charged() == base + 300 * MIB);
	BALANCED();
	CHECK(hook_cuMemAlloc_v2(SYM_cuMemAlloc_v2, &c, 700 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(fake_most() <= LIMIT);
	CHECK(hook_cuStreamSynchronize(SYM_cuStreamSynchronize, NULL) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	BALANCED();

	/* its context ends first */
	CHECK(REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&old) == CUDA_SUCCESS);
	CHECK(hook_cuCtxCreate_v2(SYM_cuCtxCreate_v2, &context, 0, FAKE_CARD) == CUDA_SUCCESS);
	a = alloc_ok(300 * MIB);
	CHECK(hook_cuMemFreeAsync(SYM_cuMemFreeAsync, a, NULL) == CUDA_SUCCESS);
	CHECK(hook_cuCtxDestroy_v2(SYM_cuCtxDestroy_v2, context) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	CHECK(REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(old) == CUDA_SUCCESS);
	CHECK(hook_cuStreamSynchronize(SYM_cuStreamSynchronize, NULL) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	fake_queueing(false);

	CHECK(hook_cuMemAllocAsync(SYM_cuMemAllocAsync, &a, 3 * MIB, NULL) == CUDA_SUCCESS);
	free_ok(a);
	CHECK(hook_cuStreamSynchronize(SYM_cuStreamSynchronize, NULL) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	BALANCED();
}

/* What was exported is the agent's to take off; who exports and imports it itself holds it twice. */
static void named_rules(void)
{
	uint64_t base = fake_charged();
	CUmemAllocationProp prop = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, FAKE_CARD } };
	CUmemGenericAllocationHandle handle = 0, again = 0;
	CUcontext old = NULL, context = NULL;
	CUipcMemHandle text;
	CUdeviceptr a;
	int fd = -1;

	CHECK(hook_cuMemCreate(SYM_cuMemCreate, &handle, 300 * MIB, &prop, 0) == CUDA_SUCCESS);
	for (int i = 0; i < 2; i++) /* by any number of names */
		CHECK(hook_cuMemExportToShareableHandle(SYM_cuMemExportToShareableHandle, &fd, handle,
							CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
	CHECK(fake_numbers() == 1 && fake_charged() == base + 300 * MIB);
	CHECK(hook_cuMemImportFromShareableHandle(SYM_cuMemImportFromShareableHandle, &again, (void *)(intptr_t)fd,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS);
	CHECK(again == handle);
	CHECK(hook_cuMemMap(SYM_cuMemMap, 0x600000000, 300 * MIB, 0, handle, 0) == CUDA_SUCCESS);
	CHECK(hook_cuMemRelease(SYM_cuMemRelease, handle) == CUDA_SUCCESS);
	CHECK(hook_cuMemRelease(SYM_cuMemRelease, again) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + 300 * MIB);
	BALANCED();
	CHECK(hook_cuMemUnmap(SYM_cuMemUnmap, 0x600000000, 300 * MIB) == CUDA_SUCCESS);
	CHECK(fake_numbers() == 0 && fake_charged() == base);
	BALANCED();

	a = alloc_ok(100 * MIB);
	CHECK(hook_cuIpcGetMemHandle(SYM_cuIpcGetMemHandle, &text, a) == CUDA_SUCCESS);
	CHECK(hook_cuIpcGetMemHandle(SYM_cuIpcGetMemHandle, &text, a) == CUDA_SUCCESS);
	CHECK(fake_numbers() == 1 && fake_charged() == base + 100 * MIB);
	free_ok(a);
	CHECK(fake_numbers() == 0 && fake_charged() == base);

	/* with its context */
	CHECK(REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&old) == CUDA_SUCCESS);
	CHECK(hook_cuCtxCreate_v2(SYM_cuCtxCreate_v2, &context, 0, FAKE_CARD) == CUDA_SUCCESS);
	a = alloc_ok(100 * MIB);
	CHECK(hook_cuIpcGetMemHandle(SYM_cuIpcGetMemHandle, &text, a) == CUDA_SUCCESS);
	CHECK(hook_cuCtxDestroy_v2(SYM_cuCtxDestroy_v2, context) == CUDA_SUCCESS);
	CHECK(fake_numbers() == 0 && fake_charged() == base);
	CHECK(REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(old) == CUDA_SUCCESS);
	BALANCED();
}

/* Another thread, without a context, gives back what this one has. */
static void *strange_free(void *pointer)
{
	CUcontext none = (CUcontext)1;

	CHECK(REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&none) == CUDA_SUCCESS && !none);
	free_ok(*(CUdeviceptr *)pointer);
	return NULL;
}

static void thread_rules(void)
{
	uint64_t base = fake_charged();
	CUcontext old = NULL, context = NULL;
	CUdeviceptr a = alloc_ok(5 * MIB), b = alloc_ok(3 * MIB);
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, strange_free, &a) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(fake_charged() == base + 3 * MIB);
	/* and in another context: it is not of that one, and does not go with it */
	CHECK(REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&old) == CUDA_SUCCESS);
	CHECK(hook_cuCtxCreate_v2(SYM_cuCtxCreate_v2, &context, 0, FAKE_CARD) == CUDA_SUCCESS);
	free_ok(b);
	CHECK(fake_charged() == base + FAKE_CONTEXT);
	CHECK(hook_cuCtxDestroy_v2(SYM_cuCtxDestroy_v2, context) == CUDA_SUCCESS);
	CHECK(REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(old) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	BALANCED();
}

/* What streams have yet to free is on the card, and on the ledger, though its pool is destroyed. */
static void destroyed_pool_rules(void)
{
	uint64_t base = fake_charged();
	CUmemPoolProps props = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, FAKE_CARD } };
	CUmemoryPool pool = NULL, again = NULL;
	CUdeviceptr a = 0, b = 0;

	fake_queueing(true);
	for (int late = 0; late < 2; late++) {
		CHECK(hook_cuMemPoolCreate(SYM_cuMemPoolCreate, &pool, &props) == CUDA_SUCCESS);
		CHECK(hook_cuMemAllocFromPoolAsync(SYM_cuMemAllocFromPoolAsync, &a, 300 * MIB, pool, NULL) == CUDA_SUCCESS);
		CHECK(hook_cuMemAllocFromPoolAsync(SYM_cuMemAllocFromPoolAsync, &b, 300 * MIB, pool, NULL) == CUDA_SUCCESS);
		if (!late)
			CHECK(hook_cuMemFreeAsync(SYM_cuMemFreeAsync, a, NULL) == CUDA_SUCCESS);
		CHECK(hook_cuMemPoolDestroy(SYM_cuMemPoolDestroy, pool) == CUDA_SUCCESS);
		CHECK(hook_cuMemPoolDestroy(SYM_cuMemPoolDestroy, pool) == CUDA_ERROR_INVALID_VALUE);
		if (late)
			CHECK(hook_cuMemFreeAsync(SYM_cuMemFreeAsync, a, NULL) == CUDA_SUCCESS);
		CHECK(hook_cuMemFreeAsync(SYM_cuMemFreeAsync, b, NULL) == CUDA_SUCCESS);
		CHECK(fake_charged() == base + 600 * MIB);
		CHECK(hook_cuMemAlloc_v2(SYM_cuMemAlloc_v2, &b, 500 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(hook_cuMemAllocFromPoolAsync(SYM_cuMemAllocFromPoolAsync, &a, MIB, pool, NULL) == CUDA_ERROR_INVALID_VALUE);
		BALANCED();
		CHECK(hook_cuStreamSynchronize(SYM_cuStreamSynchronize, NULL) == CUDA_SUCCESS);
		CHECK(fake_charged() == base);
		BALANCED();
		/* with the next one it is the driver's turn to destroy it: the handle is new again */
		CHECK(hook_cuMemPoolCreate(SYM_cuMemPoolCreate, &again, &props) == CUDA_SUCCESS && again == pool);
		CHECK(hook_cuMemPoolDestroy(SYM_cuMemPoolDestroy, again) == CUDA_SUCCESS);
	}
	fake_queueing(false);
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

SCENARIO(linear_rules)
SCENARIO(context_rules)
SCENARIO(virtual_rules)
SCENARIO(user_rules)
SCENARIO(module_rules)
SCENARIO(library_rules)
SCENARIO(pool_rules)
SCENARIO(destroyed_pool_rules)
SCENARIO(stream_ordered_rules)
SCENARIO(thread_rules)
SCENARIO(named_rules)
SCENARIO(graph_rules)

static const struct scenario scenarios[] = {
	{"linear", run_linear_rules},
	{"contexts", run_context_rules},
	{"virtual", run_virtual_rules},
	{"users-of-handles", run_user_rules},
	{"modules", run_module_rules},
	{"libraries", run_library_rules},
	{"pools", run_pool_rules},
	{"destroyed-pools", run_destroyed_pool_rules},
	{"stream-ordered", run_stream_ordered_rules},
	{"threads", run_thread_rules},
	{"named", run_named_rules},
	{"graphs", run_graph_rules},
};

RUN_SCENARIOS(scenarios)
