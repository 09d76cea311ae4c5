/* SPDX-License-Identifier: Apache-2.0 */
#include "outlook.h"

#include <string.h>
#include <time.h>

#include "sim/sim.h"

#define ENTRIES DIVVY_SIM_RING_ENTRIES

enum {
	AFTER = 4,
	MEMOS = 16,
	DEEPEST = 4, /* markers behind markers that are looked through */
};

enum knowledge { UNKNOWN, NOT_YET, ENDED };

static struct {
	const struct divvy_sim_ring *ring;
	struct {
		uint64_t item;
		uint64_t notbefore;
	} memo[MEMOS]; /* of questions */
	struct {
		uint64_t item;
		uint64_t notbefore;
	} first; /* of the kernels that were asked for; see precedes */
	bool gated;
} state;

uint64_t sd_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

void sd_outlook_begin(const struct divvy_sim_ring *ring)
{
	state.ring = ring;
}

void sd_outlook_gated(void)
{
	state.gated = true;
}

void sd_outlook_forget(void)
{
	memset(state.memo, 0, sizeof(state.memo));
	state.first.item = 0;
}

static uint64_t head(void)
{
	return __atomic_load_n(&state.ring->head, __ATOMIC_ACQUIRE);
}

static const struct divvy_sim_item *entry_of(uint64_t item)
{
	return &state.ring->entries[(item - 1) % ENTRIES];
}

bool sd_known_end(uint64_t item, uint64_t *end)
{
	const struct divvy_sim_slot *slot;

	*end = 0;
	if (!item)
		return true;
	slot = &state.ring->slots[(item - 1) % ENTRIES];
	if (__atomic_load_n(&slot->item, __ATOMIC_ACQUIRE) == item) {
		*end = __atomic_load_n(&slot->endns, __ATOMIC_ACQUIRE);
		if (__atomic_load_n(&slot->item, __ATOMIC_ACQUIRE) == item)
			return true;
		*end = 0;
	}
	return item + ENTRIES <= head();
}

bool sd_seen_end(uint64_t item, uint64_t now)
{
	uint64_t end = 0;

	return sd_known_end(item, &end) && end <= now;
}

/*
 * Kernels of a process on one card run in the order of their numbers, as long as nothing
 * keeps an earlier one from beginning: so one that has not ended says so of all later ones.
 */
static bool precedes(uint64_t first, uint64_t item)
{
	const struct divvy_sim_item *one = entry_of(first), *other = entry_of(item);

	return !state.gated && first <= item && first + ENTRIES > head() && one->kind == DIVVY_SIM_ITEM_KERNEL &&
	       other->kind == DIVVY_SIM_ITEM_KERNEL && one->card == other->card;
}

/* What is known without asking of whether an item has ended, and when. */
static enum knowledge foresee(uint64_t item, uint64_t now, unsigned int depth, uint64_t *end)
{
	const struct divvy_sim_item *entry;
	enum knowledge known = ENDED;

	if (sd_known_end(item, end))
		return *end <= now ? ENDED : NOT_YET;
	if ((state.memo[item % MEMOS].item == item && now < state.memo[item % MEMOS].notbefore) ||
	    (state.first.item != 0 && now < state.first.notbefore && precedes(state.first.item, item)))
		return NOT_YET;
	entry = entry_of(item);
	if (entry->kind != DIVVY_SIM_ITEM_MARKER || depth == DEEPEST)
		return UNKNOWN;
	for (unsigned int i = 0; i < AFTER && known != NOT_YET; i++) {
		uint64_t at = 0;
		enum knowledge one = foresee(entry->after[i], now, depth + 1, &at);

		if (one < known || one == NOT_YET)
			known = one;
		*end = at > *end ? at : *end;
	}
	/* one that came when all before it had ended has the time at which it was read */
	return known == ENDED && *end <= entry->stampns ? UNKNOWN : known;
}

/* What a marker marks, if it is one. */
static uint64_t marked(uint64_t item)
{
	for (unsigned int i = 0; i < DEEPEST; i++) {
		const struct divvy_sim_item *entry = entry_of(item);

		if (entry->kind != DIVVY_SIM_ITEM_MARKER || entry->after[0] == 0 || entry->after[1] != 0 ||
		    entry->after[0] + ENTRIES <= head())
			break;
		item = entry->after[0];
	}
	return item;
}

/* The simulator has said that an item does not end before then. */
static void note(uint64_t item, uint64_t notbefore, uint64_t now)
{
	state.memo[item % MEMOS].item = item;
	state.memo[item % MEMOS].notbefore = notbefore;
	item = marked(item);
	if (state.first.item == 0 || now >= state.first.notbefore || item < state.first.item) {
		state.first.item = item;
		state.first.notbefore = notbefore;
	}
}

bool sd_ended(uint64_t item)
{
	uint64_t now = sd_now();
	uint64_t at = 0;
	bool ends = false;
	enum knowledge known;

	if (!item)
		return true;
	known = foresee(item, now, 0, &at);
	if (known != UNKNOWN)
		return known == ENDED;
	if (sim_wait(item, false, &ends, &at) < 0)
		return true;
	if (ends)
		return at <= sd_now();
	note(item, at, now);
	return false;
}

uint64_t sd_end_of(uint64_t item)
{
	uint64_t end = 0;

	if (item)
		(void)foresee(item, UINT64_MAX, 0, &end);
	return end;
}
