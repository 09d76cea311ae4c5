/* SPDX-License-Identifier: Apache-2.0 */
#include "index.h"

#include <emmintrin.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

enum { ITEMS_MOST = 1 << 20, STEP = 16 };

enum item_kind { HEAD, VARIABLE, FUNCTION, ALIAS };

/* A directive of module scope, with its body. */
struct item {
	const char *at;
	const char *end;
	uint32_t line; /* 0 until they are counted */
	uint32_t mark; /* the walk that wants it */
	uint8_t kind;  /* enum item_kind */
	bool entry;
	bool body;
};

/* A name that an item gives; several may give the same. */
struct given {
	const char *text;
	uint32_t length;
	uint32_t hash;
	uint32_t item;
	uint32_t next; /* of the same bucket, plus 1 */
};

struct ptx_index {
	const char *text;
	size_t size;
	struct ptx_list items;  /* struct item */
	struct ptx_list names;  /* struct given */
	struct ptx_list kernels; /* uint32_t: of names */
	uint32_t *buckets;
	uint32_t room; /* a power of two */
	uint32_t walk;
	struct ptx_list wanted; /* uint32_t: items that the walk has still to look at */
	bool full; /* no memory */
};

static struct item *item_of(const struct ptx_index *index, uint32_t number)
{
	return (struct item *)index->items.items + number;
}

static struct given *name_of(const struct ptx_index *index, uint32_t number)
{
	return (struct given *)index->names.items + number;
}

static uint32_t hash_of(const char *text, uint32_t length)
{
	uint32_t hash = 2166136261u;

	for (uint32_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)text[i]) * 16777619u;
	return hash;
}

static bool word(const struct ptx_token *token, const char *text)
{
	return token->kind == PTX_TOKEN_DOTTED && strlen(text) == token->length &&
	       memcmp(text, token->text, token->length) == 0;
}

static bool marked(const struct ptx_token *token, char mark)
{
	return token->kind == PTX_TOKEN_MARK && token->bits == (unsigned char)mark;
}

static bool give(struct ptx_index *index, const struct ptx_token *token)
{
	struct given *given = ptx_list_add(&index->names, sizeof(*given));

	if (!given) {
		index->full = true;
		return false;
	}
	given->text = token->text;
	given->length = token->length;
	given->hash = hash_of(token->text, token->length);
	given->item = (uint32_t)index->items.count - 1;
	return true;
}

static void skip_string(struct ptx_lexer *l)
{
	while (l->at < l->end && *l->at != '"' && *l->at != '\n')
		l->at += *l->at == '\\' && l->end - l->at > 1 ? 2 : 1;
	l->at = l->at < l->end ? l->at + (*l->at == '"') : l->end;
}

/* Past a comment, or past the slash or the # that begins none. */
static void skip_comment(struct ptx_lexer *l)
{
	bool slash = *l->at == '/';

	if (!slash || (l->end - l->at > 1 && l->at[1] == '/')) {
		ptx_lex_skip_line(l);
	} else if (l->end - l->at > 1 && l->at[1] == '*') {
		l->at += 2;
		while (l->end - l->at > 1 && !(l->at[0] == '*' && l->at[1] == '/'))
			l->at++;
		l->at = l->end - l->at > 1 ? l->at + 2 : l->end;
	} else {
		l->at++;
	}
}

/* One character that means something to skip_braces. */
static void step(struct ptx_lexer *l, uint32_t *depth)
{
	switch (*l->at) {
	case '"':
		l->at++;
		skip_string(l);
		break;
	case '/':
	case '#':
		skip_comment(l);
		break;
	default:
		*depth += *l->at == '{';
		*depth -= *l->at == '}';
		l->at++;
		break;
	}
}

static uint32_t which(__m128i bytes, char c)
{
	return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(c)));
}

static uint32_t bits(uint32_t mask)
{
	uint32_t count = 0;

	for (; mask; mask &= mask - 1) /* few */
		count++;
	return count;
}

/* From behind a brace to behind the one that closes it: most of a text passes here. */
static bool skip_braces(struct ptx_lexer *l)
{
	uint32_t depth = 1;

	while (depth && l->end - l->at >= STEP) {
		__m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)l->at);
		uint32_t opened = which(bytes, '{');
		uint32_t closed = which(bytes, '}');
		uint32_t others = which(bytes, '"') | which(bytes, '/') | which(bytes, '#');

		if (!(opened | closed | others)) {
			l->at += STEP;
		} else if (!others && bits(closed) < depth) { /* braces of vectors */
			depth += bits(opened);
			depth -= bits(closed);
			l->at += STEP;
		} else {
			l->at += __builtin_ctz(opened | closed | others);
			step(l, &depth);
		}
	}
	while (depth && l->at < l->end)
		step(l, &depth);
	return depth == 0;
}

/* To behind the semicolon. */
static bool skip_statement(struct ptx_lexer *l, struct ptx_token *token)
{
	while (!marked(token, ';')) {
		if (token->kind == PTX_TOKEN_END || token->kind == PTX_TOKEN_BAD)
			return false;
		ptx_lex(l, token);
	}
	return true;
}

static bool function(struct ptx_index *index, struct item *item, struct ptx_lexer *l)
{
	struct ptx_token token;
	uint32_t depth = 0;
	bool named = false;

	for (;;) {
		ptx_lex(l, &token);
		if (token.kind == PTX_TOKEN_END || token.kind == PTX_TOKEN_BAD)
			return false;
		if (marked(&token, '(')) {
			depth++;
		} else if (marked(&token, ')') && depth) {
			depth--;
		} else if (depth) {
			continue;
		} else if (word(&token, "pragma")) {
			if (!skip_statement(l, &token))
				return false;
		} else if (token.kind == PTX_TOKEN_WORD && !named) {
			named = true;
			if (!give(index, &token))
				return false;
		} else if (marked(&token, ';')) {
			return named;
		} else if (marked(&token, '{')) {
			item->body = true;
			return named && skip_braces(l);
		}
	}
}

/* .global .u32 a = 1, b[2] = {1, 2}; */
static bool variables(struct ptx_index *index, struct ptx_lexer *l)
{
	struct ptx_token token;
	uint32_t depth = 0;
	bool named = false;

	for (;;) {
		ptx_lex(l, &token);
		if (token.kind == PTX_TOKEN_END || token.kind == PTX_TOKEN_BAD || marked(&token, '<'))
			return false;
		if (marked(&token, '{') || marked(&token, '(') || marked(&token, '[')) {
			depth++;
		} else if ((marked(&token, '}') || marked(&token, ')') || marked(&token, ']')) && depth) {
			depth--;
		} else if (depth) {
			continue;
		} else if (marked(&token, ';')) {
			return named;
		} else if (marked(&token, ',')) {
			named = false;
		} else if (token.kind == PTX_TOKEN_WORD && !named) {
			named = true;
			if (!give(index, &token))
				return false;
		}
	}
}

/* .alias a, b; */
static bool alias(struct ptx_index *index, struct ptx_lexer *l)
{
	struct ptx_token token;

	do {
		ptx_lex(l, &token);
		if (token.kind == PTX_TOKEN_END || token.kind == PTX_TOKEN_BAD ||
		    (token.kind == PTX_TOKEN_WORD && !give(index, &token)))
			return false;
	} while (!marked(&token, ';'));
	return true;
}

/* sm_80, texmode_independent */
static void words(struct ptx_lexer *l)
{
	struct ptx_token token;
	struct ptx_lexer before;

	do {
		ptx_lex(l, &token);
		before = *l;
		ptx_lex(l, &token);
	} while (marked(&token, ','));
	*l = before;
}

static bool linkage(const struct ptx_token *token)
{
	return word(token, "visible") || word(token, "extern") || word(token, "weak") || word(token, "common");
}

/* .section .debug_info { ... } */
static bool section(struct ptx_lexer *l, struct ptx_token *token)
{
	while (!marked(token, '{')) {
		if (token->kind == PTX_TOKEN_END || token->kind == PTX_TOKEN_BAD)
			return false;
		ptx_lex(l, token);
	}
	return skip_braces(l);
}

static bool directive(struct ptx_index *index, struct ptx_lexer *l, struct ptx_token *token)
{
	if (word(token, "file") || word(token, "loc")) {
		ptx_lex_skip_line(l);
		return true;
	}
	if (word(token, "section"))
		return section(l, token);
	struct item *item = index->items.count < ITEMS_MOST ? ptx_list_add(&index->items, sizeof(*item)) : NULL;
	bool good;

	if (!item) {
		index->full = index->items.count < ITEMS_MOST;
		return false;
	}
	item->at = token->text - 1;
	while (linkage(token))
		ptx_lex(l, token);
	if (word(token, "version") || word(token, "address_size")) {
		ptx_lex(l, token);
		good = token->kind == PTX_TOKEN_NUMBER;
	} else if (word(token, "target")) {
		words(l);
		good = true;
	} else if (word(token, "pragma")) {
		good = skip_statement(l, token);
	} else if (word(token, "alias")) {
		item->kind = ALIAS;
		good = alias(index, l);
	} else if (word(token, "entry") || word(token, "func")) {
		item->kind = FUNCTION;
		item->entry = word(token, "entry");
		good = function(index, item, l);
	} else if (token->kind == PTX_TOKEN_DOTTED) { /* the parser knows which spaces there are */
		item->kind = VARIABLE;
		good = variables(index, l);
	} else {
		good = false;
	}
	item->end = l->at;
	return good;
}

static bool enter_names(struct ptx_index *index)
{
	index->room = 1;
	while (index->room < index->names.count * 2)
		index->room *= 2;
	index->buckets = calloc(index->room, sizeof(*index->buckets));
	if (!index->buckets)
		return false;
	/* the last first, so that a bucket has them in the order of the text */
	for (uint32_t i = (uint32_t)index->names.count; i-- > 0;) {
		struct given *given = name_of(index, i);
		uint32_t *bucket = &index->buckets[given->hash & (index->room - 1)];

		given->next = *bucket;
		*bucket = i + 1;
	}
	return true;
}

static bool same(const struct given *given, const char *text, uint32_t length, uint32_t hash)
{
	return given->hash == hash && given->length == length && memcmp(given->text, text, length) == 0;
}

static bool list_kernels(struct ptx_index *index)
{
	for (uint32_t i = 0; i < index->names.count; i++) {
		const struct given *given = name_of(index, i);
		bool first = true;

		if (!item_of(index, given->item)->entry || !item_of(index, given->item)->body)
			continue;
		for (uint32_t j = index->buckets[given->hash & (index->room - 1)]; j && j - 1 != i && first;
		     j = name_of(index, j - 1)->next) {
			const struct given *other = name_of(index, j - 1);
			const struct item *item = item_of(index, other->item);

			first = !(same(other, given->text, given->length, given->hash) && item->entry && item->body);
		}
		uint32_t *kernel = first ? ptx_list_add(&index->kernels, sizeof(*kernel)) : &i;

		if (!kernel)
			return false;
		*kernel = i;
	}
	return true;
}

int ptx_index_make(const char *text, size_t size, struct ptx_index **out)
{
	struct ptx_index *index = calloc(1, sizeof(*index));
	struct ptx_lexer lexer = { .at = text, .end = text + size, .line = 1 };
	struct ptx_token token;
	bool good = index != NULL;

	if (!index)
		return -ENOMEM;
	index->text = text;
	index->size = size;
	for (ptx_lex(&lexer, &token); good && token.kind != PTX_TOKEN_END; ptx_lex(&lexer, &token))
		good = marked(&token, ';') || (token.kind == PTX_TOKEN_DOTTED && directive(index, &lexer, &token));
	if (good) {
		good = enter_names(index) && list_kernels(index);
		index->full = !good;
	}
	if (!good) {
		int result = index->full ? -ENOMEM : -ENOSYS;

		ptx_index_free(index);
		return result;
	}
	*out = index;
	return 0;
}

void ptx_index_free(struct ptx_index *index)
{
	if (!index)
		return;
	ptx_list_free(&index->items);
	ptx_list_free(&index->names);
	ptx_list_free(&index->kernels);
	ptx_list_free(&index->wanted);
	free(index->buckets);
	free(index);
}

uint32_t ptx_index_kernels(const struct ptx_index *index)
{
	return (uint32_t)index->kernels.count;
}

const char *ptx_index_kernel(const struct ptx_index *index, uint32_t kernel, uint32_t *length)
{
	const struct given *given = name_of(index, ((const uint32_t *)index->kernels.items)[kernel]);

	*length = given->length;
	return given->text;
}

static bool want(struct ptx_index *index, uint32_t number)
{
	struct item *item = item_of(index, number);

	if (item->mark == index->walk)
		return true;
	item->mark = index->walk;
	uint32_t *made = ptx_list_add(&index->wanted, sizeof(*made));

	if (made)
		*made = number;
	return made != NULL;
}

/* All that give a name, of every input: which of them is meant is the linker's to say. */
static bool want_name(struct ptx_index *index, const char *text, uint32_t length)
{
	uint32_t hash = hash_of(text, length);

	for (uint32_t i = index->buckets[hash & (index->room - 1)]; i; i = name_of(index, i - 1)->next) {
		if (same(name_of(index, i - 1), text, length, hash) && !want(index, name_of(index, i - 1)->item))
			return false;
	}
	return true;
}

/* A call through a prototype may go to any function. */
static bool want_functions(struct ptx_index *index)
{
	for (uint32_t i = 0; i < index->items.count; i++) {
		const struct item *item = item_of(index, i);

		if (item->kind == FUNCTION && !item->entry && item->body && !want(index, i))
			return false;
	}
	return true;
}

/* Everything that an item names. */
static bool look(struct ptx_index *index, const struct item *item)
{
	struct ptx_lexer lexer = { .at = item->at, .end = item->end, .line = 1 };
	struct ptx_token token;

	for (ptx_lex(&lexer, &token); token.kind != PTX_TOKEN_END; ptx_lex(&lexer, &token)) {
		if (token.kind == PTX_TOKEN_WORD && token.text[0] != '%' && !want_name(index, token.text, token.length))
			return false;
		if (word(&token, "callprototype") && !want_functions(index))
			return false;
	}
	return true;
}

/* Lines are for messages only, and are not counted while things are looked for. */
static void count_lines(struct ptx_index *index)
{
	const __m128i line = _mm_set1_epi8('\n');
	const char *at = index->text;
	uint32_t lines = 1;

	if (!index->items.count || item_of(index, 0)->line)
		return;
	for (uint32_t i = 0; i < index->items.count; i++) {
		struct item *item = item_of(index, i);

		for (; item->at - at >= STEP; at += STEP) {
			__m128i found = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(const void *)at), line);
			__m128i sums = _mm_sad_epu8(_mm_sub_epi8(_mm_setzero_si128(), found), _mm_setzero_si128());

			lines += (uint32_t)(_mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4));
		}
		for (; at < item->at; at++)
			lines += *at == '\n';
		item->line = lines;
	}
}

static int parts(struct ptx_index *index, uint32_t kernel, struct ptx_list *list)
{
	bool good = true;

	count_lines(index);
	index->walk++;
	if (kernel != PTX_NONE) {
		uint32_t length = 0;
		const char *name = ptx_index_kernel(index, kernel, &length);

		good = want_name(index, name, length);
	}
	for (uint32_t i = 0; good && kernel == PTX_NONE && i < index->items.count; i++)
		good = item_of(index, i)->kind != VARIABLE || want(index, i);
	while (good && index->wanted.count) {
		uint32_t number = ((uint32_t *)index->wanted.items)[--index->wanted.count];

		good = look(index, item_of(index, number));
	}
	index->wanted.count = 0;
	for (uint32_t i = 0; good && i < index->items.count; i++) {
		const struct item *item = item_of(index, i);

		if (item->kind != HEAD && item->mark != index->walk)
			continue;
		struct ptx_part *part = ptx_list_add(list, sizeof(*part));

		good = part != NULL;
		if (good)
			*part = (struct ptx_part){ item->at, item->end, item->line };
	}
	return good ? 0 : -ENOMEM;
}

int ptx_index_parse(struct ptx_index *index, struct ptx_module *module, uint32_t kernel, uint32_t maxversion,
		    struct ptx_log *log)
{
	struct ptx_list list = { 0 };
	int result = parts(index, kernel, &list);

	if (result == 0)
		result = ptx_parse_parts(module, index->text, list.items, list.count, maxversion, log);
	ptx_list_free(&list);
	return result;
}
