/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h: a grid while it runs.
 *
 * Lanes of a warp that are at the same place of the same call go together: a
 * group. The group that runs is the deepest call's, and there the one that is
 * behind; where it reaches another one they become one. So lanes meet again
 * right after what parted them, and lanes that spin for others let them on after
 * a while.
 */
#ifndef DIVVY_STANDIN_PTX_MACHINE_H
#define DIVVY_STANDIN_PTX_MACHINE_H

#include <pthread.h>

#include "op.h"

enum { PTX_BARRIERS = 16 };

struct ptx_frame {
	struct ptx_frame *parent;
	const struct ptx_body *body;
	const struct ptx_callsite *site; /* that made it */
	unsigned char *columns;
	uint32_t returnto;
	uint32_t depth;
	uint64_t local;  /* where its part of local memory starts */
	uint32_t lanes;  /* that have not left it */
	struct ptx_frame *next; /* while it is free */
};

enum ptx_group_state { PTX_READY, PTX_SYNCING, PTX_AT_BARRIER, PTX_ASLEEP };

struct ptx_group {
	struct ptx_frame *frame;
	uint32_t pc;
	uint32_t mask;
	uint8_t state;
	uint32_t wants;  /* syncing: the lanes it waits for */
	uint64_t turn;   /* when it last ran */
};

enum ptx_reason {
	PTX_STOP_MASK,    /* warp->mask has changed */
	PTX_STOP_CONTROL, /* pc is at what warp.c does */
	PTX_STOP_JOIN,    /* pc is not behind all others any more */
	PTX_STOP_SYNC,    /* lanes are to come together first: warp->wants */
	PTX_STOP_TURN,    /* it has run for long */
	PTX_STOP_FAULT,
};

struct ptx_warp {
	/* the group that runs */
	struct ptx_frame *frame;
	uint32_t pc;
	uint32_t mask;
	uint32_t stop;    /* the least pc of others in this frame, ahead of this one */
	uint32_t guarded; /* mask before GUARD */
	uint32_t carry;
	uint32_t wants;
	uint32_t synced;  /* pc that need not wait again, or PTX_NONE */
	int64_t left;     /* operations until its turn is over */
	struct ptx_range last; /* of memory */
	unsigned char *local;
	uint64_t localstride;
	unsigned char *shared;
	uint64_t sharedbytes;
	struct ptx_block *block;
	struct ptx_worker *worker;
	uint64_t threads;
	uint64_t bytes;
	uint64_t written;
	/* all of it */
	uint32_t index;
	uint32_t lanes;   /* that were there at the start */
	uint32_t live;
	uint32_t barred;  /* lanes at barriers */
	uint32_t groupcount;
	uint64_t turns;
	bool fair;        /* the next turn is of those that wait longest */
	int64_t waited;   /* operations since lanes have been waiting ahead */
	struct ptx_group groups[PTX_LANES];
	uint32_t tid[3][PTX_LANES];
	uint64_t top[PTX_LANES]; /* of local memory: what alloca has taken is above it */
};

struct ptx_barrier {
	uint32_t expected; /* threads; 0: nobody is there */
	uint32_t arrived;
	uint32_t count;    /* red: of those with a true predicate */
};

struct ptx_block {
	struct ptx_grid *grid;
	struct ptx_block *next;
	uint32_t ctaid[3];
	uint64_t number;
	uint32_t warpcount;
	uint32_t alive; /* threads */
	uint32_t turn;  /* the warp that is next */
	uint32_t smid;
	struct ptx_barrier barriers[PTX_BARRIERS];
	unsigned char *shared;
	struct ptx_warp *warps;
};

/* What one host thread works with. */
struct ptx_worker {
	struct ptx_grid *grid;
	struct ptx_frame **frames; /* free ones, by function index */
	struct ptx_block *idle;    /* a block's memory to use again */
	uint64_t threads;
	uint64_t bytes;
};

struct ptx_engine {
	const char *name;
	enum ptx_reason (*full)(struct ptx_warp *warp);
	enum ptx_reason (*masked)(struct ptx_warp *warp);
	enum ptx_reason (*single)(struct ptx_warp *warp);
};

extern const struct ptx_engine ptx_engine_plain;
extern const struct ptx_engine ptx_engine_avx2;
extern const struct ptx_engine ptx_engine_avx512;

struct ptx_grid {
	const struct ptx_launch *launch;
	const struct ptx_engine *engine;
	const struct ptx_body *body;
	uint64_t blocks;
	uint64_t next;      /* block to start; atomic */
	uint32_t blockthreads;
	uint32_t warpsperblock;
	uint64_t localstride;
	uint64_t sharedbytes;
	uint32_t resident;  /* blocks one worker may have begun at once */
	uint64_t startns;
	pthread_mutex_t lock; /* print, outcome */
	bool ended;         /* by a fault; atomic */
	struct ptx_outcome *outcome;
};

static inline bool ptx_grid_ended(const struct ptx_grid *grid)
{
	const bool *stop = grid->launch->stop;

	return __atomic_load_n(&grid->ended, __ATOMIC_RELAXED) || (stop && __atomic_load_n(stop, __ATOMIC_RELAXED));
}

/* The fault that ends the grid; the first one counts. */
void ptx_fault(struct ptx_warp *warp, enum ptx_fault fault, uint64_t address);

/* warp.c. Runs until all lanes have ended or wait for others: true if it got on. */
bool ptx_warp_begin(struct ptx_warp *warp, const struct ptx_body *body);
bool ptx_warp_run(struct ptx_warp *warp);
void ptx_warp_end(struct ptx_warp *warp);
struct ptx_frame *ptx_frame_new(struct ptx_worker *worker, const struct ptx_body *body);
void ptx_frame_free(struct ptx_worker *worker, struct ptx_frame *frame);

/* meet.c: makes the running group's call and another of the same function one, which
 * then is `other`; false if they come from different places. */
bool ptx_calls_meet(struct ptx_warp *warp, struct ptx_frame *other);

/* barrier.c: the running group comes to the barrier of its operation. */
enum ptx_arrival { PTX_ARRIVAL_GOES_ON, PTX_ARRIVAL_WAITS, PTX_ARRIVAL_FAULT };
enum ptx_arrival ptx_barrier_arrive(struct ptx_warp *warp, const struct ptx_op *op);
void ptx_barrier_exited(struct ptx_block *block);

/* block.c: true when the block has ended. */
struct ptx_block *ptx_block_new(struct ptx_worker *worker, uint64_t number);
bool ptx_block_run(struct ptx_block *block);
void ptx_block_free(struct ptx_worker *worker, struct ptx_block *block);

/* pool.c: has work(grid) done by helpers as well as here; returns when all have returned. */
void ptx_pool_run(struct ptx_grid *grid, unsigned int helpers, void (*work)(struct ptx_grid *grid));
unsigned int ptx_pool_cores(void);

/* reach.c: where the bytes are, or NULL after a fault. Whatever window. */
unsigned char *ptx_reach(struct ptx_warp *warp, uint32_t lane, uint64_t address, uint64_t bytes, bool write);
const struct ptx_range *ptx_range_of(const struct ptx_launch *launch, uint64_t address);

/* atom.c */
uint64_t ptx_atom(uint32_t mode, void *at, uint64_t b, uint64_t c);
/* exch of b, or cas of b by c, of 16 aligned bytes */
void ptx_atom128(uint8_t operation, void *at, uint64_t old[2], const uint64_t b[2], const uint64_t c[2]);

/* special.c: fills a column */
void ptx_special(struct ptx_warp *warp, const struct ptx_op *op, void *column);

/* special.c: stacksave, stackrestore, alloca; false after a fault */
bool ptx_stack(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask);

/* builtin.c: false after a fault */
bool ptx_builtin(struct ptx_warp *warp, const struct ptx_op *op);
/* sample.c */
bool ptx_sample(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask);
bool ptx_surface(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask);
bool ptx_texture_query(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask);
/* collective.c: shfl, vote, match, redux, elect, and tensor.c; false after a fault */
bool ptx_collective(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask);
/* tensor.c: mma; and ldmatrix, stmatrix, movmatrix, false after a fault */
void ptx_mma(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask);
bool ptx_matrix(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask);

/* rounding.c: the modes of the host's arithmetic */
int ptx_rounding_set(uint8_t round);
void ptx_rounding_reset(int before);

static inline const unsigned char *ptx_column(const struct ptx_frame *frame, uint32_t at)
{
	return (at & PTX_CONSTANT ? frame->body->constants : frame->columns) + (at & ~PTX_CONSTANT);
}

static inline uint64_t ptx_get(const void *column, uint8_t width, uint32_t lane)
{
	switch (width) {
	case PTX_W_PRED:
		return *(const uint32_t *)column >> lane & 1;
	case PTX_W_16:
		return ((const uint16_t *)column)[lane];
	case PTX_W_32:
		return ((const uint32_t *)column)[lane];
	default:
		return ((const uint64_t *)column)[lane];
	}
}

static inline void ptx_put(void *column, uint8_t width, uint32_t lane, uint64_t value)
{
	switch (width) {
	case PTX_W_PRED:
		*(uint32_t *)column = (*(uint32_t *)column & ~(1u << lane)) | (uint32_t)(value & 1) << lane;
		break;
	case PTX_W_16:
		((uint16_t *)column)[lane] = (uint16_t)value;
		break;
	case PTX_W_32:
		((uint32_t *)column)[lane] = (uint32_t)value;
		break;
	default:
		((uint64_t *)column)[lane] = value;
		break;
	}
}

#endif
