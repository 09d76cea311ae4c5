/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.h: what the files of the parser share. A name of the text is kept once
 * per module (names.c) and carries what the language means by it and, while a
 * text is read, the symbols that its scopes mean by it (scope.c).
 *
 * Functions return false after an error; the first one is in the log.
 */
#ifndef DIVVY_STANDIN_PTX_PARSE_H
#define DIVVY_STANDIN_PTX_PARSE_H

#include "ast.h"
#include "lex.h"

struct ptx_symbol;

/* 0 in the second half: the word means no such thing; flag is its bit plus 1. */
struct ptx_name {
	struct ptx_name *next;
	struct ptx_symbol *symbols; /* what the open scopes mean by it */
	struct ptx_symbol *labels;  /* of the function being read */
	struct ptx_function *function; /* that all inputs mean by it: link.c */
	struct ptx_variable *variable;
	uint32_t hash;
	uint32_t length;
	uint8_t opcode;
	uint8_t type;
	uint8_t space;
	uint8_t compare;
	uint8_t round;
	uint8_t scope;
	uint8_t semantics;
	uint8_t operation;
	uint8_t geometry;
	uint8_t shape;
	uint8_t layout;
	uint8_t special;
	uint8_t flag;
	char text[];
};

struct ptx_names {
	struct ptx_name **buckets;
	uint32_t room; /* a power of two */
	uint32_t count;
};

struct ptx_chunk;

struct ptx_arena {
	struct ptx_chunk *block;
	uint64_t total;
	struct ptx_names names;
};

enum ptx_symbol_kind {
	PTX_SYMBOL_REGISTER,
	PTX_SYMBOL_RANGE, /* %r<8>: count registers */
	PTX_SYMBOL_VARIABLE,
	PTX_SYMBOL_FUNCTION,
	PTX_SYMBOL_LABEL,
	PTX_SYMBOL_TARGETS,   /* .branchtargets */
	PTX_SYMBOL_FUNCTIONS, /* .calltargets */
	PTX_SYMBOL_PROTOTYPE,
};

struct ptx_region;

struct ptx_symbol {
	struct ptx_name *name;
	struct ptx_symbol *older;   /* of the same name */
	struct ptx_symbol *sibling; /* of the same scope */
	struct ptx_region *scope;
	uint8_t kind; /* enum ptx_symbol_kind */
	uint8_t type; /* registers */
	uint8_t vector;
	uint32_t reg;   /* PTX_NONE until it is used */
	uint32_t count; /* of a range, of targets */
	union {
		struct ptx_variable *variable;
		struct ptx_function *function;
		struct ptx_prototype *prototype;
		uint32_t target;
		struct ptx_name **labels; /* TARGETS, until the function ends */
		const struct ptx_function **functions;
	};
};

struct ptx_region {
	struct ptx_region *parent;
	struct ptx_symbol *symbols;
	uint32_t depth;
	uint64_t local; /* sizes when it began */
	uint64_t param;
};

/* A label that is used. */
struct ptx_use {
	struct ptx_name *name;
	struct ptx_region *scope;
	struct ptx_operand *operand;
	uint32_t line;
};

/* Grows by doubling; freed by ptx_list_free. Items of one size only. */
struct ptx_list {
	void *items;
	size_t count;
	size_t room;
};

struct ptx_parser {
	struct ptx_module *module;
	struct ptx_log *log;
	struct ptx_lexer lexer;
	struct ptx_token token; /* the next one */
	const char *text;             /* where all of it begins */
	const struct ptx_part *parts; /* that come after this one */
	const struct ptx_part *last;
	uint32_t maxversion;
	uint32_t version;       /* of this input; 0 before .version */
	uint32_t depth;         /* of nested expressions and the like */
	bool targeted;          /* .target was there */
	struct ptx_region *scope;
	/* of the function being read */
	struct ptx_function *function;
	struct ptx_list instructions; /* struct ptx_instruction */
	struct ptx_list registers;    /* struct ptx_register */
	struct ptx_list uses;         /* struct ptx_use */
	struct ptx_symbol *labels;
	struct ptx_variable **variabletail;
	uint64_t local; /* bytes so far, of the open scopes */
	uint64_t param;
};

/* names.c */
struct ptx_name *ptx_intern(struct ptx_parser *p, const char *text, size_t length);

/* parse.c: the stream of tokens */
uint64_t ptx_place(const struct ptx_parser *p); /* of the token in all inputs */
bool ptx_error(struct ptx_parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool ptx_memory(struct ptx_parser *p);
bool ptx_next(struct ptx_parser *p);
bool ptx_is(const struct ptx_parser *p, char mark);
bool ptx_is_dotted(const struct ptx_parser *p, const char *text);
/* if it is this one, goes to the next */
bool ptx_take(struct ptx_parser *p, char mark);
/* it must be this one */
bool ptx_expect(struct ptx_parser *p, char mark);
bool ptx_expect_name(struct ptx_parser *p, struct ptx_name **name);
/* a number that is known now, up to most */
bool ptx_count(struct ptx_parser *p, uint64_t most, uint64_t *value);
/* .loc .file .pragma .section: read and forgotten */
bool ptx_skipped(struct ptx_parser *p, bool *skipped);
void *ptx_list_add(struct ptx_list *list, size_t bytes);
void ptx_list_free(struct ptx_list *list);
void *ptx_list_keep(struct ptx_parser *p, const struct ptx_list *list, size_t bytes);

/* scope.c */
bool ptx_scope_open(struct ptx_parser *p);
void ptx_scope_close(struct ptx_parser *p);
struct ptx_symbol *ptx_declare(struct ptx_parser *p, struct ptx_name *name, enum ptx_symbol_kind kind);
struct ptx_symbol *ptx_find(const struct ptx_name *name);
/* in the innermost scope only */
struct ptx_symbol *ptx_find_here(const struct ptx_parser *p, const struct ptx_name *name);
/* a register of that name, given its index; NULL with no error if there is none */
struct ptx_symbol *ptx_find_register(struct ptx_parser *p, struct ptx_name *name);
struct ptx_symbol *ptx_declare_label(struct ptx_parser *p, struct ptx_name *name, enum ptx_symbol_kind kind);
bool ptx_resolve_labels(struct ptx_parser *p);
void ptx_forget_labels(struct ptx_parser *p);

/* expression.c */
struct ptx_constant {
	uint64_t bits;
	uint8_t form;
};
bool ptx_expression(struct ptx_parser *p, struct ptx_constant *value);
double ptx_constant_double(const struct ptx_constant *value);
uint64_t ptx_constant_integer(const struct ptx_constant *value);

/* variable.c: after the space was read */
bool ptx_variables(struct ptx_parser *p, enum ptx_space space, enum ptx_linkage linkage);
bool ptx_parameters(struct ptx_parser *p, bool entry, struct ptx_variable **first, uint64_t *frame);
bool ptx_registers(struct ptx_parser *p);
/* initial.c */
bool ptx_initial(struct ptx_parser *p, struct ptx_variable *variable, const uint64_t *dims, uint32_t dimensions);

/* function.c */
bool ptx_function_parse(struct ptx_parser *p, bool entry, enum ptx_linkage linkage);
bool ptx_prototype_parse(struct ptx_parser *p, struct ptx_name *label);
/* body.c */
bool ptx_body(struct ptx_parser *p);
/* instruction.c: the opcode's word was read */
bool ptx_instruction_parse(struct ptx_parser *p, const struct ptx_token *word, uint32_t guard, bool guardnot);
/* operand.c */
bool ptx_operand_parse(struct ptx_parser *p, struct ptx_operand *operand);
bool ptx_call_operands(struct ptx_parser *p, struct ptx_operand operands[4]);
bool ptx_label_use(struct ptx_parser *p, struct ptx_name *name, struct ptx_operand *operand, uint32_t line);

#endif
