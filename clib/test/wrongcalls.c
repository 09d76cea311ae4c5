/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrongcalls.c: what a driver answers to calls that are wrong. A line each: its name and
 * the result, that of the call, or, if it says success, of the synchronise that follows.
 * A driver somewhere else must answer the same.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"

static const char ptx[] =
	".version 7.0\n.target sm_50\n.address_size 64\n"
	".visible .entry store(.param .u64 to, .param .u32 value)\n{\n"
	"\t.reg .u64 %a; .reg .u32 %v;\n\tld.param.u64 %a, [to];\n\tld.param.u32 %v, [value];\n"
	"\tst.global.u32 [%a], %v;\n\tret;\n}\n"
	".visible .entry nothing()\n{\n\tret;\n}\n";

static CUdevice device;
static CUcontext context;
static CUmodule module;
static CUfunction store, nothing;
static CUstream stream, gone;
static CUevent event, goneevent;
static CUdeviceptr memory, freed;
static CUgraph graph;

#define WILD(type) ((type)(uintptr_t)0x7e57ed0)

static void say(const char *name, CUresult result)
{
	CUresult after = result == CUDA_SUCCESS ? cuCtxSynchronize() : result;

	printf("%s %u\n", name, after);
}

static void must(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "wrongcalls: %s: %u\n", what, result);
		exit(1);
	}
}

#define MUST(call) must(call, #call)

static CUresult launch(CUfunction function, unsigned int grid, unsigned int block, unsigned int shared, CUstream on, void **parameters)
{
	return cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, on, parameters, NULL);
}

static void launches(void)
{
	unsigned int value = 7;
	void *parameters[] = { &memory, &value };
	void *missing[] = { &memory, NULL };
	size_t bytes = 4096;
	void *extra[] = { (void *)1, &memory, (void *)2, &bytes, NULL };
	void *odd[] = { (void *)9, &memory, NULL };

	say("grid 0", launch(store, 0, 1, 0, NULL, parameters));
	say("block 0", launch(store, 1, 0, 0, NULL, parameters));
	say("block 4096", launch(store, 1, 4096, 0, NULL, parameters));
	say("block 1024x2", cuLaunchKernel(store, 1, 1, 1, 1024, 2, 1, 0, NULL, parameters, NULL));
	say("block z 128", cuLaunchKernel(store, 1, 1, 1, 1, 1, 128, 0, NULL, parameters, NULL));
	say("grid y 65536", cuLaunchKernel(store, 1, 65536, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	say("shared 1 MiB", launch(store, 1, 1, 1 << 20, NULL, parameters));
	say("no parameters", launch(store, 1, 1, 0, NULL, NULL));
	say("a parameter missing", launch(store, 1, 1, 0, NULL, missing));
	say("both parameters", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, extra));
	say("extra too long", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	say("extra odd", cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, odd));
	say("wild function", launch(WILD(CUfunction), 1, 1, 0, NULL, parameters));
	say("null function", launch(NULL, 1, 1, 0, NULL, parameters));
	say("wild stream", launch(nothing, 1, 1, 0, WILD(CUstream), NULL));
	say("gone stream", launch(nothing, 1, 1, 0, gone, NULL));
	say("cooperative too large", cuLaunchCooperativeKernel(nothing, 1 << 20, 1, 1, 1024, 1, 1, 0, NULL, NULL));
	say("config null", cuLaunchKernelEx(NULL, nothing, NULL, NULL));
}

static void memories(void)
{
	CUdeviceptr got = 0;
	size_t bytes = 0;
	unsigned int type = 0;
	char host[64];

	say("alloc 0", cuMemAlloc_v2(&got, 0));
	say("alloc null", cuMemAlloc_v2(NULL, 16));
	say("alloc 1 PiB", cuMemAlloc_v2(&got, 1ull << 50));
	say("free twice", cuMemFree_v2(freed));
	say("free inside", cuMemFree_v2(memory + 16));
	say("free wild", cuMemFree_v2(0x1234));
	say("free null", cuMemFree_v2(0));
	say("range of wild", cuMemGetAddressRange_v2(&got, &bytes, 0x1234));
	say("attribute of wild", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x1234));
	say("attribute none", cuPointerGetAttribute(&type, (CUpointer_attribute)99, memory));
	say("copy to wild", cuMemcpyHtoD_v2(0x1234, host, sizeof(host)));
	say("copy from freed", cuMemcpyDtoH_v2(host, freed, sizeof(host)));
	say("copy past the end", cuMemcpyDtoH_v2(host, memory + (1 << 20) - 8, sizeof(host)));
	say("copy from null", cuMemcpyHtoD_v2(memory, NULL, 16));
	say("copy on wild stream", cuMemcpyDtoDAsync_v2(memory, memory + 4096, 64, WILD(CUstream)));
	say("set wild", cuMemsetD8_v2(0x1234, 1, 16));
	say("set past the end", cuMemsetD32_v2(memory + (1 << 20) - 8, 1, 16));
	say("host alloc 0", cuMemHostAlloc((void **)&got, 0, 0));
	say("host alloc flags", cuMemHostAlloc((void **)&got, 16, 0x800));
	say("host free wild", cuMemFreeHost(host));
	say("host unregister wild", cuMemHostUnregister(host));
	say("pitch 0", cuMemAllocPitch_v2(&got, &bytes, 0, 4, 4));
	say("box pitch", cuMemcpy2D_v2(&(CUDA_MEMCPY2D){
				  .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = 4, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				  .dstDevice = memory, .dstPitch = 8, .WidthInBytes = 8, .Height = 2,
			  }));
	say("box null", cuMemcpy2D_v2(NULL));
}

static void handles(void)
{
	CUcontext other = NULL;
	CUfunction function = NULL;
	CUmodule loaded = NULL;
	float ms = 0;
	int number = 0;
	CUgraphExec exec = NULL;
	CUgraphNode node = NULL;
	CUarray array = NULL;
	CUdeviceptr address = 0;
	size_t bytes = 0;

	say("device 7", cuDeviceGet(&device, 7));
	say("device -1 name", cuDeviceGetName((char *)&number, 4, -1));
	say("device attribute 0", cuDeviceGetAttribute(&number, (CUdevice_attribute)0, 0));
	say("device attribute 9999", cuDeviceGetAttribute(&number, (CUdevice_attribute)9999, 0));
	say("context on device 7", cuCtxCreate_v2(&other, 0, 7));
	say("context flags", cuCtxCreate_v2(&other, 0xffff0000, 0));
	say("push wild", cuCtxPushCurrent_v2(WILD(CUcontext)));
	say("set wild context", cuCtxSetCurrent(WILD(CUcontext)));
	say("destroy wild context", cuCtxDestroy_v2(WILD(CUcontext)));
	say("limit none", cuCtxGetLimit(&bytes, (CUlimit)99));
	say("function missing", cuModuleGetFunction(&function, module, "missing"));
	say("function null name", cuModuleGetFunction(&function, module, NULL));
	say("function of wild", cuModuleGetFunction(&function, WILD(CUmodule), "store"));
	say("global missing", cuModuleGetGlobal_v2(&address, &bytes, module, "missing"));
	say("load nonsense", cuModuleLoadData(&loaded, "nonsense"));
	say("load null", cuModuleLoadData(&loaded, NULL));
	say("load no file", cuModuleLoad(&loaded, "/nonexistent"));
	say("unload wild", cuModuleUnload(WILD(CUmodule)));
	say("function attribute", cuFuncGetAttribute(&number, (CUfunction_attribute)99, store));
	say("stream flags", cuStreamCreate(&(CUstream){ NULL }, 0x80));
	say("stream null", cuStreamCreate(NULL, 0));
	say("destroy wild stream", cuStreamDestroy_v2(WILD(CUstream)));
	say("destroy gone stream", cuStreamDestroy_v2(gone));
	say("query wild stream", cuStreamQuery(WILD(CUstream)));
	say("synchronize gone stream", cuStreamSynchronize(gone));
	say("event flags", cuEventCreate(&(CUevent){ NULL }, 0x800));
	say("record wild event", cuEventRecord(WILD(CUevent), NULL));
	say("record gone event", cuEventRecord(goneevent, stream));
	say("wait for wild event", cuStreamWaitEvent(stream, WILD(CUevent), 0));
	say("elapsed unrecorded", cuEventElapsedTime(&ms, event, event));
	say("query wild event", cuEventQuery(WILD(CUevent)));
	say("array 0", cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){ .Width = 0, .NumChannels = 1, .Format = CU_AD_FORMAT_FLOAT }));
	say("array channels", cuArrayCreate_v2(&array, &(CUDA_ARRAY_DESCRIPTOR){ .Width = 4, .NumChannels = 3, .Format = CU_AD_FORMAT_FLOAT }));
	say("destroy wild array", cuArrayDestroy(WILD(CUarray)));
	say("graph wild", cuGraphInstantiateWithFlags(&exec, WILD(CUgraph), 0));
	say("graph node of wild", cuGraphAddEmptyNode(&node, WILD(CUgraph), NULL, 0));
	say("graph depends on wild", cuGraphAddEmptyNode(&node, graph, &(CUgraphNode){ WILD(CUgraphNode) }, 1));
	say("graph launch wild", cuGraphLaunch(WILD(CUgraphExec), stream));
	say("end of no capture", cuStreamEndCapture(stream, &graph));
	say("pool attribute wild", cuMemPoolTrimTo(WILD(CUmemoryPool), 0));
	say("texture of nothing", cuTexObjectCreate(&(CUtexObject){ 0 }, &(CUDA_RESOURCE_DESC){ .resType = CU_RESOURCE_TYPE_ARRAY },
						    &(CUDA_TEXTURE_DESC){ 0 }, NULL));
}

/* An address that no kernel may write to ends the context, and all that follows. */
static void sticky(void)
{
	CUdeviceptr nowhere = 0x1000, got = 0;
	unsigned int value = 1;
	void *parameters[] = { &nowhere, &value };

	say("store nowhere", launch(store, 1, 1, 0, NULL, parameters));
	say("synchronize after", cuCtxSynchronize());
	say("alloc after", cuMemAlloc_v2(&got, 4096));
	say("launch after", launch(nothing, 1, 1, 0, NULL, NULL));
	say("query after", cuStreamQuery(stream));
	say("info after", cuMemGetInfo_v2(&(size_t){ 0 }, &(size_t){ 0 }));
}

int main(void)
{
	CUdeviceptr early = 0;
	void *function = NULL;
	int version = 0;

	/* what may be asked before comes first: it initialises nothing */
	printf("version before init %u\n", cuDriverGetVersion(&version));
	printf("function before init %u\n", cuGetProcAddress("cuMemAlloc", &function, 11040, 0));
	printf("before init %u\n", cuMemAlloc_v2(&early, 16));
	printf("count before init %u\n", cuDeviceGetCount(&version));
	MUST(cuInit(0));
	printf("before context %u\n", cuMemAlloc_v2(&early, 16));
	printf("init flags %u\n", cuInit(1));
	MUST(cuDeviceGet(&device, 0));
	MUST(cuCtxCreate_v2(&context, 0, device));
	MUST(cuModuleLoadData(&module, ptx));
	MUST(cuModuleGetFunction(&store, module, "store"));
	MUST(cuModuleGetFunction(&nothing, module, "nothing"));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&gone, 0));
	MUST(cuStreamDestroy_v2(gone));
	MUST(cuEventCreate(&event, 0));
	MUST(cuEventCreate(&goneevent, 0));
	MUST(cuEventDestroy_v2(goneevent));
	MUST(cuMemAlloc_v2(&memory, 1 << 20));
	MUST(cuMemAlloc_v2(&freed, 1 << 20));
	MUST(cuMemFree_v2(freed));
	MUST(cuGraphCreate(&graph, 0));
	launches();
	memories();
	handles();
	sticky();
	return 0;
}
