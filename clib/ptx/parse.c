/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c: the stream of tokens, and the directives of a module. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

#define NAME_MOST 65536u

bool ptx_error(struct ptx_parser *p, const char *format, ...)
{
	char text[sizeof(p->log->text)];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	ptx_fail(p->log, p->token.line, "%s", text);
	return false;
}

bool ptx_memory(struct ptx_parser *p)
{
	return ptx_error(p, "there is no memory for a text of this size");
}

bool ptx_next(struct ptx_parser *p)
{
	ptx_lex(&p->lexer, &p->token);
	while (p->token.kind == PTX_TOKEN_END && p->parts < p->last) {
		p->lexer = (struct ptx_lexer){ .at = p->parts->at, .end = p->parts->end, .line = p->parts->line };
		p->parts++;
		ptx_lex(&p->lexer, &p->token);
	}
	if (p->token.kind == PTX_TOKEN_BAD)
		return ptx_error(p, "%.*s", (int)p->token.length, p->token.text);
	if (p->token.length > NAME_MOST)
		return ptx_error(p, "a word of %u characters is too long", p->token.length);
	return true;
}

uint64_t ptx_place(const struct ptx_parser *p)
{
	return p->module->textbytes + (uint64_t)(p->token.text - p->text);
}

bool ptx_is(const struct ptx_parser *p, char mark)
{
	return p->token.kind == PTX_TOKEN_MARK && p->token.bits == (unsigned char)mark;
}

bool ptx_is_dotted(const struct ptx_parser *p, const char *text)
{
	return p->token.kind == PTX_TOKEN_DOTTED && strlen(text) == p->token.length &&
	       memcmp(text, p->token.text, p->token.length) == 0;
}

bool ptx_take(struct ptx_parser *p, char mark)
{
	return ptx_is(p, mark) && ptx_next(p);
}

bool ptx_expect(struct ptx_parser *p, char mark)
{
	if (!ptx_is(p, mark)) {
		if (p->token.kind == PTX_TOKEN_END)
			return ptx_error(p, "expected '%c' before the end of the text", mark);
		return ptx_error(p, "expected '%c' before '%s%.*s'", mark,
				 p->token.kind == PTX_TOKEN_DOTTED ? "." : "", (int)p->token.length, p->token.text);
	}
	return ptx_next(p);
}

bool ptx_expect_name(struct ptx_parser *p, struct ptx_name **name)
{
	if (p->token.kind != PTX_TOKEN_WORD)
		return ptx_error(p, "expected a name before '%s%.*s'", p->token.kind == PTX_TOKEN_DOTTED ? "." : "",
				 (int)p->token.length, p->token.text);
	*name = ptx_intern(p, p->token.text, p->token.length);
	return *name && ptx_next(p);
}

bool ptx_count(struct ptx_parser *p, uint64_t most, uint64_t *value)
{
	struct ptx_constant constant = { 0 };

	if (!ptx_expression(p, &constant))
		return false;
	*value = constant.bits;
	if (constant.form > PTX_FORM_UNSIGNED || constant.bits > most)
		return ptx_error(p, "expected a number up to %llu", (unsigned long long)most);
	return true;
}

void *ptx_list_add(struct ptx_list *list, size_t bytes)
{
	if (list->count == list->room) {
		size_t room = list->room ? list->room * 2 : 64;
		void *items = realloc(list->items, room * bytes);

		if (!items)
			return NULL;
		list->items = items;
		list->room = room;
	}
	return memset((char *)list->items + bytes * list->count++, 0, bytes);
}

void ptx_list_free(struct ptx_list *list)
{
	free(list->items);
	*list = (struct ptx_list){ 0 };
}

void *ptx_list_keep(struct ptx_parser *p, const struct ptx_list *list, size_t bytes)
{
	void *kept = ptx_allocate(p->module, list->count * bytes);

	if (kept && list->count)
		memcpy(kept, list->items, list->count * bytes);
	if (!kept)
		ptx_memory(p);
	return kept;
}

/* 7.8: the token is a decimal float; its text is read instead */
static bool version(struct ptx_parser *p)
{
	unsigned int major = 0;
	unsigned int minor = 0;
	char text[8] = { 0 };

	if (p->token.kind != PTX_TOKEN_NUMBER || p->token.length >= sizeof(text))
		return ptx_error(p, "expected a version like 7.8 after .version");
	memcpy(text, p->token.text, p->token.length);
	if (sscanf(text, "%2u.%1u", &major, &minor) != 2 || !major)
		return ptx_error(p, "expected a version like 7.8 after .version");
	p->version = major * 10 + minor;
	if (p->version > p->maxversion) {
		p->log->version = true;
		return ptx_error(p, "PTX version %u.%u is newer than %u.%u, the newest that this driver reads", major, minor,
				 p->maxversion / 10, p->maxversion % 10);
	}
	if (p->module->version < p->version)
		p->module->version = p->version;
	return ptx_next(p);
}

/* Another input begins: names of the one before are gone. */
static bool open_unit(struct ptx_parser *p)
{
	while (p->scope)
		ptx_scope_close(p);
	p->module->units++;
	p->targeted = false;
	return ptx_next(p) && version(p) && ptx_scope_open(p);
}

/* sm_80, sm_90a, sm_120f */
static bool card(const struct ptx_token *token, uint32_t *number, char *only)
{
	uint32_t i = 3;

	*number = 0;
	for (; i < token->length && i < 7 && token->text[i] >= '0' && token->text[i] <= '9'; i++)
		*number = *number * 10 + (uint32_t)(token->text[i] - '0');
	*only = i + 1 == token->length && (token->text[i] == 'a' || token->text[i] == 'f') ? token->text[i] : 0;
	return i + (*only != 0) == token->length && *number >= 10;
}

static bool target(struct ptx_parser *p)
{
	do {
		if (!ptx_next(p))
			return false;
		if (p->token.kind != PTX_TOKEN_WORD)
			return ptx_error(p, "expected a target like sm_80 after .target");
		if (p->token.length > 3 && memcmp(p->token.text, "sm_", 3) == 0) {
			uint32_t number = 0;
			char only = 0;

			if (!card(&p->token, &number, &only))
				return ptx_error(p, "unknown target '%.*s'", (int)p->token.length, p->token.text);
			if (p->module->target <= number) {
				p->module->target = number;
				p->module->only = only ? only : p->module->only;
			}
			p->targeted = true;
		} else if (p->token.length == 19 && memcmp(p->token.text, "texmode_independent", 19) == 0) {
			p->module->unifiedtextures = false;
		} /* debug, texmode_unified, map_f64_to_f32, compute_NN of old compilers */
		if (!ptx_next(p))
			return false;
	} while (ptx_is(p, ','));
	return p->targeted || ptx_error(p, "expected a target like sm_80 after .target");
}

static bool address_size(struct ptx_parser *p)
{
	uint64_t bits = 0;

	if (!ptx_next(p) || !ptx_count(p, 64, &bits))
		return false;
	if (bits != 32 && bits != 64)
		return ptx_error(p, "addresses have 32 or 64 bits");
	if (bits == 32) {
		p->log->unsupported = true;
		return ptx_error(p, "addresses of 32 bits are not supported by this driver");
	}
	p->module->addressbytes = 8;
	return true;
}

/* What stands in braces, unread. */
static bool skip_braces(struct ptx_parser *p)
{
	unsigned int depth = 0;

	do {
		if (p->token.kind == PTX_TOKEN_END)
			return ptx_error(p, "expected '}' before the end of the text");
		depth += ptx_is(p, '{');
		depth -= ptx_is(p, '}');
		if (!ptx_next(p))
			return false;
	} while (depth);
	return true;
}

static bool section(struct ptx_parser *p)
{
	while (!ptx_is(p, '{')) {
		if (p->token.kind == PTX_TOKEN_END)
			return ptx_error(p, "expected '{' after .section");
		if (!ptx_next(p))
			return false;
	}
	return skip_braces(p);
}

static void hint(struct ptx_parser *p)
{
	char text[48];
	unsigned int value = 0;

	snprintf(text, sizeof(text), "%.*s", (int)p->token.length, p->token.text);
	if (sscanf(text, "divvy_max_registers %u", &value) == 1)
		p->module->wishedregisters = value;
	else if (sscanf(text, "divvy_threads_per_block %u", &value) == 1)
		p->module->wishedthreads = value;
}

static bool pragma(struct ptx_parser *p)
{
	do {
		if (!ptx_next(p))
			return false;
		if (p->token.kind != PTX_TOKEN_STRING)
			return ptx_error(p, "expected a string after .pragma");
		hint(p);
		if (!ptx_next(p))
			return false;
	} while (ptx_is(p, ','));
	return ptx_expect(p, ';');
}

bool ptx_skipped(struct ptx_parser *p, bool *skipped)
{
	*skipped = true;
	if (ptx_is_dotted(p, "loc") || ptx_is_dotted(p, "file")) {
		ptx_lex_skip_line(&p->lexer);
		return ptx_next(p);
	}
	if (ptx_is_dotted(p, "pragma"))
		return pragma(p);
	if (ptx_is_dotted(p, "section"))
		return section(p);
	*skipped = false;
	return true;
}

/* .alias name, aliasee; */
static bool alias(struct ptx_parser *p)
{
	struct ptx_name *name = NULL;
	struct ptx_name *aliasee = NULL;

	if (!ptx_next(p) || !ptx_expect_name(p, &name) || !ptx_expect(p, ',') || !ptx_expect_name(p, &aliasee) ||
	    !ptx_expect(p, ';'))
		return false;
	const struct ptx_symbol *from = ptx_find(name);
	const struct ptx_symbol *to = ptx_find(aliasee);

	if (!from || from->kind != PTX_SYMBOL_FUNCTION || !to || to->kind != PTX_SYMBOL_FUNCTION)
		return ptx_error(p, ".alias needs two functions that are declared");
	from->function->alias = to->function;
	return true;
}

static bool space_of(const struct ptx_parser *p, enum ptx_space *space)
{
	*space = ptx_is_dotted(p, "global")   ? PTX_SPACE_GLOBAL
		 : ptx_is_dotted(p, "const")  ? PTX_SPACE_CONST
		 : ptx_is_dotted(p, "shared") ? PTX_SPACE_SHARED
		 : ptx_is_dotted(p, "tex")    ? PTX_SPACE_TEX
					      : PTX_SPACE_GENERIC;
	return *space != PTX_SPACE_GENERIC;
}

static bool linkage_of(const struct ptx_parser *p, enum ptx_linkage *linkage)
{
	*linkage = ptx_is_dotted(p, "visible")	? PTX_VISIBLE
		   : ptx_is_dotted(p, "extern") ? PTX_EXTERN
		   : ptx_is_dotted(p, "weak")	? PTX_WEAK
		   : ptx_is_dotted(p, "common") ? PTX_COMMON
						: PTX_PRIVATE;
	return *linkage != PTX_PRIVATE;
}

static bool directive(struct ptx_parser *p)
{
	enum ptx_linkage linkage = PTX_PRIVATE;
	enum ptx_space space = PTX_SPACE_GENERIC;
	bool skipped = false;

	if (ptx_take(p, ';'))
		return true;
	if (p->token.kind != PTX_TOKEN_DOTTED)
		return ptx_error(p, "expected a directive before '%.*s'", (int)p->token.length, p->token.text);
	if (!ptx_skipped(p, &skipped))
		return false;
	if (skipped)
		return true;
	if (ptx_is_dotted(p, "version"))
		return open_unit(p);
	if (!p->version)
		return ptx_error(p, "expected .version first");
	if (ptx_is_dotted(p, "target"))
		return target(p);
	if (ptx_is_dotted(p, "address_size"))
		return address_size(p);
	if (ptx_is_dotted(p, "alias"))
		return alias(p);
	if (linkage_of(p, &linkage) && !ptx_next(p))
		return false;
	if (!p->targeted)
		return ptx_error(p, "expected .target after .version");
	if (ptx_is_dotted(p, "entry") || ptx_is_dotted(p, "func")) {
		bool entry = ptx_is_dotted(p, "entry");

		return ptx_next(p) && ptx_function_parse(p, entry, linkage);
	}
	if (space_of(p, &space))
		return ptx_next(p) && ptx_variables(p, space, linkage);
	return ptx_error(p, "unknown directive '.%.*s'", (int)p->token.length, p->token.text);
}

bool ptx_head_read(const char *text, size_t size, struct ptx_head *head)
{
	struct ptx_log log = { 0 };
	struct ptx_parser parser = {
		.log = &log,
		.lexer = { .at = text, .end = text + size, .line = 1 },
	};
	unsigned int major = 0;
	unsigned int minor = 0;

	*head = (struct ptx_head){ 0 };
	while (ptx_next(&parser) && parser.token.kind == PTX_TOKEN_DOTTED) {
		bool target = ptx_is_dotted(&parser, "target");
		bool known = target || ptx_is_dotted(&parser, "version");
		char word[8] = { 0 };

		if (!known || !ptx_next(&parser) || parser.token.length >= sizeof(word))
			return false;
		memcpy(word, parser.token.text, parser.token.length);
		if (target)
			return parser.token.length > 3 && memcmp(word, "sm_", 3) == 0 &&
			       card(&parser.token, &head->target, &head->only);
		if (sscanf(word, "%2u.%1u", &major, &minor) != 2)
			return false;
		head->version = major * 10 + minor;
	}
	return false;
}

int ptx_parse_parts(struct ptx_module *module, const char *text, const struct ptx_part *parts, size_t count,
		    uint32_t maxversion, struct ptx_log *log)
{
	struct ptx_parser parser = {
		.module = module,
		.log = log,
		.lexer = { .at = text, .end = text, .line = 1 },
		.text = text,
		.parts = parts,
		.last = parts + count,
		.maxversion = maxversion,
	};

	bool good = ptx_next(&parser);

	while (good && parser.token.kind != PTX_TOKEN_END)
		good = directive(&parser);
	if (good && (!parser.version || !parser.targeted))
		good = ptx_error(&parser, "expected %s before the end of the text", parser.version ? ".target" : ".version");
	while (good && parser.scope)
		ptx_scope_close(&parser);
	ptx_list_free(&parser.instructions);
	ptx_list_free(&parser.registers);
	ptx_list_free(&parser.uses);
	if (count)
		module->textbytes += (uint64_t)(parts[count - 1].end - text) + 1;
	return good ? 0 : -EBADMSG;
}

int ptx_parse(struct ptx_module *module, const char *text, size_t size, uint32_t maxversion, struct ptx_log *log)
{
	struct ptx_part all = { text, text + size, 1 };

	if (size > PTX_TEXT_MOST)
		return ptx_fail(log, 0, "a text of %zu bytes is too long", size);
	return ptx_parse_parts(module, text, &all, 1, maxversion, log);
}
