/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front_walk.c: the memory hooks in any order, from several threads, with any of
 * the driver's calls failing: the ledger says what the driver holds, and the
 * driver never holds more than the quota.
 */
#include <pthread.h>

#include "walk.h"

static void random_walk(uint64_t seed)
{
	struct world w = { .state = seed, .base = 0x600000000, .contexts = true };
	CUcontext old = NULL;
	uint64_t base = fake_charged();

	(void)REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&old);
	for (int i = 0; i < 60000; i++) {
		fake_fail(i / 10000 % 2 ? 9 : 0);
		fake_queueing(i / 20000 % 2);
		walk_step(&w);
		if (i % 16 == 0) {
			fake_fail(0);
			front_pools_settle();
			/* a destroyed pool is held at its last figure until it is empty */
			CHECK(fake_charged() >= fake_held());
			CHECK(fake_held() <= LIMIT);
		}
	}
	fake_fail(0);
	fake_queueing(false);
	walk_clear(&w);
	(void)REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(old);
	CHECK(fake_charged() == base);
	BALANCED();
}

static CUcontext shared_context;

static void *walk_in_thread(void *arg)
{
	uintptr_t me = (uintptr_t)arg;
	struct world w = { .state = 0x1234567 * (me + 3), .base = 0x600000000 + me * 0x10000000 };

	(void)REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(shared_context);
	for (int i = 0; i < 40000; i++)
		walk_step(&w);
	walk_clear(&w);
	return NULL;
}

static void in_threads(void)
{
	pthread_t thread[4];
	uint64_t base = fake_charged();

	(void)REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&shared_context);
	(void)fake_most();
	for (uintptr_t i = 0; i < 4; i++)
		CHECK(pthread_create(&thread[i], NULL, walk_in_thread, (void *)i) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	CHECK(fake_most() <= LIMIT);
	CHECK(fake_charged() == base);
	BALANCED();
}

static void random_walks(void)
{
	for (uint64_t seed = 1; seed <= 8; seed++)
		random_walk(seed * 0x9e3779b97f4a7c15ull);
}

SCENARIO(random_walks)
SCENARIO(in_threads)

static const struct scenario scenarios[] = {
	{"any-order", run_random_walks},
	{"threads", run_in_threads},
};

RUN_SCENARIOS(scenarios)
