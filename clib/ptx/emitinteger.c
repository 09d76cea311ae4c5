/* SPDX-License-Identifier: Apache-2.0 */
/* emitinteger.c: integer arithmetic. */
#include "compile.h"

static bool known(uint8_t type)
{
	switch (type) {
	case PTX_U16: case PTX_S16: case PTX_U32: case PTX_S32: case PTX_U64: case PTX_S64:
		return true;
	default:
		return false;
	}
}

static bool paired(uint8_t type)
{
	return type == PTX_U16X2 || type == PTX_S16X2;
}

static uint8_t doubled(uint8_t type)
{
	switch (type) {
	case PTX_U16:
		return PTX_U32;
	case PTX_S16:
		return PTX_S32;
	case PTX_U32:
		return PTX_U64;
	default:
		return PTX_S64;
	}
}

static enum ptx_run_op by_width(uint8_t type, enum ptx_run_op w16, enum ptx_run_op w32, enum ptx_run_op w64)
{
	uint8_t width = ptx_width_of(type);

	return width == PTX_W_16 ? w16 : width == PTX_W_32 ? w32 : w64;
}

/* With the carry bit: add.cc addc sub.cc subc mad.cc madc */
static bool carry(struct ptx_compiler *c, uint32_t mode, uint32_t operands)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];
	struct ptx_place to;
	struct ptx_place from[3] = { { .at = 0 } };

	if (!known(type) || ptx_type_bytes(type) < 4)
		return ptx_refuse(c, "this type is not supported here");
	if (!ptx_operands(c, operands + 1, operands + 1) || !ptx_flags(c, PTX_F(CC) | PTX_F(LO) | PTX_F(HI)))
		return false;
	if (!ptx_out(c, 0, type, &to))
		return false;
	for (uint32_t i = 0; i < operands; i++) {
		if (!ptx_in(c, i + 1, type, &from[i]))
			return false;
		if (from[i].width != to.width)
			return ptx_refuse(c, "operands differ in size");
	}
	struct ptx_op *op = ptx_emit(c, PTX_RUN_CARRY);

	if (!op)
		return false;
	op->mode = mode | (now->flags & PTX_F(CC) ? PTX_CARRY_OUT : 0) | (now->flags & PTX_F(HI) ? PTX_CARRY_HIGH : 0) |
		   (ptx_signed(type) ? PTX_CARRY_SIGNED : 0);
	op->d = to.at;
	op->a = from[0].at;
	op->b = from[1].at;
	op->c = from[2].at;
	op->wd = op->wa = op->wb = op->wc = to.width;
	return true;
}

static bool multiply(struct ptx_compiler *c, bool add)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];
	uint32_t operands = add ? 3 : 2;

	if (!known(type))
		return ptx_refuse(c, "this type is not supported here");
	if (!ptx_operands(c, operands + 1, operands + 1))
		return false;
	if (now->flags & PTX_F(CC))
		return carry(c, PTX_CARRY_MULTIPLY, 3);
	if (!ptx_flags(c, PTX_F(LO) | PTX_F(HI) | PTX_F(WIDE) | (add ? PTX_F(SAT) : 0)))
		return false;
	if (now->flags & PTX_F(WIDE)) {
		uint8_t wide = doubled(type);
		struct ptx_place to;
		struct ptx_place a;
		struct ptx_place b;
		struct ptx_place third = { .at = 0 };
		bool sign = ptx_signed(type);

		if (ptx_type_bytes(type) == 8)
			return ptx_refuse(c, "this type is not supported here");
		if (add && ptx_type_bytes(type) == 2)
			return ptx_emit_lane(c, ptx_lane_madwide, type, 0, wide, type, type, wide);
		if (!ptx_out(c, 0, wide, &to) || !ptx_in(c, 1, type, &a) || !ptx_in(c, 2, type, &b) ||
		    (add && !ptx_in(c, 3, wide, &third)))
			return false;
		if (to.width != ptx_width_of(wide) || a.width != ptx_width_of(type) || b.width != a.width ||
		    (add && third.width != to.width))
			return ptx_refuse(c, "an operand is not of this type's size");
		struct ptx_op *op = ptx_emit(c, add ? (sign ? PTX_RUN_MADWIDES32 : PTX_RUN_MADWIDEU32)
						: ptx_type_bytes(type) == 2 ? (sign ? PTX_RUN_WIDES16 : PTX_RUN_WIDEU16)
									    : (sign ? PTX_RUN_WIDES32 : PTX_RUN_WIDEU32));

		if (!op)
			return false;
		op->d = to.at;
		op->a = a.at;
		op->b = b.at;
		op->c = third.at;
		return true;
	}
	if (now->flags & PTX_F(HI)) {
		if (!add && type == PTX_S32)
			return ptx_emit_same(c, PTX_RUN_HIS32, type, 2);
		if (!add && type == PTX_U32)
			return ptx_emit_same(c, PTX_RUN_HIU32, type, 2);
		return ptx_emit_lane(c, add ? ptx_lane_madhi : ptx_lane_mulhi,
				     type | (now->flags & PTX_F(SAT) ? PTX_LANE_SAT : 0), 0, type, type, type, add ? type : 0);
	}
	if (now->flags & PTX_F(SAT))
		return ptx_refuse(c, "saturation needs .hi");
	return add ? ptx_emit_same(c, by_width(type, PTX_RUN_MAD16, PTX_RUN_MAD32, PTX_RUN_MAD64), type, 3)
		   : ptx_emit_same(c, by_width(type, PTX_RUN_MUL16, PTX_RUN_MUL32, PTX_RUN_MUL64), type, 2);
}

static bool extreme(struct ptx_compiler *c, bool max)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];

	if (!ptx_flags(c, PTX_F(RELU)) || !ptx_operands(c, 3, 3))
		return false;
	if (!(now->flags & PTX_F(RELU))) {
		switch (type) {
		case PTX_S32:
			return ptx_emit_same(c, max ? PTX_RUN_MAXS32 : PTX_RUN_MINS32, type, 2);
		case PTX_U32:
			return ptx_emit_same(c, max ? PTX_RUN_MAXU32 : PTX_RUN_MINU32, type, 2);
		case PTX_S64:
			return ptx_emit_same(c, max ? PTX_RUN_MAXS64 : PTX_RUN_MINS64, type, 2);
		case PTX_U64:
			return ptx_emit_same(c, max ? PTX_RUN_MAXU64 : PTX_RUN_MINU64, type, 2);
		default:
			break;
		}
	}
	if (now->flags & PTX_F(RELU) && (!ptx_signed(type) || ptx_type_bytes(type) != 4))
		return ptx_refuse(c, ".relu is for .s32 and .s16x2");
	if ((now->flags & PTX_F(RELU) || paired(type)) && !ptx_needs(c, 80, 90))
		return false;
	if (!known(type) && !paired(type))
		return ptx_refuse(c, "this type is not supported here");
	return ptx_emit_lane(c, max ? ptx_lane_max : ptx_lane_min, type | (now->flags & PTX_F(RELU) ? PTX_LANE_A : 0), 0, type,
			     type, type, 0);
}

static bool add_or_sub(struct ptx_compiler *c, bool subtract)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];

	if (now->flags & PTX_F(CC))
		return carry(c, subtract ? PTX_CARRY_SUBTRACT : 0, 2);
	if (!ptx_flags(c, PTX_F(SAT)) || !ptx_operands(c, 3, 3))
		return false;
	if (now->flags & PTX_F(SAT) || (paired(type) && !subtract)) {
		if (now->flags & PTX_F(SAT) && type != PTX_S32)
			return ptx_refuse(c, "saturation is for .s32");
		return ptx_emit_lane(c, subtract ? ptx_lane_sub : ptx_lane_add,
				     type | (now->flags & PTX_F(SAT) ? PTX_LANE_SAT : 0), 0, type, type, type, 0);
	}
	if (!known(type))
		return ptx_refuse(c, "this type is not supported here");
	return subtract ? ptx_emit_same(c, by_width(type, PTX_RUN_SUB16, PTX_RUN_SUB32, PTX_RUN_SUB64), type, 2)
			: ptx_emit_same(c, by_width(type, PTX_RUN_ADD16, PTX_RUN_ADD32, PTX_RUN_ADD64), type, 2);
}

bool ptx_emit_integer(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];
	uint64_t flags = now->flags;

	switch (now->opcode) {
	case PTX_OP_ADD:
		return add_or_sub(c, false);
	case PTX_OP_SUB:
		return add_or_sub(c, true);
	case PTX_OP_ADDC:
		return carry(c, PTX_CARRY_IN, 2);
	case PTX_OP_SUBC:
		return carry(c, PTX_CARRY_SUBTRACT | PTX_CARRY_IN, 2);
	case PTX_OP_MADC:
		return carry(c, PTX_CARRY_MULTIPLY | PTX_CARRY_IN, 3);
	case PTX_OP_MUL:
		return multiply(c, false);
	case PTX_OP_MAD:
		return multiply(c, true);
	case PTX_OP_MIN:
		return extreme(c, false);
	case PTX_OP_MAX:
		return extreme(c, true);
	case PTX_OP_MUL24:
	case PTX_OP_MAD24: {
		bool add = now->opcode == PTX_OP_MAD24;

		if (type != PTX_U32 && type != PTX_S32)
			return ptx_refuse(c, "this type is not supported here");
		return ptx_flags(c, PTX_F(LO) | PTX_F(HI) | (add ? PTX_F(SAT) : 0)) &&
		       ptx_emit_lane(c, ptx_lane_mul24,
				     type | (flags & PTX_F(HI) ? PTX_LANE_A : 0) | (add ? PTX_LANE_B : 0) |
					     (flags & PTX_F(SAT) ? PTX_LANE_SAT : 0),
				     0, type, type, type, add ? type : 0);
	}
	case PTX_OP_DP4A:
	case PTX_OP_DP2A:
		if (now->typecount != 2)
			return ptx_refuse(c, "two types are needed");
		return ptx_flags(c, now->opcode == PTX_OP_DP2A ? PTX_F(LO) | PTX_F(HI) : 0) &&
		       ptx_emit_lane(c, now->opcode == PTX_OP_DP4A ? ptx_lane_dp4a : ptx_lane_dp2a,
				     PTX_LANE_MODE(type, now->types[1], 0) | (flags & PTX_F(HI) ? PTX_LANE_A : 0), 0, PTX_U32,
				     PTX_U32, PTX_U32, PTX_U32);
	default:
		break;
	}
	if (!known(type))
		return ptx_refuse(c, "this type is not supported here");
	if (!ptx_flags(c, 0))
		return false;
	switch (now->opcode) {
	case PTX_OP_DIV:
		return ptx_emit_lane(c, ptx_lane_div, type, 0, type, type, type, 0);
	case PTX_OP_REM:
		return ptx_emit_lane(c, ptx_lane_rem, type, 0, type, type, type, 0);
	case PTX_OP_ABS:
		return ptx_emit_lane(c, ptx_lane_abs, type, 0, type, type, 0, 0);
	case PTX_OP_NEG:
		if (ptx_type_bytes(type) == 2)
			return ptx_emit_lane(c, ptx_lane_neg, type, 0, type, type, 0, 0);
		return ptx_emit_same(c, ptx_type_bytes(type) == 4 ? PTX_RUN_NEG32 : PTX_RUN_NEG64, type, 1);
	case PTX_OP_SAD:
		return ptx_emit_lane(c, ptx_lane_sad, type, 0, type, type, type, type);
	default:
		return ptx_refuse(c, "this instruction is not supported");
	}
}
