/* SPDX-License-Identifier: Apache-2.0 */
/*
 * async.c: stream-ordered allocation. What it costs is its pool's matter
 * (pool.c); here stands which pool, and that a call on a stream that is being
 * captured makes a node of a graph instead (graphmem.c) and reserves nothing.
 *
 * Pointers are noted with their pool, so that a free looks at that one only.
 *
 * Plain memory may be freed in stream order as well. The driver has it back when the
 * stream gets there, and until then it is charged: under a number of ours, for its
 * address may be another's by then, with a host function behind the free that refunds
 * it. That one is not called in a context with a fault, which keeps the memory; with the
 * context it goes.
 */
#include "pool.h"
#include "named.h"
#include "front_hooks.h"

static bool is_per_thread(enum divvy_symbol called)
{
	return called == SYM_cuMemAllocAsync_ptsz || called == SYM_cuMemAllocFromPoolAsync_ptsz;
}

/* The legacy stream is never captured; asking about it while another one is would be an error. */
static bool is_capturing(CUstream stream, bool perthread)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	enum divvy_symbol symbol = perthread ? SYM_cuStreamIsCapturing_ptsz : SYM_cuStreamIsCapturing;

	if ((!stream && !perthread) || stream == (CUstream)1)
		return false;
	return REAL(symbol, cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

struct demand {
	enum divvy_symbol called;
	const char *call;
	uint64_t bytes;
	CUmemoryPool pool; /* NULL: the one that the card's cuMemAllocAsync uses */
	CUstream stream;
	bool perthread;
};

static CUresult ask(const struct demand *demand, CUdeviceptr *pointer)
{
	if (demand->called == SYM_cuMemAllocAsync || demand->called == SYM_cuMemAllocAsync_ptsz)
		return REAL(demand->called, cuMemAllocAsync)(pointer, demand->bytes, demand->stream);
	return REAL(demand->called, cuMemAllocFromPoolAsync)(pointer, demand->bytes, demand->pool, demand->stream);
}

static void undo(const struct demand *demand, CUdeviceptr pointer)
{
	enum divvy_symbol symbol = demand->perthread ? SYM_cuMemFreeAsync_ptsz : SYM_cuMemFreeAsync;

	(void)REAL(symbol, cuMemFreeAsync)(pointer, demand->stream);
}

/* The driver has it back now, or when its stream gets there. */
void pool_given(const struct table_record *record)
{
	pool_give((uint32_t)record->extra);
	if (record->flags & MEMORY_NAMED)
		(void)named_released(SPACE_POOLED, record->key);
}

static CUresult allocate(struct demand *demand, CUdeviceptr *out)
{
	int slot = front_stream_slot(demand->stream);
	CUmemoryPool handle = demand->pool;
	CUdeviceptr pointer = 0;
	struct table_record record = { .space = SPACE_POOLED }, old;
	struct pool_claim claim;
	CUresult result;
	int rc;

	if (is_capturing(demand->stream, demand->perthread)) {
		result = ask(demand, &pointer);
		if (result == CUDA_SUCCESS) {
			graphmem_seen();
			*out = pointer;
		}
		return result;
	}
	if (!handle) {
		if (slot >= 0 &&
		    REAL(SYM_cuDeviceGetMemPool, cuDeviceGetMemPool)(&handle, front_device(slot)) != CUDA_SUCCESS)
			slot = -1;
	} else {
		slot = pool_slot(handle, slot);
	}
	if (slot < 0)
		return ask(demand, out);
	result = pool_reserve(handle, slot, demand->bytes, demand->call, &claim);
	if (result != CUDA_SUCCESS)
		return result;
	result = ask(demand, &pointer);
	if (result != CUDA_SUCCESS) {
		(void)pool_follow(&claim);
		if (result == CUDA_ERROR_OUT_OF_MEMORY)
			front_driver_oom(slot, demand->bytes, demand->call);
		return result;
	}
	if (pool_follow(&claim) != 0) {
		undo(demand, pointer);
		(void)REAL(SYM_cuMemPoolTrimTo, cuMemPoolTrimTo)(handle, 0);
		front_pools_settle();
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	record.key = pointer;
	record.extra = claim.serial;
	rc = table_put(&front_held, &record, &old);
	if (rc == 1)
		pool_given(&old); /* freed in a way that we did not see: by a graph, by a reset */
	if (rc < 0) {
		undo(demand, pointer);
		pool_given(&record);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = pointer;
	return CUDA_SUCCESS;
}

CUresult hook_cuMemAllocAsync(enum divvy_symbol called, CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	struct demand demand = {
		.called = called, .call = "cuMemAllocAsync", .bytes = bytesize, .stream = hStream,
		.perthread = is_per_thread(called),
	};
	CUresult result;

	if (!dptr || !bytesize || !front_enter())
		return REAL(called, cuMemAllocAsync)(dptr, bytesize, hStream);
	result = allocate(&demand, dptr);
	front_leave();
	return result;
}

CUresult hook_cuMemAllocFromPoolAsync(enum divvy_symbol called, CUdeviceptr *dptr, size_t bytesize,
				      CUmemoryPool pool, CUstream hStream)
{
	struct demand demand = {
		.called = called, .call = "cuMemAllocFromPoolAsync", .bytes = bytesize, .pool = pool,
		.stream = hStream, .perthread = is_per_thread(called),
	};
	CUresult result;

	if (!dptr || !bytesize || !pool || !front_enter())
		return REAL(called, cuMemAllocFromPoolAsync)(dptr, bytesize, pool, hStream);
	result = allocate(&demand, dptr);
	front_leave();
	return result;
}

bool pool_take(uint64_t pointer, struct table_record *record)
{
	return __atomic_load_n(&front_pools_live, __ATOMIC_RELAXED) &&
	       table_take(&front_held, SPACE_POOLED, pointer, record);
}

/* A host function: on a thread of the driver's, and no call of the driver may be made. */
static void reached(void *number)
{
	struct table_record record;

	if (table_take(&front_held, SPACE_LEAVING, (uintptr_t)number, &record))
		front_refund(record.slot, record.bytes);
}

/* The driver was told to free plain memory when the stream gets there. */
static void leaving(struct table_record *record, CUstream stream, bool perthread)
{
	static _Atomic uint64_t last;

	void *number = (void *)(uintptr_t)(atomic_fetch_add(&last, 1) + 1);

	if (record->flags & MEMORY_NAMED) {
		/* the agent is asked about it, which no host function may wait for */
		(void)REAL(perthread ? SYM_cuStreamSynchronize_ptsz : SYM_cuStreamSynchronize, cuStreamSynchronize)(stream);
		memory_handed(record);
		return;
	}
	if (REAL(perthread ? SYM_cuStreamQuery_ptsz : SYM_cuStreamQuery, cuStreamQuery)(stream) == CUDA_SUCCESS) {
		front_refund(record->slot, record->bytes);
		return;
	}
	record->space = SPACE_LEAVING;
	record->key = (uintptr_t)number;
	if (table_put(&front_held, record, NULL) < 0) {
		front_log("no memory to follow memory that a stream frees: its charge stays");
		return;
	}
	if (REAL(perthread ? SYM_cuLaunchHostFunc_ptsz : SYM_cuLaunchHostFunc, cuLaunchHostFunc)(stream, reached, number) ==
	    CUDA_SUCCESS)
		return;
	if (REAL(perthread ? SYM_cuStreamSynchronize_ptsz : SYM_cuStreamSynchronize, cuStreamSynchronize)(stream) == CUDA_SUCCESS)
		reached(number);
}

CUresult hook_cuMemFreeAsync(enum divvy_symbol called, CUdeviceptr dptr, CUstream hStream)
{
	struct table_record record;
	CUresult result;
	bool perthread = called == SYM_cuMemFreeAsync_ptsz;
	bool pooled, linear, opened;

	if (!front_enter())
		return REAL(called, cuMemFreeAsync)(dptr, hStream);
	pooled = pool_take(dptr, &record);
	linear = !pooled && table_take(&front_held, SPACE_POINTER, dptr, &record);
	opened = !pooled && !linear && external_take(dptr, &record);
	result = REAL(called, cuMemFreeAsync)(dptr, hStream);
	if ((pooled || linear || opened) && result != CUDA_SUCCESS)
		memory_restore(&record);
	else if (pooled)
		pool_given(&record);
	else if (linear)
		leaving(&record, hStream, perthread);
	else if (opened)
		external_given(&record);
	front_leave();
	return result;
}
