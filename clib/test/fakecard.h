/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecard.h: a card of one line of arithmetic, as a driver, for the gate. A kernel
 * begins when the one before has ended, on whatever stream; the address of its
 * function is its duration in ns. The driver ends the program where a real one
 * would be harmed: an event in a captured or destroyed stream, a destroyed event.
 * Streams are small numbers. A call is work of its thread (fakeclock.h).
 *
 * There may be a second card, with streams from FAKECARD_SECOND on; the first ones,
 * which have no name, are of the card that is current. An event of one card is refused
 * in a stream of the other.
 */
#ifndef FAKECARD_H
#define FAKECARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKECARD_STREAMS 16
#define FAKECARD_SECOND 8
#define FAKECARD_NAMELESS 3

struct fakecard {
	pthread_mutex_t mutex; /* of all of it */
	uint64_t end;          /* of the last kernel */
	uint64_t busy;         /* sum of all kernels */
	uint64_t streamend[2][FAKECARD_STREAMS]; /* by card */
	uint64_t kernels;
	struct {
		uint64_t end, busy, kernels;
	} second;
	bool two;              /* there is a second card */
	bool refusing;         /* launches fail */
	uint64_t fixed;        /* a kernel takes so long, ns, whatever its function says; 0: as that says */
	uint64_t lag;          /* a launch returns so much later, ns */
	uint64_t marklag;      /* the host stops a thread for so long before an event is in its stream, ns */
	uint64_t asklag;       /* so does a question whether something has ended */
	unsigned refused;
	unsigned misplaced;    /* events in a stream of the other card, which were refused */
	unsigned events;       /* that live */
	unsigned eventsmade;
};

extern struct fakecard fakecard;

/* Of the calling thread: 0, or 1 where there is a second card. */
extern __thread unsigned fakecard_current;

/* Words of it, with the mutex. */
uint64_t fakecard_end(void);
uint64_t fakecard_busy(void);
uint64_t fakecard_kernels(void);
uint64_t fakecard_second_busy(void);
uint64_t fakecard_second_kernels(void);

#endif
