/* SPDX-License-Identifier: Apache-2.0 */
/* variable.c: declarations of variables, parameters and registers. */
#include <string.h>

#include "parse.h"

#define ALIGN_MOST (1u << 20)
#define DIMENSIONS_MOST 8u

/* What stands before the names of a declaration. */
struct kind {
	enum ptx_type type;
	uint32_t vector;
	uint64_t align;
	bool managed;
};

static bool attribute(struct ptx_parser *p, struct kind *kind)
{
	if (!ptx_next(p) || !ptx_expect(p, '('))
		return false;
	while (!ptx_is(p, ')')) {
		kind->managed = kind->managed || ptx_is_dotted(p, "managed");
		if (p->token.kind == PTX_TOKEN_END)
			return ptx_error(p, "expected ')' after .attribute");
		if (!ptx_next(p))
			return false;
	}
	return ptx_next(p);
}

static bool alignment(struct ptx_parser *p, uint64_t *align)
{
	if (!ptx_next(p) || !ptx_count(p, ALIGN_MOST, align))
		return false;
	if (!*align || (*align & (*align - 1)))
		return ptx_error(p, "an alignment is a power of two");
	return true;
}

/* .ptr .space .align N is about what a parameter points to */
static bool pointed(struct ptx_parser *p)
{
	uint64_t align = 0;

	if (!ptx_next(p))
		return false;
	while (p->token.kind == PTX_TOKEN_DOTTED) {
		if (ptx_is_dotted(p, "align")) {
			if (!alignment(p, &align))
				return false;
		} else if (ptx_is_dotted(p, "global") || ptx_is_dotted(p, "const") || ptx_is_dotted(p, "shared") ||
			   ptx_is_dotted(p, "local")) {
			if (!ptx_next(p))
				return false;
		} else {
			return true;
		}
	}
	return true;
}

static bool kind_of(struct ptx_parser *p, struct kind *kind)
{
	*kind = (struct kind){ .vector = 1 };
	while (p->token.kind == PTX_TOKEN_DOTTED) {
		if (ptx_is_dotted(p, "align")) {
			if (!alignment(p, &kind->align))
				return false;
			continue;
		}
		if (ptx_is_dotted(p, "attribute")) {
			if (!attribute(p, kind))
				return false;
			continue;
		}
		if (ptx_is_dotted(p, "ptr")) {
			if (!pointed(p))
				return false;
			continue;
		}
		if (ptx_is_dotted(p, "v2") || ptx_is_dotted(p, "v4") || ptx_is_dotted(p, "v8")) {
			kind->vector = (uint32_t)(p->token.text[1] - '0');
		} else {
			const struct ptx_name *name = ptx_intern(p, p->token.text, p->token.length);

			if (!name)
				return false;
			if (!name->type || kind->type)
				return ptx_error(p, kind->type ? "unexpected '.%s' in a declaration" : "unknown type '.%s'",
						 name->text);
			kind->type = name->type;
		}
		if (!ptx_next(p))
			return false;
	}
	if (!kind->type)
		return ptx_error(p, "expected a type in this declaration");
	if (kind->vector * ptx_type_bytes(kind->type) > 32)
		return ptx_error(p, "this vector is too wide");
	return true;
}

static struct ptx_variable *make(struct ptx_parser *p, const struct kind *kind, enum ptx_space space,
				 const struct ptx_name *name)
{
	struct ptx_variable *made = ptx_allocate(p->module, sizeof(*made));
	uint64_t natural = (uint64_t)kind->vector * ptx_type_bytes(kind->type);

	if (!made) {
		ptx_memory(p);
		return NULL;
	}
	*made = (struct ptx_variable){
		.name = name ? name->text : "",
		.unit = p->module->units,
		.line = p->token.line,
		.place = ptx_place(p),
		.space = (uint8_t)space,
		.type = (uint8_t)kind->type,
		.vector = (uint8_t)kind->vector,
		.managed = kind->managed,
		.inbody = p->function != NULL,
		.align = kind->align > natural ? kind->align : natural,
		.bytes = natural,
		.reg = PTX_NONE,
	};
	made->definition = made;
	return made;
}

struct dims {
	uint64_t sizes[DIMENSIONS_MOST];
	uint32_t count;
	bool open; /* the first is [] */
};

static bool dimensions(struct ptx_parser *p, struct ptx_variable *variable, struct dims *dims)
{
	*dims = (struct dims){ .count = 0 };
	while (ptx_is(p, '[')) {
		uint64_t size = 0;

		if (!ptx_next(p))
			return false;
		if (dims->count == DIMENSIONS_MOST)
			return ptx_error(p, "an array has at most %u dimensions", DIMENSIONS_MOST);
		if (ptx_is(p, ']')) {
			if (dims->count)
				return ptx_error(p, "only the first dimension can be left open");
			dims->open = true;
		} else if (!ptx_count(p, PTX_VARIABLE_BYTES, &size)) {
			return false;
		}
		dims->sizes[dims->count++] = size;
		if (!ptx_expect(p, ']'))
			return false;
	}
	variable->stride = (uint32_t)variable->bytes;
	for (uint32_t i = dims->count; i-- > 0;) {
		if (i == 0)
			variable->stride = variable->bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)variable->bytes;
		if (__builtin_mul_overflow(variable->bytes, dims->sizes[i], &variable->bytes) ||
		    variable->bytes > PTX_VARIABLE_BYTES)
			return ptx_error(p, "'%s' is too big", variable->name);
	}
	return true;
}

/* A place of its own in local memory or in the frame of parameters. */
static bool place(struct ptx_parser *p, struct ptx_variable *variable, uint64_t *used, uint64_t most)
{
	variable->offset = (*used + variable->align - 1) & ~(variable->align - 1);
	if (variable->offset + variable->bytes > most)
		return ptx_error(p, "'%s' does not fit in %llu bytes", variable->name, (unsigned long long)most);
	*used = variable->offset + variable->bytes;
	return true;
}

static bool place_in_body(struct ptx_parser *p, struct ptx_variable *variable)
{
	struct ptx_function *function = p->function;

	if (variable->space == PTX_SPACE_LOCAL) {
		if (!place(p, variable, &p->local, PTX_LOCAL_BYTES))
			return false;
		if (function->localbytes < p->local)
			function->localbytes = (uint32_t)p->local;
	} else if (variable->space == PTX_SPACE_PARAM) {
		if (!place(p, variable, &p->param, PTX_PARAMETER_BYTES * 16))
			return false;
		if (function->parambytes < p->param)
			function->parambytes = (uint32_t)p->param;
	}
	return true;
}

/* Whether a second declaration of a name says the same. */
static bool same(const struct ptx_variable *a, const struct ptx_variable *b)
{
	return a->space == b->space && (a->bytes == b->bytes || !a->bytes || !b->bytes);
}

static bool enter(struct ptx_parser *p, struct ptx_name *name, struct ptx_variable *variable)
{
	struct ptx_symbol *old = ptx_find_here(p, name);

	if (p->function) {
		*p->variabletail = variable;
		p->variabletail = &variable->next;
	} else {
		variable->next = p->module->named;
		p->module->named = variable;
	}
	if (old) {
		/* declared extern before: what is said last counts, ptx_link ties them */
		if (old->kind != PTX_SYMBOL_VARIABLE || !same(old->variable, variable) ||
		    (old->variable->linkage != PTX_EXTERN && variable->linkage != PTX_EXTERN))
			return ptx_error(p, "'%s' is declared twice", name->text);
		if (variable->linkage != PTX_EXTERN) {
			old->variable->definition = variable;
			old->variable = variable;
		} else {
			variable->definition = old->variable;
		}
		return true;
	}
	struct ptx_symbol *symbol = ptx_declare(p, name, PTX_SYMBOL_VARIABLE);

	if (!symbol)
		return false;
	symbol->variable = variable;
	return true;
}

static bool allowed(struct ptx_parser *p, const struct ptx_variable *variable, const struct dims *dims, bool initial)
{
	enum ptx_space space = variable->space;

	if (variable->type == PTX_PRED)
		return ptx_error(p, "'%s' is a predicate in memory", variable->name);
	if (initial && (space == PTX_SPACE_SHARED || space == PTX_SPACE_LOCAL || space == PTX_SPACE_PARAM ||
			variable->linkage == PTX_EXTERN))
		return ptx_error(p, "'%s' cannot have an initializer", variable->name);
	if (dims->open && !initial && variable->linkage != PTX_EXTERN &&
	    !(space == PTX_SPACE_PARAM || space == PTX_SPACE_SHARED))
		return ptx_error(p, "the size of '%s' is missing", variable->name);
	if (space == PTX_SPACE_SHARED && variable->bytes > PTX_SHARED_BYTES)
		return ptx_error(p, "'%s' is too big", variable->name);
	return true;
}

bool ptx_variables(struct ptx_parser *p, enum ptx_space space, enum ptx_linkage linkage)
{
	struct kind kind;

	if (space == PTX_SPACE_TEX) { /* .tex .u64 name: a texture reference of old */
		space = PTX_SPACE_GLOBAL;
		if (!kind_of(p, &kind))
			return false;
		kind.type = PTX_TEXREF;
	} else if (!kind_of(p, &kind)) {
		return false;
	}
	for (;;) {
		struct ptx_name *name = NULL;
		struct dims dims;

		if (!ptx_expect_name(p, &name))
			return false;
		struct ptx_variable *variable = make(p, &kind, space, name);

		if (!variable || !dimensions(p, variable, &dims))
			return false;
		variable->linkage = (uint8_t)linkage;
		variable->dynamic = space == PTX_SPACE_SHARED && !variable->bytes;
		if (!allowed(p, variable, &dims, ptx_is(p, '=')))
			return false;
		if (p->function && !place_in_body(p, variable))
			return false;
		/* entered first: an initializer may hold the variable's own address */
		if (!enter(p, name, variable))
			return false;
		if (ptx_take(p, '=') && !ptx_initial(p, variable, dims.sizes, dims.count))
			return false;
		if (!ptx_is(p, ','))
			return ptx_expect(p, ';');
		if (!ptx_next(p))
			return false;
	}
}

/* a parameter that is a register of the function */
static bool register_parameter(struct ptx_parser *p, struct ptx_variable *variable, struct ptx_name *name)
{
	struct ptx_symbol *symbol = ptx_declare(p, name, PTX_SYMBOL_REGISTER);

	if (!symbol)
		return false;
	symbol->type = variable->type;
	symbol->vector = variable->vector;
	symbol = ptx_find_register(p, name);
	if (!symbol)
		return false;
	variable->reg = symbol->reg;
	return true;
}

/* The list after '(', up to and with ')'. Without a function: of a prototype,
 * whose names mean nothing. */
bool ptx_parameters(struct ptx_parser *p, bool entry, struct ptx_variable **first, uint64_t *frame)
{
	while (!ptx_is(p, ')')) {
		struct kind kind;
		struct dims dims;
		struct ptx_name *name = NULL;
		bool in_register = ptx_is_dotted(p, "reg");

		if (!in_register && !ptx_is_dotted(p, "param"))
			return ptx_error(p, "expected .param in a list of parameters");
		if (!ptx_next(p) || !kind_of(p, &kind) || !ptx_expect_name(p, &name))
			return false;
		struct ptx_variable *made = make(p, &kind, in_register ? PTX_SPACE_REG : PTX_SPACE_PARAM, name);

		if (!made || !dimensions(p, made, &dims))
			return false;
		if ((entry && in_register) || (in_register && dims.count))
			return ptx_error(p, "parameter '%s' cannot be a register", name->text);
		made->entry = entry;
		*first = made;
		first = &made->next;
		if (!in_register &&
		    !place(p, made, frame, entry ? PTX_PARAMETER_BYTES : PTX_PARAMETER_BYTES * 16))
			return false;
		if (p->function && !(name->length == 1 && name->text[0] == '_')) {
			struct ptx_symbol *symbol = NULL;

			if (in_register) {
				if (!register_parameter(p, made, name))
					return false;
			} else {
				symbol = ptx_declare(p, name, PTX_SYMBOL_VARIABLE);
				if (!symbol)
					return false;
				symbol->variable = made;
			}
		}
		if (!ptx_is(p, ')') && !ptx_expect(p, ','))
			return false;
	}
	return ptx_next(p);
}

/* .reg .b32 %r<5>, %x; */
bool ptx_registers(struct ptx_parser *p)
{
	struct kind kind;

	if (!kind_of(p, &kind))
		return false;
	if (kind.type >= PTX_TEXREF)
		return ptx_error(p, "a register cannot hold a .%s", ptx_type_name(kind.type));
	do {
		struct ptx_name *name = NULL;
		uint64_t count = 0;

		if (ptx_is(p, ',') && !ptx_next(p))
			return false;
		if (!ptx_expect_name(p, &name))
			return false;
		bool range = ptx_is(p, '<');

		if (range && (!ptx_next(p) || p->token.kind != PTX_TOKEN_NUMBER || p->token.form == PTX_FORM_F32 ||
			      p->token.form == PTX_FORM_F64 || p->token.bits > UINT32_MAX))
			return ptx_error(p, "expected how many registers '%s' stands for", name->text);
		count = p->token.bits;
		if (range && (!ptx_next(p) || !ptx_expect(p, '>')))
			return false;
		struct ptx_symbol *symbol = ptx_declare(p, name, range ? PTX_SYMBOL_RANGE : PTX_SYMBOL_REGISTER);

		if (!symbol)
			return false;
		symbol->type = (uint8_t)kind.type;
		symbol->vector = (uint8_t)kind.vector;
		symbol->count = (uint32_t)count;
	} while (ptx_is(p, ','));
	return ptx_expect(p, ';');
}
