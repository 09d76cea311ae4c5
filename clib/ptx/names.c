/* SPDX-License-Identifier: Apache-2.0 */
/* names.c: the arena of a module and its names, with the words of the language. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

#define BLOCK (64u << 10)
#define FIRST_NAMES 1024u

struct ptx_chunk {
	struct ptx_chunk *next;
	size_t used;
	size_t room;
	_Alignas(16) unsigned char bytes[];
};

static void *arena_take(struct ptx_arena *arena, size_t bytes)
{
	struct ptx_chunk *block = arena->block;

	if (bytes > PTX_ARENA_MOST)
		return NULL;
	bytes = (bytes + 15) & ~(size_t)15;
	if (!block || block->room - block->used < bytes) {
		size_t room = bytes > BLOCK / 4 ? bytes : BLOCK;

		if (arena->total + room > PTX_ARENA_MOST)
			return NULL;
		struct ptx_chunk *more = calloc(1, sizeof(*more) + room);

		if (!more)
			return NULL;
		arena->total += room;
		more->room = room;
		if (block && room != BLOCK) { /* a big one goes behind the one in use */
			more->next = block->next;
			block->next = more;
		} else {
			more->next = block;
			arena->block = more;
		}
		block = more;
	}
	void *at = block->bytes + block->used;

	block->used += bytes;
	return at;
}

void *ptx_allocate(struct ptx_module *module, size_t bytes)
{
	return arena_take(module->arena, bytes);
}

static uint32_t hash_of(const char *text, size_t length)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)text[i]) * 16777619u;
	return hash;
}

static bool grow(struct ptx_names *names)
{
	uint32_t room = names->room ? names->room * 2 : FIRST_NAMES;
	struct ptx_name **buckets = calloc(room, sizeof(*buckets));

	if (!buckets)
		return false;
	for (uint32_t i = 0; i < names->room; i++) {
		for (struct ptx_name *name = names->buckets[i]; name;) {
			struct ptx_name *next = name->next;

			name->next = buckets[name->hash & (room - 1)];
			buckets[name->hash & (room - 1)] = name;
			name = next;
		}
	}
	free(names->buckets);
	names->buckets = buckets;
	names->room = room;
	return true;
}

static struct ptx_name *intern(struct ptx_arena *arena, const char *text, size_t length)
{
	struct ptx_names *names = &arena->names;
	uint32_t hash = hash_of(text, length);

	if (names->count >= names->room && !grow(names))
		return NULL;
	struct ptx_name **bucket = &names->buckets[hash & (names->room - 1)];

	for (struct ptx_name *name = *bucket; name; name = name->next) {
		if (name->hash == hash && name->length == length && memcmp(name->text, text, length) == 0)
			return name;
	}
	struct ptx_name *name = arena_take(arena, sizeof(*name) + length + 1);

	if (!name)
		return NULL;
	name->hash = hash;
	name->length = (uint32_t)length;
	memcpy(name->text, text, length);
	name->next = *bucket;
	*bucket = name;
	names->count++;
	return name;
}

struct ptx_name *ptx_intern(struct ptx_parser *p, const char *text, size_t length)
{
	struct ptx_name *name = intern(p->module->arena, text, length);

	if (!name)
		ptx_memory(p);
	return name;
}

struct word {
	const char *text;
	uint8_t value;
};

#define WORD_TYPE(name, text, bytes) { text, PTX_##name },
#define WORD_OPCODE(name, text) { text, PTX_OP_##name },
#define WORD_SPACE(name, text) { text, PTX_SPACE_##name },
#define WORD_COMPARE(name, text) { text, PTX_CMP_##name },
#define WORD_ROUND(name, text) { text, PTX_ROUND_##name },
#define WORD_SCOPE(name, text) { text, PTX_SCOPE_##name },
#define WORD_SEMANTICS(name, text) { text, PTX_SEM_##name },
#define WORD_OPERATION(name, text) { text, PTX_DO_##name },
#define WORD_GEOMETRY(name, text) { text, PTX_GEOM_##name },
#define WORD_SHAPE(name, text) { text, PTX_SHAPE_##name },
#define WORD_LAYOUT(name, text) { text, PTX_LAYOUT_##name },
#define WORD_SPECIAL(name, text) { "%" text, PTX_SR_##name },
#define WORD_FLAG(name, text) { text, PTX_BIT_##name + 1 },

static const struct word types[] = { PTX_TYPES(WORD_TYPE) };
static const struct word opcodes[] = { PTX_OPCODES(WORD_OPCODE) };
static const struct word spaces[] = { PTX_SPACES(WORD_SPACE) };
static const struct word comparisons[] = { PTX_COMPARISONS(WORD_COMPARE) };
static const struct word roundings[] = { PTX_ROUNDINGS(WORD_ROUND) };
static const struct word scopes[] = { PTX_SCOPES(WORD_SCOPE) };
static const struct word semantics[] = { PTX_SEMANTICS(WORD_SEMANTICS) };
static const struct word operations[] = { PTX_OPERATIONS(WORD_OPERATION) };
static const struct word geometries[] = { PTX_GEOMETRIES(WORD_GEOMETRY) };
static const struct word shapes[] = { PTX_SHAPES(WORD_SHAPE) };
static const struct word layouts[] = { PTX_LAYOUTS(WORD_LAYOUT) };
static const struct word specials[] = { PTX_SPECIALS(WORD_SPECIAL) };
static const struct word flags[] = { PTX_FLAGS(WORD_FLAG) };

_Static_assert(PTX_OP_COUNT < 256 && PTX_SR_COUNT < 256, "words are numbered in bytes");

#define LIST(list, field) \
	{ list, sizeof(list) / sizeof((list)[0]), offsetof(struct ptx_name, field) }

static int names_open(struct ptx_module *module)
{
	static const struct {
		const struct word *words;
		size_t count;
		size_t field;
	} lists[] = {
		LIST(types, type),	     LIST(opcodes, opcode),	LIST(spaces, space),   LIST(comparisons, compare),
		LIST(roundings, round),	     LIST(scopes, scope),	LIST(semantics, semantics),
		LIST(operations, operation), LIST(geometries, geometry), LIST(shapes, shape),	LIST(layouts, layout),
		LIST(specials, special),     LIST(flags, flag),
	};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		for (size_t j = 0; j < lists[i].count; j++) {
			const struct word *word = &lists[i].words[j];
			struct ptx_name *name = intern(module->arena, word->text, strlen(word->text));

			if (!name)
				return -ENOMEM;
			((uint8_t *)name)[lists[i].field] = word->value;
		}
	}
	return 0;
}

struct ptx_module *ptx_module_new(void)
{
	struct ptx_arena *arena = calloc(1, sizeof(*arena));
	struct ptx_module *module = arena ? arena_take(arena, sizeof(*module)) : NULL;

	if (!module) {
		free(arena);
		return NULL;
	}
	module->arena = arena;
	module->unifiedtextures = true;
	if (names_open(module) < 0) {
		ptx_module_free(module);
		return NULL;
	}
	return module;
}

void ptx_module_free(struct ptx_module *module)
{
	if (!module)
		return;
	struct ptx_arena *arena = module->arena; /* the module lies in it */

	for (struct ptx_chunk *block = arena->block; block;) {
		struct ptx_chunk *next = block->next;

		free(block);
		block = next;
	}
	free(arena->names.buckets);
	free(arena);
}

int ptx_fail(struct ptx_log *log, uint32_t line, const char *format, ...)
{
	va_list arguments;

	if (log->text[0])
		return -EBADMSG;
	int length = line ? snprintf(log->text, sizeof(log->text), "line %u: ", line) : 0;

	va_start(arguments, format);
	vsnprintf(log->text + length, sizeof(log->text) - (size_t)length, format, arguments);
	va_end(arguments);
	return -EBADMSG;
}

const char *ptx_opcode_name(enum ptx_opcode opcode)
{
	return opcode > PTX_OP_NONE && opcode < PTX_OP_COUNT ? opcodes[opcode - 1].text : "";
}

const char *ptx_type_name(enum ptx_type type)
{
	return type > PTX_TYPE_NONE && type < PTX_TYPE_COUNT ? types[type - 1].text : "";
}

#define BYTES(name, text, bytes) bytes,

uint32_t ptx_type_bytes(enum ptx_type type)
{
	static const uint8_t sizes[] = { 0, PTX_TYPES(BYTES) };

	return type < PTX_TYPE_COUNT ? sizes[type] : 0;
}
