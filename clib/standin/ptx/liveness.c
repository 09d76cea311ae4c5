/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness.h"

#include <stdlib.h>
#include <string.h>

#define WORDS_MOST (16u << 20) /* of all sets */

struct block {
	uint32_t start;
	uint32_t end;     /* one past its last instruction */
	uint64_t *used;   /* before it writes them */
	uint64_t *written;
	uint64_t *live;   /* at its start */
	uint64_t *after;  /* at its end */
};

struct walk {
	const struct ptx_function *function;
	struct block *blocks;
	uint32_t *blockof; /* of each instruction */
	uint32_t count;
	uint32_t words;
	uint64_t *sets;
};

typedef void (*visitor)(void *who, uint32_t reg, bool written);

/* Whether the first operand is only written. What is not here counts as read. */
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
	case PTX_OP_TLD4: case PTX_OP_TXQ: case PTX_OP_SULD: case PTX_OP_SUQ:
		return true;
	default:
		return false;
	}
}

/* written: it holds a new value afterwards, whatever it held before. */
static void visit_operand(const struct ptx_operand *operand, bool written, visitor visit, void *who)
{
	switch (operand->kind) {
	case PTX_OPERAND_REGISTER:
		/* one lane of a vector leaves the others */
		visit(who, operand->reg, written && operand->lane == 0);
		break;
	case PTX_OPERAND_ADDRESS:
		if (operand->reg != PTX_NONE)
			visit(who, operand->reg, false);
		return;
	case PTX_OPERAND_VECTOR:
	case PTX_OPERAND_LIST:
	case PTX_OPERAND_TEXTURE: {
		uint32_t count = operand->kind == PTX_OPERAND_TEXTURE ? 3 : operand->count;

		for (uint32_t i = 0; i < count; i++)
			visit_operand(&operand->elements[i], written, visit, who);
		return;
	}
	case PTX_OPERAND_SINK:
		break;
	default:
		return;
	}
	if (operand->second != PTX_NONE)
		visit(who, operand->second, written);
}

/* Writes first, then reads: seen from the end. */
static void visit_instruction(const struct ptx_instruction *now, visitor visit, void *who)
{
	bool writes = writes_first(now->opcode) && now->guard == PTX_NONE;

	for (uint32_t i = 0; i < now->operandcount; i++) {
		if (i == 0 && writes)
			visit_operand(&now->operands[0], true, visit, who);
	}
	for (uint32_t i = writes ? 1 : 0; i < now->operandcount; i++)
		visit_operand(&now->operands[i], false, visit, who);
	if (now->guard != PTX_NONE)
		visit(who, now->guard, false);
}

static bool has(const uint64_t *set, uint32_t reg)
{
	return set[reg / 64] >> (reg % 64) & 1;
}

static void put(uint64_t *set, uint32_t reg)
{
	set[reg / 64] |= 1ull << (reg % 64);
}

static void take(uint64_t *set, uint32_t reg)
{
	set[reg / 64] &= ~(1ull << (reg % 64));
}

static void of_block(void *who, uint32_t reg, bool written)
{
	struct block *block = who;

	/* backwards: a write ends what was read after it */
	if (written) {
		take(block->used, reg);
		put(block->written, reg);
	} else {
		put(block->used, reg);
	}
}

static void find_blocks(struct walk *walk, bool *leaders)
{
	const struct ptx_function *function = walk->function;
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
		walk->count += leaders[i];
}

static bool make_blocks(struct walk *walk)
{
	const struct ptx_function *function = walk->function;
	uint32_t total = function->instructioncount;
	bool *leaders = calloc((size_t)total + 1, sizeof(*leaders));

	walk->blockof = calloc((size_t)total + 1, sizeof(*walk->blockof));
	if (!leaders || !walk->blockof) {
		free(leaders);
		return false;
	}
	find_blocks(walk, leaders);
	walk->words = (function->registercount + 63) / 64;
	walk->blocks = calloc(walk->count ? walk->count : 1, sizeof(*walk->blocks));
	if ((uint64_t)walk->count * walk->words * 4 <= WORDS_MOST)
		walk->sets = calloc((size_t)walk->count * walk->words * 4 + 1, sizeof(uint64_t));
	if (!walk->blocks || !walk->sets) {
		free(leaders);
		return false;
	}
	uint32_t number = PTX_NONE;

	for (uint32_t i = 0; i < total; i++) {
		if (leaders[i]) {
			struct block *block = &walk->blocks[++number];
			uint64_t *sets = walk->sets + (size_t)number * walk->words * 4;

			*block = (struct block){ .start = i, .used = sets, .written = sets + walk->words,
						 .live = sets + 2 * (size_t)walk->words, .after = sets + 3 * (size_t)walk->words };
		}
		walk->blocks[number].end = i + 1;
		walk->blockof[i] = number;
	}
	free(leaders);
	for (uint32_t b = 0; b < walk->count; b++) {
		for (uint32_t i = walk->blocks[b].end; i-- > walk->blocks[b].start;)
			visit_instruction(&function->instructions[i], of_block, &walk->blocks[b]);
	}
	return true;
}

static void add_successor(struct walk *walk, struct block *block, uint32_t instruction)
{
	if (instruction >= walk->function->instructioncount)
		return;
	const uint64_t *live = walk->blocks[walk->blockof[instruction]].live;

	for (uint32_t w = 0; w < walk->words; w++)
		block->after[w] |= live[w];
}

static bool update(struct walk *walk, struct block *block)
{
	const struct ptx_instruction *last = &walk->function->instructions[block->end - 1];
	bool goes_on = true;
	bool changed = false;

	for (uint32_t o = 0; o < last->operandcount; o++) {
		const struct ptx_operand *operand = &last->operands[o];

		if (operand->kind == PTX_OPERAND_LABEL)
			add_successor(walk, block, operand->target);
		for (uint32_t t = 0; last->opcode == PTX_OP_BRX && operand->kind == PTX_OPERAND_TARGETS && t < operand->count; t++)
			add_successor(walk, block, operand->targets[t]);
	}
	if (last->guard == PTX_NONE && (last->opcode == PTX_OP_BRA || last->opcode == PTX_OP_BRX || last->opcode == PTX_OP_RET ||
					last->opcode == PTX_OP_EXIT))
		goes_on = false;
	if (goes_on)
		add_successor(walk, block, block->end);
	for (uint32_t w = 0; w < walk->words; w++) {
		uint64_t live = block->used[w] | (block->after[w] & ~block->written[w]);

		changed = changed || live != block->live[w];
		block->live[w] = live;
	}
	return changed;
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

static void of_instruction(void *who, uint32_t reg, bool written)
{
	struct spread *spread = who;

	(void)written;
	extend(&spread->intervals[reg], spread->at);
}

static void spread_out(struct walk *walk, struct ptx_interval *intervals)
{
	const struct ptx_function *function = walk->function;

	for (uint32_t b = 0; b < walk->count; b++) {
		const struct block *block = &walk->blocks[b];

		for (uint32_t reg = 0; reg < function->registercount; reg++) {
			if (has(block->live, reg))
				extend(&intervals[reg], block->start);
			if (has(block->after, reg))
				extend(&intervals[reg], block->end - 1);
		}
		for (uint32_t i = block->start; i < block->end; i++) {
			struct spread spread = { intervals, i };

			visit_instruction(&function->instructions[i], of_instruction, &spread);
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

bool ptx_liveness(const struct ptx_function *function, struct ptx_interval *intervals)
{
	struct walk walk = { .function = function };
	bool good = make_blocks(&walk);
	bool changed = good;

	for (uint32_t i = 0; i < function->registercount; i++)
		intervals[i] = (struct ptx_interval){ PTX_NONE, PTX_NONE };
	while (changed) {
		changed = false;
		for (uint32_t b = walk.count; b-- > 0;)
			changed = update(&walk, &walk.blocks[b]) || changed;
	}
	if (good)
		spread_out(&walk, intervals);
	free(walk.sets);
	free(walk.blocks);
	free(walk.blockof);
	return good;
}
