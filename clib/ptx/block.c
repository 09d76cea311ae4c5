/* SPDX-License-Identifier: Apache-2.0 */
/* block.c: one block: its memory, and its warps in turn. */
#include <stdlib.h>
#include <string.h>

#include "machine.h"

enum { TURNS = 4 }; /* of each warp until another block may go on */

static uint64_t up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static struct ptx_block *memory(struct ptx_worker *worker)
{
	const struct ptx_grid *grid = worker->grid;
	struct ptx_block *block = worker->idle;

	if (block) {
		worker->idle = block->next;
		return block;
	}
	block = calloc(1, sizeof(*block));
	if (!block)
		return NULL;
	block->warpcount = grid->warpsperblock;
	block->warps = aligned_alloc(128, up(sizeof(*block->warps) * grid->warpsperblock, 128));
	block->shared = aligned_alloc(1024, up(grid->sharedbytes + 1, 1024));
	if (!block->warps || !block->shared)
		goto failed;
	memset(block->warps, 0, sizeof(*block->warps) * grid->warpsperblock);
	for (uint32_t w = 0; grid->localstride && w < grid->warpsperblock; w++) {
		block->warps[w].local = aligned_alloc(128, up(grid->localstride * PTX_LANES, 128));
		if (!block->warps[w].local)
			goto failed;
		memset(block->warps[w].local, 0, grid->localstride * PTX_LANES);
	}
	return block;

failed:
	ptx_block_free(NULL, block);
	return NULL;
}

void ptx_block_free(struct ptx_worker *worker, struct ptx_block *block)
{
	if (worker) {
		for (uint32_t w = 0; w < block->warpcount; w++) {
			ptx_warp_end(&block->warps[w]);
			worker->threads += block->warps[w].threads;
			worker->bytes += block->warps[w].bytes;
		}
		block->next = worker->idle;
		worker->idle = block;
		return;
	}
	for (uint32_t w = 0; block->warps && w < block->warpcount; w++)
		free(block->warps[w].local);
	free(block->warps);
	free(block->shared);
	free(block);
}

static bool warp_begin(struct ptx_worker *worker, struct ptx_block *block, uint32_t index)
{
	const struct ptx_grid *grid = worker->grid;
	const struct ptx_launch *launch = grid->launch;
	struct ptx_warp *warp = &block->warps[index];
	uint32_t first = index * PTX_LANES;
	uint32_t lanes = grid->blockthreads - first;

	warp->index = index;
	warp->block = block;
	warp->worker = worker;
	warp->shared = block->shared;
	warp->sharedbytes = grid->sharedbytes;
	warp->localstride = grid->localstride;
	warp->threads = warp->bytes = warp->written = 0;
	warp->lanes = lanes >= PTX_LANES ? ~0u : (1u << lanes) - 1;
	for (uint32_t l = 0; l < PTX_LANES; l++) {
		uint32_t thread = first + l;

		warp->tid[0][l] = thread % launch->block[0];
		warp->tid[1][l] = thread / launch->block[0] % launch->block[1];
		warp->top[l] = grid->localstride;
		warp->tid[2][l] = thread / launch->block[0] / launch->block[1];
	}
	return ptx_warp_begin(warp, grid->body);
}

struct ptx_block *ptx_block_new(struct ptx_worker *worker, uint64_t number)
{
	struct ptx_grid *grid = worker->grid;
	const struct ptx_launch *launch = grid->launch;
	struct ptx_block *block = memory(worker);

	if (!block)
		return NULL;
	block->grid = grid;
	block->next = NULL;
	block->number = number;
	block->ctaid[0] = (uint32_t)(number % launch->grid[0]);
	block->ctaid[1] = (uint32_t)(number / launch->grid[0] % launch->grid[1]);
	block->ctaid[2] = (uint32_t)(number / launch->grid[0] / launch->grid[1]);
	block->smid = launch->multiprocessors ? (uint32_t)(number % launch->multiprocessors) : 0;
	block->alive = grid->blockthreads;
	block->turn = 0;
	memset(block->barriers, 0, sizeof(block->barriers));
	memset(block->shared, 0, grid->sharedbytes);
	for (uint32_t w = 0; w < block->warpcount; w++) {
		if (warp_begin(worker, block, w))
			continue;
		for (; w < block->warpcount; w++) {
			block->warps[w].groupcount = 0;
			block->warps[w].mask = 0;
			block->warps[w].threads = block->warps[w].bytes = 0;
		}
		ptx_block_free(worker, block);
		return NULL;
	}
	return block;
}

/* What a warp wrote is told in larger parts. */
static void touched(struct ptx_warp *warp)
{
	const struct ptx_launch *launch = warp->block->grid->launch;
	uint64_t bytes = warp->written;

	warp->written = 0;
	if (bytes && launch->touch && launch->touch(launch->who, bytes) < 0)
		ptx_fault(warp, PTX_FAULT_MEMORY, 0);
}

bool ptx_block_run(struct ptx_block *block)
{
	struct ptx_grid *grid = block->grid;
	uint32_t stuck = 0;

	for (uint32_t turns = block->warpcount * TURNS; turns && block->alive; turns--) {
		struct ptx_warp *warp = &block->warps[block->turn];

		block->turn = block->turn + 1 == block->warpcount ? 0 : block->turn + 1;
		if (!warp->live)
			continue;
		if (ptx_grid_ended(grid))
			return true;
		bool some = ptx_warp_run(warp);

		touched(warp);
		stuck = some ? 0 : stuck + 1;
		/* all wait at barriers that nobody will complete: as on hardware, only
		 * that here somebody notices */
		if (stuck > block->warpcount * 2) {
			ptx_fault(warp, PTX_FAULT_TRAP, 0);
			return true;
		}
	}
	return !block->alive || ptx_grid_ended(grid);
}
