/* SPDX-License-Identifier: Apache-2.0 */
/*
 * duration.c: how long a kernel takes on the card. Two rules:
 *
 * By name, for programs of our own that need to say; such kernels do nothing else:
 *	divvy_busy         its first parameter, 64 bits: nanoseconds
 *	divvy_busy_<N>us   N microseconds
 *	divvy_busy_<N>ms   N milliseconds
 *
 * By cost, for all others: the longer of two times. The instructions that its
 * threads executed, on as many multiprocessors as it has blocks for, each with one
 * instruction a clock on each of its cores. The bytes it loaded and stored in global
 * memory, at the card's full bandwidth; there are no caches. A wave of as many
 * blocks as the card can hold at once takes WAVE_NS at least, and no kernel takes
 * less than KERNEL_NS.
 */
#include "duration.h"

#include <stdlib.h>
#include <string.h>

#include "module/module.h"

#define WAVE_NS 1000u
#define KERNEL_NS 2000u
#define LONGEST_NS 3600000000000ull /* an hour */
#define PREFIX "divvy_busy"

static uint64_t first_parameter(const struct sd_launch *launch)
{
	const void *from = launch->arguments ? launch->arguments[0] : launch->given >= sizeof(uint64_t) ? launch->buffer : NULL;
	uint64_t value = 0;

	if (from)
		memcpy(&value, from, sizeof(value));
	return value;
}

static uint64_t limited(uint64_t count, uint64_t unit)
{
	if (count > LONGEST_NS / unit)
		return LONGEST_NS;
	return count ? count * unit : 1;
}

uint64_t sd_duration_named(const struct sd_launch *launch)
{
	const struct sd_function *function = launch->function;
	const char *rest = function->name;
	char *end = NULL;

	if (strncmp(rest, PREFIX, sizeof(PREFIX) - 1) != 0)
		return 0;
	rest += sizeof(PREFIX) - 1;
	if (*rest == '\0') {
		if (function->parametercount && function->parameters[0].bytes == sizeof(uint64_t))
			return limited(first_parameter(launch), 1);
		return 0;
	}
	if (rest[0] != '_' || rest[1] < '0' || rest[1] > '9')
		return 0;
	uint64_t count = strtoull(rest + 1, &end, 10);

	if (strcmp(end, "us") == 0)
		return limited(count, 1000);
	return strcmp(end, "ms") == 0 ? limited(count, 1000000) : 0;
}

static uint64_t quotient(double amount, double perns)
{
	double ns = perns > 0 ? amount / perns : 0;

	return ns < (double)LONGEST_NS ? (uint64_t)ns : LONGEST_NS;
}

uint64_t sd_duration(const struct sd_launch *launch, const struct sd_card *card, const struct ptx_outcome *outcome)
{
	const struct divvy_sim_card *facts = card->facts;
	uint64_t multiprocessors = facts->multiprocessors ? facts->multiprocessors : 1;
	uint64_t room = sd_launch_resident(launch, card);
	/* limits of grids keep this product small */
	uint64_t blocks = (uint64_t)launch->grid[1] * launch->grid[2];

	room = room ? room : 1;

	if (blocks > LONGEST_NS / launch->grid[0])
		return LONGEST_NS;
	blocks *= launch->grid[0];
	uint64_t used = blocks < multiprocessors ? blocks : multiprocessors;
	/* instructions, and bytes of memory with double data rate, in a nanosecond */
	double rate = (double)used * facts->corespermultiprocessor * facts->smclockmhz / 1000;
	double bandwidth = 2.0 * facts->memoryclockmhz / 1000 * facts->buswidthbits / 8;
	uint64_t ns = limited(blocks / room + (blocks % room != 0), WAVE_NS);
	uint64_t work = quotient((double)outcome->threads, rate);
	uint64_t memory = quotient((double)outcome->bytes, bandwidth);

	ns = work > ns ? work : ns;
	ns = memory > ns ? memory : ns;
	return ns < KERNEL_NS ? KERNEL_NS : ns;
}
