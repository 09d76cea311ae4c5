/* SPDX-License-Identifier: Apache-2.0 */
/* emittensor.c: products of small matrices, and matrices on their way there; see tensor.c for the operands. */
#include "compile.h"
#include "tensor.h"

static const struct {
	uint8_t rows, depth;
} sizes[PTX_SHAPE_COUNT] = {
	[PTX_SHAPE_M8N8K4] = { 8, 4 },	 [PTX_SHAPE_M8N8K16] = { 8, 16 },   [PTX_SHAPE_M16N8K4] = { 16, 4 },
	[PTX_SHAPE_M16N8K8] = { 16, 8 }, [PTX_SHAPE_M16N8K16] = { 16, 16 }, [PTX_SHAPE_M16N8K32] = { 16, 32 },
};

/* Types of d and c, a, b; the shapes that have them, and since when. */
static const struct {
	uint8_t result, a, b, shape;
	uint8_t version, target;
} products[] = {
	{ PTX_F16, PTX_F16, PTX_F16, PTX_SHAPE_M16N8K8, 65, 75 },   { PTX_F32, PTX_F16, PTX_F16, PTX_SHAPE_M16N8K8, 65, 75 },
	{ PTX_F16, PTX_F16, PTX_F16, PTX_SHAPE_M16N8K16, 70, 80 },  { PTX_F32, PTX_F16, PTX_F16, PTX_SHAPE_M16N8K16, 70, 80 },
	{ PTX_F32, PTX_BF16, PTX_BF16, PTX_SHAPE_M16N8K8, 70, 80 }, { PTX_F32, PTX_BF16, PTX_BF16, PTX_SHAPE_M16N8K16, 70, 80 },
	{ PTX_F32, PTX_TF32, PTX_TF32, PTX_SHAPE_M16N8K4, 70, 80 }, { PTX_F32, PTX_TF32, PTX_TF32, PTX_SHAPE_M16N8K8, 70, 80 },
	{ PTX_F64, PTX_F64, PTX_F64, PTX_SHAPE_M8N8K4, 70, 80 },
	{ PTX_S32, PTX_S8, PTX_S8, PTX_SHAPE_M8N8K16, 65, 75 },	    { PTX_S32, PTX_S8, PTX_S8, PTX_SHAPE_M16N8K16, 70, 80 },
	{ PTX_S32, PTX_S8, PTX_S8, PTX_SHAPE_M16N8K32, 70, 80 },
	{ PTX_F32, PTX_E4M3, PTX_E4M3, PTX_SHAPE_M16N8K32, 84, 89 },
};

/* .u8 goes wherever .s8 does, and .e5m2 wherever .e4m3; a and b need not be the same of the two. */
static uint8_t plain(uint8_t type)
{
	return type == PTX_U8 ? PTX_S8 : type == PTX_E5M2 ? PTX_E4M3 : type;
}

static bool taken(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;

	for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
		if (products[i].shape == now->shape && products[i].result == now->types[0] && products[i].result == now->types[3] &&
		    products[i].a == plain(now->types[1]) && products[i].b == plain(now->types[2]))
			return ptx_needs(c, products[i].version, products[i].target);
	}
	return ptx_refuse(c, "this shape is not supported with these types");
}

/* Of all lanes together, and nothing that these instructions do not have. */
static bool together(struct ptx_compiler *c, uint64_t flags)
{
	const struct ptx_instruction *now = c->now;
	const uint64_t always = PTX_F(SYNC) | PTX_F(ALIGNED);

	return ptx_flags(c, flags | always) &&
	       (((now->flags & always) == always && now->vector == PTX_NOT_VECTOR && !now->round && !now->scope && !now->semantics &&
		 !now->operation && !now->space2 && !now->geometry) ||
		ptx_refuse(c, "this form is not supported"));
}

/* The columns of registers in braces, or of one alone, that hold a matrix. */
static bool columns(struct ptx_compiler *c, uint32_t operand, uint8_t width, uint32_t count, bool out, uint32_t *list)
{
	const struct ptx_operand *from = &c->now->operands[operand];
	const bool vector = from->kind == PTX_OPERAND_VECTOR;
	const uint8_t type = width == PTX_W_64 ? PTX_B64 : PTX_B32;

	if ((vector ? from->count : 1) != count)
		return ptx_refuse(c, "a matrix has another number of registers");
	for (uint32_t i = 0; i < count; i++) {
		const struct ptx_operand *one = vector ? &from->elements[i] : from;
		struct ptx_place place;

		list[i] = PTX_NOWHERE;
		if (one->second != PTX_NONE || (one->kind != PTX_OPERAND_REGISTER && !(out && one->kind == PTX_OPERAND_SINK)))
			return ptx_refuse(c, "a matrix is in registers");
		if (one->kind == PTX_OPERAND_SINK)
			continue;
		if (out ? !ptx_out_operand(c, one, type, &place) : !ptx_in_operand(c, one, type, &place))
			return false;
		if (place.width != width)
			return ptx_refuse(c, "an operand is not of this type's size");
		list[i] = place.at;
	}
	return true;
}

static struct ptx_op *emit_all(struct ptx_compiler *c, enum ptx_run_op code, const uint32_t *list)
{
	uint32_t everybody;
	struct ptx_op *op = ptx_constant(c, PTX_W_32, UINT32_MAX, &everybody) ? ptx_emit(c, code) : NULL;

	if (!op)
		return NULL;
	op->e = everybody;
	op->list = list;
	return op;
}

/* mma.sync.aligned.shape.row.col.d.a.b.c d, a, b, c */
static bool product(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	const uint8_t type = now->types[0];
	const uint32_t rows = sizes[now->shape].rows, depth = sizes[now->shape].depth;
	uint32_t registers[4], *list;

	if (!together(c, type == PTX_S32 ? PTX_F(SATFINITE) : 0) || !ptx_operands(c, 4, 4))
		return false;
	if (now->layout != PTX_LAYOUT_ROW || now->layout2 != PTX_LAYOUT_COL || now->typecount != 4 || now->matrices || now->space)
		return ptx_refuse(c, "this form is not supported");
	if (!taken(c))
		return false;
	registers[0] = registers[3] = ptx_tensor_results(type, rows);
	registers[1] = ptx_tensor_registers(now->types[1], rows, depth);
	registers[2] = ptx_tensor_registers(now->types[2], 8, depth);
	list = ptx_hold(c, (registers[0] + registers[1] + registers[2] + registers[3]) * sizeof(*list));
	if (!list)
		return false;
	for (uint32_t i = 0, at = 0; i < 4; at += registers[i++]) {
		if (!columns(c, i, ptx_tensor_width(now->types[i]), registers[i], i == 0, list + at))
			return false;
	}
	struct ptx_op *op = emit_all(c, PTX_RUN_MMA, list);

	if (!op)
		return false;
	op->sub = now->types[1];
	op->sub2 = now->types[2];
	op->mode = type | (now->flags & PTX_F(SATFINITE) ? PTX_TENSOR_SATURATES : 0);
	op->imm = rows | depth << 8;
	return true;
}

/* ldmatrix d, [p]; stmatrix [p], s; movmatrix d, s */
static bool matrix(struct ptx_compiler *c, enum ptx_matrix_use use)
{
	const struct ptx_instruction *now = c->now;
	const bool move = use == PTX_MATRIX_MOVE;
	const uint32_t registers = use == PTX_MATRIX_STORE ? 1 : 0;
	struct ptx_address address = { .at = PTX_NOWHERE };
	const uint32_t count = move ? 1 : now->matrices;
	uint32_t *list = ptx_hold(c, (count + 1) * sizeof(*list));

	if (!list || !together(c, PTX_F(TRANS)) || !ptx_operands(c, 2, 2))
		return false;
	if (!count || now->shape != PTX_SHAPE_M8N8 || now->layout || now->typecount != 1 || now->types[0] != PTX_B16 ||
	    (move && (now->matrices || now->space || !(now->flags & PTX_F(TRANS)))))
		return ptx_refuse(c, "this form is not supported");
	if (!ptx_needs(c, use == PTX_MATRIX_LOAD ? 65 : 78, use == PTX_MATRIX_STORE ? 90 : 75) ||
	    !columns(c, registers, PTX_W_32, count, use != PTX_MATRIX_STORE, list) ||
	    (move && !columns(c, 1, PTX_W_32, 1, false, list + 1)) ||
	    (!move && !ptx_address(c, &now->operands[1 - registers], now->space, &address)))
		return false;
	if (!move && ((address.space != PTX_MEM_SHARED && address.space != PTX_MEM_GENERIC) || (int64_t)address.imm != (int32_t)address.imm))
		return ptx_refuse(c, "this state space is not supported here");
	struct ptx_op *op = emit_all(c, PTX_RUN_MATRIX, list);

	if (!op)
		return false;
	op->c = use;
	op->imm = count;
	op->sub = address.space;
	op->sub2 = (now->flags & PTX_F(TRANS)) != 0;
	op->a = address.at;
	op->wa = address.width;
	op->target = (uint32_t)address.imm;
	return true;
}

bool ptx_emit_tensor(struct ptx_compiler *c)
{
	switch (c->now->opcode) {
	case PTX_OP_MMA:
		return product(c);
	case PTX_OP_LDMATRIX:
		return matrix(c, PTX_MATRIX_LOAD);
	case PTX_OP_STMATRIX:
		return matrix(c, PTX_MATRIX_STORE);
	default:
		return matrix(c, PTX_MATRIX_MOVE);
	}
}
