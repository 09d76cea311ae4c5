/* SPDX-License-Identifier: Apache-2.0 */
#include "crowd.h"

#include "fakeshare.h"
#include "memory.h"

#define FLIPS 30
#define HAMMERS 3u

static _Atomic bool over;

static void *flip(void *unused)
{
	struct divvy_limits_card *limits = &fakeshare.pages.limits.card[0];

	for (int i = 0; i < FLIPS; i++) {
		fakeshare_lease(i % 3 == 0 ? 0 : clock_now() + 10 * MS);
		if (i % 10 == 9)
			__atomic_store_n(&limits->gated, i % 20 == 9 ? 0 : 1, __ATOMIC_RELEASE);
		clock_pause(5 * MS);
	}
	__atomic_store_n(&limits->gated, 0, __ATOMIC_RELEASE);
	fakeshare_lease(0);
	over = true;
	return unused;
}

static void *hammer(void *stream)
{
	for (uint64_t i = 0; !over; i++) {
		launches(1, (5 + i % 7) * US, (unsigned)(uintptr_t)stream + i % 2);
		if (i % 50 == 0)
			synchronise();
	}
	return NULL;
}

void crowd_hammers(void)
{
	unsigned threads[HAMMERS], flipper;

	fakeshare_gate(true);
	for (uintptr_t i = 0; i < HAMMERS; i++)
		threads[i] = fakeclock_start(hammer, (void *)(3 + i));
	flipper = fakeclock_start(flip, NULL);
	for (unsigned i = 0; i < HAMMERS; i++)
		fakeclock_join(threads[i]);
	fakeclock_join(flipper);
	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(1, 5 * US, 3);
	synchronise();
	WITHIN(SAID(inflightns) == 0 && fakeshare.backs > 0, 1000 * MS);
}

static void *churn_streams(void *unused)
{
	for (unsigned i = 4; i < 12; i++) {
		launches(30, 3 * US, i);
		CHECK(hook_cuStreamDestroy_v2(SYM_cuStreamDestroy_v2, (CUstream)(uintptr_t)i) == CUDA_SUCCESS);
	}
	return unused;
}

void crowd_leaves(void)
{
	unsigned thread;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	thread = fakeclock_start(churn_streams, NULL);
	for (int i = 0; i < 50; i++) {
		launches(20, 5 * US, 3);
		if (i % 10 == 0)
			front_gate_forget((CUcontext)0x1000);
	}
	fakeclock_join(thread);
	front_gate_forget(NULL);
	CHECK(fakecard.events == 0);
	WITHIN(SAID(inflightns) == 0 && fakeshare.backs > 0, 1000 * MS);
}
