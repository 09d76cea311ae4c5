/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c: nodes of graphs whose structures hold pointers, and what a stream captures. */
#include "special.h"

static CUgraphNode *take_dependencies(struct reader *reader, uint64_t count, unsigned int *wrong)
{
	uint64_t *nodes = count <= NODE_ELEMENTS ? worker_next(reader, count * sizeof(*nodes)) : NULL;

	for (uint64_t i = 0; nodes && i < count; i++)
		nodes[i] = worker_real_of(KIND_CUgraphNode, nodes[i], wrong);
	return (CUgraphNode *)(void *)nodes;
}

static void add_node(struct worker_lane *lane, CUgraphNode node)
{
	uint64_t number = worker_handle(KIND_CUgraphNode, (uint64_t)(uintptr_t)node);

	worker_add(lane, &number, sizeof(number));
}

uint64_t worker_kernel_node(struct worker_call *call, struct reader *reader)
{
	const struct call_kernel_node *want = worker_next(reader, sizeof(*want));
	const struct call_launch *launch = want ? &want->launch : NULL;
	unsigned int wrong = 0;

	if (!want || launch->bytes > PARAMETER_BYTES)
		return CUDA_ERROR_INVALID_VALUE;
	void *block = worker_next(reader, launch->bytes);
	size_t bytes = launch->bytes;
	void *packed[] = CALL_EXTRA(block, &bytes);
	CUgraphNode *dependencies = take_dependencies(reader, want->dependencies, &wrong), made = NULL;
	CUgraph graph = (CUgraph)(uintptr_t)worker_real_of(KIND_CUgraph, want->graph, &wrong);
	CUgraphNode node = (CUgraphNode)(uintptr_t)worker_real_of(KIND_CUgraphNode, want->node, &wrong);
	CUgraphExec exec = (CUgraphExec)(uintptr_t)worker_real_of(KIND_CUgraphExec, want->exec, &wrong);
	bool kernel = call_kind(launch->function) == KIND_CUkernel;
	uint64_t function = worker_real_of(KIND_CUfunction, launch->function, &wrong);
	const CUDA_KERNEL_NODE_PARAMS parameters = {
		.func = (CUfunction)(uintptr_t)(kernel ? 0 : function),
		.kern = (CUkernel)(uintptr_t)(kernel ? function : 0),
		.gridDimX = launch->grid[0], .gridDimY = launch->grid[1], .gridDimZ = launch->grid[2],
		.blockDimX = launch->block[0], .blockDimY = launch->block[1], .blockDimZ = launch->block[2],
		.sharedMemBytes = launch->shared,
		.extra = launch->given ? packed : NULL,
		.ctx = (CUcontext)(uintptr_t)worker_real_of(KIND_CUcontext, want->context, &wrong),
	};
	const void *first = &parameters; /* the first form is the beginning of the second */
	CUresult result;

	if (wrong || !block || !dependencies)
		return wrong ? wrong : CUDA_ERROR_INVALID_VALUE;
	switch (call->number) {
	case CALL_cuGraphAddKernelNode:
		result = DRIVER(cuGraphAddKernelNode)(&made, graph, dependencies, want->dependencies, first);
		break;
	case CALL_cuGraphAddKernelNode_v2:
		result = DRIVER(cuGraphAddKernelNode_v2)(&made, graph, dependencies, want->dependencies, &parameters);
		break;
	case CALL_cuGraphKernelNodeSetParams:
		return DRIVER(cuGraphKernelNodeSetParams)(node, first);
	case CALL_cuGraphKernelNodeSetParams_v2:
		return DRIVER(cuGraphKernelNodeSetParams_v2)(node, &parameters);
	case CALL_cuGraphExecKernelNodeSetParams:
		return DRIVER(cuGraphExecKernelNodeSetParams)(exec, node, first);
	default:
		return DRIVER(cuGraphExecKernelNodeSetParams_v2)(exec, node, &parameters);
	}
	if (result == CUDA_SUCCESS)
		add_node(call->lane, made);
	return result;
}

/* The handles that a node's call may have. */
struct node {
	const struct call_node *want;
	void *structure, *array;
	CUgraphNode *dependencies;
	CUgraph graph;
	CUgraphNode node;
	CUgraphExec exec;
	CUcontext context;
};

static uint64_t take_node(struct reader *reader, size_t bytes, size_t each, struct node *out)
{
	unsigned int wrong = 0;

	out->want = worker_next(reader, sizeof(*out->want));
	if (!out->want || out->want->count > NODE_ELEMENTS)
		return CUDA_ERROR_INVALID_VALUE;
	out->structure = worker_next(reader, bytes);
	out->array = worker_next(reader, out->want->count * each);
	out->dependencies = take_dependencies(reader, out->want->dependencies, &wrong);
	out->graph = (CUgraph)(uintptr_t)worker_real_of(KIND_CUgraph, out->want->graph, &wrong);
	out->node = (CUgraphNode)(uintptr_t)worker_real_of(KIND_CUgraphNode, out->want->node, &wrong);
	out->exec = (CUgraphExec)(uintptr_t)worker_real_of(KIND_CUgraphExec, out->want->exec, &wrong);
	out->context = (CUcontext)(uintptr_t)worker_real_of(KIND_CUcontext, out->want->context, &wrong);
	return wrong ? wrong : out->structure && out->array && out->dependencies ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool on_gpu(CUmemorytype type)
{
	return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY;
}

uint64_t worker_copy_node(struct worker_call *call, struct reader *reader)
{
	unsigned int wrong = 0;
	CUgraphNode made = NULL;
	struct node node;
	CUresult result = take_node(reader, sizeof(CUDA_MEMCPY3D), 0, &node);

	if (result != CUDA_SUCCESS)
		return result;
	CUDA_MEMCPY3D *copy = node.structure;

	copy->srcHost = copy->dstHost = NULL;
	copy->reserved0 = copy->reserved1 = NULL;
	worker_array_of(copy->srcMemoryType, &copy->srcArray, &wrong);
	worker_array_of(copy->dstMemoryType, &copy->dstArray, &wrong);
	if (wrong || !on_gpu(copy->srcMemoryType) || !on_gpu(copy->dstMemoryType))
		return wrong ? wrong : CUDA_ERROR_NOT_SUPPORTED;
	switch (call->number) {
	case CALL_cuGraphMemcpyNodeSetParams:
		return DRIVER(cuGraphMemcpyNodeSetParams)(node.node, copy);
	case CALL_cuGraphExecMemcpyNodeSetParams:
		return DRIVER(cuGraphExecMemcpyNodeSetParams)(node.exec, node.node, copy, node.context);
	default:
		result = DRIVER(cuGraphAddMemcpyNode)(&made, node.graph, node.dependencies, node.want->dependencies, copy, node.context);
		break;
	}
	if (result == CUDA_SUCCESS)
		add_node(call->lane, made);
	return result;
}

uint64_t worker_allocation_node(struct worker_call *call, struct reader *reader)
{
	CUgraphNode made = NULL;
	struct node node;
	CUresult result = take_node(reader, sizeof(CUDA_MEM_ALLOC_NODE_PARAMS), sizeof(CUmemAccessDesc), &node);

	if (result != CUDA_SUCCESS)
		return result;
	CUDA_MEM_ALLOC_NODE_PARAMS *parameters = node.structure;

	parameters->poolProps.win32SecurityAttributes = NULL;
	parameters->accessDescs = node.array;
	parameters->accessDescCount = node.want->count;
	result = DRIVER(cuGraphAddMemAllocNode)(&made, node.graph, node.dependencies, node.want->dependencies, parameters);
	if (result == CUDA_SUCCESS) {
		add_node(call->lane, made);
		worker_add(call->lane, &parameters->dptr, sizeof(parameters->dptr));
	}
	return result;
}

uint64_t worker_batch_node(struct worker_call *call, struct reader *reader)
{
	CUgraphNode made = NULL;
	struct node node;
	CUresult result = take_node(reader, sizeof(CUDA_BATCH_MEM_OP_NODE_PARAMS), sizeof(CUstreamBatchMemOpParams), &node);

	if (result != CUDA_SUCCESS)
		return result;
	CUDA_BATCH_MEM_OP_NODE_PARAMS *parameters = node.structure;

	parameters->ctx = node.context;
	parameters->paramArray = node.array;
	parameters->count = (unsigned int)node.want->count;
	switch (call->number) {
	case CALL_cuGraphBatchMemOpNodeSetParams:
		return DRIVER(cuGraphBatchMemOpNodeSetParams)(node.node, parameters);
	case CALL_cuGraphExecBatchMemOpNodeSetParams:
		return DRIVER(cuGraphExecBatchMemOpNodeSetParams)(node.exec, node.node, parameters);
	default:
		result = DRIVER(cuGraphAddBatchMemOpNode)(&made, node.graph, node.dependencies, node.want->dependencies, parameters);
		break;
	}
	if (result == CUDA_SUCCESS)
		add_node(call->lane, made);
	return result;
}

uint64_t worker_capture_info(struct worker_call *call, struct reader *reader)
{
	const uint64_t *handle = worker_next(reader, sizeof(*handle));
	struct call_capture told = { 0 };
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const CUgraphNode *nodes = NULL;
	const CUgraphEdgeData *edges = NULL;
	cuuint64_t id = 0;
	CUgraph graph = NULL;
	size_t count = 0;
	unsigned int wrong = 0;
	CUstream stream = (CUstream)(uintptr_t)(handle ? worker_real_of(KIND_CUstream, *handle, &wrong) : 0);
	CUresult result;
	bool third = call->number == CALL_cuStreamGetCaptureInfo_v3;
	void *function = worker_function(call->number, call->twin);

	if (!handle || wrong)
		return wrong ? wrong : CUDA_ERROR_INVALID_VALUE;
	result = third ? ((__typeof__(&cuStreamGetCaptureInfo_v3))function)(stream, &status, &id, &graph, &nodes, &edges, &count)
		       : ((__typeof__(&cuStreamGetCaptureInfo_v2))function)(stream, &status, &id, &graph, &nodes, &count);
	if (result != CUDA_SUCCESS)
		return result;
	if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || count > NODE_ELEMENTS)
		count = 0;
	told.status = status;
	told.id = id;
	told.graph = worker_handle(KIND_CUgraph, (uint64_t)(uintptr_t)graph);
	told.count = count;
	size_t rows = count * sizeof(uint64_t), more = third && edges ? count * sizeof(*edges) : 0;
	uint8_t *at = worker_add_room(call->lane, sizeof(told) + rows + more);

	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(at, &told, sizeof(told));
	for (size_t i = 0; i < count; i++) {
		uint64_t number = worker_handle(KIND_CUgraphNode, (uint64_t)(uintptr_t)nodes[i]);

		memcpy(at + sizeof(told) + i * sizeof(number), &number, sizeof(number));
	}
	if (more)
		memcpy(at + sizeof(told) + rows, edges, more);
	return CUDA_SUCCESS;
}
