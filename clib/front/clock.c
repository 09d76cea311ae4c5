/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull

static struct timespec spec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS)};
}

uint64_t clock_read(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

uint64_t clock_now(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

void clock_pause(uint64_t ns)
{
	struct timespec time = spec(ns);

	nanosleep(&time, NULL);
}

void clock_sleep_until(uint64_t instant)
{
	struct timespec time = spec(instant);

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

void clock_wait(const uint32_t *word, uint32_t value, uint64_t ns, bool shared)
{
	struct timespec time = spec(ns);

	syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, value, ns == 0 ? NULL : &time, NULL, 0);
}

void clock_wake(const uint32_t *word, int most, bool shared)
{
	syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
}
