/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.c: what lanes of a warp do together.
 *
 * SHFL: a value, b lane or distance, c clamp and mask; sub PTX_DO_UP ...; d, e2 in target
 * VOTE: a predicate (sub2: negated), sub PTX_DO_ALL ...; d (wd: predicate or word)
 * MATCH: a value, sub PTX_DO_ANY or ALL; d, predicate in target
 * REDUX: a value, sub PTX_DO_ADD ..., mode the type, of a float that of ptx_lane_fmin; sub2: of its magnitude; d
 * ELECT: d, predicate in target
 * e is the column of the lanes that take part in all of them.
 */
#include "lane.h"
#include "machine.h"

static void shuffle(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	const struct ptx_frame *frame = warp->frame;
	const uint32_t *b = (const uint32_t *)(const void *)ptx_column(frame, op->b);
	const uint32_t *c = (const uint32_t *)(const void *)ptx_column(frame, op->c);
	uint32_t a[PTX_LANES];
	uint32_t *d = op->d == PTX_NOWHERE ? NULL : (uint32_t *)(void *)(frame->columns + op->d);
	uint32_t good = 0;
	uint32_t value[PTX_LANES];

	for (uint32_t l = 0; l < PTX_LANES; l++)
		a[l] = ((const uint32_t *)(const void *)ptx_column(frame, op->a))[l];
	for (uint32_t l = 0; l < PTX_LANES; l++) {
		uint32_t by = b[l] & 31;
		uint32_t clamp = c[l] & 31;
		uint32_t segment = c[l] >> 8 & 31;
		uint32_t most = (l & segment) | (clamp & ~segment);
		uint32_t least = l & segment;
		uint32_t from = l;
		bool fits;

		switch (op->sub) {
		case PTX_DO_UP:
			from = l - by;
			fits = (int32_t)from >= (int32_t)most;
			break;
		case PTX_DO_DOWN:
			from = l + by;
			fits = from <= most;
			break;
		case PTX_DO_BFLY:
			from = l ^ by;
			fits = from <= most;
			break;
		default:
			from = least | (by & ~segment);
			fits = from <= most;
			break;
		}
		if (!fits)
			from = l;
		good |= (uint32_t)fits << l;
		value[l] = a[from & 31];
	}
	for (uint32_t l = 0; d && l < PTX_LANES; l++) {
		if (mask >> l & 1)
			d[l] = value[l];
	}
	if (op->target != PTX_NOWHERE) {
		uint32_t *p = (uint32_t *)(void *)(frame->columns + op->target);

		*p = (*p & ~mask) | (good & mask);
	}
}

static void vote(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	const struct ptx_frame *frame = warp->frame;
	uint32_t p = *(const uint32_t *)(const void *)ptx_column(frame, op->a);
	uint32_t part = op->e == PTX_NOWHERE ? mask
					     : ((const uint32_t *)(const void *)ptx_column(frame, op->e))[__builtin_ctz(mask)] & mask;
	bool holds;

	p = (op->sub2 ? ~p : p) & part;
	if (op->sub == PTX_DO_BALLOT) {
		uint32_t *d = (uint32_t *)(void *)(frame->columns + op->d);

		for (uint32_t l = 0; l < PTX_LANES; l++) {
			if (mask >> l & 1)
				d[l] = p;
		}
		return;
	}
	if (op->sub == PTX_DO_ALL)
		holds = p == part;
	else if (op->sub == PTX_DO_ANY)
		holds = p != 0;
	else
		holds = p == part || !p; /* uni */
	uint32_t *d = (uint32_t *)(void *)(frame->columns + op->d);

	*d = holds ? *d | mask : *d & ~mask;
}

static void match(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	const struct ptx_frame *frame = warp->frame;
	const unsigned char *a = ptx_column(frame, op->a);
	uint32_t part = ((const uint32_t *)(const void *)ptx_column(frame, op->e))[__builtin_ctz(mask)] & mask;
	uint32_t result[PTX_LANES] = { 0 };
	bool all = true;

	for (uint32_t l = 0; l < PTX_LANES; l++) {
		for (uint32_t o = 0; o < PTX_LANES; o++) {
			if ((part >> o & 1) && ptx_get(a, op->wa, o) == ptx_get(a, op->wa, l))
				result[l] |= 1u << o;
		}
		if ((part >> l & 1) && result[l] != part)
			all = false;
	}
	for (uint32_t l = 0; l < PTX_LANES; l++) {
		if (mask >> l & 1 && op->d != PTX_NOWHERE)
			((uint32_t *)(void *)(frame->columns + op->d))[l] = op->sub == PTX_DO_ANY ? result[l] : all ? part : 0;
	}
	if (op->target != PTX_NOWHERE) {
		uint32_t *p = (uint32_t *)(void *)(frame->columns + op->target);

		*p = all ? *p | mask : *p & ~mask;
	}
}

static uint32_t reduced(const struct ptx_op *op, uint32_t sum, uint32_t value)
{
	bool sign = op->mode == PTX_S32;

	switch (op->sub) {
	case PTX_DO_ADD:
		return sum + value;
	case PTX_DO_AND:
		return sum & value;
	case PTX_DO_OR:
		return sum | value;
	case PTX_DO_XOR:
		return sum ^ value;
	case PTX_DO_MIN:
		return (sign ? (int32_t)value < (int32_t)sum : value < sum) ? value : sum;
	default:
		return (sign ? (int32_t)value > (int32_t)sum : value > sum) ? value : sum;
	}
}

static void reduce(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	const struct ptx_frame *frame = warp->frame;
	const uint32_t *a = (const uint32_t *)(const void *)ptx_column(frame, op->a);
	uint32_t part = ((const uint32_t *)(const void *)ptx_column(frame, op->e))[__builtin_ctz(mask)] & mask;
	bool real = PTX_LANE_TYPE(op->mode) == PTX_F32;
	uint32_t sum = 0;
	bool first = true;

	for (uint32_t l = 0; l < PTX_LANES; l++) {
		if (!(part >> l & 1))
			continue;
		uint32_t value = op->sub2 ? a[l] & 0x7fffffff : a[l];

		/* alone, a NaN still becomes the one that there is */
		if (real)
			sum = (uint32_t)ptx_lane_fmin(first ? value : sum, value, 0, op->mode);
		else
			sum = first ? value : reduced(op, sum, value);
		first = false;
	}
	for (uint32_t l = 0; l < PTX_LANES; l++) {
		if (mask >> l & 1)
			((uint32_t *)(void *)(frame->columns + op->d))[l] = sum;
	}
}

static void elect(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	const struct ptx_frame *frame = warp->frame;
	uint32_t part = ((const uint32_t *)(const void *)ptx_column(frame, op->e))[__builtin_ctz(mask)] & mask;
	uint32_t leader = (uint32_t)__builtin_ctz(part ? part : mask);

	for (uint32_t l = 0; op->d != PTX_NOWHERE && l < PTX_LANES; l++) {
		if (mask >> l & 1)
			((uint32_t *)(void *)(frame->columns + op->d))[l] = leader;
	}
	if (op->target != PTX_NOWHERE) {
		uint32_t *p = (uint32_t *)(void *)(frame->columns + op->target);

		*p = (*p & ~mask) | 1u << leader;
	}
}

bool ptx_collective(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	switch (op->code) {
	case PTX_RUN_SHFL:
		shuffle(warp, op, mask);
		break;
	case PTX_RUN_VOTE:
		vote(warp, op, mask);
		break;
	case PTX_RUN_MATCH:
		match(warp, op, mask);
		break;
	case PTX_RUN_REDUX:
		reduce(warp, op, mask);
		break;
	case PTX_RUN_MMA:
		ptx_mma(warp, op, mask);
		break;
	case PTX_RUN_MATRIX:
		return ptx_matrix(warp, op, mask);
	default:
		elect(warp, op, mask);
		break;
	}
	return true;
}
