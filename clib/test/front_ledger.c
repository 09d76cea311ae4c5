/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger against an agent over the real socket and pages: credit, the last
 * room among threads, restarts. front_processes.c has more than one process.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "joined.h"

static void says_no_without_an_agent(void)
{
	share_of(LIMIT);
	CHECK(front_attach(path, buildid) == -ENOENT);
	CHECK(!*front_live && !front_forked() && front_limits() == NULL);
	CHECK(charge(1) == -ENOMEM);
	front_refund(0, 1);
	front_event(DIVVY_EVENT_HIDDEN, 0, 0, "nobody hears this");
}

static void tries_again_when_asked_again(void)
{
	struct agent *agent;

	share_of(LIMIT);
	CHECK(front_attach(path, buildid) == -ENOENT);
	agent = agent_of(LIMIT);
	CHECK(front_attach(path, buildid) == 0);
	CHECK(front_attach(path, buildid) == 0);
	CHECK(agent_attached(agent) == 1);
}

static void is_refused(void)
{
	struct agent_share share = share_of(LIMIT);

	share.refuse = DIVVY_STATUS_VERSION;
	agent_start(&share);
	CHECK(front_attach(path, buildid) == -ECONNREFUSED);
	CHECK(!*front_live);
}

/* The agent's worker may die between taking a connection and its HELLO; the next one knows nothing of it. */
static void asks_again_when_its_first_connection_dies(void)
{
	struct agent_share share = share_of(LIMIT);

	share.dieonhello = 3;
	agent_start(&share);
	CHECK(front_attach(path, buildid) == 0);
	CHECK(*front_live && charge(MIB) == 0);
}

/* What is left of an agent that was killed whole: a socket at which nobody listens. */
static void leave_a_socket(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && strlen(path) < sizeof(address.sun_path));
	memcpy(address.sun_path, path, strlen(path));
	CHECK(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 1) == 0);
	close(fd);
}

static void *start_later(void *share)
{
	const struct timespec moment = {.tv_nsec = 200 * 1000 * 1000};

	nanosleep(&moment, NULL);
	unlink(path);
	agent_start(share);
	return NULL;
}

static void waits_for_an_agent_that_was_killed(void)
{
	struct agent_share share = share_of(LIMIT);
	pthread_t thread;

	leave_a_socket();
	CHECK(pthread_create(&thread, NULL, start_later, &share) == 0);
	CHECK(front_attach(path, buildid) == 0);
	CHECK(*front_live && charge(MIB) == 0);
	pthread_join(thread, NULL);
}

static void does_not_ask_for_ever(void)
{
	struct agent_share share = share_of(LIMIT);

	share.dieonhello = UINT32_MAX;
	agent_start(&share);
	CHECK(front_attach(path, buildid) == -EPIPE);
	CHECK(!*front_live);
}

static void pays_from_credit(void)
{
	struct agent *agent = agent_of(LIMIT);

	CHECK(front_attach(path, buildid) == 0);
	CHECK(front_context_bytes(0) == 4 * MIB && front_limited(0));
	CHECK(charge(10 * MIB) == 0);
	CHECK(charge(LIMIT - 10 * MIB) == 0);
	CHECK(agent_in_use(agent, 0) == LIMIT);
	CHECK(agent_charges(agent) == 0);
	front_refund(0, 10 * MIB);
	CHECK(charge(MIB) == 0);
	front_uncharge(0, MIB);
	front_context_held(0, 4 * MIB);
	front_count_launches(0, 64);
	CHECK(agent_in_use(agent, 0) == LIMIT - 10 * MIB && front_own_use(0) == LIMIT - 10 * MIB);
	CHECK(COUNTER(agent, allocations) == 2);
	CHECK(COUNTER(agent, peakbytes) == LIMIT);
	CHECK(COUNTER(agent, contextbytes) == 4 * MIB && COUNTER(agent, launches) == 64);
	CHECK(charge(0) == 0 && front_charge(-1, MIB, "none") == 0);
}

static void is_denied_what_is_not_there(void)
{
	struct agent *agent = agent_of(LIMIT);
	struct divvy_message last;

	CHECK(front_attach(path, buildid) == 0);
	CHECK(charge(LIMIT + 1) == -ENOMEM);
	CHECK(charge(UINT64_MAX) == -ENOMEM);
	CHECK(charge(LIMIT) == 0);
	CHECK(charge(1) == -ENOMEM);
	CHECK(agent_in_use(agent, 0) == LIMIT);
	CHECK(agent_denials(agent, &last) == 3 && agent_charges(agent) == 4); /* none asked twice */
	CHECK(last.amount == 1 && strcmp(last.text, "cuMemAlloc") == 0);
}

static uint64_t kept;

static void give_back(void)
{
	front_refund(0, kept);
	kept = 0;
}

static void makes_room_before_it_is_denied(void)
{
	struct agent *agent = agent_of(LIMIT);
	struct divvy_message last;

	CHECK(front_attach(path, buildid) == 0);
	CHECK(charge(LIMIT) == 0);
	kept = MIB;
	front_yield = give_back;
	CHECK(charge(MIB) == 0 && agent_charges(agent) == 1 && agent_denials(agent, &last) == 0);
	CHECK(charge(MIB) == -ENOMEM && agent_charges(agent) == 3 && agent_denials(agent, &last) == 1);
}

static void asks_every_time_when_tight(void)
{
	struct agent *agent = agent_of(LIMIT);

	CHECK(front_attach(path, buildid) == 0);
	agent_set_tight(agent, true);
	CHECK(charge(MIB) == 0);
	CHECK(charge(MIB) == 0);
	CHECK(agent_charges(agent) == 2 && agent_in_use(agent, 0) == 2 * MIB);
	agent_set_limit(agent, MIB);
	CHECK(charge(MIB) == -ENOMEM);
	agent_set_limit(agent, LIMIT);
	agent_set_tight(agent, false);
	CHECK(charge(MIB) == 0);
}

static void shows_what_is_left(void)
{
	struct agent *agent = agent_of(LIMIT);
	uint64_t freebytes, totalbytes;

	CHECK(front_attach(path, buildid) == 0);
	CHECK(charge(10 * MIB) == 0);
	front_memory(0, 1, 2, &freebytes, &totalbytes);
	CHECK(freebytes == LIMIT - 10 * MIB && totalbytes == LIMIT);
	agent_set_limit(agent, 4 * MIB); /* shrunk below what is in use */
	front_memory(0, 1, 2, &freebytes, &totalbytes);
	CHECK(freebytes == 0 && totalbytes == 4 * MIB);
}

static void shows_the_card_without_a_limit(void)
{
	struct agent_share share = share_of(LIMIT);
	uint64_t freebytes, totalbytes;

	share.unlimited = true;
	agent_start(&share);
	CHECK(front_attach(path, buildid) == 0 && !front_limited(0));
	front_memory(0, 11, 12, &freebytes, &totalbytes);
	CHECK(freebytes == 11 && totalbytes == 12);
}

static void measures(void)
{
	struct agent_share share = share_of(LIMIT);
	uint64_t bytes = 0;

	share.measured = 77;
	agent_start(&share);
	CHECK(front_measure(0, &bytes) == -ENODATA);
	CHECK(front_attach(path, buildid) == 0);
	CHECK(front_measure(0, &bytes) == 0 && bytes == 77);
}

static void measures_nothing(void)
{
	uint64_t bytes = 5;

	agent_of(LIMIT);
	CHECK(front_attach(path, buildid) == 0);
	CHECK(front_measure(0, &bytes) == -ENODATA && bytes == 5);
}

/* -- several threads --------------------------------------------------------- */

#define THREADS 4

static pthread_barrier_t barrier;
static unsigned winners;

#define ROUNDS 300

static void *grab(void *unused)
{
	for (int round = 0; round < ROUNDS; round++) {
		int rc;

		pthread_barrier_wait(&barrier);
		rc = charge(LIMIT);
		if (rc == 0)
			__atomic_fetch_add(&winners, 1, __ATOMIC_RELAXED);
		pthread_barrier_wait(&barrier);
		if (rc == 0)
			front_refund(0, LIMIT);
	}
	return unused;
}

static void gives_the_last_room_to_one_thread(void)
{
	struct agent *agent = agent_of(LIMIT);
	pthread_t thread[THREADS];

	CHECK(front_attach(path, buildid) == 0);
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&thread[i], NULL, grab, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	CHECK(winners == ROUNDS);
	CHECK(agent_in_use(agent, 0) == 0);
}

/* -- restarts ----------------------------------------------------------------- */

static bool stopping;

static void *work(void *argument)
{
	uint64_t *failures = argument;

	while (!__atomic_load_n(&stopping, __ATOMIC_RELAXED)) {
		struct timespec nap = {.tv_nsec = 20000};
		uint64_t bytes = MIB;

		if (charge(bytes) != 0) {
			__atomic_fetch_add(failures, 1, __ATOMIC_RELAXED);
			continue;
		}
		nanosleep(&nap, NULL);
		front_refund(0, bytes);
	}
	return NULL;
}

static void outlives_the_agent(void)
{
	struct agent *agent = agent_of(LIMIT);
	pthread_t thread[THREADS];
	uint64_t failures = 0;

	CHECK(front_attach(path, buildid) == 0);
	CHECK(charge(10 * MIB) == 0);
	front_context_held(0, MIB);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&thread[i], NULL, work, &failures) == 0);
	for (int i = 0; i < 5; i++) {
		struct timespec nap = {.tv_nsec = 30000000};

		nanosleep(&nap, NULL);
		agent_stop(agent);
		nanosleep(&nap, NULL); /* credit goes on */
		agent = agent_of(LIMIT);
		EVENTUALLY(agent_clients(agent) == 1, 10);
	}
	__atomic_store_n(&stopping, true, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	CHECK(failures == 0);
	/* what was freed on pages left behind comes over in the end */
	EVENTUALLY(agent_in_use(agent, 0) == 10 * MIB && COUNTER(agent, contextbytes) == MIB, 5);
	CHECK(COUNTER(agent, peakbytes) >= 10 * MIB && COUNTER(agent, peakbytes) <= 10 * MIB + THREADS * MIB);
	CHECK(charge(LIMIT - 10 * MIB) == 0);
	CHECK(charge(1) == -ENOMEM);
}

static void keeps_two_cards_apart(void)
{
	struct agent_share share = share_of(LIMIT);
	struct agent *agent;

	share.cards = 2;
	agent = agent_start(&share);
	CHECK(front_attach(path, buildid) == 0);
	CHECK(charge(MIB) == 0 && front_charge(1, LIMIT, "cuMemAlloc") == 0);
	CHECK(front_charge(1, 1, "cuMemAlloc") == -ENOMEM);
	agent_stop(agent);
	agent = agent_start(&share);
	EVENTUALLY(agent_clients(agent) == 1, 10);
	CHECK(agent_in_use(agent, 0) == MIB && agent_in_use(agent, 1) == LIMIT);
	CHECK(front_charge(1, 1, "cuMemAlloc") == -ENOMEM && charge(LIMIT - MIB) == 0);
}

static void waits_for_the_agent(void)
{
	struct agent *agent = agent_of(LIMIT);
	struct timespec start, end;

	CHECK(front_attach(path, buildid) == 0);
	agent_set_tight(agent, true);
	agent_stop(agent);
	clock_gettime(CLOCK_MONOTONIC, &start);
	CHECK(charge(MIB) == -ENOMEM);
	clock_gettime(CLOCK_MONOTONIC, &end);
	CHECK(end.tv_sec - start.tv_sec >= 2 && end.tv_sec - start.tv_sec <= 5);
	clock_gettime(CLOCK_MONOTONIC, &start);
	CHECK(charge(MIB) == -ENOMEM); /* the time is up: no more waiting */
	clock_gettime(CLOCK_MONOTONIC, &end);
	CHECK(end.tv_sec - start.tv_sec <= 1);
	agent = agent_of(LIMIT);
	EVENTUALLY(agent_clients(agent) == 1, 10);
	CHECK(charge(MIB) == 0);
}

/* A listening socket outlives its agent: whoever connects hears nothing until there is a new one. */
static void keeps_its_credit_while_nobody_answers(void)
{
	struct agent_share share = share_of(LIMIT);
	struct agent *agent = agent_start(&share);

	CHECK(front_attach(path, buildid) == 0);
	agent_stop(agent);
	share.mute = true;
	agent = agent_start(&share);
	for (int i = 0; i < 300; i++) {
		struct timespec nap = {.tv_nsec = 1000000};

		CHECK(charge(LIMIT) == 0);
		front_refund(0, LIMIT);
		nanosleep(&nap, NULL);
	}
	agent_stop(agent);
	agent = agent_of(LIMIT);
	EVENTUALLY(agent_clients(agent) == 1, 10);
	CHECK(charge(LIMIT) == 0 && agent_in_use(agent, 0) == LIMIT);
}

/* Nothing charged yet, so no monitor: the credit of before the restart is the new agent's now. */
static void notices_a_restart_before_its_first_charge(void)
{
	struct agent_share share = share_of(LIMIT);
	struct agent *agent = agent_start(&share);

	CHECK(front_attach(path, buildid) == 0);
	CHECK(divvy_memory_credit(agent_counter(agent, 0, offsetof(struct divvy_client_card, memory))) == LIMIT);
	agent_stop(agent);
	share.firstcredit = MIB;
	agent = agent_start(&share);
	CHECK(charge(MIB) == 0);
	CHECK(agent_attached(agent) == 1 && agent_in_use(agent, 0) == MIB);
	CHECK(charge(LIMIT) == -ENOMEM);
}

/* A program that charges nothing, but looks: it does not show an old page for ever. */
static void shows_the_present_after_a_restart(void)
{
	struct agent *agent = agent_of(LIMIT);
	uint64_t freebytes, totalbytes;

	CHECK(front_attach(path, buildid) == 0);
	agent_stop(agent);
	agent = agent_of(2 * LIMIT);
	front_memory(0, 1, 2, &freebytes, &totalbytes);
	EVENTUALLY(front_limits()->card[0].limitbytes == 2 * LIMIT, 10);
	front_memory(0, 1, 2, &freebytes, &totalbytes);
	CHECK(totalbytes == 2 * LIMIT);
	agent_stop(agent);
	agent = agent_of(LIMIT);
	EVENTUALLY(front_limits()->card[0].limitbytes == LIMIT, 10);
	front_memory(0, 1, 2, &freebytes, &totalbytes);
	CHECK(totalbytes == LIMIT);
}

static void counts_a_charge_without_an_answer_once(void)
{
	struct agent_share share = share_of(LIMIT);
	struct agent *agent;

	share.halfway = true;
	share.firstcredit = 1;
	agent = agent_start(&share);
	CHECK(front_attach(path, buildid) == 0);
	CHECK(charge(MIB) == 0);
	CHECK(front_own_use(0) == MIB);
	agent_stop(agent);
	agent = agent_of(LIMIT);
	EVENTUALLY(agent_clients(agent) == 1, 10);
	CHECK(agent_in_use(agent, 0) == MIB);
	front_refund(0, MIB);
	EVENTUALLY(agent_in_use(agent, 0) == 0, 5);
}

/* Milliseconds that a charge takes, which comes to rc. */
static long charging(uint64_t bytes, int rc)
{
	struct timespec start, end;

	clock_gettime(CLOCK_MONOTONIC, &start);
	CHECK(charge(bytes) == rc);
	clock_gettime(CLOCK_MONOTONIC, &end);
	return (end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000;
}

/* What is left of its promise it may use; what it was not granted it does not get. */
static void charges_what_it_has_beside_a_stopped_agent(void)
{
	struct agent *agent = agent_of(LIMIT);

	CHECK(front_attach(path, buildid) == 0);
	CHECK(charge(MIB) == 0);
	agent_pause(agent);
	CHECK(charging(LIMIT - 2 * MIB, 0) < 1000);
	CHECK(charging(2 * MIB, -ENOMEM) < 4500);
	CHECK(charging(MIB, 0) < 1000 && charging(1, -ENOMEM) < 1000);
	front_refund(0, LIMIT - MIB);
	CHECK(charging(8 * MIB, 0) < 1000);
	agent_resume(agent);
	EVENTUALLY(agent_attached(agent) == 2 && agent_clients(agent) == 1, 10);
	EVENTUALLY(agent_in_use(agent, 0) == 9 * MIB, 5);
	CHECK(charge(LIMIT - 9 * MIB) == 0 && charge(1) == -ENOMEM);
	CHECK(agent_in_use(agent, 0) == LIMIT);
}

/* It grants, when it goes on, what nobody waits for any more: that is nobody's. */
static void gives_back_what_is_granted_too_late(void)
{
	struct agent_share share = share_of(LIMIT);
	struct agent *agent;

	share.firstcredit = 512;
	agent = agent_start(&share);
	CHECK(front_attach(path, buildid) == 0);
	CHECK(charge(MIB) == 0);
	agent_pause(agent);
	CHECK(charging(8 * MIB, -ENOMEM) < 4500);
	agent_resume(agent);
	EVENTUALLY(agent_attached(agent) == 2 && agent_clients(agent) == 1, 10);
	CHECK(agent_charges(agent) == 2); /* it has done that */
	EVENTUALLY(agent_in_use(agent, 0) == MIB && front_own_use(0) == MIB, 5); /* pages left behind come over after that */
	CHECK(charge(LIMIT - MIB) == 0);
}

/* An agent that goes on in time, or comes back: it is waited for. */
static void *resume_later(void *agent)
{
	struct timespec nap = {.tv_sec = 1, .tv_nsec = 300000000};

	nanosleep(&nap, NULL);
	agent_resume(agent);
	return NULL;
}

static void waits_for_an_agent_that_was_stopped_for_a_moment(void)
{
	struct agent_share share = share_of(LIMIT);
	struct agent *agent;
	pthread_t thread;

	share.firstcredit = 512;
	agent = agent_start(&share);
	CHECK(front_attach(path, buildid) == 0);
	CHECK(charge(MIB) == 0);
	agent_pause(agent);
	CHECK(pthread_create(&thread, NULL, resume_later, agent) == 0);
	CHECK(charge(8 * MIB) == 0);
	pthread_join(thread, NULL);
	CHECK(agent_in_use(agent, 0) == 9 * MIB);
}

static const struct scenario scenarios[] = {
	{"says no without an agent", says_no_without_an_agent},
	{"tries again when asked again", tries_again_when_asked_again},
	{"is refused", is_refused},
	{"asks again when its first connection dies", asks_again_when_its_first_connection_dies},
	{"waits for an agent that was killed", waits_for_an_agent_that_was_killed},
	{"does not ask for ever", does_not_ask_for_ever},
	{"pays from credit", pays_from_credit},
	{"is denied what is not there", is_denied_what_is_not_there},
	{"makes room before it is denied", makes_room_before_it_is_denied},
	{"asks every time when tight", asks_every_time_when_tight},
	{"shows what is left", shows_what_is_left},
	{"shows the card without a limit", shows_the_card_without_a_limit},
	{"measures", measures},
	{"measures nothing", measures_nothing},
	{"gives the last room to one thread", gives_the_last_room_to_one_thread},
	{"outlives the agent", outlives_the_agent},
	{"keeps two cards apart", keeps_two_cards_apart},
	{"waits for the agent", waits_for_the_agent},
	{"keeps its credit while nobody answers", keeps_its_credit_while_nobody_answers},
	{"notices a restart before its first charge", notices_a_restart_before_its_first_charge},
	{"shows the present after a restart", shows_the_present_after_a_restart},
	{"counts a charge without an answer once", counts_a_charge_without_an_answer_once},
	{"charges what it has beside a stopped agent", charges_what_it_has_beside_a_stopped_agent},
	{"gives back what is granted too late", gives_back_what_is_granted_too_late},
	{"waits for an agent that was stopped for a moment", waits_for_an_agent_that_was_stopped_for_a_moment},
};

RUN_SCENARIOS(scenarios)
