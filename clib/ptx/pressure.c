/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pressure.c: how many 32 bit registers hold something at the same time. A value of
 * 64 bits takes two, a smaller one one, a predicate none. Two things that a text
 * keeps in registers take none between their uses: what a compiler for hardware
 * finds again instead of keeping it, because it is in a bank of constants or in the
 * instruction itself, and what no instruction can have written yet.
 */
#include <stdlib.h>

#include "liveness.h"

struct count {
	const struct ptx_flow *flow;
	const struct ptx_piece *piece;
	uint32_t *weights;  /* per register */
	uint32_t *writers;  /* per register: instructions that write it */
	uint32_t *firsts;   /* per register: the first instruction of the piece that writes it */
	bool *constants;    /* per register */
	uint64_t *known;    /* per piece: what may have been written before its start */
	uint64_t *made;     /* per piece: what it writes */
	uint64_t *held;     /* what takes registers after the instruction, then before it */
	uint32_t at;        /* the instruction */
	uint32_t total;     /* of held */
	uint32_t passing;   /* more for this instruction only */
	bool changed;
};

static uint32_t weight(const struct ptx_register *reg)
{
	if (reg->type == PTX_PRED)
		return 0;
	return (ptx_type_bytes((enum ptx_type)reg->type) + 3) / 4 * (reg->vector ? reg->vector : 1u);
}

static void count_writer(void *who, uint32_t reg, enum ptx_touch touch)
{
	struct count *count = who;

	count->writers[reg] += touch != PTX_READS;
}

/* What hardware has at hand: immediates, addresses, a kernel's parameters and
 * shape, constants, and copies of them. */
static bool is_constant(const struct count *count, const struct ptx_instruction *now)
{
	const struct ptx_operand *from = &now->operands[1];

	if (now->guard != PTX_NONE || now->operandcount != 2)
		return false;
	switch (now->opcode) {
	case PTX_OP_LD:
		return from->kind == PTX_OPERAND_ADDRESS && from->reg == PTX_NONE && from->variable &&
		       (from->variable->entry || from->variable->space == PTX_SPACE_CONST);
	case PTX_OP_MOV:
	case PTX_OP_CVTA:
		return from->kind == PTX_OPERAND_IMMEDIATE || from->kind == PTX_OPERAND_SYMBOL ||
		       from->kind == PTX_OPERAND_FUNCTION ||
		       (from->kind == PTX_OPERAND_SPECIAL && (from->special == PTX_SR_NTID || from->special == PTX_SR_NCTAID)) ||
		       (from->kind == PTX_OPERAND_REGISTER && !from->lane && count->constants[from->reg]);
	default:
		return false;
	}
}

static void mark_constant(struct count *count, const struct ptx_operand *to)
{
	if (to->kind == PTX_OPERAND_REGISTER && !to->lane && count->writers[to->reg] == 1)
		count->constants[to->reg] = true;
	for (uint32_t i = 0; to->kind == PTX_OPERAND_VECTOR && i < to->count; i++)
		mark_constant(count, &to->elements[i]);
}

static void find_constants(struct count *count)
{
	const struct ptx_function *function = count->flow->function;

	for (uint32_t i = 0; i < function->instructioncount; i++)
		ptx_visit(&function->instructions[i], count_writer, count);
	for (uint32_t i = 0; i < function->instructioncount; i++) {
		if (is_constant(count, &function->instructions[i]))
			mark_constant(count, &function->instructions[i].operands[0]);
	}
}

/* The sets of the piece that is looked at. */
static uint64_t *of_piece(const struct count *count, uint64_t *sets)
{
	return sets + (size_t)(count->piece - count->flow->pieces) * count->flow->words;
}

static void make(void *who, uint32_t reg, enum ptx_touch touch)
{
	struct count *count = who;

	if (touch != PTX_READS)
		ptx_set_put(of_piece(count, count->made), reg);
}

static void hand_on(void *who, uint32_t next)
{
	struct count *count = who;
	const uint64_t *known = of_piece(count, count->known);
	const uint64_t *made = of_piece(count, count->made);

	for (uint32_t w = 0; w < count->flow->words; w++) {
		uint64_t *there = &count->known[(size_t)next * count->flow->words + w];
		uint64_t more = (known[w] | made[w]) & ~*there;

		*there |= more;
		count->changed = count->changed || more;
	}
}

static void find_known(struct count *count)
{
	const struct ptx_flow *flow = count->flow;

	for (const struct ptx_variable *one = flow->function->parameters; one; one = one->next) {
		if (one->space == PTX_SPACE_REG && one->reg != PTX_NONE)
			ptx_set_put(count->known, one->reg);
	}
	for (uint32_t p = 0; p < flow->count; p++) {
		count->piece = &flow->pieces[p];
		for (uint32_t i = count->piece->start; i < count->piece->end; i++)
			ptx_visit(&flow->function->instructions[i], make, count);
	}
	do {
		count->changed = false;
		for (uint32_t p = 0; p < flow->count; p++) {
			count->piece = &flow->pieces[p];
			ptx_follow(flow, count->piece, hand_on, count);
		}
	} while (count->changed);
}

static void note_first(void *who, uint32_t reg, enum ptx_touch touch)
{
	struct count *count = who;

	/* what is noted from another piece is outside of this one */
	if (touch != PTX_READS && (count->firsts[reg] < count->piece->start || count->firsts[reg] >= count->piece->end))
		count->firsts[reg] = count->at;
}

/* Whether it may hold a value before that instruction of the piece. */
static bool written_before(const struct count *count, uint32_t reg, uint32_t at)
{
	return ptx_set_has(of_piece(count, count->known), reg) ||
	       (count->firsts[reg] >= count->piece->start && count->firsts[reg] < at);
}

static void hold(struct count *count, uint32_t reg)
{
	if (!ptx_set_has(count->held, reg)) {
		ptx_set_put(count->held, reg);
		count->total += count->weights[reg];
	}
}

static void let_go(struct count *count, uint32_t reg)
{
	if (ptx_set_has(count->held, reg)) {
		ptx_set_take(count->held, reg);
		count->total -= count->weights[reg];
	}
}

/* After an instruction: its results too, when nothing reads them. */
static void after(void *who, uint32_t reg, enum ptx_touch touch)
{
	struct count *count = who;

	if (touch != PTX_READS && !count->constants[reg] && !ptx_set_has(count->held, reg))
		count->passing += count->weights[reg];
}

/* Before it: not what it makes, but what it reads, constants too. */
static void before(void *who, uint32_t reg, enum ptx_touch touch)
{
	struct count *count = who;

	if (count->constants[reg])
		count->passing += touch == PTX_READS ? count->weights[reg] : 0;
	else if (touch == PTX_WRITES || !written_before(count, reg, count->at))
		let_go(count, reg);
	else
		hold(count, reg);
}

static uint32_t most_of_piece(struct count *count)
{
	const struct ptx_flow *flow = count->flow;
	const struct ptx_piece *piece = count->piece;
	uint32_t most = 0;

	for (count->at = piece->start; count->at < piece->end; count->at++)
		ptx_visit(&flow->function->instructions[count->at], note_first, count);
	for (uint32_t w = 0; w < flow->words; w++) {
		for (uint64_t left = piece->after[w]; left; left &= left - 1) {
			uint32_t reg = w * 64 + (uint32_t)__builtin_ctzll(left);

			if (!count->constants[reg] && written_before(count, reg, piece->end))
				hold(count, reg);
		}
	}
	for (count->at = piece->end; count->at-- > piece->start;) {
		const struct ptx_instruction *now = &flow->function->instructions[count->at];

		count->passing = 0;
		ptx_visit(now, after, count);
		most = count->total + count->passing > most ? count->total + count->passing : most;
		count->passing = 0;
		ptx_visit(now, before, count);
		most = count->total + count->passing > most ? count->total + count->passing : most;
	}
	for (uint32_t w = 0; w < flow->words; w++)
		count->held[w] = 0;
	count->total = 0;
	return most;
}

uint32_t ptx_pressure(const struct ptx_flow *flow)
{
	size_t registers = (size_t)flow->function->registercount + 1;
	size_t sets = (size_t)flow->count * flow->words + 1;
	struct count count = {
		.flow = flow,
		.weights = calloc(registers, sizeof(*count.weights)),
		.writers = calloc(registers, sizeof(*count.writers)),
		.firsts = calloc(registers, sizeof(*count.firsts)),
		.constants = calloc(registers, sizeof(*count.constants)),
		.known = calloc(sets, sizeof(*count.known)),
		.made = calloc(sets, sizeof(*count.made)),
		.held = calloc((size_t)flow->words + 1, sizeof(*count.held)),
	};
	uint32_t most = PTX_NONE;

	if (count.weights && count.writers && count.firsts && count.constants && count.known && count.made && count.held) {
		most = 0;
		for (uint32_t i = 0; i < flow->function->registercount; i++) {
			count.weights[i] = weight(&flow->function->registers[i]);
			count.firsts[i] = PTX_NONE;
		}
		find_constants(&count);
		find_known(&count);
		for (uint32_t p = 0; p < flow->count; p++) {
			count.piece = &flow->pieces[p];
			uint32_t here = most_of_piece(&count);

			most = here > most ? here : most;
		}
	}
	free(count.weights);
	free(count.writers);
	free(count.firsts);
	free(count.constants);
	free(count.known);
	free(count.made);
	free(count.held);
	return most;
}
