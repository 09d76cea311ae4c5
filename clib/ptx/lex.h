/* SPDX-License-Identifier: Apache-2.0 */
/* lex.h: PTX text as tokens. Comments, white space and line markers are gone. */
#ifndef DIVVY_STANDIN_PTX_LEX_H
#define DIVVY_STANDIN_PTX_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ptx_token_kind {
	PTX_TOKEN_END,
	PTX_TOKEN_WORD,   /* a name */
	PTX_TOKEN_DOTTED, /* .word: text starts after the dot */
	PTX_TOKEN_NUMBER, /* bits and form */
	PTX_TOKEN_STRING, /* text is what the quotes hold */
	PTX_TOKEN_MARK,   /* one character, in bits; shifts and comparisons of two: see PTX_MARK */
	PTX_TOKEN_BAD,    /* text is the reason */
};

/* a mark of two characters */
#define PTX_MARK(a, b) ((uint64_t)(a) << 8 | (uint64_t)(b))

struct ptx_token {
	uint8_t kind; /* enum ptx_token_kind */
	uint8_t form; /* enum ptx_form, of numbers */
	uint32_t line;
	uint32_t length;
	const char *text;
	uint64_t bits;
};

struct ptx_lexer {
	const char *at;
	const char *end;
	uint32_t line;
};

void ptx_lex(struct ptx_lexer *lexer, struct ptx_token *token);
/* .file and .loc end with their line */
void ptx_lex_skip_line(struct ptx_lexer *lexer);

#endif
