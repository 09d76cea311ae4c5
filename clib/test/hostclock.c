/* SPDX-License-Identifier: Apache-2.0 */
/* hostclock.c: see fakeclock.h. Threads as they are. */
#include "fakeclock.h"

#include <pthread.h>

#define THREADS 8

static pthread_t threads[THREADS];
static unsigned started;

void fakeclock_work(uint64_t ns)
{
	(void)ns;
}

uint64_t fakeclock_launch(void)
{
	return 0;
}

unsigned fakeclock_start(void *(*run)(void *), void *argument)
{
	CHECK(started < THREADS && pthread_create(&threads[started], NULL, run, argument) == 0);
	return started++;
}

void fakeclock_join(unsigned thread)
{
	CHECK(pthread_join(threads[thread], NULL) == 0);
}
