/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c: the threads that help to run grids. They start with the first grid that
 * has work for them, take no signals, and sleep between grids. One grid at a time
 * has them, until it has no block left to begin; others meanwhile do with the
 * threads that run them.
 */
#include <sched.h>
#include <signal.h>

#include "machine.h"

enum { HELPERS = 63, STACK = 1 << 20 };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t change;
	pthread_cond_t done;
	unsigned int started;
	unsigned int wanted; /* helpers that have yet to take the grid */
	unsigned int busy;
	struct ptx_grid *grid;
	void (*work)(struct ptx_grid *grid);
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER };

unsigned int ptx_pool_cores(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 1;
	unsigned int count = (unsigned int)CPU_COUNT(&set);

	return count < 1 ? 1 : count > HELPERS + 1 ? HELPERS + 1 : count;
}

static void *help(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&pool.lock);
	for (;;) {
		while (!pool.wanted)
			pthread_cond_wait(&pool.change, &pool.lock);
		struct ptx_grid *grid = pool.grid;
		void (*work)(struct ptx_grid *) = pool.work;

		pool.wanted--;
		pool.busy++;
		pthread_mutex_unlock(&pool.lock);
		work(grid);
		pthread_mutex_lock(&pool.lock);
		if (--pool.busy == 0) {
			pool.grid = NULL;
			pool.wanted = 0;
			pthread_cond_broadcast(&pool.done);
		}
	}
	return NULL;
}

/* The lock is held. */
static void start(unsigned int count)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all;
	sigset_t before;

	if (pool.started >= count || pthread_attr_init(&attributes) != 0)
		return;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (pool.started < count && pthread_create(&thread, &attributes, help, NULL) == 0)
		pool.started++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
}

void ptx_pool_run(struct ptx_grid *grid, unsigned int helpers, void (*work)(struct ptx_grid *grid))
{
	bool mine = false;

	if (helpers) {
		pthread_mutex_lock(&pool.lock);
		if (!pool.grid) {
			start(helpers < HELPERS ? helpers : HELPERS);
			mine = true;
			pool.grid = grid;
			pool.work = work;
			pool.wanted = helpers < pool.started ? helpers : pool.started;
			pthread_cond_broadcast(&pool.change);
		}
		pthread_mutex_unlock(&pool.lock);
	}
	work(grid);
	if (!mine)
		return;
	pthread_mutex_lock(&pool.lock);
	if (pool.grid == grid)
		pool.wanted = 0; /* those that have not woken need not */
	while (pool.grid == grid && pool.busy)
		pthread_cond_wait(&pool.done, &pool.lock);
	if (pool.grid == grid)
		pool.grid = NULL;
	pthread_mutex_unlock(&pool.lock);
}
