/* SPDX-License-Identifier: Apache-2.0 */
/* emitsample.c: textures and surfaces. */
#include "compile.h"

/* Dimensions, and whether a layer comes before the coordinates. */
static bool geometry(struct ptx_compiler *c, struct ptx_sample *sample)
{
	switch (c->now->geometry) {
	case PTX_GEOM_1D: case PTX_GEOM_A1D:
		sample->dimensions = 1;
		break;
	case PTX_GEOM_2D: case PTX_GEOM_A2D:
		sample->dimensions = 2;
		break;
	case PTX_GEOM_3D:
		sample->dimensions = 3;
		break;
	default:
		return ptx_refuse(c, "this geometry is not supported");
	}
	sample->layered = c->now->geometry == PTX_GEOM_A1D || c->now->geometry == PTX_GEOM_A2D;
	return true;
}

static bool word(struct ptx_compiler *c, const struct ptx_operand *operand, uint8_t type, uint32_t *at)
{
	struct ptx_place place;

	if (!ptx_in_operand(c, operand, type, &place))
		return false;
	if (place.width != ptx_width_of(type) || place.negated)
		return ptx_refuse(c, "an operand is not of this type's size");
	*at = place.at;
	return true;
}

/* [handle, {layer, x, y, z}]; what follows the coordinates only fills the vector */
static bool where(struct ptx_compiler *c, const struct ptx_operand *operand, struct ptx_sample *sample)
{
	uint32_t wanted = sample->dimensions + sample->layered;

	if (operand->kind != PTX_OPERAND_TEXTURE)
		return ptx_refuse(c, "a handle and coordinates are missing");
	if (operand->elements[1].kind != PTX_OPERAND_NONE)
		return ptx_refuse(c, "separate samplers are not supported");
	if (operand->elements[0].kind == PTX_OPERAND_SYMBOL)
		return ptx_refuse(c, "texture and surface references are not supported");
	if (!word(c, &operand->elements[0], PTX_B64, &sample->handle))
		return false;
	const struct ptx_operand *at = &operand->elements[2];

	if (at->kind != PTX_OPERAND_VECTOR)
		return wanted == 1 ? word(c, at, PTX_B32, &sample->coordinate[0])
				   : ptx_refuse(c, "there are too few coordinates");
	if (at->count < wanted || at->count > 4)
		return ptx_refuse(c, "there is another number of coordinates");
	for (uint32_t i = 0; i < wanted; i++) {
		bool floats = sample->floats && !(sample->layered && i == 0);

		if (!word(c, &at->elements[i], floats ? PTX_F32 : PTX_B32, &sample->coordinate[i]))
			return false;
	}
	return true;
}

/* The registers of one value or of a vector; width is that of all of them. */
static bool columns(struct ptx_compiler *c, const struct ptx_operand *operand, bool out, struct ptx_sample *sample,
		    uint32_t count, uint8_t type, uint8_t *width)
{
	const struct ptx_operand *each = operand->kind == PTX_OPERAND_VECTOR ? operand->elements : operand;

	if ((operand->kind == PTX_OPERAND_VECTOR ? operand->count : 1) != count)
		return ptx_refuse(c, "the vector has another size");
	*width = PTX_W_NONE;
	for (uint32_t i = 0; i < count; i++) {
		struct ptx_place place;

		sample->column[i] = PTX_NOWHERE;
		if (out && each[i].kind == PTX_OPERAND_SINK)
			continue;
		if (out ? !ptx_out_operand(c, &each[i], type, &place) : !ptx_in_operand(c, &each[i], type, &place))
			return false;
		if (place.width == PTX_W_PRED || (*width != PTX_W_NONE && place.width != *width))
			return ptx_refuse(c, "parts of the vector differ in size");
		sample->column[i] = place.at;
		*width = place.width;
	}
	if (*width == PTX_W_NONE)
		*width = ptx_width_of(type);
	if (ptx_width_bytes(*width) < ptx_type_bytes(type))
		return ptx_refuse(c, "a register is too small");
	sample->count = (uint8_t)count;
	return true;
}

static struct ptx_op *emit(struct ptx_compiler *c, enum ptx_run_op code, const struct ptx_sample *sample, uint8_t width)
{
	struct ptx_sample *kept = ptx_hold(c, sizeof(*kept));
	struct ptx_op *op = kept ? ptx_emit(c, code) : NULL;

	if (!op)
		return NULL;
	*kept = *sample;
	op->sample = kept;
	op->wd = width;
	return op;
}

static bool texture(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	bool gather = now->opcode == PTX_OP_TLD4;
	struct ptx_sample sample = { .gather = gather, .sampler = PTX_NOWHERE };
	uint8_t width;
	uint32_t lod;

	if (!ptx_flags(c, gather ? PTX_F(R) | PTX_F(G) | PTX_F(B) | PTX_F(A) : PTX_F(LEVEL) | PTX_F(BASE)) ||
	    !geometry(c, &sample))
		return false;
	if (now->typecount != 2 || now->vector != 4 || ptx_type_bytes(now->types[0]) != 4 ||
	    (now->types[0] != PTX_F32 && now->types[0] != PTX_U32 && now->types[0] != PTX_S32) ||
	    (now->types[1] != PTX_F32 && now->types[1] != PTX_S32))
		return ptx_refuse(c, "this form is not supported");
	if (gather && (sample.dimensions != 2 || now->types[1] != PTX_F32))
		return ptx_refuse(c, "this form is not supported");
	sample.component = now->flags & PTX_F(G) ? 1 : now->flags & PTX_F(B) ? 2 : now->flags & PTX_F(A) ? 3 : 0;
	sample.floats = now->types[1] == PTX_F32;
	sample.type = now->types[0];
	/* the level of detail of a texture that has one level means nothing */
	bool level = now->flags & PTX_F(LEVEL);

	if (!ptx_operands(c, level ? 3 : 2, level ? 3 : 2) ||
	    (level && !word(c, &now->operands[2], sample.floats ? PTX_F32 : PTX_B32, &lod)) ||
	    !columns(c, &now->operands[0], true, &sample, 4, now->types[0], &width) ||
	    !where(c, &now->operands[1], &sample))
		return false;
	return emit(c, PTX_RUN_TEX, &sample, width) != NULL;
}

/* suld.b, sust.b, sured.b: x counts bytes */
static bool surface(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	bool load = now->opcode == PTX_OP_SULD;
	bool reduce = now->opcode == PTX_OP_SURED;
	uint64_t cache = PTX_F(CA) | PTX_F(CG) | PTX_F(CS) | PTX_F(CV) | PTX_F(WB) | PTX_F(WT);
	struct ptx_sample sample = { .surface = true, .elements = now->vector, .sampler = PTX_NOWHERE };
	uint8_t width;

	if (!ptx_flags(c, cache | PTX_F(B) | PTX_F(TRAP) | PTX_F(CLAMP) | PTX_F(ZERO)) || !geometry(c, &sample))
		return false;
	if (!(now->flags & PTX_F(B)) || now->typecount != 1 || (reduce ? !now->operation : now->operation))
		return ptx_refuse(c, "this form is not supported");
	uint32_t bytes = ptx_type_bytes(now->types[0]);

	if ((bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) || bytes * now->vector > 16 || now->vector > 4 ||
	    (reduce && (bytes < 4 || now->vector > 1 || now->operation < PTX_DO_AND || now->operation > PTX_DO_MAX)))
		return ptx_refuse(c, "this form is not supported");
	sample.type = now->types[0];
	sample.bytes = (uint8_t)bytes;
	sample.outside = now->flags & PTX_F(CLAMP) ? 1 : now->flags & PTX_F(ZERO) ? 2 : 0;
	sample.query = now->operation;
	if (!ptx_operands(c, 2, 2) ||
	    !columns(c, &now->operands[load ? 0 : 1], load, &sample, now->vector, now->types[0], &width) ||
	    !where(c, &now->operands[load ? 1 : 0], &sample))
		return false;
	return emit(c, load ? PTX_RUN_SULD : PTX_RUN_SUST, &sample, width) != NULL;
}

static bool query(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	struct ptx_sample sample = { .surface = now->opcode == PTX_OP_SUQ, .query = now->operation };
	const struct ptx_operand *operand = &now->operands[1];
	uint8_t width;

	if (!ptx_flags(c, 0) || !ptx_operands(c, 2, 2))
		return false;
	if (now->typecount != 1 || ptx_type_bytes(now->types[0]) != 4 || now->vector != 1 ||
	    (now->operation != PTX_DO_WIDTH && now->operation != PTX_DO_HEIGHT && now->operation != PTX_DO_DEPTH &&
	     now->operation != PTX_DO_ARRAY_SIZE && (sample.surface || now->operation != PTX_DO_NORMALIZED_COORDS)))
		return ptx_refuse(c, "this form is not supported");
	if (operand->kind != PTX_OPERAND_ADDRESS || operand->offset)
		return ptx_refuse(c, "a handle is missing");
	if (operand->variable)
		return ptx_refuse(c, "texture and surface references are not supported");
	if (operand->reg == PTX_NONE)
		return ptx_refuse(c, "a handle is missing");
	/* the handle itself, not what lies there */
	const struct ptx_operand handle = { .kind = PTX_OPERAND_REGISTER, .reg = operand->reg, .second = PTX_NONE };

	if (!word(c, &handle, PTX_B64, &sample.handle) ||
	    !columns(c, &now->operands[0], true, &sample, 1, now->types[0], &width))
		return false;
	return emit(c, PTX_RUN_TXQ, &sample, width) != NULL;
}

bool ptx_emit_sample(struct ptx_compiler *c)
{
	switch (c->now->opcode) {
	case PTX_OP_TEX: case PTX_OP_TLD4:
		return texture(c);
	case PTX_OP_SULD: case PTX_OP_SUST: case PTX_OP_SURED:
		return surface(c);
	case PTX_OP_TXQ: case PTX_OP_SUQ:
		return query(c);
	default:
		return ptx_refuse(c, "this instruction is not supported by the simulated card");
	}
}
