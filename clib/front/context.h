/* SPDX-License-Identifier: Apache-2.0 */
/* context.h: what primary.c needs of context.c. */
#ifndef FRONT_CONTEXT_H
#define FRONT_CONTEXT_H

#include "memory.h"

#pragma GCC visibility push(hidden)

/* record.flags of SPACE_CONTEXT */
#define CONTEXT_GREEN 1u /* made from a green context: it dies with that one, its memory with the primary */

/*
 * Writes a context down that was charged bytes; owner 0: it gets a serial of its
 * own. What had its handle before is gone. 0, or -ENOMEM.
 */
int context_add(CUcontext handle, uint64_t bytes, int slot, unsigned flags, uint32_t owner);

/* All that was made in the context with this serial is gone. */
void context_emptied(uint32_t owner);

/* The context, out of the table already, is no more: its charge and all that died with it go back. */
void context_gone(const struct table_record *context);

/* After the driver destroyed the context that *seen was: its handle may already be another's. */
void context_destroyed(const struct table_record *seen);

#pragma GCC visibility pop

#endif
