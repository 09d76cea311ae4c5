/* SPDX-License-Identifier: Apache-2.0 */
/* graphparams.c: reading and changing what a node does. */
#include <string.h>

#include "cuda/enter.h"
#include "graphwork.h"

/* A node of that kind, with the lock taken; unlocked again unless it is found. */
static CUresult enter(CUgraphNode handle, enum sd_work_kind kind, const void *params, struct sd_vertex **vertex)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	*vertex = sd_vertex_get(handle, NULL);
	if (!*vertex || (*vertex)->work.kind != kind || !params)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return CUDA_SUCCESS;
}

static void kernel_params(const struct sd_vertex *vertex, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	const struct sd_launch *launch = &vertex->work.launch;

	*params = (CUDA_KERNEL_NODE_PARAMS_v1){
		.func = (CUfunction)launch->function,
		.gridDimX = launch->grid[0], .gridDimY = launch->grid[1], .gridDimZ = launch->grid[2],
		.blockDimX = launch->block[0], .blockDimY = launch->block[1], .blockDimZ = launch->block[2],
		.sharedMemBytes = launch->shared, .kernelParams = launch->arguments, .extra = NULL,
	};
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, SD_WORK_LAUNCH, nodeParams, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	kernel_params(vertex, (CUDA_KERNEL_NODE_PARAMS_v1 *)(void *)nodeParams);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, SD_WORK_LAUNCH, nodeParams, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	kernel_params(vertex, (CUDA_KERNEL_NODE_PARAMS_v1 *)(void *)nodeParams);
	nodeParams->kern = NULL;
	nodeParams->ctx = vertex->work.context;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct sd_vertex *vertex = NULL;
	struct sd_work work;
	CUresult result = enter(hNode, SD_WORK_LAUNCH, nodeParams, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_work_of_kernel((const CUDA_KERNEL_NODE_PARAMS_v1 *)(const void *)nodeParams, NULL,
				   vertex->work.context, &work);
	return sd_leave(result == CUDA_SUCCESS ? sd_vertex_set(vertex, &work) : result);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct sd_vertex *vertex = NULL;
	struct sd_work work;
	CUresult result = enter(hNode, SD_WORK_LAUNCH, nodeParams, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_work_of_kernel((const CUDA_KERNEL_NODE_PARAMS_v1 *)(const void *)nodeParams, nodeParams->kern,
				   nodeParams->ctx, &work);
	return sd_leave(result == CUDA_SUCCESS ? sd_vertex_set(vertex, &work) : result);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value_out)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, SD_WORK_LAUNCH, value_out, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	switch (attr) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		value_out->accessPolicyWindow = vertex->window;
		break;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		value_out->cooperative = vertex->work.launch.cooperative;
		break;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		value_out->priority = vertex->priority;
		break;
	default:
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue *value)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, SD_WORK_LAUNCH, value, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	switch (attr) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		vertex->window = value->accessPolicyWindow;
		break;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		vertex->work.launch.cooperative = value->cooperative != 0;
		break;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		vertex->priority = value->priority;
		break;
	default:
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	struct sd_vertex *to = NULL;
	CUresult result = enter(dst, SD_WORK_LAUNCH, dst, &to);

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_vertex *from = sd_vertex_get(src, NULL);

	if (!from || from->work.kind != SD_WORK_LAUNCH)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	to->window = from->window;
	to->priority = from->priority;
	to->work.launch.cooperative = from->work.launch.cooperative;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, SD_WORK_COPY, nodeParams, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	*nodeParams = vertex->work.copy;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, SD_WORK_COPY, nodeParams, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	vertex->work.copy = *nodeParams;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, SD_WORK_FILL, nodeParams, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_fill *fill = &vertex->work.fill;

	*nodeParams = (CUDA_MEMSET_NODE_PARAMS){
		.dst = fill->address, .pitch = fill->pitch, .value = fill->value,
		.elementSize = fill->element, .width = fill->width, .height = fill->height,
	};
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	struct sd_vertex *vertex = NULL;
	struct sd_work work;
	CUresult result = enter(hNode, SD_WORK_FILL, nodeParams, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_work_of_fill(nodeParams, vertex->work.context, &work);
	return sd_leave(result == CUDA_SUCCESS ? sd_vertex_set(vertex, &work) : result);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, SD_WORK_HOST, nodeParams, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	*nodeParams = vertex->work.host;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, SD_WORK_HOST, nodeParams, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	if (!nodeParams->fn)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	vertex->work.host = *nodeParams;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, SD_WORK_GRAPH, phGraph, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	*phGraph = (CUgraph)vertex->work.graph;
	return sd_leave(CUDA_SUCCESS);
}

static CUresult event_of(CUgraphNode hNode, enum sd_work_kind kind, CUevent *out)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, kind, out, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	*out = vertex->work.event;
	return sd_leave(CUDA_SUCCESS);
}

static CUresult set_event(CUgraphNode hNode, enum sd_work_kind kind, CUevent event)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, kind, event, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	if (!sd_object_get(event, SD_EVENT))
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	vertex->work.event = event;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
	return event_of(hNode, SD_WORK_RECORD, event_out);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
	return event_of(hNode, SD_WORK_WAIT, event_out);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
	return set_event(hNode, SD_WORK_RECORD, event);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
	return set_event(hNode, SD_WORK_WAIT, event);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, SD_WORK_ALLOCATE, params_out, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	*params_out = vertex->work.memory.asked;
	params_out->dptr = vertex->work.memory.address;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, SD_WORK_FREE, dptr_out, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	*dptr_out = vertex->work.memory.address;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode, CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams_out)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter(hNode, SD_WORK_WORDS, nodeParams_out, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	*nodeParams_out = (CUDA_BATCH_MEM_OP_NODE_PARAMS){
		.ctx = vertex->work.context, .count = vertex->work.words.count,
		.paramArray = vertex->work.words.list, .flags = vertex->work.words.flags,
	};
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	struct sd_work work;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_vertex *vertex = sd_vertex_get(hNode, NULL);

	if (!vertex || !nodeParams || nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
	    nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_work_of_node(nodeParams, &work);
	return sd_leave(result == CUDA_SUCCESS ? sd_vertex_set(vertex, &work) : result);
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params.memOp.ctx = nodeParams->ctx;
	params.memOp.count = nodeParams->count;
	params.memOp.paramArray = nodeParams->paramArray;
	params.memOp.flags = nodeParams->flags;
	return cuGraphNodeSetParams(hNode, &params);
}
