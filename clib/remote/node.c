/* SPDX-License-Identifier: Apache-2.0 */
/* node.c: the general form of a graph's node is the one of its kind. */
#include "remote.h"

/* What only the general form can say: a kernel's function may be a kernel. */
static CUDA_KERNEL_NODE_PARAMS kernel_of(const CUgraphNodeParams *params)
{
	const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &params->kernel;

	return (CUDA_KERNEL_NODE_PARAMS){
		.func = kernel->func,
		.gridDimX = kernel->gridDimX, .gridDimY = kernel->gridDimY, .gridDimZ = kernel->gridDimZ,
		.blockDimX = kernel->blockDimX, .blockDimY = kernel->blockDimY, .blockDimZ = kernel->blockDimZ,
		.sharedMemBytes = kernel->sharedMemBytes,
		.kernelParams = kernel->kernelParams, .extra = kernel->extra,
		.kern = kernel->kern, .ctx = kernel->ctx,
	};
}

static CUDA_MEMSET_NODE_PARAMS fill_of(const CUgraphNodeParams *params)
{
	const CUDA_MEMSET_NODE_PARAMS_v2 *fill = &params->memset;

	return (CUDA_MEMSET_NODE_PARAMS){
		.dst = fill->dst, .pitch = fill->pitch, .value = fill->value, .elementSize = fill->elementSize,
		.width = fill->width, .height = fill->height,
	};
}

static CUcontext current(void)
{
	struct remote_lane *lane = remote_lane();

	return lane ? (CUcontext)(uintptr_t)remote_current(lane) : NULL;
}

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count, CUgraphNodeParams *params)
{
	if (!remote_is_open())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!node || !params)
		return CUDA_ERROR_INVALID_VALUE;
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL: {
		CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(params);

		return cuGraphAddKernelNode_v2(node, graph, from, count, &kernel);
	}
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphAddMemcpyNode(node, graph, from, count, &params->memcpy.copyParams,
					    params->memcpy.copyCtx ? params->memcpy.copyCtx : current());
	case CU_GRAPH_NODE_TYPE_MEMSET: {
		CUDA_MEMSET_NODE_PARAMS fill = fill_of(params);

		return cuGraphAddMemsetNode(node, graph, from, count, &fill, params->memset.ctx ? params->memset.ctx : current());
	}
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return cuGraphAddChildGraphNode(node, graph, from, count, params->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return cuGraphAddEmptyNode(node, graph, from, count);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphAddEventWaitNode(node, graph, from, count, params->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphAddEventRecordNode(node, graph, from, count, params->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
		CUDA_MEM_ALLOC_NODE_PARAMS alloc = {
			.poolProps = params->alloc.poolProps, .accessDescs = params->alloc.accessDescs,
			.accessDescCount = params->alloc.accessDescCount, .bytesize = params->alloc.bytesize,
		};
		CUresult result = cuGraphAddMemAllocNode(node, graph, from, count, &alloc);

		params->alloc.dptr = alloc.dptr;
		return result;
	}
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return cuGraphAddMemFreeNode(node, graph, from, count, params->free.dptr);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
		CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {
			.ctx = params->memOp.ctx, .count = params->memOp.count, .paramArray = params->memOp.paramArray, .flags = params->memOp.flags,
		};

		return cuGraphAddBatchMemOpNode(node, graph, from, count, &batch);
	}
	case CU_GRAPH_NODE_TYPE_HOST:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

EXPORT CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
			       CUgraphNodeParams *nodeParams)
{
	return add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

/* Edges that are not the plain ones are refused, not made plain. */
EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				  const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	static const CUgraphEdgeData plain;

	for (size_t i = 0; dependencyData && i < numDependencies; i++) {
		if (memcmp(&dependencyData[i], &plain, sizeof(plain)) != 0)
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	return add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

EXPORT CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	if (!remote_is_open())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	switch (nodeParams->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL: {
		CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(nodeParams);

		return cuGraphKernelNodeSetParams_v2(hNode, &kernel);
	}
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphMemcpyNodeSetParams(hNode, &nodeParams->memcpy.copyParams);
	case CU_GRAPH_NODE_TYPE_MEMSET: {
		CUDA_MEMSET_NODE_PARAMS fill = fill_of(nodeParams);

		return cuGraphMemsetNodeSetParams(hNode, &fill);
	}
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphEventWaitNodeSetEvent(hNode, nodeParams->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphEventRecordNodeSetEvent(hNode, nodeParams->eventRecord.event);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	if (!remote_is_open())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	switch (nodeParams->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL: {
		CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(nodeParams);

		return cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &kernel);
	}
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphExecMemcpyNodeSetParams(hGraphExec, hNode, &nodeParams->memcpy.copyParams,
						      nodeParams->memcpy.copyCtx ? nodeParams->memcpy.copyCtx : current());
	case CU_GRAPH_NODE_TYPE_MEMSET: {
		CUDA_MEMSET_NODE_PARAMS fill = fill_of(nodeParams);

		return cuGraphExecMemsetNodeSetParams(hGraphExec, hNode, &fill, nodeParams->memset.ctx ? nodeParams->memset.ctx : current());
	}
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, nodeParams->graph.graph);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphExecEventWaitNodeSetEvent(hGraphExec, hNode, nodeParams->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphExecEventRecordNodeSetEvent(hGraphExec, hNode, nodeParams->eventRecord.event);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}
