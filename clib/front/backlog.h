/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backlog.h: what a process has on the card by its own account, and whether it
 * may add to it. Pure: times are arguments, in ns of CLOCK_MONOTONIC. One thread
 * at a time.
 */
#ifndef DIVVY_FRONT_BACKLOG_H
#define DIVVY_FRONT_BACKLOG_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct backlog {
	uint64_t busy;     /* card time so far */
	uint64_t inflight; /* estimate of what is submitted and not seen to have ended */
	uint64_t drain;    /* when that will have run */
	uint64_t waited;
	uint64_t lastend;
};

enum backlog_verdict {
	BACKLOG_GO,
	BACKLOG_FULL,  /* enough is in flight: again at until */
	BACKLOG_LEASE, /* the lease does not last */
};

/*
 * May one more launch go? leaseend: 0: no lease; UINT64_MAX: none is needed. Once
 * most is in flight more may go when no more than refill is left.
 */
enum backlog_verdict backlog_admit(const struct backlog *backlog, uint64_t now, uint64_t leaseend, uint64_t most, uint64_t refill,
				   uint64_t *until);

/* What may be launched from now on without asking again, at least least and at most most. */
uint64_t backlog_room(const struct backlog *backlog, uint64_t now, uint64_t leaseend, uint64_t all, uint64_t least, uint64_t most);

void backlog_submit(struct backlog *backlog, uint64_t now, uint64_t ns);

/* ns that were submitted were never launched. */
void backlog_unspent(struct backlog *backlog, uint64_t ns);

/* What was submitted as ns has ended and took took. */
void backlog_done(struct backlog *backlog, uint64_t ns, uint64_t took);

/*
 * Corrects drain: what is in flight follows what has ended at lastend, and began to
 * be launched at opened; oldest is the estimate of the part of it that runs now.
 */
void backlog_look(struct backlog *backlog, uint64_t now, uint64_t oldest, uint64_t opened);

/*
 * By how much threads of this process wake late: of the last LATENESS_WAKES to twice as
 * many it is the second most, so that about 1 of 100 is later.
 */
#define LATENESS_WAKES 100u

struct lateness {
	unsigned count;
	uint64_t most[2][2]; /* two rounds, the one that goes on first; the two most of each */
};

void lateness_note(struct lateness *lateness, uint64_t ns);
uint64_t lateness_of(const struct lateness *lateness);

/* Card time that intervals cover, in any order and overlapping: streams run side by side. */
#define COVER_SPANS 8u

struct cover {
	unsigned count;
	struct {
		int64_t from;
		int64_t to;
	} span[COVER_SPANS]; /* apart; the latest ones */
};

/* Adds an interval; the part of it that was not covered before. */
uint64_t cover_add(struct cover *cover, int64_t from, int64_t to);

/* The rate of a share without an agent, kept by each of its processes alone. */
struct bucket {
	uint64_t since;  /* when filled last; 0: not in use */
	uint64_t used;   /* busy and in flight then */
	int64_t balance; /* in 1/10000 ns of card time */
};

#define BUCKET_MOST_NS 10000000ll /* saved up */

/* permyriad: of the card's time. 0: may launch; else for how many ns to wait, at least. */
uint64_t bucket_admit(struct bucket *bucket, const struct backlog *backlog, uint64_t now, unsigned permyriad);

#pragma GCC visibility pop

#endif
