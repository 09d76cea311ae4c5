/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.h: the memory hooks in any order: what one thread of a program has made and
 * not given back, and a step that makes or gives back something drawn from state.
 */
#ifndef DIVVY_TEST_WALK_H
#define DIVVY_TEST_WALK_H

#include "within.h"

enum { POINTERS = 24, ARRAYS = 8, CONTEXTS = 4, HANDLES = 8, MAPS = 8, ASYNCS = 12, GRAPHS = 4 };

struct world {
	uint64_t state;
	CUdeviceptr pointer[POINTERS];
	CUarray array[ARRAYS];
	CUmipmappedArray mipmap[ARRAYS];
	CUmodule module[ARRAYS];
	CUcontext context[CONTEXTS];
	CUmemGenericAllocationHandle handle[HANDLES];
	uint64_t map[MAPS];
	CUdeviceptr async[ASYNCS];
	CUmemoryPool pool;
	CUgraph graph[GRAPHS];
	CUgraphExec exec[GRAPHS];
	uint64_t base; /* of the addresses to map at */
	bool contexts; /* make and destroy them */
	bool pooled;   /* nothing but pools: graphs that wait to run are charged for what no one holds */
};

/* Another number; the state is never 0. */
uint64_t walk_next(uint64_t *state);
void walk_step(struct world *w);
/* Everything goes back. Some has died with its context, and its address may be another's by now. */
void walk_clear(struct world *w);

#endif
