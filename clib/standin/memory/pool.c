/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <stdlib.h>

#include "memory.h"

struct sd_chunk {
	struct sd_chunk *next;
	uint64_t address;
	uint64_t bytes;
};

static struct sd_pool *pools;

CUresult sd_pool_new(struct sd_card *card, const CUmemPoolProps *props, struct sd_pool **out)
{
	struct sd_pool *pool = sd_object_new(SD_POOL, sizeof(*pool), NULL);

	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->card = card;
	pool->props = *props;
	pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
	pool->readable = pool->writable = 1ull << card->ordinal;
	(void)sd_space_open(&pool->space, 0, 0);
	pool->next = pools;
	pools = pool;
	*out = pool;
	return CUDA_SUCCESS;
}

struct sd_pool *sd_pool_get(CUmemoryPool handle)
{
	struct sd_pool *pool = sd_object_get(handle, SD_POOL);

	return pool && !pool->destroyed ? pool : NULL;
}

CUresult sd_pool_default(struct sd_card *card, struct sd_pool **out)
{
	const CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = card->ordinal },
	};

	if (!card->defaultpool) {
		CUresult result = sd_pool_new(card, &props, &card->defaultpool);

		if (result != CUDA_SUCCESS)
			return result;
		card->defaultpool->isdefault = true;
	}
	*out = card->defaultpool;
	return CUDA_SUCCESS;
}

CUresult sd_pool_current(struct sd_card *card, struct sd_pool **out)
{
	if (!card->currentpool)
		return sd_pool_default(card, out);
	*out = card->currentpool;
	return CUDA_SUCCESS;
}

void sd_pool_trim(struct sd_pool *pool, uint64_t keep)
{
	struct sd_chunk **link = &pool->chunks;

	while (*link && pool->reserved > keep && pool->reserved > pool->used) {
		struct sd_chunk *chunk = *link;

		if (pool->reserved - chunk->bytes < keep ||
		    sd_space_remove(&pool->space, chunk->address, chunk->bytes) < 0) {
			link = &chunk->next;
			continue;
		}
		*link = chunk->next;
		pool->reserved -= chunk->bytes;
		sd_arena_give(pool->card, chunk->address, chunk->bytes);
		(void)sd_adjust(pool->card, DIVVY_SIM_KIND_POOL, -(int64_t)chunk->bytes);
		free(chunk);
	}
}

static void remove_pool(struct sd_pool *pool)
{
	struct sd_pool **link = &pools;

	while (*link && *link != pool)
		link = &(*link)->next;
	if (*link)
		*link = pool->next;
	if (pool->identity)
		(void)sim_object_drop(pool->identity);
	sd_pool_trim(pool, 0);
	sd_space_close(&pool->space);
	sd_object_free(pool);
}

static void give(struct sd_memory *memory)
{
	struct sd_pool *pool = memory->owner;

	if (memory->exported)
		(void)sim_ipc_revoke(memory->card->index, DIVVY_SIM_IPC_POINTER, memory->address - memory->card->arena);
	sd_memory_leave(memory);
	sd_space_give(&pool->space, memory->address, memory->span);
	pool->used -= memory->span;
	pool->freeing -= memory->freeingas != 0;
	free(memory);
	if (pool->destroyed && !pool->used)
		remove_pool(pool);
}

static CUresult grow(struct sd_pool *pool, uint64_t bytes)
{
	uint64_t more = 0;
	uint64_t address = 0;
	struct sd_chunk *chunk = malloc(sizeof(*chunk));

	if (!chunk)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (!sd_round(bytes, SD_STEP, &more) || more > INT64_MAX)
		goto no_charge;
	if (pool->props.maxSize && (more > pool->props.maxSize || pool->reserved > pool->props.maxSize - more))
		goto no_charge;
	result = sd_adjust(pool->card, DIVVY_SIM_KIND_POOL, (int64_t)more);
	if (result != CUDA_SUCCESS)
		goto no_charge;
	result = sd_arena_take(pool->card, more, SD_STEP, &address);
	if (result != CUDA_SUCCESS)
		goto no_space;
	if (sd_space_add(&pool->space, address, more) < 0) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto no_room;
	}
	*chunk = (struct sd_chunk){ .next = pool->chunks, .address = address, .bytes = more };
	pool->chunks = chunk;
	pool->reserved += more;
	if (pool->reserved > pool->reservedhigh)
		pool->reservedhigh = pool->reserved;
	return CUDA_SUCCESS;

no_room:
	sd_arena_give(pool->card, address, more);
no_space:
	(void)sd_adjust(pool->card, DIVVY_SIM_KIND_POOL, -(int64_t)more);
no_charge:
	free(chunk);
	return result;
}

CUresult sd_pool_take(struct sd_pool *pool, uint64_t bytes, CUdeviceptr *address)
{
	uint64_t span = 0;
	uint64_t at = 0;

	if (!sd_round(bytes, SD_UNIT, &span))
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct sd_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = sd_error(sd_space_take(&pool->space, span, SD_UNIT, &at));

	if (result != CUDA_SUCCESS) {
		result = grow(pool, span);
		if (result == CUDA_ERROR_OUT_OF_MEMORY) {
			/* what pools hold without need is given back first */
			for (struct sd_pool *other = pools; other; other = other->next) {
				if (other->card == pool->card)
					sd_pool_trim(other, 0);
			}
			result = grow(pool, span);
		}
		if (result == CUDA_SUCCESS)
			result = sd_error(sd_space_take(&pool->space, span, SD_UNIT, &at));
	}
	if (result != CUDA_SUCCESS) {
		free(memory);
		return result;
	}
	*memory = (struct sd_memory){
		.kind = SD_POOLED, .address = at, .bytes = bytes, .span = span, .card = pool->card, .owner = pool, .end = give,
	};
	(void)sd_memory_enter(memory, NULL);
	pool->used += span;
	if (pool->used > pool->usedhigh)
		pool->usedhigh = pool->used;
	*address = at;
	return CUDA_SUCCESS;
}

CUresult sd_pool_take_again(struct sd_pool *pool, uint64_t bytes, uint64_t stream, CUdeviceptr *address)
{
	uint64_t span = 0;

	if (!pool->freeing || !sd_round(bytes, SD_UNIT, &span))
		return sd_pool_take(pool, bytes, address);
	for (const struct sd_chunk *chunk = pool->chunks; chunk; chunk = chunk->next) {
		struct sd_memory *memory = sd_memory_after(chunk->address);

		while (memory && memory->address - chunk->address < chunk->bytes) {
			struct sd_node *next = sd_tree_next(&memory->node);

			if (memory->kind == SD_POOLED && memory->freeing == stream && memory->span == span) {
				memory->freeing = memory->freeingas = 0;
				memory->bytes = bytes;
				pool->freeing--;
				*address = memory->address;
				return CUDA_SUCCESS;
			}
			memory = next ? SD_OWNER(next, struct sd_memory, node) : NULL;
		}
	}
	return sd_pool_take(pool, bytes, address);
}

void sd_pool_destroy(struct sd_pool *pool)
{
	if (pool->card->currentpool == pool)
		pool->card->currentpool = NULL;
	pool->destroyed = true;
	if (!pool->used)
		remove_pool(pool);
}

void sd_pool_settle(void)
{
	for (struct sd_pool *pool = pools; pool; pool = pool->next) {
		uint64_t keep = pool->destroyed ? 0 : pool->threshold;

		if (pool->reserved > keep && pool->reserved > pool->used)
			sd_pool_trim(pool, keep);
	}
}
