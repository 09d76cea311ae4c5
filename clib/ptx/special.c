/* SPDX-License-Identifier: Apache-2.0 */
/* special.c: special registers. SPECIAL: sub is which, sub2 the lane (0..3 for x..w). */
#include <string.h>
#include <time.h>

#include "machine.h"

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static uint64_t globaltime(void)
{
	struct timespec time;

	clock_gettime(CLOCK_REALTIME, &time);
	return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

/* Cycles of the modelled clock since the launch. */
static uint64_t cycles(const struct ptx_warp *warp)
{
	const struct ptx_grid *grid = warp->block->grid;
	uint64_t mhz = grid->launch->clockmhz ? grid->launch->clockmhz : 1000;

	return (now() - grid->startns) * mhz / 1000;
}

static uint64_t common(const struct ptx_warp *warp, const struct ptx_op *op)
{
	const struct ptx_block *block = warp->block;
	const struct ptx_launch *launch = block->grid->launch;
	const uint64_t dynamic = launch->shared;

	switch (op->sub) {
	case PTX_SR_NTID:
		return op->sub2 < 3 ? launch->block[op->sub2] : 1;
	case PTX_SR_CTAID:
	case PTX_SR_CLUSTERID:
		return op->sub2 < 3 ? block->ctaid[op->sub2] : 0;
	case PTX_SR_NCTAID:
	case PTX_SR_NCLUSTERID:
		return op->sub2 < 3 ? launch->grid[op->sub2] : 1;
	case PTX_SR_CLUSTER_NCTAID:
	case PTX_SR_CLUSTER_NCTARANK:
		return 1; /* a cluster is one block */
	case PTX_SR_WARPID:
		return warp->index;
	case PTX_SR_NWARPID:
		return block->warpcount;
	case PTX_SR_SMID:
		return block->smid;
	case PTX_SR_NSMID:
		return launch->multiprocessors ? launch->multiprocessors : 1;
	case PTX_SR_GRIDID:
		return launch->gridid;
	case PTX_SR_CLOCK:
	case PTX_SR_CLOCK64:
		return cycles(warp);
	case PTX_SR_CLOCK_HI:
		return cycles(warp) >> 32;
	case PTX_SR_GLOBALTIMER:
	case PTX_SR_GLOBALTIMER_LO:
		return globaltime();
	case PTX_SR_GLOBALTIMER_HI:
		return globaltime() >> 32;
	case PTX_SR_DYNAMIC_SMEM_SIZE:
		return dynamic;
	case PTX_SR_TOTAL_SMEM_SIZE:
	case PTX_SR_AGGR_SMEM_SIZE:
		return dynamic + launch->function->sharedbytes;
	default: /* environment registers, counters of performance */
		return 0;
	}
}

void ptx_special(struct ptx_warp *warp, const struct ptx_op *op, void *column)
{
	uint64_t *to = column;
	uint64_t same = 0;

	switch (op->sub) {
	case PTX_SR_TID:
		for (uint32_t l = 0; l < PTX_LANES; l++)
			to[l] = op->sub2 < 3 ? warp->tid[op->sub2][l] : 0;
		return;
	case PTX_SR_LANEID:
		for (uint32_t l = 0; l < PTX_LANES; l++)
			to[l] = l;
		return;
	case PTX_SR_LANEMASK_EQ:
		for (uint32_t l = 0; l < PTX_LANES; l++)
			to[l] = 1u << l;
		return;
	case PTX_SR_LANEMASK_LT:
		for (uint32_t l = 0; l < PTX_LANES; l++)
			to[l] = (1u << l) - 1;
		return;
	case PTX_SR_LANEMASK_LE:
		for (uint32_t l = 0; l < PTX_LANES; l++)
			to[l] = ~0u >> (31 - l);
		return;
	case PTX_SR_LANEMASK_GE:
		for (uint32_t l = 0; l < PTX_LANES; l++)
			to[l] = ~0u << l;
		return;
	case PTX_SR_LANEMASK_GT:
		for (uint32_t l = 0; l < PTX_LANES; l++)
			to[l] = ~0u << l << 1;
		return;
	default:
		same = common(warp, op);
		for (uint32_t l = 0; l < PTX_LANES; l++)
			to[l] = same;
	}
}

bool ptx_stack(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	struct ptx_frame *frame = warp->frame;
	const uint64_t least = frame->local + frame->body->localbytes;

	for (uint32_t rest = mask; rest; rest &= rest - 1) {
		uint32_t l = (uint32_t)__builtin_ctz(rest);
		uint64_t *top = &warp->top[l];
		uint64_t value = op->a == PTX_NOWHERE ? 0 : ptx_get(ptx_column(frame, op->a), op->wa, l);

		bool none = op->sub == PTX_STACK_TAKE && value > *top;

		if (op->sub == PTX_STACK_TAKE)
			value = (*top - value) & ~(op->imm - 1);
		if (op->sub != PTX_STACK_SAVE) {
			if (none || value < least || value > warp->localstride) {
				ptx_fault(warp, PTX_FAULT_STACK, 0);
				return false;
			}
			*top = value;
		}
		if (op->d != PTX_NOWHERE)
			ptx_put(frame->columns + op->d, op->wd, l, *top);
	}
	return true;
}
