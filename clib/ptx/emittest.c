/* SPDX-License-Identifier: Apache-2.0 */
/* emittest.c: comparisons, and choosing by them. */
#include "compile.h"

static bool comparison(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[now->typecount - 1];
	bool real = ptx_floating(type);

	/* .lo is a comparison and a half of a product */
	if (now->compare == PTX_CMP_NONE)
		return ptx_refuse(c, "the comparison is missing");
	if (!real && now->compare > PTX_CMP_HS)
		return ptx_refuse(c, "this comparison is for floating point");
	if (now->operation != PTX_DO_NONE && now->operation != PTX_DO_AND && now->operation != PTX_DO_OR &&
	    now->operation != PTX_DO_XOR)
		return ptx_refuse(c, "this operation is not supported here");
	return ptx_flags(c, PTX_F(FTZ) | PTX_F(LO) | PTX_F(HI));
}

static uint32_t mode_of(const struct ptx_instruction *now, uint8_t type)
{
	return PTX_LANE_MODE(type, now->compare, 0) | (now->flags & PTX_F(FTZ) ? PTX_LANE_FTZ : 0) |
	       (now->operation == PTX_DO_AND ? PTX_LANE_A : 0) | (now->operation == PTX_DO_OR ? PTX_LANE_B : 0) |
	       (now->operation == PTX_DO_XOR ? PTX_LANE_C : 0);
}

static bool vector_form(uint8_t type, bool ftz, enum ptx_run_op *form)
{
	switch (type) {
	case PTX_S32:
		*form = PTX_RUN_SETPS32;
		return true;
	case PTX_U32: case PTX_B32:
		*form = PTX_RUN_SETPU32;
		return true;
	case PTX_S64:
		*form = PTX_RUN_SETPS64;
		return true;
	case PTX_U64: case PTX_B64:
		*form = PTX_RUN_SETPU64;
		return true;
	case PTX_F32:
		*form = PTX_RUN_SETPF32;
		return !ftz;
	case PTX_F64:
		*form = PTX_RUN_SETPF64;
		return true;
	default:
		return false;
	}
}

static bool setp(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];
	struct ptx_place to;
	struct ptx_place a;
	struct ptx_place b;
	struct ptx_place third = { .at = 0 };
	enum ptx_run_op form;

	if (now->typecount != 1 || !comparison(c) || !ptx_operands(c, 3, 4))
		return now->typecount == 1 ? false : ptx_refuse(c, "one type is needed");
	if ((now->operandcount == 4) != (now->operation != PTX_DO_NONE))
		return ptx_refuse(c, "this form is not supported");
	if (!ptx_out(c, 0, PTX_PRED, &to) || !ptx_in(c, 1, type, &a) || !ptx_in(c, 2, type, &b) ||
	    (now->operandcount == 4 && !ptx_in(c, 3, PTX_PRED, &third)))
		return false;
	if (a.width != ptx_width_of(type) || b.width != a.width || to.width != PTX_W_PRED)
		return ptx_refuse(c, "an operand is not of this type's size");
	bool vectors = vector_form(type, now->flags & PTX_F(FTZ), &form);
	struct ptx_op *op = ptx_emit(c, vectors ? form : PTX_RUN_LANE2);

	if (!op)
		return false;
	op->d = to.at;
	op->e = now->operands[0].second == PTX_NONE ? PTX_NOWHERE : c->slots[now->operands[0].second];
	op->a = a.at;
	op->wa = a.width;
	op->b = b.at;
	op->wb = b.width;
	op->c = third.at;
	op->wc = PTX_W_PRED;
	if (vectors) {
		op->sub = now->compare;
		op->sub2 = now->operation;
		op->mode = third.negated ? PTX_SETP_NOT : 0;
	} else {
		op->lane = ptx_lane_setp;
		op->mode = mode_of(now, type);
		op->sub2 = third.negated ? PTX_NEGATE_C : 0;
		if (now->operandcount < 4) /* no predicate is read */
			op->c = to.at;
	}
	return true;
}

static bool set(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	uint8_t to = now->types[0];
	uint8_t type = now->types[1];
	uint32_t kind;

	if (now->typecount != 2 || !comparison(c) || !ptx_operands(c, 3, 4))
		return now->typecount == 2 ? false : ptx_refuse(c, "two types are needed");
	switch (to) {
	case PTX_U32: case PTX_S32:
		kind = type == PTX_F16X2 || type == PTX_BF16X2 ? 4 : 0;
		break;
	case PTX_F32:
		kind = 1;
		break;
	case PTX_F16: case PTX_F16X2:
		kind = 2;
		break;
	case PTX_BF16: case PTX_BF16X2:
		kind = 3;
		break;
	case PTX_U16: case PTX_S16:
		kind = 4;
		break;
	default:
		return ptx_refuse(c, "this type is not supported here");
	}
	return ptx_emit_lane(c, ptx_lane_set, mode_of(now, type) | kind << 16, 0, to, type, type,
			     now->operandcount == 4 ? PTX_PRED : 0);
}

static bool select_(struct ptx_compiler *c)
{
	static const enum ptx_run_op forms[] = { PTX_RUN_COUNT, PTX_RUN_SELP16, PTX_RUN_SELP32, PTX_RUN_SELP64 };
	uint8_t type = c->now->types[0];
	struct ptx_place to;
	struct ptx_place a;
	struct ptx_place b;
	struct ptx_place p;

	if (!ptx_flags(c, 0) || !ptx_operands(c, 4, 4) || !ptx_out(c, 0, type, &to) || !ptx_in(c, 1, type, &a) ||
	    !ptx_in(c, 2, type, &b) || !ptx_in(c, 3, PTX_PRED, &p))
		return false;
	if (type == PTX_PRED || to.width != ptx_width_of(type) || a.width != to.width || b.width != to.width)
		return ptx_refuse(c, "an operand is not of this type's size");
	struct ptx_op *op = ptx_emit(c, forms[to.width]);

	if (!op)
		return false;
	op->d = to.at;
	op->a = p.negated ? b.at : a.at;
	op->b = p.negated ? a.at : b.at;
	op->c = p.at;
	return true;
}

/* slct.dtype.ctype d, a, b, c */
static bool slct(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];

	if (now->typecount != 2 || (now->types[1] != PTX_S32 && now->types[1] != PTX_F32))
		return ptx_refuse(c, "this type is not supported here");
	if (!ptx_flags(c, PTX_F(FTZ)) || !ptx_operands(c, 4, 4))
		return false;
	return ptx_emit_lane(c, now->types[1] == PTX_S32 ? ptx_lane_slct : ptx_lane_fslct,
			     type | (now->flags & PTX_F(FTZ) ? PTX_LANE_FTZ : 0), 0, type, type, type, now->types[1]);
}

static bool testp(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];

	if (!ptx_flags(c, 0) || (type != PTX_F32 && type != PTX_F64))
		return ptx_refuse(c, "this type is not supported here");
	if (now->operation < PTX_DO_FINITE || now->operation > PTX_DO_SUBNORMAL)
		return ptx_refuse(c, "this operation is not supported here");
	return ptx_emit_lane(c, ptx_lane_testp, PTX_LANE_MODE(type, now->operation, 0), 0, PTX_PRED, type, 0, 0);
}

bool ptx_emit_test(struct ptx_compiler *c)
{
	if (!c->now->typecount)
		return ptx_refuse(c, "the type is missing");
	switch (c->now->opcode) {
	case PTX_OP_SETP:
		return setp(c);
	case PTX_OP_SET:
		return set(c);
	case PTX_OP_SELP:
		return select_(c);
	case PTX_OP_SLCT:
		return slct(c);
	case PTX_OP_TESTP:
		return testp(c);
	default:
		return ptx_refuse(c, "this instruction is not supported");
	}
}
