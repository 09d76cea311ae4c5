/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h: scenarios of a test program. Each runs in a process of its own, so
 * that what the library keeps once per process starts fresh. RUN_SCENARIOS is
 * main: without arguments all of them, with arguments those named.
 *
 * RUN_TIMED_SCENARIOS is for those that measure beside a clock that does not wait for
 * them: one that fails while the host was seen to pause runs again, up to
 * SCENARIO_TRIES times.
 */
#ifndef DIVVY_TEST_CHECK_H
#define DIVVY_TEST_CHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			_exit(1); \
		} \
	} while (0)

/* Waits for what another thread brings about. */
#define EVENTUALLY(condition, seconds) \
	do { \
		struct timespec nap = {.tv_nsec = 1000000}; \
		long naps = (seconds) * 1000L; \
		while (!(condition) && naps-- > 0) \
			nanosleep(&nap, NULL); \
		CHECK(condition); \
	} while (0)

struct scenario {
	const char *name;
	void (*run)(void);
};

#define SCENARIO_TRIES 20
#define SCENARIO_LATE_NS 500000 /* a nap that ends so late is a pause of the host */

static inline long scenario_nap(long ns)
{
	struct timespec nap = {.tv_nsec = ns}, from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	nanosleep(&nap, NULL);
	clock_gettime(CLOCK_MONOTONIC, &to);
	return (to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec - ns;
}

/* One try; its status, and the longest pause of the host meanwhile, in ns. */
static inline int scenario_try(const struct scenario *scenario, bool timed, long *pause)
{
	int status = 0;
	pid_t pid, ended;

	*pause = 0;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		alarm(120);
		scenario->run();
		exit(0);
	}
	while ((ended = waitpid(pid, &status, timed ? WNOHANG : 0)) == 0) {
		long late = scenario_nap(1000000);

		*pause = late > *pause ? late : *pause;
	}
	return pid < 0 || ended < 0 ? -1 : status;
}

static inline int scenarios_run(const struct scenario *scenario, size_t count, bool timed, int argc, char **argv)
{
	int failed = 0;

	for (size_t i = 0; i < count; i++) {
		int wanted = argc < 2, status = 0, tries = 0;
		long pause = 0;

		for (int j = 1; j < argc; j++)
			wanted |= strcmp(argv[j], scenario[i].name) == 0;
		if (!wanted)
			continue;
		while ((status = scenario_try(&scenario[i], timed, &pause)) != 0 && pause > SCENARIO_LATE_NS && ++tries < SCENARIO_TRIES)
			printf("once more: %s: the host paused for %ld us\n", scenario[i].name, pause / 1000);
		failed |= status != 0;
		if (status != 0)
			printf("FAIL %s (status %#x)\n", scenario[i].name, (unsigned)status);
		else
			printf("ok   %s\n", scenario[i].name);
	}
	return failed;
}

static inline int run_scenarios(const struct scenario *scenario, size_t count, int argc, char **argv)
{
	return scenarios_run(scenario, count, false, argc, argv);
}

#define RUN_SCENARIOS(list) \
	int main(int argc, char **argv) \
	{ \
		return run_scenarios(list, sizeof(list) / sizeof((list)[0]), argc, argv); \
	}

#define RUN_TIMED_SCENARIOS(list) \
	int main(int argc, char **argv) \
	{ \
		return scenarios_run(list, sizeof(list) / sizeof((list)[0]), true, argc, argv); \
	}

#endif
