/* SPDX-License-Identifier: Apache-2.0 */
/*
 * everylaunch SECONDS: keeps a card busy in each way that a driver has of
 * starting a kernel, one after the other, and prints a line for each:
 *
 *	SYMBOL KERNELS NANOSECONDS KERNEL_NANOSECONDS
 *	SYMBOL absent
 *
 * A kernel takes a millisecond; each way waits for every sixteenth, so that a busy host
 * does not starve the card.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_abi.h"

#include "../tools/busy.h"

enum { AHEAD = 16 };

static void *library;
static uint64_t busyns = 1000000;
static void *arguments[] = {&busyns};
static CUfunction function;
static CUstream stream;
static CUgraphExec graph;

#define CALL(symbol) ((__typeof__(&symbol))dlsym(library, #symbol))

static void need(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "everylaunch: %s: error %d\n", what, (int)result);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static CUresult plain(void *call)
{
	return ((__typeof__(&cuLaunchKernel))call)(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL);
}

static CUresult extended(void *call)
{
	CUlaunchConfig config = {
		.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1, .hStream = stream,
	};

	return ((__typeof__(&cuLaunchKernelEx))call)(&config, function, arguments, NULL);
}

static CUresult cooperative(void *call)
{
	return ((__typeof__(&cuLaunchCooperativeKernel))call)(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments);
}

static CUresult devices(void *call)
{
	CUDA_LAUNCH_PARAMS params = {
		.function = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1,
		.blockDimZ = 1, .hStream = stream, .kernelParams = arguments,
	};

	return ((__typeof__(&cuLaunchCooperativeKernelMultiDevice))call)(&params, 1, 0);
}

static CUresult launch_graph(void *call)
{
	return ((__typeof__(&cuGraphLaunch))call)(graph, stream);
}

static CUresult oldest(void *call)
{
	return ((__typeof__(&cuLaunch))call)(function);
}

static CUresult grid(void *call)
{
	return ((__typeof__(&cuLaunchGrid))call)(function, 1, 1);
}

static CUresult grid_async(void *call)
{
	return ((__typeof__(&cuLaunchGridAsync))call)(function, 1, 1, stream);
}

static const struct {
	const char *symbol;
	CUresult (*launch)(void *call);
} ways[] = {
	{"cuLaunchKernel", plain},
	{"cuLaunchKernel_ptsz", plain},
	{"cuLaunchKernelEx", extended},
	{"cuLaunchKernelEx_ptsz", extended},
	{"cuLaunchCooperativeKernel", cooperative},
	{"cuLaunchCooperativeKernel_ptsz", cooperative},
	{"cuLaunchCooperativeKernelMultiDevice", devices},
	{"cuGraphLaunch", launch_graph},
	{"cuGraphLaunch_ptsz", launch_graph},
	{"cuLaunch", oldest},
	{"cuLaunchGrid", grid},
	{"cuLaunchGridAsync", grid_async},
};

static void start(void)
{
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUgraph captured = NULL;

	need(CALL(cuInit)(0), "cuInit");
	need(CALL(cuDeviceGet)(&device, 0), "cuDeviceGet");
	need(CALL(cuDevicePrimaryCtxRetain)(&context, device), "retain");
	need(CALL(cuCtxSetCurrent)(context), "set current");
	need(CALL(cuModuleLoadData)(&module, busy_ptx), "load");
	need(CALL(cuModuleGetFunction)(&function, module, "divvy_busy"), "find the kernel");
	need(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), "make a stream");
	need(CALL(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "begin a capture");
	need(plain((void *)CALL(cuLaunchKernel)), "launch into a capture");
	need(CALL(cuStreamEndCapture)(stream, &captured), "end a capture");
	need(CALL(cuGraphInstantiateWithFlags)(&graph, captured, 0), "make a graph");
	/* for the calls of the first CUDA releases */
	need(CALL(cuFuncSetBlockShape)(function, 32, 1, 1), "set the block");
	need(CALL(cuParamSetSize)(function, sizeof busyns), "set the size of parameters");
	need(CALL(cuParamSetv)(function, 0, &busyns, sizeof busyns), "set the parameter");
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? strtod(argv[1], NULL) : 1;

	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "everylaunch: %s\n", dlerror());
		return 1;
	}
	start();
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		void *call = dlsym(library, ways[i].symbol);
		uint64_t first = now_ns(), kernels = 0;

		if (!call) {
			printf("%s absent\n", ways[i].symbol);
			continue;
		}
		do {
			for (int k = 0; k < AHEAD; k++, kernels++)
				need(ways[i].launch(call), ways[i].symbol);
			need(CALL(cuCtxSynchronize)(), "wait");
		} while ((double)(now_ns() - first) < seconds * 1e9);
		printf("%s %llu %llu %llu\n", ways[i].symbol, (unsigned long long)kernels,
		       (unsigned long long)(now_ns() - first), (unsigned long long)busyns);
		fflush(stdout);
	}
	return 0;
}
