/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate.h: how long a launch takes, learned from what was measured. A table
 * of fixed size; what was not used for long makes room. Pure.
 *
 * A key stands for a function, its grid, block and shared bytes, or for a graph.
 * Keys are hashes: two launches with one key are a wrong estimate, no more.
 *
 * Finding may run beside learning; learning is done under a lock of the caller.
 */
#ifndef DIVVY_FRONT_ESTIMATE_H
#define DIVVY_FRONT_ESTIMATE_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define ESTIMATE_SAMPLES 10u
#define ESTIMATE_WAYS 4u
#define ESTIMATE_SETS 256u
#define ESTIMATE_LEAST_NS 500u /* no launch counts as less */

struct estimate {
	uint64_t key;      /* 0: free */
	uint32_t high;     /* 9 of 10 take no longer, ns */
	uint32_t typical;  /* the median; of two the longer */
	uint32_t used;     /* when it was last learned of, in lessons */
	uint8_t samples;
	uint8_t next;
	uint16_t doubted;  /* measurements passed over since the last one that counted */
	uint32_t sample[ESTIMATE_SAMPLES];
};

_Static_assert(sizeof(struct estimate) == 64, "a line of the cache");

struct estimates {
	uint32_t lessons;
	struct estimate entry[ESTIMATE_SETS][ESTIMATE_WAYS];
};

/* NULL: never measured. */
static inline const struct estimate *estimate_find(const struct estimates *all, uint64_t key)
{
	const struct estimate *set = all->entry[key % ESTIMATE_SETS];

	for (unsigned i = 0; i < ESTIMATE_WAYS; i++) {
		if (__atomic_load_n(&set[i].key, __ATOMIC_RELAXED) == key)
			return &set[i];
	}
	return NULL;
}

static inline uint32_t estimate_high(const struct estimate *estimate)
{
	return __atomic_load_n(&estimate->high, __ATOMIC_RELAXED);
}

static inline uint32_t estimate_typical(const struct estimate *estimate)
{
	return __atomic_load_n(&estimate->typical, __ATOMIC_RELAXED);
}

void estimate_learn(struct estimates *all, uint64_t key, uint64_t ns);

/*
 * The same, of a measurement that others on the card may have drawn out: where it
 * is longer than usual only one in ESTIMATE_DOUBTS counts.
 */
#define ESTIMATE_DOUBTS 8u
void estimate_doubt(struct estimates *all, uint64_t key, uint64_t ns);

static inline uint64_t estimate_mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/* Never 0. Of words one by one: a processor waits for an array that was just written so and is read two at once. */
static inline uint64_t estimate_key(const void *function, uint32_t gridx, uint32_t gridy, uint32_t gridz, uint32_t blockx,
				    uint32_t blocky, uint32_t blockz, uint32_t shared)
{
	uint64_t one = estimate_mix((uintptr_t)function, (uint64_t)gridx | (uint64_t)gridy << 32);
	uint64_t other = estimate_mix((uint64_t)blockx << 32 | blocky, (uint64_t)gridz << 32 | blockz);

	return estimate_mix(one, other + shared) | 1u << 31;
}

/*
 * First timings that are not certain. A thread that the host stops in its call makes all but
 * the end of a kernel look like the time of the call, so that the next launch must agree.
 */
#define FIRSTS 64u
#define FIRST_TRIES 4u

struct firsts {
	struct {
		uint64_t key;
		uint64_t said; /* by the last one; 0: nothing */
		uint64_t most; /* that it can have taken: the least of all tries */
		unsigned tries;
	} one[FIRSTS];
};

/*
 * likely: how long a launch seems to have taken, 0 if unknown; most: an upper bound. Returns what
 * to learn, 0: time it again. Two that agree within a factor of two are believed. After FIRST_TRIES,
 * of whatever functions share a place, the upper bound is: one that seems short is launched too often.
 */
uint64_t firsts_note(struct firsts *firsts, uint64_t key, uint64_t likely, uint64_t most);

/* The longest of what was launched in the last second or two. Finding may run beside noting, as above. */
struct longest {
	uint64_t since;
	uint32_t now;
	uint32_t before;
};

void longest_note(struct longest *longest, uint64_t now, uint32_t ns);

static inline uint32_t longest_of(const struct longest *longest)
{
	uint32_t now = __atomic_load_n(&longest->now, __ATOMIC_RELAXED);
	uint32_t before = __atomic_load_n(&longest->before, __ATOMIC_RELAXED);

	return now > before ? now : before;
}

#pragma GCC visibility pop

#endif
