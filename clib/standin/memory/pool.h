/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h: memory pools. A pool grows by chunks of whole 2 MiB and hands out
 * parts of them; wholly free chunks go back to the card at the next
 * synchronisation, down to the release threshold.
 */
#ifndef DIVVY_STANDIN_POOL_H
#define DIVVY_STANDIN_POOL_H

#include "cuda/driver.h"

struct sd_memory;
struct sd_chunk;

struct sd_pool {
	struct sd_object object;
	struct sd_pool *next; /* of all pools */
	struct sd_card *card;
	CUmemPoolProps props;
	bool isdefault;
	bool destroyed; /* lives on until its last part is freed */
	bool imported;  /* another process's: nothing can be taken from it */
	uint64_t identity; /* the simulator's object, when exported or imported */
	struct sd_chunk *chunks;
	struct sd_space space;
	uint64_t threshold;
	uint64_t reserved;
	uint64_t reservedhigh;
	uint64_t used;
	uint64_t usedhigh;
	unsigned int freeing; /* parts that are being freed */
	int reuse[3]; /* the three reuse attributes */
	uint64_t readable; /* bit per visible card, its own included */
	uint64_t writable;
};

CUresult sd_pool_new(struct sd_card *card, const CUmemPoolProps *props, struct sd_pool **out);
struct sd_pool *sd_pool_get(CUmemoryPool handle); /* usable, or NULL */
CUresult sd_pool_default(struct sd_card *card, struct sd_pool **out);
CUresult sd_pool_current(struct sd_card *card, struct sd_pool **out);
CUresult sd_pool_take(struct sd_pool *pool, uint64_t bytes, CUdeviceptr *address);
/* The same for a stream: what it has freed, once work before that is done, can be had
 * again in the same stream at once. */
CUresult sd_pool_take_again(struct sd_pool *pool, uint64_t bytes, uint64_t stream, CUdeviceptr *address);
void sd_pool_trim(struct sd_pool *pool, uint64_t keep);
void sd_pool_destroy(struct sd_pool *pool);
void sd_pool_settle(void); /* at synchronisation */

#endif
