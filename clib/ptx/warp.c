/* SPDX-License-Identifier: Apache-2.0 */
/* warp.c: the groups of a warp: which runs, where lanes part and meet, calls and ends. */
#include <stdlib.h>
#include <string.h>

#include "lane.h"
#include "machine.h"

#define FULL 0xffffffffu
#define TURN 20000        /* operations until other warps are let on */
#define LONG_TURN 50000   /* until lanes of the same warp are that wait ahead: loops are to end first */
#define SHORT_TURN 2000   /* that those then have */
#define DEPTH 10000u     /* of calls */

struct ptx_frame *ptx_frame_new(struct ptx_worker *worker, const struct ptx_body *body)
{
	struct ptx_frame **free_ = &worker->frames[body->function->index];
	struct ptx_frame *frame = *free_;

	if (frame) {
		*free_ = frame->next;
	} else {
		frame = malloc(sizeof(*frame));
		if (!frame)
			return NULL;
		frame->columns = aligned_alloc(128, ((size_t)body->framebytes + 255) & ~(size_t)127);
		if (!frame->columns) {
			free(frame);
			return NULL;
		}
	}
	/* what was never written reads the same every time */
	memset(frame->columns, 0, body->framebytes);
	frame->body = body;
	frame->site = NULL;
	frame->parent = NULL;
	frame->depth = 0;
	frame->local = 0;
	return frame;
}

void ptx_frame_free(struct ptx_worker *worker, struct ptx_frame *frame)
{
	struct ptx_frame **free_ = &worker->frames[frame->body->function->index];

	frame->next = *free_;
	*free_ = frame;
}

static void group_add(struct ptx_warp *warp, struct ptx_frame *frame, uint32_t pc, uint32_t mask)
{
	if (!mask)
		return;
	for (uint32_t i = 0; i < warp->groupcount; i++) {
		struct ptx_group *group = &warp->groups[i];

		if (group->frame == frame && group->pc == pc &&
		    (group->state == PTX_READY || group->state == PTX_SYNCING)) {
			group->mask |= mask;
			return;
		}
	}
	warp->groups[warp->groupcount++] = (struct ptx_group){ .frame = frame, .pc = pc, .mask = mask,
							       .state = PTX_READY, .turn = warp->turns };
}

static void group_drop(struct ptx_warp *warp, uint32_t i)
{
	warp->groups[i] = warp->groups[--warp->groupcount];
}

/* Those whose others have come, or will not come any more. */
static void settle_syncing(struct ptx_warp *warp)
{
	for (uint32_t i = 0; i < warp->groupcount; i++) {
		struct ptx_group *group = &warp->groups[i];

		if (group->state == PTX_SYNCING && !(group->wants & warp->live & ~group->mask))
			group->state = PTX_READY;
	}
}

/* Takes the group that is to run out of the list; false: none can. */
static bool choose(struct ptx_warp *warp, bool fair)
{
	uint32_t best = PTX_NONE;

	settle_syncing(warp);
	for (int forced = 0; best == PTX_NONE && forced < 2; forced++) {
		for (uint32_t i = 0; i < warp->groupcount; i++) {
			const struct ptx_group *group = &warp->groups[i];
			const struct ptx_group *other = &warp->groups[best == PTX_NONE ? 0 : best];

			/* lanes that wait for some that are elsewhere for good go on without them */
			if (group->state != PTX_READY && !(forced && group->state == PTX_SYNCING))
				continue;
			if (best == PTX_NONE || (fair ? group->turn < other->turn
						      : group->frame->depth != other->frame->depth
								? group->frame->depth > other->frame->depth
								: group->pc < other->pc))
				best = i;
		}
		if (best == PTX_NONE && !forced) {
			/* some at a barrier may yet come */
			for (uint32_t i = 0; i < warp->groupcount; i++) {
				if (warp->groups[i].state != PTX_SYNCING)
					return false;
			}
		}
	}
	if (best == PTX_NONE)
		return false;
	struct ptx_group group = warp->groups[best];

	group_drop(warp, best);
	warp->frame = group.frame;
	warp->pc = group.pc;
	warp->mask = group.mask;
	warp->synced = group.state == PTX_SYNCING || group.wants ? group.pc : PTX_NONE;
	return true;
}

/* The next place ahead where others wait in this call. */
static void aim(struct ptx_warp *warp)
{
	warp->stop = PTX_NONE;
	for (uint32_t i = 0; i < warp->groupcount; i++) {
		const struct ptx_group *group = &warp->groups[i];

		if (group->frame == warp->frame && group->state != PTX_AT_BARRIER && group->pc > warp->pc &&
		    group->pc < warp->stop)
			warp->stop = group->pc;
	}
}

static void put_back(struct ptx_warp *warp)
{
	group_add(warp, warp->frame, warp->pc, warp->mask);
	warp->mask = 0;
}

static void leave_frame(struct ptx_warp *warp, struct ptx_frame *frame, uint32_t lanes)
{
	frame->lanes &= ~lanes;
	if (!frame->lanes)
		ptx_frame_free(warp->worker, frame);
}

static void lanes_exit(struct ptx_warp *warp, uint32_t lanes)
{
	for (struct ptx_frame *frame = warp->frame; frame;) {
		struct ptx_frame *parent = frame->parent;

		leave_frame(warp, frame, lanes);
		frame = parent;
	}
	warp->live &= ~lanes;
	warp->block->alive -= (uint32_t)__builtin_popcount(lanes);
	ptx_barrier_exited(warp->block);
}

static void move_values(struct ptx_warp *warp, const struct ptx_moves *moves, const struct ptx_frame *from,
			const struct ptx_frame *to, uint32_t mask)
{
	for (uint32_t i = 0; i < moves->count; i++) {
		const struct ptx_move *move = &moves->list[i];

		for (uint32_t rest = mask; rest; rest &= rest - 1) {
			uint32_t l = (uint32_t)__builtin_ctz(rest);
			unsigned char *local = warp->local + l * warp->localstride;
			unsigned char value[8] = { 0 };
			const unsigned char *source = value;

			if (move->fromcolumn) {
				uint64_t word = ptx_get(ptx_column(from, move->from), move->width, l);

				memcpy(value, &word, sizeof(value));
			} else {
				source = local + from->local + move->from;
			}
			if (move->tocolumn) {
				uint64_t word = 0;

				memcpy(&word, source, move->bytes < 8 ? move->bytes : 8);
				ptx_put(to->columns + move->to, move->width, l, word);
			} else {
				memmove(local + to->local + move->to, source, move->bytes);
			}
		}
	}
}

static bool call(struct ptx_warp *warp, const struct ptx_callsite *site, uint32_t mask, uint32_t returnto)
{
	const struct ptx_frame *caller = warp->frame;
	uint64_t local = caller->local + caller->body->localbytes;
	uint64_t room = warp->localstride;

	/* below what lanes have taken by alloca */
	for (uint32_t rest = warp->block->grid->body->stackbytes == UINT64_MAX ? mask : 0; rest; rest &= rest - 1) {
		uint64_t top = warp->top[__builtin_ctz(rest)];

		room = top < room ? top : room;
	}
	if (local + site->body->localbytes > room || caller->depth >= DEPTH) {
		ptx_fault(warp, PTX_FAULT_STACK, 0);
		return false;
	}
	struct ptx_frame *frame = ptx_frame_new(warp->worker, site->body);

	if (!frame) {
		ptx_fault(warp, PTX_FAULT_MEMORY, 0);
		return false;
	}
	frame->parent = warp->frame;
	frame->site = site;
	frame->returnto = returnto;
	frame->depth = caller->depth + 1;
	frame->local = local;
	frame->lanes = mask;
	move_values(warp, &site->in, caller, frame, mask);
	group_add(warp, frame, 0, mask);
	return true;
}

/* Which function an address is of; the code's count for none. */
static uint32_t function_at(const struct ptx_code *code, uint64_t address)
{
	struct ptx_function *const *functions = code->module->functions;
	uint32_t low = 0;
	uint32_t high = code->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		uint64_t here = ptx_function_address(functions[middle]);

		if (here == address)
			return middle;
		if (here < address)
			low = middle + 1;
		else
			high = middle;
	}
	return code->count;
}

/* By address: lanes may go to different functions. */
static bool call_indirect(struct ptx_warp *warp, const struct ptx_op *op)
{
	const struct ptx_code *code = warp->block->grid->launch->code;
	uint32_t rest = warp->mask;
	uint32_t done = 0;

	while (rest) {
		uint64_t address = ptx_get(ptx_column(warp->frame, op->a), op->wa, (uint32_t)__builtin_ctz(rest));
		uint32_t index = function_at(code, address);
		uint32_t same = 0;

		if (index == code->count || !op->site->bodies[index].body) {
			ptx_fault(warp, PTX_FAULT_PC, address);
			return false;
		}
		for (uint32_t left = rest; left; left &= left - 1) {
			uint32_t l = (uint32_t)__builtin_ctz(left);

			if (ptx_get(ptx_column(warp->frame, op->a), op->wa, l) == address)
				same |= 1u << l;
		}
		if (!call(warp, &op->site->bodies[index], same, warp->pc + 1))
			return false;
		rest &= ~same;
		done |= same;
	}
	warp->mask &= ~done;
	return true;
}

static void give_back(struct ptx_warp *warp)
{
	struct ptx_frame *frame = warp->frame;
	uint32_t mask = warp->mask;

	if (!frame->parent) {
		lanes_exit(warp, mask);
	} else {
		move_values(warp, &frame->site->out, frame, frame->parent, mask);
		group_add(warp, frame->parent, frame->returnto, mask);
		leave_frame(warp, frame, mask);
	}
	warp->mask = 0;
}

/* Lanes part: those in taken go to target. */
static void part(struct ptx_warp *warp, uint32_t taken, uint32_t target)
{
	uint32_t rest = warp->mask & ~taken;
	uint32_t pc = warp->pc;

	group_add(warp, warp->frame, target, taken);
	group_add(warp, warp->frame, pc + 1, rest);
	warp->mask = 0;
}

static void branch_table(struct ptx_warp *warp, const struct ptx_op *op)
{
	for (uint32_t rest = warp->mask; rest; rest &= rest - 1) {
		uint32_t l = (uint32_t)__builtin_ctz(rest);
		uint64_t index = ptx_get(ptx_column(warp->frame, op->a), op->wa, l);

		/* beyond the table is undefined: as the last */
		if (index >= op->e)
			index = op->e - 1;
		group_add(warp, warp->frame, op->list[index], 1u << l);
	}
	warp->mask = 0;
}

/* What the engine left to do; false after a fault. */
static bool control(struct ptx_warp *warp, bool *resting)
{
	const struct ptx_op *op = &warp->frame->body->ops[warp->pc];
	uint32_t taken;

	warp->left--;
	warp->threads += (uint64_t)__builtin_popcount(warp->mask);
	switch (op->code) {
	case PTX_RUN_BRAP:
		taken = *(const uint32_t *)(const void *)ptx_column(warp->frame, op->a);
		part(warp, (op->sub ? ~taken : taken) & warp->mask, op->target);
		return true;
	case PTX_RUN_BRX:
		branch_table(warp, op);
		return true;
	case PTX_RUN_CALL:
		if (!call(warp, op->site, warp->mask, warp->pc + 1))
			return false;
		warp->mask = 0;
		return true;
	case PTX_RUN_CALLI:
		return call_indirect(warp, op);
	case PTX_RUN_RET:
		give_back(warp);
		return true;
	case PTX_RUN_EXIT:
		lanes_exit(warp, warp->mask);
		warp->mask = 0;
		return true;
	case PTX_RUN_BARRIER:
		switch (ptx_barrier_arrive(warp, op)) {
		case PTX_ARRIVAL_FAULT:
			return false;
		case PTX_ARRIVAL_GOES_ON:
			warp->pc++;
			return true;
		default:
			return true;
		}
	case PTX_RUN_SLEEP:
		warp->pc++;
		put_back(warp);
		*resting = true;
		return true;
	case PTX_RUN_BUILTIN:
		if (!ptx_builtin(warp, op))
			return false;
		warp->pc++;
		return true;
	default:
		ptx_fault(warp, PTX_FAULT_TRAP, 0);
		return false;
	}
}

/* The running group waits for lanes that are to take part, with those that do. */
static void wait_for(struct ptx_warp *warp)
{
	uint32_t i = 0;

	while (i < warp->groupcount && (warp->groups[i].frame != warp->frame || warp->groups[i].pc != warp->pc ||
					warp->groups[i].state == PTX_AT_BARRIER))
		i++;
	/* or those who came here by a call of their own */
	for (uint32_t j = 0; i == warp->groupcount && j < warp->groupcount; j++) {
		const struct ptx_group *other = &warp->groups[j];

		if (other->state == PTX_SYNCING && other->pc == warp->pc && other->frame->body == warp->frame->body &&
		    ptx_calls_meet(warp, other->frame))
			i = j;
	}
	struct ptx_group *group = &warp->groups[i];

	if (i == warp->groupcount) {
		warp->groupcount++;
		*group = (struct ptx_group){ .frame = warp->frame, .pc = warp->pc, .turn = warp->turns };
	}
	group->mask |= warp->mask;
	group->wants |= warp->wants;
	group->state = PTX_SYNCING;
	warp->mask = 0;
}

bool ptx_warp_begin(struct ptx_warp *warp, const struct ptx_body *body)
{
	struct ptx_frame *frame = ptx_frame_new(warp->worker, body);

	if (!frame)
		return false;
	frame->lanes = warp->lanes;
	warp->live = warp->lanes;
	warp->groupcount = 0;
	warp->turns = 0;
	warp->fair = false;
	warp->waited = 0;
	warp->barred = 0;
	warp->carry = 0;
	warp->guarded = 0;
	warp->synced = PTX_NONE;
	warp->last = (struct ptx_range){ 0 };
	warp->mask = 0;
	group_add(warp, frame, 0, warp->lanes);
	return true;
}

bool ptx_warp_run(struct ptx_warp *warp)
{
	const struct ptx_engine *engine = warp->block->grid->engine;
	bool resting = false;
	bool some = false;
	int64_t budget = TURN;

	while (!resting && budget > 0 && choose(warp, warp->fair)) {
		bool shared = warp->groupcount > 0;
		int64_t turn = !shared ? TURN : warp->fair ? SHORT_TURN : LONG_TURN;

		some = true;
		warp->fair = false;
		warp->left = turn;
		warp->turns++;
		aim(warp);
		while (warp->mask) {
			enum ptx_reason reason = warp->mask == FULL              ? engine->full(warp)
						 : warp->mask & (warp->mask - 1) ? engine->masked(warp)
										 : engine->single(warp);

			if (reason == PTX_STOP_MASK)
				continue;
			if (reason == PTX_STOP_FAULT)
				return true;
			if (reason == PTX_STOP_CONTROL) {
				if (!control(warp, &resting))
					return true;
				if (warp->mask && warp->groupcount)
					aim(warp);
				continue;
			}
			if (reason == PTX_STOP_SYNC) {
				wait_for(warp);
				continue;
			}
			put_back(warp);
		}
		budget -= turn - warp->left;
		warp->waited = shared ? warp->waited + turn - warp->left : 0;
		if (warp->waited >= LONG_TURN) {
			warp->fair = true;
			warp->waited = 0;
		}
	}
	return some;
}

void ptx_warp_end(struct ptx_warp *warp)
{
	/* after a fault: whatever calls are still open */
	if (warp->mask)
		group_add(warp, warp->frame, warp->pc, warp->mask | warp->guarded);
	while (warp->groupcount) {
		struct ptx_group group = warp->groups[--warp->groupcount];

		for (struct ptx_frame *frame = group.frame; frame;) {
			struct ptx_frame *parent = frame->parent;

			leave_frame(warp, frame, group.mask);
			frame = parent;
		}
	}
	warp->mask = 0;
}
