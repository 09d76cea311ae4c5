/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c: which context is current to a thread. The stack is kept here; the worker is
 * told with the lane's next call.
 */
#include "remote.h"

#include <stdlib.h>

enum { DEEPEST = 4096 };

uint64_t remote_current(const struct remote_lane *lane)
{
	return lane->depth ? lane->stack[lane->depth - 1] : 0;
}

CUresult remote_ready(struct remote_lane **lane)
{
	*lane = remote_lane();
	if (!*lane)
		return CUDA_ERROR_NOT_INITIALIZED;
	return remote_current(*lane) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult initialized(struct remote_lane **lane)
{
	*lane = remote_lane();
	return *lane ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

/* A context that the library was given looks like one: the worker minted it. Whether it
 * still lives, its first use tells. */
static bool is_context(CUcontext context)
{
	return call_kind((uint64_t)(uintptr_t)context) == KIND_CUcontext;
}

static CUresult push(struct remote_lane *lane, CUcontext context)
{
	if (lane->depth == lane->room) {
		size_t room = lane->room ? 2 * lane->room : 16;
		uint64_t *stack = room > DEEPEST ? NULL : realloc(lane->stack, room * sizeof(*stack));

		if (!stack)
			return CUDA_ERROR_OUT_OF_MEMORY;
		lane->stack = stack;
		lane->room = room;
	}
	lane->stack[lane->depth++] = (uint64_t)(uintptr_t)context;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	struct remote_lane *lane;
	CUresult result = initialized(&lane);

	if (result != CUDA_SUCCESS)
		return result;
	return is_context(ctx) ? push(lane, ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxPushCurrent(CUcontext ctx)
{
	return cuCtxPushCurrent_v2(ctx);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
	struct remote_lane *lane;
	CUresult result = initialized(&lane);

	if (result != CUDA_SUCCESS)
		return result;
	if (!lane->depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	uint64_t popped = lane->stack[--lane->depth];

	if (pctx)
		*pctx = (CUcontext)(uintptr_t)popped;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent(CUcontext *pctx)
{
	return cuCtxPopCurrent_v2(pctx);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext ctx)
{
	struct remote_lane *lane;
	CUresult result = initialized(&lane);

	if (result != CUDA_SUCCESS)
		return result;
	if (ctx && !is_context(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!ctx) {
		lane->depth -= lane->depth != 0;
		return CUDA_SUCCESS;
	}
	if (!lane->depth)
		return push(lane, ctx);
	lane->stack[lane->depth - 1] = (uint64_t)(uintptr_t)ctx;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *pctx)
{
	struct remote_lane *lane;
	CUresult result = initialized(&lane);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = (CUcontext)(uintptr_t)remote_current(lane);
	return CUDA_SUCCESS;
}

/* A run has one GPU. */
EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
	struct remote_lane *lane;
	CUresult result = remote_ready(&lane);

	if (result != CUDA_SUCCESS)
		return result;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = 0;
	return CUDA_SUCCESS;
}

/* A new context is current to its maker, here and to the worker's lane. */
static CUresult made(unsigned int number, const uint64_t *values, CUcontext *context)
{
	CUresult result = (CUresult)remote_call(number, 0, values);
	struct remote_lane *lane = remote_lane();

	if (result == CUDA_SUCCESS && lane && context && push(lane, *context) == CUDA_SUCCESS)
		lane->told = (uint64_t)(uintptr_t)*context;
	return result;
}

EXPORT CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	const uint64_t values[] = { WORD(pctx), flags, WORD(dev) };

	return made(CALL_cuCtxCreate, values, pctx);
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	const uint64_t values[] = { WORD(pctx), flags, WORD(dev) };

	return made(CALL_cuCtxCreate_v2, values, pctx);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
			       CUdevice dev)
{
	const uint64_t values[] = { WORD(pctx), WORD(paramsArray), WORD(numParams), flags, WORD(dev) };

	return made(CALL_cuCtxCreate_v3, values, pctx);
}

/* Affinity and graphics' contexts are not carried; without them it is the third. */
EXPORT CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
	if (ctxCreateParams && (ctxCreateParams->numExecAffinityParams || ctxCreateParams->cigParams))
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuCtxCreate_v3(pctx, NULL, 0, flags, dev);
}

EXPORT CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
	const uint64_t values[] = { WORD(pctx), flags };

	return (CUresult)remote_call(CALL_cuCtxAttach, 0, values);
}

/* A destroyed context is current to its destroyer no more. */
EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	const uint64_t values[] = { WORD(ctx) };
	CUresult result = (CUresult)remote_call(CALL_cuCtxDestroy_v2, 0, values);
	struct remote_lane *lane = remote_lane();

	if (result == CUDA_SUCCESS && lane && remote_current(lane) == values[0]) {
		lane->depth--;
		lane->told = 0;
	}
	return result;
}

EXPORT CUresult cuCtxDestroy(CUcontext ctx)
{
	return cuCtxDestroy_v2(ctx);
}
