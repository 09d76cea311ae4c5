/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c: what a program may learn about its share, and what is written to the
 * client page for others to see.
 */
#include "ledger.h"

#include <errno.h>
#include <string.h>

#include "clock.h"

#define SYNC_NS (5 * 1000000ull) /* how old usedbytes may be */

/* The answer to our own last SYNC. */
struct synced {
	const struct front_pages *pages;
	uint64_t stamp;
	uint64_t own; /* in use by this process then */
};

static struct synced synced[DIVVY_MAX_CARDS];

static struct front_pages *pages_now(void)
{
	return __atomic_load_n(&front_pages_now, __ATOMIC_ACQUIRE);
}

static void count(uint64_t *word, uint64_t by)
{
	__atomic_fetch_add(word, by, __ATOMIC_RELAXED);
}

const struct divvy_limits *front_limits(void)
{
	struct front_pages *pages = pages_now();

	return pages == NULL ? NULL : &pages->limits;
}

uint64_t front_context_bytes(int slot)
{
	const struct divvy_limits *limits = front_limits();

	if (limits == NULL || (unsigned)slot >= DIVVY_MAX_CARDS)
		return 0;
	/* in whole units, so that what several contexts were charged adds up */
	return divvy_memory_units(__atomic_load_n(&limits->card[slot].contextbytes, __ATOMIC_RELAXED)) * DIVVY_ALLOCATION_UNIT;
}

/*
 * In use by all processes of the share: asked of the agent unless the figure is
 * young and its stamp is that of our own last question. What this process did
 * since then it knows best. Two threads that ask at once may mix their answers,
 * which then are as old as the older one.
 */
__attribute__((noinline)) static uint64_t used_by_all(const struct front_pages *pages, int slot)
{
	struct divvy_message message = {.type = DIVVY_SYNC, .slot = (uint32_t)slot};
	struct synced *mine = &synced[slot];
	uint64_t own = front_in_use(&pages->client.card[slot]);
	uint64_t stamp = __atomic_load_n(&pages->limits.card[slot].stampns, __ATOMIC_ACQUIRE);
	uint64_t used;

	if (__atomic_load_n(&mine->pages, __ATOMIC_ACQUIRE) != pages || stamp != __atomic_load_n(&mine->stamp, __ATOMIC_RELAXED) ||
	    clock_read(CLOCK_MONOTONIC_COARSE) > stamp + SYNC_NS) {
		if (front_ask(&message) == 0) {
			own = front_in_use(&pages->client.card[slot]);
			stamp = __atomic_load_n(&pages->limits.card[slot].stampns, __ATOMIC_ACQUIRE);
			__atomic_store_n(&mine->own, own, __ATOMIC_RELAXED);
			__atomic_store_n(&mine->stamp, stamp, __ATOMIC_RELAXED);
			__atomic_store_n(&mine->pages, pages, __ATOMIC_RELEASE);
		}
	}
	used = __atomic_load_n(&pages->limits.card[slot].usedbytes, __ATOMIC_RELAXED);
	if (__atomic_load_n(&mine->pages, __ATOMIC_ACQUIRE) == pages && __atomic_load_n(&mine->stamp, __ATOMIC_RELAXED) == stamp)
		used += own - __atomic_load_n(&mine->own, __ATOMIC_RELAXED);
	return used < own || used > INT64_MAX ? own : used;
}

uint64_t front_own_use(int slot)
{
	struct front_pages *pages = pages_now();

	return pages == NULL || (unsigned)slot >= DIVVY_MAX_CARDS ? 0 : front_in_use(&pages->client.card[slot]);
}

bool front_limited(int slot)
{
	const struct divvy_limits *limits = front_limits();

	return limits != NULL && (unsigned)slot < DIVVY_MAX_CARDS &&
	       (__atomic_load_n(&limits->card[slot].flags, __ATOMIC_RELAXED) & DIVVY_CARD_UNLIMITED) == 0;
}

void front_memory(int slot, uint64_t driverfree, uint64_t drivertotal, uint64_t *freebytes, uint64_t *totalbytes)
{
	struct front_pages *pages = pages_now();
	uint64_t used, limit;

	*freebytes = driverfree;
	*totalbytes = drivertotal;
	if (!front_limited(slot))
		return;
	front_watch();
	pages = pages_now();
	if (__atomic_load_n(&pages->limits.clients, __ATOMIC_RELAXED) == 1 || front_forked())
		used = front_in_use(&pages->client.card[slot]);
	else
		used = used_by_all(pages, slot);
	limit = __atomic_load_n(&pages->limits.card[slot].limitbytes, __ATOMIC_RELAXED);
	*totalbytes = limit;
	*freebytes = limit > used ? limit - used : 0;
}

void front_context_held(int slot, int64_t bytes)
{
	struct front_pages *pages = pages_now();

	if ((unsigned)slot < DIVVY_MAX_CARDS && pages != NULL)
		count(&pages->client.card[slot].contextbytes, (uint64_t)bytes);
}

void front_count_launches(int slot, uint64_t launches)
{
	struct front_pages *pages = pages_now();

	if ((unsigned)slot < DIVVY_MAX_CARDS && pages != NULL)
		count(&pages->client.card[slot].launches, launches);
}

int front_measure(int slot, uint64_t *bytes)
{
	struct divvy_message message = {.type = DIVVY_MEASURE, .slot = (uint32_t)slot};

	if ((unsigned)slot >= DIVVY_MAX_CARDS || front_ask(&message) < 0 || message.type != DIVVY_MEASURED ||
	    message.status != DIVVY_STATUS_OK)
		return -ENODATA;
	*bytes = message.amount;
	return 0;
}

int front_users(int slot, struct front_user *users, unsigned room)
{
	uint32_t pids[DIVVY_PROCESSES_PER_MESSAGE];
	uint64_t total;
	unsigned have = 0;

	front_watch();
	do {
		struct divvy_message message = {.type = DIVVY_PROCESSES, .slot = (uint32_t)slot, .amount = have};
		unsigned before = have;
		int rc = front_ask(&message);

		if (rc < 0)
			return rc;
		if (message.type != DIVVY_PROCESSED || message.status != DIVVY_STATUS_OK)
			return -EPROTO;
		total = message.amount < INT32_MAX ? message.amount : INT32_MAX;
		memcpy(pids, message.text, sizeof(pids));
		for (unsigned i = 0; i < DIVVY_PROCESSES_PER_MESSAGE && pids[i] != 0 && have < room; i++)
			users[have++] = (struct front_user){.pid = pids[i], .bytes = message.bytes[i]};
		if (have == before)
			break;
	} while (have < room && have < total);
	return have < room ? (int)have : (int)total;
}
