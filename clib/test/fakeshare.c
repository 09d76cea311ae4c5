/* SPDX-License-Identifier: Apache-2.0 */
#include "fakeshare.h"

#include <errno.h>

#include "memory.h"

struct fakeshare fakeshare = {
	.live = 1,
	.pages.limits = {
		.card[0] = {.backlogns = FAKESHARE_BACKLOG_NS, .corespercent = FAKESHARE_PERCENT},
		.card[1] = {.backlogns = FAKESHARE_BACKLOG_NS, .corespercent = FAKESHARE_PERCENT},
		.clients = 1,
		.cards = 1,
		.policy = DIVVY_POLICY_FIXED,
	},
};

/* -- a ledger without an agent --------------------------------------------- */

struct front_pages *front_pages_now = &fakeshare.pages;
uint32_t *front_live = &fakeshare.live;
const uint32_t *front_gated = &fakeshare.pages.limits.card[0].gated;
__thread struct front_thread front_thread = FRONT_THREAD_NEW;

int front_tell(struct divvy_message *message)
{
	if (fakeshare.away)
		return -ENOTCONN;
	CHECK(message->slot < fakeshare_cards());
	if (fakeshare.stopped)
		return 0;
	if (message->type == DIVVY_LEASE_WANT) {
		fakeshare.wants++;
		fakeshare.wantsof[message->slot]++;
	} else {
		CHECK(message->type == DIVVY_LEASE_BACK);
		fakeshare.backat = clock_now();
		fakeshare.backns = __atomic_load_n(&fakeshare.pages.client.card[0].busyns, __ATOMIC_RELAXED);
		fakeshare.backs++;
		fakeshare.backsof[message->slot]++;
	}
	return 0;
}

bool front_there(void)
{
	fakeshare.doubts++;
	if (!fakeshare.stopped)
		return true;
	clock_pause(FAKESHARE_SIGN_NS);
	fakeshare.away = true;
	return false;
}

void front_watch(void) {}

const uint32_t front_several = 1;

unsigned fakeshare_cards(void)
{
	return front_pages_now->limits.cards;
}

void fakeshare_second(void)
{
	fakeshare.pages.limits.cards = 2;
	fakecard.two = true;
	front_gated = &front_several;
}

unsigned front_cards(void)
{
	return fakeshare_cards();
}

int front_current_slot(void)
{
	return (int)fakecard_current;
}

int front_stream_slot(CUstream stream)
{
	(void)stream;
	return (int)fakecard_current;
}

void front_count_launches(int slot, uint64_t launches)
{
	__atomic_fetch_add(&fakeshare.pages.client.card[slot].launches, launches, __ATOMIC_RELAXED);
}

CUresult front_graph_launching(CUgraphExec graph, struct front_graph_launch *launch)
{
	(void)graph, (void)launch;
	return CUDA_SUCCESS;
}

void front_graph_launched(const struct front_graph_launch *launch)
{
	(void)launch;
}

/* -- its agent -------------------------------------------------------------- */

static void set_lease(struct divvy_limits_card *limits, uint64_t end)
{
	__atomic_store_n(&limits->leaseendns, end, __ATOMIC_RELEASE);
	__atomic_fetch_add(&limits->leaseword, 1, __ATOMIC_RELEASE);
	clock_wake(&limits->leaseword, INT32_MAX, true);
}

void fakeshare_lease_of(unsigned slot, uint64_t end)
{
	set_lease(&__atomic_load_n(&front_pages_now, __ATOMIC_ACQUIRE)->limits.card[slot], end);
}

void fakeshare_lease(uint64_t end)
{
	fakeshare_lease_of(0, end);
}

void fakeshare_move(struct front_pages *fresh)
{
	struct front_pages *old = front_pages_now;

	fresh->limits = old->limits;
	fresh->limits.card[0].leaseendns = 0;
	__atomic_store_n(&front_pages_now, fresh, __ATOMIC_RELEASE);
	set_lease(&old->limits.card[0], 0);
}

void fakeshare_gate_of(unsigned slot, bool gated)
{
	__atomic_store_n(&fakeshare.pages.limits.card[slot].gated, gated, __ATOMIC_RELEASE);
	fakeshare_lease_of(slot, 0);
}

void fakeshare_gate(bool gated)
{
	fakeshare_gate_of(0, gated);
}

/* -- a program --------------------------------------------------------------- */

CUresult launch(uint64_t ns, unsigned stream)
{
	CUfunction function = (CUfunction)(uintptr_t)ns;
	CUstream on = (CUstream)(uintptr_t)stream;

	/* as front_jumps.S does */
	if (!front_launched())
		return REAL(SYM_cuLaunchKernel, cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, on, NULL, NULL);
	return hook_cuLaunchKernel(SYM_cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, on, NULL, NULL);
}

void launches(unsigned count, uint64_t ns, unsigned stream)
{
	while (count-- > 0)
		CHECK(launch(ns, stream) == CUDA_SUCCESS);
}

void synchronise(void)
{
	uint64_t end = fakecard_end();
	uint32_t watched = front_gate_waits();

	while (clock_now() < end)
		clock_sleep_until(end);
	front_gate_waited(watched);
}

bool near(uint64_t one, uint64_t other, unsigned percent)
{
	uint64_t apart = one > other ? one - other : other - one;

	if (apart * 100 <= other * percent)
		return true;
	fprintf(stderr, "%llu is not near %llu\n", (unsigned long long)one, (unsigned long long)other);
	return false;
}
