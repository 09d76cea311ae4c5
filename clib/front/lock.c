/* SPDX-License-Identifier: Apache-2.0 */
/* lock.c: the slow halves of lock.h. */
#include "lock.h"

#include "clock.h"

#define LOCK_SPINS 64

void front_lock_slow(struct front_lock *lock)
{
	for (int i = 0; i < LOCK_SPINS; i++) {
		uint32_t free_word = 0;

		if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_weak_explicit(&lock->word, &free_word, 1, memory_order_acquire,
							  memory_order_relaxed))
			return;
		__builtin_ia32_pause();
	}
	/* From here on we own it as "somebody sleeps": one wake too many at worst. */
	while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
		clock_wait((const uint32_t *)&lock->word, 2, 0, false);
}

void front_lock_wake(struct front_lock *lock)
{
	clock_wake((const uint32_t *)&lock->word, 1, false);
}
