/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c: launches. They are checked against what the card can do; running them
 * is kernel.c's, how long they take is modelled (order.h).
 */
#include <stdlib.h>
#include <string.h>

#include "module.h"
#include "slow.h"
#include "stream.h"
#include "work.h"

enum {
	GRID_X = 0x7fffffff,
	GRID_YZ = 65535,
	BLOCK_XY = 1024,
	BLOCK_Z = 64,
	SHARED = 49152,
	OLD_PARAMETERS = 4096,
};

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
	    launch->grid[1] > GRID_YZ || launch->grid[2] > GRID_YZ || launch->block[0] > BLOCK_XY ||
	    launch->block[1] > BLOCK_XY || launch->block[2] > BLOCK_Z || threads > SD_BLOCK_THREADS)
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

uint64_t sd_launch_resident(const struct sd_launch *launch, const struct sd_card *card)
{
	return (uint64_t)sd_blocks_resident(launch->function, card, threads_of(launch), launch->shared) *
	       card->facts->multiprocessors;
}

static CUresult launch(CUfunction f, const unsigned int grid[3], const unsigned int block[3], unsigned int shared,
		       bool cooperative, CUstream stream, void **arguments, void **extra)
{
	struct sd_context *context = NULL;
	struct sd_work work = { .kind = SD_WORK_LAUNCH };

	sd_slow_launch();
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_function *function = sd_object_get(f, SD_FUNCTION);

	if (!function)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if ((arguments && extra) || (function->parametercount && !arguments && !extra))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	work.card = context->card;
	work.launch = (struct sd_launch){
		.function = function,
		.grid = { grid[0], grid[1], grid[2] },
		.block = { block[0], block[1], block[2] },
		.shared = shared,
		.cooperative = cooperative,
		.arguments = arguments,
		.extra = extra,
	};
	return sd_leave(sd_submit(stream, &work));
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
			unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
			unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
	const unsigned int grid[3] = { gridDimX, gridDimY, gridDimZ };
	const unsigned int block[3] = { blockDimX, blockDimY, blockDimZ };

	return launch(f, grid, block, sharedMemBytes, false, hStream, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
				   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
				   unsigned int sharedMemBytes, CUstream hStream, void **kernelParams)
{
	const unsigned int grid[3] = { gridDimX, gridDimY, gridDimZ };
	const unsigned int block[3] = { blockDimX, blockDimY, blockDimZ };

	return launch(f, grid, block, sharedMemBytes, true, hStream, kernelParams, NULL);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	bool cooperative = false;

	if (!config || (config->numAttrs && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < config->numAttrs; i++) {
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
			cooperative = config->attrs[i].value.cooperative != 0;
	}
	const unsigned int grid[3] = { config->gridDimX, config->gridDimY, config->gridDimZ };
	const unsigned int block[3] = { config->blockDimX, config->blockDimY, config->blockDimZ };

	return launch(f, grid, block, config->sharedMemBytes, cooperative, config->hStream, kernelParams, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	CUlaunchConfig own = *config;

	own.hStream = sd_per_thread(own.hStream);
	return cuLaunchKernelEx(&own, f, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList, unsigned int numDevices,
					      unsigned int flags)
{
	if (!launchParamsList || !numDevices || numDevices > sd_card_count() || flags > 3)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < numDevices; i++) {
		const CUDA_LAUNCH_PARAMS *one = &launchParamsList[i];
		CUresult result = cuLaunchCooperativeKernel(one->function, one->gridDimX, one->gridDimY, one->gridDimZ,
							    one->blockDimX, one->blockDimY, one->blockDimZ,
							    one->sharedMemBytes, one->hStream, one->kernelParams);

		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

SD_PTSZ(cuLaunchKernel,
	(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
	 unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
	 void **kernelParams, void **extra),
	f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, sd_per_thread(hStream),
	kernelParams, extra)
SD_PTSZ(cuLaunchCooperativeKernel,
	(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
	 unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
	 void **kernelParams),
	f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, sd_per_thread(hStream),
	kernelParams)

/* The launch calls from before CUDA 4: shape and parameters are set first. */
static CUresult enter(CUfunction f, struct sd_function **function)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	*function = sd_object_get(f, SD_FUNCTION);
	return *function ? CUDA_SUCCESS : sd_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
	struct sd_function *function = NULL;
	CUresult result = enter(hfunc, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (x < 1 || y < 1 || z < 1 || x > BLOCK_XY || y > BLOCK_XY || z > BLOCK_Z)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	function->block[0] = (unsigned int)x;
	function->block[1] = (unsigned int)y;
	function->block[2] = (unsigned int)z;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes)
{
	struct sd_function *function = NULL;
	CUresult result = enter(hfunc, &function);

	if (result != CUDA_SUCCESS)
		return result;
	function->shared = bytes;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes)
{
	struct sd_function *function = NULL;
	CUresult result = enter(hfunc, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (numbytes > OLD_PARAMETERS)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	function->oldbytes = numbytes;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
	struct sd_function *function = NULL;
	CUresult result = enter(hfunc, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ptr || offset < 0 || numbytes > OLD_PARAMETERS || (unsigned int)offset > OLD_PARAMETERS - numbytes)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (!function->oldparameters)
		function->oldparameters = calloc(1, OLD_PARAMETERS);
	if (!function->oldparameters)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	memcpy(function->oldparameters + offset, ptr, numbytes);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value)
{
	return cuParamSetv(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value)
{
	return cuParamSetv(hfunc, offset, &value, sizeof(value));
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
	struct sd_function *function = NULL;
	CUresult result = enter(f, &function);

	if (result != CUDA_SUCCESS)
		return result;
	size_t bytes = function->oldbytes;
	void *extra[] = { (void *)1, function->oldparameters, (void *)2, &bytes, NULL };
	unsigned int block[3] = { function->block[0], function->block[1], function->block[2] };
	unsigned int shared = function->shared;
	bool given = function->oldparameters != NULL;

	sd_unlock();
	if (grid_width < 1 || grid_height < 1)
		return CUDA_ERROR_INVALID_VALUE;
	const unsigned int grid[3] = { (unsigned int)grid_width, (unsigned int)grid_height, 1 };

	return launch(f, grid, block, shared, false, hStream, NULL, given ? extra : NULL);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
	return cuLaunchGridAsync(f, grid_width, grid_height, NULL);
}

CUresult cuLaunch(CUfunction f)
{
	return cuLaunchGridAsync(f, 1, 1, NULL);
}
