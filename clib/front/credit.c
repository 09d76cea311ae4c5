/* SPDX-License-Identifier: Apache-2.0 */
#include "credit.h"

/* The agent takes credit back first and lowers the grant after it: never below zero. */
uint64_t front_in_use(const struct divvy_client_card *card)
{
	uint64_t granted = __atomic_load_n(&card->grantedbytes, __ATOMIC_ACQUIRE);
	uint64_t credit = __atomic_load_n(&card->creditbytes, __ATOMIC_ACQUIRE);

	return granted > credit ? granted - credit : 0;
}

bool front_credit_take(struct divvy_client_card *card, uint64_t bytes, uint64_t *left)
{
	uint64_t credit = __atomic_load_n(&card->creditbytes, __ATOMIC_RELAXED);

	while (credit >= bytes) {
		if (__atomic_compare_exchange_n(&card->creditbytes, &credit, credit - bytes, true, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED)) {
			*left = credit - bytes;
			return true;
		}
	}
	return false;
}

void front_credit_put(struct divvy_client_card *card, uint64_t bytes)
{
	__atomic_fetch_add(&card->creditbytes, bytes, __ATOMIC_RELEASE);
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

		move_word(&old->creditbytes, &card->creditbytes);
		move_word(&old->contextbytes, &card->contextbytes);
		move_word(&old->allocations, &card->allocations);
		move_word(&old->denials, &card->denials);
		move_word(&old->launches, &card->launches);
		front_peak_raise(&card->peakbytes, __atomic_load_n(&old->peakbytes, __ATOMIC_RELAXED));
	}
	move_word(&from->client.byname, &to->client.byname);
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
	}
}
