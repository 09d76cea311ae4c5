/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.h: what this process may use of its share. Declared for the files of
 * the front and for the plain test programs of clib/test: nothing here needs a
 * driver or a hook.
 *
 * A charge first takes from the process's credit, one compare-and-swap loop on
 * the client page. Without enough credit, or when the card is tight, the agent
 * is asked under a mutex. A monitor thread notices that the agent has gone and
 * attaches again; the pages it leaves behind stay mapped and are swept, because
 * a thread may still be putting credit back there.
 *
 * In a forked child the words of the parent's process are wiped: the child is
 * not attached and touches neither the parent's pages nor its socket.
 */
#ifndef DIVVY_FRONT_LEDGER_H
#define DIVVY_FRONT_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "credit.h"
#include "divvy_wire.h"
#include "page.h"

#pragma GCC visibility push(hidden)

/* Points at a word that is 1 while this process is attached and 0 in its forked children. */
extern uint32_t *front_live;

/* What the process is attached to; NULL before. Swapped when the agent comes back. */
extern struct front_pages *front_pages_now;

/* Points at gated of that, where it has one card; at a one where it has several, each with its own gate; or at a zero. */
extern const uint32_t *front_gated;

/* The one that it points at then. */
extern const uint32_t front_several;

/*
 * Attaches this process to the share whose socket is at path, once; 0, or a
 * negative errno after one line on stderr. A later call tries again.
 */
int front_attach(const char *path, const uint8_t *buildid);

/* This process has been forked from one that was attached, and is not attached itself. */
bool front_forked(void);

/* Held while something is made once per process; wiped in a forked child. Only after front_attach. */
void front_start_lock(void);
void front_start_unlock(void);

/* From now on somebody watches whether the agent is there. */
void front_watch(void);

/* A request and its answer, with nothing but the present connection: 0 or -ENOTCONN. */
int front_ask(struct divvy_message *message);

/* The same for as long as a charge waits for an agent that has gone; fd goes with it unless it is -1. -EBADF: it is none. */
int front_ask_surely(struct divvy_message *message, int fd);

/* Sends without an answer, with nothing but the present connection: 0, -EAGAIN (try again) or -ENOTCONN. */
int front_tell(struct divvy_message *message);

/* Whether the agent is there, and not stopped. One that is not is attached to again when it is. */
bool front_there(void);

/*
 * Called before a denial is final, without a lock, and then the charge is tried
 * once more: gives back what the process holds without using it. NULL: nothing.
 */
extern void (*front_yield)(void);

int front_charge(int slot, uint64_t bytes, const char *call);
void front_uncharge(int slot, uint64_t bytes);
void front_refund(int slot, uint64_t bytes);
void front_context_held(int slot, int64_t bytes);
void front_driver_oom(int slot, uint64_t bytes, const char *call);
int front_measure(int slot, uint64_t *bytes);
void front_event(unsigned kind, int slot, uint64_t amount, const char *text);
void front_count_launches(int slot, uint64_t launches);

const struct divvy_limits *front_limits(void);
uint64_t front_context_bytes(int slot);

/*
 * Free and total memory of slot as the share sees them. driverfree and
 * drivertotal are what the driver answered; a share without a quota keeps them.
 */
void front_memory(int slot, uint64_t driverfree, uint64_t drivertotal, uint64_t *freebytes, uint64_t *totalbytes);

/* The share has a limit on slot; without one the driver's own figures are the truth. */
bool front_limited(int slot);

/* In use by this process. */
uint64_t front_own_use(int slot);

/* One process of the share. */
struct front_user {
	uint32_t pid;
	uint64_t bytes;
};

/* The share's processes on slot: how many there are (at most room are stored), or a negative errno. */
int front_users(int slot, struct front_user *users, unsigned room);

void front_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Why the process could not attach at path: rc, and the answer if there was one. */
void front_log_detached(const char *path, int rc, const struct divvy_message *answer);

#pragma GCC visibility pop

#endif
