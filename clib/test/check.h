/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h: scenarios of a test program. Each runs in a process of its own, so
 * that what the library keeps once per process starts fresh. RUN_SCENARIOS is
 * main: without arguments all of them, with arguments those named.
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

/* As the arguments of the program say: all, or those named. */
static inline bool scenario_wanted(const struct scenario *scenario, int argc, char **argv)
{
	bool wanted = argc < 2;

	for (int i = 1; i < argc; i++)
		wanted |= strcmp(argv[i], scenario->name) == 0;
	return wanted;
}

/* 0, or how its process ended. */
static inline int scenario_run(const struct scenario *scenario)
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		alarm(120);
		scenario->run();
		exit(0);
	}
	return pid < 0 || waitpid(pid, &status, 0) != pid ? -1 : status;
}

static inline int run_scenarios(const struct scenario *scenario, size_t count, int argc, char **argv)
{
	int failed = 0;

	for (size_t i = 0; i < count; i++) {
		int status;

		if (!scenario_wanted(&scenario[i], argc, argv))
			continue;
		status = scenario_run(&scenario[i]);
		failed |= status != 0;
		if (status != 0)
			printf("FAIL %s (status %#x)\n", scenario[i].name, (unsigned)status);
		else
			printf("ok   %s\n", scenario[i].name);
	}
	return failed;
}

#define RUN_SCENARIOS(list) \
	int main(int argc, char **argv) \
	{ \
		return run_scenarios(list, sizeof(list) / sizeof((list)[0]), argc, argv); \
	}

#endif
