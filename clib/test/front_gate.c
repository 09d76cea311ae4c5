/* SPDX-License-Identifier: Apache-2.0 */
/* The gate over a card of arithmetic (fakecard.h), with an agent that does as it is told. */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "check.h"
#include "fakecard.h"
#include "gate.h"
#include "memory.h"

#define MS 1000000ull
#define US 1000ull

/* -- a ledger without an agent --------------------------------------------- */

static struct front_pages pages;
static uint32_t live = 1;
static const uint32_t zero;
struct front_pages *front_pages_now = &pages;
uint32_t *front_live = &live;
const uint32_t *front_gated = &zero;
__thread struct front_thread front_thread;
static _Atomic unsigned wants, backs;
static _Atomic uint64_t backns;
static _Atomic bool agentaway;

int front_tell(struct divvy_message *message)
{
	if (agentaway)
		return -ENOTCONN;
	if (message->type == DIVVY_LEASE_WANT) {
		wants++;
	} else {
		CHECK(message->type == DIVVY_LEASE_BACK);
		backns += message->amount;
		backs++;
	}
	return 0;
}

void front_watch(void) {}

int front_current_slot(void)
{
	return 0;
}

void front_count_launches(int slot, uint64_t launches)
{
	__atomic_fetch_add(&pages.client.card[slot].launches, launches, __ATOMIC_RELAXED);
}

CUresult front_graph_launching(CUgraphExec graph, const char *call)
{
	(void)graph, (void)call;
	return CUDA_SUCCESS;
}

void front_graph_launched(CUgraphExec graph)
{
	(void)graph;
}

static uint64_t word(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static void lease(uint64_t end)
{
	__atomic_store_n(&pages.limits.leaseendns, end, __ATOMIC_RELEASE);
	__atomic_fetch_add(&pages.limits.leaseword, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &pages.limits.leaseword, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void gate_it(bool gated)
{
	pages.limits.backlogns = 5 * MS;
	pages.limits.card[0].corespercent = 30;
	pages.limits.clients = 1;
	pages.limits.policy = DIVVY_POLICY_FIXED;
	__atomic_store_n(&pages.limits.gated, gated, __ATOMIC_RELEASE);
	front_gated = &pages.limits.gated;
	lease(0);
}

/* -- programs -------------------------------------------------------------- */

static CUresult launch(uint64_t ns, unsigned stream)
{
	return hook_cuLaunchKernel(SYM_cuLaunchKernel, (CUfunction)(uintptr_t)ns, 1, 1, 1, 32, 1, 1, 0, (CUstream)(uintptr_t)stream,
				   NULL, NULL);
}

static uint64_t busy(void)
{
	uint64_t sum;

	pthread_mutex_lock(&fakecard.mutex);
	sum = fakecard.busy;
	pthread_mutex_unlock(&fakecard.mutex);
	return sum;
}

static void synchronise(void)
{
	bool watched;
	uint64_t end;

	pthread_mutex_lock(&fakecard.mutex);
	end = fakecard.end;
	pthread_mutex_unlock(&fakecard.mutex);
	watched = front_gate_waits();
	while (clock_now() < end)
		clock_sleep_until(end);
	front_gate_waited(watched);
}

static bool near(uint64_t one, uint64_t other, unsigned percent)
{
	uint64_t apart = one > other ? one - other : other - one;

	if (apart * 100 <= other * percent)
		return true;
	fprintf(stderr, "%llu is not near %llu\n", (unsigned long long)one, (unsigned long long)other);
	return false;
}

static const struct divvy_client_card *mine(void)
{
	return &pages.client.card[0];
}

/* -- the gate ----------------------------------------------------------------- */

static void *one_launch(void *ns)
{
	CHECK(launch((uintptr_t)ns, 3) == CUDA_SUCCESS);
	return NULL;
}

static unsigned launched(void)
{
	unsigned count;

	pthread_mutex_lock(&fakecard.mutex);
	count = fakecard.kernels;
	pthread_mutex_unlock(&fakecard.mutex);
	return count;
}

static void waits_for_a_lease(void)
{
	pthread_t thread;

	gate_it(true);
	CHECK(pthread_create(&thread, NULL, one_launch, (void *)(uintptr_t)(10 * MS)) == 0);
	EVENTUALLY(wants == 1, 5);
	CHECK(launched() == 0);
	lease(0); /* another value of the word: it asks again */
	EVENTUALLY(wants == 2, 5);
	CHECK(launched() == 0 && backs == 0);
	lease(clock_now() + 1000 * MS);
	pthread_join(thread, NULL);
	CHECK(launched() == 1 && word(&mine()->waitns) > 0);
	EVENTUALLY(backs == 1, 5);
	CHECK(word(&mine()->inflightns) == 0 && near(word(&mine()->busyns), 10 * MS, 30) && near(backns, 10 * MS, 30));
	CHECK(word(&mine()->latens) <= word(&mine()->waitns));
	clock_sleep_until(clock_now() + 20 * MS);
	CHECK(backs == 1); /* once */
}

/* The agent is back, with other pages: what waited on the old ones looks at the new. */
static void follows_new_pages(void)
{
	static struct front_pages fresh;
	pthread_t thread;

	gate_it(true);
	CHECK(pthread_create(&thread, NULL, one_launch, (void *)(uintptr_t)(10 * MS)) == 0);
	EVENTUALLY(wants == 1, 5);
	agentaway = true;
	fresh.limits = pages.limits;
	fresh.limits.leaseendns = 0;
	__atomic_store_n(&front_pages_now, &fresh, __ATOMIC_RELEASE);
	agentaway = false;
	lease(0); /* as the ledger wakes who waits there */
	EVENTUALLY(wants >= 2, 5);
	CHECK(launched() == 0);
	__atomic_store_n(&fresh.limits.leaseendns, clock_now() + 100000 * MS, __ATOMIC_RELEASE);
	__atomic_fetch_add(&fresh.limits.leaseword, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &fresh.limits.leaseword, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	pthread_join(thread, NULL);
	EVENTUALLY(backs == 1, 5);
	CHECK(near(word(&fresh.client.card[0].busyns), 10 * MS, 30));
	CHECK(word(&fresh.client.card[0].inflightns) == 0);
}

static void goes_when_no_longer_gated(void)
{
	pthread_t thread;

	gate_it(true);
	CHECK(pthread_create(&thread, NULL, one_launch, (void *)(uintptr_t)(1 * MS)) == 0);
	EVENTUALLY(wants == 1, 5);
	gate_it(false);
	pthread_join(thread, NULL);
	CHECK(launched() == 1);
}

static void keeps_a_bounded_backlog(void)
{
	uint64_t most = 0;

	gate_it(true);
	lease(clock_now() + 100000 * MS);
	for (int i = 0; i < 100; i++) {
		uint64_t ahead, now;

		CHECK(launch(700 * US, 3) == CUDA_SUCCESS);
		now = clock_now();
		pthread_mutex_lock(&fakecard.mutex);
		ahead = fakecard.end > now ? fakecard.end - now : 0;
		pthread_mutex_unlock(&fakecard.mutex);
		most = ahead > most ? ahead : most;
	}
	CHECK(most > 2 * MS && most < 7 * MS);
	synchronise();
	EVENTUALLY(backs == 1, 5);
	CHECK(near(word(&mine()->busyns), busy(), 3));
}

static void times_an_unknown_one_alone(void)
{
	gate_it(true);
	lease(clock_now() + 100000 * MS);
	CHECK(launch(20 * MS, 3) == CUDA_SUCCESS);
	CHECK(launch(20 * MS, 3) == CUDA_SUCCESS); /* not before the first has ended */
	/* a busy host pauses between our events and the launch: what is looked at is 20 ms or 40 */
	CHECK(near(busy() - word(&mine()->busyns), 20 * MS, 50));
	synchronise();
	EVENTUALLY(backs >= 1, 5);
	CHECK(near(word(&mine()->busyns), 40 * MS, 40));
}

/* The calls last longer than the kernels: however often that is timed, none seems to take no time. */
static void takes_no_slow_launch_for_a_short_kernel(void)
{
	const struct estimate *estimate;

	gate_it(true);
	lease(clock_now() + 100000 * MS);
	fakecard.lag = 100 * US;
	for (int i = 0; i < 12; i++)
		CHECK(launch(50 * US, 3) == CUDA_SUCCESS);
	synchronise();
	estimate = estimate_find(&front_gate_now->estimates,
				 estimate_key((void *)(uintptr_t)(50 * US), (uint32_t[3]){1, 1, 1}, (uint32_t[3]){32, 1, 1}, 0));
	CHECK(estimate != NULL && estimate_high(estimate) >= 50 * US);
}

/* As over the null driver: it is learned of once, and launched in bursts then. */
static void learns_of_what_takes_no_time(void)
{
	gate_it(true);
	lease(clock_now() + 100000 * MS);
	for (int i = 0; i < 6400; i++)
		CHECK(launch(0, 3) == CUDA_SUCCESS);
	synchronise();
	CHECK(front_gate_now->estimates.lessons > 0 && front_gate_now->estimates.lessons < 1000);
}

/* Everything together is charged what the card did. */
static void accounts_patterns(void)
{
	gate_it(true);
	lease(clock_now() + 100000 * MS);
	for (int i = 0; i < 500; i++)
		CHECK(launch(50 * US, 3) == CUDA_SUCCESS);
	synchronise();
	for (int i = 0; i < 40; i++) {
		CHECK(launch(900 * US, 3) == CUDA_SUCCESS);
		synchronise();
	}
	for (unsigned i = 0; i < 300; i++)
		CHECK(launch(i % 2 ? 400 * US : 30 * US, 3 + i % 6) == CUDA_SUCCESS);
	synchronise();
	for (uint64_t i = 0; i < 400; i++)
		CHECK(launch((10 + i % 20) * US, 4) == CUDA_SUCCESS);
	EVENTUALLY(word(&mine()->inflightns) == 0, 5);
	CHECK(near(word(&mine()->busyns), busy(), 8));
}

/* A launch now and then: the time between them is not charged. */
static void does_not_charge_pauses(void)
{
	gate_it(true);
	lease(clock_now() + 100000 * MS);
	for (int i = 0; i < 60; i++) {
		CHECK(launch(20 * US, 3) == CUDA_SUCCESS);
		clock_sleep_until(clock_now() + 1 * MS);
	}
	EVENTUALLY(word(&mine()->inflightns) == 0 && backs > 0, 5);
	CHECK(word(&mine()->busyns) < busy() * 3);
}

static void counts_no_failed_launch(void)
{
	gate_it(true);
	lease(clock_now() + 100000 * MS);
	CHECK(launch(10 * MS, 3) == CUDA_SUCCESS);
	synchronise();
	fakecard.refusing = true;
	for (int i = 0; i < 20; i++)
		CHECK(launch(10 * MS, 3) == CUDA_ERROR_INVALID_VALUE);
	CHECK(fakecard.refused == 20 && word(&mine()->inflightns) == 0);
	EVENTUALLY(backs == 1, 5);
	CHECK(near(word(&mine()->busyns), 10 * MS, 30));
}

static void leaves_captures_alone(void)
{
	CUgraph graph;

	gate_it(true);
	lease(clock_now() + 100000 * MS);
	for (int i = 0; i < 10; i++)
		CHECK(launch(20 * US, 3) == CUDA_SUCCESS);
	CHECK(hook_cuStreamBeginCapture_v2(SYM_cuStreamBeginCapture_v2, (CUstream)3, 0) == CUDA_SUCCESS);
	lease(0); /* captured launches need none */
	for (int i = 0; i < 200; i++)
		CHECK(launch(20 * US, 3) == CUDA_SUCCESS);
	CHECK(launched() == 10);
	lease(clock_now() + 100000 * MS);
	for (int i = 0; i < 200; i++)
		CHECK(launch(20 * US, 4) == CUDA_SUCCESS); /* these are not captured */
	synchronise();
	EVENTUALLY(word(&mine()->inflightns) == 0, 5);
	CHECK(hook_cuStreamEndCapture(SYM_cuStreamEndCapture, (CUstream)3, &graph) == CUDA_SUCCESS);
	CHECK(front_gate_now->captures == 0);
	for (int i = 0; i < 10; i++)
		CHECK(launch(20 * US, 3) == CUDA_SUCCESS);
	synchronise();
	CHECK(near(word(&mine()->busyns), busy(), 50));
}

static void *churn_streams(void *unused)
{
	(void)unused;
	for (unsigned i = 4; i < 12; i++) {
		for (int j = 0; j < 30; j++)
			CHECK(launch(3 * US, i) == CUDA_SUCCESS);
		CHECK(hook_cuStreamDestroy_v2(SYM_cuStreamDestroy_v2, (CUstream)(uintptr_t)i) == CUDA_SUCCESS);
	}
	return NULL;
}

static void lets_streams_and_contexts_go(void)
{
	pthread_t thread;

	gate_it(true);
	lease(clock_now() + 100000 * MS);
	CHECK(pthread_create(&thread, NULL, churn_streams, NULL) == 0);
	for (int i = 0; i < 50; i++) {
		for (int j = 0; j < 20; j++)
			CHECK(launch(5 * US, 3) == CUDA_SUCCESS);
		if (i % 10 == 0)
			front_gate_forget((CUcontext)0x1000);
	}
	pthread_join(thread, NULL);
	front_gate_forget(NULL);
	CHECK(fakecard.events == 0);
	EVENTUALLY(word(&mine()->inflightns) == 0 && backs > 0, 5);
}

static void passes_in_a_forked_child(void)
{
	int status;
	pid_t pid;

	gate_it(true);
	lease(clock_now() + 100000 * MS);
	for (int i = 0; i < 10; i++)
		CHECK(launch(20 * US, 3) == CUDA_SUCCESS);
	pid = fork();
	if (pid == 0) {
		alarm(30);
		live = 0; /* as its page would be */
		lease(0);
		for (int i = 0; i < 200; i++)
			CHECK(launch(20 * US, 3) == CUDA_SUCCESS);
		front_gate_waited(front_gate_waits());
		CHECK(wants == 0 && front_gate_now->everused == 0);
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	synchronise();
	EVENTUALLY(word(&mine()->inflightns) == 0, 5);
}

static void keeps_its_rate_without_an_agent(void)
{
	uint64_t start, before;

	gate_it(true);
	lease(clock_now() + 100000 * MS);
	for (int i = 0; i < 20; i++)
		CHECK(launch(1 * MS, 3) == CUDA_SUCCESS);
	synchronise();
	agentaway = true;
	lease(0);
	CHECK(launch(1 * MS, 3) == CUDA_SUCCESS);
	start = clock_now();
	before = busy();
	while (clock_now() < start + 1000 * MS)
		CHECK(launch(1 * MS, 3) == CUDA_SUCCESS);
	CHECK(near(busy() - before, 300 * MS, 8));
}

static void samples_what_is_not_gated(void)
{
	gate_it(false);
	for (int i = 0; i < 64 * 20; i++) {
		CHECK(launch(30 * US, 3) == CUDA_SUCCESS);
		if (i % 64 == 63)
			synchronise();
	}
	for (int i = 0; i < 64; i++)
		CHECK(launch(30 * US, 3) == CUDA_SUCCESS);
	synchronise();
	CHECK(word(&mine()->launches) == 64 * 21 && wants == 0 && backs == 0);
	CHECK(near(word(&mine()->busyns), busy(), 25));
}

static _Atomic bool over;

static void *flip(void *unused)
{
	(void)unused;
	for (int i = 0; i < 60; i++) {
		lease(i % 3 == 0 ? 0 : clock_now() + 10 * MS);
		if (i % 10 == 9)
			__atomic_store_n(&pages.limits.gated, i % 20 == 9 ? 0 : 1, __ATOMIC_RELEASE);
		clock_sleep_until(clock_now() + 5 * MS);
	}
	__atomic_store_n(&pages.limits.gated, 0, __ATOMIC_RELEASE);
	lease(0);
	over = true;
	return NULL;
}

static void *hammer(void *stream)
{
	for (uint64_t i = 0; !over; i++) {
		CHECK(launch((5 + i % 7) * US, (unsigned)(uintptr_t)stream + i % 2) == CUDA_SUCCESS);
		if (i % 50 == 0)
			synchronise();
	}
	return NULL;
}

static void many_threads(void)
{
	pthread_t threads[4];

	gate_it(true);
	for (uintptr_t i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, i == 3 ? flip : hammer, (void *)(3 + i)) == 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	gate_it(true);
	lease(clock_now() + 100000 * MS);
	CHECK(launch(5 * US, 3) == CUDA_SUCCESS);
	synchronise();
	EVENTUALLY(word(&mine()->inflightns) == 0 && backs > 0, 5);
	CHECK(fakecard.eventsmade < 400);
}

/* Work in flight that waits for work not yet launched holds nobody up for good. */
static void lets_a_tangle_go(void)
{
	gate_it(true);
	lease(clock_now() + 100000 * MS);
	for (int i = 0; i < 12; i++)
		CHECK(launch(1 * MS, 3) == CUDA_SUCCESS);
	pthread_mutex_lock(&fakecard.mutex);
	fakecard.end = fakecard.streamend[3] = clock_now() + 10000 * MS; /* for all that anybody knows */
	pthread_mutex_unlock(&fakecard.mutex);
	for (int i = 0; i < 12; i++)
		CHECK(launch(1 * MS, 3) == CUDA_SUCCESS);
}

static const struct scenario scenarios[] = {
	{"waits for a lease", waits_for_a_lease},
	{"follows new pages", follows_new_pages},
	{"goes when no longer gated", goes_when_no_longer_gated},
	{"keeps a bounded backlog", keeps_a_bounded_backlog},
	{"times an unknown one alone", times_an_unknown_one_alone},
	{"takes no slow launch for a short kernel", takes_no_slow_launch_for_a_short_kernel},
	{"learns of what takes no time", learns_of_what_takes_no_time},
	{"accounts patterns", accounts_patterns},
	{"does not charge pauses", does_not_charge_pauses},
	{"counts no failed launch", counts_no_failed_launch},
	{"leaves captures alone", leaves_captures_alone},
	{"lets streams and contexts go", lets_streams_and_contexts_go},
	{"passes in a forked child", passes_in_a_forked_child},
	{"keeps its rate without an agent", keeps_its_rate_without_an_agent},
	{"samples what is not gated", samples_what_is_not_gated},
	{"many threads", many_threads},
	{"lets a tangle go", lets_a_tangle_go},
};

RUN_TIMED_SCENARIOS(scenarios)
