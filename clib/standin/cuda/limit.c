/* SPDX-License-Identifier: Apache-2.0 */
/* limit.c: a context's limits and preferences; what limits cost is divvy_limits.h. */
#include "divvy_limits.h"
#include "enter.h"

/* charged for the three limits that cost memory */
static uint64_t bytes_of(const struct sd_context *context, const size_t *limits)
{
	uint64_t total = 0;

	for (int i = DIVVY_LIMIT_STACK; i <= DIVVY_LIMIT_HEAP; i++) {
		if (__builtin_add_overflow(total, divvy_limit_bytes(i, limits[i], context->card->facts->multiprocessors),
					   &total))
			return UINT64_MAX;
	}
	return total;
}

static bool supported(const struct sd_context *context, CUlimit limit)
{
	switch ((int)limit) {
	case CU_LIMIT_STACK_SIZE:
	case CU_LIMIT_PRINTF_FIFO_SIZE:
	case CU_LIMIT_MALLOC_HEAP_SIZE:
	case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
	case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
		return true;
	case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
		return context->card->facts->major < 9;
	case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
		return context->card->facts->major >= 8;
	default:
		return false;
	}
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if ((unsigned int)limit >= SD_LIMITS)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (!supported(context, limit))
		return sd_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
	size_t wanted[SD_LIMITS];

	for (int i = 0; i < SD_LIMITS; i++)
		wanted[i] = context->limit[i];
	wanted[limit] = value;
	uint64_t bytes = bytes_of(context, wanted);

	if (bytes > INT64_MAX)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	result = sd_adjust(context->card, DIVVY_SIM_KIND_CONTEXT, (int64_t)bytes - (int64_t)context->limitbytes);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	context->limit[limit] = value;
	context->limitbytes = bytes;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pvalue || (unsigned int)limit >= SD_LIMITS)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (!supported(context, limit))
		return sd_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
	*pvalue = context->limit[limit];
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pconfig)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pconfig = context->cache;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if ((unsigned int)config > CU_FUNC_CACHE_PREFER_EQUAL)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	context->cache = config;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pConfig)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pConfig = context->banks;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if ((unsigned int)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	context->banks = config;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (leastPriority)
		*leastPriority = 0;
	if (greatestPriority)
		*greatestPriority = -5;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxResetPersistingL2Cache(void)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	return result == CUDA_SUCCESS ? sd_leave(CUDA_SUCCESS) : result;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *pExecAffinity, CUexecAffinityType type)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pExecAffinity || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	pExecAffinity->type = type;
	pExecAffinity->param.smCount.val = context->card->facts->multiprocessors;
	return sd_leave(CUDA_SUCCESS);
}
