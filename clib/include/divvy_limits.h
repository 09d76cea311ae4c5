/* SPDX-License-Identifier: Apache-2.0 */
/*
 * divvy_limits.h: what cuCtxSetLimit costs on a simulated card, one rule for
 * the stand-in driver and for the front library.
 *
 * A context's base cost covers the default heap for malloc in kernels (8 MiB),
 * the default printf fifo (1 MiB) and a stack of 1024 bytes per thread. Above
 * its default, each limit costs the difference; the stack is held for every
 * thread that can be resident, 2048 on each multiprocessor. Totals are rounded
 * up to 512 bytes. Other limits cost nothing.
 */
#ifndef DIVVY_LIMITS_H
#define DIVVY_LIMITS_H

#include <stdint.h>

/* the numbers of CUlimit */
#define DIVVY_LIMIT_STACK 0
#define DIVVY_LIMIT_PRINTF 1
#define DIVVY_LIMIT_HEAP 2

#define DIVVY_LIMIT_STACK_DEFAULT 1024ull
#define DIVVY_LIMIT_PRINTF_DEFAULT (1ull << 20)
#define DIVVY_LIMIT_HEAP_DEFAULT (8ull << 20)
#define DIVVY_LIMIT_THREADS_PER_MULTIPROCESSOR 2048ull

/* UINT64_MAX: more than can be counted, which no card has */
static inline uint64_t divvy_limit_bytes(int limit, uint64_t value, uint32_t multiprocessors)
{
	uint64_t base = limit == DIVVY_LIMIT_STACK    ? DIVVY_LIMIT_STACK_DEFAULT
			: limit == DIVVY_LIMIT_PRINTF ? DIVVY_LIMIT_PRINTF_DEFAULT
			: limit == DIVVY_LIMIT_HEAP   ? DIVVY_LIMIT_HEAP_DEFAULT
						      : UINT64_MAX;
	uint64_t times = limit == DIVVY_LIMIT_STACK ? multiprocessors * DIVVY_LIMIT_THREADS_PER_MULTIPROCESSOR : 1;
	uint64_t bytes = 0;

	if (value <= base)
		return 0;
	if (__builtin_mul_overflow(value - base, times, &bytes) || bytes > UINT64_MAX - 511)
		return UINT64_MAX;
	return (bytes + 511) / 512 * 512;
}

#endif
