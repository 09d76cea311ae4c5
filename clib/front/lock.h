/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock.h: a mutex of one word that needs no initialisation and nothing newer
 * than the C library of 2012: one compare-and-swap to take it when it is free,
 * a futex when it is not. For short sections inside one process; never shared
 * between processes, never held across fork by a child that goes on using it
 * (a forked child passes every call straight to the driver).
 *
 * A zeroed word is an unlocked lock. Not recursive.
 */
#ifndef FRONT_LOCK_H
#define FRONT_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

struct front_lock {
	_Atomic uint32_t word; /* 0 free, 1 held, 2 held and somebody sleeps */
};

void front_lock_slow(struct front_lock *lock);
void front_lock_wake(struct front_lock *lock);

static inline void front_lock_take(struct front_lock *lock)
{
	uint32_t free_word = 0;

	if (!atomic_compare_exchange_strong_explicit(&lock->word, &free_word, 1, memory_order_acquire,
						     memory_order_relaxed))
		front_lock_slow(lock);
}

static inline void front_lock_drop(struct front_lock *lock)
{
	if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
		front_lock_wake(lock);
}

#endif
