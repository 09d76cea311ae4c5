/* SPDX-License-Identifier: Apache-2.0 */
/* body.c: the statements of a function: scopes, labels, declarations, instructions. */
#include <string.h>

#include "parse.h"

#define TARGETS_MOST 65536u

static bool branch_targets(struct ptx_parser *p, struct ptx_name *label)
{
	struct ptx_symbol *symbol = ptx_declare_label(p, label, PTX_SYMBOL_TARGETS);
	struct ptx_list names = { 0 };
	bool good = symbol != NULL;

	while (good) {
		struct ptx_name **name = ptx_list_add(&names, sizeof(struct ptx_name *));

		good = name ? ptx_expect_name(p, name) : ptx_memory(p);
		if (!good || !ptx_is(p, ','))
			break;
		good = ptx_next(p) && (names.count < TARGETS_MOST || ptx_error(p, "too many targets"));
	}
	if (good) {
		symbol->count = (uint32_t)names.count;
		symbol->labels = ptx_list_keep(p, &names, sizeof(struct ptx_name *));
		good = symbol->labels != NULL;
	}
	ptx_list_free(&names);
	return good && ptx_expect(p, ';');
}

static bool call_targets(struct ptx_parser *p, struct ptx_name *label)
{
	struct ptx_symbol *symbol = ptx_declare_label(p, label, PTX_SYMBOL_FUNCTIONS);
	struct ptx_list functions = { 0 };
	bool good = symbol != NULL;

	while (good) {
		struct ptx_function **function = ptx_list_add(&functions, sizeof(struct ptx_function *));
		struct ptx_name *name = NULL;

		good = function ? ptx_expect_name(p, &name) : ptx_memory(p);
		if (!good)
			break;
		const struct ptx_symbol *found = ptx_find(name);

		if (!found || found->kind != PTX_SYMBOL_FUNCTION)
			good = ptx_error(p, "there is no function '%s'", name->text);
		else
			*function = found->function;
		if (!good || !ptx_is(p, ','))
			break;
		good = ptx_next(p) && (functions.count < TARGETS_MOST || ptx_error(p, "too many targets"));
	}
	if (good) {
		symbol->count = (uint32_t)functions.count;
		symbol->functions = ptx_list_keep(p, &functions, sizeof(struct ptx_function *));
		good = symbol->functions != NULL;
	}
	ptx_list_free(&functions);
	return good && ptx_expect(p, ';');
}

/* after "name:" */
static bool label(struct ptx_parser *p, struct ptx_name *name)
{
	if (ptx_is_dotted(p, "branchtargets"))
		return ptx_next(p) && branch_targets(p, name);
	if (ptx_is_dotted(p, "calltargets"))
		return ptx_next(p) && call_targets(p, name);
	if (ptx_is_dotted(p, "callprototype"))
		return ptx_next(p) && ptx_prototype_parse(p, name);
	struct ptx_symbol *symbol = ptx_declare_label(p, name, PTX_SYMBOL_LABEL);

	if (!symbol)
		return false;
	symbol->target = (uint32_t)p->instructions.count;
	return true;
}

static bool declaration(struct ptx_parser *p)
{
	static const struct {
		const char *word;
		enum ptx_space space;
	} spaces[] = {
		{ "param", PTX_SPACE_PARAM },	{ "local", PTX_SPACE_LOCAL },	{ "shared", PTX_SPACE_SHARED },
		{ "global", PTX_SPACE_GLOBAL }, { "const", PTX_SPACE_CONST },
	};
	enum ptx_linkage linkage = PTX_PRIVATE;
	bool skipped = false;

	if (ptx_is_dotted(p, "reg"))
		return ptx_next(p) && ptx_registers(p);
	if (!ptx_skipped(p, &skipped))
		return false;
	if (skipped)
		return true;
	if (ptx_is_dotted(p, "extern") || ptx_is_dotted(p, "weak")) {
		linkage = ptx_is_dotted(p, "extern") ? PTX_EXTERN : PTX_WEAK;
		if (!ptx_next(p))
			return false;
	}
	for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
		if (ptx_is_dotted(p, spaces[i].word))
			return ptx_next(p) && ptx_variables(p, spaces[i].space, linkage);
	}
	return ptx_error(p, "unknown directive '.%.*s'", (int)p->token.length, p->token.text);
}

/* @p and @!p before an instruction */
static bool guarded(struct ptx_parser *p)
{
	struct ptx_name *name = NULL;

	if (!ptx_next(p))
		return false;
	bool negated = ptx_is(p, '!');

	if ((negated && !ptx_next(p)) || !ptx_expect_name(p, &name))
		return false;
	const struct ptx_symbol *guard = ptx_find_register(p, name);

	if (!guard || guard->type != PTX_PRED)
		return ptx_error(p, "'%s' is no predicate", name->text);
	struct ptx_token word = p->token;

	if (word.kind != PTX_TOKEN_WORD)
		return ptx_error(p, "expected an instruction after a guard");
	return ptx_next(p) && ptx_instruction_parse(p, &word, guard->reg, negated);
}

static bool statement(struct ptx_parser *p)
{
	if (ptx_is(p, ';'))
		return ptx_next(p);
	if (p->token.kind == PTX_TOKEN_DOTTED)
		return declaration(p);
	if (ptx_is(p, '@'))
		return guarded(p);
	if (p->token.kind != PTX_TOKEN_WORD)
		return ptx_error(p, "expected an instruction before '%.*s'", (int)p->token.length, p->token.text);
	struct ptx_token word = p->token;

	if (!ptx_next(p))
		return false;
	if (ptx_is(p, ':')) {
		struct ptx_name *name = ptx_intern(p, word.text, word.length);

		return name && ptx_next(p) && label(p, name);
	}
	return ptx_instruction_parse(p, &word, PTX_NONE, false);
}

/* After its '{', up to and with its '}'; the scope of the parameters is the body's. */
bool ptx_body(struct ptx_parser *p)
{
	const struct ptx_region *outer = p->scope;

	for (;;) {
		bool good = true;

		if (p->token.kind == PTX_TOKEN_END)
			return ptx_error(p, "expected '}' before the end of the text");
		if (ptx_is(p, '}')) {
			if (p->scope == outer)
				return ptx_next(p);
			ptx_scope_close(p);
			good = ptx_next(p);
		} else if (ptx_is(p, '{')) {
			good = ptx_scope_open(p) && ptx_next(p);
		} else {
			good = statement(p);
		}
		if (!good)
			return false;
	}
}
