/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c: launches. They are checked against what the card can do; running them
 * is kernel.c's, how long they take is modelled (duration.c).
 */
#include "launch.h"

#include <stdlib.h>
#include <string.h>

#include "module/module.h"

enum {
	GRID_X = 0x7fffffff,
	GRID_YZ = 65535,
	SHARED = 49152,
};

CUresult sd_launch_take(struct sd_launch *launch, void **arguments, void **extra)
{
	CUresult result = CUDA_SUCCESS;

	if (!launch->function->module) /* a CUkernel is as good: cuda.core launches it */
		result = sd_kernel_function(launch->function, &launch->function);
	if (result == CUDA_SUCCESS)
		result = sd_function_ready(launch->function);
	if (result != CUDA_SUCCESS)
		return result;
	if (arguments && extra)
		return CUDA_ERROR_INVALID_VALUE;
	launch->arguments = arguments;
	for (; extra && extra[0]; extra += 2) {
		if (extra[0] == (void *)1)
			launch->buffer = extra[1];
		else if (extra[0] == (void *)2)
			launch->given = *(size_t *)extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	return launch->given > launch->function->parameterbytes || (launch->given && !launch->buffer)
		       ? CUDA_ERROR_INVALID_VALUE
		       : CUDA_SUCCESS;
}

CUresult sd_launch_parameters(const struct sd_launch *launch, unsigned char *block)
{
	const struct sd_function *function = launch->function;

	if (launch->given)
		memcpy(block, launch->buffer, launch->given);
	for (size_t i = 0; launch->arguments && i < function->parametercount; i++) {
		const struct sd_parameter *parameter = &function->parameters[i];

		if (!launch->arguments[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(block + parameter->offset, launch->arguments[i], parameter->bytes);
	}
	return CUDA_SUCCESS;
}

CUresult sd_launch_own(struct sd_launch *launch)
{
	size_t count = launch->function->parametercount;
	size_t pointers = (count + 1) * sizeof(void *);
	void **own = NULL;

	if (count && (launch->arguments || launch->buffer)) {
		own = calloc(1, pointers + launch->function->parameterbytes);
		if (!own)
			return CUDA_ERROR_OUT_OF_MEMORY;
		unsigned char *block = (unsigned char *)own + pointers;
		CUresult result = sd_launch_parameters(launch, block);

		if (result != CUDA_SUCCESS) {
			free(own);
			return result;
		}
		for (size_t i = 0; i < count; i++)
			own[i] = block + launch->function->parameters[i].offset;
	}
	launch->own = launch->arguments = own;
	launch->buffer = NULL;
	launch->given = 0;
	return CUDA_SUCCESS;
}

static uint32_t threads_of(const struct sd_launch *launch)
{
	uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];

	return threads > SD_BLOCK_THREADS ? SD_BLOCK_THREADS + 1 : (uint32_t)threads;
}

CUresult sd_launch_check(const struct sd_launch *launch)
{
	const struct sd_function *function = sd_object_get(launch->function, SD_FUNCTION);

	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	uint32_t threads = threads_of(launch);
	uint64_t fixed = function->entry->shared;
	uint64_t shared = function->maxdynamic > SHARED ? (uint64_t)function->maxdynamic : SHARED;

	if (!threads || !launch->grid[0] || !launch->grid[1] || !launch->grid[2] || launch->grid[0] > GRID_X ||
	    launch->grid[1] > GRID_YZ || launch->grid[2] > GRID_YZ || launch->block[0] > SD_BLOCK_XY ||
	    launch->block[1] > SD_BLOCK_XY || launch->block[2] > SD_BLOCK_Z || threads > SD_BLOCK_THREADS)
		return CUDA_ERROR_INVALID_VALUE;
	if (launch->shared + fixed > shared)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult sd_launch_fits(const struct sd_launch *launch)
{
	const struct sd_function *function = sd_object_get(launch->function, SD_FUNCTION);

	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	return threads_of(launch) > function->entry->maxthreads ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_SUCCESS;
}

CUresult sd_launch_run(const struct sd_launch *launch, const struct sd_card *card)
{
	CUresult result = sd_launch_check(launch);

	if (result == CUDA_SUCCESS)
		result = sd_launch_fits(launch);
	/* all blocks of a cooperative launch must be resident together */
	if (result == CUDA_SUCCESS && launch->cooperative) {
		uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];

		if (blocks > sd_launch_resident(launch, card))
			result = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	}
	return result;
}

bool sd_launch_loaded(const struct sd_launch *launch)
{
	return launch->function->module != NULL;
}

void sd_launch_begins(const struct sd_launch *launch)
{
	launch->function->module->steps++;
}

void sd_launch_ended(const struct sd_launch *launch)
{
	launch->function->module->steps--;
}

uint64_t sd_launch_resident(const struct sd_launch *launch, const struct sd_card *card)
{
	return (uint64_t)sd_blocks_resident(launch->function, card, threads_of(launch), launch->shared) *
	       card->facts->multiprocessors;
}
