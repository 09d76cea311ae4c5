/* SPDX-License-Identifier: Apache-2.0 */
#include "graphwork.h"

#include <string.h>

#include "cuda/context.h"
#include "run.h"

/* the card a node works on: its context's, or the calling thread's */
static CUresult card_of(CUcontext handle, struct sd_card **card)
{
	struct sd_context *context = sd_context_get(handle);

	if (handle && !context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!handle) {
		CUresult result = sd_context_current(&context);

		if (result != CUDA_SUCCESS)
			return result;
	}
	*card = context->card;
	return CUDA_SUCCESS;
}

CUresult sd_work_of_copy(const CUDA_MEMCPY3D *params, CUcontext context, struct sd_work *work)
{
	*work = (struct sd_work){ .kind = SD_WORK_COPY, .context = context, .copy = *params };
	CUresult result = card_of(context, &work->card);

	/* whether the memory is there is seen when the graph runs: it may be made by the graph */
	return result;
}

CUresult sd_work_of_fill(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context, struct sd_work *work)
{
	if (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4)
		return CUDA_ERROR_INVALID_VALUE;
	*work = (struct sd_work){
		.kind = SD_WORK_FILL,
		.context = context,
		.fill = { params->dst, params->pitch, params->value, params->elementSize, params->width, params->height },
	};
	return card_of(context, &work->card);
}

CUresult sd_work_of_kernel(const CUDA_KERNEL_NODE_PARAMS_v1 *params, CUkernel kernel, CUcontext context,
			   struct sd_work *work)
{
	struct sd_function *function = sd_object_get(params->func ? (const void *)params->func : (const void *)kernel,
						     SD_FUNCTION);

	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*work = (struct sd_work){
		.kind = SD_WORK_LAUNCH,
		.context = context,
		.launch = {
			.function = function,
			.grid = { params->gridDimX, params->gridDimY, params->gridDimZ },
			.block = { params->blockDimX, params->blockDimY, params->blockDimZ },
			.shared = params->sharedMemBytes,
		},
	};
	CUresult result = sd_launch_take(&work->launch, params->kernelParams, params->extra);

	if (result == CUDA_SUCCESS)
		result = card_of(context, &work->card);
	return result == CUDA_SUCCESS ? sd_launch_check(&work->launch) : result;
}

static CUresult of_alloc(CUDA_MEM_ALLOC_NODE_PARAMS *params, struct sd_work *work)
{
	struct sd_card *card = NULL;

	if (!params->bytesize || params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    params->poolProps.handleTypes)
		return CUDA_ERROR_INVALID_VALUE;
	if (params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	card = sd_card(params->poolProps.location.id);
	if (!card)
		return CUDA_ERROR_INVALID_DEVICE;
	*work = (struct sd_work){ .kind = SD_WORK_ALLOCATE, .card = card };
	CUresult result = sd_graph_memory_new(card, params, &work->memory.address);

	if (result != CUDA_SUCCESS)
		return result;
	params->dptr = work->memory.address;
	work->memory.bytes = params->bytesize;
	work->memory.asked = *params;
	work->memory.asked.accessDescs = NULL;
	work->memory.asked.accessDescCount = 0;
	return CUDA_SUCCESS;
}

CUresult sd_work_of_node(CUgraphNodeParams *params, struct sd_work *work)
{
	*work = (struct sd_work){ .kind = SD_WORK_EMPTY };
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL: {
		CUDA_KERNEL_NODE_PARAMS_v1 kernel;

		memcpy(&kernel, &params->kernel, sizeof(kernel)); /* a prefix of the newer struct */
		return sd_work_of_kernel(&kernel, params->kernel.kern, params->kernel.ctx, work);
	}
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return sd_work_of_copy(&params->memcpy.copyParams, params->memcpy.copyCtx, work);
	case CU_GRAPH_NODE_TYPE_MEMSET: {
		const CUDA_MEMSET_NODE_PARAMS fill = {
			params->memset.dst, params->memset.pitch, params->memset.value, params->memset.elementSize,
			params->memset.width, params->memset.height,
		};

		return sd_work_of_fill(&fill, params->memset.ctx, work);
	}
	case CU_GRAPH_NODE_TYPE_HOST:
		work->kind = SD_WORK_HOST;
		work->host.fn = params->host.fn;
		work->host.userData = params->host.userData;
		return work->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		work->kind = SD_WORK_GRAPH;
		work->graph = sd_object_get(params->graph.graph, SD_GRAPH);
		if (!work->graph)
			return CUDA_ERROR_INVALID_VALUE;
		return sd_graph_has_memory(work->graph) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		work->kind = SD_WORK_WAIT;
		work->event = params->eventWait.event;
		return sd_work_check(work, NULL);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		work->kind = SD_WORK_RECORD;
		work->event = params->eventRecord.event;
		return sd_work_check(work, NULL);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
		CUDA_MEM_ALLOC_NODE_PARAMS asked;

		memcpy(&asked, &params->alloc, sizeof(asked));
		CUresult result = of_alloc(&asked, work);

		if (result == CUDA_SUCCESS)
			params->alloc.dptr = asked.dptr;
		return result;
	}
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		work->kind = SD_WORK_FREE;
		work->memory.address = params->free.dptr;
		return sd_graph_memory_known(params->free.dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		work->kind = SD_WORK_WORDS;
		work->context = params->memOp.ctx;
		work->words.list = params->memOp.paramArray;
		work->words.count = params->memOp.count;
		work->words.flags = params->memOp.flags;
		return work->words.list || !work->words.count ? card_of(params->memOp.ctx, &work->card)
							      : CUDA_ERROR_INVALID_VALUE;
	default: /* conditional nodes and external semaphores */
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult sd_graph_fits(const struct sd_graph *graph, const struct sd_vertex **where)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++) {
		const struct sd_work *work = &graph->list[i]->work;

		*where = graph->list[i];
		if (work->kind == SD_WORK_LAUNCH)
			result = sd_launch_fits(&work->launch);
		else if (work->kind == SD_WORK_GRAPH)
			result = sd_graph_fits(work->graph, where);
	}
	return result;
}

CUresult sd_vertex_set(struct sd_vertex *vertex, const struct sd_work *work)
{
	struct sd_work copy;

	if (vertex->work.kind != work->kind)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = sd_work_copy(work, &copy);

	if (result != CUDA_SUCCESS)
		return result;
	sd_work_free(&vertex->work);
	vertex->work = copy;
	if (copy.kind == SD_WORK_GRAPH)
		copy.graph->parent = vertex;
	return CUDA_SUCCESS;
}
