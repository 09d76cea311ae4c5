/* SPDX-License-Identifier: Apache-2.0 */
/*
 * barrier.c: the barriers of a block. Threads are counted, not warps; those that
 * have ended are not waited for.
 *
 * BARRIER: sub 0 waits, 1 only arrives, 2..4 reduces (popc, and, or); a is the
 * column of the barrier's number, b that of the number of threads or NOWHERE, c
 * the predicate, d the result.
 */
#include "machine.h"

enum { SYNC, ARRIVE, POPC, AND, OR };

static void release(struct ptx_block *block, uint32_t number)
{
	struct ptx_barrier *barrier = &block->barriers[number];

	for (uint32_t w = 0; w < block->warpcount; w++) {
		struct ptx_warp *warp = &block->warps[w];

		for (uint32_t i = 0; i < warp->groupcount; i++) {
			struct ptx_group *group = &warp->groups[i];

			if (group->state != PTX_AT_BARRIER || group->wants != number + 1)
				continue;
			const struct ptx_op *op = &group->frame->body->ops[group->pc];

			if (op->sub >= POPC) {
				for (uint32_t l = 0; l < PTX_LANES; l++) {
					uint32_t value = op->sub == POPC  ? barrier->count
							 : op->sub == AND ? barrier->count == barrier->arrived
									  : barrier->count != 0;

					if (group->mask >> l & 1)
						ptx_put(group->frame->columns + op->d, op->wd, l, value);
				}
			}
			group->pc++;
			group->state = PTX_READY;
			group->wants = 0;
			warp->barred &= ~group->mask;
		}
		/* those that part of a warp waited for are one group again */
		for (uint32_t i = 0; i < warp->groupcount; i++) {
			for (uint32_t j = i + 1; j < warp->groupcount;) {
				struct ptx_group *one = &warp->groups[i];
				struct ptx_group *two = &warp->groups[j];

				if (one->frame == two->frame && one->pc == two->pc && one->state == PTX_READY &&
				    two->state == PTX_READY) {
					one->mask |= two->mask;
					*two = warp->groups[--warp->groupcount];
				} else {
					j++;
				}
			}
		}
	}
	*barrier = (struct ptx_barrier){ 0 };
}

/* With no number of threads given, all of the block that have not ended. */
static bool complete(const struct ptx_block *block, const struct ptx_barrier *barrier)
{
	return barrier->arrived && barrier->arrived >= (barrier->expected == PTX_NONE ? block->alive : barrier->expected);
}

enum ptx_arrival ptx_barrier_arrive(struct ptx_warp *warp, const struct ptx_op *op)
{
	struct ptx_block *block = warp->block;
	uint32_t first = (uint32_t)__builtin_ctz(warp->mask);
	uint64_t number = ptx_get(ptx_column(warp->frame, op->a), op->wa, first);
	uint64_t expected = op->b == PTX_NOWHERE ? PTX_NONE : ptx_get(ptx_column(warp->frame, op->b), op->wb, first);

	if (number >= PTX_BARRIERS || (expected != PTX_NONE && (expected == 0 || expected % PTX_LANES))) {
		ptx_fault(warp, PTX_FAULT_TRAP, 0);
		return PTX_ARRIVAL_FAULT;
	}
	struct ptx_barrier *barrier = &block->barriers[number];

	if (op->sub >= POPC) {
		uint32_t p = *(const uint32_t *)(const void *)ptx_column(warp->frame, op->c);

		barrier->count += (uint32_t)__builtin_popcount((op->sub2 ? ~p : p) & warp->mask);
	}
	barrier->expected = (uint32_t)expected;
	/* with a number, a warp counts as a whole */
	if (expected != PTX_NONE) {
		uint32_t before = warp->barred;

		if (op->sub != ARRIVE)
			warp->barred |= warp->mask;
		if (op->sub == ARRIVE || !before)
			barrier->arrived += PTX_LANES;
	} else {
		warp->barred |= warp->mask;
		barrier->arrived += (uint32_t)__builtin_popcount(warp->mask);
	}
	if (op->sub == ARRIVE) {
		if (complete(block, barrier))
			release(block, (uint32_t)number);
		return PTX_ARRIVAL_GOES_ON;
	}
	/* waits in any case, so that results are written in one place */
	warp->groups[warp->groupcount++] = (struct ptx_group){
		.frame = warp->frame, .pc = warp->pc, .mask = warp->mask, .state = PTX_AT_BARRIER,
		.wants = (uint32_t)number + 1, .turn = warp->turns,
	};
	warp->mask = 0;
	if (complete(block, barrier))
		release(block, (uint32_t)number);
	return PTX_ARRIVAL_WAITS;
}

void ptx_barrier_exited(struct ptx_block *block)
{
	for (uint32_t i = 0; i < PTX_BARRIERS; i++) {
		if (block->barriers[i].expected == PTX_NONE && complete(block, &block->barriers[i]))
			release(block, i);
	}
}
