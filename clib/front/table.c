/* SPDX-License-Identifier: Apache-2.0 */
/* table.c: see table.h. */
#include "table.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* The finaliser of splitmix64: every input bit reaches every output bit. */
static uint64_t hash(uint16_t space, uint64_t key)
{
	uint64_t h = key ^ ((uint64_t)space << 48);

	h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
	h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
	return h ^ (h >> 31);
}

static struct table_stripe *stripe_of(struct table *table, uint64_t h)
{
	return &table->stripe[h & (TABLE_STRIPES - 1)];
}

/* The place inside a stripe uses the upper half of the hash: the lower chose the stripe. */
static uint32_t home_of(const struct table_stripe *stripe, uint64_t h)
{
	return (uint32_t)(h >> 32) & (stripe->size - 1);
}

/* Index of the record, or of the empty place where it belongs. The stripe has an empty place. */
static uint32_t find(const struct table_stripe *stripe, uint64_t h, uint16_t space, uint64_t key)
{
	uint32_t mask = stripe->size - 1;
	uint32_t i = home_of(stripe, h);

	while (stripe->records[i].space != 0 &&
	       !(stripe->records[i].key == key && stripe->records[i].space == space))
		i = (i + 1) & mask;
	return i;
}

static int grow(struct table_stripe *stripe)
{
	uint32_t size = stripe->size ? stripe->size * 2 : TABLE_FIRST_RECORDS;
	struct table_stripe bigger = { .size = size };

	if (size > TABLE_MAX_RECORDS)
		return -ENOMEM;
	bigger.records = mmap(NULL, (size_t)size * sizeof(struct table_record), PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bigger.records == MAP_FAILED)
		return -ENOMEM;
	for (uint32_t i = 0; i < stripe->size; i++) {
		const struct table_record *record = &stripe->records[i];

		if (record->space != 0)
			bigger.records[find(&bigger, hash(record->space, record->key), record->space, record->key)] =
				*record;
	}
	if (stripe->records)
		munmap(stripe->records, (size_t)stripe->size * sizeof(struct table_record));
	stripe->records = bigger.records;
	stripe->size = size;
	return 0;
}

/*
 * Empties place i. Every later record of the run that does not sit between its
 * home and the hole (seen around the end) moves into the hole, which moves on.
 */
static void erase(struct table_stripe *stripe, uint32_t i)
{
	uint32_t mask = stripe->size - 1;
	uint32_t hole = i;

	for (uint32_t j = (i + 1) & mask; stripe->records[j].space != 0; j = (j + 1) & mask) {
		const struct table_record *record = &stripe->records[j];
		uint32_t home = home_of(stripe, hash(record->space, record->key));

		if (((j - home) & mask) >= ((j - hole) & mask)) {
			stripe->records[hole] = *record;
			hole = j;
		}
	}
	memset(&stripe->records[hole], 0, sizeof(struct table_record));
	stripe->used--;
}

/* The record, or NULL. */
static struct table_record *seek(struct table_stripe *stripe, uint64_t h, uint16_t space, uint64_t key)
{
	if (stripe->first.key == key && stripe->first.space == space && space != 0)
		return &stripe->first;
	if (stripe->used != 0) {
		uint32_t i = find(stripe, h, space, key);

		if (stripe->records[i].space != 0)
			return &stripe->records[i];
	}
	return NULL;
}

static void discard(struct table_stripe *stripe, struct table_record *record)
{
	if (record == &stripe->first)
		memset(record, 0, sizeof(*record));
	else
		erase(stripe, (uint32_t)(record - stripe->records));
}

/* Where a record that is not there belongs; NULL: there is no place. */
static struct table_record *room(struct table_stripe *stripe, uint64_t h, uint16_t space, uint64_t key)
{
	if (stripe->first.space == 0)
		return &stripe->first;
	if ((stripe->used + 1) * 4 > stripe->size * 3 && grow(stripe) < 0)
		return NULL;
	stripe->used++;
	return &stripe->records[find(stripe, h, space, key)];
}

int table_put(struct table *table, const struct table_record *record, struct table_record *old)
{
	uint64_t h = hash(record->space, record->key);
	struct table_stripe *stripe = stripe_of(table, h);
	struct table_record *place;
	int result = 0;

	if (record->space == 0)
		return -EINVAL;
	front_lock_take(&stripe->lock);
	place = seek(stripe, h, record->space, record->key);
	if (place) {
		if (old)
			*old = *place;
		result = 1;
	} else {
		place = room(stripe, h, record->space, record->key);
	}
	if (place)
		*place = *record;
	else
		result = -ENOMEM;
	front_lock_drop(&stripe->lock);
	return result;
}

bool table_get(struct table *table, uint16_t space, uint64_t key, struct table_record *out)
{
	uint64_t h = hash(space, key);
	struct table_stripe *stripe = stripe_of(table, h);
	const struct table_record *record;

	front_lock_take(&stripe->lock);
	record = seek(stripe, h, space, key);
	if (record)
		*out = *record;
	front_lock_drop(&stripe->lock);
	return record != NULL;
}

bool table_take(struct table *table, uint16_t space, uint64_t key, struct table_record *out)
{
	uint64_t h = hash(space, key);
	struct table_stripe *stripe = stripe_of(table, h);
	struct table_record *record;

	front_lock_take(&stripe->lock);
	record = seek(stripe, h, space, key);
	if (record) {
		*out = *record;
		discard(stripe, record);
	}
	front_lock_drop(&stripe->lock);
	return record != NULL;
}

bool table_change(struct table *table, uint16_t space, uint64_t key,
		  bool (*change)(struct table_record *record, void *arg), void *arg)
{
	uint64_t h = hash(space, key);
	struct table_stripe *stripe = stripe_of(table, h);
	struct table_record *record;

	front_lock_take(&stripe->lock);
	record = seek(stripe, h, space, key);
	if (record && !change(record, arg))
		discard(stripe, record);
	front_lock_drop(&stripe->lock);
	return record != NULL;
}

void table_sweep(struct table *table, bool (*visit)(const struct table_record *record, void *arg), void *arg)
{
	for (uint32_t s = 0; s < TABLE_STRIPES; s++) {
		struct table_stripe *stripe = &table->stripe[s];

		front_lock_take(&stripe->lock);
		if (stripe->first.space != 0 && visit(&stripe->first, arg))
			discard(stripe, &stripe->first);
		for (uint32_t i = 0; stripe->used != 0 && i < stripe->size;) {
			/* Removal may move another record into place i: look at it again. */
			if (stripe->records[i].space != 0 && visit(&stripe->records[i], arg))
				erase(stripe, i);
			else
				i++;
		}
		front_lock_drop(&stripe->lock);
	}
}

size_t table_count(struct table *table)
{
	size_t count = 0;

	for (uint32_t s = 0; s < TABLE_STRIPES; s++) {
		front_lock_take(&table->stripe[s].lock);
		count += table->stripe[s].used + (table->stripe[s].first.space != 0);
		front_lock_drop(&table->stripe[s].lock);
	}
	return count;
}

void table_drop(struct table *table)
{
	for (uint32_t s = 0; s < TABLE_STRIPES; s++) {
		struct table_stripe *stripe = &table->stripe[s];

		if (stripe->records)
			munmap(stripe->records, (size_t)stripe->size * sizeof(struct table_record));
		memset(stripe, 0, sizeof(*stripe));
	}
}
