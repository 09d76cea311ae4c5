/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only the host's clock and threads that run at once can show: that clock.c
 * waits and wakes, and that a crowd at the gate gets through. Nothing here depends
 * on how long anything takes.
 */
#include "crowd.h"
#include "fakeclock.h"

static uint32_t word;

static void *await_word(void *unused)
{
	while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == 0)
		clock_wait(&word, 0, 0, false);
	return unused;
}

static void waits_by_the_host(void)
{
	uint64_t start = clock_now();
	unsigned thread;

	clock_pause(1000000);
	CHECK(clock_now() >= start + 1000000);
	clock_sleep_until(start + 3000000);
	CHECK(clock_now() >= start + 3000000);
	clock_sleep_until(start);
	clock_wait(&word, 0, 1000000, true);
	clock_wait(&word, 1, 0, true); /* it is 0: no wait */
	thread = fakeclock_start(await_word, NULL);
	clock_pause(1000000); /* so that it sleeps by then, mostly */
	__atomic_store_n(&word, 1, __ATOMIC_RELEASE);
	clock_wake(&word, 1, false);
	fakeclock_join(thread);
}

static const struct scenario scenarios[] = {
	{"waits by the host's clock", waits_by_the_host},
	{"a crowd hammers", crowd_hammers},
	{"a crowd leaves", crowd_leaves},
};

RUN_SCENARIOS(scenarios)
