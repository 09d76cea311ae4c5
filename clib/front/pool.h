/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h: what async.c, which allocates from pools, needs of pool.c, which
 * keeps their charge.
 */
#ifndef FRONT_POOL_H
#define FRONT_POOL_H

#include "memory.h"

#pragma GCC visibility push(hidden)

/* An allocation that is under way. */
struct pool_claim {
	uint32_t serial;  /* of the pool: 24 bits, never 0 */
	uint64_t request; /* rounded */
	uint64_t added;   /* charged for it, and pending until it is made */
	const char *call;
};

/* The card that the pool is on, where it is a card's current or default one; else otherwise. */
int pool_slot(CUmemoryPool handle, int otherwise);

/*
 * Charges what bytes from the pool must add to its reserve; slot is for a pool
 * that is not known yet. pool_follow ends what a success began: the charge
 * follows the reserve. It answers -ENOMEM when the reserve grew further than
 * there is room for: the rest is then not charged, and the caller gives the
 * memory back. pool_give: some memory of a pool was freed, now or when its stream
 * gets there.
 */
CUresult pool_reserve(CUmemoryPool handle, int slot, uint64_t bytes, const char *call, struct pool_claim *claim);
int pool_follow(const struct pool_claim *claim);
void pool_give(uint32_t serial);

/* The card that a pool is charged to; -1: none, or the pool is gone. */
int pool_slot_of(uint32_t serial);

#pragma GCC visibility pop

#endif
