/* SPDX-License-Identifier: Apache-2.0 */
/* random.h: numbers that are the same in each run, and others when fuzzing. */
#ifndef DIVVY_TEST_STANDIN_RANDOM_H
#define DIVVY_TEST_STANDIN_RANDOM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t state = 88172645463325252ull;

static inline uint64_t random64(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Whether a scenario goes on, which does so many rounds, or for DIVVY_FUZZ_SECONDS with another seed. */
static inline bool one_more(int rounds)
{
	const char *seconds = getenv("DIVVY_FUZZ_SECONDS");
	static time_t until;
	static int done;

	if (!done++ && seconds) {
		state ^= (uint64_t)time(NULL) << 20;
		until = time(NULL) + atol(seconds);
		printf("seed %#llx\n", (unsigned long long)state);
		alarm(0);
	}
	return until ? time(NULL) < until : done <= rounds;
}

#endif
