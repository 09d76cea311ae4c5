/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.c: nodes of graphs whose structures hold pointers. What would read or write host
 * memory when the graph runs is refused: it is another machine's then.
 */
#include "remote.h"

#include "payload.h"

static CUresult begin(struct remote_lane **lane)
{
	*lane = remote_lane();
	if (!*lane)
		return CUDA_ERROR_NOT_INITIALIZED;
	return remote_begin(*lane) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The reply's first bytes are a new node. */
static CUresult take_node(struct remote_lane *lane, CUresult result, CUgraphNode *node, size_t *at)
{
	size_t length = 0;
	const void *bytes = result == CUDA_SUCCESS ? remote_next(lane, at, &length) : NULL;

	if (bytes && length == sizeof(*node) && node)
		memcpy(node, bytes, sizeof(*node));
	return result;
}

/* What the forms of a kernel node have in common. */
struct kernel {
	struct call_launch launch;
	void **parameters, **extra;
	uint64_t context;
};

static struct kernel kernel_of(const CUDA_KERNEL_NODE_PARAMS_v1 *node)
{
	return (struct kernel){
		.launch = {
			.function = WORD(node->func),
			.grid = { node->gridDimX, node->gridDimY, node->gridDimZ },
			.block = { node->blockDimX, node->blockDimY, node->blockDimZ },
			.shared = node->sharedMemBytes,
		},
		.parameters = node->kernelParams,
		.extra = node->extra,
	};
}

/* The second form begins as the first, and may name a kernel instead. */
static struct kernel kernel_of_v2(const CUDA_KERNEL_NODE_PARAMS *node)
{
	struct kernel kernel = kernel_of((const void *)node);

	if (!node->func)
		kernel.launch.function = WORD(node->kern);
	kernel.context = WORD(node->ctx);
	return kernel;
}

static CUresult kernel_node(unsigned int number, struct call_kernel_node *want, struct kernel *kernel, const CUgraphNode *dependencies,
			    CUgraphNode *made)
{
	struct remote_lane *lane;
	CUresult result = begin(&lane);
	size_t place = sizeof(struct divvy_remote_frame) + offsetof(struct call_kernel_node, launch), at = sizeof(uint64_t);

	if (result != CUDA_SUCCESS)
		return result;
	if (want->dependencies > NODE_ELEMENTS || (want->dependencies && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	want->context = kernel->context;
	want->launch = kernel->launch;
	if (!remote_put(&lane->out, want, sizeof(*want)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = remote_put_parameters(lane, place, &want->launch, kernel->parameters, kernel->extra);
	if (result != CUDA_SUCCESS)
		return result;
	if (!remote_put(&lane->out, dependencies, want->dependencies * sizeof(*dependencies)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return take_node(lane, (CUresult)remote_finish(lane, number), made, &at);
}

EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
				     const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct call_kernel_node want = { .graph = WORD(hGraph), .dependencies = numDependencies };

	if (!phGraphNode || !nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	struct kernel kernel = kernel_of((const void *)nodeParams);

	return kernel_node(CALL_cuGraphAddKernelNode, &want, &kernel, dependencies, phGraphNode);
}

EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct call_kernel_node want = { .graph = WORD(hGraph), .dependencies = numDependencies };

	if (!phGraphNode || !nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	struct kernel kernel = kernel_of_v2(nodeParams);

	return kernel_node(CALL_cuGraphAddKernelNode_v2, &want, &kernel, dependencies, phGraphNode);
}

EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct call_kernel_node want = { .node = WORD(hNode) };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	struct kernel kernel = kernel_of((const void *)nodeParams);

	return kernel_node(CALL_cuGraphKernelNodeSetParams, &want, &kernel, NULL, NULL);
}

EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct call_kernel_node want = { .node = WORD(hNode) };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	struct kernel kernel = kernel_of_v2(nodeParams);

	return kernel_node(CALL_cuGraphKernelNodeSetParams_v2, &want, &kernel, NULL, NULL);
}

EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct call_kernel_node want = { .exec = WORD(hGraphExec), .node = WORD(hNode) };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	struct kernel kernel = kernel_of((const void *)nodeParams);

	return kernel_node(CALL_cuGraphExecKernelNodeSetParams, &want, &kernel, NULL, NULL);
}

EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct call_kernel_node want = { .exec = WORD(hGraphExec), .node = WORD(hNode) };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	struct kernel kernel = kernel_of_v2(nodeParams);

	return kernel_node(CALL_cuGraphExecKernelNodeSetParams_v2, &want, &kernel, NULL, NULL);
}

/* Other nodes: the structure, its array, the dependencies. */
static CUresult node(unsigned int number, struct call_node *want, const void *structure, size_t bytes, const void *array, size_t each,
		     const CUgraphNode *dependencies, CUgraphNode *made, size_t *at)
{
	struct remote_lane *lane;
	CUresult result = begin(&lane);

	if (result != CUDA_SUCCESS)
		return result;
	if (want->dependencies > NODE_ELEMENTS || (want->dependencies && !dependencies) || want->count > NODE_ELEMENTS || (want->count && !array))
		return CUDA_ERROR_INVALID_VALUE;
	if (!remote_put(&lane->out, want, sizeof(*want)) || !remote_put(&lane->out, structure, bytes) ||
	    !remote_put(&lane->out, array, want->count * each) ||
	    !remote_put(&lane->out, dependencies, want->dependencies * sizeof(*dependencies)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*at = sizeof(uint64_t);
	return take_node(lane, (CUresult)remote_finish(lane, number), made, at);
}

static bool on_gpu(const CUDA_MEMCPY3D *copy)
{
	return copy && (copy->srcMemoryType == CU_MEMORYTYPE_DEVICE || copy->srcMemoryType == CU_MEMORYTYPE_ARRAY) &&
	       (copy->dstMemoryType == CU_MEMORYTYPE_DEVICE || copy->dstMemoryType == CU_MEMORYTYPE_ARRAY);
}

EXPORT CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
				     const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct call_node want = { .graph = WORD(hGraph), .context = WORD(ctx), .dependencies = numDependencies };
	size_t at;

	if (!phGraphNode || !copyParams)
		return CUDA_ERROR_INVALID_VALUE;
	if (!on_gpu(copyParams))
		return CUDA_ERROR_NOT_SUPPORTED;
	return node(CALL_cuGraphAddMemcpyNode, &want, copyParams, sizeof(*copyParams), NULL, 0, dependencies, phGraphNode, &at);
}

EXPORT CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
	struct call_node want = { .node = WORD(hNode) };
	size_t at;

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	if (!on_gpu(nodeParams))
		return CUDA_ERROR_NOT_SUPPORTED;
	return node(CALL_cuGraphMemcpyNodeSetParams, &want, nodeParams, sizeof(*nodeParams), NULL, 0, NULL, NULL, &at);
}

EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct call_node want = { .exec = WORD(hGraphExec), .node = WORD(hNode), .context = WORD(ctx) };
	size_t at;

	if (!copyParams)
		return CUDA_ERROR_INVALID_VALUE;
	if (!on_gpu(copyParams))
		return CUDA_ERROR_NOT_SUPPORTED;
	return node(CALL_cuGraphExecMemcpyNodeSetParams, &want, copyParams, sizeof(*copyParams), NULL, 0, NULL, NULL, &at);
}

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
				       CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	struct call_node want = {
		.graph = WORD(hGraph), .dependencies = numDependencies, .count = nodeParams ? nodeParams->accessDescCount : 0,
	};
	size_t at, length = 0;

	if (!phGraphNode || !nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = node(CALL_cuGraphAddMemAllocNode, &want, nodeParams, sizeof(*nodeParams), nodeParams->accessDescs,
			       sizeof(*nodeParams->accessDescs), dependencies, phGraphNode, &at);
	const void *address = result == CUDA_SUCCESS ? remote_next(remote_lane(), &at, &length) : NULL;

	if (address && length == sizeof(nodeParams->dptr))
		memcpy(&nodeParams->dptr, address, sizeof(nodeParams->dptr));
	return result;
}

EXPORT CUresult cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
					 const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	struct call_node want = { .graph = WORD(hGraph), .dependencies = numDependencies, .count = nodeParams ? nodeParams->count : 0 };
	size_t at;

	if (!phGraphNode || !nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	want.context = WORD(nodeParams->ctx);
	return node(CALL_cuGraphAddBatchMemOpNode, &want, nodeParams, sizeof(*nodeParams), nodeParams->paramArray,
		    sizeof(*nodeParams->paramArray), dependencies, phGraphNode, &at);
}

EXPORT CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	struct call_node want = { .node = WORD(hNode), .count = nodeParams ? nodeParams->count : 0 };
	size_t at;

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	want.context = WORD(nodeParams->ctx);
	return node(CALL_cuGraphBatchMemOpNodeSetParams, &want, nodeParams, sizeof(*nodeParams), nodeParams->paramArray,
		    sizeof(*nodeParams->paramArray), NULL, NULL, &at);
}

EXPORT CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	struct call_node want = { .exec = WORD(hGraphExec), .node = WORD(hNode), .count = nodeParams ? nodeParams->count : 0 };
	size_t at;

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	want.context = WORD(nodeParams->ctx);
	return node(CALL_cuGraphExecBatchMemOpNodeSetParams, &want, nodeParams, sizeof(*nodeParams), nodeParams->paramArray,
		    sizeof(*nodeParams->paramArray), NULL, NULL, &at);
}

/* What a stream is capturing. The nodes stay until the thread's next question. */

static CUresult capture_info(unsigned int number, CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
			     const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
	static __thread struct remote_bytes kept __attribute__((tls_model("initial-exec")));
	struct remote_lane *lane;
	CUresult result = begin(&lane);
	size_t at = sizeof(uint64_t), length = 0;
	struct call_capture told;

	if (result != CUDA_SUCCESS)
		return result;
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	if (!remote_put_word(&lane->out, WORD(stream)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = (CUresult)remote_finish(lane, number);
	const uint8_t *bytes = result == CUDA_SUCCESS ? remote_next(lane, &at, &length) : NULL;

	if (!bytes || length < sizeof(told))
		return result;
	memcpy(&told, bytes, sizeof(told));
	*status = (CUstreamCaptureStatus)told.status;
	if (told.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return result;
	kept.length = 0;
	if (!remote_put(&kept, bytes + sizeof(told), length - sizeof(told)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (id)
		*id = told.id;
	if (graph)
		*graph = (CUgraph)(uintptr_t)told.graph;
	if (dependencies)
		*dependencies = (const CUgraphNode *)(const void *)kept.at;
	if (edges)
		*edges = (const CUgraphEdgeData *)(const void *)(kept.at + told.count * sizeof(CUgraphNode));
	if (count)
		*count = told.count;
	return result;
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
					  CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *numDependencies_out)
{
	return capture_info(CALL_cuStreamGetCaptureInfo_v2, hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL,
			    numDependencies_out);
}

EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
					  CUgraph *graph_out, const CUgraphNode **dependencies_out,
					  const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
	return capture_info(CALL_cuStreamGetCaptureInfo_v3, hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
			    numDependencies_out);
}
