/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c: one meaning for each name, across all inputs. Operands and addresses
 * in first contents then point to definitions, and only what is used must have
 * one.
 */
#include <errno.h>
#include <string.h>

#include "layout.h"
#include "parse.h"

struct linker {
	struct ptx_module *module;
	struct ptx_log *log;
	struct ptx_function *function; /* the one being walked */
	struct ptx_list callees;
};

static struct ptx_name *name_of(const char *text)
{
	return (struct ptx_name *)(void *)((char *)(uintptr_t)text - offsetof(struct ptx_name, text));
}

/* Reverses a list that was made by putting in front. */
static struct ptx_function *in_order_functions(struct ptx_function *list)
{
	struct ptx_function *done = NULL;

	while (list) {
		struct ptx_function *next = list->next;

		list->next = done;
		done = list;
		list = next;
	}
	return done;
}

static struct ptx_variable *in_order_variables(struct ptx_variable *list)
{
	struct ptx_variable *done = NULL;

	while (list) {
		struct ptx_variable *next = list->next;

		list->next = done;
		done = list;
		list = next;
	}
	return done;
}

static bool exported(uint8_t linkage)
{
	return linkage == PTX_VISIBLE || linkage == PTX_WEAK || linkage == PTX_COMMON;
}

static int export_function(struct linker *l, struct ptx_function *function)
{
	struct ptx_name *name = name_of(function->name);

	/* .visible may stand at a declaration only */
	for (struct ptx_function *older = function->older; older; older = older->older) {
		older->definition = function;
		if (function->linkage == PTX_PRIVATE && older->linkage != PTX_EXTERN)
			function->linkage = older->linkage;
	}
	/* kernels are found by name whatever their linkage */
	if (!exported(function->linkage) && !function->entry)
		return 0;
	struct ptx_function *other = name->function;

	if (!other || (other->linkage == PTX_WEAK && function->linkage != PTX_WEAK)) {
		if (other)
			other->definition = function;
		name->function = function;
	} else if (function->linkage == PTX_WEAK) {
		function->definition = other;
	} else {
		return ptx_fail(l->log, function->line, "function '%s' is defined twice", function->name);
	}
	return 0;
}

static int resolve_functions(struct linker *l)
{
	struct ptx_module *module = l->module;

	module->declared = in_order_functions(module->declared);
	for (struct ptx_function *function = module->declared; function; function = function->next) {
		int result = function->defined ? export_function(l, function) : 0;

		if (result < 0)
			return result;
	}
	for (struct ptx_function *function = module->declared; function; function = function->next) {
		struct ptx_name *name = name_of(function->name);

		if (function->alias && exported(function->linkage) && !name->function)
			name->function = function->alias->definition;
		if (function->defined || function->definition != function)
			continue;
		if (function->alias)
			function->definition = function->alias->definition;
		else if (function->older && function->older->definition->defined)
			function->definition = function->older->definition; /* declared once more */
		else if (name->function)
			function->definition = name->function;
		else if (function->builtin)
			name->function = function;
	}
	/* definitions that gave way to others */
	for (struct ptx_function *function = module->declared; function; function = function->next) {
		for (unsigned int i = 0; i < 8 && function->definition != function->definition->definition; i++)
			function->definition = function->definition->definition;
	}
	return 0;
}

static int export_variable(struct linker *l, struct ptx_variable *variable)
{
	struct ptx_variable *other = name_of(variable->name)->variable;

	if (!exported(variable->linkage))
		return 0;
	if (!other || (other->linkage != PTX_VISIBLE && variable->linkage == PTX_VISIBLE)) {
		if (other)
			other->definition = variable;
		name_of(variable->name)->variable = variable;
		return 0;
	}
	if (variable->linkage == PTX_VISIBLE)
		return ptx_fail(l->log, variable->line, "'%s' is defined twice", variable->name);
	if (variable->linkage == PTX_COMMON && other->linkage == PTX_COMMON && variable->bytes > other->bytes)
		other->bytes = variable->bytes;
	variable->definition = other;
	return 0;
}

static bool is_defined(const struct ptx_variable *variable)
{
	return variable->linkage != PTX_EXTERN || variable->dynamic;
}

static int resolve_variables(struct linker *l)
{
	struct ptx_module *module = l->module;

	module->named = in_order_variables(module->named);
	for (struct ptx_variable *variable = module->named; variable; variable = variable->next) {
		int result = is_defined(variable) ? export_variable(l, variable) : 0;

		if (result < 0)
			return result;
	}
	for (struct ptx_variable *variable = module->named; variable; variable = variable->next) {
		struct ptx_variable *definition = variable->definition;

		if (!is_defined(definition) && name_of(definition->name)->variable)
			variable->definition = name_of(definition->name)->variable;
		for (unsigned int i = 0; i < 8 && variable->definition != variable->definition->definition; i++)
			variable->definition = variable->definition->definition;
	}
	return 0;
}

static int use_variable(struct linker *l, const struct ptx_variable **variable, uint32_t line)
{
	struct ptx_variable *definition = (*variable)->definition;

	/* extern in a body: of its own or of the module's */
	if (!is_defined(definition) && name_of(definition->name)->variable)
		definition = name_of(definition->name)->variable;
	if (!is_defined(definition))
		return ptx_fail(l->log, line, "unresolved extern variable '%s'", definition->name);
	*variable = definition;
	return 0;
}

static int use_function(struct linker *l, const struct ptx_function **function, uint32_t line)
{
	struct ptx_function *definition = (*function)->definition;

	if (!definition->defined && !definition->builtin)
		return ptx_fail(l->log, line, "unresolved extern function '%s'", definition->name);
	*function = definition;
	return 0;
}

static int add_callee(struct linker *l, const struct ptx_function *callee)
{
	struct ptx_function **made = ptx_list_add(&l->callees, sizeof(struct ptx_function *));

	if (!made)
		return -ENOMEM;
	*made = callee->definition;
	return 0;
}

static int walk_operand(struct linker *l, struct ptx_operand *operand, uint32_t line, bool called)
{
	int result = 0;

	switch (operand->kind) {
	case PTX_OPERAND_ADDRESS:
	case PTX_OPERAND_SYMBOL:
		return operand->variable ? use_variable(l, &operand->variable, line) : 0;
	case PTX_OPERAND_FUNCTION:
		result = use_function(l, &operand->function, line);
		if (result < 0)
			return result;
		if (!called)
			operand->function->definition->addressed = true;
		return called ? add_callee(l, operand->function) : 0;
	case PTX_OPERAND_VECTOR:
	case PTX_OPERAND_LIST:
	case PTX_OPERAND_TEXTURE:
		/* the arena's: const is for the readers of the tree */
		for (uint32_t i = 0; result == 0 && i < operand->count; i++)
			result = walk_operand(l, (struct ptx_operand *)(uintptr_t)&operand->elements[i], line, false);
		return result;
	default:
		return 0;
	}
}

static int walk_targets(struct linker *l, const struct ptx_operand *operand, uint32_t line)
{
	const struct ptx_function **functions = (const struct ptx_function **)(uintptr_t)operand->functions;
	int result = 0;

	for (uint32_t i = 0; result == 0 && i < operand->count; i++) {
		result = use_function(l, &functions[i], line);
		if (result == 0)
			result = add_callee(l, functions[i]);
	}
	return result;
}

static int walk_function(struct linker *l, struct ptx_function *function)
{
	struct ptx_instruction *instructions = (struct ptx_instruction *)(uintptr_t)function->instructions;
	int result = 0;

	l->function = function;
	l->callees.count = 0;
	for (uint32_t i = 0; result == 0 && i < function->instructioncount; i++) {
		struct ptx_instruction *one = &instructions[i];
		struct ptx_operand *operands = (struct ptx_operand *)(uintptr_t)one->operands;
		bool call = one->opcode == PTX_OP_CALL;

		for (uint32_t j = 0; result == 0 && j < one->operandcount; j++)
			result = walk_operand(l, &operands[j], one->line, call && j == 1);
		if (result == 0 && call && operands[1].kind == PTX_OPERAND_REGISTER) {
			if (operands[3].kind == PTX_OPERAND_TARGETS)
				result = walk_targets(l, &operands[3], one->line);
			else
				function->indirect = true;
		}
	}
	if (result < 0)
		return result;
	function->calleecount = (uint32_t)l->callees.count;
	struct ptx_function **kept = ptx_allocate(l->module, l->callees.count * sizeof(struct ptx_function *));

	if (!kept)
		return -ENOMEM;
	if (l->callees.count)
		memcpy(kept, l->callees.items, l->callees.count * sizeof(struct ptx_function *));
	function->callees = kept;
	return 0;
}

static int walk_relocations(struct linker *l, const struct ptx_variable *variable)
{
	struct ptx_relocation *all = (struct ptx_relocation *)(uintptr_t)variable->relocations;
	int result = 0;

	for (uint32_t i = 0; result == 0 && i < variable->relocationcount; i++) {
		if (all[i].variable) {
			result = use_variable(l, &all[i].variable, variable->line);
		} else {
			result = use_function(l, &all[i].function, variable->line);
			if (result == 0)
				all[i].function->definition->addressed = true;
		}
	}
	return result;
}

static bool in_card_memory(const struct ptx_variable *variable)
{
	return variable->definition == variable && is_defined(variable) &&
	       (variable->space == PTX_SPACE_GLOBAL || variable->space == PTX_SPACE_CONST);
}

/* The module's own lists: what there is, once. */
static int gather(struct linker *l)
{
	struct ptx_module *module = l->module;
	struct ptx_list functions = { 0 };
	struct ptx_list variables = { 0 };
	bool full = false;

	for (struct ptx_variable *variable = module->named; variable && !full; variable = variable->next) {
		struct ptx_variable **made =
			in_card_memory(variable) ? ptx_list_add(&variables, sizeof(struct ptx_variable *)) : &variable;

		full = !made;
		if (made)
			*made = variable;
	}
	for (struct ptx_function *function = module->declared; function && !full; function = function->next) {
		if (function->definition != function || !(function->defined || function->builtin))
			continue;
		struct ptx_function **made = ptx_list_add(&functions, sizeof(struct ptx_function *));

		full = !made;
		if (full)
			break;
		function->index = (uint32_t)functions.count - 1;
		*made = function;
		for (struct ptx_variable *variable = function->variables; variable && !full; variable = variable->next) {
			struct ptx_variable **kept = in_card_memory(variable) ?
				ptx_list_add(&variables, sizeof(struct ptx_variable *)) : &variable;

			full = !kept;
			if (kept)
				*kept = variable;
		}
	}
	module->functions = ptx_allocate(module, functions.count * sizeof(struct ptx_function *));
	module->variables = ptx_allocate(module, variables.count * sizeof(struct ptx_variable *));
	full = full || !module->functions || !module->variables;
	if (!full && functions.count)
		memcpy(module->functions, functions.items, functions.count * sizeof(struct ptx_function *));
	if (!full && variables.count)
		memcpy(module->variables, variables.items, variables.count * sizeof(struct ptx_variable *));
	module->functioncount = (uint32_t)functions.count;
	module->variablecount = (uint32_t)variables.count;
	ptx_list_free(&functions);
	ptx_list_free(&variables);
	return full ? -ENOMEM : 0;
}

/* A bank of constants has so many bytes on every card. */
static int check_constants(const struct ptx_module *module, struct ptx_log *log)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < module->variablecount; i++) {
		const struct ptx_variable *one = module->variables[i];

		if (one->space != PTX_SPACE_CONST)
			continue;
		bytes = ((bytes + one->align - 1) & ~(one->align - 1)) + one->bytes;
		if (bytes > PTX_CONSTANT_BYTES)
			return ptx_fail(log, one->line, "'%s' does not fit in %u bytes of constant memory", one->name,
					PTX_CONSTANT_BYTES);
	}
	return 0;
}

int ptx_link(struct ptx_module *module, struct ptx_log *log)
{
	struct linker linker = { .module = module, .log = log };
	int result = resolve_functions(&linker);

	if (result == 0)
		result = resolve_variables(&linker);
	if (result == 0)
		result = gather(&linker);
	for (uint32_t i = 0; result == 0 && i < module->functioncount; i++)
		result = walk_function(&linker, module->functions[i]);
	for (uint32_t i = 0; result == 0 && i < module->variablecount; i++)
		result = walk_relocations(&linker, module->variables[i]);
	ptx_list_free(&linker.callees);
	if (result == 0)
		result = check_constants(module, log);
	if (result == 0)
		result = ptx_layout(module, log);
	if (result == -ENOMEM)
		ptx_fail(log, 0, "there is no memory for a text of this size");
	return result;
}
