/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h: instants, pauses and waits, in ns, CLOCK_MONOTONIC unless another clock is
 * named. The gate and the locks wait nowhere else, so that tests bring a clock of their
 * own (clib/test/fakeclock.h).
 */
#ifndef DIVVY_FRONT_CLOCK_H
#define DIVVY_FRONT_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#pragma GCC visibility push(hidden)

uint64_t clock_read(clockid_t clock);
uint64_t clock_now(void);
void clock_pause(uint64_t ns);
void clock_sleep_until(uint64_t instant);

/*
 * Waits on a futex while *word is value, at most ns, 0: without end; shared: between
 * processes. It may return early. clock_wake wakes so many of those who wait.
 */
void clock_wait(const uint32_t *word, uint32_t value, uint64_t ns, bool shared);
void clock_wake(const uint32_t *word, int most, bool shared);

#pragma GCC visibility pop

#endif
