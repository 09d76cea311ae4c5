/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.c: a launch: blocks in order of their number, spread over host threads.
 * A block that goes on for long does not keep others from starting: as many as
 * the card would hold at once run in turn.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "machine.h"

#define ENGINE_WISH "DIVVY_PTX_ENGINE" /* of the environment */

enum { HELD = 1024 }; /* blocks that one worker has begun at once, if not cooperative */

/* The fastest that this processor runs, or the one that ENGINE_WISH names if it does. */
static const struct ptx_engine *engine(void)
{
	const char *wish = getenv(ENGINE_WISH);

#ifdef __x86_64__
	__builtin_cpu_init();
	bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
	bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
		      __builtin_cpu_supports("avx512cd");

	if (wish && strcmp(wish, ptx_engine_plain.name) == 0)
		return &ptx_engine_plain;
	if (avx2 && wish && strcmp(wish, ptx_engine_avx2.name) == 0)
		return &ptx_engine_avx2;
	if (avx512)
		return &ptx_engine_avx512;
	if (avx2)
		return &ptx_engine_avx2;
#endif
	(void)wish;
	return &ptx_engine_plain;
}

static void memory_fault(struct ptx_grid *grid)
{
	pthread_mutex_lock(&grid->lock);
	if (grid->outcome->fault == PTX_FAULT_NONE)
		grid->outcome->fault = PTX_FAULT_MEMORY;
	pthread_mutex_unlock(&grid->lock);
	__atomic_store_n(&grid->ended, true, __ATOMIC_RELAXED);
}

static struct ptx_block *start_one(struct ptx_worker *worker)
{
	struct ptx_grid *grid = worker->grid;

	if (__atomic_load_n(&grid->next, __ATOMIC_RELAXED) >= grid->blocks)
		return NULL;
	uint64_t number = __atomic_fetch_add(&grid->next, 1, __ATOMIC_RELAXED);

	if (number >= grid->blocks)
		return NULL;
	struct ptx_block *block = ptx_block_new(worker, number);

	if (!block)
		memory_fault(grid);
	return block;
}

static void worker_end(struct ptx_worker *worker)
{
	struct ptx_grid *grid = worker->grid;

	while (worker->idle) {
		struct ptx_block *block = worker->idle;

		worker->idle = block->next;
		ptx_block_free(NULL, block);
	}
	for (uint32_t i = 0; i < grid->launch->code->count; i++) {
		while (worker->frames[i]) {
			struct ptx_frame *frame = worker->frames[i];

			worker->frames[i] = frame->next;
			free(frame->columns);
			free(frame);
		}
	}
	free(worker->frames);
	pthread_mutex_lock(&grid->lock);
	grid->outcome->threads += worker->threads;
	grid->outcome->bytes += worker->bytes;
	pthread_mutex_unlock(&grid->lock);
}

static void work(struct ptx_grid *grid)
{
	struct ptx_worker worker = { .grid = grid };
	struct ptx_block *first = NULL;
	struct ptx_block **last = &first;
	uint32_t held = 0;

	worker.frames = calloc(grid->launch->code->count, sizeof(*worker.frames));
	if (!worker.frames) {
		memory_fault(grid);
		return;
	}
	while (!ptx_grid_ended(grid)) {
		struct ptx_block *block = held < grid->resident ? start_one(&worker) : NULL;

		if (block) {
			held++;
		} else if (first) {
			block = first;
			first = block->next;
			if (!first)
				last = &first;
		} else {
			break;
		}
		block->next = NULL;
		if (ptx_block_run(block)) {
			ptx_block_free(&worker, block);
			held--;
			if (grid->launch->left)
				__atomic_fetch_sub(grid->launch->left, 1, __ATOMIC_RELAXED);
		} else {
			*last = block;
			last = &block->next;
		}
	}
	while (first) {
		struct ptx_block *block = first;

		first = block->next;
		ptx_block_free(&worker, block);
	}
	worker_end(&worker);
}

void ptx_run(const struct ptx_launch *launch, struct ptx_outcome *outcome)
{
	const struct ptx_code *code = launch->code;
	struct timespec now;
	struct ptx_grid grid = {
		.launch = launch,
		.engine = engine(),
		.body = &code->bodies[launch->function->index],
		.blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2],
		.blockthreads = launch->block[0] * launch->block[1] * launch->block[2],
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.outcome = outcome,
	};
	unsigned int workers = launch->workers ? launch->workers : ptx_pool_cores();

	*outcome = (struct ptx_outcome){ .engine = grid.engine->name };
	clock_gettime(CLOCK_MONOTONIC, &now);
	grid.startns = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
	grid.warpsperblock = (grid.blockthreads + PTX_LANES - 1) / PTX_LANES;
	grid.localstride = grid.body->stackbytes == UINT64_MAX ? grid.body->localbytes + (uint64_t)launch->stackbytes
							       : grid.body->stackbytes;
	grid.localstride = (grid.localstride + 15) & ~15ull;
	grid.sharedbytes = (uint64_t)code->sharedbytes + launch->shared;
	if (workers > grid.blocks)
		workers = (unsigned int)grid.blocks;
	grid.resident = launch->resident / workers + 1;
	if (!launch->cooperative && grid.resident > HELD)
		grid.resident = HELD;
	ptx_pool_run(&grid, workers - 1, work);
}
