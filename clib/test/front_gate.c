/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate over a card of arithmetic (fakecard.h), with an agent that does as it is
 * told (fakeshare.h), by a clock of its own (fakeclock.h). A host that pauses may make
 * it less exact only where fakeclock_steady is asked.
 */
#include "crowd.h"
#include "fakeshare.h"
#include "memory.h"

#define LAUNCHING_NS (30 * US) /* a look at what has ended and a launch take no longer on a steady host */

static void *one_launch(void *ns)
{
	launches(1, (uintptr_t)ns, 3);
	return NULL;
}

static unsigned start_one(uint64_t ns)
{
	return fakeclock_start(one_launch, (void *)(uintptr_t)ns);
}

/* -- leases ----------------------------------------------------------------- */

static void waits_for_a_lease(void)
{
	uint64_t due, granted;
	unsigned one, other;

	fakeshare_gate(true);
	one = start_one(10 * MS);
	WITHIN(fakeshare.wants == 1, 1 * MS);
	other = start_one(9 * MS);
	clock_pause(1 * MS);
	CHECK(fakecard_kernels() == 0 && fakeshare.wants == 1);
	fakeshare_lease(0); /* another value of the word: it asks again */
	WITHIN(fakeshare.wants == 2, 1 * MS);
	CHECK(fakecard_kernels() == 0 && fakeshare.backs == 0);
	due = clock_now();
	fakeshare.pages.limits.card[0].leasebeginns = due;
	clock_pause(3 * MS); /* the agent is late */
	granted = clock_now();
	fakeshare_lease(due + 1000 * MS);
	fakeclock_join(one);
	fakeclock_join(other);
	CHECK(fakecard_kernels() == 2 && SAID(waitns) > SAID(latens));
	CHECK(SAID(latens) >= granted - due && (!fakeclock_steady() || near(SAID(latens), 3 * MS, 5))); /* of the lease, not of each who waited */
	WITHIN(fakeshare.backs == 1, 25 * MS);
	CHECK(SAID(inflightns) == 0 && near(SAID(busyns), 19 * MS, fakeclock_steady() ? 1 : 20) && fakeshare.backns == SAID(busyns));
	clock_pause(1000 * MS);
	CHECK(fakeshare.backs == 1); /* once */
}

static void follows_new_pages(void)
{
	static struct front_pages fresh;
	unsigned thread;

	fakeshare_gate(true);
	thread = start_one(10 * MS);
	WITHIN(fakeshare.wants == 1, 1 * MS);
	fakeshare_move(&fresh);
	WITHIN(fakeshare.wants == 2, 1 * MS);
	CHECK(fakecard_kernels() == 0);
	fakeshare_lease(clock_now() + LONG_NS);
	fakeclock_join(thread);
	WITHIN(fakeshare.backs == 1, 15 * MS);
	CHECK(near(SAID(busyns), 10 * MS, 1) && SAID(inflightns) == 0);
}

static void goes_when_no_longer_gated(void)
{
	uint64_t start;
	unsigned thread;

	fakeshare_gate(true);
	thread = start_one(1 * MS);
	WITHIN(fakeshare.wants == 1, 1 * MS);
	start = clock_now();
	fakeshare_gate(false);
	fakeclock_join(thread);
	CHECK(fakecard_kernels() == 1 && (!fakeclock_steady() || clock_now() - start < 1 * MS));
}

static void *many_launches(void *ns)
{
	launches(1000, (uintptr_t)ns, 3);
	return NULL;
}

/*
 * A lease and kernels of so many ns, which are known: it is filled, and one of them
 * outlasts it. Where the host pauses between asking and launching it may be a burst.
 */
static void fill(uint64_t ns)
{
	uint64_t burst = ns < BURST_NS ? BURST_NS / ns : 1, end, kernels;
	unsigned thread;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(20, ns, 3);
	synchronise();
	end = clock_now() + 6 * MS;
	fakeshare_lease(end);
	thread = fakeclock_start(many_launches, (void *)(uintptr_t)ns);
	WITHIN(fakeshare.wants > 0, 6 * MS);
	if (fakeclock_steady())
		CHECK(clock_now() < end - 500 * US); /* so that the next one may come in time */
	clock_sleep_until(end);
	kernels = fakecard_kernels() + (fakeclock_steady() ? 0 : burst);
	if (fakeclock_steady())
		CHECK(fakecard_end() > end - ns && fakecard_end() < end + ns + LAUNCHING_NS);
	clock_pause(20 * MS);
	CHECK(fakecard_kernels() <= kernels);
	fakeshare_lease(0);
	clock_pause(20 * MS);
	CHECK(fakecard_kernels() <= kernels);
	fakeshare_gate(false);
	fakeclock_join(thread);
}

static void *launch_and_wait(void *ns)
{
	while (fakeshare.wants == 0) {
		launches(1, (uintptr_t)ns, 3);
		synchronise();
	}
	return NULL;
}

/* One that waits for what it launches never comes to where its lease does not last. */
static void asks_for_the_next_lease_in_time(void)
{
	uint64_t end;
	unsigned thread;

	fakeshare_gate(true);
	end = clock_now() + 6 * MS;
	fakeshare_lease(end);
	thread = fakeclock_start(launch_and_wait, (void *)(uintptr_t)(50 * US));
	WITHIN(fakeshare.wants > 0, 100 * MS);
	CHECK(!fakeclock_steady() || (clock_now() > end - 1 * MS && clock_now() < end - 500 * US));
	fakeshare_lease(clock_now() + LONG_NS);
	fakeclock_join(thread);
}

static void fills_a_lease_with_long_kernels(void)
{
	fill(700 * US);
}

static void fills_a_lease_with_short_kernels(void)
{
	fill(10 * US);
}

/* Whenever it looks, also where one of them ends meanwhile. */
static void knows_when_its_work_will_have_run(void)
{
	fakecard.asklag = 10 * US;
	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(10, 300 * US, 3);
	synchronise();
	for (int i = 0; i < 200; i++) {
		uint64_t start = clock_now(), end;

		launches(3, 300 * US, 3);
		end = fakecard_end();
		while (clock_now() < end) {
			front_gate_waited(0);
			CHECK(!fakeclock_steady() || SAID(inflightns) == 0 || near(SAID(drainns) - start, end - start, 5));
		}
	}
}

/*
 * What runs since a pause began when it was launched, not when the one before had
 * ended; also where the launch returns late and the monitor has closed its burst.
 */
static void pause_and_launch(uint64_t lag)
{
	uint64_t start;
	unsigned thread;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(3, 20 * MS, 3);
	synchronise();
	clock_pause(500 * MS);
	fakeshare.backs = 0;
	fakecard.lag = lag;
	start = clock_now();
	fakeshare_lease(start + 15 * MS);
	launches(1, 20 * MS, 3);
	clock_sleep_until(start + 5 * MS);
	thread = start_one(1 * MS);
	clock_sleep_until(start + 16 * MS);
	CHECK(fakecard_kernels() == 4 && SAID(inflightns) > 0 && fakeshare.backs == 0);
	fakeshare_lease(clock_now() + LONG_NS);
	fakeclock_join(thread);
	CHECK(fakecard_kernels() == 5);
}

static void knows_what_runs_after_a_pause(void)
{
	pause_and_launch(0);
}

static void knows_what_runs_while_its_launch_does_not_return(void)
{
	pause_and_launch(2 * MS);
}

/* Given back so many ns after it had ended: idle by what the monitor saw, which looks every 400 us at least. */
static bool is_soon(uint64_t ns)
{
	return ns >= GATE_IDLE_NS && ns < 4 * GATE_IDLE_NS;
}

static void gives_back_what_it_leaves_idle(void)
{
	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	for (unsigned i = 1; i <= 2; i++) {
		launches(30, 300 * US, 3);
		if (i == 2)
			synchronise(); /* else nobody but the monitor sees it end */
		WITHIN(SAID(inflightns) == 0 && fakeshare.backns == SAID(busyns), 50 * MS);
		CHECK(!fakeclock_steady() || (fakeshare.backs == i && is_soon(fakeshare.backat - fakecard_end())));
	}
}

/* A gated share, and a kernel of 1 ms that has been measured under a long lease. */
static void has_a_measured_kernel(void)
{
	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(20, 1 * MS, 3);
	synchronise();
}

/* Launches it for so long, and has the share's part of the card, within so many percent. */
static void keeps_its_rate(uint64_t ns, unsigned within)
{
	uint64_t start = clock_now(), before = fakecard_busy();

	while (clock_now() < start + ns)
		launches(1, 1 * MS, 3);
	CHECK(near(fakecard_busy() - before, ns * FAKESHARE_PERCENT / 100, within));
}

static void keeps_its_rate_without_an_agent(void)
{
	has_a_measured_kernel();
	fakeshare.away = true;
	fakeshare_lease(0);
	launches(1, 1 * MS, 3);
	keeps_its_rate(1000 * MS, 2);
}

/*
 * What the agent let it keep in flight was for the leases that it gave: without them a program
 * that wakes late launches at once what it has saved.
 */
static void keeps_its_rate_on_a_starved_host(void)
{
	has_a_measured_kernel();
	fakeshare.pages.limits.card[0].backlogns = 200 * US;
	fakeshare.away = true;
	fakeshare_lease(0);
	launches(1, 1 * MS, 3);
	fakeclock_host((struct fakeclock_host){.usual = 10 * MS, .rare = 25 * MS, .most = 30 * MS});
	keeps_its_rate(3000 * MS, 5);
}

/* Its socket is open, and nothing comes: after a second it goes on by itself, until there are other pages. */
static void keeps_its_rate_beside_a_stopped_agent(void)
{
	static struct front_pages fresh;
	uint64_t start, before;

	has_a_measured_kernel();
	fakeshare.stopped = true;
	fakeshare_lease(0);
	start = clock_now();
	launches(1, 1 * MS, 3);
	CHECK(clock_now() - start < 1200 * MS && fakeshare.doubts == 1);
	keeps_its_rate(1000 * MS, 2);
	synchronise();
	/* it goes on: nothing without a lease from then on */
	fakeshare.stopped = fakeshare.away = false;
	fakeshare_move(&fresh);
	fakeshare_lease(clock_now() + 50 * MS);
	before = fakecard_busy();
	start = clock_now();
	launches(40, 1 * MS, 3);
	CHECK(fakecard_busy() - before >= 38 * MS && clock_now() - start < 50 * MS);
	synchronise();
}

/* An agent that is there and gives no lease: nothing goes, and it is asked ever less often. */
static void waits_for_an_agent_that_is_there(void)
{
	unsigned thread;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(1, 1 * MS, 3);
	synchronise();
	fakeshare_lease(0);
	thread = start_one(1 * MS);
	clock_pause(30000 * MS);
	CHECK(fakecard_kernels() == 1 && fakeshare.doubts >= 5 && fakeshare.doubts <= 7);
	fakeshare_lease(clock_now() + LONG_NS);
	fakeclock_join(thread);
	CHECK(fakecard_kernels() == 2);
}

/* -- the backlog ------------------------------------------------------------ */

/* Deeper by how late the process wakes. */
static void keeps_a_bounded_backlog(void)
{
	uint64_t most = 0;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	for (int i = 0; i < 100; i++) {
		uint64_t now, end;

		launches(1, 700 * US, 3);
		now = clock_now();
		end = fakecard_end();
		if (end > now && end - now > most)
			most = end - now;
	}
	CHECK(most > FAKESHARE_BACKLOG_NS && most < GATE_BACKLOG_NS + 700 * US);
	CHECK(!fakeclock_steady() || most < FAKESHARE_BACKLOG_NS + 800 * US);
	synchronise();
	WITHIN(fakeshare.backs == 1, 5 * MS);
	CHECK(near(SAID(busyns), fakecard_busy(), 1));
}

/* Work in flight that waits for work not yet launched holds nobody up for good. */
static void lets_a_tangle_go(void)
{
	uint64_t start;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(12, 1 * MS, 3);
	start = clock_now();
	pthread_mutex_lock(&fakecard.mutex);
	fakecard.end = fakecard.streamend[0][3] = start + LONG_NS; /* for all that anybody knows */
	pthread_mutex_unlock(&fakecard.mutex);
	launches(12, 1 * MS, 3);
	CHECK(clock_now() - start < 12 * 21 * MS); /* 20 ms for each, at most */
}

/* The same of one that was never measured, of which nobody knows that a lease will see its end. */
static void lets_a_tangle_of_unknown_ones_go(void)
{
	uint64_t start;
	unsigned thread;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(1, LONG_NS, 3);
	clock_pause(100 * MS);
	start = clock_now();
	fakeshare_lease(start + 10 * MS);
	thread = start_one(1 * MS);
	while (fakecard_kernels() < 2 && clock_now() - start < 3000 * MS) {
		clock_pause(5 * MS);
		CHECK(fakecard_kernels() < 2 || clock_now() - start > 1000 * MS);
		fakeshare_lease(clock_now() + 10 * MS);
	}
	CHECK(fakecard_kernels() == 2);
	fakeshare_gate(false);
	fakeclock_join(thread);
}

/* One that is known to take long keeps the next one back, however many leases pass meanwhile. */
static void lets_no_long_kernel_pile_up(void)
{
	uint64_t start;
	unsigned thread;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	for (int i = 0; i < 12; i++)
		launches(1, 3000 * MS, 3);
	synchronise();
	launches(1, 3000 * MS, 3);
	start = clock_now();
	fakeshare_lease(start + 10 * MS);
	thread = start_one(3000 * MS);
	while (clock_now() - start < 2800 * MS) {
		clock_pause(5 * MS);
		CHECK(fakecard_kernels() == 13);
		fakeshare_lease(clock_now() + 10 * MS);
	}
	fakeshare_gate(false);
	fakeclock_join(thread);
}

static void times_an_unknown_one_alone(void)
{
	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(2, 20 * MS, 3); /* the second not before the first has ended */
	CHECK(near(fakecard_busy() - SAID(busyns), 20 * MS, 1));
	synchronise();
	WITHIN(fakeshare.backs >= 1, 5 * MS);
	CHECK(near(SAID(busyns), 40 * MS, 1));
}

/* -- what it learns and charges --------------------------------------------- */

/* The calls last longer than the kernels: however often that is timed, none seems to take no time. */
static void takes_no_slow_launch_for_a_short_kernel(void)
{
	const struct estimate *estimate;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	fakecard.lag = 100 * US;
	launches(12, 50 * US, 3);
	synchronise();
	estimate = estimate_find(front_gate_sight(0).estimates,
				 estimate_key((void *)(uintptr_t)(50 * US), 1, 1, 1, 32, 1, 1, 0));
	CHECK(estimate != NULL);
	CHECK(estimate_high(estimate) >= 50 * US);
	CHECK(!fakeclock_steady() || SAID(busyns) < 3 * fakecard_busy());
	CHECK(!fakeclock_steady() || estimate_high(estimate) < 50 * US + 100 * US * 3 / 2 + LAUNCHING_NS);
}

/*
 * The host stops the thread in a first launch until the kernel has nearly ended, so that it
 * seems to have waited for the call: what is in flight would be 16 times as much.
 */
static void takes_no_stopped_thread_for_a_short_kernel(void)
{
	unsigned thread;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	fakecard.lag = 930 * US;
	launches(1, 1 * MS, 3);
	fakecard.lag = 0;
	thread = fakeclock_start(many_launches, (void *)(uintptr_t)(1 * MS));
	for (int i = 0; i < 20; i++) {
		clock_pause(500 * US);
		CHECK(fakecard_end() < clock_now() + GATE_BACKLOG_NS + 2 * MS);
	}
	fakeshare_gate(false);
	fakeclock_join(thread);
}

/* As over the null driver: it is learned of once, and launched in bursts then. */
static void learns_of_what_takes_no_time(void)
{
	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(6400, 0, 3);
	synchronise();
	CHECK(front_gate_sight(0).estimates->lessons > 0);
	CHECK(!fakeclock_steady() || front_gate_sight(0).estimates->lessons < 300);
}

/* Everything together is charged what the card did. */
static void accounts_patterns(void)
{
	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(500, 50 * US, 3);
	synchronise();
	for (int i = 0; i < 40; i++) {
		launches(1, 900 * US, 3);
		synchronise();
	}
	for (unsigned i = 0; i < 300; i++)
		launches(1, i % 2 ? 400 * US : 30 * US, 3 + i % 6);
	synchronise();
	for (uint64_t i = 0; i < 400; i++)
		launches(1, (10 + i % 20) * US, 4);
	WITHIN(SAID(inflightns) == 0, 50 * MS);
	CHECK(near(SAID(busyns), fakecard_busy(), fakeclock_steady() ? 1 : 10));
}

static void *share_of_work(void *stream)
{
	for (uint64_t i = 0; i < 300; i++)
		launches(1, (20 + i % 9 * 40) * US, (unsigned)(uintptr_t)stream);
	return NULL;
}

static void accounts_threads_side_by_side(void)
{
	unsigned threads[3];

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	for (uintptr_t i = 0; i < 3; i++)
		threads[i] = fakeclock_start(share_of_work, (void *)(3 + i));
	for (unsigned i = 0; i < 3; i++)
		fakeclock_join(threads[i]);
	WITHIN(SAID(inflightns) == 0, 50 * MS);
	CHECK(near(SAID(busyns), fakecard_busy(), fakeclock_steady() ? 1 : 10));
}

/* A launch now and then: the time between them is not charged. */
static void does_not_charge_pauses(void)
{
	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	for (int i = 0; i < 60; i++) {
		launches(1, 20 * US, 3);
		clock_pause(1 * MS);
	}
	WITHIN(SAID(inflightns) == 0 && fakeshare.backs > 0, 5 * MS);
	CHECK(near(SAID(busyns), fakecard_busy(), 10));
}

/* Where calls wait for their kernels, and these become longer or shorter, it is learned before long. */
static void learns_of_calls_that_wait(void)
{
	static const uint64_t lengths[] = {60 * US, 190 * US, 30 * US};
	const struct estimate *estimate;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		fakecard.fixed = fakecard.lag = lengths[i];
		for (int n = 0; n < 150; n++) {
			launches(1, 60 * US, 3);
			synchronise();
		}
		estimate = estimate_find(front_gate_sight(0).estimates, estimate_key((void *)(uintptr_t)(60 * US), 1, 1, 1, 32, 1, 1, 0));
		CHECK(estimate != NULL);
		/* in others calls take another time than their kernels */
		CHECK(fakeclock_schedule() != 0 || near(estimate_typical(estimate), lengths[i], 20));
	}
}

/* Nor what passes until the end of what has ended is marked. */
static void does_not_charge_late_marks(void)
{
	for (uint64_t ns = 1 * MS; ns >= 100 * US; ns /= 10) {
		uint64_t before = SAID(busyns), busy = fakecard_busy();

		fakeshare_gate(true);
		fakeshare_lease(clock_now() + LONG_NS);
		for (int i = 0; i < 200; i++) {
			fakecard.marklag = i % 10 == 9 ? 3 * MS : 0;
			launches(1, ns, 3);
			synchronise();
		}
		WITHIN(SAID(inflightns) == 0, 50 * MS);
		CHECK(!fakeclock_steady() || near(SAID(busyns) - before, fakecard_busy() - busy, 1));
	}
}

/* Nor does launching more slowly than the card works. */
static void does_not_charge_launching(void)
{
	uint64_t before;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(100, 10 * US, 3);
	synchronise();
	before = SAID(busyns);
	fakecard.lag = 20 * US;
	launches(300, 10 * US, 3);
	WITHIN(SAID(inflightns) == 0, 5 * MS);
	/* once it has mistaken the one for the other it goes on so: at most what launching takes */
	CHECK(SAID(busyns) - before < 300 * (20 * US * 3 / 2 + LAUNCHING_NS));
	CHECK(fakeclock_schedule() != 0 || near(SAID(busyns) - before, 3 * MS, 6));
}

static void counts_no_failed_launch(void)
{
	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(1, 10 * MS, 3);
	synchronise();
	fakecard.refusing = true;
	for (int i = 0; i < 20; i++)
		CHECK(launch(10 * MS, 3) == CUDA_ERROR_INVALID_VALUE);
	CHECK(fakecard.refused == 20 && SAID(inflightns) == 0);
	WITHIN(fakeshare.backs == 1, 5 * MS);
	CHECK(near(SAID(busyns), 10 * MS, 1));
}

/* The steps in which launches are counted follow what they take: of long ones none is missed. */
static void counts_long_launches(void)
{
	front_thread = (struct front_thread)FRONT_THREAD_NEW;
	fakeshare_gate(false);
	launches(52, 100 * MS, 3); /* more than there are samples at once */
	synchronise();
	CHECK(SAID(launches) == 52 && fakecard_kernels() == 52);
	CHECK(!fakeclock_steady() || near(SAID(busyns), fakecard_busy(), 1));
	for (int i = 0; i < 311; i++) {
		launches(10, 1 * MS, 3);
		synchronise();
	}
	for (int i = 0; i < 3000; i++) {
		launches(1, 1 * MS, 3);
		synchronise();
	}
	CHECK(SAID(launches) == 52 + 3110 + 3000);
	CHECK(!fakeclock_steady() || near(SAID(busyns), fakecard_busy(), 1));
}

static void samples_what_is_not_gated(void)
{
	fakeshare_gate(false);
	for (int i = 0; i < 21; i++) {
		launches(FRONT_LAUNCH_STEP, 30 * US, 3);
		synchronise();
	}
	CHECK(SAID(launches) == 21 * FRONT_LAUNCH_STEP && fakeshare.wants == 0 && fakeshare.backs == 0);
	/* half the time of a launch is taken for the card's wait (gate.c) */
	CHECK(!fakeclock_steady() || near(SAID(busyns), fakecard_busy(), 6));
}

/* Of streams beside each other each sample's span is that of all: together no more than the time that passed. */
static void samples_several_streams(void)
{
	front_thread = (struct front_thread)FRONT_THREAD_NEW;
	fakeshare_gate(false);
	for (unsigned i = 0; i < 1600; i++) {
		launches(1, 200 * US, 3 + i % 4);
		if (i % 200 == 199)
			synchronise();
	}
	CHECK(SAID(launches) == 1600);
	CHECK(!fakeclock_steady() || near(SAID(busyns), fakecard_busy(), 6));
}

/* -- what a program does besides ----------------------------------------------- */

static void leaves_captures_alone(void)
{
	CUgraph graph;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(10, 20 * US, 3);
	CHECK(hook_cuStreamBeginCapture_v2(SYM_cuStreamBeginCapture_v2, (CUstream)3, 0) == CUDA_SUCCESS);
	fakeshare_lease(0); /* captured launches need none */
	launches(200, 20 * US, 3);
	CHECK(fakecard_kernels() == 10);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(200, 20 * US, 4); /* these are not captured */
	synchronise();
	WITHIN(SAID(inflightns) == 0, 5 * MS);
	CHECK(hook_cuStreamEndCapture(SYM_cuStreamEndCapture, (CUstream)3, &graph) == CUDA_SUCCESS);
	CHECK(front_gate_sight(0).captures == 0);
	launches(10, 20 * US, 3);
	synchronise();
	CHECK(near(SAID(busyns), fakecard_busy(), fakeclock_steady() ? 10 : 50));
}

static void passes_in_a_forked_child(void)
{
	int status;
	pid_t pid;

	fakeshare_gate(true);
	fakeshare_lease(clock_now() + LONG_NS);
	launches(10, 20 * US, 3);
	pid = fork();
	if (pid == 0) {
		fakeclock_forked();
		fakeshare.live = 0; /* as its page would be */
		fakeshare_lease(0);
		launches(200, 20 * US, 3);
		front_gate_waited(front_gate_waits());
		CHECK(fakeshare.wants == 0 && front_gate_sight(0).bursts == 0);
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	synchronise();
	WITHIN(SAID(inflightns) == 0, 5 * MS);
}

/* -- threads ----------------------------------------------------------------- */

static void lets_a_crowd_hammer(void)
{
	crowd_hammers();
	CHECK(fakecard.eventsmade < 400);
}

struct outcome {
	uint64_t trace;
	uint64_t busyns;
	uint64_t waitns;
	uint64_t latens;
};

static struct outcome outcome_of(unsigned schedule)
{
	struct outcome outcome;
	int ends[2], status;
	pid_t pid;

	CHECK(pipe(ends) == 0);
	pid = fork();
	if (pid == 0) {
		fakeclock_follow(schedule);
		crowd_hammers();
		outcome = (struct outcome){fakeclock_trace(), SAID(busyns), SAID(waitns), SAID(latens)};
		CHECK(write(ends[1], &outcome, sizeof(outcome)) == sizeof(outcome));
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(read(ends[0], &outcome, sizeof(outcome)) == sizeof(outcome));
	close(ends[0]);
	close(ends[1]);
	return outcome;
}

/* The clock keeps its word. */
static void runs_the_same_way_each_time(void)
{
	struct outcome one = outcome_of(fakeclock_schedule());
	struct outcome again = outcome_of(fakeclock_schedule());
	struct outcome other = outcome_of(fakeclock_schedule() + 1);

	CHECK(memcmp(&one, &again, sizeof(one)) == 0 && one.trace != other.trace);
}

static const struct scenario scenarios[] = {
	{"waits for a lease", waits_for_a_lease},
	{"follows new pages", follows_new_pages},
	{"goes when no longer gated", goes_when_no_longer_gated},
	{"fills a lease with long kernels", fills_a_lease_with_long_kernels},
	{"fills a lease with short kernels", fills_a_lease_with_short_kernels},
	{"asks for the next lease in time", asks_for_the_next_lease_in_time},
	{"knows when its work will have run", knows_when_its_work_will_have_run},
	{"knows what runs after a pause", knows_what_runs_after_a_pause},
	{"knows what runs while its launch does not return", knows_what_runs_while_its_launch_does_not_return},
	{"gives back what it leaves idle", gives_back_what_it_leaves_idle},
	{"keeps its rate without an agent", keeps_its_rate_without_an_agent},
	{"keeps its rate on a starved host", keeps_its_rate_on_a_starved_host},
	{"keeps its rate beside a stopped agent", keeps_its_rate_beside_a_stopped_agent},
	{"waits for an agent that is there", waits_for_an_agent_that_is_there},
	{"keeps a bounded backlog", keeps_a_bounded_backlog},
	{"lets a tangle go", lets_a_tangle_go},
	{"lets a tangle of unknown ones go", lets_a_tangle_of_unknown_ones_go},
	{"lets no long kernel pile up", lets_no_long_kernel_pile_up},
	{"times an unknown one alone", times_an_unknown_one_alone},
	{"takes no slow launch for a short kernel", takes_no_slow_launch_for_a_short_kernel},
	{"takes no stopped thread for a short kernel", takes_no_stopped_thread_for_a_short_kernel},
	{"learns of what takes no time", learns_of_what_takes_no_time},
	{"accounts patterns", accounts_patterns},
	{"accounts threads side by side", accounts_threads_side_by_side},
	{"does not charge pauses", does_not_charge_pauses},
	{"learns of calls that wait", learns_of_calls_that_wait},
	{"does not charge late marks", does_not_charge_late_marks},
	{"does not charge launching", does_not_charge_launching},
	{"counts no failed launch", counts_no_failed_launch},
	{"counts long launches", counts_long_launches},
	{"samples what is not gated", samples_what_is_not_gated},
	{"samples several streams together", samples_several_streams},
	{"leaves captures alone", leaves_captures_alone},
	{"passes in a forked child", passes_in_a_forked_child},
	{"lets streams and contexts go", crowd_leaves},
	{"lets a crowd hammer", lets_a_crowd_hammer},
	{"runs the same way each time", runs_the_same_way_each_time},
};

RUN_SCHEDULES(scenarios, 16)
