/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, host functions, graphs and captures, over a simulator at $DIVVY_SIMULATOR. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>

#include "driver.h"

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static int calls[100];
static int called;

static void behind_gate(void *number)
{
	pthread_mutex_lock(&gate);
	calls[called++] = (int)(intptr_t)number;
	pthread_mutex_unlock(&gate);
}

static void stream_callback(CUstream stream, CUresult status, void *number)
{
	(void)stream;
	CHECK(status == CUDA_SUCCESS);
	behind_gate(number);
}

static void calls_in(void *out)
{
	CUdeviceptr at = 0;

	*(CUresult *)out = cuMemAlloc_v2(&at, 1);
}

/* Host functions run in order on a thread of their own: one that waits for the
 * caller does not stop it, and what comes after waits for it. */
static void host_functions(void)
{
	CUstream stream = NULL, other = NULL;
	CUevent event = NULL;
	CUdeviceptr at = 0;
	CUresult inside = CUDA_SUCCESS;
	unsigned char byte = 1;

	start();
	uint64_t before = room();

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, 0));
	OK(cuMemAlloc_v2(&at, 1));
	pthread_mutex_lock(&gate);
	OK(cuLaunchHostFunc(stream, behind_gate, (void *)1));
	OK(cuStreamAddCallback(stream, stream_callback, (void *)2, 0));
	OK(cuEventRecord(event, stream));
	GIVES(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	GIVES(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	OK(cuStreamQuery(other));
	OK(cuStreamWaitEvent(other, event, 0));
	GIVES(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
	OK(cuLaunchHostFunc(other, behind_gate, (void *)3));
	CHECK(called == 0);
	pthread_mutex_unlock(&gate);
	OK(cuMemcpyHtoDAsync_v2(at, &byte, 1, other));
	OK(cuStreamSynchronize(other)); /* waits for all three */
	CHECK(called == 3 && calls[0] == 1 && calls[1] == 2 && calls[2] == 3);
	OK(cuStreamSynchronize(stream));
	OK(cuStreamQuery(stream));
	OK(cuEventQuery(event));
	OK(cuLaunchHostFunc(stream, calls_in, &inside));
	OK(cuCtxSynchronize());
	CHECK(inside == CUDA_ERROR_NOT_PERMITTED);
	OK(cuEventDestroy_v2(event));
	OK(cuStreamDestroy_v2(stream));
	OK(cuStreamDestroy_v2(other));
	OK(cuMemFree_v2(at));
	finish(before);
}

static void events(void)
{
	CUevent a = NULL, b = NULL, untimed = NULL;
	float ms = -1;

	start();
	uint64_t before = room();

	OK(cuEventCreate(&a, 0));
	OK(cuEventCreate(&b, CU_EVENT_BLOCKING_SYNC));
	OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	GIVES(cuEventCreate(&untimed, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
	OK(cuEventQuery(a)); /* never recorded */
	GIVES(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventRecord(a, NULL));
	struct timespec nap = { .tv_nsec = 5000000 };

	nanosleep(&nap, NULL);
	OK(cuEventRecord(b, NULL));
	OK(cuEventSynchronize(b));
	OK(cuEventElapsedTime(&ms, a, b));
	CHECK(ms >= 5 && ms < 5000);
	OK(cuEventElapsedTime(&ms, b, a));
	CHECK(ms <= -5);
	OK(cuEventRecord(untimed, NULL));
	GIVES(cuEventElapsedTime(&ms, a, untimed), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventDestroy_v2(a));
	GIVES(cuEventDestroy_v2(a), CUDA_ERROR_INVALID_HANDLE);
	GIVES(cuEventRecord(a, NULL), CUDA_ERROR_INVALID_HANDLE);
	finish(before);
}

static void streams(void)
{
	CUstream stream = NULL;
	CUcontext context = start(), got = NULL;
	unsigned int flags = 9;
	int priority = 9;
	unsigned long long one = 0, two = 0;

	OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100));
	OK(cuStreamGetPriority(stream, &priority));
	OK(cuStreamGetFlags(stream, &flags));
	OK(cuStreamGetCtx(stream, &got));
	CHECK(priority == -5 && flags == CU_STREAM_NON_BLOCKING && got == context);
	OK(cuStreamGetId(NULL, &one));
	OK(cuStreamGetId((CUstream)1, &two));
	CHECK(one == two);
	OK(cuStreamGetId_ptsz(NULL, &two));
	CHECK(one != two);
	OK(cuStreamGetId((CUstream)2, &one));
	CHECK(one == two);
	GIVES(cuStreamSynchronize((CUstream)&flags), CUDA_ERROR_INVALID_HANDLE);
	GIVES(cuStreamDestroy_v2(NULL), CUDA_ERROR_INVALID_HANDLE);
	OK(cuStreamDestroy_v2(stream));
	GIVES(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
}

static void add_one(void *word)
{
	(*(uint32_t *)word)++;
}

/* memset -> copy -> copy back -> host function, with an edge each */
static void graphs(void)
{
	CUgraph graph = NULL, clone = NULL;
	CUgraphExec exec = NULL, second = NULL;
	CUgraphNode set = NULL, copy = NULL, back = NULL, host = NULL, found = NULL, nodes[8];
	CUdeviceptr a = 0, b = 0;
	uint32_t word = 0;
	size_t count = COUNT(nodes);
	CUcontext context = start();
	uint64_t before = room();

	OK(cuMemAlloc_v2(&a, 4096));
	OK(cuMemAlloc_v2(&b, 4096));
	OK(cuGraphCreate(&graph, 0));
	CUDA_MEMSET_NODE_PARAMS fill = { .dst = a, .value = 41, .elementSize = 4, .width = 1024, .height = 1 };
	CUDA_MEMCPY3D across = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = b,
		.WidthInBytes = 4096, .Height = 1, .Depth = 1,
	};
	CUDA_MEMCPY3D home = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = b + 4092, .dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = &word, .WidthInBytes = 4, .Height = 1, .Depth = 1,
	};
	const CUDA_HOST_NODE_PARAMS call = { .fn = add_one, .userData = &word };

	/* added against the order in which they must run */
	OK(cuGraphAddHostNode(&host, graph, NULL, 0, &call));
	OK(cuGraphAddMemcpyNode(&back, graph, NULL, 0, &home, context));
	OK(cuGraphAddMemcpyNode(&copy, graph, NULL, 0, &across, context));
	OK(cuGraphAddMemsetNode(&set, graph, NULL, 0, &fill, context));
	const CUgraphNode from[] = { set, copy, back };
	const CUgraphNode to[] = { copy, back, host };

	OK(cuGraphAddDependencies(graph, from, to, 3));
	GIVES(cuGraphAddDependencies(graph, from, to, 1), CUDA_ERROR_INVALID_VALUE); /* is there */
	OK(cuGraphGetNodes(graph, NULL, &count));
	CHECK(count == 4);
	OK(cuGraphGetRootNodes(graph, nodes, &count));
	CHECK(count == 1 && nodes[0] == set);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(word == 0);
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	CHECK(word == 42);
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphNodeFindInClone(&found, set, clone));
	CHECK(found != set);
	fill.value = 99;
	OK(cuGraphExecMemsetNodeSetParams(exec, set, &fill, context));
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	CHECK(word == 100);
	OK(cuGraphNodeSetEnabled(exec, copy, 0));
	OK(cuMemsetD8_v2(b, 0, 4096));
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	CHECK(word == 1);
	/* a graph that changed brings the executable up to date, one of another shape does not */
	CUgraphExecUpdateResultInfo info;

	OK(cuGraphMemsetNodeSetParams(found, &fill));
	OK(cuGraphExecUpdate_v2(exec, clone, &info));
	OK(cuGraphAddEmptyNode(&found, clone, NULL, 0));
	GIVES(cuGraphExecUpdate_v2(exec, clone, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	/* a child graph runs inside its parent */
	CUgraph parent = NULL;
	CUgraphNode child = NULL;

	OK(cuGraphCreate(&parent, 0));
	OK(cuGraphAddChildGraphNode(&child, parent, NULL, 0, graph));
	OK(cuGraphInstantiateWithFlags(&second, parent, 0));
	OK(cuGraphDestroy(graph));
	word = 0;
	OK(cuGraphLaunch(second, NULL));
	OK(cuCtxSynchronize());
	CHECK(word == 42);
	OK(cuGraphDestroy(parent));
	/* a cycle cannot be made executable */
	CUgraphNode x = NULL, y = NULL;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddEmptyNode(&x, graph, NULL, 0));
	OK(cuGraphAddEmptyNode(&y, graph, &x, 1));
	OK(cuGraphAddDependencies(graph, &y, &x, 1));
	GIVES(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphRemoveDependencies(graph, &y, &x, 1));
	OK(cuGraphDestroyNode(x));
	OK(cuGraphDestroy(graph));
	GIVES(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphDestroy(clone));
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphExecDestroy(second));
	OK(cuMemFree_v2(a));
	OK(cuMemFree_v2(b));
	finish(before);
}

static uint64_t graph_memory(CUgraphMem_attribute which)
{
	cuuint64_t amount = 0;

	OK(cuDeviceGetGraphMemAttribute(0, which, &amount));
	return amount;
}

/* memory of a graph: an address from the start, bytes from the launch on */
static void memory_nodes(void)
{
	CUgraph graph = NULL;
	CUgraphExec exec = NULL, other = NULL;
	CUgraphNode allocate = NULL, set = NULL, release = NULL;
	CUDA_MEM_ALLOC_NODE_PARAMS asked = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
		.bytesize = 3 * MIB,
	};
	uint32_t word = 0;
	CUcontext context = start();
	uint64_t before = room();

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddMemAllocNode(&allocate, graph, NULL, 0, &asked));
	CUDA_MEMSET_NODE_PARAMS fill = { .dst = asked.dptr, .value = 5, .elementSize = 4, .width = 3 * MIB / 4, .height = 1 };

	OK(cuGraphAddMemsetNode(&set, graph, &allocate, 1, &fill, context));
	GIVES(cuGraphAddMemFreeNode(&release, graph, NULL, 0, asked.dptr + 512), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	GIVES(cuGraphInstantiateWithFlags(&other, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
	CHECK(room() == before);
	GIVES(cuMemcpyDtoH_v2(&word, asked.dptr, 4), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphLaunch(exec, NULL));
	CHECK(before - room() == 4 * MIB && graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 3 * MIB);
	OK(cuMemcpyDtoH_v2(&word, asked.dptr + 3 * MIB - 4, 4));
	CHECK(word == 5);
	GIVES(cuGraphLaunch(exec, NULL), CUDA_ERROR_INVALID_VALUE); /* not freed */
	OK(cuMemFree_v2(asked.dptr));
	CHECK(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
	CHECK(before - room() == 4 * MIB); /* kept for the next launch */
	OK(cuGraphLaunch(exec, NULL));
	CHECK(before - room() == 4 * MIB);
	OK(cuGraphExecDestroy(exec));
	OK(cuMemcpyDtoH_v2(&word, asked.dptr, 4)); /* lives on */
	OK(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	OK(cuGraphLaunch(exec, NULL));
	OK(cuGraphLaunch(exec, NULL));
	OK(cuGraphDestroy(graph));
	OK(cuGraphExecDestroy(exec));
	OK(cuMemFreeAsync(asked.dptr, NULL));
	GIVES(cuMemFreeAsync(asked.dptr, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuDeviceGraphMemTrim(0));
	CHECK(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
	CHECK(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 4 * MIB);
	finish(before);
}

/* two streams, joined; an allocation inside; nothing happens before the launch */
static void captures(void)
{
	CUstream one = NULL, two = NULL;
	CUevent fork_ = NULL, join = NULL;
	CUgraph graph = NULL;
	CUgraphExec exec = NULL;
	CUdeviceptr a = 0, inside = 0;
	CUstreamCaptureStatus status;
	uint32_t words[2] = { 0, 0 };
	size_t count = 0;

	start();
	uint64_t before = room();

	OK(cuMemAlloc_v2(&a, 4096));
	OK(cuStreamCreate(&one, 0));
	OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&fork_, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	GIVES(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuMemsetD32Async(a, 7, 1024, one));
	OK(cuMemAllocAsync(&inside, 4096, one));
	OK(cuEventRecord(fork_, one));
	OK(cuStreamWaitEvent(two, fork_, 0));
	OK(cuStreamIsCapturing(two, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(cuMemcpyDtoDAsync_v2(inside, a, 4096, two));
	OK(cuEventRecord(join, two));
	OK(cuMemsetD32Async(a + 4, 9, 1, one));
	OK(cuStreamWaitEvent(one, join, 0));
	OK(cuMemcpyDtoHAsync_v2(words, inside, 4, one));
	OK(cuMemcpyDtoHAsync_v2(words + 1, a + 4, 4, one));
	OK(cuLaunchHostFunc(one, add_one, words));
	OK(cuMemFreeAsync(inside, one));
	GIVES(cuMemcpyDtoH_v2(words, a, 4), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT); /* the legacy stream would wait for one */
	OK(cuStreamEndCapture(one, &graph));
	OK(cuStreamIsCapturing(two, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
	CHECK(words[0] == 0);
	GIVES(cuEventQuery(join), CUDA_ERROR_CAPTURED_EVENT);
	OK(cuGraphGetNodes(graph, NULL, &count));
	CHECK(count == 8);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, one));
	OK(cuStreamSynchronize(one));
	CHECK(words[0] == 8 && words[1] == 9);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));

	/* what a capture cannot contain spoils it */
	OK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
	GIVES(cuMemAlloc_v2(&inside, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	GIVES(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemAlloc_v2(&inside, 1));
	GIVES(cuStreamSynchronize(one), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	GIVES(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuMemFree_v2(inside));
	/* a second stream that is not joined */
	OK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(fork_, one));
	OK(cuStreamWaitEvent(two, fork_, 0));
	OK(cuMemsetD8Async(a, 1, 1, two));
	GIVES(cuStreamEndCapture(two, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	GIVES(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(fork_, one));
	OK(cuStreamWaitEvent(two, fork_, 0));
	OK(cuMemsetD8Async(a, 1, 1, two));
	GIVES(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	GIVES(cuStreamEndCapture(one, &graph), CUDA_ERROR_ILLEGAL_STATE);
	/* a stream that ends while it is captured */
	OK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemsetD8Async(a, 1, 1, one));
	OK(cuStreamDestroy_v2(one));
	OK(cuStreamDestroy_v2(two));
	OK(cuMemFree_v2(a));
	OK(cuDeviceGraphMemTrim(0));
	finish(before);
}

static void words(void)
{
	CUdeviceptr at = 0;
	uint64_t word = 0;

	start();
	uint64_t before = room();

	OK(cuMemAlloc_v2(&at, 16));
	OK(cuStreamWriteValue32(NULL, at, 7, 0));
	OK(cuStreamWriteValue32_v2(NULL, at + 4, 8, 0));
	OK(cuMemcpyDtoH_v2(&word, at, 8));
	CHECK(word == (8ull << 32 | 7));
	OK(cuStreamWriteValue64_v2(NULL, at + 8, UINT64_MAX, 0));
	OK(cuStreamWaitValue32_v2(NULL, at, 7, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWaitValue32_v2(NULL, at, 6, CU_STREAM_WAIT_VALUE_GEQ));
	OK(cuStreamWaitValue64_v2(NULL, at + 8, 1, CU_STREAM_WAIT_VALUE_AND));
	GIVES(cuStreamWaitValue32_v2(NULL, at + 2, 8, CU_STREAM_WAIT_VALUE_GEQ), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuStreamWaitValue64_v2(NULL, 12345 * 8, 8, CU_STREAM_WAIT_VALUE_GEQ), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuStreamWriteValue32_v2(NULL, at + 2, 8, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(at));
	finish(before);
}

static CUcontext everyones;
static int counted;

static void count_one(void *unused)
{
	(void)unused;
	__atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
}

static void *busy(void *unused)
{
	uint64_t seed = (uint64_t)(uintptr_t)&unused | 1;
	static __thread unsigned char out[70000], in[70000];

	(void)unused;
	OK(cuCtxSetCurrent(everyones));
	for (int round = 0; round < 300; round++) {
		CUdeviceptr a = 0, b = 0;
		CUstream stream = NULL;

		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		size_t bytes = 1 + (seed >> 33) % sizeof(out);

		memset(out, (int)(seed >> 50), bytes);
		OK(cuStreamCreate(&stream, round & 1));
		OK(cuMemAlloc_v2(&a, bytes));
		OK(cuMemAllocAsync(&b, bytes, stream));
		OK(cuMemcpyHtoDAsync_v2(a, out, bytes, stream));
		OK(cuMemcpyDtoDAsync_v2(b, a, bytes, stream));
		OK(cuMemcpyDtoHAsync_v2(in, b, bytes, stream));
		if (round % 16 == 0)
			OK(cuLaunchHostFunc(stream, count_one, NULL));
		OK(cuStreamSynchronize(stream));
		CHECK(memcmp(in, out, bytes) == 0);
		OK(cuMemFreeAsync(b, stream));
		OK(cuMemFree_v2(a));
		OK(cuStreamDestroy_v2(stream));
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread[4];

	everyones = start();
	uint64_t before = room();

	for (size_t i = 0; i < COUNT(thread); i++)
		CHECK(pthread_create(&thread[i], NULL, busy, NULL) == 0);
	for (size_t i = 0; i < COUNT(thread); i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	OK(cuCtxSynchronize());
	CHECK(counted == 4 * 19);
	finish(before);
}

static const struct scenario list[] = {
	{ "host_functions", host_functions },
	{ "events", events },
	{ "streams", streams },
	{ "graphs", graphs },
	{ "memory_nodes", memory_nodes },
	{ "captures", captures },
	{ "words", words },
	{ "threads", threads },
};

RUN_SCENARIOS(list)
