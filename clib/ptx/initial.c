/* SPDX-License-Identifier: Apache-2.0 */
/* initial.c: the first contents of variables, and the addresses in them. */
#include <stdlib.h>
#include <string.h>

#include "parse.h"

struct filling {
	struct ptx_variable *variable;
	unsigned char *bytes; /* as far as they are given */
	uint64_t count;
	uint64_t room;
	uint32_t element; /* bytes */
	struct ptx_list relocations;
};

static bool put(struct ptx_parser *p, struct filling *f, uint64_t at, uint64_t value)
{
	uint64_t end = at + f->element;

	if (end > PTX_TEXT_MOST)
		return ptx_error(p, "the contents of '%s' are too big", f->variable->name);
	if (end > f->room) {
		uint64_t room = f->room ? f->room : 64;

		while (room < end)
			room *= 2;
		unsigned char *more = realloc(f->bytes, room);

		if (!more)
			return ptx_memory(p);
		memset(more + f->room, 0, room - f->room);
		f->bytes = more;
		f->room = room;
	}
	memcpy(f->bytes + at, &value, f->element < sizeof(value) ? f->element : sizeof(value));
	if (f->count < end)
		f->count = end;
	return true;
}

/* name, generic(name), each with + or - a constant */
static bool address(struct ptx_parser *p, struct ptx_relocation *relocation)
{
	struct ptx_name *name = NULL;
	struct ptx_constant addend = { 0 };

	if (!ptx_expect_name(p, &name))
		return false;
	if (strcmp(name->text, "generic") == 0 && ptx_is(p, '(')) {
		relocation->generic = true;
		if (!ptx_next(p) || !ptx_expect_name(p, &name) || !ptx_expect(p, ')'))
			return false;
	}
	const struct ptx_symbol *symbol = ptx_find(name);

	if (symbol && symbol->kind == PTX_SYMBOL_VARIABLE) {
		enum ptx_space space = symbol->variable->space;

		if (space != PTX_SPACE_GLOBAL && space != PTX_SPACE_CONST)
			return ptx_error(p, "an initializer cannot hold the address of '%s'", name->text);
		relocation->variable = symbol->variable;
	} else if (symbol && symbol->kind == PTX_SYMBOL_FUNCTION) {
		relocation->function = symbol->function;
		symbol->function->addressed = true;
	} else {
		return ptx_error(p, "'%s' is not declared", name->text);
	}
	if (ptx_is(p, '+') || ptx_is(p, '-')) {
		bool minus = ptx_is(p, '-');

		if (!ptx_next(p) || !ptx_expression(p, &addend))
			return false;
		if (addend.form > PTX_FORM_UNSIGNED)
			return ptx_error(p, "an offset is an integer");
		relocation->addend = (int64_t)(minus ? 0 - addend.bits : addend.bits);
	}
	return true;
}

static bool add_relocation(struct ptx_parser *p, struct filling *f, const struct ptx_relocation *relocation)
{
	struct ptx_relocation *made = ptx_list_add(&f->relocations, sizeof(*made));

	if (!made)
		return ptx_memory(p);
	*made = *relocation;
	return put(p, f, relocation->offset, 0);
}

/* 0xff00(name): one byte of an address */
static bool masked(struct ptx_parser *p, struct filling *f, uint64_t at)
{
	struct ptx_relocation relocation = { .offset = at, .bytes = 1 };
	uint64_t mask = p->token.bits;
	unsigned int shift = mask ? (unsigned int)__builtin_ctzll(mask) : 1;

	if (shift % 8 || mask >> shift != 0xff || f->element != 1)
		return ptx_error(p, "a mask of an address selects one byte");
	relocation.shift = (uint8_t)(shift / 8);
	return ptx_next(p) && ptx_expect(p, '(') && address(p, &relocation) && ptx_expect(p, ')') &&
	       add_relocation(p, f, &relocation);
}

static bool mask_follows(const struct ptx_parser *p)
{
	const char *at = p->lexer.at;

	while (at < p->lexer.end && (*at == ' ' || *at == '\t'))
		at++;
	return p->token.kind == PTX_TOKEN_NUMBER && at < p->lexer.end && *at == '(';
}

static bool value_of(struct ptx_parser *p, const struct filling *f, const struct ptx_constant *constant,
		     uint64_t *value)
{
	double wide = ptx_constant_double(constant);
	float narrow = (float)wide;
	uint32_t half = 0;

	switch (f->variable->type) {
	case PTX_F32:
		memcpy(&half, &narrow, sizeof(half));
		*value = constant->form == PTX_FORM_F32 ? constant->bits : half;
		return true;
	case PTX_F64:
		if (constant->form == PTX_FORM_F64)
			*value = constant->bits;
		else
			memcpy(value, &wide, sizeof(wide));
		return true;
	default:
		if (constant->form > PTX_FORM_UNSIGNED)
			return ptx_error(p, "expected an integer for a .%s", ptx_type_name(f->variable->type));
		*value = constant->bits;
		return true;
	}
}

static bool element(struct ptx_parser *p, struct filling *f, uint64_t at)
{
	struct ptx_constant constant = { 0 };
	uint64_t value = 0;

	if (mask_follows(p))
		return masked(p, f, at);
	if (p->token.kind == PTX_TOKEN_WORD && !(p->token.length == 7 && memcmp(p->token.text, "WARP_SZ", 7) == 0)) {
		struct ptx_relocation relocation = { .offset = at, .bytes = (uint8_t)f->element };

		if (f->element != 4 && f->element != 8)
			return ptx_error(p, "an address needs an element of 8 bytes");
		return address(p, &relocation) && add_relocation(p, f, &relocation);
	}
	return ptx_expression(p, &constant) && value_of(p, f, &constant, &value) && put(p, f, at, value);
}

/* Values for one element or, in braces, one dimension: bytes of each item, count
 * of them, 0 for as many as are given. */
static bool fill(struct ptx_parser *p, struct filling *f, uint64_t at, const uint64_t *dims, uint32_t count, bool open)
{
	uint64_t bytes = f->element;

	if (!count) {
		if (!ptx_take(p, '{'))
			return element(p, f, at);
		return element(p, f, at) && ptx_expect(p, '}'); /* { 1 } for a scalar */
	}
	for (uint32_t i = 1; i < count; i++)
		bytes *= dims[i];
	if (!ptx_expect(p, '{'))
		return false;
	for (uint64_t i = 0; !ptx_is(p, '}'); i++) {
		if (!open && i >= dims[0])
			return ptx_error(p, "'%s' has more values than elements", f->variable->name);
		/* a list without inner braces goes on through all dimensions */
		if (count > 1 && !ptx_is(p, '{')) {
			uint64_t most = open ? UINT64_MAX : dims[0] * (bytes / f->element);

			for (uint64_t j = i * (bytes / f->element); !ptx_is(p, '}'); j++) {
				if (j >= most)
					return ptx_error(p, "'%s' has more values than elements", f->variable->name);
				if (!element(p, f, at + j * f->element) || (!ptx_is(p, '}') && !ptx_expect(p, ',')))
					return false;
			}
			break;
		}
		if (!fill(p, f, at + i * bytes, dims + 1, count - 1, false))
			return false;
		if (!ptx_is(p, '}') && !ptx_expect(p, ','))
			return false;
	}
	return ptx_next(p);
}

bool ptx_initial(struct ptx_parser *p, struct ptx_variable *variable, const uint64_t *dims, uint32_t dimensions)
{
	struct filling f = { .variable = variable, .element = ptx_type_bytes(variable->type) };
	uint64_t sizes[16];
	uint32_t count = 0;

	/* opaque types: { addr_mode_0 = clamp_to_border, ... }; the program's calls decide that */
	if (variable->type >= PTX_TEXREF)
		return ptx_error(p, "'%s' has an initializer for a .%s, which is not supported", variable->name,
				 ptx_type_name(variable->type));
	for (; count < dimensions; count++)
		sizes[count] = dims[count];
	if (variable->vector > 1)
		sizes[count++] = variable->vector;
	bool open = dimensions && !dims[0];
	bool good = fill(p, &f, 0, sizes, count, open);

	if (good && open) {
		uint64_t stride = variable->stride ? variable->stride : 1;

		variable->bytes = (f.count + stride - 1) / stride * stride;
	}
	if (good && f.count) {
		unsigned char *kept = ptx_allocate(p->module, f.count);

		good = kept || ptx_memory(p);
		if (good) {
			memcpy(kept, f.bytes, f.count);
			variable->initial = kept;
			variable->initialbytes = f.count;
			variable->relocations = ptx_list_keep(p, &f.relocations, sizeof(struct ptx_relocation));
			variable->relocationcount = (uint32_t)f.relocations.count;
			good = variable->relocations != NULL;
		}
	}
	free(f.bytes);
	ptx_list_free(&f.relocations);
	return good;
}
