/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health.c: how cards are, and the page on which the simulator tells everybody
 * of changes.
 */
#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

static _Atomic(const struct divvy_sim_notice *) notice;

const struct divvy_sim_notice *sim_notice(void)
{
	const struct divvy_sim_notice *known = atomic_load_explicit(&notice, memory_order_acquire);
	struct divvy_sim_header header = {.type = DIVVY_SIM_NOTICE};
	void *mapped;
	int fd = -1;

	if (known || sim_request(&header, NULL, 0, -1, &fd) != 0 || fd < 0)
		return known;
	mapped = mmap(NULL, DIVVY_SIM_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (mapped == MAP_FAILED)
		return NULL;
	if (!atomic_compare_exchange_strong(&notice, &known, (const struct divvy_sim_notice *)mapped)) {
		munmap(mapped, DIVVY_SIM_PAGE_BYTES);
		return known;
	}
	return mapped;
}

void sim_notice_forget(void)
{
	atomic_store(&notice, NULL);
}

uint32_t sim_word(const uint32_t *word)
{
	return word ? __atomic_load_n(word, __ATOMIC_ACQUIRE) : 0;
}

uint32_t sim_card_flags(uint32_t card)
{
	const struct divvy_sim_notice *page = sim_notice();

	return page && card < DIVVY_SIM_MAX_CARDS ? __atomic_load_n(&page->flags[card], __ATOMIC_ACQUIRE) : 0;
}

void sim_sleep(const uint32_t *word, uint32_t seen, uint64_t untilns)
{
	const struct timespec time = {(time_t)(untilns / 1000000000u), (long)(untilns % 1000000000u)};

	if (word)
		syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, &time, NULL, FUTEX_BITSET_MATCH_ANY);
	else
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

int sim_health(uint32_t card, struct divvy_sim_health *out)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_HEALTH, .card = card};
	struct divvy_sim_health answer;
	int result = sim_request(&header, &answer, sizeof(answer), -1, NULL);

	if (result == 0 && header.payloadbytes != sizeof(answer))
		result = -EIO;
	if (result == 0)
		*out = answer;
	return result;
}

int sim_faulted(uint32_t card, uint32_t *count, uint32_t *error)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_FAULTED, .card = card};
	int result = sim_request(&header, NULL, 0, -1, NULL);

	*count = header.count;
	*error = header.kind;
	return result;
}

int sim_fault_report(uint32_t card, uint32_t xid, uint32_t error)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_FAULT_REPORT, .card = card, .bytes = xid, .kind = error};

	return sim_request(&header, NULL, 0, -1, NULL);
}

int sim_incidents(uint64_t *cursor, struct divvy_sim_incident page[SIM_INCIDENTS], uint32_t *count)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_INCIDENTS, .cursor = *cursor};
	int result = sim_request(&header, page, SIM_INCIDENTS * sizeof(*page), -1, NULL);

	*count = 0;
	if (result == 0 && (header.count > SIM_INCIDENTS || header.payloadbytes != header.count * sizeof(*page)))
		result = -EIO;
	if (result == 0) {
		*count = header.count;
		*cursor = header.cursor;
	}
	return result;
}
