/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakedriver.h: a driver in a page of arithmetic, and a ledger without an agent,
 * for the memory files of the front. It hands addresses and handles out again
 * as soon as it can, counts what it holds, and fails when told to.
 */
#ifndef FAKEDRIVER_H
#define FAKEDRIVER_H

#include "memory.h"

#define FAKE_CONTEXT (64ull << 20)
#define FAKE_CHUNK (2ull << 20) /* pools and graphs reserve in these */
#define FAKE_MODULE 70144ull
#define FAKE_CARD 0 /* the share's; 1 is another one */

void fake_start(uint64_t limitbytes);
void fake_grant(uint64_t limitbytes); /* the ledger's part of it */

/* What the driver holds, by its own rules; the most since it was last asked; what the ledger has charged. */
uint64_t fake_held(void);
uint64_t fake_most(void);
uint64_t fake_charged(void);
uint64_t fake_contexts(void);
unsigned fake_denials(void);
/* How much memory has a number at the agent. */
unsigned fake_numbers(void);

/*
 * Called where another thread may come between: before and after each call of the
 * driver (f_free and the like) and of the ledger (front_charge, front_refund). Given
 * before there is a second thread.
 */
void fake_turns(void (*turn)(const char *call, bool done));
void fake_turn(const char *call, bool done);

/* One call in n fails, 0: none does. */
void fake_fail(unsigned n);
/* The next time that a pool or the graphs need a greater reserve, they take so much more, in chunks. */
void fake_generous(uint64_t bytes);
/* cuMemFreeAsync gives nothing back before the next synchronisation. */
void fake_queueing(bool yes);
/* The driver tells nothing about its processes' memory. */
void fake_secretive(bool yes);

#endif
