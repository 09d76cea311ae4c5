/* SPDX-License-Identifier: Apache-2.0 */
/* Errors that stick to a context, over a simulator at $DIVVY_SIMULATOR. */
#include <pthread.h>
#include <stdatomic.h>

#include "driver.h"
#include "cuda/fault.h"
#include "nvml_abi.h"

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

static const char source[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
			     ".visible .entry store(.param .u64 at)\n{\n	.reg .u64 %rd<2>;\n	.reg .u32 %r<2>;\n"
			     "	ld.param.u64 %rd0, [at];\n	mov.u32 %r0, 7;\n	st.global.u32 [%rd0], %r0;\n	ret;\n}\n"
			     ".visible .entry stop()\n{\n	trap;\n	ret;\n}\n";

static CUresult run(CUfunction function, CUdeviceptr at)
{
	void *arguments[] = { &at };
	CUresult result = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);

	return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
}

/* What a kernel does wrong ends its context; another context of the process, with
 * the same module, is as well as before. */
static void kernels(void)
{
	static const struct {
		const char *name;
		uint64_t offset;
		CUresult error;
		unsigned long long xid;
	} wrongs[] = {
		{ "store", 1ull << 33, CUDA_ERROR_ILLEGAL_ADDRESS, 31 }, /* far outside of the block */
		{ "store", 2, CUDA_ERROR_MISALIGNED_ADDRESS, 13 },
		{ "stop", 0, CUDA_ERROR_LAUNCH_FAILED, 13 },
	};
	nvmlDevice_t device;
	nvmlEventSet_t events;
	nvmlEventData_t event;
	CUcontext primary = start();
	CUmodule fine = NULL;
	CUfunction works = NULL;
	CUdeviceptr kept = 0;
	uint32_t word = 0;

	OK(cuModuleLoadData(&fine, source));
	OK(cuModuleGetFunction(&works, fine, "store"));
	OK(cuMemAlloc_v2(&kept, 4096));
	CHECK(nvmlInit_v2() == NVML_SUCCESS && nvmlDeviceGetHandleByIndex_v2(0, &device) == NVML_SUCCESS);
	CHECK(nvmlEventSetCreate(&events) == NVML_SUCCESS);
	CHECK(nvmlDeviceRegisterEvents(device, nvmlEventTypeXidCriticalError, events) == NVML_SUCCESS);
	for (size_t i = 0; i < COUNT(wrongs); i++) {
		CUcontext context = NULL;
		CUmodule module = NULL;
		CUfunction function = NULL;
		CUdeviceptr at = 0;

		OK(cuCtxCreate_v2(&context, 0, 0));
		OK(cuMemAlloc_v2(&at, 4096));
		OK(cuModuleLoadData(&module, source));
		OK(cuModuleGetFunction(&function, module, wrongs[i].name));
		GIVES(run(function, at + wrongs[i].offset), wrongs[i].error);
		CHECK(nvmlEventSetWait_v2(events, &event, 10000) == NVML_SUCCESS && event.eventData == wrongs[i].xid);
		GIVES(cuMemFree_v2(at), wrongs[i].error);
		GIVES(run(function, at), wrongs[i].error);
		OK(cuCtxDestroy_v2(context));
		OK(cuCtxSetCurrent(primary));
		OK(cuMemsetD32_v2(kept, 0, 1));
		OK(run(works, kept));
		OK(cuMemcpyDtoH_v2(&word, kept, 4));
		CHECK(word == 7);
	}
	CHECK(nvmlEventSetWait_v2(events, &event, 0) == NVML_ERROR_TIMEOUT); /* each told once */
	CHECK(nvmlEventSetFree(events) == NVML_SUCCESS && nvmlShutdown() == NVML_SUCCESS);
	OK(cuMemFree_v2(kept));
	OK(cuDevicePrimaryCtxRelease_v2(0));
}

static const struct scenario list[] = {
	{ "kernels", kernels },
	{ "callbacks", callbacks },
	{ "sticky", sticky },
	{ "primary", primary },
};

RUN_SCENARIOS(list)
