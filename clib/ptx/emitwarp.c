/* SPDX-License-Identifier: Apache-2.0 */
/* emitwarp.c: what lanes of a warp do together; see collective.c for the operands. */
#include "compile.h"

/* The lanes that take part; older forms have all that are there. */
static bool members(struct ptx_compiler *c, uint32_t operand, uint32_t *at)
{
	struct ptx_place place;

	*at = PTX_NOWHERE;
	if (operand >= c->now->operandcount)
		return true;
	if (!ptx_in(c, operand, PTX_B32, &place))
		return false;
	if (place.width != PTX_W_32)
		return ptx_refuse(c, "the mask has 32 bits");
	*at = place.at;
	return true;
}

static uint32_t second(const struct ptx_compiler *c)
{
	uint32_t reg = c->now->operands[0].second;

	return reg == PTX_NONE ? PTX_NOWHERE : c->slots[reg];
}

static bool words(struct ptx_compiler *c, const struct ptx_place *places, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (places[i].width != PTX_W_32)
			return ptx_refuse(c, "operands have 32 bits");
	}
	return true;
}

static bool shuffle(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	struct ptx_place place[4];
	uint32_t mask;

	if (!ptx_flags(c, PTX_F(SYNC)) || !ptx_operands(c, 4, 5) || !ptx_out(c, 0, PTX_B32, &place[0]) ||
	    !ptx_in(c, 1, PTX_B32, &place[1]) || !ptx_in(c, 2, PTX_U32, &place[2]) || !ptx_in(c, 3, PTX_U32, &place[3]) ||
	    !words(c, place, 4) || !members(c, 4, &mask))
		return false;
	if (now->operation != PTX_DO_UP && now->operation != PTX_DO_DOWN && now->operation != PTX_DO_BFLY &&
	    now->operation != PTX_DO_IDX)
		return ptx_refuse(c, "this form is not supported");
	struct ptx_op *op = ptx_emit(c, PTX_RUN_SHFL);

	if (!op)
		return false;
	op->sub = now->operation;
	op->d = now->operands[0].kind == PTX_OPERAND_SINK ? PTX_NOWHERE : place[0].at;
	op->a = place[1].at;
	op->b = place[2].at;
	op->c = place[3].at;
	op->e = mask;
	op->target = second(c);
	return true;
}

static bool vote(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	bool ballot = now->operation == PTX_DO_BALLOT;
	bool uni = now->flags & PTX_F(UNI);
	struct ptx_place to;
	struct ptx_place from;
	uint32_t mask;

	if (!ptx_flags(c, PTX_F(SYNC) | PTX_F(UNI)) || !ptx_operands(c, 2, 3) ||
	    !ptx_out(c, 0, ballot ? PTX_B32 : PTX_PRED, &to) || !ptx_in(c, 1, PTX_PRED, &from) || !members(c, 2, &mask))
		return false;
	if (!uni && !ballot && now->operation != PTX_DO_ALL && now->operation != PTX_DO_ANY)
		return ptx_refuse(c, "this form is not supported");
	struct ptx_op *op = ptx_emit(c, PTX_RUN_VOTE);

	if (!op)
		return false;
	op->sub = uni ? PTX_DO_NONE : now->operation;
	op->sub2 = from.negated;
	op->d = to.at;
	op->wd = to.width;
	op->a = from.at;
	op->e = mask;
	return true;
}

static bool match(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	struct ptx_place to;
	struct ptx_place from;
	uint32_t mask;

	if (!ptx_flags(c, PTX_F(SYNC)) || !ptx_operands(c, 3, 3) || !ptx_out(c, 0, PTX_B32, &to) ||
	    !ptx_in(c, 1, now->types[0], &from) || !members(c, 2, &mask) || !words(c, &to, now->operands[0].kind != PTX_OPERAND_SINK))
		return false;
	if (now->operation != PTX_DO_ANY && now->operation != PTX_DO_ALL)
		return ptx_refuse(c, "this form is not supported");
	struct ptx_op *op = ptx_emit(c, PTX_RUN_MATCH);

	if (!op)
		return false;
	op->sub = now->operation;
	op->d = now->operands[0].kind == PTX_OPERAND_SINK ? PTX_NOWHERE : to.at;
	op->a = from.at;
	op->wa = from.width;
	op->e = mask;
	op->target = second(c);
	return true;
}

static bool reduce(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	bool real = now->types[0] == PTX_F32;
	struct ptx_place place[2];
	uint32_t mask;

	if (real && !ptx_needs(c, 86, 100))
		return false;
	if (!ptx_flags(c, PTX_F(SYNC) | (real ? PTX_F(NANQ) | PTX_F(ABSOLUTE) : 0)) || !ptx_operands(c, 3, 3) ||
	    !ptx_out(c, 0, PTX_B32, &place[0]) || !ptx_in(c, 1, PTX_B32, &place[1]) || !members(c, 2, &mask) || !words(c, place, 2))
		return false;
	if (now->operation < (real ? PTX_DO_MIN : PTX_DO_AND) || now->operation > PTX_DO_MAX || (!real && ptx_floating(now->types[0])))
		return ptx_refuse(c, "this form is not supported");
	struct ptx_op *op = ptx_emit(c, PTX_RUN_REDUX);

	if (!op)
		return false;
	op->sub = now->operation;
	op->sub2 = (now->flags & PTX_F(ABSOLUTE)) != 0;
	op->mode = now->types[0];
	if (real)
		op->mode |= (now->flags & PTX_F(NANQ) ? PTX_LANE_A : 0) | (now->operation == PTX_DO_MAX ? PTX_LANE_D : 0);
	op->d = place[0].at;
	op->a = place[1].at;
	op->e = mask;
	return true;
}

static bool elect(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	struct ptx_place to;
	uint32_t mask;

	if (!ptx_flags(c, PTX_F(SYNC)) || !ptx_operands(c, 2, 2) || !ptx_out(c, 0, PTX_B32, &to) || !members(c, 1, &mask))
		return false;
	struct ptx_op *op = ptx_emit(c, PTX_RUN_ELECT);

	if (!op)
		return false;
	op->d = now->operands[0].kind == PTX_OPERAND_SINK ? PTX_NOWHERE : to.at;
	op->e = mask;
	op->target = second(c);
	return true;
}

bool ptx_emit_warp(struct ptx_compiler *c)
{
	struct ptx_place to;
	struct ptx_op *op;
	uint32_t mask;

	switch (c->now->opcode) {
	case PTX_OP_SHFL:
		return shuffle(c);
	case PTX_OP_VOTE:
		return vote(c);
	case PTX_OP_MATCH:
		return match(c);
	case PTX_OP_REDUX:
		return reduce(c);
	case PTX_OP_ELECT:
		return elect(c);
	case PTX_OP_ACTIVEMASK:
		if (!ptx_operands(c, 1, 1) || !ptx_out(c, 0, PTX_B32, &to))
			return false;
		op = ptx_emit(c, PTX_RUN_ACTIVEMASK);
		if (!op)
			return false;
		op->d = to.at;
		return true;
	case PTX_OP_BAR: /* bar.warp.sync */
		if (!ptx_flags(c, PTX_F(WARP) | PTX_F(SYNC)) || !ptx_operands(c, 1, 1) || !members(c, 0, &mask))
			return false;
		op = ptx_emit(c, PTX_RUN_WARPSYNC);
		if (!op)
			return false;
		op->e = mask;
		return true;
	default:
		return ptx_refuse(c, "this instruction is not supported");
	}
}
