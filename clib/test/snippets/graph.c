/* SPDX-License-Identifier: Apache-2.0 */
/* Graph memory nodes: charged when the graph is made runnable or run, never free of charge. */
#include "snippet.h"

#define NODE_BYTES (24 * MIB)

static CUDA_MEM_ALLOC_NODE_PARAMS allocation(size_t bytes)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {0};

	params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	params.poolProps.location.id = snippet_run.device;
	params.bytesize = bytes;
	return params;
}

/* A graph that allocates and, with freed, frees again. */
static int build(CUgraph *graph, size_t bytes, bool freed, uint64_t *address)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = allocation(bytes);
	CUgraphNode node = NULL, last = NULL;
	int result = (int)DRIVER(cuGraphCreate)(graph, 0);

	if (result == 0)
		result = (int)DRIVER(cuGraphAddMemAllocNode)(&node, *graph, NULL, 0, &params);
	if (result == 0 && freed)
		result = (int)DRIVER(cuGraphAddMemFreeNode)(&last, *graph, &node, 1, params.dptr);
	if (address)
		*address = params.dptr;
	return result;
}

static int trim(void)
{
	return (int)DRIVER(cuDeviceGraphMemTrim)(snippet_run.device);
}

typedef int instantiate(CUgraphExec *exec, CUgraph graph);

static int instantiate_flags(CUgraphExec *exec, CUgraph graph)
{
	return (int)DRIVER(cuGraphInstantiateWithFlags)(exec, graph, 0);
}

static int instantiate_v2(CUgraphExec *exec, CUgraph graph)
{
	return (int)DRIVER(cuGraphInstantiate_v2)(exec, graph, NULL, NULL, 0);
}

static int instantiate_v1(CUgraphExec *exec, CUgraph graph)
{
	return (int)DRIVER(cuGraphInstantiate)(exec, graph, NULL, NULL, 0);
}

static int instantiate_params(CUgraphExec *exec, CUgraph graph)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};

	return (int)DRIVER(cuGraphInstantiateWithParams)(exec, graph, &params);
}

static int instantiate_params_ptsz(CUgraphExec *exec, CUgraph graph)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};

	return (int)DRIVER(cuGraphInstantiateWithParams_ptsz)(exec, graph, &params);
}

/*
 * Runs a graph of NODE_BYTES that frees what it took, sees the memory while it
 * is reserved and gone after a trim; then one over the quota, which must fail
 * with out of memory at one of its steps.
 */
static void whole(instantiate *make, __typeof__(&cuGraphLaunch) launch)
{
	CUgraphExec exec = NULL;
	CUgraph graph = NULL;
	uint64_t before, address = 0;
	int result;

	OK(trim());
	before = snippet_room();
	OK(build(&graph, NODE_BYTES, true, NULL));
	OK(make(&exec, graph));
	OK(launch(exec, NULL));
	OK(DRIVER(cuCtxSynchronize)());
	CHECK(before - snippet_room() >= NODE_BYTES);
	OK(DRIVER(cuGraphExecDestroy)(exec));
	OK(DRIVER(cuGraphDestroy)(graph));
	OK(trim());
	EQUAL(snippet_room(), before);

	/* Memory that outlives its graph is freed like any other. */
	OK(build(&graph, NODE_BYTES, false, &address));
	OK(make(&exec, graph));
	OK(launch(exec, NULL));
	OK(DRIVER(cuCtxSynchronize)());
	CHECK(before - snippet_room() >= NODE_BYTES);
	OK(snippet_linear_data(address, NODE_BYTES));
	OK(DRIVER(cuMemFree_v2)(address));
	OK(DRIVER(cuGraphExecDestroy)(exec));
	OK(DRIVER(cuGraphDestroy)(graph));
	OK(trim());
	EQUAL(snippet_room(), before);

	graph = NULL;
	exec = NULL;
	result = build(&graph, snippet_too_much(), true, NULL);
	if (result == 0)
		result = make(&exec, graph);
	if (result == 0)
		result = (int)launch(exec, NULL);
	EQUAL(result, OVER);
	OK(DRIVER(cuCtxSynchronize)());
	if (exec)
		OK(DRIVER(cuGraphExecDestroy)(exec));
	if (graph)
		OK(DRIVER(cuGraphDestroy)(graph));
	OK(trim());
	EQUAL(snippet_room(), before);
}

static void with_flags(void)
{
	whole(instantiate_flags, DRIVER(cuGraphLaunch));
}

static void with_v2(void)
{
	whole(instantiate_v2, DRIVER(cuGraphLaunch));
}

static void with_v1(void)
{
	whole(instantiate_v1, DRIVER(cuGraphLaunch));
}

static void with_params(void)
{
	whole(instantiate_params, DRIVER(cuGraphLaunch));
}

static void with_params_ptsz(void)
{
	whole(instantiate_params_ptsz, DRIVER(cuGraphLaunch));
}

static void with_launch_ptsz(void)
{
	whole(instantiate_flags, DRIVER(cuGraphLaunch_ptsz));
}

/* The same node through the generic call of newer drivers. */
static int add_generic(CUgraphNode *node, CUgraph graph, CUgraphNodeParams *params)
{
	return (int)DRIVER(cuGraphAddNode)(node, graph, NULL, 0, params);
}

static int add_generic_v2(CUgraphNode *node, CUgraph graph, CUgraphNodeParams *params)
{
	return (int)DRIVER(cuGraphAddNode_v2)(node, graph, NULL, NULL, 0, params);
}

static void generic_with(int (*add)(CUgraphNode *, CUgraph, CUgraphNodeParams *))
{
	CUgraphNodeParams params;
	CUgraphExec exec = NULL;
	CUgraph graph = NULL;
	CUgraphNode node = NULL;
	uint64_t before;
	int result;

	OK(trim());
	before = snippet_room();
	memset(&params, 0, sizeof params);
	params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	params.alloc.poolProps = allocation(0).poolProps;
	params.alloc.bytesize = NODE_BYTES;
	OK(DRIVER(cuGraphCreate)(&graph, 0));
	OK(add(&node, graph, &params));
	CHECK(params.alloc.dptr != 0);
	OK(DRIVER(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	OK(DRIVER(cuGraphLaunch)(exec, NULL));
	OK(DRIVER(cuCtxSynchronize)());
	CHECK(before - snippet_room() >= NODE_BYTES);
	OK(DRIVER(cuMemFree_v2)(params.alloc.dptr));
	OK(DRIVER(cuGraphExecDestroy)(exec));
	OK(DRIVER(cuGraphDestroy)(graph));
	OK(trim());
	EQUAL(snippet_room(), before);

	memset(&params, 0, sizeof params);
	params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	params.alloc.poolProps = allocation(0).poolProps;
	params.alloc.bytesize = snippet_too_much();
	exec = NULL;
	OK(DRIVER(cuGraphCreate)(&graph, 0));
	result = add(&node, graph, &params);
	if (result == 0)
		result = (int)DRIVER(cuGraphInstantiateWithFlags)(&exec, graph, 0);
	if (result == 0)
		result = (int)DRIVER(cuGraphLaunch)(exec, NULL);
	EQUAL(result, OVER);
	if (snippet_run.control)
		OK(DRIVER(cuMemFree_v2)(params.alloc.dptr));
	if (exec)
		OK(DRIVER(cuGraphExecDestroy)(exec));
	OK(DRIVER(cuGraphDestroy)(graph));
	OK(trim());
	EQUAL(snippet_room(), before);
}

static void generic(void)
{
	generic_with(add_generic);
}

static void generic_v2(void)
{
	generic_with(add_generic_v2);
}

/* Uploading may take the memory before the first launch; launching then takes no more. */
static void uploaded_with(__typeof__(&cuGraphUpload) upload)
{
	CUgraphExec exec = NULL;
	CUgraph graph = NULL;
	CUstream stream = NULL;
	uint64_t before, uploaded;

	OK(trim());
	before = snippet_room();
	OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(build(&graph, NODE_BYTES, true, NULL));
	OK(DRIVER(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	OK(upload(exec, stream));
	OK(DRIVER(cuStreamSynchronize)(stream));
	uploaded = before - snippet_room();
	OK(DRIVER(cuGraphLaunch)(exec, stream));
	OK(DRIVER(cuStreamSynchronize)(stream));
	CHECK(before - snippet_room() >= NODE_BYTES);
	CHECK(uploaded == 0 || uploaded == before - snippet_room());
	OK(DRIVER(cuGraphExecDestroy)(exec));
	OK(DRIVER(cuGraphDestroy)(graph));
	OK(DRIVER(cuStreamDestroy_v2)(stream));
	OK(trim());
	EQUAL(snippet_room(), before);
}

static void uploaded(void)
{
	uploaded_with(DRIVER(cuGraphUpload));
}

static void uploaded_ptsz(void)
{
	uploaded_with(DRIVER(cuGraphUpload_ptsz));
}

typedef int begin_capture(CUstream stream);
typedef int end_capture(CUstream stream, CUgraph *graph);

static int begin_v2(CUstream stream)
{
	return (int)DRIVER(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static int begin_v2_ptsz(CUstream stream)
{
	return (int)DRIVER(cuStreamBeginCapture_v2_ptsz)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static int begin_v1(CUstream stream)
{
	return (int)DRIVER(cuStreamBeginCapture)(stream);
}

static int begin_v1_ptsz(CUstream stream)
{
	return (int)DRIVER(cuStreamBeginCapture_ptsz)(stream);
}

static int end(CUstream stream, CUgraph *graph)
{
	return (int)DRIVER(cuStreamEndCapture)(stream, graph);
}

static int end_ptsz(CUstream stream, CUgraph *graph)
{
	return (int)DRIVER(cuStreamEndCapture_ptsz)(stream, graph);
}

/* What a captured allocation takes is charged like an added one. */
static void captured_with(begin_capture *begin, end_capture *finish)
{
	CUgraphExec exec = NULL;
	CUgraph graph = NULL;
	CUstream stream = NULL;
	CUdeviceptr address = 0;
	uint64_t before;

	OK(trim());
	before = snippet_room();
	OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(begin(stream));
	OK(DRIVER(cuMemAllocAsync)(&address, NODE_BYTES, stream));
	OK(DRIVER(cuMemFreeAsync)(address, stream));
	OK(finish(stream, &graph));
	OK(DRIVER(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	OK(DRIVER(cuGraphLaunch)(exec, stream));
	OK(DRIVER(cuStreamSynchronize)(stream));
	CHECK(before - snippet_room() >= NODE_BYTES);
	OK(DRIVER(cuGraphExecDestroy)(exec));
	OK(DRIVER(cuGraphDestroy)(graph));
	OK(DRIVER(cuStreamDestroy_v2)(stream));
	OK(trim());
	EQUAL(snippet_room(), before);
}

static void captured(void)
{
	captured_with(begin_v2, end);
}

static void captured_v1(void)
{
	captured_with(begin_v1, end);
}

static void captured_v1_ptsz(void)
{
	captured_with(begin_v1_ptsz, end_ptsz);
}

static void captured_v2_ptsz(void)
{
	captured_with(begin_v2_ptsz, end_ptsz);
}

/* Into a graph that is there: what was captured is in it. */
static void captured_into_with(__typeof__(&cuStreamBeginCaptureToGraph) begin)
{
	CUgraph graph = NULL, same = NULL;
	CUstream stream = NULL;
	CUdeviceptr address = 0;
	size_t nodes = 0;

	OK(DRIVER(cuGraphCreate)(&graph, 0));
	OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(begin(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(DRIVER(cuMemAllocAsync)(&address, NODE_BYTES, stream));
	OK(DRIVER(cuMemFreeAsync)(address, stream));
	OK(DRIVER(cuStreamEndCapture)(stream, &same));
	CHECK(same == graph);
	OK(DRIVER(cuGraphGetNodes)(graph, NULL, &nodes));
	EQUAL(nodes, 2);
	OK(DRIVER(cuGraphDestroy)(graph));
	OK(DRIVER(cuStreamDestroy_v2)(stream));
}

static void captured_into(void)
{
	captured_into_with(DRIVER(cuStreamBeginCaptureToGraph));
}

static void captured_into_ptsz(void)
{
	captured_into_with(DRIVER(cuStreamBeginCaptureToGraph_ptsz));
}

/* A stream that is destroyed takes nothing with it. */
static void destroyed_with(__typeof__(&cuStreamDestroy_v2) destroy)
{
	uint64_t before = snippet_room();
	CUstream stream = NULL;

	OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(DRIVER(cuStreamSynchronize)(stream));
	OK(destroy(stream));
	EQUAL(snippet_room(), before);
}

static void destroyed(void)
{
	destroyed_with(DRIVER(cuStreamDestroy));
}

static void destroyed_v2(void)
{
	destroyed_with(DRIVER(cuStreamDestroy_v2));
}

static const struct snippet snippets[] = {
	SNIPPET(cuGraphAddMemAllocNode, with_flags),
	SNIPPET(cuGraphAddMemFreeNode, with_flags),
	SNIPPET(cuGraphInstantiateWithFlags, with_flags),
	SNIPPET(cuGraphInstantiate_v2, with_v2),
	SNIPPET(cuGraphInstantiate, with_v1),
	SNIPPET(cuGraphInstantiateWithParams, with_params),
	SNIPPET(cuGraphInstantiateWithParams_ptsz, with_params_ptsz),
	SNIPPET(cuGraphLaunch, with_flags),
	SNIPPET(cuGraphLaunch_ptsz, with_launch_ptsz),
	SNIPPET(cuGraphUpload, uploaded),
	SNIPPET(cuGraphUpload_ptsz, uploaded_ptsz),
	SNIPPET(cuGraphExecDestroy, with_flags),
	SNIPPET(cuGraphDestroy, with_flags),
	SNIPPET(cuDeviceGraphMemTrim, with_flags),
	SNIPPET(cuGraphAddNode, generic),
	SNIPPET(cuGraphAddNode_v2, generic_v2),
	SNIPPET(cuStreamBeginCapture, captured_v1),
	SNIPPET(cuStreamBeginCapture_ptsz, captured_v1_ptsz),
	SNIPPET(cuStreamBeginCapture_v2, captured),
	SNIPPET(cuStreamBeginCapture_v2_ptsz, captured_v2_ptsz),
	SNIPPET(cuStreamBeginCaptureToGraph, captured_into),
	SNIPPET(cuStreamBeginCaptureToGraph_ptsz, captured_into_ptsz),
	SNIPPET(cuStreamEndCapture, captured),
	SNIPPET(cuStreamEndCapture_ptsz, captured_v2_ptsz),
	SNIPPET(cuStreamDestroy, destroyed),
	SNIPPET(cuStreamDestroy_v2, destroyed_v2),
};

const struct area area_graph = {
	.name = "graph",
	.snippets = snippets,
	.snippets_count = COUNT(snippets),
};
