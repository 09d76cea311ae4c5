/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

/* Beyond so many comparisons no variable shares its place with another. */
#define EFFORT (1ull << 26)

struct pair {
	struct ptx_variable *variable;
	uint32_t kernel; /* index of the function */
};

struct work {
	struct ptx_module *module;
	struct ptx_list *own;    /* per function: its shared variables and those that it names */
	uint32_t *seen;          /* per function: the last kernel that reached it, plus 1 */
	uint32_t *stack;
	struct ptx_list pairs;   /* struct pair, kernel by kernel */
};

static int note_variable(struct ptx_list *own, const struct ptx_variable *variable)
{
	if (!variable || variable->space != PTX_SPACE_SHARED)
		return 0;
	struct ptx_variable **made = ptx_list_add(own, sizeof(struct ptx_variable *));

	if (!made)
		return -ENOMEM;
	*made = variable->definition;
	return 0;
}

static int note(struct ptx_list *own, const struct ptx_operand *operand)
{
	switch (operand->kind) {
	case PTX_OPERAND_ADDRESS:
	case PTX_OPERAND_SYMBOL:
		return note_variable(own, operand->variable);
	case PTX_OPERAND_VECTOR:
	case PTX_OPERAND_LIST:
	case PTX_OPERAND_TEXTURE:
		for (uint32_t i = 0; i < operand->count; i++) {
			int result = note(own, &operand->elements[i]);

			if (result < 0)
				return result;
		}
		return 0;
	default:
		return 0;
	}
}

static int by_address(const void *left, const void *right)
{
	uintptr_t a = (uintptr_t)*(struct ptx_variable *const *)left;
	uintptr_t b = (uintptr_t)*(struct ptx_variable *const *)right;

	return a < b ? -1 : a > b;
}

/* The shared variables that a function has of its own or names, each once. */
static int gather(struct work *w, uint32_t index)
{
	const struct ptx_function *function = w->module->functions[index];
	struct ptx_list *own = &w->own[index];
	int result = 0;

	for (const struct ptx_variable *one = function->variables; result == 0 && one; one = one->next)
		result = one->dynamic || one->linkage == PTX_EXTERN ? 0 : note_variable(own, one);
	for (uint32_t i = 0; result == 0 && i < function->instructioncount; i++) {
		for (uint32_t j = 0; result == 0 && j < function->instructions[i].operandcount; j++)
			result = note(own, &function->instructions[i].operands[j]);
	}
	if (result < 0 || !own->count)
		return result;
	struct ptx_variable **items = own->items;
	size_t kept = 0;

	qsort(items, own->count, sizeof(struct ptx_variable *), by_address);
	for (size_t i = 0; i < own->count; i++) {
		if (!kept || items[kept - 1] != items[i])
			items[kept++] = items[i];
	}
	own->count = kept;
	return 0;
}

/* Everything that a kernel can call, itself first, into the stack array. */
static uint32_t reach(struct work *w, uint32_t kernel)
{
	struct ptx_module *module = w->module;
	bool indirect = false;
	uint32_t count = 1;

	w->stack[0] = kernel;
	w->seen[kernel] = kernel + 1;
	for (uint32_t i = 0; i < count; i++) {
		const struct ptx_function *function = module->functions[w->stack[i]];

		for (uint32_t j = 0; j < function->calleecount; j++) {
			uint32_t callee = function->callees[j]->index;

			if (w->seen[callee] != kernel + 1) {
				w->seen[callee] = kernel + 1;
				w->stack[count++] = callee;
			}
		}
		if (!function->indirect || indirect)
			continue;
		indirect = true;
		for (uint32_t j = 0; j < module->functioncount; j++) {
			if (module->functions[j]->addressed && w->seen[j] != kernel + 1) {
				w->seen[j] = kernel + 1;
				w->stack[count++] = j;
			}
		}
	}
	return count;
}

static int pair_up(struct work *w, uint32_t kernel)
{
	struct ptx_function *entry = w->module->functions[kernel];
	uint32_t count = reach(w, kernel);

	for (uint32_t i = 0; i < count; i++) {
		struct ptx_variable *const *own = w->own[w->stack[i]].items;

		for (size_t j = 0; j < w->own[w->stack[i]].count; j++) {
			if (own[j]->dynamic) {
				entry->dynamic = true;
				continue;
			}
			if (own[j]->address == kernel + 1ull)
				continue; /* known through another function */
			struct pair *made = ptx_list_add(&w->pairs, sizeof(*made));

			if (!made)
				return -ENOMEM;
			*made = (struct pair){ own[j], kernel };
			own[j]->address = kernel + 1ull;
		}
	}
	return 0;
}

/* Order of the text: what comes first lies first. */
static int by_line(const void *left, const void *right)
{
	const struct pair *a = left;
	const struct pair *b = right;

	if (a->kernel != b->kernel)
		return a->kernel < b->kernel ? -1 : 1;
	if (a->variable->unit != b->variable->unit)
		return a->variable->unit < b->variable->unit ? -1 : 1;
	if (a->variable->line != b->variable->line)
		return a->variable->line < b->variable->line ? -1 : 1;
	return a->variable < b->variable ? -1 : a->variable > b->variable;
}

/* The lowest offset at which the variable meets none that lie with it. */
static uint64_t free_offset(const struct work *w, const struct ptx_variable *variable)
{
	const struct pair *pairs = w->pairs.items;
	uint64_t offset = 0;
	bool moved = true;

	while (moved) {
		moved = false;
		for (size_t i = 0; i < w->pairs.count; i++) {
			if (pairs[i].variable != variable)
				continue;
			/* its kernel's pairs stand together */
			size_t from = i;
			size_t to = i;

			while (from > 0 && pairs[from - 1].kernel == pairs[i].kernel)
				from--;
			while (to < w->pairs.count && pairs[to].kernel == pairs[i].kernel)
				to++;
			for (size_t j = from; j < to; j++) {
				const struct ptx_variable *other = pairs[j].variable;

				if (other == variable || !other->user || offset >= other->offset + other->bytes ||
				    offset + variable->bytes <= other->offset)
					continue;
				offset = (other->offset + other->bytes + variable->align - 1) & ~(variable->align - 1);
				moved = true;
			}
		}
	}
	return offset;
}

static int settle(struct work *w, const struct pair *pair, uint64_t offset, struct ptx_log *log)
{
	struct ptx_variable *variable = pair->variable;
	struct ptx_function *entry = w->module->functions[pair->kernel];

	if (!variable->user) {
		if (offset + variable->bytes > PTX_SHARED_BYTES)
			return ptx_fail(log, variable->line, "'%s' does not fit in shared memory", variable->name);
		variable->offset = offset;
		variable->user = variable; /* placed */
	}
	if (entry->sharedbytes < variable->offset + variable->bytes)
		entry->sharedbytes = (uint32_t)(variable->offset + variable->bytes);
	return 0;
}

/* First those that several kernels reach, then each kernel's own behind them. */
static int place(struct work *w, struct ptx_log *log)
{
	struct pair *pairs = w->pairs.items;
	uint64_t common = 0;
	uint64_t end = 0;
	int result = 0;

	for (size_t i = 0; i < w->pairs.count; i++)
		pairs[i].variable->address = 0;
	for (size_t i = 0; i < w->pairs.count; i++)
		pairs[i].variable->address++;
	for (size_t i = 0; i < w->pairs.count; i++)
		common += pairs[i].variable->address > 1;
	for (size_t i = 0; result == 0 && i < w->pairs.count; i++) {
		struct ptx_variable *variable = pairs[i].variable;
		uint64_t offset = (end + variable->align - 1) & ~(variable->align - 1);

		if (variable->address < 2)
			continue;
		if (!variable->user && common * common * w->pairs.count < EFFORT)
			offset = free_offset(w, variable);
		result = settle(w, &pairs[i], offset, log);
		end = variable->offset + variable->bytes;
	}
	for (size_t i = 0; result == 0 && i < w->pairs.count; i++) {
		struct ptx_variable *variable = pairs[i].variable;
		uint64_t used = w->module->functions[pairs[i].kernel]->sharedbytes;

		if (variable->address == 1)
			result = settle(w, &pairs[i], (used + variable->align - 1) & ~(variable->align - 1), log);
	}
	for (size_t i = 0; i < w->pairs.count; i++) {
		pairs[i].variable->user = NULL;
		pairs[i].variable->address = 0;
	}
	return result;
}

int ptx_layout(struct ptx_module *module, struct ptx_log *log)
{
	size_t count = module->functioncount ? module->functioncount : 1;
	struct work work = {
		.module = module,
		.own = calloc(count, sizeof(*work.own)),
		.seen = calloc(count, sizeof(*work.seen)),
		.stack = calloc(count, sizeof(*work.stack)),
	};
	int result = work.own && work.seen && work.stack ? 0 : -ENOMEM;

	for (uint32_t i = 0; result == 0 && i < module->functioncount; i++)
		result = gather(&work, i);
	for (uint32_t i = 0; result == 0 && i < module->functioncount; i++) {
		if (module->functions[i]->entry)
			result = pair_up(&work, i);
	}
	if (result == 0) {
		if (work.pairs.count)
			qsort(work.pairs.items, work.pairs.count, sizeof(struct pair), by_line);
		result = place(&work, log);
	}
	for (size_t i = 0; work.own && i < module->functioncount; i++)
		ptx_list_free(&work.own[i]);
	free(work.own);
	free(work.seen);
	free(work.stack);
	ptx_list_free(&work.pairs);
	return result;
}
