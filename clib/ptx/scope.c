/* SPDX-License-Identifier: Apache-2.0 */
/* scope.c: what names mean in the scopes that are open. */
#include <string.h>

#include "parse.h"

bool ptx_scope_open(struct ptx_parser *p)
{
	uint32_t depth = p->scope ? p->scope->depth + 1 : 0;

	if (depth > PTX_NESTING_MOST)
		return ptx_error(p, "scopes are nested too deeply");
	struct ptx_region *scope = ptx_allocate(p->module, sizeof(*scope));

	if (!scope)
		return ptx_memory(p);
	scope->parent = p->scope;
	scope->depth = depth;
	scope->local = p->local;
	scope->param = p->param;
	p->scope = scope;
	return true;
}

void ptx_scope_close(struct ptx_parser *p)
{
	struct ptx_region *scope = p->scope;

	/* the newest first; a register of a range may stand above symbols of inner scopes */
	for (struct ptx_symbol *symbol = scope->symbols; symbol; symbol = symbol->sibling) {
		struct ptx_symbol **link = &symbol->name->symbols;

		while (*link != symbol)
			link = &(*link)->older;
		*link = symbol->older;
	}
	p->local = scope->local;
	p->param = scope->param;
	p->scope = scope->parent;
}

static struct ptx_symbol *add(struct ptx_parser *p, struct ptx_region *scope, struct ptx_name *name,
			      enum ptx_symbol_kind kind)
{
	struct ptx_symbol *symbol = ptx_allocate(p->module, sizeof(*symbol));

	if (!symbol) {
		ptx_memory(p);
		return NULL;
	}
	symbol->name = name;
	symbol->kind = kind;
	symbol->scope = scope;
	symbol->reg = PTX_NONE;
	symbol->older = name->symbols;
	symbol->sibling = scope->symbols;
	name->symbols = symbol;
	scope->symbols = symbol;
	return symbol;
}

struct ptx_symbol *ptx_find_here(const struct ptx_parser *p, const struct ptx_name *name)
{
	for (struct ptx_symbol *symbol = name->symbols; symbol; symbol = symbol->older) {
		if (symbol->scope == p->scope)
			return symbol;
	}
	return NULL;
}

struct ptx_symbol *ptx_declare(struct ptx_parser *p, struct ptx_name *name, enum ptx_symbol_kind kind)
{
	if (ptx_find_here(p, name)) {
		ptx_error(p, "'%s' is declared twice", name->text);
		return NULL;
	}
	return add(p, p->scope, name, kind);
}

struct ptx_symbol *ptx_find(const struct ptx_name *name)
{
	struct ptx_symbol *found = name->symbols;

	for (struct ptx_symbol *symbol = found; symbol; symbol = symbol->older) {
		if (symbol->scope->depth > found->scope->depth)
			found = symbol;
	}
	return found;
}

/* The index of a register that is used, in the function's table. */
static bool number(struct ptx_parser *p, struct ptx_symbol *symbol)
{
	if (symbol->reg != PTX_NONE)
		return true;
	if (p->registers.count >= PTX_REGISTERS_MOST)
		return ptx_error(p, "a function uses more than %u registers", PTX_REGISTERS_MOST);
	symbol->reg = (uint32_t)p->registers.count;
	struct ptx_register *made = ptx_list_add(&p->registers, sizeof(*made));

	if (!made)
		return ptx_memory(p);
	*made = (struct ptx_register){ .name = symbol->name->text, .type = symbol->type, .vector = symbol->vector };
	return true;
}

/* %r12 of %r<13>; every way to part the name is tried */
static struct ptx_symbol *find_range(struct ptx_parser *p, const struct ptx_name *name)
{
	uint64_t value = 0;
	uint64_t unit = 1;
	struct ptx_symbol *found = NULL;

	for (uint32_t i = name->length; i > 1 && name->length - i < 9; i--) {
		char digit = name->text[i - 1];

		if (digit < '0' || digit > '9')
			break;
		value += (uint64_t)(digit - '0') * unit;
		unit *= 10;
		if (digit == '0' && i < name->length)
			continue; /* no register is called %r01 */
		struct ptx_name *prefix = ptx_intern(p, name->text, i - 1);

		if (!prefix)
			return NULL;
		for (struct ptx_symbol *symbol = prefix->symbols; symbol; symbol = symbol->older) {
			if (symbol->kind == PTX_SYMBOL_RANGE && value < symbol->count &&
			    (!found || symbol->scope->depth > found->scope->depth))
				found = symbol;
		}
	}
	return found;
}

struct ptx_symbol *ptx_find_register(struct ptx_parser *p, struct ptx_name *name)
{
	struct ptx_symbol *found = ptx_find(name);
	char last = name->text[name->length - 1];

	if (last >= '0' && last <= '9' && p->function && (!found || found->scope != p->scope)) {
		struct ptx_symbol *range = find_range(p, name);

		if (range && (!found || range->scope->depth > found->scope->depth)) {
			found = add(p, range->scope, name, PTX_SYMBOL_REGISTER);
			if (!found)
				return NULL;
			found->type = range->type;
			found->vector = range->vector;
		}
	}
	if (!found || found->kind != PTX_SYMBOL_REGISTER || !number(p, found))
		return NULL;
	return found;
}

static struct ptx_symbol *label_of(const struct ptx_name *name, const struct ptx_region *scope)
{
	for (struct ptx_symbol *label = name->labels; label; label = label->older) {
		if (label->scope == scope)
			return label;
	}
	return NULL;
}

/* Labels are names of their own, and stay until the function ends. */
struct ptx_symbol *ptx_declare_label(struct ptx_parser *p, struct ptx_name *name, enum ptx_symbol_kind kind)
{
	if (label_of(name, p->scope)) {
		ptx_error(p, "label '%s' is there twice", name->text);
		return NULL;
	}
	struct ptx_symbol *symbol = ptx_allocate(p->module, sizeof(*symbol));

	if (!symbol) {
		ptx_memory(p);
		return NULL;
	}
	symbol->name = name;
	symbol->kind = kind;
	symbol->scope = p->scope;
	symbol->reg = PTX_NONE;
	symbol->older = name->labels;
	symbol->sibling = p->labels;
	name->labels = symbol;
	p->labels = symbol;
	return symbol;
}

static const struct ptx_symbol *find_label(const struct ptx_name *name, const struct ptx_region *scope)
{
	for (; scope; scope = scope->parent) {
		const struct ptx_symbol *label = label_of(name, scope);

		if (label)
			return label;
	}
	return NULL;
}

static bool fail_at(struct ptx_parser *p, uint32_t line, const char *text, const char *name)
{
	ptx_fail(p->log, line, text, name); /* text is one of two below */
	return false;
}

static bool branch_targets(struct ptx_parser *p, const struct ptx_use *use, const struct ptx_symbol *list)
{
	uint32_t *targets = ptx_allocate(p->module, list->count * sizeof(*targets));

	if (!targets)
		return ptx_memory(p);
	for (uint32_t i = 0; i < list->count; i++) {
		const struct ptx_symbol *label = find_label(list->labels[i], list->scope);

		if (!label || label->kind != PTX_SYMBOL_LABEL)
			return fail_at(p, use->line, "there is no label '%s'", list->labels[i]->text);
		targets[i] = label->target;
	}
	use->operand->kind = PTX_OPERAND_TARGETS;
	use->operand->count = list->count;
	use->operand->targets = targets;
	return true;
}

bool ptx_resolve_labels(struct ptx_parser *p)
{
	const struct ptx_use *uses = p->uses.items;

	for (size_t i = 0; i < p->uses.count; i++) {
		const struct ptx_symbol *label = find_label(uses[i].name, uses[i].scope);
		struct ptx_operand *operand = uses[i].operand;
		bool good = label != NULL;

		switch (label ? label->kind : 0) {
		case PTX_SYMBOL_LABEL:
			good = operand->kind == PTX_OPERAND_LABEL;
			operand->target = label->target;
			break;
		case PTX_SYMBOL_TARGETS:
			good = operand->kind == PTX_OPERAND_TARGETS;
			if (good && !branch_targets(p, &uses[i], label))
				return false;
			break;
		case PTX_SYMBOL_FUNCTIONS:
			good = operand->kind == PTX_OPERAND_PROTOTYPE;
			operand->kind = PTX_OPERAND_TARGETS;
			operand->count = label->count;
			operand->functions = label->functions;
			break;
		case PTX_SYMBOL_PROTOTYPE:
			good = operand->kind == PTX_OPERAND_PROTOTYPE;
			operand->prototype = label->prototype;
			break;
		default:
			good = false;
			break;
		}
		if (!good)
			return fail_at(p, uses[i].line, label ? "label '%s' is of another kind" : "there is no label '%s'",
				       uses[i].name->text);
	}
	return true;
}

void ptx_forget_labels(struct ptx_parser *p)
{
	for (struct ptx_symbol *label = p->labels; label; label = label->sibling)
		label->name->labels = NULL;
	p->labels = NULL;
}
