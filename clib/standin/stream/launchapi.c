/* SPDX-License-Identifier: Apache-2.0 */
/* launchapi.c: the calls that launch kernels. */
#include <stdlib.h>
#include <string.h>

#include "cuda/enter.h"
#include "module/module.h"
#include "work/slow.h"
#include "submit.h"

enum { OLD_PARAMETERS = 4096 };

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
	work.card = context->card;
	work.launch = (struct sd_launch){
		.function = function,
		.grid = { grid[0], grid[1], grid[2] },
		.block = { block[0], block[1], block[2] },
		.shared = shared,
		.cooperative = cooperative,
	};
	result = sd_launch_take(&work.launch, arguments, extra);
	if (result == CUDA_SUCCESS && work.launch.function->parametercount && !arguments && !extra)
		result = CUDA_ERROR_INVALID_VALUE;
	return sd_leave(result == CUDA_SUCCESS ? sd_submit(stream, &work) : result);
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
	if (x < 1 || y < 1 || z < 1 || x > SD_BLOCK_XY || y > SD_BLOCK_XY || z > SD_BLOCK_Z)
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
