/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op.h: the form that code runs in: operations of one size with their operands
 * found beforehand, 32 lanes at a time.
 *
 * A register is a column of 32 values next to each other in its frame: 16, 32 or
 * 64 bits each, or for a predicate one word with a bit per lane. An operand is
 * the offset of its column; with PTX_CONSTANT set it is one of the constants,
 * which are columns too.
 */
#ifndef DIVVY_STANDIN_PTX_OP_H
#define DIVVY_STANDIN_PTX_OP_H

#include "ast.h"
#include "code.h"

#define PTX_LANES 32u
#define PTX_CONSTANT 0x80000000u
#define PTX_NOWHERE 0x7fffffffu

/* Addresses that are no memory of the card: the top byte says which window. */
#define PTX_WINDOW_SHARED 0x40ull
#define PTX_WINDOW_LOCAL 0x41ull
#define PTX_WINDOW_PARAM 0x42ull
#define PTX_WINDOW_SHIFT 56

enum ptx_width { PTX_W_PRED, PTX_W_16, PTX_W_32, PTX_W_64, PTX_W_NONE };

/* With a vector form for every mode. */
#define PTX_VECTOR_OPS(X) \
	X(MOV16) X(MOV32) X(MOV64) X(MOVP) X(NOTP) X(ANDP) X(ORP) X(XORP) \
	X(ADD16) X(ADD32) X(ADD64) X(SUB16) X(SUB32) X(SUB64) X(MUL16) X(MUL32) X(MUL64) \
	X(MAD16) X(MAD32) X(MAD64) X(WIDES16) X(WIDEU16) X(WIDES32) X(WIDEU32) X(MADWIDES32) X(MADWIDEU32) \
	X(HIS32) X(HIU32) X(AND16) X(AND32) X(AND64) X(OR16) X(OR32) X(OR64) X(XOR16) X(XOR32) X(XOR64) \
	X(NOT16) X(NOT32) X(NOT64) X(SHL32) X(SHL64) X(SHRS32) X(SHRU32) X(SHRS64) X(SHRU64) \
	X(MINS32) X(MAXS32) X(MINU32) X(MAXU32) X(MINS64) X(MAXS64) X(MINU64) X(MAXU64) X(NEG32) X(NEG64) \
	X(LOP3) X(SHFL32W) X(SHFR32W) X(BFEU32) X(SELP16) X(SELP32) X(SELP64) X(SLCT32) \
	X(ADDF32) X(SUBF32) X(MULF32) X(FMAF32) X(ADDF32Z) X(SUBF32Z) X(MULF32Z) X(FMAF32Z) \
	X(MINF32) X(MAXF32) X(NEGF32) X(ABSF32) X(DIVF32) X(SQRTF32) X(RCPF32) \
	X(ADDF64) X(SUBF64) X(MULF64) X(FMAF64) X(NEGF64) X(ABSF64) X(DIVF64) X(SQRTF64) X(RCPF64) \
	X(SETPS32) X(SETPU32) X(SETPS64) X(SETPU64) X(SETPF32) X(SETPF64) \
	X(S32F32) X(U32F32) X(F32S32Z) X(F32F64) X(F64F32) X(S32F64) X(U32U64) X(S32S64) X(U64U32) X(U16U32) \
	X(S16S32) X(U32U16) X(U8U32) X(S8S32) X(LANEID) \
	X(PACK3232) X(PACK1616) X(UNPACK3232) X(UNPACK1616)

/* A call per lane, or one for all lanes. */
#define PTX_OTHER_OPS(X) \
	X(LANE) X(LANE2) X(CARRY) X(SPECIAL) X(LOCALADDR) X(LOAD) X(STORE) X(LDPARAM) X(ATOM) X(COPY) X(SHFL) X(VOTE) X(MATCH) X(REDUX) X(ELECT) \
	X(MMA) X(MATRIX) \
	X(ACTIVEMASK) X(ISSPACE) X(STACK) X(TEX) X(SULD) X(SUST) X(TXQ) X(FENCE) X(WARPSYNC)

/* Where lanes may part, meet or wait. The first ones are done in the engine as
 * long as no lanes part; all others by warp.c. */
#define PTX_CONTROL_OPS(X) \
	X(JOIN) X(BRA) X(BRAP) X(GUARD) X(UNGUARD) X(BRX) X(CALL) X(CALLI) X(RET) X(EXIT) X(BARRIER) X(TRAP) X(SLEEP) X(BUILTIN)

#define PTX_ENUM_OP(name) PTX_RUN_##name,
enum ptx_run_op { PTX_VECTOR_OPS(PTX_ENUM_OP) PTX_OTHER_OPS(PTX_ENUM_OP) PTX_CONTROL_OPS(PTX_ENUM_OP) PTX_RUN_COUNT };

struct ptx_op;
/* One lane of an operation; operands and result in the low bits. */
typedef uint64_t (*ptx_lane)(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);

struct ptx_op {
	uint16_t code; /* enum ptx_run_op */
	uint8_t wd, wa, wb, wc; /* enum ptx_width */
	uint8_t sub;
	uint8_t sub2;
	uint32_t d, a, b, c;
	uint32_t e;
	uint32_t target; /* of branches */
	uint64_t imm;
	union {
		ptx_lane lane;
		const uint32_t *list; /* columns of a vector */
		const struct ptx_callsite *site;
		const struct ptx_sample *sample;
	};
	uint32_t mode;
	uint32_t line;
};

/* LOAD, STORE, ATOM: sub is the space, sub2 the bytes of an element, wa the
 * address's width, wd the columns' width, e their number, list where they are
 * when there are several; imm is added to the address. */
enum ptx_memory { PTX_MEM_GLOBAL, PTX_MEM_SHARED, PTX_MEM_LOCAL, PTX_MEM_PARAM, PTX_MEM_GENERIC };
#define PTX_MODE_SIGNED 1u	   /* extended with the sign; not of ATOM */
#define PTX_MODE_FRAME 0x80000000u /* the address counts from the frame's local memory */
/* ATOM: mode is operation | type << 8, d NOWHERE for red, e the bytes of a vector that
 * it is the first of, or NOWHERE; of 128 bits list has the low and high columns of what
 * comes back and of the operands */

/* SETP: sub compares, sub2 is the second half (PTX_DO_AND ...) with c (mode &
 * PTX_SETP_NOT: its opposite), e the other predicate or NOWHERE. */
#define PTX_SETP_NOT 1u
/* LANE: sub is the rounding to run in (enum ptx_round) or 0; mode is the lane's
 * own. A predicate operand to negate: sub2 bits 1 (a), 2 (b), 4 (c). */
#define PTX_NEGATE_A 1u
#define PTX_NEGATE_B 2u
#define PTX_NEGATE_C 4u
/* STACK: sub says what; the place to save to, or to restore from; the address and, a, so
 * many bytes, aligned to imm. */
enum ptx_stack_use { PTX_STACK_SAVE, PTX_STACK_RESTORE, PTX_STACK_TAKE };
/* BRAP, GUARD: sub 1 for !p. GUARD: target is where to go when no lane does. */

/* One value handed over by a call or by its return. */
struct ptx_move {
	bool fromcolumn, tocolumn; /* else an offset in the frame's local memory */
	uint8_t width;             /* of columns */
	uint32_t from, to;
	uint32_t bytes;
};

struct ptx_body;

struct ptx_callsite {
	const struct ptx_body *body;  /* NULL: by address, in column a */
	struct ptx_moves {
		const struct ptx_move *list;
		uint32_t count;
	} in, out;
	const struct ptx_callsite *bodies; /* indirect: one per function of the module, by index */
	const struct ptx_function *builtin;
};

/* tex, tld4, suld, sust, txq */
struct ptx_sample {
	uint8_t dimensions;   /* 1, 2, 3 */
	bool layered;
	bool floats;          /* coordinates are f32 */
	bool gather;          /* tld4 */
	uint8_t component;
	uint8_t type;         /* of what is read */
	uint8_t count;        /* columns */
	uint8_t elements;     /* surfaces: .v2 .v4 */
	uint8_t bytes;        /* surfaces: of an element */
	uint8_t outside;      /* surfaces: 0 trap, 1 clamp, 2 zero */
	bool lod;             /* the last coordinate is one: ignored without mip levels */
	uint8_t query;        /* enum ptx_operation */
	bool surface;
	uint32_t handle;      /* column, 64 bits */
	uint32_t sampler;     /* column, or NOWHERE */
	uint32_t coordinate[4];
	uint32_t column[4];
};

/* A function made ready. */
struct ptx_body {
	const struct ptx_function *function;
	struct ptx_op *ops;
	uint32_t count;
	unsigned char *constants;
	uint32_t constantbytes;
	uint32_t framebytes; /* of columns */
	const uint32_t *slots; /* the columns of the function's registers */
	uint32_t localbytes; /* own, with parameters of calls; 16 byte units */
	uint64_t stackbytes; /* with all it calls, UINT64_MAX if that is unknown */
	uint32_t registers;  /* 32 bit ones a thread on hardware needs, with all it calls */
	const char *refused; /* what cannot be run here, of its own or of what it calls; it has no operations then */
};

struct ptx_code {
	struct ptx_module *module;
	struct ptx_body *bodies; /* by function->index */
	uint32_t count;
	uint32_t sharedbytes;    /* dynamic shared memory starts there in every kernel */
	struct ptx_holding *holdings; /* what goes with the code */
};

static inline uint32_t ptx_width_bytes(enum ptx_width width)
{
	return width == PTX_W_PRED ? 1 : width == PTX_W_16 ? 2 : width == PTX_W_32 ? 4 : 8;
}

static inline uint32_t ptx_column_bytes(enum ptx_width width)
{
	return width == PTX_W_PRED ? 64 : ptx_width_bytes(width) * PTX_LANES;
}

#endif
