/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h: instants and pauses in ns, CLOCK_MONOTONIC unless another clock is named. */
#ifndef DIVVY_FRONT_CLOCK_H
#define DIVVY_FRONT_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_now(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

static inline struct timespec clock_spec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000ull), .tv_nsec = (long)(ns % 1000000000ull)};
}

static inline void clock_pause(uint64_t ns)
{
	struct timespec time = clock_spec(ns);

	nanosleep(&time, NULL);
}

static inline void clock_sleep_until(uint64_t instant)
{
	struct timespec time = clock_spec(instant);

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

#endif
