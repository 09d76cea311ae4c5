/* SPDX-License-Identifier: Apache-2.0 */
#include "credit.h"

uint64_t front_in_use(const struct divvy_client_card *card)
{
	return divvy_memory_used(__atomic_load_n(&card->memory, __ATOMIC_ACQUIRE));
}

bool front_credit_take(struct divvy_client_card *card, uint64_t bytes, uint64_t *used)
{
	uint64_t word = __atomic_load_n(&card->memory, __ATOMIC_RELAXED);
	uint64_t units = divvy_memory_units(bytes);

	while ((word & DIVVY_MEMORY_CREDIT) >= units) {
		if (__atomic_compare_exchange_n(&card->memory, &word, word - units, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			*used = divvy_memory_used(word - units);
			return true;
		}
	}
	return false;
}

void front_credit_put(struct divvy_client_card *card, uint64_t bytes)
{
	__atomic_fetch_add(&card->memory, divvy_memory_units(bytes), __ATOMIC_RELEASE);
}

uint64_t front_credit_set_aside(struct divvy_client_card *card, uint64_t *used, bool *mark)
{
	uint64_t word = __atomic_fetch_and(&card->memory, ~DIVVY_MEMORY_CREDIT, __ATOMIC_ACQ_REL);

	*used = divvy_memory_used(word);
	*mark = (word & DIVVY_MEMORY_MARK) != 0;
	return divvy_memory_credit(word);
}

bool front_credit_mark(const struct divvy_client_card *card)
{
	return (__atomic_load_n(&card->memory, __ATOMIC_ACQUIRE) & DIVVY_MEMORY_MARK) != 0;
}

void front_peak_raise(uint64_t *word, uint64_t to)
{
	uint64_t value = __atomic_load_n(word, __ATOMIC_RELAXED);

	while (value < to && !__atomic_compare_exchange_n(word, &value, to, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static void move_word(uint64_t *from, uint64_t *to)
{
	uint64_t value = __atomic_exchange_n(from, 0, __ATOMIC_ACQ_REL);

	if (value != 0)
		__atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}

void front_credit_sweep(struct front_pages *from, struct front_pages *to)
{
	for (unsigned slot = 0; slot < DIVVY_MAX_CARDS; slot++) {
		struct divvy_client_card *old = &from->client.card[slot];
		struct divvy_client_card *card = &to->client.card[slot];
		bool mark;
		uint64_t used, late = front_credit_set_aside(old, &used, &mark);

		if (late != 0)
			front_credit_put(card, late);
		move_word(&old->contextbytes, &card->contextbytes);
		move_word(&old->allocations, &card->allocations);
		move_word(&old->launches, &card->launches);
		front_peak_raise(&card->peakbytes, __atomic_load_n(&old->peakbytes, __ATOMIC_RELAXED));
	}
}

void front_time_carry(const struct front_pages *from, struct front_pages *to)
{
	for (unsigned slot = 0; slot < DIVVY_MAX_CARDS; slot++) {
		const struct divvy_client_card *old = &from->client.card[slot];
		struct divvy_client_card *card = &to->client.card[slot];

		__atomic_store_n(&card->busyns, __atomic_load_n(&old->busyns, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
		__atomic_store_n(&card->drainns, __atomic_load_n(&old->drainns, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
		__atomic_store_n(&card->inflightns, __atomic_load_n(&old->inflightns, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
		__atomic_store_n(&card->waitns, __atomic_load_n(&old->waitns, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
		__atomic_store_n(&card->latens, __atomic_load_n(&old->latens, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
		__atomic_store_n(&card->lastendns, __atomic_load_n(&old->lastendns, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
		__atomic_store_n(&card->spanns, __atomic_load_n(&old->spanns, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
		__atomic_store_n(&card->gapns, __atomic_load_n(&old->gapns, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	}
}
