/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy.c: launches as before CUDA 4: shape, shared memory and parameters are set in a
 * function first, one after another. They are kept here, and go over as one launch.
 */
#include "remote.h"

#include <pthread.h>
#include <stdlib.h>

#include "payload.h"

enum { OLD_PARAMETERS = 4096 };

struct set {
	uint64_t function;
	unsigned int block[3];
	unsigned int shared;
	uint32_t bytes;
	bool given;
	uint8_t parameters[OLD_PARAMETERS];
	struct set *next;
};

static struct {
	pthread_mutex_t lock;
	struct set *first;
} sets = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* What has been set in a function; the lock is held when it succeeds. */
static CUresult set_of(CUfunction f, struct set **found)
{
	uint64_t function = WORD(f);
	struct set *set;

	if (!remote_is_open())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!remote_function(function))
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&sets.lock);
	for (set = sets.first; set && set->function != function; set = set->next)
		;
	if (!set) {
		set = calloc(1, sizeof(*set));
		if (!set) {
			pthread_mutex_unlock(&sets.lock);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		set->function = function;
		set->block[0] = set->block[1] = set->block[2] = 1;
		set->next = sets.first;
		sets.first = set;
	}
	*found = set;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
	const int *can = remote_facts.device[0].attribute;
	struct set *set = NULL;
	CUresult result = set_of(hfunc, &set);

	if (result != CUDA_SUCCESS)
		return result;
	if (x < 1 || y < 1 || z < 1 || x > can[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X] || y > can[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y] ||
	    z > can[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z]) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		set->block[0] = (unsigned int)x;
		set->block[1] = (unsigned int)y;
		set->block[2] = (unsigned int)z;
	}
	pthread_mutex_unlock(&sets.lock);
	return result;
}

EXPORT CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes)
{
	struct set *set = NULL;
	CUresult result = set_of(hfunc, &set);

	if (result != CUDA_SUCCESS)
		return result;
	set->shared = bytes;
	pthread_mutex_unlock(&sets.lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes)
{
	struct set *set = NULL;
	CUresult result = set_of(hfunc, &set);

	if (result != CUDA_SUCCESS)
		return result;
	if (numbytes > OLD_PARAMETERS)
		result = CUDA_ERROR_INVALID_VALUE;
	else
		set->bytes = numbytes;
	pthread_mutex_unlock(&sets.lock);
	return result;
}

EXPORT CUresult cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
	struct set *set = NULL;
	CUresult result = set_of(hfunc, &set);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ptr || offset < 0 || numbytes > OLD_PARAMETERS || (unsigned int)offset > OLD_PARAMETERS - numbytes) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		memcpy(set->parameters + offset, ptr, numbytes);
		set->given = true;
	}
	pthread_mutex_unlock(&sets.lock);
	return result;
}

EXPORT CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value)
{
	return cuParamSetv(hfunc, offset, &value, sizeof(value));
}

EXPORT CUresult cuParamSetf(CUfunction hfunc, int offset, float value)
{
	return cuParamSetv(hfunc, offset, &value, sizeof(value));
}

EXPORT CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
	struct set *set = NULL;
	CUresult result = set_of(f, &set);

	if (result != CUDA_SUCCESS)
		return result;
	struct set now = *set;
	size_t bytes = now.bytes;
	void *extra[] = CALL_EXTRA(now.parameters, &bytes);

	pthread_mutex_unlock(&sets.lock);
	if (grid_width < 1 || grid_height < 1)
		return CUDA_ERROR_INVALID_VALUE;
	return cuLaunchKernel(f, (unsigned int)grid_width, (unsigned int)grid_height, 1, now.block[0], now.block[1], now.block[2], now.shared,
			      hStream, NULL, now.given ? extra : NULL);
}

EXPORT CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
	return cuLaunchGridAsync(f, grid_width, grid_height, NULL);
}

EXPORT CUresult cuLaunch(CUfunction f)
{
	return cuLaunchGridAsync(f, 1, 1, NULL);
}
