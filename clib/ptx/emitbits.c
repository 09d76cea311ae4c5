/* SPDX-License-Identifier: Apache-2.0 */
/* emitbits.c: logic, shifts, and bits within words. */
#include "compile.h"

static bool word(uint8_t type)
{
	return type == PTX_B32 || type == PTX_U32 || type == PTX_S32;
}

static bool logic(struct ptx_compiler *c, const enum ptx_run_op forms[4], uint32_t operands)
{
	uint8_t type = c->now->types[0];

	if (!ptx_flags(c, 0))
		return false;
	return ptx_emit_same(c, forms[ptx_width_of(type)], type, operands);
}

static bool shift(struct ptx_compiler *c, bool left)
{
	uint8_t type = c->now->types[0];
	uint8_t width = ptx_width_of(type);
	bool sign = ptx_signed(type);
	struct ptx_place to;
	struct ptx_place a;
	struct ptx_place b;

	if (!ptx_flags(c, 0) || !ptx_operands(c, 3, 3))
		return false;
	if (width == PTX_W_16)
		return ptx_emit_lane(c, left ? ptx_lane_shl : ptx_lane_shr, type, 0, type, type, PTX_U32, 0);
	if (!ptx_out(c, 0, type, &to) || !ptx_in(c, 1, type, &a) || !ptx_in(c, 2, PTX_U32, &b))
		return false;
	if (to.width != width || a.width != width || b.width != PTX_W_32)
		return ptx_refuse(c, "an operand is not of this type's size");
	struct ptx_op *op = ptx_emit(c, left ? (width == PTX_W_32 ? PTX_RUN_SHL32 : PTX_RUN_SHL64)
					: width == PTX_W_32 ? (sign ? PTX_RUN_SHRS32 : PTX_RUN_SHRU32)
							    : (sign ? PTX_RUN_SHRS64 : PTX_RUN_SHRU64));

	if (!op)
		return false;
	op->d = to.at;
	op->a = a.at;
	op->b = b.at;
	return true;
}

static bool funnel(struct ptx_compiler *c)
{
	uint64_t flags = c->now->flags;

	if (!ptx_flags(c, PTX_F(L) | PTX_F(R) | PTX_F(CLAMP) | PTX_F(WRAP)) || !ptx_operands(c, 4, 4))
		return false;
	if (flags & PTX_F(WRAP))
		return ptx_emit_same(c, flags & PTX_F(L) ? PTX_RUN_SHFL32W : PTX_RUN_SHFR32W, PTX_B32, 3);
	return ptx_emit_lane(c, ptx_lane_shf, PTX_B32 | (flags & PTX_F(L) ? PTX_LANE_A : 0), 0, PTX_B32, PTX_B32, PTX_B32,
			     PTX_U32);
}

/* lop3.b32 d, a, b, c, table; lop3.op.b32 d|p, a, b, c, table, q */
static bool three(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	struct ptx_place to;
	struct ptx_place from[3];

	if (!ptx_operands(c, 5, 6) || !ptx_flags(c, 0) || !ptx_out(c, 0, PTX_B32, &to))
		return false;
	for (uint32_t i = 0; i < 3; i++) {
		if (!ptx_in(c, i + 1, PTX_B32, &from[i]))
			return false;
		if (from[i].width != PTX_W_32)
			return ptx_refuse(c, "an operand is not of this type's size");
	}
	if (now->operands[4].kind != PTX_OPERAND_IMMEDIATE || to.width != PTX_W_32)
		return ptx_refuse(c, "the table is to be a constant");
	struct ptx_op *op = ptx_emit(c, PTX_RUN_LOP3);

	if (!op)
		return false;
	op->d = to.at;
	op->a = from[0].at;
	op->b = from[1].at;
	op->c = from[2].at;
	op->mode = (uint32_t)now->operands[4].bits & 255;
	if (now->operandcount == 5)
		return now->operation == PTX_DO_NONE || ptx_refuse(c, "an operand is missing");
	struct ptx_place q;

	if (now->operands[0].second == PTX_NONE || (now->operation != PTX_DO_OR && now->operation != PTX_DO_AND))
		return ptx_refuse(c, "this form is not supported");
	if (!ptx_in(c, 5, PTX_PRED, &q))
		return false;
	uint32_t zero = 0;

	if (!ptx_constant(c, PTX_W_32, 0, &zero))
		return false;
	op = ptx_emit(c, PTX_RUN_SETPU32);
	if (!op)
		return false;
	op->sub = PTX_CMP_NE;
	op->sub2 = now->operation;
	op->a = to.at;
	op->b = zero;
	op->c = q.at;
	op->mode = q.negated ? PTX_SETP_NOT : 0;
	op->d = c->slots[now->operands[0].second];
	return true;
}

static bool insert(struct ptx_compiler *c)
{
	uint8_t type = c->now->types[0];
	struct ptx_place to;
	struct ptx_place from[4];

	if (!ptx_operands(c, 5, 5) || !ptx_flags(c, 0) || !ptx_out(c, 0, type, &to))
		return false;
	for (uint32_t i = 0; i < 4; i++) {
		if (!ptx_in(c, i + 1, i < 2 ? type : PTX_U32, &from[i]))
			return false;
	}
	uint32_t both = ptx_temporary(c);
	struct ptx_op *op = ptx_emit(c, PTX_RUN_LANE);

	if (!op)
		return false;
	op->lane = ptx_lane_pair;
	op->d = both;
	op->a = op->c = from[2].at;
	op->wa = op->wc = from[2].width;
	op->b = from[3].at;
	op->wb = from[3].width;
	op = ptx_emit(c, PTX_RUN_LANE);
	if (!op)
		return false;
	op->lane = ptx_lane_bfi;
	op->mode = type;
	op->d = to.at;
	op->wd = to.width;
	op->a = from[0].at;
	op->wa = from[0].width;
	op->b = from[1].at;
	op->wb = from[1].width;
	op->c = both;
	return true;
}

bool ptx_emit_bits(struct ptx_compiler *c)
{
	static const enum ptx_run_op and_[] = { PTX_RUN_ANDP, PTX_RUN_AND16, PTX_RUN_AND32, PTX_RUN_AND64 };
	static const enum ptx_run_op or_[] = { PTX_RUN_ORP, PTX_RUN_OR16, PTX_RUN_OR32, PTX_RUN_OR64 };
	static const enum ptx_run_op xor_[] = { PTX_RUN_XORP, PTX_RUN_XOR16, PTX_RUN_XOR32, PTX_RUN_XOR64 };
	static const enum ptx_run_op not_[] = { PTX_RUN_NOTP, PTX_RUN_NOT16, PTX_RUN_NOT32, PTX_RUN_NOT64 };
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];
	uint64_t flags = now->flags;

	if (now->typecount < 1 && now->opcode != PTX_OP_PRMT)
		return ptx_refuse(c, "the type is missing");
	switch (now->opcode) {
	case PTX_OP_AND:
		return logic(c, and_, 2);
	case PTX_OP_OR:
		return logic(c, or_, 2);
	case PTX_OP_XOR:
		return logic(c, xor_, 2);
	case PTX_OP_NOT:
		return logic(c, not_, 1);
	case PTX_OP_CNOT:
		return ptx_flags(c, 0) && ptx_emit_lane(c, ptx_lane_cnot, type, 0, type, type, 0, 0);
	case PTX_OP_SHL:
		return shift(c, true);
	case PTX_OP_SHR:
		return shift(c, false);
	case PTX_OP_SHF:
		return funnel(c);
	case PTX_OP_LOP3:
		return three(c);
	case PTX_OP_BFI:
		return insert(c);
	case PTX_OP_BFE:
		if (!ptx_flags(c, 0) || !ptx_operands(c, 4, 4))
			return false;
		if (type == PTX_U32)
			return ptx_emit_same(c, PTX_RUN_BFEU32, type, 3);
		return ptx_emit_lane(c, ptx_lane_bfe, type, 0, type, type, PTX_U32, PTX_U32);
	case PTX_OP_BREV:
		return ptx_flags(c, 0) && ptx_emit_lane(c, ptx_lane_brev, type, 0, type, type, 0, 0);
	case PTX_OP_CLZ:
		return ptx_flags(c, 0) && ptx_emit_lane(c, ptx_lane_clz, type, 0, PTX_U32, type, 0, 0);
	case PTX_OP_POPC:
		return ptx_flags(c, 0) && ptx_emit_lane(c, ptx_lane_popc, type, 0, PTX_U32, type, 0, 0);
	case PTX_OP_BFIND:
		return ptx_flags(c, PTX_F(SHIFTAMT)) &&
		       ptx_emit_lane(c, ptx_lane_bfind, type | (flags & PTX_F(SHIFTAMT) ? PTX_LANE_A : 0), 0, PTX_U32, type, 0, 0);
	case PTX_OP_FNS:
		return ptx_flags(c, 0) && ptx_emit_lane(c, ptx_lane_fns, type, 0, PTX_U32, PTX_U32, PTX_U32, PTX_U32);
	case PTX_OP_BMSK:
		return ptx_flags(c, PTX_F(CLAMP) | PTX_F(WRAP)) &&
		       ptx_emit_lane(c, ptx_lane_bmsk, type | (flags & PTX_F(CLAMP) ? PTX_LANE_A : 0), 0, PTX_U32, PTX_U32, PTX_U32, 0);
	case PTX_OP_SZEXT:
		return ptx_flags(c, PTX_F(CLAMP) | PTX_F(WRAP)) && (word(type) || ptx_refuse(c, "this type is not supported here")) &&
		       ptx_emit_lane(c, ptx_lane_szext, type | (flags & PTX_F(CLAMP) ? PTX_LANE_A : 0), 0, type, type, PTX_U32, 0);
	case PTX_OP_PRMT:
		return ptx_flags(c, 0) && ptx_emit_lane(c, ptx_lane_prmt, PTX_LANE_MODE(PTX_B32, now->operation, 0), 0, PTX_B32,
							PTX_B32, PTX_B32, PTX_B32);
	default:
		return ptx_refuse(c, "this instruction is not supported");
	}
}
