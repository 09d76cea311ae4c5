/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.c: lanes that came to the same instruction by calls of their own. A call
 * has a frame, and lanes that are called later get another; where they are to
 * work together, the two calls become one. That changes nothing for either: each
 * lane has its own places in a frame.
 */
#include "compile.h"
#include "machine.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool in_frame(const struct ptx_frame *frame, uint32_t at, uint8_t width)
{
	return width < PTX_W_NONE && at + ptx_column_bytes((enum ptx_width)width) <= frame->body->framebytes;
}

static void take(unsigned char *to, const unsigned char *from, uint8_t width, uint32_t lanes)
{
	for (; lanes; lanes &= lanes - 1) {
		uint32_t lane = (uint32_t)__builtin_ctz(lanes);

		ptx_put(to, width, lane, ptx_get(from, width, lane));
	}
}

static void take_registers(const struct ptx_frame *keep, const struct ptx_frame *drop)
{
	const struct ptx_function *function = drop->body->function;

	for (uint32_t i = 0; i < function->registercount; i++) {
		const struct ptx_register *reg = &function->registers[i];
		uint8_t width = (uint8_t)ptx_register_width(reg);

		for (uint32_t v = 0; v < (reg->vector ? reg->vector : 1u); v++) {
			uint32_t at = drop->body->slots[i] + v * ptx_column_bytes((enum ptx_width)width);

			take(keep->columns + at, drop->columns + at, width, drop->lanes);
		}
	}
}

static void replace(struct ptx_frame *from, struct ptx_frame *drop, struct ptx_frame *keep)
{
	for (; from; from = from->parent)
		if (from->parent == drop)
			from->parent = keep;
}

static bool unify(struct ptx_warp *warp, struct ptx_frame *keep, struct ptx_frame *drop)
{
	if (keep == drop)
		return true;
	if (keep->body != drop->body || keep->site != drop->site || keep->returnto != drop->returnto ||
	    keep->depth != drop->depth || keep->local != drop->local || !keep->parent || !drop->parent ||
	    !unify(warp, keep->parent, drop->parent))
		return false;
	take_registers(keep, drop);
	keep->lanes |= drop->lanes;
	for (uint32_t i = 0; i < warp->groupcount; i++) {
		if (warp->groups[i].frame == drop)
			warp->groups[i].frame = keep;
		replace(warp->groups[i].frame, drop, keep);
	}
	replace(warp->frame, drop, keep);
	if (warp->frame == drop)
		warp->frame = keep;
	ptx_frame_free(warp->worker, drop);
	return true;
}

bool ptx_calls_meet(struct ptx_warp *warp, struct ptx_frame *other)
{
	const struct ptx_op *op = &warp->frame->body->ops[warp->pc];
	const struct place {
		uint32_t at;
		uint8_t width;
	} used[] = { { op->a, op->wa }, { op->b, op->wb }, { op->c, op->wc }, { op->e, PTX_W_32 } };
	_Alignas(8) unsigned char kept[COUNT(used)][PTX_LANES * 8];
	uint32_t lanes = warp->mask;

	/* what the instruction uses may be in places that are no register's */
	for (size_t i = 0; i < COUNT(used); i++) {
		if (in_frame(warp->frame, used[i].at, used[i].width))
			take(kept[i], warp->frame->columns + used[i].at, used[i].width, lanes);
	}
	if (!unify(warp, other, warp->frame))
		return false;
	for (size_t i = 0; i < COUNT(used); i++) {
		if (in_frame(other, used[i].at, used[i].width))
			take(other->columns + used[i].at, kept[i], used[i].width, lanes);
	}
	return true;
}
