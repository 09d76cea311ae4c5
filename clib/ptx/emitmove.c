/* SPDX-License-Identifier: Apache-2.0 */
/* emitmove.c: mov, cvt, and addresses from one space to another. */
#include "compile.h"

static bool emit_move(struct ptx_compiler *c, const struct ptx_place *to, const struct ptx_place *from)
{
	static const enum ptx_run_op forms[] = { PTX_RUN_MOVP, PTX_RUN_MOV16, PTX_RUN_MOV32, PTX_RUN_MOV64 };

	if (to->width != from->width)
		return ptx_refuse(c, "operands differ in size");
	struct ptx_op *op = ptx_emit(c, from->negated ? PTX_RUN_NOTP : forms[to->width]);

	if (!op)
		return false;
	op->d = to->at;
	op->a = from->at;
	op->wa = op->wd = to->width;
	return true;
}

/* Columns of the bits of one register: {a, b} and {a, b, c, d} */
static uint8_t part_type(uint8_t type, uint32_t count)
{
	uint32_t bytes = ptx_type_bytes(type) / count;

	return bytes == 4 ? PTX_B32 : bytes == 2 ? PTX_B16 : bytes == 1 ? PTX_B8 : PTX_TYPE_NONE;
}

static bool unpack(struct ptx_compiler *c, uint8_t type)
{
	const struct ptx_operand *vector = &c->now->operands[0];
	uint8_t part = part_type(type, vector->count);
	uint32_t bits = ptx_type_bytes(part) * 8;
	struct ptx_place from;
	struct ptx_place to[8];

	if (part == PTX_TYPE_NONE || vector->count > 8 || !ptx_in(c, 1, type, &from))
		return ptx_refuse(c, "this form is not supported");
	/* the source may be one of the parts: those are written last */
	for (uint32_t i = 0; i < vector->count; i++) {
		if (!ptx_out_operand(c, &vector->elements[i], part, &to[i]))
			return false;
	}
	if (vector->count == 2 && bits >= 16 && to[0].width == to[1].width && to[0].width == ptx_width_of(part) &&
	    to[0].at != from.at && from.width == ptx_width_of(type)) {
		struct ptx_op *op = ptx_emit(c, bits == 32 ? PTX_RUN_UNPACK3232 : PTX_RUN_UNPACK1616);

		if (!op)
			return false;
		op->d = to[0].at;
		op->e = to[1].at;
		op->a = from.at;
		return true;
	}
	for (uint32_t i = 0; i < vector->count; i++) {
		struct ptx_op *op = ptx_emit(c, PTX_RUN_LANE);

		if (!op)
			return false;
		op->lane = ptx_lane_piece;
		op->mode = PTX_LANE_MODE(0, i * bits, 0);
		op->d = to[i].at;
		op->wd = to[i].width;
		op->a = op->b = op->c = from.at;
		op->wa = op->wb = op->wc = from.width;
		if (bits == 8) { /* columns are wider */
			uint32_t mask;

			if (!ptx_constant(c, PTX_W_16, 255, &mask))
				return false;
			op = ptx_emit(c, PTX_RUN_AND16);
			if (!op)
				return false;
			op->d = op->a = to[i].at;
			op->b = mask;
		}
	}
	return true;
}

static bool pack(struct ptx_compiler *c, uint8_t type)
{
	const struct ptx_operand *vector = &c->now->operands[1];
	uint8_t part = part_type(type, vector->count);
	uint32_t bits = ptx_type_bytes(part) * 8;
	struct ptx_place to;
	struct ptx_place from[8];

	if (part == PTX_TYPE_NONE || vector->count > 8 || !ptx_out(c, 0, type, &to) || to.width != ptx_width_of(type))
		return ptx_refuse(c, "this form is not supported");
	for (uint32_t i = 0; i < vector->count; i++) {
		if (!ptx_in_operand(c, &vector->elements[i], part, &from[i]))
			return false;
	}
	if (vector->count == 2 && bits >= 16 && from[0].width == ptx_width_of(part) && from[1].width == from[0].width) {
		struct ptx_op *op = ptx_emit(c, bits == 32 ? PTX_RUN_PACK3232 : PTX_RUN_PACK1616);

		if (!op)
			return false;
		op->d = to.at;
		op->a = from[0].at;
		op->b = from[1].at;
		return true;
	}
	uint32_t sum = ptx_temporary(c);

	for (uint32_t i = 1; i < vector->count; i++) {
		bool last = i + 1 == vector->count;
		struct ptx_op *op = ptx_emit(c, PTX_RUN_LANE);

		if (!op)
			return false;
		op->lane = ptx_lane_join;
		op->mode = PTX_LANE_MODE(0, i * bits, 0);
		op->d = last ? to.at : sum;
		op->wd = last ? to.width : PTX_W_64;
		op->a = i == 1 ? from[0].at : sum;
		op->wa = i == 1 ? from[0].width : PTX_W_64;
		op->b = op->c = from[i].at;
		op->wb = op->wc = from[i].width;
	}
	return true;
}

/* The halves of 128 bits: a register's own, or {a, b}. */
static struct ptx_operand half_of(const struct ptx_operand *operand, uint8_t which)
{
	if (operand->kind == PTX_OPERAND_VECTOR && operand->count == 2)
		return operand->elements[which];
	struct ptx_operand half = *operand;

	half.lane = (uint8_t)(which + 1);
	return half;
}

static bool is_128(const struct ptx_compiler *c, const struct ptx_operand *operand)
{
	return operand->kind == PTX_OPERAND_REGISTER && c->function->registers[operand->reg].type == PTX_B128;
}

static bool move_128(struct ptx_compiler *c)
{
	const struct ptx_operand *a = &c->now->operands[0];
	const struct ptx_operand *b = &c->now->operands[1];

	if (!ptx_needs(c, 83, 70))
		return false;
	if (!(is_128(c, a) || a->kind == PTX_OPERAND_VECTOR) || !(is_128(c, b) || b->kind == PTX_OPERAND_VECTOR) ||
	    (a->kind == PTX_OPERAND_VECTOR && (a->count != 2 || b->kind == PTX_OPERAND_VECTOR)) ||
	    (b->kind == PTX_OPERAND_VECTOR && b->count != 2))
		return ptx_refuse(c, "this form is not supported");
	for (uint8_t i = 0; i < 2; i++) {
		const struct ptx_operand to_half = half_of(a, i);
		const struct ptx_operand from_half = half_of(b, i);
		struct ptx_place to;
		struct ptx_place from;

		if (!ptx_out_operand(c, &to_half, PTX_B64, &to) || !ptx_in_operand(c, &from_half, PTX_B64, &from) ||
		    !emit_move(c, &to, &from))
			return false;
	}
	return true;
}

static bool move(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];
	struct ptx_place to;
	struct ptx_place from;

	if (!ptx_flags(c, 0) || !ptx_operands(c, 2, 2) || !now->typecount)
		return false;
	if (type == PTX_B128)
		return move_128(c);
	const struct ptx_operand *a = &now->operands[0];
	const struct ptx_operand *b = &now->operands[1];

	if (a->kind == PTX_OPERAND_VECTOR && b->kind == PTX_OPERAND_VECTOR) {
		if (a->count != b->count)
			return ptx_refuse(c, "vectors differ in size");
		for (uint32_t i = 0; i < a->count; i++) {
			if (!ptx_out_operand(c, &a->elements[i], type, &to) || !ptx_in_operand(c, &b->elements[i], type, &from) ||
			    !emit_move(c, &to, &from))
				return false;
		}
		return true;
	}
	if (a->kind == PTX_OPERAND_VECTOR)
		return unpack(c, type);
	if (b->kind == PTX_OPERAND_VECTOR)
		return pack(c, type);
	return ptx_out(c, 0, type, &to) && ptx_in(c, 1, type, &from) && emit_move(c, &to, &from);
}

static bool integer(uint8_t type)
{
	return !ptx_floating(type) && type >= PTX_U8 && type <= PTX_S64;
}

/* The conversions that have a vector form. */
static bool quick(const struct ptx_instruction *now, uint8_t wide, uint8_t narrow, enum ptx_run_op *form)
{
	uint8_t to = now->types[0];
	uint8_t from = now->types[1];

	if (now->flags || now->operandcount != 2)
		return false;
	if (integer(to) && integer(from)) {
		uint8_t bytes = (uint8_t)ptx_type_bytes(to);

		if (wide != ptx_width_of(to) || narrow != ptx_width_of(from) || bytes == 1)
			return false;
		switch (from) {
		case PTX_U8:
			*form = PTX_RUN_U8U32;
			return bytes == 4;
		case PTX_S8:
			*form = PTX_RUN_S8S32;
			return bytes == 4;
		case PTX_U16:
			*form = bytes == 4 ? PTX_RUN_U16U32 : PTX_RUN_MOV16;
			return bytes <= 4;
		case PTX_S16:
			*form = bytes == 4 ? PTX_RUN_S16S32 : PTX_RUN_MOV16;
			return bytes <= 4;
		case PTX_U32:
			*form = bytes == 8 ? PTX_RUN_U32U64 : bytes == 4 ? PTX_RUN_MOV32 : PTX_RUN_U32U16;
			return true;
		case PTX_S32:
			*form = bytes == 8 ? PTX_RUN_S32S64 : bytes == 4 ? PTX_RUN_MOV32 : PTX_RUN_U32U16;
			return true;
		default:
			*form = bytes == 8 ? PTX_RUN_MOV64 : PTX_RUN_U64U32;
			return bytes >= 4;
		}
	}
	if (wide != ptx_width_of(to) || narrow != ptx_width_of(from))
		return false;
	bool nearest = now->round == PTX_ROUND_RN;

	if (to == PTX_F32 && (from == PTX_S32 || from == PTX_U32) && nearest)
		*form = from == PTX_S32 ? PTX_RUN_S32F32 : PTX_RUN_U32F32;
	else if (to == PTX_S32 && from == PTX_F32 && now->round == PTX_ROUND_RZI)
		*form = PTX_RUN_F32S32Z;
	else if (to == PTX_F64 && from == PTX_F32 && now->round == PTX_ROUND_NONE)
		*form = PTX_RUN_F32F64;
	else if (to == PTX_F32 && from == PTX_F64 && nearest)
		*form = PTX_RUN_F64F32;
	else if (to == PTX_F64 && from == PTX_S32 && nearest)
		*form = PTX_RUN_S32F64;
	else
		return false;
	return true;
}

static uint8_t bits_of(uint8_t type)
{
	switch (type) {
	case PTX_U2: case PTX_S2:
		return 2;
	case PTX_U4: case PTX_S4:
		return 4;
	case PTX_U8: case PTX_S8:
		return 8;
	case PTX_U16: case PTX_S16:
		return 16;
	default:
		return 0;
	}
}

/* cvt.pack.sat.u16.s32 d, a, b; cvt.pack.sat.u8.s32.b32 d, a, b, c */
static bool pack_converted(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	uint8_t bits = bits_of(now->types[0]);
	bool third = now->typecount == 3;
	bool sign = now->types[0] == PTX_S2 || now->types[0] == PTX_S4 || now->types[0] == PTX_S8 || now->types[0] == PTX_S16;

	if (!ptx_flags(c, PTX_F(PACK) | PTX_F(SAT)) || !ptx_operands(c, third ? 4 : 3, third ? 4 : 3) ||
	    !ptx_needs(c, 65, bits < 8 ? 75 : 72))
		return false;
	if (!(now->flags & PTX_F(SAT)) || now->round || !bits || now->types[1] != PTX_S32 || (bits == 16) == third ||
	    (third && now->types[2] != PTX_B32))
		return ptx_refuse(c, "this conversion is not supported");
	return ptx_emit_lane(c, ptx_lane_pack, PTX_LANE_MODE(bits, 0, 0) | (sign ? PTX_LANE_A : 0), 0, PTX_B32, PTX_S32, PTX_S32,
			     third ? PTX_B32 : 0);
}

static bool convert(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	uint8_t to = now->types[0];
	uint8_t from = now->types[1];
	bool two = now->operandcount == 3;
	struct ptx_place d;
	struct ptx_place a;
	struct ptx_place b;
	enum ptx_run_op form;

	if (now->flags & PTX_F(PACK))
		return pack_converted(c);
	if (now->typecount != 2)
		return ptx_refuse(c, "two types are needed");
	if (!ptx_operands(c, 2, 3) || !ptx_flags(c, PTX_F(FTZ) | PTX_F(SAT) | PTX_F(RELU) | PTX_F(SATFINITE)))
		return false;
	bool packed = to == PTX_F16X2 || to == PTX_BF16X2 || to == PTX_E4M3X2 || to == PTX_E5M2X2;
	bool packedfrom = from == PTX_F16X2 || from == PTX_BF16X2 || from == PTX_E4M3X2 || from == PTX_E5M2X2;

	if (now->round == PTX_ROUND_RS || (packed && !two && !packedfrom) || (two && (!packed || packedfrom)) ||
	    (packedfrom && !packed))
		return ptx_refuse(c, "this conversion is not supported");
	if (!ptx_floating(to) && !packed && to != PTX_TF32 && !integer(to))
		return ptx_refuse(c, "this type is not supported here");
	if (!ptx_floating(from) && !packedfrom && !integer(from))
		return ptx_refuse(c, "this type is not supported here");
	if (!ptx_out(c, 0, to, &d) || !ptx_in(c, 1, from, &a) || (two && !ptx_in(c, 2, from, &b)))
		return false;
	if (quick(now, d.width, a.width, &form)) {
		struct ptx_op *op = ptx_emit(c, form);

		if (!op)
			return false;
		op->d = d.at;
		op->a = a.at;
		return true;
	}
	struct ptx_op *op = ptx_emit(c, PTX_RUN_LANE);

	if (!op)
		return false;
	op->lane = ptx_lane_convert;
	op->mode = PTX_LANE_MODE(to, from, now->round) | (now->flags & PTX_F(FTZ) ? PTX_LANE_FTZ : 0) |
		   (now->flags & PTX_F(SAT) ? PTX_LANE_SAT : 0) | (now->flags & PTX_F(RELU) ? PTX_LANE_A : 0) |
		   (two ? PTX_LANE_B : 0) | (now->flags & PTX_F(SATFINITE) ? PTX_LANE_D : 0);
	op->d = d.at;
	op->wd = d.width;
	op->a = op->c = a.at;
	op->wa = op->wc = a.width;
	op->b = two ? b.at : a.at;
	op->wb = two ? b.width : a.width;
	return true;
}

static uint64_t window_of(uint8_t space)
{
	switch (space) {
	case PTX_SPACE_SHARED: case PTX_SPACE_SHARED_CTA: case PTX_SPACE_SHARED_CLUSTER:
		return PTX_WINDOW_SHARED;
	case PTX_SPACE_LOCAL:
		return PTX_WINDOW_LOCAL;
	case PTX_SPACE_PARAM: case PTX_SPACE_PARAM_ENTRY:
		return PTX_WINDOW_PARAM;
	default:
		return 0;
	}
}

static bool cvta(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	uint64_t window = window_of(now->space);
	struct ptx_place d;
	struct ptx_place a;
	uint32_t constant;

	if (!ptx_flags(c, PTX_F(TO)) || !ptx_operands(c, 2, 2))
		return false;
	if (now->types[0] != PTX_U64)
		return ptx_refuse(c, "generic addresses have 64 bits");
	if (now->space == PTX_SPACE_PARAM && !c->function->entry)
		window = PTX_WINDOW_LOCAL;
	if (!ptx_out(c, 0, PTX_U64, &d) || !ptx_in(c, 1, PTX_U64, &a))
		return false;
	if (!window)
		return emit_move(c, &d, &a);
	if (a.width != PTX_W_64 || d.width != PTX_W_64)
		return ptx_refuse(c, "generic addresses have 64 bits");
	bool to = now->flags & PTX_F(TO);

	if (!ptx_constant(c, PTX_W_64, to ? (1ull << PTX_WINDOW_SHIFT) - 1 : window << PTX_WINDOW_SHIFT, &constant))
		return false;
	struct ptx_op *op = ptx_emit(c, to ? PTX_RUN_AND64 : PTX_RUN_OR64);

	if (!op)
		return false;
	op->d = d.at;
	op->a = a.at;
	op->b = constant;
	return true;
}

static bool isspacep(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	struct ptx_place d;
	struct ptx_place a;

	if (!ptx_flags(c, 0) || !ptx_operands(c, 2, 2) || !ptx_out(c, 0, PTX_PRED, &d) || !ptx_in(c, 1, PTX_U64, &a))
		return false;
	struct ptx_op *op = ptx_emit(c, PTX_RUN_ISSPACE);

	if (!op)
		return false;
	op->d = d.at;
	op->a = a.at;
	op->wa = a.width;
	op->imm = now->space == PTX_SPACE_GLOBAL ? 0 : window_of(now->space) ? window_of(now->space) : 255;
	return true;
}

bool ptx_emit_move(struct ptx_compiler *c)
{
	switch (c->now->opcode) {
	case PTX_OP_MOV:
		return move(c);
	case PTX_OP_CVT:
		return convert(c);
	case PTX_OP_CVTA:
		return cvta(c);
	case PTX_OP_ISSPACEP:
		return isspacep(c);
	default:
		return ptx_refuse(c, "this instruction is not supported");
	}
}
