/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graphexec.c: executable graphs: made, launched, changed. Whether kernels fit is
 * seen here and not when their nodes are made or captured; real drivers are known
 * to tell it from cuGraphInstantiate (ml-explore/mlx issue 2628) and from
 * cuGraphExecUpdate (NVlabs/instant-ngp issue 1538).
 */
#include <stdlib.h>

#include "cuda/capture.h"
#include "cuda/enter.h"
#include "cuda/queue.h"
#include "graphwork.h"
#include "record.h"
#include "run.h"
#include "work/slow.h"

enum { KNOWN_FLAGS = 15 };

static void source_lets_go(const struct sd_exec *exec)
{
	struct sd_graph *source = sd_object_get(exec->source, SD_GRAPH);

	if (source && source->object.id == exec->sourceid && source->executables)
		source->executables--;
}

static void exec_end(struct sd_exec *exec)
{
	source_lets_go(exec);
	sd_object_end(exec->graph);
	sd_object_free(exec);
}

static CUresult instantiate(CUgraph hGraph, unsigned long long flags, CUgraphInstantiateResult *why,
			    CUgraphNode *error, CUgraphExec *out)
{
	bool cycle = false;
	CUgraphInstantiateResult ignored;
	const struct sd_vertex *where = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_graph *graph = sd_object_get(hGraph, SD_GRAPH);

	why = why ? why : &ignored;
	*why = CUDA_GRAPH_INSTANTIATE_ERROR;
	if (!out || !graph || flags & ~(unsigned long long)KNOWN_FLAGS)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
		*why = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
		return sd_leave(CUDA_ERROR_NOT_SUPPORTED);
	}
	struct sd_vertex **order = sd_graph_order(graph, &cycle);

	free(order);
	if (!order) {
		*why = cycle ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE : CUDA_GRAPH_INSTANTIATE_ERROR;
		return sd_leave(cycle ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY);
	}
	if (graph->executables && sd_graph_has_memory(graph))
		return sd_leave(CUDA_ERROR_NOT_SUPPORTED); /* one at a time */
	result = sd_graph_fits(graph, &where);
	if (result != CUDA_SUCCESS) {
		if (error)
			*error = (CUgraphNode)(uintptr_t)where;
		return sd_leave(result);
	}
	struct sd_exec *exec = sd_object_new(SD_EXEC, sizeof(*exec), NULL);

	if (!exec)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	result = sd_graph_copy(graph, &exec->graph);
	if (result != CUDA_SUCCESS) {
		sd_object_free(exec);
		return sd_leave(result);
	}
	exec->source = graph;
	exec->sourceid = graph->object.id;
	exec->flags = flags;
	graph->executables++;
	*why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
	*out = (CUgraphExec)exec;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
			       size_t bufferSize)
{
	if (phErrorNode)
		*phErrorNode = NULL;
	if (logBuffer && bufferSize)
		logBuffer[0] = '\0';
	return instantiate(hGraph, 0, NULL, phErrorNode, phGraphExec);
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
			    size_t bufferSize)
{
	return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
	return instantiate(hGraph, flags, NULL, NULL, phGraphExec);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
				      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	if (!instantiateParams)
		return CUDA_ERROR_INVALID_VALUE;
	instantiateParams->hErrNode_out = NULL;
	return instantiate(hGraph, instantiateParams->flags, &instantiateParams->result_out,
			   &instantiateParams->hErrNode_out, phGraphExec);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	return cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_exec *exec = sd_object_get(hGraphExec, SD_EXEC);

	if (!exec || exec->doomed)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	exec->doomed = true;
	if (!exec->running)
		exec_end(exec);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_exec *exec = sd_object_get(hGraphExec, SD_EXEC);

	if (!exec || !flags)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = exec->flags;
	return sd_leave(CUDA_SUCCESS);
}

static bool has_allocated(const struct sd_exec *exec)
{
	for (size_t i = 0; i < exec->graph->count; i++) {
		const struct sd_work *work = &exec->graph->list[i]->work;

		if (work->kind == SD_WORK_ALLOCATE && sd_graph_memory_live(work->memory.address))
			return true;
	}
	return false;
}

/* What a launch before left allocated: freed if that was agreed on, else the
 * graph cannot run again. */
static CUresult clear_allocations(const struct sd_exec *exec)
{
	for (size_t i = 0; i < exec->graph->count; i++) {
		const struct sd_work *work = &exec->graph->list[i]->work;

		if (work->kind != SD_WORK_ALLOCATE || !sd_graph_memory_live(work->memory.address))
			continue;
		if (!(exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))
			return CUDA_ERROR_INVALID_VALUE;
		(void)sd_graph_memory_give(work->memory.address);
	}
	return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
	struct sd_stream *stream = NULL;

	sd_slow_launch();
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	sd_queue_room();
	struct sd_exec *exec = sd_object_get(hGraphExec, SD_EXEC);

	if (!exec || exec->doomed)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_stream_of(hStream, &stream);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (stream->capture) {
		const struct sd_work work = { .kind = SD_WORK_GRAPH, .graph = exec->graph };

		return sd_leave(sd_graph_has_memory(exec->graph)
					? sd_capture_break(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
					: sd_record(stream, &work));
	}
	if (stream->legacy && sd_capture_blocks_legacy(stream->context))
		return sd_leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	exec->running++;
	/* its memory is taken at the launch: a launch before must have given it back */
	if (has_allocated(exec)) {
		sd_stream_drain(stream);
		result = sd_stream_of(hStream, &stream);
	}
	if (result == CUDA_SUCCESS)
		result = clear_allocations(exec);
	if (result == CUDA_SUCCESS)
		result = sd_graph_run(exec->graph, stream);
	exec->running--;
	if (exec->doomed && !exec->running)
		exec_end(exec);
	return sd_leave(result);
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!sd_object_get(hGraphExec, SD_EXEC))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return sd_leave(sd_stream_of(hStream, &stream));
}

SD_PTSZ(cuGraphLaunch, (CUgraphExec hGraphExec, CUstream hStream), hGraphExec, sd_per_thread(hStream))
SD_PTSZ(cuGraphUpload, (CUgraphExec hGraphExec, CUstream hStream), hGraphExec, sd_per_thread(hStream))

/* The executable's node that was made from that one, with the lock taken;
 * unlocked again unless it is found. */
static CUresult enter_node(CUgraphExec hGraphExec, CUgraphNode hNode, struct sd_vertex **vertex)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_exec *exec = sd_object_get(hGraphExec, SD_EXEC);
	const struct sd_vertex *node = sd_vertex_get(hNode, NULL);

	for (size_t i = 0; exec && node && i < exec->graph->count; i++) {
		struct sd_vertex *candidate = exec->graph->list[i];

		if (candidate->from == node && candidate->fromid == node->object.id) {
			*vertex = candidate;
			return CUDA_SUCCESS;
		}
	}
	return sd_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter_node(hGraphExec, hNode, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	if (vertex->work.kind != SD_WORK_LAUNCH && vertex->work.kind != SD_WORK_COPY && vertex->work.kind != SD_WORK_FILL)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	vertex->disabled = !isEnabled;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
	struct sd_vertex *vertex = NULL;
	CUresult result = enter_node(hGraphExec, hNode, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	if (!isEnabled)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*isEnabled = !vertex->disabled;
	return sd_leave(CUDA_SUCCESS);
}

static CUresult set(struct sd_vertex *vertex, const struct sd_work *work)
{
	CUresult result = work->kind == SD_WORK_LAUNCH ? sd_launch_fits(&work->launch) : CUDA_SUCCESS;

	return result == CUDA_SUCCESS ? sd_vertex_set(vertex, work) : result;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct sd_vertex *vertex = NULL;
	struct sd_work work;
	CUresult result = enter_node(hGraphExec, hNode, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	if (!nodeParams)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_work_of_kernel((const CUDA_KERNEL_NODE_PARAMS_v1 *)(const void *)nodeParams, NULL,
				   vertex->work.context, &work);
	return sd_leave(result == CUDA_SUCCESS ? set(vertex, &work) : result);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
					   const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct sd_vertex *vertex = NULL;
	struct sd_work work;
	CUresult result = enter_node(hGraphExec, hNode, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	if (!nodeParams)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_work_of_kernel((const CUDA_KERNEL_NODE_PARAMS_v1 *)(const void *)nodeParams, nodeParams->kern,
				   nodeParams->ctx, &work);
	return sd_leave(result == CUDA_SUCCESS ? set(vertex, &work) : result);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams,
					CUcontext ctx)
{
	struct sd_vertex *vertex = NULL;
	struct sd_work work;
	CUresult result = enter_node(hGraphExec, hNode, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	if (!copyParams)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_work_of_copy(copyParams, ctx, &work);
	return sd_leave(result == CUDA_SUCCESS ? set(vertex, &work) : result);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	struct sd_vertex *vertex = NULL;
	struct sd_work work;
	CUresult result = enter_node(hGraphExec, hNode, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	if (!memsetParams)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_work_of_fill(memsetParams, ctx, &work);
	return sd_leave(result == CUDA_SUCCESS ? set(vertex, &work) : result);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	struct sd_vertex *vertex = NULL;
	struct sd_work work;
	CUresult result = enter_node(hGraphExec, hNode, &vertex);

	if (result != CUDA_SUCCESS)
		return result;
	if (!nodeParams || nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
	    nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_work_of_node(nodeParams, &work);
	return sd_leave(result == CUDA_SUCCESS ? set(vertex, &work) : result);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
				      const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_HOST };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params.host.fn = nodeParams->fn;
	params.host.userData = nodeParams->userData;
	return cuGraphExecNodeSetParams(hGraphExec, hNode, &params);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_GRAPH };

	params.graph.graph = childGraph;
	return cuGraphExecNodeSetParams(hGraphExec, hNode, &params);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD };

	params.eventRecord.event = event;
	return cuGraphExecNodeSetParams(hGraphExec, hNode, &params);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT };

	params.eventWait.event = event;
	return cuGraphExecNodeSetParams(hGraphExec, hNode, &params);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					    const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	params.memOp.ctx = nodeParams->ctx;
	params.memOp.count = nodeParams->count;
	params.memOp.paramArray = nodeParams->paramArray;
	params.memOp.flags = nodeParams->flags;
	return cuGraphExecNodeSetParams(hGraphExec, hNode, &params);
}

/* Whether the graph has the executable's structure; else why not, and where. */
static CUgraphExecUpdateResult compare(const struct sd_graph *old, const struct sd_graph *new, size_t *where)
{
	*where = 0;
	if (old->count != new->count)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (size_t i = 0; i < new->count; i++) {
		const struct sd_vertex *before = old->list[i];
		const struct sd_vertex *after = new->list[i];

		*where = i;
		if (before->work.kind != after->work.kind)
			return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
		if (before->aftercount != after->aftercount)
			return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		for (size_t j = 0; j < after->aftercount; j++) {
			if (before->after[j]->place != after->after[j]->place)
				return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		}
		if (after->work.kind == SD_WORK_ALLOCATE || after->work.kind == SD_WORK_FREE) {
			if (before->work.memory.address != after->work.memory.address)
				return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
		}
	}
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
	size_t where = 0;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_exec *exec = sd_object_get(hGraphExec, SD_EXEC);
	struct sd_graph *graph = sd_object_get(hGraph, SD_GRAPH);
	struct sd_graph *copy = NULL;

	if (!exec || !graph || !resultInfo)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*resultInfo = (CUgraphExecUpdateResultInfo){ .result = compare(exec->graph, graph, &where) };
	if (resultInfo->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
		if (where < graph->count)
			resultInfo->errorNode = (CUgraphNode)graph->list[where];
		return sd_leave(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	}
	const struct sd_vertex *misfit = NULL;

	result = exec->running ? CUDA_ERROR_NOT_READY : sd_graph_fits(graph, &misfit);
	if (result == CUDA_SUCCESS)
		result = sd_graph_copy(graph, &copy);
	else
		resultInfo->errorNode = (CUgraphNode)(uintptr_t)misfit;
	if (result != CUDA_SUCCESS) {
		resultInfo->result = CU_GRAPH_EXEC_UPDATE_ERROR;
		return sd_leave(result);
	}
	/* nodes of the graph it was made from still name the executable's nodes */
	for (size_t i = 0; i < copy->count; i++) {
		copy->list[i]->from = exec->graph->list[i]->from;
		copy->list[i]->fromid = exec->graph->list[i]->fromid;
	}
	sd_object_end(exec->graph);
	exec->graph = copy;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
			   CUgraphExecUpdateResult *updateResult_out)
{
	CUgraphExecUpdateResultInfo info = { 0 };
	CUresult result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);

	if (updateResult_out)
		*updateResult_out = info.result;
	if (hErrorNode_out)
		*hErrorNode_out = info.errorNode;
	return result;
}
