/* SPDX-License-Identifier: Apache-2.0 */
/* compile.c: a module, function by function, instruction by instruction. */
#include "compile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	RESERVED = 2,      /* registers of every thread: the stack's pointer, and one for addresses */
	UNKNOWN = 62,      /* of a function too large: what the largest block can have, less those */
};

/* What belongs to the compiler while it works: function->user. */
struct work {
	uint32_t *slots;
	uint32_t bytes;     /* of its columns */
	uint32_t registers; /* of its own, on hardware */
	uint8_t state;      /* of the walk over calls */
	bool allocates; /* has alloca */
};

uint32_t *ptx_slots_of(const struct ptx_function *function)
{
	return ((struct work *)function->user)->slots;
}

static bool by_type(struct ptx_compiler *c)
{
	uint8_t type = c->now->types[0];

	if (!c->now->typecount)
		return ptx_refuse(c, "the type is missing");
	return ptx_floating(type) || type == PTX_F32X2 ? ptx_emit_real(c) : ptx_emit_integer(c);
}

static bool one(struct ptx_compiler *c)
{
	switch (c->now->opcode) {
	case PTX_OP_ADD: case PTX_OP_SUB: case PTX_OP_MUL: case PTX_OP_MAD: case PTX_OP_MIN: case PTX_OP_MAX:
	case PTX_OP_DIV: case PTX_OP_ABS: case PTX_OP_NEG: case PTX_OP_FMA: case PTX_OP_RCP: case PTX_OP_SQRT:
	case PTX_OP_RSQRT: case PTX_OP_SIN: case PTX_OP_COS: case PTX_OP_LG2: case PTX_OP_EX2: case PTX_OP_TANH:
	case PTX_OP_COPYSIGN: case PTX_OP_REM: case PTX_OP_SAD: case PTX_OP_ADDC: case PTX_OP_SUBC: case PTX_OP_MADC:
	case PTX_OP_MUL24: case PTX_OP_MAD24: case PTX_OP_DP4A: case PTX_OP_DP2A:
		return by_type(c);
	case PTX_OP_AND: case PTX_OP_OR: case PTX_OP_XOR: case PTX_OP_NOT: case PTX_OP_CNOT: case PTX_OP_SHL: case PTX_OP_SHR:
	case PTX_OP_SHF: case PTX_OP_LOP3: case PTX_OP_BFI: case PTX_OP_BFE: case PTX_OP_BREV: case PTX_OP_CLZ:
	case PTX_OP_POPC: case PTX_OP_BFIND: case PTX_OP_FNS: case PTX_OP_BMSK: case PTX_OP_SZEXT: case PTX_OP_PRMT:
		return ptx_emit_bits(c);
	case PTX_OP_SETP: case PTX_OP_SET: case PTX_OP_SELP: case PTX_OP_SLCT: case PTX_OP_TESTP:
		return ptx_emit_test(c);
	case PTX_OP_MOV: case PTX_OP_CVT: case PTX_OP_CVTA: case PTX_OP_ISSPACEP:
		return ptx_emit_move(c);
	case PTX_OP_LD: case PTX_OP_LDU: case PTX_OP_ST: case PTX_OP_ATOM: case PTX_OP_RED: case PTX_OP_CP:
	case PTX_OP_MEMBAR: case PTX_OP_FENCE: case PTX_OP_PREFETCH: case PTX_OP_PREFETCHU: case PTX_OP_DISCARD:
	case PTX_OP_APPLYPRIORITY: case PTX_OP_CREATEPOLICY:
		return ptx_emit_memory(c);
	case PTX_OP_BAR:
		return c->now->flags & PTX_F(WARP) ? ptx_emit_warp(c) : ptx_emit_flow(c);
	case PTX_OP_BRA: case PTX_OP_BRX: case PTX_OP_CALL: case PTX_OP_RET: case PTX_OP_EXIT: case PTX_OP_BARRIER:
	case PTX_OP_TRAP: case PTX_OP_BRKPT: case PTX_OP_NANOSLEEP: case PTX_OP_ALLOCA: case PTX_OP_STACKSAVE:
	case PTX_OP_STACKRESTORE:
		return ptx_emit_flow(c);
	case PTX_OP_SHFL: case PTX_OP_VOTE: case PTX_OP_MATCH: case PTX_OP_REDUX: case PTX_OP_ELECT: case PTX_OP_ACTIVEMASK:
		return ptx_emit_warp(c);
	case PTX_OP_MMA: case PTX_OP_LDMATRIX: case PTX_OP_STMATRIX: case PTX_OP_MOVMATRIX:
		return ptx_emit_tensor(c);
	case PTX_OP_TEX: case PTX_OP_TLD4: case PTX_OP_TXQ: case PTX_OP_SULD: case PTX_OP_SUST: case PTX_OP_SUQ:
	case PTX_OP_SURED: case PTX_OP_ISTYPEP:
		return ptx_emit_sample(c);
	case PTX_OP_PMEVENT: case PTX_OP_SETMAXNREG: case PTX_OP_GRIDDEPCONTROL:
		return true; /* without an effect that a program could see */
	default:
		return ptx_refuse(c, "this instruction is not supported by the simulated card");
	}
}

/* Where lanes part or wait: guarded by a branch around it. */
static bool parting(uint16_t opcode)
{
	switch (opcode) {
	case PTX_OP_BRX: case PTX_OP_CALL: case PTX_OP_RET: case PTX_OP_EXIT: case PTX_OP_BARRIER: case PTX_OP_BAR:
	case PTX_OP_TRAP: case PTX_OP_BRKPT: case PTX_OP_NANOSLEEP: case PTX_OP_SHFL: case PTX_OP_VOTE: case PTX_OP_MATCH:
	case PTX_OP_REDUX: case PTX_OP_ELECT: case PTX_OP_MMA: case PTX_OP_LDMATRIX: case PTX_OP_STMATRIX: case PTX_OP_MOVMATRIX:
		return true;
	default:
		return false;
	}
}

static bool instruction(struct ptx_compiler *c)
{
	const struct ptx_instruction *now = c->now;

	c->temporary = 0;
	if (now->odd) {
		ptx_fail(c->log, now->line, "%s: '.%s' is not supported by the simulated card", now->text, now->odd);
		c->log->unsupported = true;
		return false;
	}
	if (now->operation2)
		return ptx_refuse(c, "two operations are not supported");
	if (now->guard == PTX_NONE || now->opcode == PTX_OP_BRA)
		return one(c);
	bool branch = parting(now->opcode);
	uint32_t start = c->opcount;
	struct ptx_op *op = ptx_emit(c, branch ? PTX_RUN_BRAP : PTX_RUN_GUARD);

	if (!op)
		return false;
	op->a = c->slots[now->guard];
	op->sub = branch ? !now->guardnot : now->guardnot;
	if (!one(c) || !ptx_emit(c, branch ? PTX_RUN_JOIN : PTX_RUN_UNGUARD))
		return false;
	c->ops[start].target = c->opcount;
	return true;
}

static void mark_labels(const struct ptx_function *function, bool *labelled)
{
	for (uint32_t i = 0; i < function->instructioncount; i++) {
		const struct ptx_instruction *now = &function->instructions[i];

		for (uint32_t o = 0; o < now->operandcount; o++) {
			const struct ptx_operand *operand = &now->operands[o];

			if (operand->kind == PTX_OPERAND_LABEL)
				labelled[operand->target] = true;
			for (uint32_t t = 0; now->opcode == PTX_OP_BRX && operand->kind == PTX_OPERAND_TARGETS && t < operand->count; t++)
				labelled[operand->targets[t]] = true;
		}
	}
}

static void fix_targets(struct ptx_compiler *c)
{
	for (uint32_t i = 0; i < c->fixcount; i++) {
		struct ptx_op *op = &c->ops[c->fixes[i]];

		if (op->code == PTX_RUN_BRX) {
			uint32_t *list = (uint32_t *)(uintptr_t)op->list;

			for (uint32_t t = 0; t < op->e; t++)
				list[t] = c->place[list[t]];
		} else {
			op->target = c->place[op->target];
		}
	}
}

static bool instructions(struct ptx_compiler *c)
{
	const struct ptx_function *function = c->function;

	mark_labels(function, c->labelled);
	c->temporary = 0;
	if (c->allocates && !ptx_emit_stack(c, PTX_STACK_SAVE, c->allocator))
		return false;
	for (uint32_t i = 0; i <= function->instructioncount; i++) {
		c->now = i < function->instructioncount ? &function->instructions[i] : NULL;
		if (c->labelled[i] && !ptx_emit(c, PTX_RUN_JOIN))
			return false;
		c->place[i] = c->opcount;
		if (c->now && !instruction(c))
			return false;
	}
	if (!ptx_emit_return(c))
		return false;
	fix_targets(c);
	return true;
}

static bool function(struct ptx_compiler *c, const struct ptx_function *function)
{
	const struct work *work = function->user;
	size_t places = (size_t)function->instructioncount + 1;
	bool good;

	c->function = function;
	c->body = &c->code->bodies[function->index];
	c->slots = work->slots;
	c->temporaries = work->bytes;
	c->allocates = work->allocates;
	c->allocator = (struct ptx_place){ .at = work->bytes + PTX_TEMPORARIES * ptx_column_bytes(PTX_W_64), .width = PTX_W_64 };
	c->opcount = c->fixcount = c->constantcount = 0;
	c->constantroom = 0;
	if (c->hash)
		memset(c->hash, 255, c->hashroom * sizeof(*c->hash));
	c->place = calloc(places, sizeof(*c->place));
	c->labelled = calloc(places, sizeof(*c->labelled));
	c->now = NULL;
	if (!c->place || !c->labelled)
		good = ptx_out_of_memory(c);
	else
		good = instructions(c);
	free(c->place);
	free(c->labelled);
	c->body->function = function;
	c->body->slots = work->slots;
	c->body->framebytes = work->bytes + (PTX_TEMPORARIES + work->allocates) * ptx_column_bytes(PTX_W_64);
	c->body->localbytes = ((function->localbytes + 15) & ~15u) + ((function->parambytes + 15) & ~15u);
	c->body->registers = work->registers;
	if (good) {
		struct ptx_op *ops = malloc(c->opcount * sizeof(*ops));

		if (!ops)
			return ptx_out_of_memory(c);
		memcpy(ops, c->ops, c->opcount * sizeof(*ops));
		c->body->ops = ops;
		c->body->count = c->opcount;
	}
	return good;
}

/* Local memory with all that it calls. */
static uint64_t stack(struct ptx_code *code, const struct ptx_function *function)
{
	struct work *work = function->user;
	struct ptx_body *body = &code->bodies[function->index];
	uint64_t most = 0;

	if (work->state == 1 || function->indirect || work->allocates)
		return UINT64_MAX; /* calls itself, or what is not known; or takes as much as it likes */
	if (work->state == 2)
		return body->stackbytes;
	work->state = 1;
	for (uint32_t i = 0; i < function->calleecount; i++) {
		const struct ptx_function *callee = function->callees[i]->definition ? function->callees[i]->definition
										    : function->callees[i];
		uint64_t bytes = callee->defined ? stack(code, callee) : 0;

		most = bytes > most ? bytes : most;
	}
	work->state = 2;
	body->stackbytes = most == UINT64_MAX ? most : most + body->localbytes;
	return body->stackbytes;
}

static bool at_least(uint32_t *registers, uint32_t least)
{
	bool less = *registers < least;

	*registers = less ? least : *registers;
	return less;
}

/* Registers with all that it calls: a callee puts on the stack what it may not
 * overwrite, so a thread has as many as the neediest of them. */
static void share_registers(struct ptx_code *code)
{
	struct ptx_function *const *functions = code->module->functions;
	uint32_t addressed = 0;
	bool changed = true;

	while (changed) {
		changed = false;
		for (uint32_t i = 0; i < code->count; i++) {
			uint32_t *own = &code->bodies[i].registers;

			for (uint32_t j = 0; j < functions[i]->calleecount; j++)
				changed = at_least(own, code->bodies[functions[i]->callees[j]->index].registers) || changed;
			if (functions[i]->indirect)
				changed = at_least(own, addressed) || changed;
			if (functions[i]->addressed)
				changed = at_least(&addressed, *own) || changed;
		}
	}
}

static bool place_registers(const struct ptx_function *function, struct work *work)
{
	struct ptx_flow flow;
	bool known = function->instructioncount && ptx_flow_make(function, &flow);
	bool good = ptx_slots_assign(function, known ? &flow : NULL, work->slots, &work->bytes);

	work->registers = known ? ptx_pressure(&flow) : function->instructioncount ? UNKNOWN : 0;
	good = good && work->registers != PTX_NONE;
	if (known)
		ptx_flow_end(&flow);
	return good;
}

/* Remembers why, if that is all that is wrong. */
static bool refuse(struct ptx_compiler *c)
{
	if (!c->log->unsupported)
		return false;
	char *why = ptx_hold(c, strlen(c->log->text) + 1);

	if (!why)
		return false;
	c->body->refused = strcpy(why, c->log->text);
	*c->log = (struct ptx_log){ 0 };
	return true;
}

/* Whoever may call what is refused is refused, too. */
static void share_refusals(struct ptx_code *code)
{
	struct ptx_function *const *functions = code->module->functions;
	const char *any = NULL; /* of functions that may be called by address */
	bool changed = true;

	while (changed) {
		changed = false;
		for (uint32_t i = 0; i < code->count; i++) {
			const char **own = &code->bodies[i].refused;
			const char *other = functions[i]->indirect ? any : NULL;

			for (uint32_t j = 0; !other && j < functions[i]->calleecount; j++)
				other = code->bodies[functions[i]->callees[j]->index].refused;
			if (!*own && other) {
				*own = other;
				changed = true;
			}
			if (!any && *own && !functions[i]->entry) {
				any = *own;
				changed = true;
			}
		}
	}
}

static bool prepare(struct ptx_compiler *c)
{
	struct ptx_module *module = c->module;
	struct work *works = ptx_allocate(module, module->functioncount * sizeof(*works) + 1);

	if (!works)
		return ptx_out_of_memory(c);
	for (uint32_t i = 0; i < module->functioncount; i++) {
		struct ptx_function *one_ = module->functions[i];

		one_->user = &works[i];
		for (uint32_t j = 0; j < one_->instructioncount; j++)
			works[i].allocates |= one_->instructions[j].opcode == PTX_OP_ALLOCA;
		if (!one_->defined)
			continue;
		works[i].slots = ptx_allocate(module, (one_->registercount + 1) * sizeof(uint32_t));
		if (!works[i].slots || !place_registers(one_, &works[i]))
			return ptx_out_of_memory(c);
		if (one_->entry && one_->sharedbytes > c->code->sharedbytes)
			c->code->sharedbytes = one_->sharedbytes;
	}
	c->code->sharedbytes = (c->code->sharedbytes + 127) & ~127u;
	return true;
}

int ptx_compile(struct ptx_module *module, bool all, struct ptx_log *log, struct ptx_code **out)
{
	struct ptx_compiler c = { .module = module, .log = log };
	struct ptx_code *code = calloc(1, sizeof(*code));
	bool good = true;

	if (!code)
		return -ENOMEM;
	c.code = code;
	code->module = module;
	code->count = module->functioncount;
	code->bodies = calloc(module->functioncount ? module->functioncount : 1, sizeof(*code->bodies));
	if (!code->bodies) {
		free(code);
		return -ENOMEM;
	}
	if (module->addressbytes && module->addressbytes != 8) {
		ptx_fail(log, 0, ".address_size 32 is not supported by the simulated card");
		log->unsupported = true;
		good = false;
	}
	good = good && prepare(&c);
	for (uint32_t i = 0; good && i < module->functioncount; i++) {
		if (module->functions[i]->defined)
			good = function(&c, module->functions[i]) || (!all && refuse(&c));
	}
	if (good)
		share_refusals(code);
	for (uint32_t i = 0; good && i < module->functioncount; i++) {
		if (module->functions[i]->defined)
			code->bodies[i].stackbytes = stack(code, module->functions[i]);
	}
	if (good)
		share_registers(code);
	free(c.ops);
	free(c.fixes);
	free(c.hash);
	free(c.values);
	free(c.places);
	free(c.widths);
	if (!good) {
		ptx_code_free(code);
		return -EBADMSG;
	}
	*out = code;
	return 0;
}

void ptx_code_free(struct ptx_code *code)
{
	if (!code)
		return;
	for (uint32_t i = 0; i < code->count; i++) {
		free(code->bodies[i].ops);
		free(code->bodies[i].constants);
	}
	free(code->bodies);
	while (code->holdings) {
		struct ptx_holding *holding = code->holdings;

		code->holdings = holding->next;
		free(holding);
	}
	free(code);
}

const char *ptx_code_refused(const struct ptx_code *code, const struct ptx_function *function)
{
	return code->bodies[function->index].refused;
}

uint32_t ptx_code_registers(const struct ptx_code *code, const struct ptx_function *function)
{
	return code->bodies[function->index].registers + RESERVED;
}

uint32_t ptx_code_local(const struct ptx_code *code, const struct ptx_function *function)
{
	return code->bodies[function->index].localbytes;
}
