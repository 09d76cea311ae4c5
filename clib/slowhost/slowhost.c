/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slowhost: preloaded into a program, it lets its threads wake from sleeps and futex
 * waits as late as on a slow host, so that tests and benches meet one on a fast machine.
 * DIVVY_SLOW_HOST=USUAL:RARE:MOST:LAUNCH, in ns, says how late (internal/lateness):
 * half of them later than USUAL, one in a thousand later than RARE, none later than
 * MOST. What a launch costs, LAUNCH, is the simulated driver's to waste.
 *
 * It takes the place of syscall, nanosleep and clock_nanosleep of the C library, which
 * is all that the front library and the simulated driver sleep by.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define USUAL 0.5 /* the part of sleepers that are later than that */
#define RARE 0.001
#define SECOND_NS 1000000000u

static struct {
	double usual;
	double rare;
	double most;
} host;
static long (*real_syscall)(long, ...);
static int (*real_sleep)(clockid_t, int, const struct timespec *, struct timespec *);

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * SECOND_NS + (uint64_t)time.tv_nsec;
}

__attribute__((constructor)) static void begin(void)
{
	const char *text = getenv("DIVVY_SLOW_HOST");

	real_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	real_sleep = (int (*)(clockid_t, int, const struct timespec *, struct timespec *))dlsym(RTLD_NEXT, "clock_nanosleep");
	if (text == NULL || sscanf(text, "%lf:%lf:%lf", &host.usual, &host.rare, &host.most) != 3)
		host.most = 0;
}

/* From 0, not included, to 1. */
static double draw(void)
{
	static __thread uint64_t dice;

	if (dice == 0)
		dice = (now() ^ (uint64_t)(uintptr_t)&dice) | 1;
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return (double)((dice >> 11) + 1) / 9007199254740992.0;
}

static uint64_t late(void)
{
	double part = draw(); /* of all sleepers are later */

	if (part >= USUAL)
		return (uint64_t)(host.usual * (1 - part) / (1 - USUAL));
	if (part >= RARE && host.usual > 0)
		return (uint64_t)(host.usual * pow(host.rare / host.usual, log(USUAL / part) / log(USUAL / RARE)));
	if (part >= RARE)
		return (uint64_t)(host.rare * (USUAL - part) / (USUAL - RARE));
	return (uint64_t)(host.rare + (host.most - host.rare) * (1 - part / RARE));
}

/* The thread would have woken now. */
static void oversleep(void)
{
	int before = errno;
	uint64_t until;

	if (host.most > 0) {
		until = now() + late();

		const struct timespec time = {(time_t)(until / SECOND_NS), (long)(until % SECOND_NS)};

		real_sleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
	}
	errno = before;
}

EXPORT long syscall(long number, ...)
{
	long argument[6], result;
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		argument[i] = va_arg(list, long);
	va_end(list);
	result = real_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
	if (number == SYS_futex && (result == 0 || errno == ETIMEDOUT)) {
		long operation = argument[1] & FUTEX_CMD_MASK;

		if (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET)
			oversleep();
	}
	return result;
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
	int result = real_sleep(clock, flags, time, left);

	oversleep();
	return result;
}

EXPORT int nanosleep(const struct timespec *time, struct timespec *left)
{
	int result = clock_nanosleep(CLOCK_REALTIME, 0, time, left);

	errno = result;
	return result == 0 ? 0 : -1;
}
