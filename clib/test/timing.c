/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timing: modelled time as a program sees it, over the stand-in driver. It prints
 * "ok CASE" or "not ok CASE FILE:LINE: TEXT", and at the end "kernels N busy NS":
 * what it has launched, for the simulator's account to be compared with.
 *
 * Where a span is checked to the nanosecond, or something must not have ended yet, a
 * long kernel runs first, so that all of it is launched before any of it begins. A host
 * that pauses may outlast even that: the case then begins again behind a longer one.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "nvml_abi.h"

#define US 1000ull
#define MS 1000000ull
#define LONGEST_HEAD (16000 * MS)
#define PER_THREAD ((CUstream)2)

static const char source[] = ".version 6.0\n"
			     ".target sm_50\n"
			     ".address_size 64\n"
			     ".visible .entry divvy_busy(.param .u64 ns)\n{\n\tret;\n}\n"
			     ".visible .entry divvy_busy_3ms()\n{\n\tret;\n}\n"
			     ".visible .entry divvy_busy_7us()\n{\n\tret;\n}\n"
			     ".visible .entry other()\n{\n\tret;\n}\n";

static CUcontext context;
static CUfunction busy, three, seven, other;
static const char *name;
static int failed, late;
static _Atomic unsigned long long kernels, total;
static unsigned long long head = 250 * MS, headend;

#define CHECK(condition)                                                                      \
	do {                                                                                  \
		if (!(condition)) {                                                           \
			printf("not ok %s %s:%d: %s\n", name, __FILE__, __LINE__, #condition); \
			failed = 1;                                                           \
		}                                                                             \
	} while (0)
#define OK(call) CHECK((call) == CUDA_SUCCESS)

static unsigned long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (unsigned long long)time.tv_sec * 1000000000ull + (unsigned long long)time.tv_nsec;
}

static void launch(CUstream stream, unsigned long long ns)
{
	void *arguments[] = { &ns };

	OK(cuLaunchKernel(busy, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
	kernels++;
	total += ns;
}

/* The long kernel; it has not ended before headend. */
static void head_start(CUstream stream)
{
	headend = now() + head;
	launch(stream, head);
}

/* Says that all that had to come before the long kernel's end has been done. */
static void behind_head(void)
{
	late |= now() >= headend;
}

static CUstream stream_new(unsigned int flags)
{
	CUstream stream = NULL;

	OK(cuStreamCreate(&stream, flags));
	return stream;
}

static CUevent mark(CUstream stream)
{
	CUevent event = NULL;

	OK(cuEventCreate(&event, 0));
	OK(cuEventRecord(event, stream));
	return event;
}

static long long between(CUevent from, CUevent to)
{
	float ms = -1;

	OK(cuEventElapsedTime(&ms, from, to));
	return (long long)((double)ms * 1e6 + (ms < 0 ? -0.5 : 0.5));
}

static void events(void)
{
	CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
	float ms;

	head_start(stream);
	CUevent from = mark(stream);

	for (int i = 0; i < 3; i++)
		launch(stream, MS);
	CUevent to = mark(stream);

	CHECK(cuEventElapsedTime(&ms, from, to) == CUDA_ERROR_NOT_READY);
	CHECK(cuEventQuery(to) == CUDA_ERROR_NOT_READY);
	CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
	behind_head();
	OK(cuEventSynchronize(to));
	OK(cuEventQuery(from));
	OK(cuStreamQuery(stream));
	CHECK(between(from, to) == 3 * MS);
}

static void names(void)
{
	CUstream stream = stream_new(0);
	unsigned long long ns = 5 * US;
	size_t bytes = sizeof(ns);
	void *extra[] = { (void *)1, &ns, (void *)2, &bytes, NULL };
	CUlaunchConfig config = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1,
				  .blockDimZ = 1, .hStream = stream };

	head_start(stream);
	CUevent a = mark(stream);

	OK(cuLaunchKernel(three, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
	CUevent b = mark(stream);

	OK(cuLaunchCooperativeKernel(seven, 1, 1, 1, 32, 1, 1, 0, stream, NULL));
	CUevent c = mark(stream);

	OK(cuLaunchKernel(busy, 1, 1, 1, 32, 1, 1, 0, stream, NULL, extra));
	CUevent d = mark(stream);

	OK(cuLaunchKernelEx(&config, other, NULL, NULL));
	CUevent e = mark(stream);

	/* 132 multiprocessors with two blocks of 1024 threads each: ten waves and one block */
	OK(cuLaunchKernel(other, 2641, 1, 1, 1024, 1, 1, 0, stream, NULL, NULL));
	CUevent f = mark(stream);

	kernels += 5;
	total += 3 * MS + 7 * US + 5 * US + 2 * US + 11 * US;
	behind_head();
	OK(cuStreamSynchronize(stream));
	CHECK(between(a, b) == 3 * MS);
	CHECK(between(b, c) == 7 * US);
	CHECK(between(c, d) == 5 * US);
	CHECK(between(d, e) == 2 * US);
	CHECK(between(e, f) == 11 * US);
}

static void across(void)
{
	CUstream one = stream_new(CU_STREAM_NON_BLOCKING), two = stream_new(CU_STREAM_NON_BLOCKING);

	head_start(one);
	launch(two, 5 * MS);
	CUevent from = mark(two);

	OK(cuStreamWaitEvent(one, from, 0));
	CUevent to = mark(one);

	launch(one, MS);
	CUevent end = mark(one);

	behind_head();
	OK(cuCtxSynchronize());
	CHECK(between(from, to) == 0);
	CHECK(between(to, end) == MS);
}

static void legacy(void)
{
	CUstream one = stream_new(0), two = stream_new(0), apart = stream_new(CU_STREAM_NON_BLOCKING);

	head_start(one);
	CUevent a = mark(one);

	launch(NULL, MS);
	CUevent b = mark(NULL), c = mark(two), d = mark(apart);

	behind_head();
	OK(cuStreamSynchronize(two));
	CHECK(between(a, b) == MS);
	CHECK(between(b, c) == 0);
	CHECK(between(d, a) > 0); /* long before */
	head_start(two);
	CHECK(cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY);
	OK(cuStreamQuery(apart));
	behind_head();
	OK(cuStreamSynchronize(NULL));
	OK(cuStreamQuery(two));
}

static _Atomic unsigned long long called, calls;

static void note(void *data)
{
	const struct timespec time = { 0, 3000000 };

	called = now();
	nanosleep(&time, NULL);
	*(_Atomic unsigned long long *)data = now();
}

static void count(void *unused)
{
	(void)unused;
	calls++;
}

static void hosts(void)
{
	CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
	_Atomic unsigned long long returned = 0;
	unsigned long long begun = now();

	head_start(stream);
	CUevent a = mark(stream);

	OK(cuLaunchHostFunc(stream, note, &returned));
	launch(stream, MS);
	CUevent b = mark(stream);

	CHECK(cuEventQuery(b) == CUDA_ERROR_NOT_READY);
	behind_head();
	OK(cuEventSynchronize(b));
	CHECK(called >= begun + head);
	CHECK(returned >= called + 3 * MS);
	CHECK(now() >= returned + MS);
	CHECK(between(a, b) >= (long long)(4 * MS));
	/* more of them than a ring has entries, in two streams */
	CUstream second = stream_new(0);

	calls = 0;
	for (int i = 0; i < 800; i++) {
		launch(stream, US);
		OK(cuLaunchHostFunc(stream, count, NULL));
		launch(second, US);
		OK(cuLaunchHostFunc(second, count, NULL));
	}
	OK(cuCtxSynchronize());
	CHECK(calls == 1600);
}

static void graphs(void)
{
	CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
	CUgraph graph = NULL;
	CUgraphNode node[5];
	CUgraphExec exec = NULL;
	unsigned long long ns = MS;
	void *arguments[] = { &ns };
	CUDA_KERNEL_NODE_PARAMS_v1 params = { .func = busy, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32,
					   .blockDimY = 1, .blockDimZ = 1, .kernelParams = arguments };
	/* the oldest version, which all drivers have: a prefix of the later ones */
	const CUDA_KERNEL_NODE_PARAMS *kernel = (const void *)&params;
	CUDA_HOST_NODE_PARAMS host = { .fn = count };

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddKernelNode(&node[0], graph, NULL, 0, kernel));
	OK(cuGraphAddKernelNode(&node[1], graph, &node[0], 1, kernel));
	OK(cuGraphAddKernelNode(&node[2], graph, &node[0], 1, kernel));
	OK(cuGraphAddKernelNode(&node[3], graph, &node[1], 2, kernel));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	head_start(stream);
	CUevent a = mark(stream);

	OK(cuGraphLaunch(exec, stream));
	CUevent b = mark(stream);

	OK(cuGraphLaunch(exec, stream));
	CUevent c = mark(stream);

	kernels += 8;
	total += 8 * MS;
	CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
	behind_head();
	OK(cuStreamSynchronize(stream));
	CHECK(between(a, b) == 4 * MS);
	CHECK(between(b, c) == 4 * MS);
	/* a leaf that ends on the host counts as well */
	calls = 0;
	OK(cuGraphAddHostNode(&node[4], graph, &node[3], 1, &host));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	kernels += 4;
	total += 4 * MS;
	OK(cuStreamSynchronize(stream));
	CHECK(calls == 1);
}

static void copies(void)
{
	CUstream stream = stream_new(0);
	CUdeviceptr memory = 0, more = 0;
	char bytes[64] = { 0 };

	OK(cuMemAlloc_v2(&memory, sizeof(bytes)));
	OK(cuMemAlloc_v2(&more, sizeof(bytes)));
	unsigned long long begun = now();

	launch(stream, 10 * MS);
	OK(cuMemcpyDtoH_v2(bytes, memory, sizeof(bytes))); /* in the legacy stream */
	CHECK(now() >= begun + 10 * MS);
	head_start(stream);
	OK(cuMemcpyDtoHAsync_v2(bytes, memory, sizeof(bytes), stream));
	OK(cuMemsetD8Async(memory, 1, sizeof(bytes), stream));
	CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
	behind_head();
	OK(cuMemFree_v2(more));
	OK(cuStreamQuery(stream));
	launch(NULL, 10 * MS);
	begun = now();
	OK(cuMemsetD8_v2(memory, 1, sizeof(bytes)));
	OK(cuStreamQuery(NULL));
	CHECK(now() >= begun);
	OK(cuMemFree_v2(memory));
}

static void many(void)
{
	CUstream stream = stream_new(0);
	CUevent a = mark(stream);

	launch(stream, 2 * MS);
	CUevent b = mark(stream);

	for (int i = 0; i < 3000; i++)
		launch(stream, 2 * US);
	CUevent c = mark(stream);

	OK(cuStreamSynchronize(stream));
	CHECK(between(b, c) >= (long long)(6 * MS));
	CHECK(between(a, b) >= (long long)(2 * MS)); /* their places have been used again */
	/* each rounded to the 24 bits of a float: a host that pauses makes them long */
	CHECK(llabs(between(a, b) + between(b, c) - between(a, c)) <= between(a, c) >> 22);
}

static void *worker(void *unused)
{
	(void)unused;
	OK(cuCtxSetCurrent(context));
	for (int i = 0; i < 500; i++) {
		launch(PER_THREAD, 3 * US);
		if (i % 50 == 0)
			OK(cuStreamSynchronize(PER_THREAD));
	}
	OK(cuStreamSynchronize(PER_THREAD));
	return NULL;
}

static void threads(void)
{
	pthread_t thread[4];

	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&thread[i], NULL, worker, NULL) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
}

static void whole(void)
{
	CUstream stream[9];
	CUevent a = NULL, b = NULL;

	for (int i = 0; i < 9; i++) {
		stream[i] = stream_new(i % 2 ? CU_STREAM_NON_BLOCKING : 0);
		if (i == 0)
			head_start(stream[i]);
		else
			launch(stream[i], MS);
	}
	launch(NULL, MS); /* after five of them, by markers */
	a = mark(NULL);
	launch(stream[8], MS);
	b = mark(stream[8]);
	behind_head();
	OK(cuCtxSynchronize());
	CHECK(between(a, b) >= (long long)MS);
	for (int i = 0; i < 9; i++) {
		OK(cuStreamQuery(stream[i]));
		launch(stream[i], 0); /* a nanosecond */
		total++;
		OK(cuStreamDestroy_v2(stream[i]));
	}
	OK(cuCtxSynchronize());
}

static void nvml(void)
{
	CUstream stream = stream_new(0);
	nvmlDevice_t card;
	nvmlUtilization_t use = { 0, 0 };
	nvmlProcessUtilizationSample_t sample[4];
	unsigned int found = 0;

	headend = now() + 700 * MS; /* more than what utilisation looks back over */
	launch(stream, 700 * MS);
	CUevent full = mark(stream);

	launch(stream, head);
	behind_head();
	headend += head;
	OK(cuEventSynchronize(full));
	CHECK(nvmlInit_v2() == NVML_SUCCESS);
	CHECK(nvmlDeviceGetHandleByIndex_v2(0, &card) == NVML_SUCCESS);
	CHECK(nvmlDeviceGetUtilizationRates(card, &use) == NVML_SUCCESS);
	CHECK(use.gpu == 100);
	CHECK(nvmlDeviceGetProcessUtilization(card, NULL, &found, 0) == NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK(found == 1);
	found = 4;
	CHECK(nvmlDeviceGetProcessUtilization(card, sample, &found, 0) == NVML_SUCCESS);
	CHECK(found == 1 && sample[0].pid == (unsigned int)getpid());
	CHECK(sample[0].smUtil == 100);
	behind_head();
	CHECK(nvmlDeviceGetProcessUtilization(card, sample, &found, sample[0].timeStamp + 60000000) ==
	      NVML_ERROR_NOT_FOUND);
	CHECK(nvmlShutdown() == NVML_SUCCESS);
	OK(cuStreamSynchronize(stream));
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "events", events }, { "names", names }, { "across", across }, { "legacy", legacy }, { "hosts", hosts },
		{ "graphs", graphs }, { "copies", copies }, { "many", many }, { "threads", threads }, { "whole", whole },
		{ "nvml", nvml },
	};
	CUdevice device;
	CUmodule module;

	name = "start";
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuCtxCreate_v2(&context, 0, device));
	OK(cuModuleLoadData(&module, source));
	OK(cuModuleGetFunction(&busy, module, "divvy_busy"));
	OK(cuModuleGetFunction(&three, module, "divvy_busy_3ms"));
	OK(cuModuleGetFunction(&seven, module, "divvy_busy_7us"));
	OK(cuModuleGetFunction(&other, module, "other"));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && !failed; i++) {
		name = cases[i].name;
		for (cases[i].run(); late && head < LONGEST_HEAD; cases[i].run()) {
			head *= 2;
			printf("late %s: again behind %llu ms\n", name, head / MS);
			late = failed = 0;
		}
		CHECK(!late);
		if (!failed)
			printf("ok %s\n", name);
		fflush(stdout);
	}
	printf("kernels %llu busy %llu\n", (unsigned long long)kernels, (unsigned long long)total);
	return failed;
}
