/* SPDX-License-Identifier: Apache-2.0 */
/* function.c: .entry and .func from their parameters to the end of their body. */
#include <string.h>

#include "parse.h"

#define THREADS_MOST 65536u

/* .maxntid 256, 1, 1 */
static bool three(struct ptx_parser *p, uint32_t values[3])
{
	values[0] = values[1] = values[2] = 1;
	for (unsigned int i = 0; i < 3; i++) {
		uint64_t value = 0;

		if (!ptx_next(p) || !ptx_count(p, THREADS_MOST, &value))
			return false;
		values[i] = (uint32_t)value;
		if (!ptx_is(p, ','))
			return true;
	}
	return ptx_error(p, "three dimensions are enough");
}

static bool one(struct ptx_parser *p, uint32_t *value)
{
	uint64_t wide = 0;

	if (!ptx_next(p) || !ptx_count(p, THREADS_MOST, &wide))
		return false;
	*value = (uint32_t)wide;
	return true;
}

/* What stands between the parameters and the body. */
static bool performance(struct ptx_parser *p, struct ptx_function *function)
{
	bool skipped = false;
	uint32_t ignored = 0;

	while (p->token.kind == PTX_TOKEN_DOTTED) {
		if (ptx_is_dotted(p, "maxntid")) {
			if (!three(p, function->maxntid))
				return false;
		} else if (ptx_is_dotted(p, "reqntid")) {
			if (!three(p, function->reqntid))
				return false;
		} else if (ptx_is_dotted(p, "minnctapersm")) {
			if (!one(p, &function->minctas))
				return false;
		} else if (ptx_is_dotted(p, "maxnreg")) {
			if (!one(p, &function->maxregisters))
				return false;
		} else if (ptx_is_dotted(p, "reqnctapercluster")) {
			if (!three(p, function->cluster))
				return false;
		} else if (ptx_is_dotted(p, "maxnctapersm") || ptx_is_dotted(p, "maxclusterrank") ||
			   ptx_is_dotted(p, "abi_preserve") || ptx_is_dotted(p, "abi_preserve_control")) {
			if (!one(p, &ignored))
				return false;
		} else if (ptx_is_dotted(p, "noreturn") || ptx_is_dotted(p, "explicitcluster")) {
			function->noreturn = function->noreturn || ptx_is_dotted(p, "noreturn");
			if (!ptx_next(p))
				return false;
		} else {
			if (!ptx_skipped(p, &skipped))
				return false;
			if (!skipped)
				return ptx_error(p, "unknown directive '.%.*s'", (int)p->token.length, p->token.text);
		}
	}
	return true;
}

static enum ptx_builtin builtin_of(const char *name)
{
	static const struct {
		const char *name;
		enum ptx_builtin builtin;
	} known[] = {
		{ "vprintf", PTX_BUILTIN_VPRINTF },
		{ "malloc", PTX_BUILTIN_MALLOC },
		{ "free", PTX_BUILTIN_FREE },
		{ "__assertfail", PTX_BUILTIN_ASSERTFAIL },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(name, known[i].name) == 0)
			return known[i].builtin;
	}
	return PTX_BUILTIN_NONE;
}

static bool body(struct ptx_parser *p, struct ptx_function *function)
{
	p->local = 0;
	p->param = function->parambytes;
	if (!ptx_next(p) || !ptx_body(p) || !ptx_resolve_labels(p))
		return false;
	function->defined = true;
	function->instructions = ptx_list_keep(p, &p->instructions, sizeof(struct ptx_instruction));
	function->instructioncount = (uint32_t)p->instructions.count;
	function->registers = ptx_list_keep(p, &p->registers, sizeof(struct ptx_register));
	function->registercount = (uint32_t)p->registers.count;
	return function->instructions && function->registers;
}

/* The name is known outside the scope that holds parameters and body, and in
 * the body too: a function may call itself. */
static bool enter(struct ptx_parser *p, struct ptx_name *name, struct ptx_function *function)
{
	struct ptx_symbol *symbol = ptx_find_here(p, name);

	if (symbol) {
		if (symbol->kind != PTX_SYMBOL_FUNCTION || symbol->function->entry != function->entry)
			return ptx_error(p, "'%s' is declared twice", name->text);
	} else {
		symbol = ptx_declare(p, name, PTX_SYMBOL_FUNCTION);
		if (!symbol)
			return false;
		symbol->function = function;
		return true;
	}
	function->addressed = symbol->function->addressed;
	function->older = symbol->function;
	symbol->function = function;
	return true;
}

bool ptx_function_parse(struct ptx_parser *p, bool entry, enum ptx_linkage linkage)
{
	struct ptx_function *function = ptx_allocate(p->module, sizeof(*function));
	struct ptx_name *name = NULL;
	uint64_t frame = 0;

	if (!function)
		return ptx_memory(p);
	*function = (struct ptx_function){
		.unit = p->module->units, .line = p->token.line, .entry = entry, .linkage = (uint8_t)linkage,
	};
	function->definition = function;
	while (ptx_is_dotted(p, "noreturn") || ptx_is_dotted(p, "attribute")) {
		if (ptx_is_dotted(p, "attribute")) { /* .attribute(.unified(...)) */
			while (!ptx_is(p, ')')) {
				if (p->token.kind == PTX_TOKEN_END || !ptx_next(p))
					return ptx_error(p, "expected ')' after .attribute");
			}
			if (ptx_next(p) && ptx_is(p, ')') && !ptx_next(p))
				return false;
		} else {
			function->noreturn = true;
			if (!ptx_next(p))
				return false;
		}
	}
	p->function = function;
	p->variabletail = &function->variables;
	p->instructions.count = p->registers.count = p->uses.count = 0;
	p->local = p->param = 0;
	if (!ptx_scope_open(p))
		return false;
	if (!entry && ptx_is(p, '(') &&
	    (!ptx_next(p) || !ptx_parameters(p, false, &function->returns, &frame)))
		return false;
	function->place = ptx_place(p);
	if (!ptx_expect_name(p, &name))
		return false;
	function->name = name->text;
	struct ptx_region *own = p->scope;

	p->scope = own->parent;
	bool good = enter(p, name, function);

	p->scope = own;
	if (!good)
		return false;
	if (ptx_is(p, '(') && (!ptx_next(p) || !ptx_parameters(p, entry, &function->parameters, &frame)))
		return false;
	*(entry ? &function->parameterbytes : &function->parambytes) = (uint32_t)frame;
	if (!performance(p, function))
		return false;
	if (ptx_is(p, '{')) {
		if (linkage == PTX_EXTERN)
			return ptx_error(p, "'%s' is extern and has a body", name->text);
		if (function->older && function->older->defined)
			return ptx_error(p, "function '%s' has two bodies", name->text);
		if (!body(p, function))
			return false;
	} else if (!ptx_expect(p, ';')) {
		return false;
	}
	ptx_scope_close(p);
	ptx_forget_labels(p);
	p->function = NULL;
	if (!function->defined)
		function->builtin = (uint8_t)builtin_of(function->name);
	function->next = p->module->declared;
	p->module->declared = function;
	return true;
}

/* label: .callprototype (returns) _ (parameters); the directive was read */
bool ptx_prototype_parse(struct ptx_parser *p, struct ptx_name *label)
{
	struct ptx_prototype *prototype = ptx_allocate(p->module, sizeof(*prototype));
	struct ptx_symbol *symbol = ptx_declare_label(p, label, PTX_SYMBOL_PROTOTYPE);
	struct ptx_function *function = p->function;
	struct ptx_name *name = NULL;
	uint64_t frame = 0;

	if (!prototype)
		return ptx_memory(p);
	if (!symbol)
		return false;
	prototype->name = label->text;
	symbol->prototype = prototype;
	p->function = NULL; /* names of its parameters mean nothing here */
	bool good = true;

	if (ptx_is(p, '('))
		good = ptx_next(p) && ptx_parameters(p, false, &prototype->returns, &frame);
	good = good && ptx_expect_name(p, &name);
	if (good && ptx_is(p, '('))
		good = ptx_next(p) && ptx_parameters(p, false, &prototype->parameters, &frame);
	if (good && ptx_is_dotted(p, "noreturn")) {
		prototype->noreturn = true;
		good = ptx_next(p);
	}
	while (good && (ptx_is_dotted(p, "abi_preserve") || ptx_is_dotted(p, "abi_preserve_control"))) {
		uint32_t ignored = 0;

		good = one(p, &ignored);
	}
	p->function = function;
	return good && ptx_expect(p, ';');
}
