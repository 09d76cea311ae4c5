/* SPDX-License-Identifier: Apache-2.0 */
/*
 * occupancy.c: how many blocks fit a multiprocessor, by threads, blocks,
 * registers and shared memory.
 */
#include "cuda/enter.h"
#include "module.h"

/* The function and its card, with the lock taken; unlocked unless both are there. */
static CUresult enter(CUfunction handle, struct sd_function **function, struct sd_card **card)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	*function = sd_object_get(handle, SD_FUNCTION);
	*card = context->card;
	if (!*function)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	result = sd_function_ready(*function);
	return result == CUDA_SUCCESS ? CUDA_SUCCESS : sd_leave(result);
}

/* Shared memory that a block takes besides its own. */
static uint32_t reserved(const struct sd_card *card)
{
	return card->facts->major >= 8 ? 1024 : 0;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint32_t sd_blocks_resident(const struct sd_function *function, const struct sd_card *card, uint32_t threads,
			    uint64_t dynamic)
{
	const struct divvy_sim_card *facts = card->facts;
	const struct sd_entrypoint *entry = function->entry;
	uint32_t warps = (threads + 31) / 32;
	uint64_t shared = dynamic + entry->shared;
	uint64_t most = lesser(facts->threadspermultiprocessor / (warps * 32), facts->blockspermultiprocessor);

	if (threads > entry->maxthreads || shared > facts->sharedperblockoptin)
		return 0;
	most = lesser(most, sd_registers_warps(facts->registerspermultiprocessor, entry->registers) / warps);
	if (shared)
		most = lesser(most, facts->sharedpermultiprocessor / (shared + reserved(card)));
	return (uint32_t)most;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
							      size_t dynamicSMemSize, unsigned int flags)
{
	struct sd_function *function = NULL;
	struct sd_card *card = NULL;
	CUresult result = enter(func, &function, &card);

	if (result != CUDA_SUCCESS)
		return result;
	if (!numBlocks || blockSize < 1 || blockSize > SD_BLOCK_THREADS || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*numBlocks = (int)sd_blocks_resident(function, card, (uint32_t)blockSize, dynamicSMemSize);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
						     size_t dynamicSMemSize)
{
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
						   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
						   size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags)
{
	struct sd_function *function = NULL;
	struct sd_card *card = NULL;
	CUresult result = enter(func, &function, &card);

	if (result != CUDA_SUCCESS)
		return result;
	int limit = (int)function->entry->maxthreads;

	sd_unlock();
	if (!minGridSize || !blockSize || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE || blockSizeLimit < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (blockSizeLimit && blockSizeLimit < limit)
		limit = blockSizeLimit;
	int best = 0;
	int size = 0;

	/* the largest block that keeps most threads resident */
	for (int threads = limit; threads > 0; threads = (threads - 1) & ~31) {
		size_t dynamic = blockSizeToDynamicSMemSize ? blockSizeToDynamicSMemSize(threads) : dynamicSMemSize;
		int resident = 0;

		result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, func, threads, dynamic);
		if (result != CUDA_SUCCESS)
			return result;
		if (resident * threads > best) {
			best = resident * threads;
			size = threads;
		}
	}
	*blockSize = size;
	*minGridSize = size ? best / size * (int)card->facts->multiprocessors : 0;
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
					  CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
					  int blockSizeLimit)
{
	return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
							 dynamicSMemSize, blockSizeLimit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func, int numBlocks, int blockSize)
{
	struct sd_function *function = NULL;
	struct sd_card *card = NULL;
	CUresult result = enter(func, &function, &card);

	if (result != CUDA_SUCCESS)
		return result;
	if (!dynamicSmemSize || numBlocks < 1 || blockSize < 1 || blockSize > SD_BLOCK_THREADS)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	uint64_t each = card->facts->sharedpermultiprocessor / (unsigned int)numBlocks;
	uint64_t fixed = reserved(card) + function->entry->shared;
	uint64_t rest = each > fixed ? each - fixed : 0;

	*dynamicSmemSize = rest < card->facts->sharedperblockoptin ? rest : card->facts->sharedperblockoptin;
	return sd_leave(CUDA_SUCCESS);
}

/* Thread block clusters: from compute capability 9.0. */
static CUresult clusters(CUfunction func, const CUlaunchConfig *config, int *size, int *count)
{
	struct sd_function *function = NULL;
	struct sd_card *card = NULL;
	unsigned int dims[3] = { 1, 1, 1 };
	CUresult result = enter(func, &function, &card);

	if (result != CUDA_SUCCESS)
		return result;
	if (!config || (config->numAttrs && !config->attrs))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (card->facts->major < 9)
		return sd_leave(CUDA_ERROR_INVALID_CLUSTER_SIZE);
	for (unsigned int i = 0; i < config->numAttrs; i++) {
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
			dims[0] = config->attrs[i].value.clusterDim.x;
			dims[1] = config->attrs[i].value.clusterDim.y;
			dims[2] = config->attrs[i].value.clusterDim.z;
		}
	}
	uint64_t each = (uint64_t)dims[0] * dims[1] * dims[2];
	uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;
	uint64_t most = function->clusterlarge ? 16 : 8;

	if (!threads || threads > SD_BLOCK_THREADS || !each)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	uint32_t resident = sd_blocks_resident(function, card, (uint32_t)threads, config->sharedMemBytes);

	if (size)
		*size = resident ? (int)most : 0;
	if (count)
		*count = each > most ? 0 : (int)((uint64_t)resident * card->facts->multiprocessors / each);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func, const CUlaunchConfig *config)
{
	return clusterSize ? clusters(func, config, clusterSize, NULL) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func, const CUlaunchConfig *config)
{
	return numClusters ? clusters(func, config, NULL, numClusters) : CUDA_ERROR_INVALID_VALUE;
}
