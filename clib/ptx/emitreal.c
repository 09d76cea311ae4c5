/* SPDX-License-Identifier: Apache-2.0 */
/* emitreal.c: floating point arithmetic. */
#include "compile.h"

static bool small(uint8_t type)
{
	return type == PTX_F16 || type == PTX_BF16 || type == PTX_F16X2 || type == PTX_BF16X2;
}

static uint32_t mode_of(const struct ptx_instruction *now)
{
	return now->types[0] | (now->flags & PTX_F(FTZ) ? PTX_LANE_FTZ : 0) | (now->flags & PTX_F(SAT) ? PTX_LANE_SAT : 0);
}

/* add.f32.f16: a half that is an f32 before anything else; of fma two. The last is an f32. */
static bool mixed(struct ptx_compiler *c, ptx_lane lane, uint32_t operands)
{
	const struct ptx_instruction *now = c->now;
	uint8_t from = now->types[1];
	struct ptx_place place[4];

	if (!ptx_needs(c, 86, 100))
		return false;
	if ((from != PTX_F16 && from != PTX_BF16) || now->opcode == PTX_OP_MUL || now->flags & ~PTX_F(SAT) ||
	    now->round > PTX_ROUND_RP)
		return ptx_refuse(c, "this mixture of types is not supported");
	if (!ptx_out(c, 0, PTX_F32, &place[0]))
		return false;
	for (uint32_t i = 1; i <= operands; i++) {
		bool narrow = i < operands;

		if (!ptx_in(c, i, narrow ? from : PTX_F32, &place[i]))
			return false;
		if (place[i].width != (narrow ? PTX_W_16 : PTX_W_32))
			return ptx_refuse(c, "an operand is not of this type's size");
		if (!narrow)
			continue;
		struct ptx_op *op = ptx_emit(c, PTX_RUN_LANE);

		if (!op)
			return false;
		op->lane = ptx_lane_convert;
		op->mode = PTX_LANE_MODE(PTX_F32, from, 0);
		op->a = op->b = op->c = place[i].at;
		op->wa = op->wb = op->wc = PTX_W_16;
		place[i] = (struct ptx_place){ .at = ptx_temporary(c), .width = PTX_W_32 };
		op->d = place[i].at;
		op->wd = PTX_W_32;
	}
	struct ptx_op *op = ptx_emit(c, PTX_RUN_LANE);

	if (!op)
		return false;
	op->lane = lane;
	op->mode = PTX_F32 | (now->flags & PTX_F(SAT) ? PTX_LANE_SAT : 0);
	op->sub = now->round == PTX_ROUND_RN ? 0 : now->round;
	op->d = place[0].at;
	op->a = place[1].at;
	op->b = place[2].at;
	op->c = place[operands].at;
	op->wd = op->wa = op->wb = op->wc = PTX_W_32;
	return true;
}

/* add, sub, mul, fma; forms for f32, f32 with ftz, f64 */
static bool arithmetic(struct ptx_compiler *c, ptx_lane lane, const enum ptx_run_op forms[3], uint32_t operands)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];
	bool nearest = now->round == PTX_ROUND_NONE || now->round == PTX_ROUND_RN;
	bool plain = nearest && !(now->flags & (PTX_F(SAT) | PTX_F(RELU)));
	uint32_t mode = mode_of(now);

	if (!ptx_flags(c, PTX_F(FTZ) | PTX_F(SAT) | (operands == 3 ? PTX_F(RELU) | PTX_F(OOB) : 0)) ||
	    !ptx_operands(c, operands + 1, operands + 1))
		return false;
	if (now->typecount == 2 && type == PTX_F32)
		return mixed(c, lane, operands);
	if (now->typecount != 1)
		return ptx_refuse(c, "mixed types are not supported");
	if (type == PTX_F32X2) {
		if (!ptx_needs(c, 86, 100))
			return false;
		if (now->flags & ~PTX_F(FTZ))
			return ptx_refuse(c, "this modifier is not supported here");
	}
	if (now->flags & PTX_F(RELU) && !small(type))
		return ptx_refuse(c, ".relu is for halves");
	if (now->flags & PTX_F(OOB)) {
		if (!small(type))
			return ptx_refuse(c, ".oob is for halves");
		if (!ptx_needs(c, 81, 90))
			return false;
		mode |= PTX_LANE_B;
	}
	if (plain && type == PTX_F32)
		return ptx_emit_same(c, now->flags & PTX_F(FTZ) ? forms[1] : forms[0], type, operands);
	if (plain && type == PTX_F64 && !(now->flags & PTX_F(FTZ)))
		return ptx_emit_same(c, forms[2], type, operands);
	if (small(type) && !nearest)
		return ptx_refuse(c, "this rounding is not supported here");
	if (now->round > PTX_ROUND_RP)
		return ptx_refuse(c, "this rounding is not supported here");
	if (now->flags & PTX_F(RELU))
		mode |= PTX_LANE_A;
	return ptx_emit_lane(c, lane, mode, now->round, type, type, type, operands == 3 ? type : 0);
}

static bool unary(struct ptx_compiler *c, ptx_lane lane, uint32_t extra, uint64_t flags)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];

	if (!ptx_flags(c, flags) || !ptx_operands(c, 2, 2))
		return false;
	if (now->round > PTX_ROUND_RP)
		return ptx_refuse(c, "this rounding is not supported here");
	return ptx_emit_lane(c, lane, mode_of(now) | extra, now->round, type, type, 0, 0);
}

static bool wide(struct ptx_compiler *c)
{
	return c->now->types[0] == PTX_F32 || c->now->types[0] == PTX_F64 || ptx_refuse(c, "this type is not supported here");
}

static bool only(struct ptx_compiler *c, uint8_t type)
{
	return c->now->types[0] == type || ptx_refuse(c, "this type is not supported here");
}

static bool extreme(struct ptx_compiler *c, bool max)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];
	uint64_t flags = now->flags;
	bool three = now->operandcount == 4;

	if (!ptx_flags(c, PTX_F(FTZ) | PTX_F(NANQ) | PTX_F(XORSIGN) | PTX_F(ABSOLUTE)) || !ptx_operands(c, 3, 4))
		return false;
	if (!flags && !three && type == PTX_F32)
		return ptx_emit_same(c, max ? PTX_RUN_MAXF32 : PTX_RUN_MINF32, type, 2);
	if (three && type != PTX_F32)
		return ptx_refuse(c, "three operands are for .f32");
	return ptx_emit_lane(c, ptx_lane_fmin,
			     mode_of(now) | (flags & PTX_F(NANQ) ? PTX_LANE_A : 0) |
				     (flags & PTX_F(XORSIGN) ? PTX_LANE_B : 0) | (three ? PTX_LANE_C : 0) | (max ? PTX_LANE_D : 0),
			     0, type, type, type, three ? type : 0);
}

bool ptx_emit_real(struct ptx_compiler *c)
{
	static const enum ptx_run_op add[] = { PTX_RUN_ADDF32, PTX_RUN_ADDF32Z, PTX_RUN_ADDF64 };
	static const enum ptx_run_op sub[] = { PTX_RUN_SUBF32, PTX_RUN_SUBF32Z, PTX_RUN_SUBF64 };
	static const enum ptx_run_op mul[] = { PTX_RUN_MULF32, PTX_RUN_MULF32Z, PTX_RUN_MULF64 };
	static const enum ptx_run_op fma[] = { PTX_RUN_FMAF32, PTX_RUN_FMAF32Z, PTX_RUN_FMAF64 };
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];
	uint64_t flags = now->flags;
	bool approx = flags & PTX_F(APPROX);
	const uint64_t exact = PTX_F(FTZ) | PTX_F(APPROX);

	if (type == PTX_F32X2 && now->opcode != PTX_OP_ADD && now->opcode != PTX_OP_SUB && now->opcode != PTX_OP_MUL &&
	    now->opcode != PTX_OP_FMA)
		return ptx_refuse(c, "this type is not supported here");
	switch (now->opcode) {
	case PTX_OP_ADD:
		return arithmetic(c, ptx_lane_fadd, add, 2);
	case PTX_OP_SUB:
		return arithmetic(c, ptx_lane_fsub, sub, 2);
	case PTX_OP_MUL:
		return arithmetic(c, ptx_lane_fmul, mul, 2);
	case PTX_OP_MAD:
	case PTX_OP_FMA:
		return arithmetic(c, ptx_lane_fma, fma, 3);
	case PTX_OP_NEG:
	case PTX_OP_ABS: {
		bool neg = now->opcode == PTX_OP_NEG;

		if (!flags && type == PTX_F32)
			return ptx_emit_same(c, neg ? PTX_RUN_NEGF32 : PTX_RUN_ABSF32, type, 1);
		if (!flags && type == PTX_F64)
			return ptx_emit_same(c, neg ? PTX_RUN_NEGF64 : PTX_RUN_ABSF64, type, 1);
		return unary(c, neg ? ptx_lane_fneg : ptx_lane_fabs, 0, PTX_F(FTZ));
	}
	case PTX_OP_MIN:
		return extreme(c, false);
	case PTX_OP_MAX:
		return extreme(c, true);
	case PTX_OP_DIV:
		if (!wide(c) || !ptx_flags(c, PTX_F(FTZ) | PTX_F(APPROX) | PTX_F(FULL)) || !ptx_operands(c, 3, 3))
			return false;
		if (now->round <= PTX_ROUND_RN && !approx && !(flags & PTX_F(FTZ)))
			return ptx_emit_same(c, type == PTX_F32 ? PTX_RUN_DIVF32 : PTX_RUN_DIVF64, type, 2);
		return ptx_emit_lane(c, ptx_lane_fdiv, mode_of(now) | (approx ? PTX_LANE_A : 0), now->round, type, type, type, 0);
	case PTX_OP_RCP:
		if (!wide(c))
			return false;
		if (now->round <= PTX_ROUND_RN && !(flags & ~PTX_F(APPROX)) && !(approx && type == PTX_F64))
			return ptx_emit_same(c, type == PTX_F32 ? PTX_RUN_RCPF32 : PTX_RUN_RCPF64, type, 1);
		return unary(c, ptx_lane_frcp, approx ? PTX_LANE_A : 0, exact);
	case PTX_OP_SQRT:
		if (!wide(c))
			return false;
		if (now->round <= PTX_ROUND_RN && !(flags & ~PTX_F(APPROX)))
			return ptx_emit_same(c, type == PTX_F32 ? PTX_RUN_SQRTF32 : PTX_RUN_SQRTF64, type, 1);
		return unary(c, ptx_lane_fsqrt, 0, exact);
	case PTX_OP_RSQRT:
		return wide(c) && unary(c, ptx_lane_frsqrt, 0, exact);
	case PTX_OP_SIN:
		return only(c, PTX_F32) && unary(c, ptx_lane_fsin, 0, exact);
	case PTX_OP_COS:
		return only(c, PTX_F32) && unary(c, ptx_lane_fcos, 0, exact);
	case PTX_OP_LG2:
		return only(c, PTX_F32) && unary(c, ptx_lane_flg2, 0, exact);
	case PTX_OP_EX2:
	case PTX_OP_TANH:
		if (type == PTX_F64)
			return ptx_refuse(c, "this type is not supported here");
		/* the lanes of two halves take one type for both */
		return unary(c, now->opcode == PTX_OP_EX2 ? ptx_lane_fex2 : ptx_lane_ftanh, 0, exact);
	case PTX_OP_COPYSIGN:
		return wide(c) && ptx_flags(c, 0) && ptx_emit_lane(c, ptx_lane_copysign, type, 0, type, type, type, 0);
	default:
		return ptx_refuse(c, "this instruction is not supported");
	}
}
