/* SPDX-License-Identifier: Apache-2.0 */
#include "lex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ast.h"

#define NUMBER_MOST 63u /* characters of a decimal float */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* starts a name; characters above ASCII are let into names, as compilers mangle them so */
static bool is_first(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%' || (c & 0x80);
}

static bool is_name(char c)
{
	return is_first(c) || is_digit(c);
}

static int hex_of(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static void bad(struct ptx_token *token, const char *reason)
{
	token->kind = PTX_TOKEN_BAD;
	token->text = reason;
	token->length = (uint32_t)strlen(reason);
}

void ptx_lex_skip_line(struct ptx_lexer *lexer)
{
	const char *end = memchr(lexer->at, '\n', (size_t)(lexer->end - lexer->at));

	lexer->at = end ? end : lexer->end;
}

/* White space, comments, and lines of a preprocessor or of old debuggers (@@DWARF).
 * False for a comment without an end. */
static bool skip_blank(struct ptx_lexer *l)
{
	while (l->at < l->end) {
		char c = *l->at;

		if (c == '\n') {
			l->line++;
			l->at++;
		} else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
			l->at++;
		} else if (c == '#' || (c == '@' && l->end - l->at > 1 && l->at[1] == '@')) {
			ptx_lex_skip_line(l);
		} else if (c == '/' && l->end - l->at > 1 && l->at[1] == '/') {
			ptx_lex_skip_line(l);
		} else if (c == '/' && l->end - l->at > 1 && l->at[1] == '*') {
			l->at += 2;
			while (l->end - l->at > 1 && !(l->at[0] == '*' && l->at[1] == '/')) {
				l->line += *l->at == '\n';
				l->at++;
			}
			if (l->end - l->at < 2)
				return false;
			l->at += 2;
		} else {
			return true;
		}
	}
	return true;
}

/* 0f and 0d: exactly so many digits */
static void float_bits(struct ptx_lexer *l, struct ptx_token *token)
{
	bool wide = l->at[1] == 'd' || l->at[1] == 'D';
	unsigned int digits = 0;

	l->at += 2;
	token->bits = 0;
	while (l->at < l->end && hex_of(*l->at) >= 0) {
		token->bits = token->bits << 4 | (uint64_t)hex_of(*l->at++);
		digits++;
	}
	token->form = wide ? PTX_FORM_F64 : PTX_FORM_F32;
	if (digits != (wide ? 16u : 8u))
		bad(token, wide ? "a 0d number has 16 digits" : "a 0f number has 8 digits");
}

static void decimal_float(struct ptx_lexer *l, struct ptx_token *token)
{
	char text[NUMBER_MOST + 1];
	char *end = NULL;
	size_t length = 0;

	while (l->at < l->end && length < NUMBER_MOST &&
	       (is_digit(*l->at) || *l->at == '.' || *l->at == 'e' || *l->at == 'E' ||
		((*l->at == '-' || *l->at == '+') && length && (text[length - 1] == 'e' || text[length - 1] == 'E'))))
		text[length++] = *l->at++;
	text[length] = '\0';
	double value = strtod(text, &end);

	memcpy(&token->bits, &value, sizeof(value));
	token->form = PTX_FORM_F64;
	if (*end)
		bad(token, "this is no number");
}

static void integer(struct ptx_lexer *l, struct ptx_token *token)
{
	unsigned int base = 10;
	uint64_t value = 0;
	bool any = false;

	if (l->at[0] == '0' && l->end - l->at > 1) {
		char c = l->at[1];

		base = c == 'x' || c == 'X' ? 16 : c == 'b' || c == 'B' ? 2 : is_digit(c) ? 8 : 10;
		if (base == 16 || base == 2)
			l->at += 2;
	}
	while (l->at < l->end && hex_of(*l->at) >= 0 && (unsigned int)hex_of(*l->at) < base) {
		if (__builtin_mul_overflow(value, (uint64_t)base, &value) ||
		    __builtin_add_overflow(value, (uint64_t)hex_of(*l->at), &value)) {
			bad(token, "this number needs more than 64 bits");
			return;
		}
		l->at++;
		any = true;
	}
	token->bits = value;
	token->form = value >> 63 ? PTX_FORM_UNSIGNED : PTX_FORM_INT;
	if (l->at < l->end && (*l->at == 'U' || *l->at == 'u')) {
		l->at++;
		token->form = PTX_FORM_UNSIGNED;
	}
	if (!any || (l->at < l->end && is_name(*l->at)))
		bad(token, "this is no number");
}

static void number(struct ptx_lexer *l, struct ptx_token *token)
{
	token->kind = PTX_TOKEN_NUMBER;
	if (l->at[0] == '0' && l->end - l->at > 1 && strchr("fFdD", l->at[1])) {
		float_bits(l, token);
		return;
	}
	const char *at = l->at;

	while (at < l->end && is_digit(*at))
		at++;
	bool exponent = l->end - at > 1 && (*at == 'e' || *at == 'E') &&
			(is_digit(at[1]) || at[1] == '-' || at[1] == '+');

	if ((at < l->end && *at == '.' && !(l->end - at > 1 && is_first(at[1]))) || exponent)
		decimal_float(l, token);
	else
		integer(l, token);
}

static void string(struct ptx_lexer *l, struct ptx_token *token)
{
	token->kind = PTX_TOKEN_STRING;
	token->text = ++l->at;
	while (l->at < l->end && *l->at != '"' && *l->at != '\n') {
		if (*l->at == '\\' && l->end - l->at > 1 && l->at[1] != '\n')
			l->at++;
		l->at++;
	}
	token->length = (uint32_t)(l->at - token->text);
	if (l->at >= l->end || *l->at != '"')
		bad(token, "this string has no end");
	else
		l->at++;
}

/* .name, .1d, .L1::evict_last */
static void dotted(struct ptx_lexer *l, struct ptx_token *token)
{
	token->kind = PTX_TOKEN_DOTTED;
	token->text = ++l->at;
	while (l->at < l->end) {
		if (is_name(*l->at))
			l->at++;
		else if (l->end - l->at > 2 && l->at[0] == ':' && l->at[1] == ':' && is_name(l->at[2]))
			l->at += 2;
		else
			break;
	}
	token->length = (uint32_t)(l->at - token->text);
}

static void mark(struct ptx_lexer *l, struct ptx_token *token)
{
	static const char pairs[][3] = { "<<", ">>", "<=", ">=", "==", "!=", "&&", "||" };

	token->kind = PTX_TOKEN_MARK;
	token->bits = (unsigned char)*l->at;
	token->length = 1;
	for (size_t i = 0; l->end - l->at > 1 && i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		if (l->at[0] == pairs[i][0] && l->at[1] == pairs[i][1]) {
			token->bits = PTX_MARK(pairs[i][0], pairs[i][1]);
			token->length = 2;
			break;
		}
	}
	l->at += token->length;
}

void ptx_lex(struct ptx_lexer *l, struct ptx_token *token)
{
	bool good = skip_blank(l);

	*token = (struct ptx_token){ .kind = PTX_TOKEN_END, .line = l->line, .text = l->at };
	if (!good) {
		l->at = l->end;
		bad(token, "this comment has no end");
		return;
	}
	if (l->at >= l->end || !*l->at)
		return;
	if (is_first(*l->at)) {
		token->kind = PTX_TOKEN_WORD;
		while (l->at < l->end && is_name(*l->at))
			l->at++;
		token->length = (uint32_t)(l->at - token->text);
	} else if (is_digit(*l->at)) {
		number(l, token);
		if (token->kind == PTX_TOKEN_NUMBER)
			token->length = (uint32_t)(l->at - token->text);
	} else if (*l->at == '.' && l->end - l->at > 1 && is_name(l->at[1])) {
		dotted(l, token);
	} else if (*l->at == '"') {
		string(l, token);
	} else if (*l->at > ' ' && *l->at < 127) {
		mark(l, token);
	} else {
		l->at++;
		bad(token, "this character has no place in PTX");
	}
}
