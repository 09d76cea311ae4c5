/* SPDX-License-Identifier: Apache-2.0 */
/* emit.c: the operations so far, constants, and what operands are. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compile.h"

bool ptx_refuse(struct ptx_compiler *c, const char *why)
{
	c->log->unsupported = true;
	ptx_fail(c->log, c->now ? c->now->line : c->function->line, "%s: %s", c->now ? c->now->text : c->function->name, why);
	return false;
}

bool ptx_out_of_memory(struct ptx_compiler *c)
{
	ptx_fail(c->log, c->now ? c->now->line : 0, "out of memory");
	return false;
}

bool ptx_flags(struct ptx_compiler *c, uint64_t allowed)
{
	return !(c->now->flags & ~allowed) || ptx_refuse(c, "this modifier is not supported here");
}

bool ptx_needs(struct ptx_compiler *c, uint32_t version, uint32_t target)
{
	if (c->module->version >= version && c->module->target >= target)
		return true;
	ptx_fail(c->log, c->now->line, "%s: needs .version %u.%u and .target sm_%u", c->now->text, version / 10, version % 10,
		 target);
	return false;
}

bool ptx_operands(struct ptx_compiler *c, uint32_t least, uint32_t most)
{
	if (c->now->operandcount >= least && c->now->operandcount <= most)
		return true;
	ptx_fail(c->log, c->now->line, "%s: wrong number of operands", c->now->text);
	return false;
}

void *ptx_hold(struct ptx_compiler *c, size_t bytes)
{
	struct ptx_holding *holding = calloc(1, sizeof(*holding) + bytes + 16);

	if (!holding) {
		ptx_out_of_memory(c);
		return NULL;
	}
	holding->next = c->code->holdings;
	c->code->holdings = holding;
	return holding + 1;
}

struct ptx_op *ptx_emit(struct ptx_compiler *c, enum ptx_run_op code)
{
	if (c->opcount == c->oproom) {
		uint32_t room = c->oproom ? c->oproom * 2 : 256;
		struct ptx_op *ops = room > 1u << 26 ? NULL : realloc(c->ops, (size_t)room * sizeof(*ops));

		if (!ops) {
			ptx_out_of_memory(c);
			return NULL;
		}
		c->ops = ops;
		c->oproom = room;
	}
	struct ptx_op *op = &c->ops[c->opcount++];

	*op = (struct ptx_op){ .code = (uint16_t)code, .line = c->now ? c->now->line : 0, .e = PTX_NOWHERE,
			       .wa = PTX_W_32, .wb = PTX_W_32, .wc = PTX_W_32, .wd = PTX_W_32, .target = PTX_NOWHERE };
	return op;
}

bool ptx_fix(struct ptx_compiler *c, uint32_t op)
{
	if (c->fixcount == c->fixroom) {
		uint32_t room = c->fixroom ? c->fixroom * 2 : 64;
		uint32_t *fixes = realloc(c->fixes, room * sizeof(*fixes));

		if (!fixes)
			return ptx_out_of_memory(c);
		c->fixes = fixes;
		c->fixroom = room;
	}
	c->fixes[c->fixcount++] = op;
	return true;
}

uint8_t ptx_width_of(uint8_t type)
{
	switch (type) {
	case PTX_PRED:
		return PTX_W_PRED;
	case PTX_TEXREF: case PTX_SURFREF: case PTX_SAMPLERREF:
		return PTX_W_64;
	default:
		switch (ptx_type_bytes(type)) {
		case 8: case 16:
			return PTX_W_64;
		case 4:
			return PTX_W_32;
		default:
			return PTX_W_16;
		}
	}
}

static uint32_t hashed(uint8_t width, uint64_t value, uint32_t room)
{
	return (uint32_t)((value * 0x9e3779b97f4a7c15ull >> 32) + width) & (room - 1);
}

static bool rehash(struct ptx_compiler *c)
{
	uint32_t room = c->hashroom ? c->hashroom * 2 : 128;
	uint32_t *hash = malloc(room * sizeof(*hash));

	if (!hash)
		return ptx_out_of_memory(c);
	memset(hash, 255, room * sizeof(*hash));
	for (uint32_t i = 0; i < c->constantcount; i++) {
		uint32_t h = hashed(c->widths[i], c->values[i], room);

		while (hash[h] != PTX_NONE)
			h = (h + 1) & (room - 1);
		hash[h] = i;
	}
	free(c->hash);
	c->hash = hash;
	c->hashroom = room;
	return true;
}

bool ptx_constant(struct ptx_compiler *c, uint8_t width, uint64_t value, uint32_t *at)
{
	uint32_t bytes = ptx_column_bytes(width);

	value &= width == PTX_W_PRED ? 1 : width == PTX_W_16 ? 0xffff : width == PTX_W_32 ? 0xffffffffu : ~0ull;
	if ((c->constantcount + 1) * 2 > c->hashroom && !rehash(c))
		return false;
	uint32_t h = hashed(width, value, c->hashroom);

	for (; c->hash[h] != PTX_NONE; h = (h + 1) & (c->hashroom - 1)) {
		uint32_t i = c->hash[h];

		if (c->values[i] == value && c->widths[i] == width) {
			*at = c->places[i] | PTX_CONSTANT;
			return true;
		}
	}
	if (c->body->constantbytes + bytes > c->constantroom) {
		uint32_t room = c->constantroom ? c->constantroom * 2 : 8192;
		unsigned char *constants = room > 1u << 29 ? NULL : aligned_alloc(128, room);

		if (!constants)
			return ptx_out_of_memory(c);
		if (c->body->constants)
			memcpy(constants, c->body->constants, c->body->constantbytes);
		free(c->body->constants);
		c->body->constants = constants;
		c->constantroom = room;
	}
	/* grows with the hash: never more than half of it */
	uint64_t *values = realloc(c->values, c->hashroom * sizeof(*values));
	uint32_t *places = realloc(c->places, c->hashroom * sizeof(*places));
	uint8_t *widths = realloc(c->widths, c->hashroom);

	c->values = values ? values : c->values;
	c->places = places ? places : c->places;
	c->widths = widths ? widths : c->widths;
	if (!values || !places || !widths)
		return ptx_out_of_memory(c);
	uint32_t i = c->constantcount++;
	uint32_t place = c->body->constantbytes;

	c->hash[h] = i;
	c->values[i] = value;
	c->places[i] = place;
	c->widths[i] = width;
	c->body->constantbytes += bytes;
	if (width == PTX_W_PRED)
		*(uint32_t *)(void *)(c->body->constants + place) = value ? ~0u : 0;
	for (uint32_t l = 0; width != PTX_W_PRED && l < PTX_LANES; l++)
		memcpy(c->body->constants + place + l * ptx_width_bytes(width), &value, ptx_width_bytes(width));
	*at = place | PTX_CONSTANT;
	return true;
}

uint32_t ptx_temporary(struct ptx_compiler *c)
{
	/* no instruction needs more than there are */
	uint32_t i = c->temporary < PTX_TEMPORARIES - 1 ? c->temporary++ : PTX_TEMPORARIES - 1;

	return c->temporaries + i * ptx_column_bytes(PTX_W_64);
}

uint64_t ptx_frame_offset(const struct ptx_function *function, const struct ptx_variable *variable)
{
	return variable->offset + (variable->space == PTX_SPACE_PARAM ? ((uint64_t)function->localbytes + 15) & ~15ull : 0);
}

uint32_t ptx_dynamic_offset(const struct ptx_compiler *c)
{
	return c->code->sharedbytes;
}

static bool is_shared(uint8_t space)
{
	return space == PTX_SPACE_SHARED || space == PTX_SPACE_SHARED_CTA || space == PTX_SPACE_SHARED_CLUSTER;
}

static uint64_t shared_offset(const struct ptx_compiler *c, const struct ptx_variable *variable)
{
	return variable->dynamic ? ptx_dynamic_offset(c) : variable->offset;
}

/* The address of a variable as a value. */
static bool variable_value(struct ptx_compiler *c, const struct ptx_variable *named, int64_t offset, uint8_t width,
			   struct ptx_place *place)
{
	const struct ptx_variable *variable = named->definition ? named->definition : named;

	place->width = width;
	if (is_shared(variable->space))
		return ptx_constant(c, width, shared_offset(c, variable) + (uint64_t)offset, &place->at);
	if (variable->space == PTX_SPACE_PARAM && variable->entry)
		return ptx_constant(c, width, variable->offset + (uint64_t)offset, &place->at);
	if (variable->space == PTX_SPACE_LOCAL || variable->space == PTX_SPACE_PARAM) {
		uint32_t at = ptx_temporary(c);
		struct ptx_op *op = ptx_emit(c, PTX_RUN_LOCALADDR);

		if (!op)
			return false;
		op->d = place->at = at;
		op->wd = width;
		op->imm = ptx_frame_offset(c->function, variable) + (uint64_t)offset;
		return true;
	}
	return ptx_constant(c, width, variable->address + (uint64_t)offset, &place->at);
}

static uint64_t immediate(const struct ptx_operand *operand, uint8_t type)
{
	double value = operand->form == PTX_FORM_F32 ? (double)ptx_f32(operand->bits) : ptx_f64(operand->bits);

	if (type == PTX_F32 || type == PTX_B32 || type == PTX_F64 || type == PTX_B64) {
		bool wide = type == PTX_F64 || type == PTX_B64;

		if (operand->form == PTX_FORM_F32)
			return wide ? ptx_bits64(value) : operand->bits;
		if (operand->form == PTX_FORM_F64)
			return wide ? operand->bits : ptx_bits32((float)value);
		if (type == PTX_F32)
			return ptx_bits32((float)(int64_t)operand->bits);
		if (type == PTX_F64)
			return ptx_bits64((double)(int64_t)operand->bits);
	}
	if ((type == PTX_F16 || type == PTX_BF16) && operand->form > PTX_FORM_UNSIGNED)
		return ptx_from_double(value, type, PTX_ROUND_RN);
	return operand->bits;
}

static bool of_register(struct ptx_compiler *c, const struct ptx_operand *operand, struct ptx_place *place)
{
	const struct ptx_register *reg = &c->function->registers[operand->reg];
	uint32_t lane = operand->lane ? operand->lane - 1u : 0;

	if (operand->odd)
		return ptx_refuse(c, "this part of an operand is not supported");
	if (reg->type == PTX_B128 && !operand->lane)
		return ptx_refuse(c, "128 bits are not supported here");
	if (lane >= (reg->type == PTX_B128 ? 2u : reg->vector ? reg->vector : 1u)) {
		ptx_fail(c->log, c->now->line, "'%s' has no such part", reg->name);
		return false;
	}
	place->width = ptx_register_width(reg);
	place->at = c->slots[operand->reg] + lane * ptx_column_bytes(place->width);
	place->negated = operand->negated;
	return true;
}

bool ptx_in_operand(struct ptx_compiler *c, const struct ptx_operand *operand, uint8_t type, struct ptx_place *place)
{
	uint8_t width = ptx_width_of(type);

	*place = (struct ptx_place){ .width = width };
	switch (operand->kind) {
	case PTX_OPERAND_REGISTER:
		return of_register(c, operand, place);
	case PTX_OPERAND_IMMEDIATE:
		return ptx_constant(c, width, width == PTX_W_PRED ? operand->bits != 0 : immediate(operand, type), &place->at);
	case PTX_OPERAND_SPECIAL: {
		uint32_t at = ptx_temporary(c);
		bool lane = operand->special == PTX_SR_LANEID && width == PTX_W_32;
		struct ptx_op *op = ptx_emit(c, lane ? PTX_RUN_LANEID : PTX_RUN_SPECIAL);

		if (!op)
			return false;
		op->d = place->at = at;
		op->wd = width;
		op->sub = operand->special;
		op->sub2 = operand->lane ? (uint8_t)(operand->lane - 1) : 0;
		return true;
	}
	case PTX_OPERAND_SYMBOL:
		return variable_value(c, operand->variable, operand->offset, width, place);
	case PTX_OPERAND_FUNCTION:
		return ptx_constant(c, width, ptx_function_address(operand->function), &place->at);
	default:
		return ptx_refuse(c, "this operand is not supported here");
	}
}

bool ptx_in(struct ptx_compiler *c, uint32_t operand, uint8_t type, struct ptx_place *place)
{
	if (operand >= c->now->operandcount) {
		ptx_fail(c->log, c->now->line, "%s: too few operands", c->now->text);
		return false;
	}
	return ptx_in_operand(c, &c->now->operands[operand], type, place);
}

bool ptx_out_operand(struct ptx_compiler *c, const struct ptx_operand *operand, uint8_t type, struct ptx_place *place)
{
	*place = (struct ptx_place){ .width = ptx_width_of(type) };
	switch (operand->kind) {
	case PTX_OPERAND_REGISTER:
		return of_register(c, operand, place);
	case PTX_OPERAND_SINK:
		place->at = ptx_temporary(c);
		return true;
	default:
		ptx_fail(c->log, c->now->line, "%s: the destination is no register", c->now->text);
		return false;
	}
}

bool ptx_out(struct ptx_compiler *c, uint32_t operand, uint8_t type, struct ptx_place *place)
{
	if (operand >= c->now->operandcount) {
		ptx_fail(c->log, c->now->line, "%s: too few operands", c->now->text);
		return false;
	}
	return ptx_out_operand(c, &c->now->operands[operand], type, place);
}

static bool sized(struct ptx_compiler *c, const struct ptx_place *place, uint8_t type)
{
	if (place->width == ptx_width_of(type))
		return true;
	ptx_fail(c->log, c->now->line, "%s: an operand is not of this type's size", c->now->text);
	return false;
}

bool ptx_emit_lane(struct ptx_compiler *c, ptx_lane lane, uint32_t mode, uint8_t round, uint8_t d, uint8_t a, uint8_t b,
		   uint8_t third)
{
	struct ptx_place to;
	struct ptx_place from[3] = { { .at = 0 } };
	const uint8_t types[3] = { a, b, third };
	uint8_t flip = 0;

	if (!ptx_out(c, 0, d, &to) || !sized(c, &to, d))
		return false;
	for (uint32_t i = 0; i < 3; i++) {
		if (!types[i]) {
			if (!ptx_constant(c, PTX_W_32, 0, &from[i].at))
				return false;
			from[i].width = PTX_W_32;
			continue;
		}
		if (!ptx_in(c, i + 1, types[i], &from[i]) || !sized(c, &from[i], types[i]))
			return false;
		flip |= from[i].negated ? (uint8_t)(1u << i) : 0;
	}
	struct ptx_op *op = ptx_emit(c, PTX_RUN_LANE);

	if (!op)
		return false;
	op->lane = lane;
	op->mode = mode;
	op->sub = round == PTX_ROUND_RN ? 0 : round;
	op->sub2 = flip;
	op->d = to.at;
	op->wd = to.width;
	op->a = from[0].at;
	op->wa = from[0].width;
	op->b = from[1].at;
	op->wb = from[1].width;
	op->c = from[2].at;
	op->wc = from[2].width;
	return true;
}

bool ptx_emit_same(struct ptx_compiler *c, enum ptx_run_op code, uint8_t type, uint32_t operands)
{
	struct ptx_place to;
	struct ptx_place from[3] = { { .at = 0 } };

	if (!ptx_operands(c, operands + 1, operands + 1) || !ptx_out(c, 0, type, &to) || !sized(c, &to, type))
		return false;
	for (uint32_t i = 0; i < operands; i++) {
		if (!ptx_in(c, i + 1, type, &from[i]) || !sized(c, &from[i], type))
			return false;
		if (from[i].negated)
			return ptx_refuse(c, "a negated operand is not supported here");
	}
	struct ptx_op *op = ptx_emit(c, code);

	if (!op)
		return false;
	op->d = to.at;
	op->a = from[0].at;
	op->b = from[1].at;
	op->c = from[2].at;
	op->wa = op->wb = op->wc = op->wd = to.width;
	return true;
}

static bool space_of(struct ptx_compiler *c, uint8_t space, uint8_t *memory)
{
	switch (space) {
	case PTX_SPACE_GENERIC:
		*memory = PTX_MEM_GENERIC;
		return true;
	case PTX_SPACE_GLOBAL: case PTX_SPACE_CONST:
		*memory = PTX_MEM_GLOBAL;
		return true;
	case PTX_SPACE_SHARED: case PTX_SPACE_SHARED_CTA: case PTX_SPACE_SHARED_CLUSTER:
		*memory = PTX_MEM_SHARED;
		return true;
	case PTX_SPACE_LOCAL: case PTX_SPACE_PARAM_FUNC:
		*memory = PTX_MEM_LOCAL;
		return true;
	case PTX_SPACE_PARAM: case PTX_SPACE_PARAM_ENTRY:
		*memory = c->function->entry || space == PTX_SPACE_PARAM_ENTRY ? PTX_MEM_PARAM : PTX_MEM_LOCAL;
		return true;
	default:
		return ptx_refuse(c, "this state space is not supported here");
	}
}

bool ptx_address(struct ptx_compiler *c, const struct ptx_operand *operand, uint8_t space, struct ptx_address *address)
{
	*address = (struct ptx_address){ .width = PTX_W_64, .imm = (uint64_t)operand->offset };
	if (operand->kind != PTX_OPERAND_ADDRESS) {
		ptx_fail(c->log, c->now->line, "%s: an address is missing", c->now->text);
		return false;
	}
	if (operand->reg != PTX_NONE) {
		const struct ptx_operand base = { .kind = PTX_OPERAND_REGISTER, .reg = operand->reg, .lane = operand->lane };
		struct ptx_place place;

		if (!of_register(c, &base, &place) || !space_of(c, space, &address->space))
			return false;
		if (place.width != PTX_W_64 && place.width != PTX_W_32)
			return ptx_refuse(c, "an address has 32 or 64 bits");
		address->at = place.at;
		address->width = place.width;
		return true;
	}
	if (!operand->variable)
		return space_of(c, space, &address->space) && ptx_constant(c, PTX_W_64, 0, &address->at);
	const struct ptx_variable *variable = operand->variable->definition ? operand->variable->definition : operand->variable;

	if (variable->space == PTX_SPACE_REG)
		return ptx_refuse(c, "this parameter is a register");
	if (!ptx_constant(c, PTX_W_64, 0, &address->at))
		return false;
	if (is_shared(variable->space)) {
		address->space = PTX_MEM_SHARED;
		address->imm += shared_offset(c, variable);
	} else if (variable->space == PTX_SPACE_PARAM && variable->entry) {
		address->space = PTX_MEM_PARAM;
		address->imm += variable->offset;
		address->known = true;
	} else if (variable->space == PTX_SPACE_LOCAL || variable->space == PTX_SPACE_PARAM) {
		address->space = PTX_MEM_LOCAL;
		address->imm += ptx_frame_offset(c->function, variable);
		address->mode = PTX_MODE_FRAME;
	} else {
		address->space = PTX_MEM_GLOBAL;
		address->imm += variable->address;
	}
	return true;
}
