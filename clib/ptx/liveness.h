/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liveness.h: which registers of a function hold a value that is still read, and
 * where. The function falls into pieces that are entered at their start and left
 * at their end; what is live where they meet is the flow.
 */
#ifndef DIVVY_STANDIN_PTX_LIVENESS_H
#define DIVVY_STANDIN_PTX_LIVENESS_H

#include "ast.h"

enum ptx_touch {
	PTX_READS,
	PTX_WRITES,  /* it holds a new value afterwards, whatever it held before */
	PTX_CHANGES, /* a part of it, or under a condition: reads it as well */
};

/* What an instruction does with each of its registers: writes first, then reads,
 * as seen from the end. */
typedef void (*ptx_visitor)(void *who, uint32_t reg, enum ptx_touch touch);
void ptx_visit(const struct ptx_instruction *now, ptx_visitor visit, void *who);

struct ptx_piece {
	uint32_t start;
	uint32_t end;      /* one past its last instruction */
	uint64_t *used;    /* before it writes them */
	uint64_t *written;
	uint64_t *live;    /* at its start */
	uint64_t *after;   /* at its end */
};

struct ptx_flow {
	const struct ptx_function *function; /* with one instruction at least */
	struct ptx_piece *pieces;
	uint32_t *pieceof; /* of each instruction */
	uint32_t count;
	uint32_t words;    /* of a set of registers */
	uint64_t *sets;
};

/* false: no memory, or a function so large that nothing is known of it. */
bool ptx_flow_make(const struct ptx_function *function, struct ptx_flow *flow);
void ptx_flow_end(struct ptx_flow *flow);

/* The pieces that may come after one. */
typedef void (*ptx_follower)(void *who, uint32_t next);
void ptx_follow(const struct ptx_flow *flow, const struct ptx_piece *piece, ptx_follower follower, void *who);

/* Instructions by index; first > last: never used. */
struct ptx_interval {
	uint32_t first;
	uint32_t last;
};

/* From where to where each register is live; intervals has one per register. */
void ptx_intervals(const struct ptx_flow *flow, struct ptx_interval *intervals);

/* pressure.c: the most 32 bit registers that are in use at one instruction, by
 * what docs/simulated-kernels.md says; PTX_NONE without memory. */
uint32_t ptx_pressure(const struct ptx_flow *flow);

static inline bool ptx_set_has(const uint64_t *set, uint32_t reg)
{
	return set[reg / 64] >> (reg % 64) & 1;
}

static inline void ptx_set_put(uint64_t *set, uint32_t reg)
{
	set[reg / 64] |= 1ull << (reg % 64);
}

static inline void ptx_set_take(uint64_t *set, uint32_t reg)
{
	set[reg / 64] &= ~(1ull << (reg % 64));
}

#endif
