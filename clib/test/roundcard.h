/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roundcard.h: a card for several processes, as a driver, for their gates. It serves
 * those that have launched something round robin, in slices that may split a kernel,
 * as the simulated card does (internal/simgpu/timeline, its oracle). The address of a
 * function is its duration in ns, streams are small numbers, and a call is work of its
 * thread (fakeclock.h). One thread runs at a time, so there is nothing to lock.
 */
#ifndef ROUNDCARD_H
#define ROUNDCARD_H

#include <stdint.h>

#define ROUNDCARD_PROCESSES 32u

struct roundcard {
	uint64_t slice;   /* ns */
	unsigned process; /* whose calls come now; it is another's to set */
};

extern struct roundcard roundcard;

/* How long the card was busy until now. */
uint64_t roundcard_used(void);
/* What a process has had of the card until that was asked, or somebody used the card last. */
uint64_t roundcard_busy(unsigned process);
/* When all that a process has launched will have run, if nobody else had the card. */
uint64_t roundcard_end(unsigned process);

#endif
