/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.h: launches wait at the gate for their turn, and are timed. What the rest of
 * the front asks of it is in front.h.
 */
#ifndef DIVVY_FRONT_GATE_H
#define DIVVY_FRONT_GATE_H

#include "backlog.h"
#include "clock.h"
#include "estimate.h"
#include "front.h"
#include "lock.h"

#pragma GCC visibility push(hidden)

#define BURST_NS 100000u
#define GATE_BACKLOG_NS 12000000u /* in flight, at most, however late threads wake */
#define GATE_IDLE_NS 200000u   /* nothing in flight for so long: give the lease back */

/* The gates of this process, by slot; NULL until they are needed. */
extern struct gate *front_gates[DIVVY_MAX_CARDS];

#ifdef FRONT_PLAIN
/* What tests see of it, once it is there. */
struct gate_sight {
	struct estimates *estimates;
	uint32_t captures; /* open ones of this process */
	unsigned bursts;   /* that were ever used at once */
};
struct gate_sight front_gate_sight(unsigned slot);
#endif

#pragma GCC visibility pop

#endif
