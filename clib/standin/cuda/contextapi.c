/* SPDX-License-Identifier: Apache-2.0 */
/* contextapi.c: the calls that make, choose and end contexts. */
#include "enter.h"
#include "queue.h"

enum {
	FLAGS_OLD = 0x1f, /* up to 12.0 */
	FLAGS = 0xff,
};

static CUresult create(CUcontext *pctx, unsigned int flags, CUdevice dev, unsigned int version)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_card *card = sd_card(dev);
	unsigned int known = sd_device_generation() >= 12010 ? FLAGS : FLAGS_OLD;

	if (!pctx || flags & ~known)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (!card)
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	result = sd_context_new(card, flags, version, false, &context);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	result = sd_context_push(context);
	if (result != CUDA_SUCCESS)
		sd_context_end(context);
	else
		*pctx = (CUcontext)context;
	return sd_leave(result);
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return create(pctx, flags, dev, 3020);
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return create(pctx, flags, dev, 3010);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
			CUdevice dev)
{
	if (numParams < 0 || (numParams && !paramsArray))
		return CUDA_ERROR_INVALID_VALUE;
	return numParams ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(pctx, flags, dev, 3020);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
	if (ctxCreateParams && ctxCreateParams->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (ctxCreateParams && ctxCreateParams->numExecAffinityParams)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return create(pctx, flags, dev, 3020);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	struct sd_context *top = NULL;
	CUresult result = sd_enter_idle();

	if (result != CUDA_SUCCESS)
		return result;
	sd_stream_drain_all();
	struct sd_context *context = sd_context_get(ctx);

	if (context)
		sd_context_idle(context);
	context = sd_context_get(ctx);
	if (!context || context->primary || context->green)
		return sd_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (sd_context_current(&top) == CUDA_SUCCESS && top == context)
		(void)sd_context_pop(&top);
	sd_context_end(context);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pctx || flags)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	context->attached++;
	*pctx = (CUcontext)context;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxDetach(CUcontext ctx)
{
	CUresult result = sd_enter_idle();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_context *context = sd_context_get(ctx);

	if (!context)
		return sd_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (context->attached > 1) {
		context->attached--;
		return sd_leave(CUDA_SUCCESS);
	}
	sd_unlock();
	return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_context *context = sd_context_get(ctx);

	return sd_leave(context ? sd_context_push(context) : CUDA_ERROR_INVALID_CONTEXT);
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
	return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_context_pop(&context);
	if (result == CUDA_SUCCESS && pctx)
		*pctx = (CUcontext)context;
	return sd_leave(result);
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
	return cuCtxPopCurrent_v2(pctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	struct sd_context *before = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_context *context = ctx ? sd_context_get(ctx) : NULL;

	if (ctx && !context)
		return sd_leave(CUDA_ERROR_INVALID_CONTEXT);
	/* it takes the place of the stack's top; an empty stack stays empty for NULL */
	(void)sd_context_pop(&before);
	return sd_leave(context ? sd_context_push(context) : CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_thread *thread = sd_thread();

	if (!pctx)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pctx = thread && thread->depth ? (CUcontext)thread->stack[thread->depth - 1].context : NULL;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!device)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*device = context->card->ordinal;
	return sd_leave(CUDA_SUCCESS);
}

/* The context behind a handle, or the current one for NULL; the lock is taken,
 * and given back unless there is one. */
static CUresult enter_any(CUcontext ctx, struct sd_context **context)
{
	if (!ctx)
		return sd_enter_context(context);
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	*context = sd_context_get(ctx);
	return *context ? CUDA_SUCCESS : sd_leave(CUDA_ERROR_INVALID_CONTEXT);
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	struct sd_context *context = NULL;
	CUresult result = enter_any(ctx, &context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!device)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*device = context->card->ordinal;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	struct sd_context *context = NULL;
	CUresult result = enter_any(ctx, &context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!version)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*version = context->version;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
	struct sd_context *context = NULL;
	CUresult result = enter_any(ctx, &context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ctxId)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*ctxId = context->object.id;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!flags)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = context->flags;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetFlags(unsigned int flags)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (flags & ~(unsigned int)FLAGS)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	context->flags = flags;
	return sd_leave(CUDA_SUCCESS);
}

/* The card, with the lock taken; unlocked unless it is there. */
static CUresult enter_card(CUdevice dev, struct sd_card **card)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	*card = sd_card(dev);
	return *card ? CUDA_SUCCESS : sd_leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	struct sd_card *card = NULL;
	struct sd_context *context = NULL;
	CUresult result = enter_card(dev, &card);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pctx)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_primary_retain(card, &context);
	if (result == CUDA_SUCCESS)
		*pctx = (CUcontext)context;
	return sd_leave(result);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	struct sd_card *card = NULL;
	CUresult result = enter_card(dev, &card);

	if (result != CUDA_SUCCESS)
		return result;
	if (!card->primaryrefs)
		return sd_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (card->primaryrefs == 1) {
		sd_stream_drain_all();
		sd_context_idle(card->primary);
		if (!card->primaryrefs) /* another thread was quicker */
			return sd_leave(CUDA_ERROR_INVALID_CONTEXT);
	}
	if (--card->primaryrefs == 0)
		sd_context_end(card->primary);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	struct sd_card *card = NULL;
	CUresult result = enter_card(dev, &card);

	if (result != CUDA_SUCCESS)
		return result;
	sd_stream_drain_all();
	if (card->primary)
		sd_context_idle(card->primary);
	card->primaryrefs = 0;
	if (card->primary)
		sd_context_end(card->primary);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	return cuDevicePrimaryCtxReset_v2(dev);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	struct sd_card *card = NULL;
	CUresult result = enter_card(dev, &card);

	if (result != CUDA_SUCCESS)
		return result;
	if (!flags || !active)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = card->primaryflags;
	*active = card->primary && card->primary->alive;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	struct sd_card *card = NULL;
	CUresult result = enter_card(dev, &card);

	if (result != CUDA_SUCCESS)
		return result;
	if (flags & ~(unsigned int)FLAGS)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	/* since 11.0 the flags of an active one may be changed */
	card->primaryflags = flags;
	if (card->primary)
		card->primary->flags = flags;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	struct sd_card *card = NULL;
	CUresult result = enter_card(dev, &card);

	if (result != CUDA_SUCCESS)
		return result;
	bool active = card->primary && card->primary->alive;

	sd_unlock();
	return active ? CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE : cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}
