/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compile.h: from instructions to operations. emit.c keeps the operations and
 * finds operands; each of the other emit files knows one kind of instruction.
 * What none of them takes is refused by name: there is no wrong result.
 */
#ifndef DIVVY_STANDIN_PTX_COMPILE_H
#define DIVVY_STANDIN_PTX_COMPILE_H

#include "lane.h"
#include "liveness.h"
#include "op.h"

enum { PTX_TEMPORARIES = 9 }; /* as many as the values of a vector, and an address */

/* Memory that lives as long as the code. */
struct ptx_holding {
	struct ptx_holding *next;
	uint64_t alignment[1];
};

/* An operand, found. */
struct ptx_place {
	uint32_t at;
	uint8_t width; /* enum ptx_width */
	bool negated;  /* a predicate */
};

struct ptx_compiler {
	struct ptx_module *module;
	struct ptx_log *log;
	struct ptx_code *code;
	const struct ptx_function *function;
	struct ptx_body *body;
	const struct ptx_instruction *now;
	struct ptx_op *ops;
	uint32_t opcount;
	uint32_t oproom;
	uint32_t *place;      /* of each instruction: where a branch to it goes */
	bool *labelled;
	uint32_t *slots;      /* of the function's registers */
	uint32_t *fixes;      /* operations whose target is an instruction */
	uint32_t fixcount;
	uint32_t fixroom;
	uint32_t temporaries; /* the first of them */
	uint32_t temporary;   /* used by the instruction so far */
	bool allocates;       /* the function has alloca */
	struct ptx_place allocator; /* how its stack was when it began */
	uint32_t *hash;       /* of constants */
	uint32_t hashroom;
	uint32_t constantroom;
	uint32_t constantcount;
	uint64_t *values;     /* of constants, to tell them apart */
	uint32_t *places;
	uint8_t *widths;
};

/* compile.c */
uint32_t *ptx_slots_of(const struct ptx_function *function);

/* slots.c: where each register is, and how many bytes they take; false without memory.
 * flow: NULL if it is not known. */
bool ptx_slots_assign(const struct ptx_function *function, const struct ptx_flow *flow, uint32_t *slots,
		      uint32_t *bytes);
enum ptx_width ptx_register_width(const struct ptx_register *reg);

/* emit.c. All that return bool: false with the log written. */
bool ptx_refuse(struct ptx_compiler *c, const char *why);
bool ptx_out_of_memory(struct ptx_compiler *c);
/* Only these of PTX_F() may be set. */
bool ptx_flags(struct ptx_compiler *c, uint64_t allowed);
/* The language has it from this version on, for these cards. */
bool ptx_needs(struct ptx_compiler *c, uint32_t version, uint32_t target);
struct ptx_op *ptx_emit(struct ptx_compiler *c, enum ptx_run_op code);
void *ptx_hold(struct ptx_compiler *c, size_t bytes);
bool ptx_constant(struct ptx_compiler *c, uint8_t width, uint64_t value, uint32_t *at);
uint32_t ptx_temporary(struct ptx_compiler *c);
bool ptx_in(struct ptx_compiler *c, uint32_t operand, uint8_t type, struct ptx_place *place);
bool ptx_in_operand(struct ptx_compiler *c, const struct ptx_operand *operand, uint8_t type, struct ptx_place *place);
bool ptx_out(struct ptx_compiler *c, uint32_t operand, uint8_t type, struct ptx_place *place);
bool ptx_out_operand(struct ptx_compiler *c, const struct ptx_operand *operand, uint8_t type, struct ptx_place *place);
bool ptx_operands(struct ptx_compiler *c, uint32_t least, uint32_t most); /* of operands */
/* the width of columns of that type */
uint8_t ptx_width_of(uint8_t type);
/* Address operands: space is what the instruction says. */
struct ptx_address {
	uint8_t space; /* enum ptx_memory */
	uint32_t at;
	uint8_t width;
	uint64_t imm;
	uint32_t mode;
	bool known;    /* a kernel's parameter: imm is all of it */
};
bool ptx_address(struct ptx_compiler *c, const struct ptx_operand *operand, uint8_t space, struct ptx_address *address);
uint64_t ptx_frame_offset(const struct ptx_function *function, const struct ptx_variable *variable);
uint32_t ptx_dynamic_offset(const struct ptx_compiler *c);

/* d = lane(a, b, c): so many operands after the first, of these types (0: none) */
bool ptx_emit_lane(struct ptx_compiler *c, ptx_lane lane, uint32_t mode, uint8_t round, uint8_t d, uint8_t a, uint8_t b,
		   uint8_t third);
/* d = code(a, b, c), all of one type, whose columns must have its width */
bool ptx_emit_same(struct ptx_compiler *c, enum ptx_run_op code, uint8_t type, uint32_t operands);

/* each takes c->now */
bool ptx_emit_integer(struct ptx_compiler *c);  /* emitinteger.c: arithmetic */
bool ptx_emit_bits(struct ptx_compiler *c);     /* emitbits.c */
bool ptx_emit_real(struct ptx_compiler *c);     /* emitreal.c: floating point */
bool ptx_emit_test(struct ptx_compiler *c);     /* emittest.c: setp, set, selp, slct, testp */
bool ptx_emit_move(struct ptx_compiler *c);     /* emitmove.c: mov, cvt, cvta, isspacep */
bool ptx_emit_memory(struct ptx_compiler *c);   /* emitmemory.c */
bool ptx_emit_flow(struct ptx_compiler *c);     /* emitflow.c: bra, call, ret, bar ... */
bool ptx_emit_warp(struct ptx_compiler *c);     /* emitwarp.c: shfl, vote ... */
bool ptx_emit_tensor(struct ptx_compiler *c);   /* emittensor.c: mma, ldmatrix ... */
bool ptx_emit_sample(struct ptx_compiler *c);   /* emitsample.c: tex, suld ... */
bool ptx_fix(struct ptx_compiler *c, uint32_t op);
bool ptx_emit_return(struct ptx_compiler *c);
bool ptx_emit_stack(struct ptx_compiler *c, uint8_t what, struct ptx_place place);

#endif
