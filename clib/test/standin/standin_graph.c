/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs with nodes of every kind, made by hand and by capture: what they do, in
 * which order, how long it takes, and what can be changed once they are
 * executable. Over a simulator at $DIVVY_SIMULATOR.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "driver.h"

#define MS 1000000ull
#define WORDS 1024

static const char source[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
			     ".visible .entry divvy_busy(.param .u64 ns)\n{\n	ret;\n}\n";

static CUfunction busy(void)
{
	CUmodule module = NULL;
	CUfunction function = NULL;

	OK(cuModuleLoadData(&module, source));
	OK(cuModuleGetFunction(&function, module, "divvy_busy"));
	return function;
}

static CUDA_KERNEL_NODE_PARAMS kernel(CUfunction function, void **arguments)
{
	return (CUDA_KERNEL_NODE_PARAMS){
		.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = arguments,
	};
}

static CUDA_MEMCPY3D line(CUmemorytype from, void *source_at, CUdeviceptr source_device, CUmemorytype to, void *at, CUdeviceptr device,
			  size_t bytes)
{
	return (CUDA_MEMCPY3D){
		.srcMemoryType = from, .srcHost = source_at, .srcDevice = source_device, .dstMemoryType = to, .dstHost = at,
		.dstDevice = device, .WidthInBytes = bytes, .Height = 1, .Depth = 1,
	};
}

static _Atomic int calls;
static int seen[64];

static void note(void *number)
{
	seen[atomic_fetch_add(&calls, 1)] = (int)(intptr_t)number;
}

static void is_seven(void *words)
{
	note((void *)(intptr_t)(((uint32_t *)words)[WORDS - 1] == 7 ? 7 : -7));
}

static double launch_ms(CUgraphExec exec, CUstream stream)
{
	CUevent begin = NULL, end = NULL;
	float ms = 0;

	OK(cuEventCreate(&begin, 0));
	OK(cuEventCreate(&end, 0));
	OK(cuEventRecord(begin, stream));
	OK(cuGraphLaunch(exec, stream));
	OK(cuEventRecord(end, stream));
	OK(cuEventSynchronize(end));
	OK(cuEventElapsedTime(&ms, begin, end));
	OK(cuEventDestroy_v2(begin));
	OK(cuEventDestroy_v2(end));
	return ms;
}

/* Not less than its kernels take; more where the host dawdles, but not as much as
 * something else would take. */
static bool about(double got, double want)
{
	return got > want - 0.001 && got < want + 1500;
}

/* memory node, memset, copy in, copy across, copy out, kernel, event, child, host,
 * free: one after the other. */
static void every_kind(void)
{
	static uint32_t in[WORDS], out[WORDS];
	CUcontext context = start();
	CUgraph graph = NULL, inner = NULL;
	CUgraphExec exec = NULL;
	CUgraphNode n[12] = { NULL };
	CUstream stream = NULL;
	CUevent passed = NULL, other = NULL;
	CUdeviceptr fixed = 0;
	uint64_t ns = 3 * MS;
	void *arguments[] = { &ns };
	uint64_t before = room();
	CUfunction function = busy();
	uint64_t module = before - room();

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&passed, 0));
	OK(cuEventCreate(&other, 0));
	OK(cuMemAlloc_v2(&fixed, sizeof(in)));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphCreate(&inner, 0));
	CUDA_MEM_ALLOC_NODE_PARAMS asked = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
		.bytesize = sizeof(in),
	};

	OK(cuGraphAddMemAllocNode(&n[0], graph, NULL, 0, &asked));
	CUDA_MEMSET_NODE_PARAMS fill = { .dst = asked.dptr, .value = 1, .elementSize = 4, .width = WORDS, .height = 1 };
	CUDA_MEMCPY3D to_card = line(CU_MEMORYTYPE_HOST, in, 0, CU_MEMORYTYPE_DEVICE, NULL, fixed, sizeof(in) / 2);
	CUDA_MEMCPY3D across = line(CU_MEMORYTYPE_DEVICE, NULL, fixed, CU_MEMORYTYPE_DEVICE, NULL, asked.dptr, sizeof(in) / 2);
	CUDA_MEMCPY3D home = line(CU_MEMORYTYPE_DEVICE, NULL, asked.dptr, CU_MEMORYTYPE_HOST, out, 0, sizeof(out));
	CUDA_KERNEL_NODE_PARAMS run = kernel(function, arguments);
	CUDA_HOST_NODE_PARAMS call = { .fn = note, .userData = (void *)1 };
	CUDA_HOST_NODE_PARAMS inside = { .fn = note, .userData = (void *)2 };

	OK(cuGraphAddHostNode(&n[11], inner, NULL, 0, &inside));
	OK(cuGraphAddMemsetNode(&n[1], graph, &n[0], 1, &fill, context));
	OK(cuGraphAddMemcpyNode(&n[2], graph, &n[1], 1, &to_card, context));
	OK(cuGraphAddMemcpyNode(&n[3], graph, &n[2], 1, &across, context));
	OK(cuGraphAddMemcpyNode(&n[4], graph, &n[3], 1, &home, context));
	OK(cuGraphAddKernelNode_v2(&n[5], graph, &n[4], 1, &run));
	OK(cuGraphAddEventRecordNode(&n[6], graph, &n[5], 1, passed));
	OK(cuGraphAddEventWaitNode(&n[7], graph, &n[6], 1, passed));
	OK(cuGraphAddChildGraphNode(&n[8], graph, &n[7], 1, inner));
	OK(cuGraphAddHostNode(&n[9], graph, &n[8], 1, &call));
	OK(cuGraphAddMemFreeNode(&n[10], graph, &n[9], 1, asked.dptr));
	const CUgraphNodeType kinds[] = {
		CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMCPY,
		CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
		CU_GRAPH_NODE_TYPE_GRAPH, CU_GRAPH_NODE_TYPE_HOST, CU_GRAPH_NODE_TYPE_MEM_FREE,
	};

	for (size_t i = 0; i < COUNT(kinds); i++) {
		CUgraphNodeType kind = CU_GRAPH_NODE_TYPE_EMPTY;

		OK(cuGraphNodeGetType(n[i], &kind));
		CHECK(kind == kinds[i]);
	}
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(calls == 0 && out[0] == 0);
	for (int turn = 1; turn <= 2; turn++) {
		for (size_t i = 0; i < WORDS; i++)
			in[i] = (uint32_t)(i * 2654435761u + (unsigned int)turn);
		CHECK(about(launch_ms(exec, stream), 3));
		OK(cuStreamSynchronize(stream));
		CHECK(calls == 2 * turn && seen[2 * turn - 2] == 2 && seen[2 * turn - 1] == 1);
		CHECK(memcmp(in, out, sizeof(in) / 2) == 0);
		for (size_t i = WORDS / 2; i < WORDS; i++)
			CHECK(out[i] == 1);
		OK(cuEventQuery(passed));
	}
	/* what is executable changes node by node, the graph it was made of does not */
	calls = 0;
	ns = 2000 * MS; /* far from what else it could take, also on a host that pauses */
	fill.value = 9;
	call.userData = (void *)3;
	to_card.WidthInBytes = across.WidthInBytes = 4;
	OK(cuGraphExecKernelNodeSetParams_v2(exec, n[5], &run));
	OK(cuGraphExecMemsetNodeSetParams(exec, n[1], &fill, context));
	OK(cuGraphExecMemcpyNodeSetParams(exec, n[2], &to_card, context));
	OK(cuGraphExecMemcpyNodeSetParams(exec, n[3], &across, context));
	OK(cuGraphExecHostNodeSetParams(exec, n[9], &call));
	OK(cuGraphExecEventRecordNodeSetEvent(exec, n[6], other));
	OK(cuGraphExecEventWaitNodeSetEvent(exec, n[7], other));
	inside.userData = (void *)4;
	OK(cuGraphHostNodeSetParams(n[11], &inside));
	OK(cuGraphExecChildGraphNodeSetParams(exec, n[8], inner));
	in[0] = 0x12345678;
	ns = 0; /* the arguments were taken when they were set */
	CHECK(about(launch_ms(exec, stream), 2000));
	OK(cuStreamSynchronize(stream));
	CHECK(calls == 2 && seen[0] == 4 && seen[1] == 3);
	CHECK(out[0] == 0x12345678 && out[1] == 9 && out[WORDS - 1] == 9);
	OK(cuEventQuery(other));
	CUDA_HOST_NODE_PARAMS still = { 0 };

	OK(cuGraphHostNodeGetParams(n[9], &still));
	CHECK(still.userData == (void *)1);
	/* and back, all at once */
	CUgraphExecUpdateResultInfo info;

	calls = 0;
	OK(cuGraphExecUpdate_v2(exec, graph, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
	CHECK(about(launch_ms(exec, stream), 3));
	OK(cuStreamSynchronize(stream));
	CHECK(calls == 2 && seen[1] == 1 && out[WORDS - 1] == 1);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuGraphDestroy(inner));
	OK(cuEventDestroy_v2(passed));
	OK(cuEventDestroy_v2(other));
	OK(cuStreamDestroy_v2(stream));
	OK(cuMemFree_v2(fixed));
	OK(cuDeviceGraphMemTrim(0));
	CHECK(room() == before - module);
}

/* The same by capture, over two streams: a fork and a join by events. */
static void captured(void)
{
	static uint32_t in[WORDS], out[WORDS];
	CUgraph graph = NULL;
	CUgraphExec exec = NULL;
	CUgraphNode nodes[32];
	CUstream one = NULL, two = NULL;
	CUevent fork_at = NULL, join_at = NULL;
	CUdeviceptr a = 0, b = 0;
	uint64_t ns = 2 * MS;
	void *arguments[] = { &ns };
	size_t count = COUNT(nodes);
	int found[32] = { 0 };

	start();
	CUfunction function = busy();

	OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&fork_at, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&join_at, CU_EVENT_DISABLE_TIMING));
	OK(cuMemAlloc_v2(&a, sizeof(in)));
	OK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemsetD32Async(a, 7, WORDS, one));
	OK(cuMemAllocAsync(&b, sizeof(in), one));
	OK(cuMemcpyDtoDAsync_v2(b, a, sizeof(in), one));
	OK(cuEventRecord(fork_at, one));
	OK(cuStreamWaitEvent(two, fork_at, 0));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, two, arguments, NULL));
	OK(cuLaunchHostFunc(two, note, (void *)1));
	OK(cuEventRecord(join_at, two));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, one, arguments, NULL));
	OK(cuMemcpyDtoHAsync_v2(out, b, sizeof(out), one));
	OK(cuStreamWaitEvent(one, join_at, 0));
	OK(cuLaunchHostFunc(one, is_seven, out));
	OK(cuMemFreeAsync(b, one));
	OK(cuMemcpyHtoDAsync_v2(a, in, sizeof(in), one));
	OK(cuStreamEndCapture(one, &graph));
	CHECK(calls == 0 && out[0] == 0);
	OK(cuGraphGetNodes(graph, nodes, &count));
	for (size_t i = 0; i < count; i++) {
		CUgraphNodeType kind = CU_GRAPH_NODE_TYPE_EMPTY;

		OK(cuGraphNodeGetType(nodes[i], &kind));
		found[kind]++;
	}
	CHECK(count == 10 && found[CU_GRAPH_NODE_TYPE_KERNEL] == 2 && found[CU_GRAPH_NODE_TYPE_MEMCPY] == 3 &&
	      found[CU_GRAPH_NODE_TYPE_MEMSET] == 1 && found[CU_GRAPH_NODE_TYPE_HOST] == 2 &&
	      found[CU_GRAPH_NODE_TYPE_MEM_ALLOC] == 1 && found[CU_GRAPH_NODE_TYPE_MEM_FREE] == 1);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int turn = 1; turn <= 2; turn++) {
		memset(out, 0, sizeof(out));
		/* a process runs one kernel at a time: two of 2 ms take 4, side by side or not */
		CHECK(about(launch_ms(exec, one), 4));
		OK(cuStreamSynchronize(one));
		CHECK(calls == 2 * turn && seen[2 * turn - 2] == 1 && seen[2 * turn - 1] == 7);
		CHECK(out[0] == 7 && out[WORDS - 1] == 7);
	}
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
}

/* Host functions: in a stream before and after a graph, and along each edge in
 * it; graphs launched one after the other do not overtake each other. */
static void callback_order(void)
{
	CUgraph graph = NULL;
	CUgraphExec exec = NULL;
	CUgraphNode n[6] = { NULL };
	CUstream stream = NULL;

	start();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuGraphCreate(&graph, 0));
	/* a diamond: 10, then 11 and 12, then 13; and 14 by itself, then 15 */
	for (int i = 0; i < 6; i++) {
		const CUDA_HOST_NODE_PARAMS call = { .fn = note, .userData = (void *)(intptr_t)(10 + i) };

		OK(cuGraphAddHostNode(&n[i], graph, NULL, 0, &call));
	}
	const CUgraphNode from[] = { n[0], n[0], n[1], n[2], n[4] };
	const CUgraphNode to[] = { n[1], n[2], n[3], n[3], n[5] };

	OK(cuGraphAddDependencies(graph, from, to, 5));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuLaunchHostFunc(stream, note, (void *)1));
	OK(cuGraphLaunch(exec, stream));
	OK(cuLaunchHostFunc(stream, note, (void *)2));
	OK(cuGraphLaunch(exec, stream));
	OK(cuLaunchHostFunc(stream, note, (void *)3));
	OK(cuStreamSynchronize(stream));
	CHECK(calls == 15 && seen[0] == 1 && seen[7] == 2 && seen[14] == 3);
	for (int turn = 0; turn < 2; turn++) {
		int at[16] = { 0 };

		for (int i = 1; i <= 6; i++)
			at[seen[turn * 7 + i]] = i;
		CHECK(at[10] && at[10] < at[11] && at[10] < at[12] && at[11] < at[13] && at[12] < at[13]);
		CHECK(at[14] && at[14] < at[15]);
	}
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
}

static atomic_int destroyed;

static void destroy(void *data)
{
	atomic_fetch_add(&destroyed, (int)(intptr_t)data);
}

/* it is called on a thread of the driver's own */
static bool destroyed_are(int most)
{
	for (int i = 0; i < 5000 && atomic_load(&destroyed) < most; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return atomic_load(&destroyed) == most;
}

/* What graphs hold of the program's is destroyed with the last of them, and not before. */
static void user_objects(void)
{
	CUgraph graph = NULL, clone = NULL;
	CUgraphExec exec = NULL;
	CUuserObject one = NULL, ten = NULL;
	CUstream stream = NULL;

	start();
	GIVES(cuUserObjectCreate(&one, (void *)1, destroy, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuUserObjectCreate(&one, (void *)1, destroy, 1, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuUserObjectCreate(&one, (void *)1, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuUserObjectRetain(one, 2));
	GIVES(cuUserObjectRelease(one, 4), CUDA_ERROR_INVALID_VALUE);
	OK(cuUserObjectRelease(one, 2));
	CHECK(atomic_load(&destroyed) == 0);
	OK(cuUserObjectRelease(one, 1));
	CHECK(destroyed_are(1));
	GIVES(cuUserObjectRetain(one, 1), CUDA_ERROR_INVALID_VALUE);

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuGraphCreate(&graph, 0));
	OK(cuUserObjectCreate(&ten, (void *)10, destroy, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	GIVES(cuGraphRetainUserObject(graph, ten, 3, CU_GRAPH_USER_OBJECT_MOVE), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphRetainUserObject(graph, ten, 2, CU_GRAPH_USER_OBJECT_MOVE));
	GIVES(cuUserObjectRelease(ten, 1), CUDA_ERROR_INVALID_VALUE); /* moved */
	OK(cuGraphRetainUserObject(graph, ten, 1, 0));
	GIVES(cuGraphReleaseUserObject(graph, ten, 4), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphReleaseUserObject(graph, ten, 2));
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	OK(cuGraphLaunch(exec, stream));
	OK(cuGraphExecDestroy(exec));
	OK(cuStreamSynchronize(stream));
	CHECK(atomic_load(&destroyed) == 1);
	GIVES(cuGraphReleaseUserObject(clone, ten, 2), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphDestroy(clone));
	CHECK(destroyed_are(11));
}

static const struct scenario list[] = {
	{ "every_kind", every_kind },
	{ "user_objects", user_objects },
	{ "captured", captured },
	{ "callback_order", callback_order },
};

RUN_SCENARIOS(list)
