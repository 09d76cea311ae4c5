/* SPDX-License-Identifier: Apache-2.0 */
/*
 * green.c: green contexts: a context with some of a card's multiprocessors, which
 * are counted and change no modelled time. A green context retains the primary
 * context and costs as much as any other context. The front charges for them: its
 * snippets (clib/test/snippets/context.c) need them here.
 */
#include <stdlib.h>
#include <string.h>

#include "enter.h"
#include "queue.h"

struct description {
	struct sd_object object;
	CUdevResource resource;
};

static CUresult whole(const struct sd_card *card, CUdevResource *resource, CUdevResourceType type)
{
	if (!resource || type != CU_DEV_RESOURCE_TYPE_SM)
		return resource ? CUDA_ERROR_INVALID_RESOURCE_TYPE : CUDA_ERROR_INVALID_VALUE;
	memset(resource, 0, sizeof(*resource));
	resource->type = CU_DEV_RESOURCE_TYPE_SM;
	resource->sm.smCount = card->facts->multiprocessors;
	if (sd_device_generation() >= 13000) {
		resource->sm.minSmPartitionSize = card->facts->major >= 9 ? 8 : 2;
		resource->sm.smCoscheduledAlignment = resource->sm.minSmPartitionSize;
	}
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_card *card = sd_card(device);

	return sd_leave(card ? whole(card, resource, type) : CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource, CUdevResourceType type)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_context *context = sd_context_get(hCtx);

	return sd_leave(context ? whole(context->card, resource, type) : CUDA_ERROR_INVALID_CONTEXT);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result_, unsigned int *nbGroups, const CUdevResource *input,
				     CUdevResource *remaining, unsigned int useFlags, unsigned int minCount)
{
	CUresult result = sd_enter();

	(void)useFlags;
	if (result != CUDA_SUCCESS)
		return result;
	if (!nbGroups || !input || !minCount)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (input->type != CU_DEV_RESOURCE_TYPE_SM)
		return sd_leave(CUDA_ERROR_INVALID_RESOURCE_TYPE);
	unsigned int unit = sd_card(0)->facts->major >= 9 ? 8 : 2;
	unsigned int size = (minCount + unit - 1) / unit * unit;
	unsigned int most = input->sm.smCount / size;

	if (!most)
		return sd_leave(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	if (!result_) { /* only asks how many there could be */
		*nbGroups = most;
		return sd_leave(CUDA_SUCCESS);
	}
	if (*nbGroups > most)
		*nbGroups = most;
	for (unsigned int i = 0; i < *nbGroups; i++) {
		result_[i] = *input;
		result_[i].sm.smCount = size;
	}
	if (remaining) {
		*remaining = *input;
		remaining->sm.smCount = input->sm.smCount - size * *nbGroups;
		if (!remaining->sm.smCount)
			remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
	}
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources, unsigned int nbResources)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!phDesc || !resources || nbResources != 1)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (resources->type != CU_DEV_RESOURCE_TYPE_SM || !resources->sm.smCount)
		return sd_leave(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	struct description *made = sd_object_new(SD_RESOURCE_DESC, sizeof(*made), NULL);

	if (!made)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	made->resource = *resources;
	*phDesc = (CUdevResourceDesc)made;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_card *card = sd_card(dev);
	const struct description *what = sd_object_get(desc, SD_RESOURCE_DESC);

	if (!card)
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!phCtx || !what || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sd_context *primary = NULL;
	struct sd_green *green = NULL;

	result = sd_primary_retain(card, &primary);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	result = sd_context_new(card, primary->flags, 3020, false, &context);
	if (result == CUDA_SUCCESS) {
		green = sd_object_new(SD_GREEN, sizeof(*green), NULL);
		if (!green) {
			sd_context_end(context);
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	if (result != CUDA_SUCCESS) {
		if (--card->primaryrefs == 0)
			sd_context_end(primary);
		return sd_leave(result);
	}
	context->green = true;
	green->context = context;
	green->card = card;
	green->resource = what->resource;
	*phCtx = (CUgreenCtx)green;
	return sd_leave(CUDA_SUCCESS);
}

/* The green context, with the lock taken; unlocked unless it is there. */
static CUresult enter(CUgreenCtx handle, struct sd_green **green)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	*green = sd_object_get(handle, SD_GREEN);
	return *green ? CUDA_SUCCESS : sd_leave(CUDA_ERROR_INVALID_CONTEXT);
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	struct sd_green *green = NULL;
	CUresult result = enter(hCtx, &green);

	if (result != CUDA_SUCCESS)
		return result;
	sd_queue_settle();
	green = sd_object_get(hCtx, SD_GREEN);
	if (green) {
		sd_context_idle(green->context);
		green = sd_object_get(hCtx, SD_GREEN);
	}
	if (!green) /* another thread was quicker */
		return sd_leave(CUDA_ERROR_INVALID_CONTEXT);
	struct sd_card *card = green->card;

	sd_context_end(green->context); /* with its streams and memory */
	if (card->primaryrefs && --card->primaryrefs == 0)
		sd_context_end(card->primary);
	sd_object_free(green);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	struct sd_green *green = NULL;
	CUresult result = enter(hCtx, &green);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pContext)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pContext = (CUcontext)green->context;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource, CUdevResourceType type)
{
	struct sd_green *green = NULL;
	CUresult result = enter(hCtx, &green);

	if (result != CUDA_SUCCESS)
		return result;
	if (!resource || type != CU_DEV_RESOURCE_TYPE_SM)
		return sd_leave(resource ? CUDA_ERROR_INVALID_RESOURCE_TYPE : CUDA_ERROR_INVALID_VALUE);
	*resource = green->resource;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
	struct sd_green *green = NULL;
	CUresult result = enter(greenCtx, &green);

	if (result != CUDA_SUCCESS)
		return result;
	if (!greenCtxId)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*greenCtxId = green->object.id;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
	struct sd_green *green = NULL;
	struct sd_stream *stream = NULL;
	CUresult result = enter(greenCtx, &green);

	if (result != CUDA_SUCCESS)
		return result;
	if (!phStream || flags != CU_STREAM_NON_BLOCKING)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = green->context->alive ? sd_stream_new(green->context, flags, priority, &stream)
				       : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (result == CUDA_SUCCESS) {
		stream->green = green;
		*phStream = (CUstream)stream;
	}
	return sd_leave(result);
}

static CUresult context_of(CUgreenCtx handle, CUcontext *context)
{
	return cuCtxFromGreenCtx(context, handle);
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
	CUcontext context = NULL;
	CUresult result = context_of(hCtx, &context);

	return result == CUDA_SUCCESS ? cuCtxRecordEvent(context, hEvent) : result;
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
	CUcontext context = NULL;
	CUresult result = context_of(hCtx, &context);

	return result == CUDA_SUCCESS ? cuCtxWaitEvent(context, hEvent) : result;
}
