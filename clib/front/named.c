/* SPDX-License-Identifier: Apache-2.0 */
/* named.c: see named.h. */
#include "named.h"

#include <errno.h>
#include <string.h>

static struct front_lock naming; /* one at a time gets a number for what has none */
static _Atomic uint32_t named;   /* how many there are here, about */
static _Atomic uint32_t owed;    /* releases that the agent has not been told */
static _Atomic uint64_t last_owed;

static uint64_t key_of(uint16_t space, uint64_t key)
{
	return memory_mix(memory_mix(1, space), key);
}

static int ask(struct divvy_message *message, const struct named_name *name)
{
	if (name) {
		message->kind = name->kind;
		if (name->kind != DIVVY_NAME_DESCRIPTOR)
			memcpy(message->text, name->text, NAMED_TEXT_BYTES);
	}
	return front_ask_surely(message, name && name->kind == DIVVY_NAME_DESCRIPTOR ? name->fd : -1);
}

static bool now_named(struct table_record *record, void *arg)
{
	record->flags |= MEMORY_NAMED;
	*(struct table_record *)arg = *record;
	return true;
}

bool named_mark(uint16_t space, uint64_t key, struct table_record *record)
{
	return table_change(&front_held, space, key, now_named, record);
}

static CUresult enter(uint16_t space, uint64_t key, const struct table_record *record, const struct named_name *name)
{
	struct divvy_message message = { .type = DIVVY_NAME, .slot = record->slot, .amount = record->bytes };
	struct table_record known = {
		.key = key_of(space, key), .space = SPACE_NAMED, .owner = record->owner, .slot = record->slot,
	};
	bool again = table_get(&front_held, SPACE_NAMED, known.key, &known);

	message.token = again ? known.extra : 0;
	if (ask(&message, name) != 0 || message.type != DIVVY_NAMED || message.status != DIVVY_STATUS_OK) {
		front_log("the agent has no place for what this process exports: refused");
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	if (again)
		return CUDA_SUCCESS;
	known.extra = message.token;
	if (table_put(&front_held, &known, NULL) < 0) {
		named_release(message.token);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	atomic_fetch_add(&named, 1);
	return CUDA_SUCCESS;
}

CUresult named_export(uint16_t space, uint64_t key, const struct table_record *record, const struct named_name *name)
{
	CUresult result;

	front_lock_take(&naming);
	result = enter(space, key, record, name);
	front_lock_drop(&naming);
	return result;
}

CUresult named_import(const struct named_name *name, const char *call, struct named_hold *hold)
{
	struct divvy_message message = { .type = DIVVY_IMPORT };
	int rc;

	named_settle();
	strncpy(message.text + NAMED_TEXT_BYTES, call, sizeof(message.text) - NAMED_TEXT_BYTES - 1);
	rc = ask(&message, name);
	if (rc == 0 && message.type == DIVVY_DENIED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (rc == -EBADF) {
		*hold = (struct named_hold){ .slot = -1 }; /* for the driver to say */
		return CUDA_SUCCESS;
	}
	if (rc != 0 || message.type != DIVVY_IMPORTED || message.slot >= DIVVY_MAX_CARDS)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*hold = (struct named_hold){ .number = message.token, .bytes = message.amount, .slot = (int)message.slot };
	return CUDA_SUCCESS;
}

int named_imported(uint16_t space, uint64_t key, uint64_t number, uint32_t owner)
{
	struct table_record known = { .key = key_of(space, key), .space = SPACE_NAMED, .owner = owner, .extra = number };
	int rc = table_put(&front_held, &known, NULL);

	if (rc < 0)
		return rc;
	atomic_fetch_add(&named, 1);
	return 0;
}

static bool told(uint64_t number)
{
	struct divvy_message message = { .type = DIVVY_RELEASE, .token = number };

	return front_ask_surely(&message, -1) == 0;
}

void named_release(uint64_t number)
{
	struct table_record debt = { .extra = number, .space = SPACE_OWED };

	if (!number || told(number))
		return;
	debt.key = atomic_fetch_add(&last_owed, 1) + 1;
	if (table_put(&front_held, &debt, NULL) == 0)
		atomic_fetch_add(&owed, 1);
}

bool named_released(uint16_t space, uint64_t key)
{
	struct table_record known;

	if (!atomic_load_explicit(&named, memory_order_relaxed) ||
	    !table_take(&front_held, SPACE_NAMED, key_of(space, key), &known))
		return false;
	atomic_fetch_sub(&named, 1);
	named_release(known.extra);
	return true;
}

struct sweep {
	uint16_t space;
	uint32_t owner;
	unsigned found;
	uint64_t number[64];
};

#define SWEPT (sizeof(((struct sweep *)0)->number) / sizeof(uint64_t))

static bool collect(const struct table_record *record, void *arg)
{
	struct sweep *sweep = arg;

	if (record->space != sweep->space || record->owner != sweep->owner || sweep->found == SWEPT)
		return false;
	sweep->number[sweep->found++] = record->extra;
	return true;
}

void named_context_gone(uint32_t owner)
{
	struct sweep sweep = { .space = SPACE_NAMED, .owner = owner };

	while (atomic_load_explicit(&named, memory_order_relaxed)) {
		sweep.found = 0;
		table_sweep(&front_held, collect, &sweep);
		atomic_fetch_sub(&named, sweep.found);
		for (unsigned i = 0; i < sweep.found; i++)
			named_release(sweep.number[i]);
		if (sweep.found < SWEPT)
			return;
	}
}

void named_settle(void)
{
	struct sweep sweep = { .space = SPACE_OWED };

	if (!atomic_load_explicit(&owed, memory_order_relaxed))
		return;
	table_sweep(&front_held, collect, &sweep);
	atomic_fetch_sub(&owed, sweep.found);
	for (unsigned i = 0; i < sweep.found; i++)
		named_release(sweep.number[i]);
}
