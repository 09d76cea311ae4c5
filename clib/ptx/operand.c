/* SPDX-License-Identifier: Apache-2.0 */
/* operand.c: what instructions work on. */
#include <string.h>

#include "parse.h"

#define ELEMENTS_MOST 4096u

bool ptx_label_use(struct ptx_parser *p, struct ptx_name *name, struct ptx_operand *operand, uint32_t line)
{
	struct ptx_use *use = ptx_list_add(&p->uses, sizeof(*use));

	if (!use)
		return ptx_memory(p);
	*use = (struct ptx_use){ .name = name, .scope = p->scope, .operand = operand, .line = line };
	return true;
}

static bool immediate(struct ptx_parser *p, struct ptx_operand *operand)
{
	struct ptx_constant constant = { 0 };

	if (!ptx_expression(p, &constant))
		return false;
	operand->kind = PTX_OPERAND_IMMEDIATE;
	operand->bits = constant.bits;
	operand->form = constant.form;
	return true;
}

/* +4, -4, +-4 after the base of an address or a name */
static bool offset(struct ptx_parser *p, struct ptx_operand *operand)
{
	struct ptx_constant constant = { 0 };
	bool minus = ptx_is(p, '-');

	if (!ptx_is(p, '+') && !minus)
		return true;
	if (!ptx_next(p) || !ptx_expression(p, &constant))
		return false;
	if (constant.form > PTX_FORM_UNSIGNED)
		return ptx_error(p, "an offset is an integer");
	operand->offset += (int64_t)(minus ? 0 - constant.bits : constant.bits);
	return true;
}

/* 1..4 for .x .y .z .w or .r .g .b .a */
static uint8_t lane_of(const struct ptx_token *token)
{
	static const char lanes[] = "xyzwrgba";
	const char *found = token->length == 1 ? memchr(lanes, token->text[0], 8) : NULL;

	return found ? (uint8_t)((found - lanes) % 4 + 1) : 0;
}

static bool parts_of(struct ptx_parser *p, struct ptx_operand *operand, bool lanes)
{
	if (p->token.kind != PTX_TOKEN_DOTTED)
		return true;
	operand->lane = lanes ? lane_of(&p->token) : 0;
	/* .b0 to .b3210, .h0, .h1 of video instructions */
	bool odd = !operand->lane && p->token.length > 1 && strchr("bh", p->token.text[0]);

	operand->odd |= odd;
	if (!operand->lane && !odd)
		return ptx_error(p, "unknown part '.%.*s'", (int)p->token.length, p->token.text);
	return ptx_next(p);
}

/* d|p; the operand's first half is there */
static bool second(struct ptx_parser *p, struct ptx_operand *operand)
{
	struct ptx_name *name = NULL;

	if (!ptx_take(p, '|'))
		return true;
	if (!ptx_expect_name(p, &name))
		return false;
	if (name->length == 1 && name->text[0] == '_')
		return true;
	const struct ptx_symbol *found = ptx_find_register(p, name);

	if (!found || found->type != PTX_PRED)
		return ptx_error(p, "'%s' is no predicate", name->text);
	operand->second = found->reg;
	return true;
}

static bool special(struct ptx_parser *p, const struct ptx_name *name, struct ptx_operand *operand)
{
	uint8_t found = name->special;
	uint32_t length = name->length;
	uint64_t number = 0;
	uint64_t unit = 1;

	if (!found) { /* %envreg12, %pm3, %pm3_64 */
		bool wide = length > 3 && memcmp(name->text + length - 3, "_64", 3) == 0;

		length -= wide ? 3 : 0;
		while (length > 1 && name->text[length - 1] >= '0' && name->text[length - 1] <= '9' && unit < 1000) {
			number += (uint64_t)(name->text[--length] - '0') * unit;
			unit *= 10;
		}
		const struct ptx_name *prefix = unit > 1 ? ptx_intern(p, name->text, length) : NULL;

		found = prefix ? prefix->special : 0;
		if (found != PTX_SR_ENVREG && found != PTX_SR_PM && found != PTX_SR_RESERVED_SMEM_OFFSET)
			return false;
		if (wide && found == PTX_SR_PM)
			found = PTX_SR_PM64;
	}
	operand->kind = PTX_OPERAND_SPECIAL;
	operand->special = found;
	operand->bits = number;
	return true;
}

/* A name as a value: register, special register, variable or function. */
static bool named(struct ptx_parser *p, struct ptx_name *name, struct ptx_operand *operand)
{
	const struct ptx_symbol *found = ptx_find_register(p, name);

	if (p->log->text[0])
		return false;
	if (found) {
		operand->kind = PTX_OPERAND_REGISTER;
		operand->reg = found->reg;
		return true;
	}
	found = ptx_find(name);
	if (found && found->kind == PTX_SYMBOL_VARIABLE) {
		operand->kind = PTX_OPERAND_SYMBOL;
		operand->variable = found->variable;
		return true;
	}
	if (found && found->kind == PTX_SYMBOL_FUNCTION) {
		operand->kind = PTX_OPERAND_FUNCTION;
		operand->function = found->function;
		return true;
	}
	if (name->text[0] == '%' && special(p, name, operand))
		return true;
	return ptx_error(p, "'%s' is not declared", name->text);
}

/* name[3] */
static bool indexed(struct ptx_parser *p, struct ptx_operand *operand)
{
	uint64_t index = 0;

	if (operand->kind != PTX_OPERAND_SYMBOL || !ptx_is(p, '['))
		return true;
	if (!ptx_next(p) || !ptx_count(p, UINT32_MAX, &index) || !ptx_expect(p, ']'))
		return false;
	operand->offset = (int64_t)(index * operand->variable->stride);
	return true;
}

static bool elements(struct ptx_parser *p, char end, struct ptx_operand *operand);

/* [base+offset], [texture, coordinates], [texture, sampler, coordinates] */
static bool address(struct ptx_parser *p, struct ptx_operand *operand)
{
	struct ptx_name *name = NULL;

	operand->kind = PTX_OPERAND_ADDRESS;
	operand->reg = PTX_NONE;
	if (p->token.kind == PTX_TOKEN_WORD) {
		struct ptx_operand base = { .reg = PTX_NONE, .second = PTX_NONE };

		if (!ptx_expect_name(p, &name) || !named(p, name, &base))
			return false;
		if (ptx_is(p, ',')) {
			struct ptx_operand *parts = ptx_allocate(p->module, 3 * sizeof(*parts));

			if (!parts)
				return ptx_memory(p);
			operand->kind = PTX_OPERAND_TEXTURE;
			operand->elements = parts;
			operand->count = 3;
			parts[0] = base;
			parts[1] = (struct ptx_operand){ .reg = PTX_NONE, .second = PTX_NONE };
			if (!ptx_next(p) || !ptx_operand_parse(p, &parts[2]))
				return false;
			if (ptx_is(p, ',')) {
				parts[1] = parts[2];
				if (!ptx_next(p) || !ptx_operand_parse(p, &parts[2]))
					return false;
			}
			return ptx_expect(p, ']');
		}
		if (base.kind == PTX_OPERAND_REGISTER) {
			operand->reg = base.reg;
			if (!parts_of(p, operand, true))
				return false;
		} else if (base.kind == PTX_OPERAND_SYMBOL) {
			operand->variable = base.variable;
			if (!indexed(p, &base))
				return false;
			operand->offset = base.offset;
		} else {
			return ptx_error(p, "'%s' is no address", name->text);
		}
		if (!offset(p, operand))
			return false;
	} else {
		struct ptx_constant constant = { 0 };

		if (!ptx_expression(p, &constant))
			return false;
		operand->bits = ptx_constant_integer(&constant);
	}
	return ptx_expect(p, ']');
}

static bool elements(struct ptx_parser *p, char end, struct ptx_operand *operand)
{
	struct ptx_list list = { 0 };
	bool good = true;

	while (good && !ptx_is(p, end)) {
		struct ptx_operand element;

		good = (list.count < ELEMENTS_MOST || ptx_error(p, "too many operands")) &&
		       ptx_operand_parse(p, &element);
		struct ptx_operand *kept = good ? ptx_list_add(&list, sizeof(*kept)) : NULL;

		if (!good)
			break;
		if (!kept) {
			good = ptx_memory(p);
			break;
		}
		*kept = element;
		if (!ptx_is(p, end))
			good = ptx_expect(p, ',');
	}
	if (good) {
		operand->count = (uint32_t)list.count;
		operand->elements = ptx_list_keep(p, &list, sizeof(struct ptx_operand));
		good = operand->elements && ptx_next(p);
	}
	ptx_list_free(&list);
	return good;
}

/* !p, and ! of a constant; - of a register (video instructions) and of a constant */
static bool prefixed(struct ptx_parser *p, struct ptx_operand *operand)
{
	struct ptx_lexer ahead = p->lexer;
	struct ptx_token token;
	struct ptx_name *name = NULL;
	bool negated = ptx_is(p, '!');

	ptx_lex(&ahead, &token);
	if (token.kind != PTX_TOKEN_WORD || (token.length == 7 && memcmp(token.text, "WARP_SZ", 7) == 0))
		return immediate(p, operand);
	if (!ptx_next(p) || !ptx_expect_name(p, &name) || !named(p, name, operand))
		return false;
	if (operand->kind != PTX_OPERAND_REGISTER)
		return ptx_error(p, "'%s' is no register", name->text);
	operand->negated = negated;
	operand->odd = !negated;
	return parts_of(p, operand, !negated);
}

bool ptx_operand_parse(struct ptx_parser *p, struct ptx_operand *operand)
{
	struct ptx_name *name = NULL;
	bool good = false;

	*operand = (struct ptx_operand){ .reg = PTX_NONE, .second = PTX_NONE };
	if (++p->depth > PTX_NESTING_MOST)
		return ptx_error(p, "operands are nested too deeply");
	if (ptx_is(p, '{')) {
		operand->kind = PTX_OPERAND_VECTOR;
		good = ptx_next(p) && elements(p, '}', operand);
	} else if (ptx_is(p, '[')) {
		good = ptx_next(p) && address(p, operand);
	} else if (ptx_is(p, '!') || ptx_is(p, '-')) {
		good = prefixed(p, operand);
	} else if (p->token.kind == PTX_TOKEN_WORD &&
		   !(p->token.length == 7 && memcmp(p->token.text, "WARP_SZ", 7) == 0)) {
		good = ptx_expect_name(p, &name);
		if (good && name->length == 1 && name->text[0] == '_') {
			operand->kind = PTX_OPERAND_SINK;
			good = second(p, operand);
		} else if (good) {
			good = named(p, name, operand) &&
			       parts_of(p, operand, operand->kind != PTX_OPERAND_SYMBOL) && indexed(p, operand);
			if (good && operand->kind == PTX_OPERAND_REGISTER)
				good = second(p, operand);
			else if (good && operand->kind == PTX_OPERAND_SYMBOL)
				good = offset(p, operand);
		}
	} else {
		good = immediate(p, operand);
	}
	p->depth--;
	return good;
}

static bool list(struct ptx_parser *p, struct ptx_operand *operand)
{
	operand->kind = PTX_OPERAND_LIST;
	return ptx_next(p) && elements(p, ')', operand);
}

/* (returned), target, (arguments), prototype: all but the target may be missing */
bool ptx_call_operands(struct ptx_parser *p, struct ptx_operand operands[4])
{
	struct ptx_name *name = NULL;

	for (unsigned int i = 0; i < 4; i++)
		operands[i] = (struct ptx_operand){ .reg = PTX_NONE, .second = PTX_NONE };
	operands[0].kind = operands[2].kind = PTX_OPERAND_LIST;
	if (ptx_is(p, '(') && (!list(p, &operands[0]) || !ptx_expect(p, ',')))
		return false;
	if (!ptx_operand_parse(p, &operands[1]))
		return false;
	if (operands[1].kind != PTX_OPERAND_FUNCTION && operands[1].kind != PTX_OPERAND_REGISTER)
		return ptx_error(p, "a call needs a function or a register that holds one");
	if (ptx_take(p, ',')) {
		bool arguments = ptx_is(p, '(');

		if (arguments && !list(p, &operands[2]))
			return false;
		if (!arguments || ptx_take(p, ',')) {
			uint32_t line = p->token.line;

			operands[3].kind = PTX_OPERAND_PROTOTYPE;
			if (!ptx_expect_name(p, &name) || !ptx_label_use(p, name, &operands[3], line))
				return false;
		}
	}
	if (operands[1].kind == PTX_OPERAND_REGISTER && operands[3].kind == PTX_OPERAND_NONE)
		return ptx_error(p, "an indirect call needs a prototype or a list of targets");
	return true;
}
