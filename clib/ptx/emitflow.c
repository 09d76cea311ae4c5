/* SPDX-License-Identifier: Apache-2.0 */
/* emitflow.c: branches, calls, ends, barriers of a block. */
#include "compile.h"

/* Memory for a list of moves. */
static struct ptx_move *moves(struct ptx_compiler *c, struct ptx_moves *out, uint32_t count)
{
	struct ptx_move *list = ptx_hold(c, (count ? count : 1) * sizeof(*list));

	out->list = list;
	out->count = count;
	return list;
}

static uint32_t length(const struct ptx_variable *variable)
{
	uint32_t count = 0;

	for (; variable; variable = variable->next)
		count++;
	return count;
}

/* Where a call's operand is, on the caller's side. */
static bool mine(struct ptx_compiler *c, const struct ptx_operand *operand, uint8_t type, bool out, bool *column,
		 uint32_t *at, uint8_t *width, uint32_t *bytes)
{
	const struct ptx_variable *variable = operand->kind == PTX_OPERAND_SYMBOL ? operand->variable : NULL;
	struct ptx_place place;

	*bytes = UINT32_MAX;
	if (variable && variable->space == PTX_SPACE_PARAM && !variable->entry) {
		*column = false;
		*at = (uint32_t)(ptx_frame_offset(c->function, variable) + (uint64_t)operand->offset);
		*bytes = (uint32_t)variable->bytes;
		return true;
	}
	if (out ? !ptx_out_operand(c, operand, type, &place) : !ptx_in_operand(c, operand, type, &place))
		return false;
	*column = true;
	*at = place.at;
	*width = place.width;
	*bytes = ptx_width_bytes(place.width);
	return true;
}

static bool hand_over(struct ptx_compiler *c, const struct ptx_operand *list, const struct ptx_function *callee,
		      const struct ptx_variable *variable, struct ptx_moves *out, bool back)
{
	uint32_t count = length(variable);

	/* linked code may declare a result of what has none (numba-cuda does): nothing comes back */
	if (back && !count && list->count == 1)
		return true;
	if (count != list->count) {
		ptx_fail(c->log, c->now->line, "call: '%s' takes another number of parameters", callee->name);
		return false;
	}
	struct ptx_move *move = moves(c, out, count);
	const uint32_t *slots = ptx_slots_of(callee);

	if (!move)
		return false;
	for (uint32_t i = 0; i < count; i++, variable = variable->next, move++) {
		bool column = false;
		uint32_t at = 0;
		uint32_t bytes;
		uint8_t width = PTX_W_32;
		bool theirs = variable->space == PTX_SPACE_REG;
		uint32_t there;
		uint8_t other = PTX_W_32;

		if (!mine(c, &list->elements[i], variable->type, back, &column, &at, &width, &bytes))
			return false;
		if (theirs) {
			if (variable->reg == PTX_NONE)
				return ptx_refuse(c, "this parameter is not supported");
			there = slots[variable->reg];
			other = (uint8_t)ptx_register_width(&callee->registers[variable->reg]);
		} else {
			there = (uint32_t)ptx_frame_offset(callee, variable);
		}
		*move = (struct ptx_move){
			.fromcolumn = back ? theirs : column,
			.tocolumn = back ? column : theirs,
			.from = back ? there : at,
			.to = back ? at : there,
			.bytes = variable->bytes < bytes ? (uint32_t)variable->bytes : bytes,
		};
		/* both ends' columns: of the same size, or there is only one */
		move->width = column ? width : other;
		if (column && theirs && width != other)
			return ptx_refuse(c, "a parameter has another size");
		if (theirs && !move->bytes)
			move->bytes = ptx_width_bytes(other);
		if (theirs)
			move->bytes = column ? ptx_width_bytes(width) : move->bytes ? move->bytes : ptx_width_bytes(other);
	}
	return true;
}

static bool site_of(struct ptx_compiler *c, const struct ptx_function *callee, struct ptx_callsite *site)
{
	const struct ptx_operand *operands = c->now->operands;

	site->body = &c->code->bodies[callee->index];
	return hand_over(c, &operands[2], callee, callee->parameters, &site->in, false) &&
	       hand_over(c, &operands[0], callee, callee->returns, &site->out, true);
}

/* Arguments of a builtin: each in eight bytes, as the moves' places say. */
static bool builtin(struct ptx_compiler *c, const struct ptx_function *callee)
{
	const struct ptx_operand *operands = c->now->operands;
	struct ptx_callsite *site = ptx_hold(c, sizeof(*site));

	if (!site)
		return false;
	if (callee->builtin != PTX_BUILTIN_VPRINTF && callee->builtin != PTX_BUILTIN_ASSERTFAIL) {
		ptx_fail(c->log, c->now->line, "call: '%s' is not supported", callee->name);
		c->log->unsupported = true;
		return false;
	}
	site->builtin = callee;
	for (int back = 0; back < 2; back++) {
		const struct ptx_operand *list = &operands[back ? 0 : 2];
		struct ptx_move *move = moves(c, back ? &site->out : &site->in, list->count);

		if (!move)
			return false;
		for (uint32_t i = 0; i < list->count; i++, move++) {
			bool column = false;
			uint32_t at = 0;

			if (!mine(c, &list->elements[i], PTX_B64, back != 0, &column, &at, &move->width, &move->bytes))
				return false;
			if (back) {
				move->tocolumn = column;
				move->to = at;
			} else {
				move->fromcolumn = column;
				move->from = at;
			}
		}
	}
	struct ptx_op *op = ptx_emit(c, PTX_RUN_BUILTIN);

	if (!op)
		return false;
	op->site = site;
	return true;
}

static bool indirect(struct ptx_compiler *c)
{
	const struct ptx_operand *operands = c->now->operands;
	const struct ptx_module *module = c->module;
	struct ptx_callsite *site = ptx_hold(c, sizeof(*site));
	struct ptx_callsite *bodies = ptx_hold(c, module->functioncount * sizeof(*bodies));
	struct ptx_place target;

	if (!site || !bodies || !ptx_in(c, 1, PTX_U64, &target))
		return false;
	for (uint32_t i = 0; i < module->functioncount; i++) {
		const struct ptx_function *callee = module->functions[i];

		/* one with other parameters is no target: calling it faults */
		if (callee->entry || !callee->defined || length(callee->parameters) != operands[2].count ||
		    length(callee->returns) != operands[0].count)
			continue;
		if (!site_of(c, callee, &bodies[i]))
			return false;
	}
	site->bodies = bodies;
	struct ptx_op *op = ptx_emit(c, PTX_RUN_CALLI);

	if (!op)
		return false;
	op->site = site;
	op->a = target.at;
	op->wa = target.width;
	return true;
}

static bool call(struct ptx_compiler *c)
{
	const struct ptx_operand *target = &c->now->operands[1];

	if (!ptx_flags(c, PTX_F(UNI)) || !ptx_operands(c, 4, 4))
		return false;
	if (target->kind != PTX_OPERAND_FUNCTION)
		return indirect(c);
	const struct ptx_function *callee = target->function->definition ? target->function->definition : target->function;

	if (callee->builtin != PTX_BUILTIN_NONE)
		return builtin(c, callee);
	if (!callee->defined) {
		ptx_fail(c->log, c->now->line, "call: '%s' is not defined", callee->name);
		return false;
	}
	struct ptx_callsite *site = ptx_hold(c, sizeof(*site));

	if (!site || !site_of(c, callee, site))
		return false;
	struct ptx_op *op = ptx_emit(c, PTX_RUN_CALL);

	if (!op)
		return false;
	op->site = site;
	return true;
}

static bool branch(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;

	if (!ptx_flags(c, PTX_F(UNI)) || !ptx_operands(c, 1, 1) || now->operands[0].kind != PTX_OPERAND_LABEL)
		return ptx_refuse(c, "this form is not supported");
	struct ptx_op *op = ptx_emit(c, now->guard == PTX_NONE ? PTX_RUN_BRA : PTX_RUN_BRAP);

	if (!op)
		return false;
	op->target = now->operands[0].target;
	if (now->guard != PTX_NONE) {
		op->a = c->slots[now->guard];
		op->sub = now->guardnot;
	}
	return ptx_fix(c, c->opcount - 1);
}

static bool table(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	struct ptx_place index;

	if (!ptx_flags(c, PTX_F(UNI)) || !ptx_operands(c, 2, 2) || !ptx_in(c, 0, PTX_U32, &index))
		return false;
	const struct ptx_operand *targets = &now->operands[1];

	if (targets->kind != PTX_OPERAND_TARGETS || !targets->count)
		return ptx_refuse(c, "this form is not supported");
	uint32_t *list = ptx_hold(c, targets->count * sizeof(*list));

	if (!list)
		return false;
	for (uint32_t i = 0; i < targets->count; i++)
		list[i] = targets->targets[i];
	struct ptx_op *op = ptx_emit(c, PTX_RUN_BRX);

	if (!op)
		return false;
	op->a = index.at;
	op->wa = index.width;
	op->e = targets->count;
	op->list = list;
	return ptx_fix(c, c->opcount - 1);
}

static bool barrier(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	bool red = now->flags & PTX_F(RED);
	bool arrive = now->flags & PTX_F(ARRIVE);
	uint32_t first = red ? 1 : 0;
	struct ptx_place number;
	struct ptx_place threads = { .at = PTX_NOWHERE };
	struct ptx_place predicate = { .at = 0 };
	struct ptx_place to = { .at = 0 };

	if (!ptx_flags(c, PTX_F(SYNC) | PTX_F(ARRIVE) | PTX_F(RED) | PTX_F(ALIGNED)))
		return false;
	if (now->scope == PTX_SCOPE_CLUSTER)
		return ptx_refuse(c, "clusters are not supported");
	bool counted = now->operandcount == (red ? 4u : 2u);

	if (!ptx_operands(c, red ? 3 : 1, red ? 4 : 2) || (arrive && !counted))
		return ptx_refuse(c, "this form is not supported");
	if (!ptx_in(c, first, PTX_U32, &number) || (counted && !ptx_in(c, first + 1, PTX_U32, &threads)))
		return false;
	if (red && (!ptx_in(c, now->operandcount - 1, PTX_PRED, &predicate) ||
		    !ptx_out(c, 0, now->operation == PTX_DO_POPC ? PTX_U32 : PTX_PRED, &to)))
		return false;
	if (red && now->operation != PTX_DO_POPC && now->operation != PTX_DO_AND && now->operation != PTX_DO_OR)
		return ptx_refuse(c, "this operation is not supported here");
	struct ptx_op *op = ptx_emit(c, PTX_RUN_BARRIER);

	if (!op)
		return false;
	op->sub = arrive ? 1 : !red ? 0 : now->operation == PTX_DO_POPC ? 2 : now->operation == PTX_DO_AND ? 3 : 4;
	op->sub2 = predicate.negated;
	op->a = number.at;
	op->wa = number.width;
	op->b = threads.at;
	op->wb = threads.width;
	op->c = predicate.at;
	op->d = to.at;
	op->wd = to.width;
	return true;
}

bool ptx_emit_stack(struct ptx_compiler *c, uint8_t what, struct ptx_place place)
{
	struct ptx_op *op = ptx_emit(c, PTX_RUN_STACK);

	if (!op)
		return false;
	op->sub = what;
	op->a = op->d = PTX_NOWHERE;
	if (what == PTX_STACK_RESTORE) {
		op->a = place.at;
		op->wa = place.width;
	} else {
		op->d = place.at;
		op->wd = place.width;
	}
	return true;
}

bool ptx_emit_return(struct ptx_compiler *c)
{
	return (!c->allocates || c->function->entry || ptx_emit_stack(c, PTX_STACK_RESTORE, c->allocator)) &&
	       ptx_emit(c, PTX_RUN_RET);
}

/* alloca.u64 d, bytes, alignment; stacksave.u64 d; stackrestore.u64 a */
static bool stack(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;
	uint8_t type = now->types[0];
	bool take = now->opcode == PTX_OP_ALLOCA;
	bool restore = now->opcode == PTX_OP_STACKRESTORE;
	struct ptx_place place;
	struct ptx_place bytes = { .at = PTX_NOWHERE };
	uint64_t align = 8;

	if (now->typecount != 1 || (type != PTX_U64 && type != PTX_U32))
		return ptx_refuse(c, "this type is not supported here");
	if (!ptx_flags(c, 0) || !ptx_operands(c, take ? 2 : 1, take ? 3 : 1) || !ptx_needs(c, 73, 52))
		return false;
	if (!(restore ? ptx_in(c, 0, type, &place) : ptx_out(c, 0, type, &place)) || (take && !ptx_in(c, 1, type, &bytes)))
		return false;
	if (now->operandcount == 3) {
		align = now->operands[2].bits; /* clang 19 writes 0 where it has no wish */
		if (now->operands[2].kind != PTX_OPERAND_IMMEDIATE || align & (align - 1) || align > 1u << 23)
			return ptx_refuse(c, "an alignment is a power of 2, up to 2^23");
	}
	if (!ptx_emit_stack(c, take ? PTX_STACK_TAKE : restore ? PTX_STACK_RESTORE : PTX_STACK_SAVE, place))
		return false;
	if (take) {
		struct ptx_op *op = &c->ops[c->opcount - 1];

		op->a = bytes.at;
		op->wa = bytes.width;
		op->imm = align < 8 ? 8 : align;
	}
	return true;
}

bool ptx_emit_flow(struct ptx_compiler *c)
{
	switch (c->now->opcode) {
	case PTX_OP_BRA:
		return branch(c);
	case PTX_OP_BRX:
		return table(c);
	case PTX_OP_CALL:
		return call(c);
	case PTX_OP_RET:
		return ptx_flags(c, PTX_F(UNI)) && ptx_emit_return(c);
	case PTX_OP_EXIT:
		return ptx_flags(c, 0) && ptx_emit(c, PTX_RUN_EXIT);
	case PTX_OP_BAR:
	case PTX_OP_BARRIER:
		return barrier(c);
	case PTX_OP_ALLOCA:
	case PTX_OP_STACKSAVE:
	case PTX_OP_STACKRESTORE:
		return stack(c);
	case PTX_OP_TRAP:
	case PTX_OP_BRKPT:
		return ptx_emit(c, PTX_RUN_TRAP) != NULL;
	case PTX_OP_NANOSLEEP:
		return ptx_emit(c, PTX_RUN_SLEEP) != NULL;
	default:
		return ptx_refuse(c, "this instruction is not supported");
	}
}
