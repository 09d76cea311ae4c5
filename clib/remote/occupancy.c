/* SPDX-License-Identifier: Apache-2.0 */
/* occupancy.c: how many blocks fit, where the question holds pointers; and two calls that
 * take floats. */
#include "remote.h"

#include "payload.h"

static CUresult two_numbers(struct remote_lane *lane, CUresult result, int *first, int *second)
{
	size_t at = sizeof(uint64_t), length = 0;
	const void *bytes = result == CUDA_SUCCESS ? remote_next(lane, &at, &length) : NULL;
	int numbers[2];

	if (bytes && length == sizeof(numbers)) {
		memcpy(numbers, bytes, sizeof(numbers));
		*first = numbers[0];
		if (second)
			*second = numbers[1];
	}
	return result;
}

/* With a callback: of the sizes of a block, largest first, the one with which most
 * threads run on a multiprocessor. */
static CUresult by_callback(int *grid, int *block, CUfunction func, CUoccupancyB2DSize shared, int limit, unsigned int flags)
{
	const int *can = remote_facts.device[0].attribute;
	int warp = can[CU_DEVICE_ATTRIBUTE_WARP_SIZE], most = 0, threads = 0, best = 0;
	CUresult result = cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, func);

	if (limit > 0 && limit < most)
		most = limit;
	for (int size = most; result == CUDA_SUCCESS && size > 0 && warp > 0; size = (size - 1) / warp * warp) {
		int blocks = 0;

		result = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, func, size, shared(size), flags);
		if (result == CUDA_SUCCESS && blocks * size > threads) {
			threads = blocks * size;
			*block = size;
			best = blocks;
		}
		if (threads == can[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR])
			break;
	}
	*grid = best * can[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
	return result;
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
							  CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
							  int blockSizeLimit, unsigned int flags)
{
	struct remote_lane *lane = remote_lane();
	const struct call_occupancy want = { .function = WORD(func), .shared = dynamicSMemSize, .limit = (uint32_t)blockSizeLimit, .flags = flags };

	if (!lane)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!minGridSize || !blockSize)
		return CUDA_ERROR_INVALID_VALUE;
	if (blockSizeToDynamicSMemSize)
		return by_callback(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, blockSizeLimit, flags);
	if (!remote_begin(lane) || !remote_put(&lane->out, &want, sizeof(want)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return two_numbers(lane, (CUresult)remote_finish(lane, CALL_cuOccupancyMaxPotentialBlockSizeWithFlags), minGridSize, blockSize);
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
						 CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
						 int blockSizeLimit)
{
	return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
							 blockSizeLimit, 0);
}

static CUresult clusters(unsigned int number, int *found, CUfunction func, const CUlaunchConfig *config)
{
	struct remote_lane *lane = remote_lane();

	if (!lane)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!found || !config || (config->numAttrs && !config->attrs) || config->numAttrs > JIT_OPTIONS)
		return CUDA_ERROR_INVALID_VALUE;
	const struct call_launch want = {
		.function = WORD(func),
		.stream = WORD(config->hStream),
		.grid = { config->gridDimX, config->gridDimY, config->gridDimZ },
		.block = { config->blockDimX, config->blockDimY, config->blockDimZ },
		.shared = config->sharedMemBytes,
		.attributes = config->numAttrs,
	};

	if (!remote_begin(lane) || !remote_put(&lane->out, &want, sizeof(want)) ||
	    !remote_put(&lane->out, config->attrs, config->numAttrs * sizeof(*config->attrs)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return two_numbers(lane, (CUresult)remote_finish(lane, number), found, NULL);
}

EXPORT CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func, const CUlaunchConfig *config)
{
	return clusters(CALL_cuOccupancyMaxActiveClusters, numClusters, func, config);
}

EXPORT CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func, const CUlaunchConfig *config)
{
	return clusters(CALL_cuOccupancyMaxPotentialClusterSize, clusterSize, func, config);
}

static CUresult set_floats(unsigned int number, CUtexref texture, float first, float second)
{
	struct remote_lane *lane = remote_lane();
	const struct call_texture_floats want = { .texture = WORD(texture), .first = first, .second = second };

	if (!lane)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!remote_begin(lane) || !remote_put(&lane->out, &want, sizeof(want)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return (CUresult)remote_finish(lane, number);
}

EXPORT CUresult cuTexRefSetMipmapLevelBias(CUtexref hTexRef, float bias)
{
	return set_floats(CALL_cuTexRefSetMipmapLevelBias, hTexRef, bias, 0);
}

EXPORT CUresult cuTexRefSetMipmapLevelClamp(CUtexref hTexRef, float minMipmapLevelClamp, float maxMipmapLevelClamp)
{
	return set_floats(CALL_cuTexRefSetMipmapLevelClamp, hTexRef, minMipmapLevelClamp, maxMipmapLevelClamp);
}

/* A profiler that listens here sees nothing of a GPU there. */
EXPORT CUresult cuProfilerStart(void)
{
	return remote_is_open() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

EXPORT CUresult cuProfilerStop(void)
{
	return cuProfilerStart();
}
