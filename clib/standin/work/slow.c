/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow.c: what a launch costs the thread of a program on the slow host that
 * DIVVY_SLOW_HOST=USUAL:RARE:MOST:LAUNCH plays (clib/slowhost has the rest).
 */
#include "slow.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/outlook.h"

#define MOST_NS 10000000ull
#define UNKNOWN UINT64_MAX

static _Atomic uint64_t cost = UNKNOWN;

static uint64_t read_cost(void)
{
	const char *text = getenv("DIVVY_SLOW_HOST");
	unsigned long long ns = 0;

	if (text == NULL || sscanf(text, "%*u:%*u:%*u:%llu", &ns) != 1 || ns > MOST_NS)
		ns = 0;
	atomic_store_explicit(&cost, ns, memory_order_relaxed);
	return ns;
}

void sd_slow_launch(void)
{
	uint64_t ns = atomic_load_explicit(&cost, memory_order_relaxed);

	if (ns == UNKNOWN)
		ns = read_cost();
	if (ns == 0)
		return;
	for (uint64_t until = sd_now() + ns; sd_now() < until;)
		__builtin_ia32_pause();
}
