/* SPDX-License-Identifier: Apache-2.0 */
/*
 * named.h: memory that other processes may hold as well.
 *
 * What is exported gets a name at the agent: the descriptor, or the bytes that the
 * driver hands out. Who imports says the name. The agent knows who holds it and charges
 * it once in each share: in the page of a process that holds it, whoever that is by
 * then. So nobody refunds what has a number: it is released, and the agent takes the
 * charge off the page that has it.
 *
 * No lock of the table is held across these; named.c has one of its own, which nothing
 * that they call takes.
 */
#ifndef FRONT_NAMED_H
#define FRONT_NAMED_H

#include "memory.h"

#pragma GCC visibility push(hidden)

#define NAMED_TEXT_BYTES 64u /* of an IPC handle and the like */

struct named_name {
	unsigned kind;    /* DIVVY_NAME_* */
	int fd;           /* DIVVY_NAME_DESCRIPTOR */
	const void *text; /* the others: NAMED_TEXT_BYTES */
};

/* Notes of what is followed that it is to be exported, before it is; record is what it is then. */
bool named_mark(uint16_t space, uint64_t key, struct table_record *record);

/*
 * Names what space and key are for, of record's slot, bytes and owner. CUDA_SUCCESS, or
 * what the program gets instead of its export.
 */
CUresult named_export(uint16_t space, uint64_t key, const struct table_record *record, const struct named_name *name);

/* What an import gets. */
struct named_hold {
	uint64_t number; /* 0: nobody has named it */
	uint64_t bytes;
	int slot;
};

/*
 * Holds what has the name, before the driver is asked. An import that has no room, or
 * cannot be asked about, gets an error.
 */
CUresult named_import(const struct named_name *name, const char *call, struct named_hold *hold);

/* Space and key are for what has been imported so; 0 or -ENOMEM. It goes with owner. */
int named_imported(uint16_t space, uint64_t key, uint64_t number, uint32_t owner);

/* Holds it once less: after the driver. */
void named_release(uint64_t number);

/* The same of what was exported as space and key; false: it was not. */
bool named_released(uint16_t space, uint64_t key);

/* What a context takes with it is released. */
void named_context_gone(uint32_t owner);

/* Tells the agent what it could not be told before. One load when there is nothing. */
void named_settle(void);

#pragma GCC visibility pop

#endif
