/* SPDX-License-Identifier: Apache-2.0 */
/* reach.c: from a kernel's address to the bytes, or a fault. */
#include "machine.h"

void ptx_fault(struct ptx_warp *warp, enum ptx_fault fault, uint64_t address)
{
	struct ptx_grid *grid = warp->block->grid;

	pthread_mutex_lock(&grid->lock);
	if (grid->outcome->fault == PTX_FAULT_NONE) {
		grid->outcome->fault = fault;
		grid->outcome->address = address;
		grid->outcome->line = warp->frame && warp->pc < warp->frame->body->count
					      ? warp->frame->body->ops[warp->pc].line
					      : 0;
	}
	pthread_mutex_unlock(&grid->lock);
	__atomic_store_n(&grid->ended, true, __ATOMIC_RELAXED);
}

const struct ptx_range *ptx_range_of(const struct ptx_launch *launch, uint64_t address)
{
	size_t low = 0;
	size_t high = launch->rangecount;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct ptx_range *range = &launch->ranges[middle];

		if (address < range->start)
			high = middle;
		else if (address - range->start >= range->bytes)
			low = middle + 1;
		else
			return range;
	}
	return NULL;
}

static unsigned char *inside(unsigned char *start, uint64_t size, uint64_t offset, uint64_t bytes)
{
	return offset <= size && size - offset >= bytes ? start + offset : NULL;
}

unsigned char *ptx_reach(struct ptx_warp *warp, uint32_t lane, uint64_t address, uint64_t bytes, bool write)
{
	const struct ptx_launch *launch = warp->block->grid->launch;
	uint64_t offset = address & ((1ull << PTX_WINDOW_SHIFT) - 1);
	unsigned char *found = NULL;

	if (!(bytes & (bytes - 1)) && address & (bytes - 1)) {
		ptx_fault(warp, PTX_FAULT_MISALIGNED, address);
		return NULL;
	}
	switch (address >> PTX_WINDOW_SHIFT) {
	case PTX_WINDOW_SHARED:
		found = inside(warp->shared, warp->sharedbytes, offset, bytes);
		break;
	case PTX_WINDOW_LOCAL:
		found = inside(warp->local + lane * warp->localstride, warp->localstride, offset, bytes);
		break;
	case PTX_WINDOW_PARAM:
		/* a kernel's parameters are only read */
		if (!write)
			found = inside((unsigned char *)(uintptr_t)launch->parameters, launch->function->parameterbytes,
				       offset, bytes);
		break;
	default: {
		const struct ptx_range *range = ptx_range_of(launch, address);

		/* a piece of memory may continue in the next one when that adjoins here, too */
		if (range && !(write && range->readonly)) {
			uint64_t room = range->bytes - (address - range->start);

			for (const struct ptx_range *next = range; room < bytes; room += next->bytes) {
				const struct ptx_range *last = next++;

				if (next == launch->ranges + launch->rangecount || next->start != last->start + last->bytes ||
				    next->delta != last->delta || (write && next->readonly))
					break;
			}
			if (room >= bytes) {
				found = (unsigned char *)(uintptr_t)(address + range->delta);
				warp->last = *range;
			}
		}
		break;
	}
	}
	if (!found)
		ptx_fault(warp, PTX_FAULT_ADDRESS, address);
	return found;
}
