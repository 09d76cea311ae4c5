/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h: what this process holds on the card, by pointer or handle.
 *
 * A striped open-addressing hash table: every operation is O(1) amortised, a
 * stripe doubles when it is three quarters full, removal shifts entries back
 * so that no tombstones pile up. Its memory comes from mmap, so that no hook
 * enters the program's allocator. A zeroed struct table is an empty one.
 *
 * The first record of a stripe lies in the stripe itself: a program that holds
 * little, and gets ever new addresses for it, touches 64 cache lines again and
 * again instead of walking through all the places, which are cold after a pause.
 *
 * The same number may be a pointer and a handle of another sort: a record is
 * found by (space, key). Records are copied in and out; nobody holds a pointer
 * into the table. No function calls out while it holds a stripe, except the
 * callbacks of table_change and table_sweep, which must not use the table.
 *
 * Knows nothing of the driver or of quotas; links into plain test programs.
 */
#ifndef FRONT_TABLE_H
#define FRONT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock.h"

#define TABLE_STRIPES 64u            /* a power of two */
#define TABLE_FIRST_RECORDS 128u     /* of a stripe: one page; a power of two */
#define TABLE_MAX_RECORDS (1u << 20) /* of a stripe: 64 Mi records in all */

struct table_record {
	uint64_t key;   /* pointer or handle */
	uint64_t bytes; /* charged for it */
	uint64_t extra; /* what the space wants to remember besides */
	uint32_t owner; /* serial of the context it dies with, 0 if of none */
	uint16_t space; /* enum front_space; 0 marks an empty place */
	uint8_t slot;   /* card slot that was charged */
	uint8_t flags;  /* meaning by space */
};

struct table_stripe {
	struct front_lock lock;
	uint32_t used; /* places */
	uint32_t size; /* places, 0 before they are needed */
	uint32_t pad;
	struct table_record *records;
	struct table_record first; /* space 0: there is none */
	uint64_t spare;            /* one cache line per stripe */
};

struct table {
	struct table_stripe stripe[TABLE_STRIPES];
};

_Static_assert(sizeof(struct table_record) == 32, "two records per cache line");
_Static_assert(sizeof(struct table_stripe) == 64, "one stripe per cache line");

/*
 * table_put stores *record. Returns 0 when the key was not there, 1 when it
 * was (*old gets what it replaced; old may be NULL), -ENOMEM when the table
 * cannot grow. Once it has returned 0 or 1, a table_take of the same key
 * followed by a table_put of it succeeds unless others fill the place.
 */
int table_put(struct table *table, const struct table_record *record, struct table_record *old);

/* table_get copies the record into *out; false when it is not there. */
bool table_get(struct table *table, uint16_t space, uint64_t key, struct table_record *out);

/* table_take removes the record and copies it into *out; false when it is not there. */
bool table_take(struct table *table, uint16_t space, uint64_t key, struct table_record *out);

/*
 * table_change calls change on the record in place, under its stripe's lock;
 * when change returns false the record is removed. change must leave key and
 * space alone. False when the record is not there.
 */
bool table_change(struct table *table, uint16_t space, uint64_t key,
		  bool (*change)(struct table_record *record, void *arg), void *arg);

/*
 * table_sweep calls visit on every record, stripe by stripe; those for which
 * it returns true are removed. Records put in meanwhile may be missed. visit
 * may be called twice on a record that it kept.
 */
void table_sweep(struct table *table, bool (*visit)(const struct table_record *record, void *arg), void *arg);

/* table_count: records now, summed stripe by stripe. */
size_t table_count(struct table *table);

/* table_drop gives the memory back and leaves an empty table; nobody else may use it meanwhile. */
void table_drop(struct table *table);

#endif
