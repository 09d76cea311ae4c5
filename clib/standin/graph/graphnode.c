/* SPDX-License-Identifier: Apache-2.0 */
/* graphnode.c: adding nodes. */
#include <stdlib.h>

#include "cuda/enter.h"
#include "graphwork.h"

/* Adds a node of the work; the lock is held. */
static CUresult add(CUgraphNode *out, CUgraph hGraph, const CUgraphNode *dependencies, size_t count,
		    const struct sd_work *work)
{
	struct sd_graph *graph = sd_object_get(hGraph, SD_GRAPH);
	struct sd_vertex *vertex = NULL;
	struct sd_vertex **after = NULL;
	CUresult result = CUDA_SUCCESS;

	if (!out || !graph || (count && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	if (count > graph->count)
		return CUDA_ERROR_INVALID_VALUE; /* one of them is named twice, or is no node of it */
	if (count) {
		after = malloc(count * sizeof(struct sd_vertex *));
		if (!after)
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
		after[i] = sd_vertex_get(dependencies[i], graph);
		if (!after[i])
			result = CUDA_ERROR_INVALID_VALUE;
		for (size_t j = 0; j < i; j++) {
			if (after[j] == after[i])
				result = CUDA_ERROR_INVALID_VALUE;
		}
	}
	if (result == CUDA_SUCCESS)
		result = sd_graph_add(graph, after, count, work, &vertex);
	free(after);
	if (result == CUDA_SUCCESS)
		*out = (CUgraphNode)vertex;
	return result;
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	struct sd_work work;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!nodeParams)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_work_of_node(nodeParams, &work);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	result = add(phGraphNode, hGraph, dependencies, numDependencies, &work);
	if (work.kind == SD_WORK_ALLOCATE)
		sd_graph_memory_drop(work.memory.address); /* the node holds it now, or nobody */
	if (result == CUDA_SUCCESS && work.kind == SD_WORK_GRAPH &&
	    nodeParams->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE && sd_device_generation() >= 12090)
		sd_object_end(work.graph);
	return sd_leave(result);
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			   const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	(void)dependencyData;
	return cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			      size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct sd_work work;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!nodeParams)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	/* the first form has no kernel and no context after its other fields */
	result = sd_work_of_kernel((const CUDA_KERNEL_NODE_PARAMS_v1 *)(const void *)nodeParams, NULL, NULL, &work);
	if (result == CUDA_SUCCESS)
		result = add(phGraphNode, hGraph, dependencies, numDependencies, &work);
	return sd_leave(result);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct sd_work work;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!nodeParams)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_work_of_kernel((const CUDA_KERNEL_NODE_PARAMS_v1 *)(const void *)nodeParams, nodeParams->kern,
				   nodeParams->ctx, &work);
	if (result == CUDA_SUCCESS)
		result = add(phGraphNode, hGraph, dependencies, numDependencies, &work);
	return sd_leave(result);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			      size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct sd_work work;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!copyParams)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_work_of_copy(copyParams, ctx, &work);
	if (result == CUDA_SUCCESS)
		result = add(phGraphNode, hGraph, dependencies, numDependencies, &work);
	return sd_leave(result);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			      size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	struct sd_work work;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!memsetParams)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_work_of_fill(memsetParams, ctx, &work);
	if (result == CUDA_SUCCESS)
		result = add(phGraphNode, hGraph, dependencies, numDependencies, &work);
	return sd_leave(result);
}

/* The rest go through the general form. */
static CUresult add_general(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count,
			    CUgraphNodeParams *params)
{
	return cuGraphAddNode(out, graph, dependencies, count, params);
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			    size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_HOST };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params.host.fn = nodeParams->fn;
	params.host.userData = nodeParams->userData;
	return add_general(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				  size_t numDependencies, CUgraph childGraph)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_GRAPH };

	params.graph.graph = childGraph;
	return add_general(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			     size_t numDependencies)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_EMPTY };

	return add_general(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				   size_t numDependencies, CUevent event)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD };

	params.eventRecord.event = event;
	return add_general(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				 size_t numDependencies, CUevent event)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT };

	params.eventWait.event = event;
	return add_general(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	_Static_assert(sizeof(params.alloc) == sizeof(*nodeParams), "the two forms of the parameters are one layout");
	params.alloc = *(const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *)(const void *)nodeParams;
	CUresult result = add_general(phGraphNode, hGraph, dependencies, numDependencies, &params);

	if (result == CUDA_SUCCESS)
		nodeParams->dptr = params.alloc.dptr;
	return result;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			       size_t numDependencies, CUdeviceptr dptr)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE };

	params.free.dptr = dptr;
	return add_general(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				  size_t numDependencies, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params.memOp.ctx = nodeParams->ctx;
	params.memOp.count = nodeParams->count;
	params.memOp.paramArray = nodeParams->paramArray;
	params.memOp.flags = nodeParams->flags;
	return add_general(phGraphNode, hGraph, dependencies, numDependencies, &params);
}
