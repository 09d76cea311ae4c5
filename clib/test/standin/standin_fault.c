/* SPDX-License-Identifier: Apache-2.0 */
/* Errors that stick to a context, over a simulator at $DIVVY_SIMULATOR. */
#include <pthread.h>
#include <stdatomic.h>

#include "driver.h"
#include "fault.h"

static void none(void *unused)
{
	(void)unused;
}

/* Every call in the context answers the first error; its end helps, and nothing
 * else in the process notices. */
static void sticky(void)
{
	CUcontext primary = start(), own = NULL, other = NULL, popped = NULL;
	CUdeviceptr at = 0, elsewhere = 0;
	CUstream stream = NULL;
	CUevent event = NULL;
	CUcontext current = NULL;
	unsigned char byte = 7;
	size_t freebytes = 0, total = 0;

	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuMemAlloc_v2(&elsewhere, 4096));
	OK(cuMemcpyHtoD_v2(elsewhere, &byte, 1));
	OK(cuCtxCreate_v2(&own, 0, 0));
	OK(cuMemAlloc_v2(&at, 4096));
	OK(cuStreamCreate(&stream, 0));
	OK(cuEventCreate(&event, 0));
	OK(cuEventRecord(event, stream));
	sd_lock();
	sd_context_fault(sd_context_get(own), CUDA_ERROR_ILLEGAL_ADDRESS);
	sd_context_fault(sd_context_get(own), CUDA_ERROR_LAUNCH_FAILED);
	CHECK(sd_context_healthy(sd_context_get(own)) == CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK(sd_context_healthy(sd_context_get(other)) == CUDA_SUCCESS);
	sd_unlock();
	for (int i = 0; i < 2; i++) {
		GIVES(cuMemAlloc_v2(&at, 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuMemFree_v2(at), CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuMemcpyHtoD_v2(at, &byte, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuMemGetInfo_v2(&freebytes, &total), CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuMemsetD8Async(at, 0, 16, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuLaunchHostFunc(stream, none, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuEventRecord(event, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuEventSynchronize(event), CUDA_ERROR_ILLEGAL_ADDRESS);
		GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	}
	OK(cuCtxGetCurrent(&current));
	CHECK(current == own);
	OK(cuCtxPopCurrent_v2(&popped));
	CHECK(popped == own);
	OK(cuMemcpyDtoH_v2(&byte, elsewhere, 1));
	CHECK(byte == 7);
	OK(cuCtxDestroy_v2(own));
	OK(cuCtxDestroy_v2(other));
	OK(cuCtxSetCurrent(primary));
	OK(cuMemAlloc_v2(&at, 4096));
	OK(cuMemFree_v2(at));
	OK(cuDevicePrimaryCtxRelease_v2(0));
}

/* A primary context starts anew after its end. */
static void primary(void)
{
	CUcontext context = start();
	CUdeviceptr at = 0;

	sd_lock();
	sd_context_fault(sd_context_get(context), CUDA_ERROR_LAUNCH_FAILED);
	sd_unlock();
	GIVES(cuMemAlloc_v2(&at, 1), CUDA_ERROR_LAUNCH_FAILED);
	OK(cuDevicePrimaryCtxReset_v2(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	OK(cuMemAlloc_v2(&at, 1));
	OK(cuMemFree_v2(at));
	OK(cuDevicePrimaryCtxRelease_v2(0));
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int called;
static _Atomic int told;

static void behind_gate(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&gate);
	called++;
	pthread_mutex_unlock(&gate);
}

static void hears(CUstream stream, CUresult status, void *unused)
{
	(void)stream;
	(void)unused;
	told = (int)status;
}

/* What waits in a context when it ends: callbacks are told, host functions are not
 * called. */
static void callbacks(void)
{
	CUcontext context = start();
	CUstream stream = NULL;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	pthread_mutex_lock(&gate);
	OK(cuLaunchHostFunc(stream, behind_gate, NULL));
	OK(cuStreamAddCallback(stream, hears, NULL, 0));
	OK(cuLaunchHostFunc(stream, behind_gate, NULL));
	GIVES(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	sd_lock();
	sd_context_fault(sd_context_get(context), CUDA_ERROR_MISALIGNED_ADDRESS);
	sd_unlock();
	pthread_mutex_unlock(&gate);
	OK(cuDevicePrimaryCtxReset_v2(0)); /* waits for them */
	CHECK(told == CUDA_ERROR_MISALIGNED_ADDRESS);
	CHECK(called <= 1); /* the first may have been on its way */
}

static const struct scenario list[] = {
	{ "callbacks", callbacks },
	{ "sticky", sticky },
	{ "primary", primary },
};

RUN_SCENARIOS(list)
