/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ast.h: what the parser makes of PTX text and the compiler reads. One arena
 * holds all of a module; pointers stay valid until ptx_module_free. Nothing here
 * knows the rest of the stand-in.
 *
 *	struct ptx_module *module = ptx_module_new();
 *	ptx_parse(module, text, size, &log)      once per input to link
 *	ptx_link(module, &log)                   names across inputs, layout of memory
 *	... the loader gives every variable of .global and .const its address ...
 *	ptx_compile(...)
 *
 * After ptx_link every name is a pointer to what defines it, every label the
 * index of an instruction, every register an index into function->registers.
 */
#ifndef DIVVY_STANDIN_PTX_AST_H
#define DIVVY_STANDIN_PTX_AST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "words.h"

/* Bounds on what a text may ask for; beyond them it is refused. */
#define PTX_TEXT_MOST (512u << 20)
#define PTX_ARENA_MOST (2ull << 30)
#define PTX_REGISTERS_MOST (1u << 20) /* used by one function */
#define PTX_NESTING_MOST 64u          /* scopes, expressions, vectors */
#define PTX_PARAMETER_BYTES (32u << 10)
#define PTX_CONSTANT_BYTES 65536u
#define PTX_SHARED_BYTES (64u << 20)
#define PTX_LOCAL_BYTES (64u << 20)
#define PTX_VARIABLE_BYTES (1ull << 40)
#define PTX_NONE UINT32_MAX

#define PTX_ENUM_TYPE(name, text, bytes) PTX_##name,
#define PTX_ENUM_OPCODE(name, text) PTX_OP_##name,
#define PTX_ENUM_SPACE(name, text) PTX_SPACE_##name,
#define PTX_ENUM_COMPARE(name, text) PTX_CMP_##name,
#define PTX_ENUM_ROUND(name, text) PTX_ROUND_##name,
#define PTX_ENUM_SCOPE(name, text) PTX_SCOPE_##name,
#define PTX_ENUM_SEMANTICS(name, text) PTX_SEM_##name,
#define PTX_ENUM_OPERATION(name, text) PTX_DO_##name,
#define PTX_ENUM_GEOMETRY(name, text) PTX_GEOM_##name,
#define PTX_ENUM_SHAPE(name, text) PTX_SHAPE_##name,
#define PTX_ENUM_LAYOUT(name, text) PTX_LAYOUT_##name,
#define PTX_ENUM_SPECIAL(name, text) PTX_SR_##name,
#define PTX_ENUM_FLAG(name, text) PTX_BIT_##name,

enum ptx_type { PTX_TYPE_NONE, PTX_TYPES(PTX_ENUM_TYPE) PTX_TYPE_COUNT };
enum ptx_opcode { PTX_OP_NONE, PTX_OPCODES(PTX_ENUM_OPCODE) PTX_OP_COUNT };
enum ptx_space { PTX_SPACE_GENERIC, PTX_SPACES(PTX_ENUM_SPACE) PTX_SPACE_COUNT };
enum ptx_compare { PTX_CMP_NONE, PTX_COMPARISONS(PTX_ENUM_COMPARE) PTX_CMP_COUNT };
enum ptx_round { PTX_ROUND_NONE, PTX_ROUNDINGS(PTX_ENUM_ROUND) PTX_ROUND_COUNT };
enum ptx_scope { PTX_SCOPE_NONE, PTX_SCOPES(PTX_ENUM_SCOPE) PTX_SCOPE_COUNT };
enum ptx_semantics { PTX_SEM_NONE, PTX_SEMANTICS(PTX_ENUM_SEMANTICS) PTX_SEM_COUNT };
enum ptx_operation { PTX_DO_NONE, PTX_OPERATIONS(PTX_ENUM_OPERATION) PTX_DO_COUNT };
enum ptx_geometry { PTX_GEOM_NONE, PTX_GEOMETRIES(PTX_ENUM_GEOMETRY) PTX_GEOM_COUNT };
enum ptx_shape { PTX_SHAPE_NONE, PTX_SHAPES(PTX_ENUM_SHAPE) PTX_SHAPE_COUNT };
enum ptx_layout { PTX_LAYOUT_NONE, PTX_LAYOUTS(PTX_ENUM_LAYOUT) PTX_LAYOUT_COUNT };
enum ptx_special { PTX_SR_NONE, PTX_SPECIALS(PTX_ENUM_SPECIAL) PTX_SR_COUNT };
enum ptx_flag_bit { PTX_FLAGS(PTX_ENUM_FLAG) PTX_FLAG_COUNT };

/* instruction->flags & PTX_F(FTZ) */
#define PTX_F(name) (1ull << PTX_BIT_##name)
_Static_assert(PTX_FLAG_COUNT <= 64, "flags have no more bits");

struct ptx_function;
struct ptx_prototype;

enum ptx_linkage { PTX_PRIVATE, PTX_VISIBLE, PTX_EXTERN, PTX_WEAK, PTX_COMMON };

/* The place in a variable's first contents where an address is to be written. */
struct ptx_relocation {
	const struct ptx_variable *variable; /* one of the two */
	const struct ptx_function *function;
	int64_t addend;
	uint64_t offset;    /* in the contents */
	uint8_t bytes;      /* 1, 2, 4 or 8 */
	uint8_t shift;      /* mask(): which byte of the address, times 8 */
	bool generic;       /* generic(name): its generic address */
};

struct ptx_variable {
	const char *name;
	uint32_t unit; /* which input it came from */
	uint32_t line;
	uint8_t space;   /* enum ptx_space: CONST GLOBAL LOCAL PARAM SHARED; REG for a parameter in a register */
	uint8_t type;    /* enum ptx_type of an element */
	uint8_t vector;  /* 1, 2 or 4 */
	uint8_t linkage; /* enum ptx_linkage */
	bool managed;
	bool dynamic;     /* extern .shared x[]: what the launch adds; after all static shared memory */
	bool entry;       /* a parameter of a kernel */
	bool inbody;      /* declared in a function */
	uint64_t align;
	uint64_t bytes;   /* 0 for x[] */
	uint32_t stride;   /* bytes from x[0] to x[1] */
	const unsigned char *initial; /* the first contents; what is left of bytes is zeros */
	uint64_t initialbytes;
	const struct ptx_relocation *relocations;
	uint32_t relocationcount;
	/* LOCAL: in the function's local memory; SHARED: in the block's; PARAM: in
	 * the kernel's parameter block (entry), or in the function's own frame of
	 * parameters: incoming, outgoing and returned ones all have a place of
	 * their own there (function->parambytes). */
	uint64_t offset;
	uint64_t address; /* GLOBAL and CONST: written by the loader */
	uint32_t reg;     /* REG: the register that a .reg parameter is, else PTX_NONE */
	uint64_t place;   /* of the declaration in all the text: the same for whoever reads it */
	void *user;       /* of the loader */
	struct ptx_variable *definition; /* self, or what an extern one stands for */
	struct ptx_variable *next;       /* of the module or the function */
};

struct ptx_register {
	const char *name;
	uint8_t type;   /* enum ptx_type */
	uint8_t vector; /* 1, 2 or 4: its lanes are taken with operand->lane */
};

enum ptx_operand_kind {
	PTX_OPERAND_NONE,
	PTX_OPERAND_REGISTER,  /* reg, lane, negated (!p), second (d|p) */
	PTX_OPERAND_IMMEDIATE, /* bits, form */
	PTX_OPERAND_SPECIAL,   /* special, lane, number in bits (%envreg3: 3) */
	PTX_OPERAND_ADDRESS,   /* [reg+offset], [variable+offset], [offset] */
	PTX_OPERAND_SYMBOL,    /* variable+offset as a value: its address */
	PTX_OPERAND_FUNCTION,  /* call's target, or a function's address as a value */
	PTX_OPERAND_VECTOR,    /* {a,b}: elements, count */
	PTX_OPERAND_LIST,      /* (a,b) of call: elements, count */
	PTX_OPERAND_LABEL,     /* target: index of the instruction, may be one past the last */
	PTX_OPERAND_TARGETS,   /* of brx: targets, count; of an indirect call: functions, count */
	PTX_OPERAND_PROTOTYPE, /* of an indirect call */
	PTX_OPERAND_TEXTURE,   /* [texture, {coordinates}]: elements texture, sampler or NONE, coordinates;
	                        * texture and sampler are SYMBOL, or REGISTER for a handle */
	PTX_OPERAND_SINK,      /* _ as a destination */
};

enum ptx_form { PTX_FORM_INT, PTX_FORM_UNSIGNED, PTX_FORM_F32, PTX_FORM_F64 };

/* Immediate floats keep their bits: 0f as 32 bits in FORM_F32, 0d and decimal
 * ones as 64 bits in FORM_F64. */
struct ptx_operand {
	uint8_t kind;     /* enum ptx_operand_kind */
	uint8_t form;     /* enum ptx_form */
	uint8_t lane;     /* 0, or 1..4 for .x .y .z .w (.r .g .b .a) */
	bool negated;
	bool odd;         /* -a, a.b0: only video instructions have that */
	uint8_t special;  /* enum ptx_special */
	uint32_t count;
	uint32_t reg;     /* PTX_NONE for none */
	uint32_t second;  /* predicate of d|p, PTX_NONE for none; SINK as d: kind SINK and this */
	union {
		uint64_t bits;
		int64_t offset;
		uint32_t target;
	};
	union {
		const struct ptx_variable *variable;
		const struct ptx_function *function;
		const struct ptx_prototype *prototype;
		const struct ptx_operand *elements;
		const uint32_t *targets;
		const struct ptx_function *const *functions;
	};
};

#define PTX_TYPES_MOST 4u
#define PTX_NOT_VECTOR 1u

/*
 * Operands are in the order of the text, the destination first. call has always
 * four: returned LIST, target (FUNCTION or REGISTER), argument LIST, and
 * PROTOTYPE, TARGETS or NONE. brx has two: REGISTER, TARGETS.
 */
struct ptx_instruction {
	uint16_t opcode; /* enum ptx_opcode */
	uint8_t typecount;
	uint8_t types[PTX_TYPES_MOST]; /* enum ptx_type, in the order of the text */
	uint8_t vector;    /* .v2 .v4 .v8: 2 4 8; else 1 */
	uint8_t space;     /* enum ptx_space */
	uint8_t compare;   /* enum ptx_compare */
	uint8_t round;     /* enum ptx_round */
	uint8_t scope;     /* enum ptx_scope */
	uint8_t semantics; /* enum ptx_semantics */
	uint8_t operation; /* enum ptx_operation */
	uint8_t operation2; /* a second one: setp has none, bar.red.popc none, redux none: refuse if set */
	uint8_t geometry;  /* enum ptx_geometry */
	uint8_t shape;     /* enum ptx_shape, of instructions for matrices */
	uint8_t layout;    /* enum ptx_layout, the same: of a */
	uint8_t layout2;   /* of b */
	uint8_t matrices;  /* .x1 .x2 .x4 of these, else 0 */
	uint8_t space2;    /* a second space: cp.async.shared.global */
	bool guardnot;
	uint32_t guard;    /* register, PTX_NONE for none */
	uint64_t flags;    /* PTX_F() */
	const char *odd;   /* the first modifier that no list above has, else NULL: refuse it by this name */
	const char *text;  /* opcode and modifiers as written, for messages */
	const struct ptx_operand *operands;
	uint32_t operandcount;
	uint32_t line;
};

struct ptx_prototype {
	const char *name;
	struct ptx_variable *returns; /* linked by next */
	struct ptx_variable *parameters;
	bool noreturn;
};

/* Functions that exist without a definition. */
enum ptx_builtin {
	PTX_BUILTIN_NONE,
	PTX_BUILTIN_VPRINTF,
	PTX_BUILTIN_MALLOC,
	PTX_BUILTIN_FREE,
	PTX_BUILTIN_ASSERTFAIL, /* __assertfail */
};

struct ptx_function {
	const char *name;
	uint32_t unit;
	uint32_t line;
	uint32_t index; /* in module->functions, which are in the order of their places */
	uint64_t place; /* as a variable's */
	bool entry;
	bool defined; /* has a body */
	bool noreturn;
	bool addressed; /* its address is taken somewhere */
	uint8_t linkage;
	uint8_t builtin;
	struct ptx_variable *returns;    /* linked by next; space PARAM or REG */
	struct ptx_variable *parameters;
	struct ptx_variable *variables;  /* .local, .shared, .param, .const and .global of the body */
	const struct ptx_register *registers; /* those that are used */
	uint32_t registercount;
	const struct ptx_instruction *instructions;
	uint32_t instructioncount;
	uint32_t parameterbytes; /* entry: size of the parameter block */
	uint32_t parambytes;     /* not entry, and params of call sequences: the frame of .param */
	uint32_t localbytes;     /* own, without callees */
	uint32_t sharedbytes;    /* entry: static, of all it can reach */
	bool dynamic;            /* entry: reaches extern .shared x[] */
	uint32_t maxntid[3];     /* .maxntid, 0 for none; missing dimensions are 1 */
	uint32_t reqntid[3];
	uint32_t minctas;        /* .minnctapersm */
	uint32_t maxregisters;   /* .maxnreg */
	uint32_t cluster[3];     /* .reqnctapercluster */
	struct ptx_function *const *callees; /* called by name or by a list of targets */
	uint32_t calleecount;
	bool indirect; /* calls through a prototype: any addressed function */
	void *user; /* of the compiler */
	struct ptx_function *older;      /* an earlier declaration in the same text */
	struct ptx_function *alias;      /* .alias: what it is another name of */
	struct ptx_function *definition; /* self, or what a declaration stands for */
	struct ptx_function *next;
};

struct ptx_arena;

struct ptx_module {
	struct ptx_arena *arena;
	uint32_t version;  /* 7.8 is 78: the highest of the inputs */
	uint32_t target;   /* sm_80 is 80: the highest of the inputs */
	char only;         /* 'a' of sm_90a: for this card; 'f' of sm_100f: for its family; 0: for all that are newer */
	bool unifiedtextures; /* texmode_unified, or unspecified */
	/* .pragma "divvy_max_registers 32", "divvy_threads_per_block 256": the options of a link */
	uint32_t wishedregisters;
	uint32_t wishedthreads;
	uint32_t addressbytes;
	uint32_t units;
	uint64_t textbytes; /* of all inputs so far */
	struct ptx_function **functions; /* all definitions and builtins, by index */
	uint32_t functioncount;
	struct ptx_variable **variables; /* .global and .const, of module scope and of bodies, definitions only */
	uint32_t variablecount;
	struct ptx_function *declared;  /* every function seen, linked by next */
	struct ptx_variable *named;     /* every variable of module scope, linked by next */
};

/* Device code addresses: what a function's address is as a value and in memory, for all kernels
 * that were read from the same text. */
static inline uint64_t ptx_function_address(const struct ptx_function *function)
{
	return (function->definition->place + 1) * 16;
}

/* The first error, as "line N: ...". */
struct ptx_log {
	char text[256];
	bool unsupported; /* good PTX that cannot be run here */
	bool version;     /* newer PTX than maxversion */
};

struct ptx_module *ptx_module_new(void);
void ptx_module_free(struct ptx_module *module);
/* Negative errno: -EBADMSG with a line in the log, -ENOMEM. The text need not end
 * in NUL. Several .version directives start several inputs. */
int ptx_parse(struct ptx_module *module, const char *text, size_t size, uint32_t maxversion, struct ptx_log *log);
/* A piece of a text that holds whole directives, and the number of its first line. */
struct ptx_part {
	const char *at;
	const char *end;
	uint32_t line;
};
/* The same of pieces of one text, which begins at text, in their order. */
int ptx_parse_parts(struct ptx_module *module, const char *text, const struct ptx_part *parts, size_t count,
		    uint32_t maxversion, struct ptx_log *log);
/* What a text, or its first bytes, says it is for; false: it does not say. */
struct ptx_head {
	uint32_t version; /* 7.8 is 78 */
	uint32_t target;  /* sm_80 is 80 */
	char only;        /* as in ptx_module */
};
bool ptx_head_read(const char *text, size_t size, struct ptx_head *head);
int ptx_link(struct ptx_module *module, struct ptx_log *log);
/* Writes the log unless it has a message already; always returns -EBADMSG. */
int ptx_fail(struct ptx_log *log, uint32_t line, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* From the module's arena, zeroed, aligned to 16; NULL when there is no more. */
void *ptx_allocate(struct ptx_module *module, size_t bytes);

const char *ptx_opcode_name(enum ptx_opcode opcode);
const char *ptx_type_name(enum ptx_type type);
uint32_t ptx_type_bytes(enum ptx_type type);

#endif
