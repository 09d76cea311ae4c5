/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakeclock.c: see fakeclock.h. Threads hand each other the turn by a futex. This file
 * is compiled without sanitisers: that threads run one by one is no order among them
 * that the thread sanitiser should see.
 */
#include "fakeclock.h"

#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "thread.h"

#define THREADS 72u
#define START_NS 1000000000000ull
#define END_NS (START_NS + 1000000000000ull)
#define NEVER UINT64_MAX
#define LOOK_NS 30u       /* reading the clock */
#define LATE_NS 60000u    /* a sleeper wakes, at most, unless there is a profile */
#define USUAL 0.5         /* the part of sleepers that are later than a profile's words say */
#define RARE 0.001
#define PAUSE_NS 3000000u /* of the host, at most */
#define PAUSE_OF 2000u    /* one piece of work in so many */

/* Written by the thread whose turn it is. */
struct thread {
	pthread_t id;
	void *(*run)(void *);
	void *argument;
	unsigned process;
	bool lives;
	uint32_t turn;        /* futex */
	uint32_t begun;       /* futex */
	uint32_t ended;       /* joined by waiting for it */
	uint64_t at;          /* its next turn */
	uint64_t order;       /* among those whose turn is at the same instant */
	const uint32_t *word; /* that it waits for */
};

static struct thread threads[THREADS] = {{.lives = true}};
static unsigned used = 1;
static __thread struct thread *self = &threads[0];
static uint64_t now = START_NS, orders, trace = 0xcbf29ce484222325ull, dice;
static unsigned schedule, process;
static struct fakeclock_host host;
static void (*change_process)(unsigned from, unsigned to);

void fakeclock_follow(unsigned number)
{
	schedule = number;
	dice = number * 0x9e3779b97f4a7c15ull;
}

unsigned fakeclock_schedule(void)
{
	return schedule;
}

/* The even schedules have them, but for the first. */
static bool pauses(void)
{
	return schedule != 0 && schedule % 2 == 0;
}

bool fakeclock_steady(void)
{
	return host.most == 0 && !pauses();
}

uint64_t fakeclock_trace(void)
{
	return trace;
}

/* Below most. */
static uint64_t draw(uint64_t most)
{
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return dice % most;
}

static void note(uint64_t value)
{
	trace = (trace ^ value) * 0x100000001b3ull;
}

static struct thread *first(void)
{
	struct thread *one = NULL;

	for (unsigned i = 0; i < used; i++) {
		struct thread *thread = &threads[i];

		if (thread->lives && (one == NULL || thread->at < one->at || (thread->at == one->at && thread->order < one->order)))
			one = thread;
	}
	return one;
}

/* Of real time. */
static void await(uint32_t *word)
{
	while (__atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST) == 0)
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void tell(uint32_t *word)
{
	__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* To whom it is due; comes back when it is ours again, unless we have ended. */
static void pass(void)
{
	struct thread *next = first();

	CHECK(next != NULL && next->at != NEVER); /* else all wait for ever */
	CHECK(next->at < END_NS);
	now = next->at > now ? next->at : now;
	note((uint64_t)(next - threads));
	note(now);
	if (next == self)
		return;
	if (next->process != process) {
		if (change_process != NULL)
			change_process(process, next->process);
		process = next->process;
	}
	tell(&next->turn);
	if (self->lives)
		await(&self->turn);
}

static void pass_until(uint64_t at, const uint32_t *word)
{
	self->at = at;
	self->order = ++orders;
	self->word = word;
	pass();
	self->word = NULL;
}

void fakeclock_host(struct fakeclock_host profile)
{
	host = profile;
}

uint64_t fakeclock_launch(void)
{
	return host.launch;
}

static uint64_t late(void)
{
	double of;

	if (schedule == 0)
		return 0;
	if (host.most == 0)
		return draw(LATE_NS);
	of = 1 - (double)draw(1000000) / 1e6; /* this part of all sleepers is later */
	if (of >= USUAL)
		return (uint64_t)((double)host.usual * (1 - of) / (1 - USUAL));
	if (of >= RARE)
		return (uint64_t)((double)host.usual * pow((double)host.rare / (double)host.usual, log(USUAL / of) / log(USUAL / RARE)));
	return (uint64_t)((double)host.rare + (double)(host.most - host.rare) * (1 - of / RARE));
}

/* -- clock.h --------------------------------------------------------------- */

void fakeclock_work(uint64_t ns)
{
	if (schedule != 0)
		ns = ns / 2 + draw(ns + 1);
	if (pauses() && draw(PAUSE_OF) == 0)
		ns += draw(PAUSE_NS);
	pass_until(now + ns, NULL);
}

uint64_t clock_now(void)
{
	fakeclock_work(LOOK_NS);
	return now;
}

void clock_sleep_until(uint64_t instant)
{
	pass_until(instant > now ? instant + late() : now, NULL);
}

void clock_pause(uint64_t ns)
{
	clock_sleep_until(now + ns);
}

void clock_wait(const uint32_t *word, uint32_t value, uint64_t ns, bool shared)
{
	(void)shared;
	if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
		pass_until(ns == 0 ? NEVER : now + ns + late(), word);
}

void clock_wake(const uint32_t *word, int most, bool shared)
{
	(void)shared;
	for (unsigned i = 0; i < used && most > 0; i++) {
		if (!threads[i].lives || threads[i].word != word)
			continue;
		threads[i].word = NULL;
		threads[i].at = now + late();
		threads[i].order = ++orders;
		most--;
	}
}

/* -- threads --------------------------------------------------------------- */

static void *begin(void *argument)
{
	self = argument;
	tell(&self->begun);
	await(&self->turn);
	self->run(self->argument);
	self->ended = 1;
	clock_wake(&self->ended, 1, false);
	self->lives = false;
	pass();
	return NULL;
}

unsigned fakeclock_spawn(unsigned of, void *(*run)(void *), void *argument)
{
	struct thread *thread = &threads[used];

	CHECK(used < THREADS);
	*thread = (struct thread){.run = run, .argument = argument, .process = of, .lives = true, .at = now + late(),
				  .order = ++orders};
	CHECK(pthread_create(&thread->id, NULL, begin, thread) == 0);
	/* Until it has begun it holds locks of the sanitiser's, in a forked child for ever. */
	await(&thread->begun);
	return used++;
}

unsigned fakeclock_start(void *(*run)(void *), void *argument)
{
	return fakeclock_spawn(self->process, run, argument);
}

void fakeclock_processes(void (*change)(unsigned from, unsigned to))
{
	change_process = change;
}

void fakeclock_join(unsigned thread)
{
	clock_wait(&threads[thread].ended, 0, 0, false);
	CHECK(pthread_join(threads[thread].id, NULL) == 0);
}

int guest_thread_start(void *(*run)(void *), void *argument)
{
	return pthread_detach(threads[fakeclock_start(run, argument)].id);
}

void fakeclock_forked(void)
{
	alarm(120); /* which a child does not inherit */
	for (unsigned i = 0; i < used; i++)
		threads[i].lives = &threads[i] == self;
}
