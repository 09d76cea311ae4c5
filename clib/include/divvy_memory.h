/* SPDX-License-Identifier: Apache-2.0 */
/*
 * divvy_memory.h: how to read and change struct divvy_client_card.memory (see
 * divvy_wire.h). Amounts are in bytes; words count them in units of
 * DIVVY_ALLOCATION_UNIT, rounded up.
 */
#ifndef DIVVY_MEMORY_H
#define DIVVY_MEMORY_H

#include <stdint.h>

#include "divvy_wire.h"

#define DIVVY_MEMORY_CREDIT ((1ull << DIVVY_MEMORY_BITS) - 1)
#define DIVVY_MEMORY_GRANTED (DIVVY_MEMORY_CREDIT << DIVVY_MEMORY_BITS)
#define DIVVY_MEMORY_MARK (1ull << 2 * DIVVY_MEMORY_BITS)

/* What to add to a word, or to take from it, for so much credit. */
static inline uint64_t divvy_memory_units(uint64_t bytes)
{
	return bytes / DIVVY_ALLOCATION_UNIT + (bytes % DIVVY_ALLOCATION_UNIT != 0);
}

/* The same for what is granted and in use. */
static inline uint64_t divvy_memory_granted_units(uint64_t bytes)
{
	return divvy_memory_units(bytes) << DIVVY_MEMORY_BITS;
}

static inline uint64_t divvy_memory_credit(uint64_t word)
{
	return (word & DIVVY_MEMORY_CREDIT) * DIVVY_ALLOCATION_UNIT;
}

static inline uint64_t divvy_memory_granted(uint64_t word)
{
	return ((word & DIVVY_MEMORY_GRANTED) >> DIVVY_MEMORY_BITS) * DIVVY_ALLOCATION_UNIT;
}

/* 0 where the process has put back more than it took: late frees on a page that was left behind. */
static inline uint64_t divvy_memory_used(uint64_t word)
{
	uint64_t granted = divvy_memory_granted(word);
	uint64_t credit = divvy_memory_credit(word);

	return granted > credit ? granted - credit : 0;
}

#endif
