/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front_table.c: the table of clib/front/table.h against a slow, obvious twin,
 * and under threads (build it with -fsanitize=thread, too).
 */
#include <pthread.h>
#include "check.h"
#include "table.h"

static struct table table;

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* -- the twin: an array searched from the front ---------------------------- */

#define TWIN 3000

static struct table_record twin[TWIN];
static unsigned twins;

static int twin_find(uint16_t space, uint64_t key)
{
	for (unsigned i = 0; i < twins; i++) {
		if (twin[i].space == space && twin[i].key == key)
			return (int)i;
	}
	return -1;
}

static bool same(const struct table_record *a, const struct table_record *b)
{
	return a->key == b->key && a->bytes == b->bytes && a->extra == b->extra && a->owner == b->owner &&
	       a->space == b->space && a->slot == b->slot && a->flags == b->flags;
}

static bool add_bytes(struct table_record *record, void *arg)
{
	record->bytes += *(uint64_t *)arg;
	return record->bytes % 5 != 0;
}

static bool owned(const struct table_record *record, void *arg)
{
	return record->owner == *(uint32_t *)arg;
}

static void against_twin(void)
{
	uint64_t state = 88172645463325252ull;

	for (int step = 0; step < 300000; step++) {
		uint64_t dice = next(&state);
		uint16_t space = 1 + dice % 3;
		uint64_t key = (next(&state) % 1200) * 512; /* few keys, as close together as addresses are */
		struct table_record got, old = { 0 };
		struct table_record record = {
			.key = key, .bytes = next(&state), .extra = dice, .owner = (uint32_t)(dice >> 40) % 7,
			.space = space, .slot = (uint8_t)dice, .flags = (uint8_t)(dice >> 8),
		};
		int i = twin_find(space, key);
		uint64_t more = dice % 11;
		uint32_t owner = 3;

		switch ((dice >> 20) % 8) {
		case 0: case 1: case 2:
			if (twins == TWIN && i < 0)
				break;
			CHECK(table_put(&table, &record, &old) == (i >= 0));
			CHECK(i < 0 || same(&old, &twin[i]));
			twin[i >= 0 ? (unsigned)i : twins++] = record;
			break;
		case 3:
			CHECK(table_get(&table, space, key, &got) == (i >= 0));
			CHECK(i < 0 || same(&got, &twin[i]));
			break;
		case 4: case 5:
			CHECK(table_take(&table, space, key, &got) == (i >= 0));
			if (i >= 0) {
				CHECK(same(&got, &twin[i]));
				twin[i] = twin[--twins];
			}
			break;
		case 6:
			CHECK(table_change(&table, space, key, add_bytes, &more) == (i >= 0));
			if (i >= 0) {
				twin[i].bytes += more;
				if (twin[i].bytes % 5 == 0)
					twin[i] = twin[--twins];
			}
			break;
		default:
			if (step % 500)
				break;
			table_sweep(&table, owned, &owner);
			for (unsigned j = 0; j < twins;) {
				if (twin[j].owner == owner)
					twin[j] = twin[--twins];
				else
					j++;
			}
		}
		if (step % 1000 == 0)
			CHECK(table_count(&table) == twins);
	}
	for (unsigned j = 0; j < twins; j++) {
		struct table_record got;

		CHECK(table_take(&table, twin[j].space, twin[j].key, &got) && same(&got, &twin[j]));
	}
	CHECK(table_count(&table) == 0);
	table_drop(&table);
}

/* -- bounds ---------------------------------------------------------------- */

static void many(void)
{
	struct table_record got;

	for (uint64_t key = 1; key <= 400000; key++) {
		struct table_record record = { .key = key << 21, .bytes = key, .space = 1 };

		CHECK(table_put(&table, &record, NULL) == 0);
	}
	CHECK(table_count(&table) == 400000);
	for (uint64_t key = 400000; key >= 1; key--)
		CHECK(table_take(&table, 1, key << 21, &got) && got.bytes == key);
	CHECK(table_count(&table) == 0);
	CHECK(!table_get(&table, 1, 1 << 21, &got));
	CHECK(table_put(&table, &(struct table_record){ .key = 1 }, NULL) < 0); /* space 0 marks an empty place */
	table_drop(&table);
}

/* Who holds little touches the stripes and nothing else, whatever the addresses. */
static void few(void)
{
	struct table_record got;

	for (uint64_t key = 1; key <= 100000; key++) {
		struct table_record record = { .key = key << 21, .bytes = key, .space = 1 };

		CHECK(table_put(&table, &record, NULL) == 0);
		CHECK(table_put(&table, &record, &got) == 1 && same(&got, &record));
		CHECK(table_count(&table) == 1);
		CHECK(!table_get(&table, 2, key << 21, &got) && !table_get(&table, 1, (key + 1) << 21, &got));
		CHECK(table_take(&table, 1, key << 21, &got) && same(&got, &record));
		CHECK(!table_take(&table, 1, key << 21, &got));
	}
	for (unsigned i = 0; i < TABLE_STRIPES; i++)
		CHECK(table.stripe[i].size == 0 && table.stripe[i].records == NULL);
	CHECK(!table_get(&table, 0, 0, &got));
	table_drop(&table);
}

/* -- threads --------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS 60000
#define SHARED 97

static _Atomic uint64_t put_sum, taken_sum;

static bool count_visit(const struct table_record *record, void *arg)
{
	*(uint64_t *)arg += record->bytes;
	return false;
}

static bool bump(struct table_record *record, void *arg)
{
	(void)arg;
	record->extra++;
	return true;
}

/* Own keys must be found as they were put; shared keys are fought for. */
static void *work(void *arg)
{
	uint64_t me = (uintptr_t)arg;
	uint64_t state = 0x9e3779b97f4a7c15ull * (me + 1);

	for (uint64_t round = 0; round < ROUNDS; round++) {
		uint64_t own = me << 32 | round;
		struct table_record mine = { .key = own, .bytes = round, .owner = (uint32_t)me, .space = 2 };
		struct table_record theirs = { .key = next(&state) % SHARED, .bytes = 1 + round, .space = 3 };
		struct table_record got;

		CHECK(table_put(&table, &mine, NULL) == 0);
		atomic_fetch_add(&put_sum, theirs.bytes);
		if (table_put(&table, &theirs, &got) == 1)
			atomic_fetch_add(&taken_sum, got.bytes);
		if (table_take(&table, 3, next(&state) % SHARED, &got))
			atomic_fetch_add(&taken_sum, got.bytes);
		table_change(&table, 3, next(&state) % SHARED, bump, NULL);
		CHECK(table_get(&table, 2, own, &got) && got.bytes == round && got.owner == me);
		if (round >= 100) {
			CHECK(table_take(&table, 2, own - 100, &got) && got.bytes == round - 100);
			CHECK(!table_take(&table, 2, own - 100, &got));
		}
		if (round % 8192 == 0) {
			uint64_t seen = 0;

			table_sweep(&table, count_visit, &seen);
		}
	}
	return NULL;
}

static bool left(const struct table_record *record, void *arg)
{
	if (record->space == 3)
		*(uint64_t *)arg += record->bytes;
	return true;
}

static void under_threads(void)
{
	pthread_t thread[THREADS];
	uint64_t rest = 0;

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&thread[i], NULL, work, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	table_sweep(&table, left, &rest);
	CHECK(put_sum == taken_sum + rest); /* nothing lost, nothing twice */
	CHECK(table_count(&table) == 0);
	table_drop(&table);
}

static const struct scenario scenarios[] = {
	{"against-twin", against_twin},
	{"many", many},
	{"few", few},
	{"under-threads", under_threads},
};

RUN_SCENARIOS(scenarios)
