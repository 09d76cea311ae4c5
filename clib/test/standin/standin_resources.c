/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches against the registers that their threads take: what fits, what a
 * kernel's directives and the options of its load change, and which calls tell.
 * Over a simulator at $DIVVY_SIMULATOR.
 */
#include <stdarg.h>
#include <stdbool.h>

#include "driver.h"

#define LIVE 96 /* words that the kernel loads before it stores the first of them */
#define NEEDED (LIVE + 4) /* and two for the address, two of every thread */

static char text[16384];
static size_t used;

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	used += (size_t)vsnprintf(text + used, sizeof(text) - used, format, list);
	va_end(list);
	CHECK(used < sizeof(text));
}

/* Turns the words of the first thread round, adding 1; the directives go before the body. */
static const char *source(const char *directives)
{
	used = 0;
	say(".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 at) %s\n{\n", directives);
	say(".reg .b32 %%r<%d>; .reg .b64 %%d; .reg .pred %%p; ld.param.u64 %%d, [at];\n", LIVE + 1);
	say("mov.u32 %%r%d, %%tid.x; setp.ne.u32 %%p, %%r%d, 0; @%%p ret;\n", LIVE, LIVE);
	for (int i = 0; i < LIVE; i++)
		say("ld.global.u32 %%r%d, [%%d+%d];\n", i, 4 * i);
	for (int i = 0; i < LIVE; i++)
		say("add.u32 %%r%d, %%r%d, 1; st.global.u32 [%%d+%d], %%r%d;\n", i, i, 4 * (LIVE - 1 - i), i);
	say("ret;\n}\n");
	return text;
}

static CUfunction load(const char *directives, unsigned int count, CUjit_option *options, void **values)
{
	CUmodule module = NULL;
	CUfunction function = NULL;

	OK(cuModuleLoadDataEx(&module, source(directives), count, options, values));
	OK(cuModuleGetFunction(&function, module, "k"));
	return function;
}

static int attribute(CUfunction function, CUfunction_attribute which)
{
	int value = 0;

	OK(cuFuncGetAttribute(&value, which, function));
	return value;
}

#define REGISTERS(function) attribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS)
#define THREADS(function) attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)

static CUdeviceptr words(void)
{
	CUdeviceptr at = 0;

	OK(cuMemAlloc_v2(&at, 4 * LIVE));
	OK(cuMemsetD32_v2(at, 5, LIVE));
	return at;
}

static CUresult launch(CUfunction function, CUdeviceptr at, unsigned int threads)
{
	void *arguments[] = { &at };

	return cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, NULL, arguments, NULL);
}

/* It did run: all words are so. */
static void expect(CUdeviceptr at, uint32_t word)
{
	uint32_t got[LIVE];

	OK(cuMemcpyDtoH_v2(got, at, sizeof(got)));
	for (int i = 0; i < LIVE; i++)
		CHECK(got[i] == word);
}

static void too_many(void)
{
	start();
	CUfunction function = load("", 0, NULL, NULL);
	CUdeviceptr at = words();
	void *arguments[] = { &at };
	CUlaunchConfig config = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1024, .blockDimY = 1, .blockDimZ = 1 };

	CHECK(REGISTERS(function) == NEEDED);
	CHECK(THREADS(function) == 512); /* 65536 / (100 in units of 8): 19 warps, in fours 16 */
	GIVES(launch(function, at, 1024), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	GIVES(launch(function, at, 513), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	GIVES(cuLaunchKernel_ptsz(function, 1, 1, 1, 32, 32, 1, 0, NULL, arguments, NULL), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	GIVES(cuLaunchKernelEx(&config, function, arguments, NULL), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	GIVES(cuLaunchCooperativeKernel(function, 1, 1, 1, 1024, 1, 1, 0, NULL, arguments), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	OK(cuFuncSetBlockShape(function, 1024, 1, 1));
	OK(cuParamSetSize(function, 8));
	OK(cuParamSetv(function, 0, &at, 8));
	GIVES(cuLaunch(function), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	OK(cuCtxSynchronize()); /* no fault: the context goes on */
	expect(at, 5);
	OK(launch(function, at, 512));
	expect(at, 6);
}

/* What a compiler for hardware keeps to, this does. */
static void directives(void)
{
	static const struct {
		const char *directives;
		int registers;
		int threads;
	} wanted[] = {
		{ ".maxntid 1024, 1, 1", 64, 1024 },
		{ ".maxntid 32, 32, 1", 64, 1024 },
		{ ".reqntid 768, 1, 1", 80, 768 },
		{ ".maxntid 256, 1, 1", NEEDED, 256 },
		{ ".maxntid 256, 1, 1 .minnctapersm 4", 64, 256 },
		{ ".maxnreg 40", 40, 1024 },
		{ ".maxnreg 200", NEEDED, 512 },
	};

	start();
	CUdeviceptr at = words();

	for (size_t i = 0; i < COUNT(wanted); i++) {
		CUfunction function = load(wanted[i].directives, 0, NULL, NULL);

		CHECK(REGISTERS(function) == wanted[i].registers);
		CHECK(THREADS(function) == wanted[i].threads);
		/* the rest is in local memory */
		CHECK(attribute(function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) == 4 * (NEEDED - wanted[i].registers));
		OK(launch(function, at, (unsigned int)wanted[i].threads));
		expect(at, 6 + (uint32_t)i);
	}
}

static void options(void)
{
	start();
	CUdeviceptr at = words();
	CUjit_option most = CU_JIT_MAX_REGISTERS;
	CUjit_option threads = CU_JIT_THREADS_PER_BLOCK;
	void *value = (void *)32;
	CUfunction function = load("", 1, &most, &value);

	CHECK(REGISTERS(function) == 32 && THREADS(function) == 1024);
	OK(launch(function, at, 1024));
	expect(at, 6);

	value = (void *)1024;
	function = load("", 1, &threads, &value);
	CHECK((uintptr_t)value == 1024 && REGISTERS(function) == 64);
	OK(launch(function, at, 1024));
	expect(at, 7);
	value = (void *)300; /* ten warps take as much as twelve: 168 registers would do */
	function = load("", 1, &threads, &value);
	CHECK((uintptr_t)value == 300 && REGISTERS(function) == NEEDED);
	/* a directive goes before, and the caller is told what it comes to */
	value = (void *)1024;
	function = load(".maxnreg 128", 1, &threads, &value);
	CHECK((uintptr_t)value == 512 && REGISTERS(function) == NEEDED);
	GIVES(launch(function, at, 1024), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

/* The options of a library and of a link are kept for when its code is used. */
static void later(void)
{
	CUjit_option most = CU_JIT_MAX_REGISTERS;
	void *value = (void *)32;
	CUlibrary library = NULL;
	CUkernel kernel = NULL;
	CUfunction function = NULL;
	CUlinkState state = NULL;
	CUmodule module = NULL;
	void *image = NULL;
	int registers = 0;

	start();
	CUdeviceptr at = words();

	OK(cuLibraryLoadData(&library, source(""), &most, &value, 1, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&kernel, library, "k"));
	OK(cuKernelGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 0));
	CHECK(registers == 32);
	OK(cuKernelGetFunction(&function, kernel));
	CHECK(REGISTERS(function) == 32);
	OK(launch(function, at, 1024));
	expect(at, 6);

	OK(cuLinkCreate_v2(1, &most, &value, &state));
	OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)source(""), used + 1, "k", 0, NULL, NULL));
	OK(cuLinkComplete(state, &image, NULL));
	OK(cuLinkComplete(state, &image, NULL));
	OK(cuModuleLoadData(&module, image));
	OK(cuLinkDestroy(state));
	OK(cuModuleGetFunction(&function, module, "k"));
	CHECK(REGISTERS(function) == 32);
	OK(launch(function, at, 1024));
	expect(at, 7);
}

/* A graph takes such a node, and is refused when it becomes executable. */
static void graphs(void)
{
	CUgraph graph = NULL;
	CUgraph child = NULL;
	CUgraph captured = NULL;
	CUgraphNode node = NULL;
	CUgraphNode inner = NULL;
	CUgraphNode error = NULL;
	CUgraphExec exec = NULL;
	CUstream stream = NULL;
	CUgraphExecUpdateResultInfo info = { 0 };

	start();
	CUfunction function = load("", 0, NULL, NULL);
	CUdeviceptr at = words();
	void *arguments[] = { &at };
	CUDA_KERNEL_NODE_PARAMS params = {
		.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1024, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = arguments,
	};
	CUDA_GRAPH_INSTANTIATE_PARAMS asked = { 0 };

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
	GIVES(cuGraphInstantiate_v2(&exec, graph, &error, NULL, 0), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	CHECK(error == node);
	GIVES(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	GIVES(cuGraphInstantiateWithParams(&exec, graph, &asked), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	CHECK(asked.hErrNode_out == node && asked.result_out == CUDA_GRAPH_INSTANTIATE_ERROR);
	OK(cuGraphCreate(&child, 0));
	OK(cuGraphAddChildGraphNode(&inner, child, NULL, 0, graph));
	GIVES(cuGraphInstantiateWithFlags(&exec, child, 0), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);

	params.blockDimX = 512;
	OK(cuGraphKernelNodeSetParams_v2(node, &params));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	params.blockDimX = 1024;
	GIVES(cuGraphExecKernelNodeSetParams_v2(exec, node, &params), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	OK(cuGraphLaunch(exec, NULL));
	expect(at, 6);

	/* a capture notes the launch, and the update by it fails */
	OK(cuStreamCreate(&stream, 0));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuLaunchKernel(function, 1, 1, 1, 1024, 1, 1, 0, stream, arguments, NULL));
	OK(cuStreamEndCapture(stream, &captured));
	GIVES(cuGraphExecUpdate_v2(exec, captured, &info), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR && info.errorNode);
	OK(cuGraphLaunch(exec, NULL));
	expect(at, 7);
}

static void occupancy(void)
{
	int blocks = 0;
	int grid = 0;
	int block = 0;
	size_t room = 0;

	start();
	CUfunction function = load("", 0, NULL, NULL);
	CUdeviceptr at = words();
	void *arguments[] = { &at };

	/* 104 registers with their units: 19 warps fit 65536, 4 to each of 4 parts */
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 128, 0));
	CHECK(blocks == 4);
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32, 0));
	CHECK(blocks == 16);
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 512, 0));
	CHECK(blocks == 1);
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 1024, 0));
	CHECK(blocks == 0);
	OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0));
	CHECK(block == 512 && grid == 108);
	OK(launch(function, at, (unsigned int)block));
	/* registers leave room for four blocks of 128, and each for a quarter of the shared memory */
	OK(cuOccupancyAvailableDynamicSMemPerBlock(&room, function, 4, 128));
	CHECK(room == 167936 / 4 - 1024);
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 128, room));
	CHECK(blocks == 4);
	/* what is resident at once decides about a cooperative grid */
	OK(cuLaunchCooperativeKernel(function, 4 * 108, 1, 1, 128, 1, 1, 0, NULL, arguments));
	GIVES(cuLaunchCooperativeKernel(function, 4 * 108 + 1, 1, 1, 128, 1, 1, 0, NULL, arguments),
	      CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

static const struct scenario list[] = {
	{ "too_many", too_many },
	{ "directives", directives },
	{ "options", options },
	{ "later", later },
	{ "graphs", graphs },
	{ "occupancy", occupancy },
};

RUN_SCENARIOS(list)
