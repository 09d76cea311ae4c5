/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakeclock.h: a clock for scenarios of the gate, instead of clock.c and thread.c.
 * Time goes on by what is said to be worked, and where all threads wait, to the next
 * instant that one of them waits for. One thread runs at a time, the one whose turn
 * comes first. So a scenario runs the same way on any host, in no time.
 *
 * A schedule is a number. 0: work takes what is said and sleepers wake in time. Others
 * draw how long work takes and how late sleepers wake, the same way each time; among
 * them the even ones let the host pause now and then.
 *
 * A slow host (fakeclock_host) wakes sleepers later, as its profile says.
 *
 * Threads belong to processes, numbered from 0, the first thread's. Only one of them
 * all runs at a time, so what a process keeps in variables can be changed for another's
 * where the turn goes to a thread of that one (fakeclock_processes).
 *
 * hostclock.c starts the threads of a program that runs by the host's clock.
 */
#ifndef FAKECLOCK_H
#define FAKECLOCK_H

#include "check.h"
#include "clock.h"

/* The calling thread is busy for so long, ns. */
void fakeclock_work(uint64_t ns);

/* A thread of the program, for fakeclock_join. */
unsigned fakeclock_start(void *(*run)(void *), void *argument);
void fakeclock_join(unsigned thread);

/* In a forked child: its parent's other threads are none of it. */
void fakeclock_forked(void);

/*
 * A host, in ns. How late it wakes sleepers: half of them by no more than usual, one in
 * a thousand by more than rare, none by more than most. launch: what a launch takes its
 * thread. Zeros: the host of the schedule.
 */
struct fakeclock_host {
	uint64_t usual;
	uint64_t rare;
	uint64_t most;
	uint64_t launch;
};

void fakeclock_host(struct fakeclock_host host);
uint64_t fakeclock_launch(void);

/* What a slow virtual machine of two processors was seen to do. */
#define FAKECLOCK_SLOW_HOST \
	((struct fakeclock_host){.usual = 100000, .rare = 2000000, .most = 5000000, .launch = 60000})

/* From now on change is called before a thread of another process runs. */
void fakeclock_processes(void (*change)(unsigned from, unsigned to));
/* A thread of another process; the calling one's is its parent. */
unsigned fakeclock_spawn(unsigned process, void *(*run)(void *), void *argument);

/* Before anything else of a scenario. */
void fakeclock_follow(unsigned schedule);
unsigned fakeclock_schedule(void);
/* The host never pauses in it, and is not slow. */
bool fakeclock_steady(void);

/* Of all turns so far: who had them and when. */
uint64_t fakeclock_trace(void);

#define WITHIN_STEP_NS 10000u

/* Waits for what another thread brings about, at most ns. */
#define WITHIN(condition, ns) \
	do { \
		for (uint64_t steps = (ns) / WITHIN_STEP_NS; !(condition) && steps > 0; steps--) \
			clock_pause(WITHIN_STEP_NS); \
		CHECK(condition); \
	} while (0)

#define SLOW_SCHEDULES 4u

/* main: each scenario under so many schedules, and under some on a slow host. */
#define RUN_SCHEDULES(list, schedules) \
	int main(int argc, char **argv) \
	{ \
		return run_hosts(list, sizeof(list) / sizeof((list)[0]), schedules, SLOW_SCHEDULES, argc, argv); \
	}

static inline int run_hosts(const struct scenario *scenario, size_t count, unsigned schedules, unsigned slow, int argc,
			    char **argv)
{
	int failed = 0;

	for (size_t i = 0; i < count; i++) {
		int faults = 0;

		if (!scenario_wanted(&scenario[i], argc, argv))
			continue;
		for (unsigned schedule = 0; schedule < schedules + slow; schedule++) {
			int status;

			fakeclock_follow(schedule);
			fakeclock_host(schedule < schedules ? (struct fakeclock_host){0} : FAKECLOCK_SLOW_HOST);
			status = scenario_run(&scenario[i]);
			if (status != 0)
				printf("FAIL %s (schedule %u, status %#x)\n", scenario[i].name, schedule, (unsigned)status);
			faults += status != 0;
		}
		if (faults == 0)
			printf("ok   %s\n", scenario[i].name);
		failed |= faults != 0;
	}
	return failed;
}

/* On no slow host. */
static inline int run_schedules(const struct scenario *scenario, size_t count, unsigned schedules, int argc, char **argv)
{
	return run_hosts(scenario, count, schedules, 0, argc, argv);
}

#endif
