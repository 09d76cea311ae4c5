/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.h: launches wait here for their turn, and are timed.
 *
 * Work is watched in bursts: what one thread launches between two events of ours
 * on at most BURST_STREAMS streams. Opening a burst asks whether there is room
 * in the lease and in the backlog for all of it, so that a launch inside it is
 * some arithmetic in memory that only its thread writes. A burst holds at most
 * BURST_NS of estimated work, or one launch.
 *
 * A burst whose end could not be marked by an event (its thread went on to
 * something else, a capture is open) counts as what was estimated.
 *
 * gate.c admits and counts, burst.c deals with events, gatewait.c waits for
 * leases, gives them back and holds the hooks of waiting calls. estimate.h and
 * backlog.h hold the arithmetic.
 */
#ifndef DIVVY_FRONT_GATE_H
#define DIVVY_FRONT_GATE_H

#include "backlog.h"
#include "clock.h"
#include "estimate.h"
#include "front.h"
#include "lock.h"

#pragma GCC visibility push(hidden)

#define BURST_STREAMS 4u
#define BURST_KEYS 8u
#define BURST_LAUNCHES 64u
#define BURST_NS 100000u
#define GATE_BURSTS 128u
#define GATE_CONTEXTS 8u
#define GATE_EVENTS 64u        /* kept for reuse, per context */
#define GATE_GUESS_NS 1000000u /* of a function that was never measured */
#define GATE_BACKLOG_NS 12000000u /* in flight, at most, however late threads wake */
#define GATE_IDLE_NS 200000u   /* nothing in flight for so long: give the lease back */

/* Words of an open burst are written by its thread alone and read by others. */
#define GATE_GET(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define GATE_SET(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)

enum burst_state { BURST_FREE, BURST_OPEN, BURST_CLOSED };

struct burst_key {
	uint64_t key;
	uint32_t high; /* its estimate then */
	uint32_t count;
};

/* The owner writes the first part without the lock while the burst is open; all else is under the lock. */
struct burst {
	struct front_thread *owner;
	uint32_t state;
	uint32_t word;     /* value of leaseword when it was opened: it ends with the lease */
	uint32_t left;     /* ns that may still be launched */
	uint32_t launches;
	uint32_t launchesleft;
	uint32_t laststream;
	uint64_t high;     /* sums of what was launched */
	uint64_t typical;
	uint32_t keys;
	struct burst_key key[BURST_KEYS];
	CUstream stream[BURST_STREAMS];

	uint32_t streams;
	int context;       /* index; -1: not measured */
	CUevent start;
	CUevent end[BURST_STREAMS];
	uint32_t ends;     /* recorded */
	bool measured;     /* its ends are recorded */
	bool dry;          /* nothing of ours was in flight when it began */
	bool beside;       /* work of others may have run beside it, or before it */
	bool unknown;      /* one launch that was never measured */
	uint32_t weight;   /* it stands for so many launches; 0: it is no sample */
	uint64_t admitted;
	uint64_t opened;   /* and its start marked */
	uint64_t due;      /* when it will have run, by the estimate */
	uint64_t shut;     /* when it was closed */
	uint64_t returned; /* when the call of a single launch did; 0: that is not known */
	uint32_t seen;     /* launches, when the monitor looked last */
	uint8_t next;      /* index + 1 in the list of closed or free ones */
};

/* One context, and where its events stand in time. */
struct gate_context {
	CUcontext handle; /* NULL: free */
	CUevent reference;
	int64_t referencens;
	unsigned count;
	CUevent event[GATE_EVENTS];
};

/* Wiped in a forked child: zeros are a gate that was never used. */
struct gate {
	struct front_lock lock;
	uint32_t asleep;      /* futex: 1 while the monitor waits for work */
	uint32_t captures;    /* open ones of this process */
	uint32_t watching;    /* threads in a call that waits for the card: they look when it returns */
	bool monitored;
	bool backdue;         /* work was launched since LEASE_BACK */
	bool sporadic;        /* launches come apart: the next one is timed alone */
	uint8_t retries;      /* of timing a function for the first time */
	bool away;            /* the agent did not answer, with these pages */
	struct front_pages *awaypages;
	struct front_pages *wantedpages; /* LEASE_WANT was sent with these, NULL: none was, */
	uint32_t wantedword;  /* for this value of leaseword */
	uint32_t waiting;     /* threads that wait for a lease */
	uint64_t wantedat;
	uint64_t idlesince;   /* 0: something is in flight */
	uint64_t monitorat;   /* when the monitor looks next */
	uint64_t opened;      /* when a burst was, last */
	uint64_t late;        /* leases were used so much later than they could have been, in all */
	uint64_t lateof;      /* beginning of the last lease that was counted */
	uint64_t ratesince;
	uint64_t ratebusy;
	uint32_t rate;        /* permyriad of the card that it achieved */
	unsigned closed;
	unsigned samples;     /* closed ones that are samples */
	uint8_t first;        /* of the closed ones, index + 1 */
	uint8_t last;
	uint8_t freelist;
	uint8_t everused;
	uint64_t span;        /* card time that its work covered, what ran beside it included */
	uint64_t gaps;        /* of that, how long the card may have waited for a launch */
	struct backlog backlog;
	struct lateness lateness;
	struct longest kernel;
	struct cover cover;
	struct bucket bucket;
	struct gate_context context[GATE_CONTEXTS];
	struct burst burst[GATE_BURSTS];
	struct estimates estimates;
};

/* The gate of this process, NULL until it is needed. */
extern struct gate *front_gate_now;
/* Makes it; NULL when there is no memory. */
struct gate *front_gate_use(void);

/* burst.c; all of it under the lock. */

/* A burst on stream, its start recorded; NULL: there are too many. The current context is the launch's. */
struct burst *burst_open(struct gate *gate, CUstream stream, uint64_t now);
/* One stream more; false when there are too many. */
bool burst_extend(struct gate *gate, struct burst *burst, CUstream stream);
/* No more launches. record: mark its end in the streams, which the caller knows to be alive. */
void burst_close(struct gate *gate, struct burst *burst, uint64_t now, bool record);
/* Takes note of what has ended. */
void burst_look(struct gate *gate, uint64_t now);
/* Forgets a context, NULL: all; forgets a stream. Before the driver does. */
void burst_forget_context(struct gate *gate, CUcontext context, uint64_t now);
void burst_forget_stream(struct gate *gate, CUstream stream, uint64_t now);
/* Something whose key is pending was never measured. */
bool burst_unknown_pending(const struct gate *gate, uint64_t key);

/* gate.c */

/* Writes what this process says of itself to its page. */
void gate_publish(struct gate *gate);
/* Until when launches of this process need no asking: 0 without a lease, UINT64_MAX where none is needed. */
uint64_t gate_lease_of(const struct front_pages *pages);
/* The same, with the lock; notices that the agent is back. */
uint64_t gate_lease_end(struct gate *gate, const struct front_pages *pages);

/* gatewait.c */

/* Without the lock: waits until the lease may have changed. */
void gate_await_lease(struct gate *gate, uint64_t ahead);
/* Without the lock: asks for the next lease where this one ends soon, so that it can go on without a pause. */
void gate_ask_ahead(struct gate *gate, uint64_t now);
/* Somebody watches what is in flight; called without the lock. */
void gate_monitor(struct gate *gate);

#pragma GCC visibility pop

#endif
