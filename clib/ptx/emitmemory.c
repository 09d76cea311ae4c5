/* SPDX-License-Identifier: Apache-2.0 */
/* emitmemory.c: loads, stores, atomics, fences. */
#include "compile.h"

#include <string.h>

#define CACHE (PTX_F(CA) | PTX_F(CG) | PTX_F(CS) | PTX_F(LU) | PTX_F(CV) | PTX_F(WB) | PTX_F(WT) | PTX_F(NC) | \
	       PTX_F(L1) | PTX_F(L2) | PTX_F(HINT) | PTX_F(EVICTION) | PTX_F(PREFETCH_SIZE))

static bool element(struct ptx_compiler *c, uint8_t type)
{
	uint32_t bytes = ptx_type_bytes(type);

	return ((bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) && type != PTX_PRED) ||
	       ptx_refuse(c, "this type is not supported here");
}

static void put_address(struct ptx_op *op, const struct ptx_address *address)
{
	op->a = address->at;
	op->wa = address->width;
	op->imm = address->imm;
	op->sub = address->space;
	op->mode |= address->mode;
}

/* The policy behind a cache hint: a hint, of which nothing is left but that it is there. */
static bool policy(struct ptx_compiler *c, uint32_t operands)
{
	struct ptx_place place;

	if (!(c->now->flags & PTX_F(HINT)))
		return ptx_operands(c, operands, operands);
	if (!ptx_operands(c, operands + 1, operands + 1) || !ptx_in(c, operands, PTX_B64, &place))
		return false;
	return place.width == PTX_W_64 || ptx_refuse(c, "a cache policy has 64 bits");
}

/* 128 bits as two of 64 each. */
static uint8_t halved(uint8_t type, uint32_t *count)
{
	if (type != PTX_B128)
		return type;
	*count *= 2;
	return PTX_B64;
}

/* The columns of a vector, or of the one value. */
static bool columns(struct ptx_compiler *c, const struct ptx_operand *operand, uint8_t type, uint32_t count, bool out,
		    struct ptx_place *first, uint32_t **list)
{
	if (count == 1)
		return out ? ptx_out_operand(c, operand, type, first) : ptx_in_operand(c, operand, type, first);
	*list = ptx_hold(c, count * sizeof(**list));
	if (!*list)
		return false;
	uint32_t parts = c->now->types[0] == PTX_B128 ? 2 : 1;

	for (uint32_t i = 0; i < count; i++) {
		struct ptx_place place;
		struct ptx_operand lane = *operand;
		const struct ptx_operand *one = &lane;

		/* {a, b}, or a register that is a vector */
		if (operand->kind == PTX_OPERAND_VECTOR) {
			if (operand->count * parts != count)
				return ptx_refuse(c, "the vector has another size");
			lane = operand->elements[i / parts];
			if (parts > 1)
				lane.lane = (uint8_t)(i % parts + 1);
		} else {
			lane.lane = (uint8_t)(i + 1);
		}
		if (parts > 1 && one->kind != PTX_OPERAND_SINK &&
		    (one->kind != PTX_OPERAND_REGISTER || c->function->registers[one->reg].type != PTX_B128))
			return ptx_refuse(c, "128 bits need a register of that size");
		if (out && one->kind == PTX_OPERAND_SINK) {
			(*list)[i] = PTX_NOWHERE;
			place.width = ptx_width_of(type);
		} else if (out ? !ptx_out_operand(c, one, type, &place) : !ptx_in_operand(c, one, type, &place)) {
			return false;
		} else {
			(*list)[i] = place.at;
		}
		if (i && place.width != first->width)
			return ptx_refuse(c, "parts of the vector differ in size");
		first->width = place.width;
	}
	return true;
}

/* Most are 16 bytes; 32 came with later cards, and in global memory only. */
static bool wide(struct ptx_compiler *c, uint32_t count, uint32_t bytes)
{
	if (c->now->types[0] == PTX_B128 && !ptx_needs(c, 83, 70))
		return false;
	if (count * bytes <= 16)
		return true;
	return c->now->space == PTX_SPACE_GLOBAL && count * bytes == 32 ? ptx_needs(c, 88, 100)
									: ptx_refuse(c, "the vector is too long");
}

static bool load(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	uint32_t count = now->vector ? now->vector : 1;
	uint8_t type = halved(now->types[0], &count);
	uint32_t bytes = ptx_type_bytes(type);
	struct ptx_address address;
	struct ptx_place to = { .at = 0 };
	uint32_t *list = NULL;

	if (now->typecount != 1 || !ptx_flags(c, CACHE | PTX_F(UNIFIED)) || !policy(c, 2) || !wide(c, count, bytes) ||
	    !element(c, type))
		return ptx_refuse(c, "this form is not supported");
	if (!ptx_address(c, &now->operands[1], now->space, &address) ||
	    !columns(c, &now->operands[0], type, count, true, &to, &list))
		return false;
	if (to.width == PTX_W_PRED || bytes > ptx_width_bytes(to.width))
		return ptx_refuse(c, "the destination is too small");
	bool known = address.known && !(address.imm % (bytes * count));

	if (known && address.imm + (uint64_t)bytes * count > c->function->parameterbytes) {
		ptx_fail(c->log, now->line, "%s: beyond the kernel's parameters", now->text);
		return false;
	}
	for (uint32_t i = 0; known && i < count; i++) {
		if (count > 1 && list[i] == PTX_NOWHERE)
			continue;
		struct ptx_op *op = ptx_emit(c, PTX_RUN_LDPARAM);

		if (!op)
			return false;
		op->d = count > 1 ? list[i] : to.at;
		op->wd = to.width;
		op->sub2 = (uint8_t)bytes;
		op->mode = ptx_signed(type) ? PTX_MODE_SIGNED : 0;
		op->imm = address.imm + (uint64_t)i * bytes;
	}
	if (known)
		return true;
	struct ptx_op *op = ptx_emit(c, PTX_RUN_LOAD);

	if (!op)
		return false;
	op->mode = ptx_signed(type) ? PTX_MODE_SIGNED : 0;
	put_address(op, &address);
	op->sub2 = (uint8_t)bytes;
	op->e = count;
	op->wd = to.width;
	op->d = to.at;
	op->list = list;
	return true;
}

static bool store(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	uint32_t count = now->vector ? now->vector : 1;
	uint8_t type = halved(now->types[0], &count);
	struct ptx_address address;
	struct ptx_place from = { .at = 0 };
	uint32_t *list = NULL;

	if (now->typecount != 1 || !ptx_flags(c, CACHE) || !policy(c, 2) || !wide(c, count, ptx_type_bytes(type)) ||
	    !element(c, type))
		return ptx_refuse(c, "this form is not supported");
	if (!ptx_address(c, &now->operands[0], now->space, &address) ||
	    !columns(c, &now->operands[1], type, count, false, &from, &list))
		return false;
	if (address.space == PTX_MEM_PARAM)
		return ptx_refuse(c, "a kernel's parameters are only read");
	if (from.width == PTX_W_PRED || ptx_type_bytes(type) > ptx_width_bytes(from.width))
		return ptx_refuse(c, "the value is too small");
	struct ptx_op *op = ptx_emit(c, PTX_RUN_STORE);

	if (!op)
		return false;
	put_address(op, &address);
	op->sub2 = (uint8_t)ptx_type_bytes(type);
	op->e = count;
	op->wd = from.width;
	op->d = from.at;
	op->list = list;
	return true;
}

static bool atomic_type(const struct ptx_instruction *now, uint8_t type)
{
	switch (now->operation) {
	case PTX_DO_ADD:
		return type == PTX_U32 || type == PTX_S32 || type == PTX_U64 || type == PTX_S64 || type == PTX_F32 || type == PTX_F64 ||
		       type == PTX_F16 || type == PTX_BF16 || type == PTX_F16X2 || type == PTX_BF16X2;
	case PTX_DO_INC: case PTX_DO_DEC:
		return type == PTX_U32;
	case PTX_DO_MIN: case PTX_DO_MAX:
		return type == PTX_U32 || type == PTX_S32 || type == PTX_U64 || type == PTX_S64;
	case PTX_DO_AND: case PTX_DO_OR: case PTX_DO_XOR:
		return type == PTX_B32 || type == PTX_B64 || type == PTX_U32 || type == PTX_U64;
	case PTX_DO_EXCH:
		return type == PTX_B32 || type == PTX_B64 || type == PTX_B128 || type == PTX_U32 || type == PTX_U64;
	case PTX_DO_CAS:
		return type == PTX_B16 || type == PTX_B128 || type == PTX_B32 || type == PTX_B64 || type == PTX_U32 || type == PTX_U64;
	default:
		return false;
	}
}

static bool atomic_vector(const struct ptx_instruction *now, uint8_t type)
{
	bool half = type == PTX_F16 || type == PTX_BF16;

	if (type == PTX_F32)
		return now->operation == PTX_DO_ADD && now->vector <= 4;
	return (half || ((type == PTX_F16X2 || type == PTX_BF16X2) && now->vector <= 4)) && now->flags & PTX_F(NOFTZ) &&
	       (now->operation == PTX_DO_ADD || now->operation == PTX_DO_MIN || now->operation == PTX_DO_MAX);
}

/* One place; whole: bytes that all of the vector has, for its first one. */
static bool atomic_one(struct ptx_compiler *c, const struct ptx_address *address, uint8_t type, const struct ptx_place *to,
		       const struct ptx_place *b, const struct ptx_place *third, uint32_t offset, uint32_t whole)
{
	struct ptx_op *op = ptx_emit(c, PTX_RUN_ATOM);

	if (!op)
		return false;
	put_address(op, address);
	op->imm += offset;
	op->sub2 = (uint8_t)ptx_type_bytes(type);
	op->mode = c->now->operation | (uint32_t)type << 8;
	op->b = b->at;
	op->wb = b->width;
	op->c = third->at;
	op->wc = third->width;
	op->d = to->at;
	op->wd = to->width;
	op->e = whole;
	return true;
}

/* 128 bits: the list is two columns of what comes back, two of each operand. */
static bool atomic_wide(struct ptx_compiler *c, const struct ptx_address *address, bool result)
{
	const struct ptx_instruction *now = c->now;
	const struct ptx_operand *operands = &now->operands[result ? 2 : 1];
	const struct ptx_place none = { .at = PTX_NOWHERE };
	const uint32_t parts = now->operation == PTX_DO_CAS ? 6 : 4;
	uint32_t *all = ptx_hold(c, parts * sizeof(*all));
	uint32_t *list = NULL;
	struct ptx_place place;

	if (!all || !ptx_needs(c, 83, 90))
		return false;
	all[0] = all[1] = PTX_NOWHERE;
	for (uint32_t i = result ? 0 : 2; i < parts; i += 2) {
		if (!columns(c, i ? &operands[i / 2 - 1] : &now->operands[0], PTX_B64, 2, i == 0, &place, &list))
			return false;
		memcpy(&all[i], list, 2 * sizeof(*list));
	}
	if (!atomic_one(c, address, PTX_B128, &none, &none, &none, 0, PTX_NOWHERE))
		return false;
	c->ops[c->opcount - 1].list = all;
	return true;
}

/* Each value by itself: the vector as a whole is not atomic. */
static bool atomic_each(struct ptx_compiler *c, const struct ptx_address *address, uint8_t type, bool result)
{
	const struct ptx_instruction *now = c->now;
	const struct ptx_operand *from = &now->operands[result ? 2 : 1];
	const struct ptx_place none = { .at = PTX_NOWHERE };
	uint32_t bytes = ptx_type_bytes(type);
	struct ptx_place to[8];
	struct ptx_place b[8];

	if (from->kind != PTX_OPERAND_VECTOR || from->count != now->vector ||
	    (result && (now->operands[0].kind != PTX_OPERAND_VECTOR || now->operands[0].count != now->vector)))
		return ptx_refuse(c, "the vector has another size");
	for (uint32_t i = 0; i < now->vector; i++) {
		to[i] = none;
		if (!ptx_in_operand(c, &from->elements[i], type, &b[i]))
			return false;
		if (b[i].width != ptx_width_of(type))
			return ptx_refuse(c, "an operand is not of this type's size");
	}
	for (uint32_t i = 0; result && i < now->vector; i++) {
		const struct ptx_operand *element = &now->operands[0].elements[i];

		if (element->kind != PTX_OPERAND_SINK && !ptx_out_operand(c, element, type, &to[i]))
			return false;
		/* what is written may be what is still to be read, or the address */
		if (to[i].at != PTX_NOWHERE)
			to[i].at = ptx_temporary(c);
	}
	for (uint32_t i = 0; i < now->vector; i++) {
		if (!atomic_one(c, address, type, &to[i], &b[i], &none, i * bytes, i ? PTX_NOWHERE : bytes * now->vector))
			return false;
	}
	for (uint32_t i = 0; result && i < now->vector; i++) {
		struct ptx_place place;

		if (to[i].at == PTX_NOWHERE)
			continue;
		if (!ptx_out_operand(c, &now->operands[0].elements[i], type, &place))
			return false;
		struct ptx_op *op = ptx_emit(c, to[i].width == PTX_W_16 ? PTX_RUN_MOV16 : PTX_RUN_MOV32);

		if (!op)
			return false;
		op->d = place.at;
		op->a = to[i].at;
		op->wa = op->wd = to[i].width;
	}
	return true;
}

static bool atomic(struct ptx_compiler *c, bool result)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];
	uint32_t first = result ? 1 : 0;
	bool two = now->operation == PTX_DO_CAS;
	bool vector = now->vector > 1;
	struct ptx_address address;
	struct ptx_place to = { .at = PTX_NOWHERE };
	struct ptx_place b;
	struct ptx_place third = { .at = PTX_NOWHERE };

	if (!ptx_flags(c, CACHE | PTX_F(NOFTZ)))
		return false;
	if (now->typecount != 1 || !(vector ? atomic_vector(now, type) : atomic_type(now, type)))
		return ptx_refuse(c, "this operation is not supported for this type");
	if ((vector && !ptx_needs(c, 81, 90)) || !policy(c, first + 2 + two) ||
	    !ptx_address(c, &now->operands[first], now->space, &address))
		return false;
	if (address.space == PTX_MEM_PARAM || address.space == PTX_MEM_LOCAL || (vector && address.space == PTX_MEM_SHARED))
		return ptx_refuse(c, "this state space is not supported here");
	if (vector)
		return atomic_each(c, &address, type, result);
	if (type == PTX_B128)
		return atomic_wide(c, &address, result);
	if (!ptx_in(c, first + 1, type, &b) || (two && !ptx_in(c, first + 2, type, &third)) ||
	    (result && !ptx_out(c, 0, type, &to)))
		return false;
	if (result && now->operands[0].kind == PTX_OPERAND_SINK)
		to.at = PTX_NOWHERE;
	return atomic_one(c, &address, type, &to, &b, &third, 0, PTX_NOWHERE);
}

/* 0 bytes where the predicate has the source ignored, else all. */
static bool unless_ignored(struct ptx_compiler *c, uint32_t operand, uint32_t bytes, struct ptx_place *some)
{
	struct ptx_place ignored;
	uint32_t none;
	uint32_t all;

	if (!ptx_in(c, operand, PTX_PRED, &ignored) || !ptx_constant(c, PTX_W_32, 0, &none) || !ptx_constant(c, PTX_W_32, bytes, &all))
		return false;
	*some = (struct ptx_place){ .at = ptx_temporary(c), .width = PTX_W_32 };
	struct ptx_op *op = some->at == PTX_NOWHERE ? NULL : ptx_emit(c, PTX_RUN_SELP32);

	if (!op)
		return false;
	op->d = some->at;
	op->a = ignored.negated ? all : none;
	op->b = ignored.negated ? none : all;
	op->c = ignored.at;
	return true;
}

/* .mmio is there since 8.2. */
static bool dated(struct ptx_compiler *c)
{
	return c->now->semantics != PTX_SEM_MMIO || ptx_needs(c, 82, 70);
}

/* cp.async.ca.shared.global [to], [from], bytes{, some or predicate}{, policy} */
static bool copy(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	struct ptx_address to;
	struct ptx_address from;
	struct ptx_place some = { .at = PTX_NOWHERE };

	if (!(now->flags & PTX_F(ASYNC)))
		return ptx_refuse(c, "this form is not supported");
	if (now->flags & (PTX_F(COMMIT_GROUP) | PTX_F(WAIT_GROUP) | PTX_F(WAIT_ALL)))
		return true; /* the copies are done already */
	if (!ptx_flags(c, CACHE | PTX_F(ASYNC)) || !ptx_operands(c, 3, 5))
		return false;
	if (!ptx_address(c, &now->operands[0], PTX_SPACE_SHARED, &to) ||
	    !ptx_address(c, &now->operands[1], PTX_SPACE_GLOBAL, &from))
		return false;
	const struct ptx_operand *size = &now->operands[2];
	bool hint = now->flags & PTX_F(HINT);

	if (to.space != PTX_MEM_SHARED || from.space != PTX_MEM_GLOBAL || size->kind != PTX_OPERAND_IMMEDIATE ||
	    (size->bits != 4 && size->bits != 8 && size->bits != 16))
		return ptx_refuse(c, "this form is not supported");
	if (now->operandcount > 3u + hint) {
		uint8_t kind = now->operands[3].kind == PTX_OPERAND_REGISTER &&
					       ptx_register_width(&c->function->registers[now->operands[3].reg]) == PTX_W_PRED
				       ? PTX_PRED
				       : PTX_U32;

		if (kind == PTX_PRED ? !ptx_needs(c, 75, 80) || !unless_ignored(c, 3, (uint32_t)size->bits, &some)
				     : !ptx_in(c, 3, PTX_U32, &some))
			return false;
	}
	int64_t offset = (int64_t)from.imm;

	if (offset > INT32_MAX || offset < INT32_MIN) { /* a variable: its address is a column */
		struct ptx_operand base = now->operands[1];

		if (base.reg != PTX_NONE || !ptx_constant(c, PTX_W_64, from.imm, &from.at))
			return ptx_refuse(c, "the offset is too large");
		offset = 0;
	}
	struct ptx_op *op = ptx_emit(c, PTX_RUN_COPY);

	if (!op)
		return false;
	op->a = to.at;
	op->wa = to.width;
	op->imm = to.imm;
	op->b = from.at;
	op->wb = from.width;
	op->target = (uint32_t)(int32_t)offset;
	op->c = some.at;
	op->wc = some.width;
	op->e = (uint32_t)size->bits;
	return true;
}

bool ptx_emit_memory(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;

	switch (now->opcode) {
	case PTX_OP_LD:
	case PTX_OP_LDU:
		return dated(c) && load(c);
	case PTX_OP_ST:
		return dated(c) && store(c);
	case PTX_OP_ATOM:
		return atomic(c, true);
	case PTX_OP_RED:
		return !(now->flags & PTX_F(ASYNC)) ? atomic(c, false) : ptx_refuse(c, "this form is not supported");
	case PTX_OP_CP:
		return copy(c);
	case PTX_OP_MEMBAR:
	case PTX_OP_FENCE:
		return ptx_emit(c, PTX_RUN_FENCE) != NULL;
	case PTX_OP_PREFETCH:
	case PTX_OP_PREFETCHU:
	case PTX_OP_DISCARD:
	case PTX_OP_APPLYPRIORITY:
		return true; /* there is no cache */
	case PTX_OP_CREATEPOLICY: {
		struct ptx_place to;
		uint32_t zero;

		if (now->types[0] != PTX_B64 || !(now->flags & (PTX_F(EVICTION) | PTX_F(L2))))
			return ptx_refuse(c, "this form is not supported");
		if (!ptx_out(c, 0, PTX_B64, &to) || !ptx_constant(c, PTX_W_64, 0, &zero))
			return false;
		struct ptx_op *op = ptx_emit(c, PTX_RUN_MOV64);

		if (!op)
			return false;
		op->d = to.at;
		op->a = zero;
		return true;
	}
	default:
		return ptx_refuse(c, "this instruction is not supported");
	}
}
