/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gates of a share of two cards (fakecard.h has a second one), by a clock of their
 * own: a lease, a backlog and an account for each, whichever thread launches on which.
 */
#include "crowd.h"
#include "fakeshare.h"
#include "memory.h"

#include <sys/wait.h>
#include <unistd.h>

#define FIRST_STREAM 3u
#define SECOND_STREAM FAKECARD_SECOND

static void on(unsigned card)
{
	fakecard_current = card;
}

static void both(bool gated)
{
	fakeshare_second();
	fakeshare_gate_of(0, gated);
	fakeshare_gate_of(1, gated);
}

static void lease_both(uint64_t end)
{
	fakeshare_lease_of(0, end);
	fakeshare_lease_of(1, end);
}

static void *on_second(void *ns)
{
	on(1);
	launches(1, (uintptr_t)ns, SECOND_STREAM);
	return NULL;
}

/* A lease of one card lets nothing go on the other. */
static void waits_for_the_card_s_own_lease(void)
{
	unsigned thread;

	both(true);
	fakeshare_lease_of(0, clock_now() + LONG_NS);
	thread = fakeclock_start(on_second, (void *)(uintptr_t)(10 * MS));
	launches(20, 100 * US, FIRST_STREAM);
	WITHIN(fakeshare.wantsof[1] == 1, 5 * MS);
	clock_pause(20 * MS);
	CHECK(fakecard_kernels() == 20 && fakecard_second_kernels() == 0 && fakeshare.wantsof[0] == 0);
	CHECK(SAID_OF(0, waitns) == 0);
	fakeshare_lease_of(1, clock_now() + LONG_NS);
	fakeclock_join(thread);
	CHECK(fakecard_second_kernels() == 1 && SAID_OF(1, waitns) >= 20 * MS);
	synchronise();
	WITHIN(fakeshare.backsof[0] == 1 && fakeshare.backsof[1] == 1, 50 * MS);
	CHECK(near(SAID_OF(0, busyns), 2 * MS, 20) && near(SAID_OF(1, busyns), 10 * MS, 10));
}

/* A card that is not gated does not wait because another is. */
/* All but what is left of a step. */
static bool counted(uint64_t launches, uint64_t all)
{
	return launches <= all && launches + FRONT_LAUNCH_STEP > all;
}

static void gates_one_and_not_the_other(void)
{
	both(false);
	fakeshare_gate_of(1, true);
	launches(200, 10 * US, FIRST_STREAM);
	CHECK(fakecard_kernels() == 200 && fakeshare.wants == 0);
	fakeshare_lease_of(1, clock_now() + LONG_NS);
	on(1);
	launches(200, 10 * US, SECOND_STREAM);
	CHECK(fakecard_second_kernels() == 200);
	CHECK(counted(SAID_OF(0, launches), 200) && counted(SAID_OF(1, launches), 200));
	on(0);
}

/* One thread launches on both by turns: each card is charged its own work. */
static void accounts_a_thread_on_both(void)
{
	both(true);
	lease_both(clock_now() + LONG_NS);
	for (int i = 0; i < 200; i++) {
		on(0);
		launches(3, 50 * US, FIRST_STREAM);
		on(1);
		launches(1, 200 * US, SECOND_STREAM);
		if (i % 20 == 19)
			synchronise();
	}
	on(0);
	synchronise();
	clock_pause(60 * MS);
	synchronise();
	WITHIN(SAID_OF(0, inflightns) == 0 && SAID_OF(1, inflightns) == 0, 200 * MS);
	CHECK(near(SAID_OF(0, busyns), fakecard_busy(), fakeclock_steady() ? 10 : 50));
	CHECK(near(SAID_OF(1, busyns), fakecard_second_busy(), fakeclock_steady() ? 10 : 50));
	CHECK(counted(SAID_OF(0, launches), 600) && counted(SAID_OF(1, launches), 200));
	CHECK(fakecard.misplaced == 0);
	WITHIN(fakeshare.backsof[0] > 0 && fakeshare.backsof[1] > 0, 50 * MS);
}

/* The same on streams without a name: what is open on the other card is not closed from here. */
static void leaves_the_other_card_s_default_stream_alone(void)
{
	both(true);
	lease_both(clock_now() + LONG_NS);
	for (int i = 0; i < 100; i++) {
		on(0);
		launches(2, 50 * US, 0);
		on(1);
		launches(2, 80 * US, 0);
		synchronise();
	}
	on(0);
	WITHIN(SAID_OF(0, inflightns) == 0 && SAID_OF(1, inflightns) == 0, 400 * MS);
	CHECK(fakecard.misplaced == 0);
	CHECK(near(SAID_OF(0, busyns), fakecard_busy(), fakeclock_steady() ? 15 : 60));
	CHECK(near(SAID_OF(1, busyns), fakecard_second_busy(), fakeclock_steady() ? 15 : 60));
}

/* A card with a full backlog keeps nobody from the other. */
static void keeps_a_backlog_for_each(void)
{
	uint64_t begun;

	both(true);
	lease_both(clock_now() + LONG_NS);
	on(1);
	launches(5, 100 * US, SECOND_STREAM);
	synchronise();
	on(0);
	launches(1, 500 * MS, FIRST_STREAM);
	on(1);
	begun = clock_now();
	launches(10, 100 * US, SECOND_STREAM);
	CHECK(!fakeclock_steady() || clock_now() - begun < 5 * MS);
	CHECK(fakecard_second_kernels() == 15 && fakecard_kernels() == 1);
	on(0);
}

/* A capture anywhere forbids to ask about any card. */
static void minds_a_capture_on_the_other_card(void)
{
	CUgraph graph = NULL;

	both(true);
	lease_both(clock_now() + LONG_NS);
	on(1);
	launches(5, 100 * US, SECOND_STREAM);
	on(0);
	CHECK(hook_cuStreamBeginCapture_v2(SYM_cuStreamBeginCapture_v2, (CUstream)(uintptr_t)FIRST_STREAM,
					   CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
	launches(3, 100 * US, FIRST_STREAM);
	on(1);
	launches(20, 100 * US, SECOND_STREAM);
	clock_pause(30 * MS);
	CHECK(fakecard_second_kernels() == 25 && fakecard_kernels() == 0);
	on(0);
	CHECK(hook_cuStreamEndCapture(SYM_cuStreamEndCapture, (CUstream)(uintptr_t)FIRST_STREAM, &graph) == CUDA_SUCCESS);
	CHECK(front_gate_sight(0).captures == 0);
	launches(3, 100 * US, FIRST_STREAM);
	synchronise();
	WITHIN(SAID_OF(0, inflightns) == 0 && SAID_OF(1, inflightns) == 0, 100 * MS);
}

/* In a forked child a gate has forgotten which it is, and does not take itself for the first. */
static void knows_its_slot_in_a_forked_child(void)
{
	int status;
	pid_t pid;

	both(true);
	lease_both(clock_now() + LONG_NS);
	on(1);
	launches(10, 20 * US, SECOND_STREAM);
	pid = fork();
	if (pid == 0) {
		fakeclock_forked();
		fakeshare.pages.client = (struct divvy_client){.turn = 1}; /* it attaches itself */
		fakeshare.wantsof[0] = 0;
		lease_both(0);
		fakeshare_gate_of(1, false);
		launches(10, 20 * US, SECOND_STREAM);
		fakeshare_gate_of(1, true);
		fakeshare_lease_of(1, clock_now() + LONG_NS);
		launches(200, 20 * US, SECOND_STREAM);
		front_gate_waited(front_gate_waits());
		CHECK(SAID_OF(1, busyns) + SAID_OF(1, inflightns) > 0 && SAID_OF(0, busyns) + SAID_OF(0, inflightns) == 0);
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	on(0);
}

static const struct scenario scenarios[] = {
	{"waits for the card's own lease", waits_for_the_card_s_own_lease},
	{"gates one and not the other", gates_one_and_not_the_other},
	{"accounts a thread on both", accounts_a_thread_on_both},
	{"leaves the other card's default stream alone", leaves_the_other_card_s_default_stream_alone},
	{"keeps a backlog for each", keeps_a_backlog_for_each},
	{"minds a capture on the other card", minds_a_capture_on_the_other_card},
	{"knows its slot in a forked child", knows_its_slot_in_a_forked_child},
};

RUN_SCHEDULES(scenarios, 16)
