/* SPDX-License-Identifier: Apache-2.0 */
/* instruction.c: an instruction with its modifiers and operands. */
#include <string.h>

#include "parse.h"

#define OPERANDS_MOST 12u

/* How many operands an instruction has; those without a line are not counted. */
static const struct {
	uint8_t opcode;
	uint8_t least;
	uint8_t most;
} counts[] = {
	{ PTX_OP_ABS, 2, 2 },	   { PTX_OP_ACTIVEMASK, 1, 1 }, { PTX_OP_ADD, 3, 3 },	   { PTX_OP_ADDC, 3, 3 },
	{ PTX_OP_ALLOCA, 2, 3 },   { PTX_OP_AND, 3, 3 },	{ PTX_OP_ATOM, 2, 5 },	   { PTX_OP_BFE, 4, 4 },
	{ PTX_OP_BFI, 5, 5 },	   { PTX_OP_BFIND, 2, 2 },	{ PTX_OP_BMSK, 3, 3 },	   { PTX_OP_BRA, 1, 1 },
	{ PTX_OP_BREV, 2, 2 },	   { PTX_OP_BRKPT, 0, 0 },	{ PTX_OP_BRX, 2, 2 },	   { PTX_OP_CLZ, 2, 2 },
	{ PTX_OP_CNOT, 2, 2 },	   { PTX_OP_COPYSIGN, 3, 3 },	{ PTX_OP_COS, 2, 2 },	   { PTX_OP_CREATEPOLICY, 1, 4 }, { PTX_OP_CVT, 2, 4 },
	{ PTX_OP_CVTA, 2, 2 },	   { PTX_OP_DIV, 3, 3 },	{ PTX_OP_DP2A, 4, 4 },	   { PTX_OP_DP4A, 4, 4 },
	{ PTX_OP_ELECT, 2, 2 },	   { PTX_OP_EX2, 2, 2 },	{ PTX_OP_EXIT, 0, 0 },	   { PTX_OP_FMA, 4, 4 },
	{ PTX_OP_FNS, 4, 4 },	   { PTX_OP_ISSPACEP, 2, 2 },	{ PTX_OP_ISTYPEP, 2, 2 },  { PTX_OP_LD, 2, 3 },
	{ PTX_OP_LDMATRIX, 2, 2 },  { PTX_OP_LDU, 2, 2 },	   { PTX_OP_LG2, 2, 2 },	{ PTX_OP_LOP3, 5, 6 },	   { PTX_OP_MAD, 4, 4 },
	{ PTX_OP_MAD24, 4, 4 },	   { PTX_OP_MADC, 4, 4 },	{ PTX_OP_MATCH, 3, 3 },	   { PTX_OP_MAX, 3, 4 },
	{ PTX_OP_MEMBAR, 0, 0 },   { PTX_OP_MIN, 3, 4 },	{ PTX_OP_MMA, 4, 10 },	{ PTX_OP_MOV, 2, 2 },	   { PTX_OP_MOVMATRIX, 2, 2 },	   { PTX_OP_MUL, 3, 3 },
	{ PTX_OP_MUL24, 3, 3 },	   { PTX_OP_NANOSLEEP, 1, 1 },	{ PTX_OP_NEG, 2, 2 },	   { PTX_OP_NOT, 2, 2 },
	{ PTX_OP_OR, 3, 3 },	   { PTX_OP_PMEVENT, 1, 1 },	{ PTX_OP_POPC, 2, 2 },	   { PTX_OP_PREFETCH, 1, 1 },
	{ PTX_OP_PREFETCHU, 1, 1 }, { PTX_OP_PRMT, 4, 4 },	{ PTX_OP_RCP, 2, 2 },	   { PTX_OP_RED, 2, 3 },
	{ PTX_OP_REDUX, 3, 3 },	   { PTX_OP_REM, 3, 3 },	{ PTX_OP_RET, 0, 0 },	   { PTX_OP_RSQRT, 2, 2 },
	{ PTX_OP_SAD, 4, 4 },	   { PTX_OP_SELP, 4, 4 },	{ PTX_OP_SET, 3, 4 },	   { PTX_OP_SETP, 3, 4 },
	{ PTX_OP_SHF, 4, 4 },	   { PTX_OP_SHFL, 4, 5 },	{ PTX_OP_SHL, 3, 3 },	   { PTX_OP_SHR, 3, 3 },
	{ PTX_OP_GRIDDEPCONTROL, 0, 0 }, { PTX_OP_STACKRESTORE, 1, 1 }, { PTX_OP_STACKSAVE, 1, 1 },
	{ PTX_OP_SIN, 2, 2 },	   { PTX_OP_SLCT, 4, 4 },	{ PTX_OP_SQRT, 2, 2 },	   { PTX_OP_ST, 2, 3 },
	{ PTX_OP_STMATRIX, 2, 2 },  { PTX_OP_SUB, 3, 3 },	   { PTX_OP_SUBC, 3, 3 },	{ PTX_OP_SULD, 2, 2 },	   { PTX_OP_SUQ, 2, 2 },
	{ PTX_OP_SURED, 2, 2 },	   { PTX_OP_SUST, 2, 2 },	{ PTX_OP_SZEXT, 3, 3 },	   { PTX_OP_TANH, 2, 2 },
	{ PTX_OP_TESTP, 2, 2 },	   { PTX_OP_TEX, 2, 5 },	{ PTX_OP_TLD4, 2, 4 },	   { PTX_OP_TRAP, 0, 0 },
	{ PTX_OP_TXQ, 2, 3 },	   { PTX_OP_VOTE, 2, 3 },	{ PTX_OP_XOR, 3, 3 },
};

static bool counted(struct ptx_parser *p, const struct ptx_instruction *made)
{
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		if (counts[i].opcode == made->opcode &&
		    (made->operandcount < counts[i].least || made->operandcount > counts[i].most)) {
			ptx_fail(p->log, made->line, "'%s' has %u operands", made->text, made->operandcount);
			return false;
		}
	}
	return true;
}

/* Words that mean something to one instruction alone, and nothing to what it does here. */
static bool own(const char *word, uint16_t opcode)
{
	switch (opcode) {
	case PTX_OP_CREATEPOLICY:
		return strcmp(word, "fractional") == 0 || strcmp(word, "range") == 0 || strcmp(word, "cvt") == 0;
	case PTX_OP_GRIDDEPCONTROL:
		return strcmp(word, "launch_dependents") == 0;
	case PTX_OP_FENCE:
		return strcmp(word, "alias") == 0; /* of a proxy: there is one view of memory */
	case PTX_OP_PMEVENT:
		return strcmp(word, "mask") == 0;
	default:
		return false;
	}
}

/* Hints of caches and the like, with a level in front. */
static bool hint(const struct ptx_name *word, struct ptx_instruction *made)
{
	const char *rest = strstr(word->text, "::");

	if (own(word->text, made->opcode))
		return true;

	if (!rest || rest - word->text != 2 || word->text[0] != 'L' || (word->text[1] != '1' && word->text[1] != '2'))
		return false;
	rest += 2;
	if (strcmp(rest, "64B") == 0 || strcmp(rest, "128B") == 0 || strcmp(rest, "256B") == 0) {
		made->flags |= PTX_F(PREFETCH_SIZE);
		return true;
	}
	if (strcmp(rest, "evict_normal") == 0 || strcmp(rest, "evict_unchanged") == 0 ||
	    strcmp(rest, "evict_first") == 0 || strcmp(rest, "evict_last") == 0 || strcmp(rest, "no_allocate") == 0) {
		made->flags |= PTX_F(EVICTION);
		return true;
	}
	return false;
}

/* One field can be said once; a second time it is odd. */
static bool once(uint8_t *field, uint8_t value)
{
	if (*field)
		return false;
	*field = value;
	return true;
}

static bool of_matrices(uint16_t opcode)
{
	return opcode == PTX_OP_MMA || opcode == PTX_OP_LDMATRIX || opcode == PTX_OP_STMATRIX || opcode == PTX_OP_MOVMATRIX;
}

static bool modifier(const struct ptx_name *word, struct ptx_instruction *made)
{
	bool compares = made->opcode == PTX_OP_SET || made->opcode == PTX_OP_SETP;

	if (compares && word->compare && once(&made->compare, word->compare))
		return true;
	if (word->type) {
		if (made->typecount == PTX_TYPES_MOST)
			return false;
		made->types[made->typecount++] = word->type;
		return true;
	}
	if (word->length == 2 && word->text[0] == 'v' && strchr("248", word->text[1])) {
		if (made->vector != PTX_NOT_VECTOR)
			return false;
		made->vector = (uint8_t)(word->text[1] - '0');
		return true;
	}
	if (word->space)
		return once(&made->space, word->space) || once(&made->space2, word->space);
	if (word->round)
		return once(&made->round, word->round);
	if (word->scope)
		return once(&made->scope, word->scope);
	if (word->semantics == PTX_SEM_RELAXED && made->semantics == PTX_SEM_MMIO)
		return true; /* as .mmio is always */
	if (word->semantics)
		return once(&made->semantics, word->semantics);
	if (word->geometry)
		return once(&made->geometry, word->geometry);
	if (word->shape && of_matrices(made->opcode))
		return once(&made->shape, word->shape);
	if (word->layout && of_matrices(made->opcode))
		return once(&made->layout, word->layout) || once(&made->layout2, word->layout);
	if (of_matrices(made->opcode) && word->length == 2 && word->text[0] == 'x' && strchr("124", word->text[1]))
		return once(&made->matrices, (uint8_t)(word->text[1] - '0'));
	if (word->operation)
		return once(&made->operation, word->operation) || once(&made->operation2, word->operation);
	if (word->flag) {
		uint64_t bit = 1ull << (word->flag - 1);
		bool twice = made->flags & bit;

		made->flags |= bit;
		return !twice;
	}
	return hint(word, made);
}

static bool modifiers(struct ptx_parser *p, struct ptx_instruction *made)
{
	while (p->token.kind == PTX_TOKEN_DOTTED) {
		const struct ptx_name *word = ptx_intern(p, p->token.text, p->token.length);

		if (!word)
			return false;
		if (!modifier(word, made) && !made->odd)
			made->odd = word->text;
		if (!ptx_next(p))
			return false;
	}
	return true;
}

static bool keep(struct ptx_parser *p, struct ptx_instruction *made, const struct ptx_operand *operands, uint32_t count)
{
	struct ptx_operand *kept = ptx_allocate(p->module, (count ? count : 1) * sizeof(*kept));

	if (!kept)
		return ptx_memory(p);
	memcpy(kept, operands, count * sizeof(*kept));
	made->operands = kept;
	made->operandcount = count;
	return true;
}

static bool call(struct ptx_parser *p, struct ptx_instruction *made)
{
	struct ptx_operand *operands = ptx_allocate(p->module, 4 * sizeof(*operands));

	if (!operands)
		return ptx_memory(p);
	made->operands = operands; /* a label that is used keeps its operand's address */
	made->operandcount = 4;
	return ptx_call_operands(p, operands);
}

/* bra label; brx.idx register, list of labels */
static bool branch(struct ptx_parser *p, struct ptx_instruction *made)
{
	struct ptx_operand *operands = ptx_allocate(p->module, 2 * sizeof(*operands));
	struct ptx_operand *last = operands;
	struct ptx_name *name = NULL;
	uint32_t line = p->token.line;

	if (!operands)
		return ptx_memory(p);
	made->operands = operands;
	made->operandcount = made->opcode == PTX_OP_BRX ? 2 : 1;
	if (made->opcode == PTX_OP_BRX) {
		if (!ptx_operand_parse(p, operands) || !ptx_expect(p, ','))
			return false;
		if (operands->kind != PTX_OPERAND_REGISTER)
			return ptx_error(p, "brx.idx needs a register");
		last++;
	}
	*last = (struct ptx_operand){
		.kind = made->opcode == PTX_OP_BRX ? PTX_OPERAND_TARGETS : PTX_OPERAND_LABEL,
		.reg = PTX_NONE,
		.second = PTX_NONE,
	};
	return ptx_expect_name(p, &name) && ptx_label_use(p, name, last, line);
}

/* A register in braces of its own is that register: Triton writes loads and stores so. */
static void unbrace(const struct ptx_instruction *made, struct ptx_operand *operand)
{
	switch (made->opcode) {
	case PTX_OP_LD: case PTX_OP_LDU: case PTX_OP_ST: case PTX_OP_ATOM: case PTX_OP_RED:
		if (made->vector == PTX_NOT_VECTOR && operand->kind == PTX_OPERAND_VECTOR && operand->count == 1)
			*operand = operand->elements[0];
		break;
	default:
		break;
	}
}

static bool operands_of(struct ptx_parser *p, struct ptx_instruction *made)
{
	struct ptx_operand operands[OPERANDS_MOST];
	uint32_t count = 0;

	while (!ptx_is(p, ';')) {
		if (count == OPERANDS_MOST)
			return ptx_error(p, "'%s' has too many operands", made->text);
		if (!ptx_operand_parse(p, &operands[count]))
			return false;
		unbrace(made, &operands[count++]);
		if (!ptx_is(p, ';') && !ptx_expect(p, ','))
			return false;
	}
	return keep(p, made, operands, count);
}

bool ptx_instruction_parse(struct ptx_parser *p, const struct ptx_token *word, uint32_t guard, bool guardnot)
{
	const struct ptx_name *opcode = ptx_intern(p, word->text, word->length);
	struct ptx_instruction made = {
		.line = word->line, .guard = guard, .guardnot = guardnot, .vector = PTX_NOT_VECTOR,
	};
	const char *end = word->text + word->length;

	if (!opcode)
		return false;
	made.opcode = opcode->opcode;
	/* for messages: opcode and modifiers as they stand there */
	while (end < p->lexer.end && (*end == '.' || *end == ':' || *end == '_' || (*end >= '0' && *end <= '9') ||
				      (*end >= 'a' && *end <= 'z') || (*end >= 'A' && *end <= 'Z')))
		end++;
	const struct ptx_name *text = ptx_intern(p, word->text, (size_t)(end - word->text));

	if (!text)
		return false;
	made.text = text->text;
	if (!made.opcode) {
		ptx_fail(p->log, word->line, "unknown instruction '%s'", made.text);
		return false;
	}
	if (!modifiers(p, &made))
		return false;
	bool good = made.opcode == PTX_OP_CALL ? call(p, &made)
		    : made.opcode == PTX_OP_BRA || made.opcode == PTX_OP_BRX ? branch(p, &made)
									     : operands_of(p, &made);

	if (!good || !ptx_expect(p, ';') || !counted(p, &made))
		return false;
	struct ptx_instruction *kept = ptx_list_add(&p->instructions, sizeof(*kept));

	if (!kept)
		return ptx_memory(p);
	*kept = made;
	return true;
}
