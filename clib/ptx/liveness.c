/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness.h"

#include <stdlib.h>
#include <string.h>

#define WORDS_MOST (16u << 20) /* of all sets */

/* Whether the first operand is only written. What is not here counts as changed. */
static bool writes_first(uint16_t opcode)
{
	switch (opcode) {
	case PTX_OP_ADD: case PTX_OP_SUB: case PTX_OP_MUL: case PTX_OP_MAD: case PTX_OP_MIN: case PTX_OP_MAX:
	case PTX_OP_DIV: case PTX_OP_ABS: case PTX_OP_NEG: case PTX_OP_FMA: case PTX_OP_RCP: case PTX_OP_SQRT:
	case PTX_OP_RSQRT: case PTX_OP_SIN: case PTX_OP_COS: case PTX_OP_LG2: case PTX_OP_EX2: case PTX_OP_TANH:
	case PTX_OP_COPYSIGN: case PTX_OP_REM: case PTX_OP_SAD: case PTX_OP_ADDC: case PTX_OP_SUBC: case PTX_OP_MADC:
	case PTX_OP_MUL24: case PTX_OP_MAD24: case PTX_OP_DP4A: case PTX_OP_DP2A: case PTX_OP_AND: case PTX_OP_OR:
	case PTX_OP_XOR: case PTX_OP_NOT: case PTX_OP_CNOT: case PTX_OP_SHL: case PTX_OP_SHR: case PTX_OP_SHF:
	case PTX_OP_LOP3: case PTX_OP_BFI: case PTX_OP_BFE: case PTX_OP_BREV: case PTX_OP_CLZ: case PTX_OP_POPC:
	case PTX_OP_BFIND: case PTX_OP_FNS: case PTX_OP_BMSK: case PTX_OP_SZEXT: case PTX_OP_PRMT: case PTX_OP_SETP:
	case PTX_OP_SET: case PTX_OP_SELP: case PTX_OP_SLCT: case PTX_OP_TESTP: case PTX_OP_MOV: case PTX_OP_CVT:
	case PTX_OP_CVTA: case PTX_OP_ISSPACEP: case PTX_OP_LD: case PTX_OP_LDU: case PTX_OP_ATOM: case PTX_OP_SHFL:
	case PTX_OP_VOTE: case PTX_OP_MATCH: case PTX_OP_REDUX: case PTX_OP_ELECT: case PTX_OP_ACTIVEMASK: case PTX_OP_TEX:
	case PTX_OP_TLD4: case PTX_OP_TXQ: case PTX_OP_SULD: case PTX_OP_SUQ: case PTX_OP_CREATEPOLICY: case PTX_OP_ALLOCA:
	case PTX_OP_STACKSAVE: case PTX_OP_MMA: case PTX_OP_LDMATRIX: case PTX_OP_MOVMATRIX:
		return true;
	default:
		return false;
	}
}

static void visit_operand(const struct ptx_operand *operand, enum ptx_touch touch, ptx_visitor visit, void *who)
{
	switch (operand->kind) {
	case PTX_OPERAND_REGISTER:
		/* one lane of a vector leaves the others */
		visit(who, operand->reg, touch == PTX_WRITES && operand->lane ? PTX_CHANGES : touch);
		break;
	case PTX_OPERAND_ADDRESS:
		if (operand->reg != PTX_NONE)
			visit(who, operand->reg, PTX_READS);
		return;
	case PTX_OPERAND_VECTOR:
	case PTX_OPERAND_LIST:
	case PTX_OPERAND_TEXTURE: {
		uint32_t count = operand->kind == PTX_OPERAND_TEXTURE ? 3 : operand->count;

		for (uint32_t i = 0; i < count; i++)
			visit_operand(&operand->elements[i], touch, visit, who);
		return;
	}
	case PTX_OPERAND_SINK:
		break;
	default:
		return;
	}
	if (operand->second != PTX_NONE)
		visit(who, operand->second, touch);
}

void ptx_visit(const struct ptx_instruction *now, ptx_visitor visit, void *who)
{
	bool writes = writes_first(now->opcode) && now->guard == PTX_NONE;

	if (now->operandcount)
		visit_operand(&now->operands[0], writes ? PTX_WRITES : PTX_CHANGES, visit, who);
	for (uint32_t i = 1; i < now->operandcount; i++)
		visit_operand(&now->operands[i], PTX_READS, visit, who);
	if (now->guard != PTX_NONE)
		visit(who, now->guard, PTX_READS);
}

static void of_piece(void *who, uint32_t reg, enum ptx_touch touch)
{
	struct ptx_piece *piece = who;

	/* backwards: a write ends what was read after it */
	if (touch == PTX_WRITES) {
		ptx_set_take(piece->used, reg);
		ptx_set_put(piece->written, reg);
	} else {
		ptx_set_put(piece->used, reg);
	}
}

static void find_pieces(struct ptx_flow *flow, bool *leaders)
{
	const struct ptx_function *function = flow->function;
	uint32_t total = function->instructioncount;

	leaders[0] = true;
	for (uint32_t i = 0; i < total; i++) {
		const struct ptx_instruction *now = &function->instructions[i];

		for (uint32_t o = 0; o < now->operandcount; o++) {
			const struct ptx_operand *operand = &now->operands[o];

			if (operand->kind == PTX_OPERAND_LABEL)
				leaders[operand->target] = true;
			for (uint32_t t = 0; now->opcode == PTX_OP_BRX && operand->kind == PTX_OPERAND_TARGETS && t < operand->count; t++)
				leaders[operand->targets[t]] = true;
		}
		if (now->opcode == PTX_OP_BRA || now->opcode == PTX_OP_BRX || now->opcode == PTX_OP_RET || now->opcode == PTX_OP_EXIT)
			leaders[i + 1] = true;
	}
	for (uint32_t i = 0; i < total; i++)
		flow->count += leaders[i];
}

static bool make_pieces(struct ptx_flow *flow)
{
	const struct ptx_function *function = flow->function;
	uint32_t total = function->instructioncount;
	bool *leaders = calloc((size_t)total + 1, sizeof(*leaders));

	flow->pieceof = calloc((size_t)total + 1, sizeof(*flow->pieceof));
	if (!leaders || !flow->pieceof) {
		free(leaders);
		return false;
	}
	find_pieces(flow, leaders);
	flow->words = (function->registercount + 63) / 64;
	flow->pieces = calloc(flow->count ? flow->count : 1, sizeof(*flow->pieces));
	if ((uint64_t)flow->count * flow->words * 4 <= WORDS_MOST)
		flow->sets = calloc((size_t)flow->count * flow->words * 4 + 1, sizeof(uint64_t));
	if (!flow->pieces || !flow->sets) {
		free(leaders);
		return false;
	}
	uint32_t number = PTX_NONE;

	for (uint32_t i = 0; i < total; i++) {
		if (leaders[i]) {
			struct ptx_piece *piece = &flow->pieces[++number];
			uint64_t *sets = flow->sets + (size_t)number * flow->words * 4;

			*piece = (struct ptx_piece){ .start = i, .used = sets, .written = sets + flow->words,
						     .live = sets + 2 * (size_t)flow->words, .after = sets + 3 * (size_t)flow->words };
		}
		flow->pieces[number].end = i + 1;
		flow->pieceof[i] = number;
	}
	free(leaders);
	for (uint32_t p = 0; p < flow->count; p++) {
		for (uint32_t i = flow->pieces[p].end; i-- > flow->pieces[p].start;)
			ptx_visit(&function->instructions[i], of_piece, &flow->pieces[p]);
	}
	return true;
}

static void follow(const struct ptx_flow *flow, uint32_t instruction, ptx_follower follower, void *who)
{
	if (instruction < flow->function->instructioncount)
		follower(who, flow->pieceof[instruction]);
}

void ptx_follow(const struct ptx_flow *flow, const struct ptx_piece *piece, ptx_follower follower, void *who)
{
	const struct ptx_instruction *last = &flow->function->instructions[piece->end - 1];

	for (uint32_t o = 0; o < last->operandcount; o++) {
		const struct ptx_operand *operand = &last->operands[o];

		if (operand->kind == PTX_OPERAND_LABEL)
			follow(flow, operand->target, follower, who);
		for (uint32_t t = 0; last->opcode == PTX_OP_BRX && operand->kind == PTX_OPERAND_TARGETS && t < operand->count; t++)
			follow(flow, operand->targets[t], follower, who);
	}
	if (last->guard == PTX_NONE && (last->opcode == PTX_OP_BRA || last->opcode == PTX_OP_BRX || last->opcode == PTX_OP_RET ||
					last->opcode == PTX_OP_EXIT))
		return;
	follow(flow, piece->end, follower, who);
}

struct successors {
	struct ptx_flow *flow;
	struct ptx_piece *piece;
};

static void add_successor(void *who, uint32_t next)
{
	const struct successors *s = who;

	for (uint32_t w = 0; w < s->flow->words; w++)
		s->piece->after[w] |= s->flow->pieces[next].live[w];
}

static bool update(struct ptx_flow *flow, struct ptx_piece *piece)
{
	struct successors successors = { flow, piece };
	bool changed = false;

	ptx_follow(flow, piece, add_successor, &successors);
	for (uint32_t w = 0; w < flow->words; w++) {
		uint64_t live = piece->used[w] | (piece->after[w] & ~piece->written[w]);

		changed = changed || live != piece->live[w];
		piece->live[w] = live;
	}
	return changed;
}

bool ptx_flow_make(const struct ptx_function *function, struct ptx_flow *flow)
{
	*flow = (struct ptx_flow){ .function = function };
	bool good = make_pieces(flow);
	bool changed = good;

	while (changed) {
		changed = false;
		for (uint32_t p = flow->count; p-- > 0;)
			changed = update(flow, &flow->pieces[p]) || changed;
	}
	if (!good)
		ptx_flow_end(flow);
	return good;
}

void ptx_flow_end(struct ptx_flow *flow)
{
	free(flow->sets);
	free(flow->pieces);
	free(flow->pieceof);
	*flow = (struct ptx_flow){ 0 };
}

struct spread {
	struct ptx_interval *intervals;
	uint32_t at;
};

static void extend(struct ptx_interval *interval, uint32_t at)
{
	if (at < interval->first)
		interval->first = at;
	if (at > interval->last || interval->last == PTX_NONE)
		interval->last = at;
}

static void of_instruction(void *who, uint32_t reg, enum ptx_touch touch)
{
	struct spread *spread = who;

	(void)touch;
	extend(&spread->intervals[reg], spread->at);
}

void ptx_intervals(const struct ptx_flow *flow, struct ptx_interval *intervals)
{
	const struct ptx_function *function = flow->function;

	for (uint32_t i = 0; i < function->registercount; i++)
		intervals[i] = (struct ptx_interval){ PTX_NONE, PTX_NONE };
	for (uint32_t p = 0; p < flow->count; p++) {
		const struct ptx_piece *piece = &flow->pieces[p];

		for (uint32_t reg = 0; reg < function->registercount; reg++) {
			if (ptx_set_has(piece->live, reg))
				extend(&intervals[reg], piece->start);
			if (ptx_set_has(piece->after, reg))
				extend(&intervals[reg], piece->end - 1);
		}
		for (uint32_t i = piece->start; i < piece->end; i++) {
			struct spread spread = { intervals, i };

			ptx_visit(&function->instructions[i], of_instruction, &spread);
		}
	}
	/* parameters in registers come from and go to elsewhere */
	for (int returned = 0; returned < 2; returned++) {
		for (const struct ptx_variable *variable = returned ? function->returns : function->parameters; variable;
		     variable = variable->next) {
			if (variable->space == PTX_SPACE_REG && variable->reg != PTX_NONE)
				intervals[variable->reg] = (struct ptx_interval){ 0, function->instructioncount };
		}
	}
}
