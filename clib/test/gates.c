/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gates: the gates of several processes on one card, by a clock of their own, so that
 * it goes the same way on any host. Their agent is led from outside: this program
 * writes what the agent is told and all that the pages say, and reads what to do.
 *
 *	gates SECONDS SCHEDULE USUAL:RARE:MOST LAUNCH SLICE SHARE:KERNEL:PATTERN[:COUNT] ...
 *
 * USUAL, RARE and MOST say how late the host wakes sleepers, LAUNCH what a launch takes
 * its thread, SLICE for how long the card serves one process, KERNEL what a kernel
 * takes, all in ns. SHARE is a number from 0; each further argument is a process. PATTERN:
 *
 *	async    keeps 100 ms of work launched, or as much as it may
 *	sync     waits for each kernel
 *	mixed    kernels of a tenth to twice the length, now and then a pause
 *	stop     like async; launches for 30 ms of every 100
 *	idle     launches nothing
 *
 * It writes, a line each:
 *
 *	want|back|tick NOW PROCESS  PAGE ...     and reads NEXT COUNT LEASE ...
 *	mark NOW USED  BUSY ...  PAGE ...        at the beginning, each 100 ms, and the end
 *
 * PAGE is what a process says of itself: busyns inflightns drainns waitns latens
 * lastendns kernelns spanns gapns. USED and BUSY are the card's account: how long it was busy, and
 * what each process had. NEXT is when to tick, 0: never. LEASE is PROCESS GATED END
 * BEGIN BACKLOG TURN BESIDETO BESIDEFROM, of the page of a process.
 */
#include "fakeclock.h"
#include "gate.h"
#include "memory.h"
#include "roundcard.h"

#include <inttypes.h>
#include <stdlib.h>

#define US 1000ull
#define MS 1000000ull
#define AHEAD_NS (100 * MS)
#define MARK_NS (100 * MS)
#define MAIL 4096u
#define AGENT 0u

struct process {
	struct front_pages pages;
	struct gate *gate;
	uint32_t live;
	uint64_t kernel;
	const char *pattern;
};

static struct process processes[ROUNDCARD_PROCESSES];
static unsigned count = 1; /* with the agent */
static uint64_t noise = 88172645463325252ull;

static struct {
	const char *what;
	unsigned process;
} mail[MAIL];
static unsigned mailed, read_;
static uint32_t mailword;

/* -- what the front keeps in variables ---------------------------------------- */

struct front_pages *front_pages_now = &processes[AGENT].pages;
uint32_t *front_live = &processes[AGENT].live;
const uint32_t *front_gated = &processes[AGENT].pages.limits.card[0].gated;
const uint32_t front_several = 1;
__thread struct front_thread front_thread = FRONT_THREAD_NEW;

static void change(unsigned from, unsigned to)
{
	processes[from].gate = front_gates[0];
	front_gates[0] = processes[to].gate;
	front_pages_now = &processes[to].pages;
	front_live = &processes[to].live;
	front_gated = &processes[to].pages.limits.card[0].gated;
	roundcard.process = to;
}

int front_tell(struct divvy_message *message)
{
	CHECK(mailed - read_ < MAIL);
	mail[mailed % MAIL].what = message->type == DIVVY_LEASE_WANT ? "want" : "back";
	mail[mailed++ % MAIL].process = roundcard.process;
	__atomic_fetch_add(&mailword, 1, __ATOMIC_RELAXED);
	clock_wake(&mailword, 1, true);
	return 0;
}

bool front_there(void)
{
	return true;
}

void front_watch(void) {}

unsigned front_cards(void)
{
	return 1;
}

int front_current_slot(void)
{
	return 0;
}

int front_stream_slot(CUstream stream)
{
	(void)stream;
	return 0;
}

void front_count_launches(int slot, uint64_t launches)
{
	front_pages_now->client.card[slot].launches += launches;
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

/* -- the agent ------------------------------------------------------------------ */

static void write_pages(void)
{
	for (unsigned i = 1; i < count; i++) {
		const struct divvy_client_card *card = &processes[i].pages.client.card[0];

		const uint64_t words[] = {card->busyns,    card->inflightns, card->drainns, card->waitns, card->latens,
					  card->lastendns, card->kernelns,   card->spanns,  card->gapns};

		for (size_t j = 0; j < sizeof(words) / sizeof(words[0]); j++)
			printf(" %" PRIu64, words[j]);
	}
	printf("\n");
	fflush(stdout);
}

/* One thing to the one who leads; what it answers is done. When to tick next. */
static uint64_t lead(const char *what, uint64_t now, unsigned process)
{
	uint64_t next;
	unsigned leases;

	printf("%s %" PRIu64 " %u", what, now, process);
	write_pages();
	CHECK(scanf("%" SCNu64 " %u", &next, &leases) == 2);
	while (leases-- > 0) {
		uint64_t end, begin, backlog, turn, besideto, besidefrom;
		struct divvy_limits_card *limits;
		unsigned of, gated;

		CHECK(scanf("%u %u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &of, &gated, &end, &begin,
			    &backlog, &turn, &besideto, &besidefrom) == 8);
		CHECK(of > 0 && of < count);
		limits = &processes[of].pages.limits.card[0];
		limits->backlogns = backlog;
		limits->leasebeginns = begin;
		limits->besidetons = besideto;
		limits->besidefromns = besidefrom;
		if (limits->gated == gated && limits->leaseendns == end && limits->leaseturn == turn)
			continue;
		limits->gated = gated;
		limits->leaseendns = end;
		limits->leaseturn = turn;
		limits->leaseword++;
		clock_wake(&limits->leaseword, INT32_MAX, true);
	}
	return next;
}

static void *agent(void *unused)
{
	uint64_t next = lead("tick", clock_now(), AGENT), now;

	for (;;) {
		uint32_t word = __atomic_load_n(&mailword, __ATOMIC_RELAXED);

		now = clock_now();
		if (read_ == mailed && (next == 0 || now < next)) {
			clock_wait(&mailword, word, next == 0 ? 0 : next - now, true);
			now = clock_now();
		}
		if (next != 0 && now >= next)
			next = lead("tick", now, AGENT);
		for (; read_ != mailed; read_++)
			next = lead(mail[read_ % MAIL].what, clock_now(), mail[read_ % MAIL].process);
	}
	return unused;
}

/* -- programs --------------------------------------------------------------------- */

static uint64_t dice(uint64_t most)
{
	noise ^= noise << 13;
	noise ^= noise >> 7;
	noise ^= noise << 17;
	return noise % most;
}

static void launch(uint64_t ns)
{
	CHECK(hook_cuLaunchKernel(SYM_cuLaunchKernel, (CUfunction)(uintptr_t)ns, 1, 1, 1, 32, 1, 1, 0, (CUstream)3, NULL, NULL) ==
	      CUDA_SUCCESS);
}

/* Until no more than so much of what was launched is left. */
static void synchronise(uint64_t left)
{
	uint32_t watched = front_gate_waits();
	uint64_t now, end;

	while ((end = roundcard_end(roundcard.process)) > (now = clock_now()) + left + 1)
		clock_sleep_until(end - left);
	front_gate_waited(watched);
}

static void *program(void *argument)
{
	struct process *mine = argument;
	uint64_t ns = mine->kernel;

	if (strcmp(mine->pattern, "idle") == 0)
		clock_wait(&mine->live, 1, 0, false);
	for (uint64_t i = 0;; i++) {
		if (strcmp(mine->pattern, "mixed") == 0) {
			launch(ns / 10 + dice(19) * ns / 10);
			if (dice(50) == 0)
				synchronise(0);
			if (dice(500) == 0)
				clock_pause(dice(20 * MS));
			continue;
		}
		launch(ns);
		if (strcmp(mine->pattern, "sync") == 0)
			synchronise(0);
		else if (i % (AHEAD_NS / 2 / ns + 1) == 0)
			synchronise(AHEAD_NS / 2);
		if (strcmp(mine->pattern, "stop") == 0 && clock_now() % (100 * MS) > 30 * MS) {
			synchronise(0);
			clock_pause(100 * MS - clock_now() % (100 * MS));
		}
	}
	return NULL;
}

/* -- the whole --------------------------------------------------------------------- */

/* The turn may go to another thread while the card is asked: first that, then a line. */
static void mark(void)
{
	uint64_t now = clock_now(), used = roundcard_used();

	printf("mark %" PRIu64 " %" PRIu64, now, used);
	for (unsigned i = 1; i < count; i++)
		printf(" %" PRIu64, roundcard_busy(i));
	write_pages();
}

int main(int argc, char **argv)
{
	struct fakeclock_host host;
	uint64_t end;

	CHECK(argc > 6);
	fakeclock_follow((unsigned)atoi(argv[2]));
	CHECK(sscanf(argv[3], "%" SCNu64 ":%" SCNu64 ":%" SCNu64, &host.usual, &host.rare, &host.most) == 3);
	host.launch = strtoull(argv[4], NULL, 10);
	fakeclock_host(host);
	fakeclock_processes(change);
	roundcard.slice = strtoull(argv[5], NULL, 10);
	for (int i = 6; i < argc; i++) {
		struct process *one = &processes[count++];
		char *rest;

		CHECK(count <= ROUNDCARD_PROCESSES);
		strtoul(argv[i], &rest, 10); /* the share is for the one who leads */
		one->kernel = strtoull(rest + 1, &rest, 10);
		one->pattern = rest + 1;
		one->live = 1;
		one->pages.limits.card[0].gated = 1;
		one->pages.limits.policy = DIVVY_POLICY_FIXED;
		one->pages.limits.card[0].backlogns = 5 * MS;
		one->pages.client.turn = (uint64_t)(i - 5);
	}
	end = clock_now() + (uint64_t)(atof(argv[1]) * 1e9);
	fakeclock_start(agent, NULL);
	for (unsigned i = 1; i < count; i++)
		fakeclock_spawn(i, program, &processes[i]);
	for (;;) {
		mark();
		if (clock_now() >= end)
			_exit(0);
		clock_sleep_until(clock_now() + MARK_NS);
	}
}
