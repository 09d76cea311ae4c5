/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakeshare.h: a share of fakecard.h's card, with an agent that does as it is told:
 * leases are what the test says, requests for them are counted. And what a program
 * does there.
 */
#ifndef FAKESHARE_H
#define FAKESHARE_H

#include <stdatomic.h>

#include "fakecard.h"
#include "fakeclock.h"
#include "gate.h"

#define MS 1000000ull
#define US 1000ull
#define FAKESHARE_BACKLOG_NS (5 * MS)
#define FAKESHARE_PERCENT 30u
#define FAKESHARE_SIGN_NS (500 * MS) /* until it is known that it is stopped */
#define LONG_NS (100000 * MS)

struct fakeshare {
	struct front_pages pages; /* the first ones */
	uint32_t live;            /* 0: the process is none of it */
	_Atomic bool away;        /* the agent has gone */
	_Atomic bool stopped;     /* it does nothing, and its socket is open */
	_Atomic unsigned doubts;  /* questions whether it is there */
	_Atomic unsigned wants;   /* leases asked for */
	_Atomic unsigned backs;   /* leases given back */
	_Atomic unsigned wantsof[DIVVY_MAX_CARDS], backsof[DIVVY_MAX_CARDS]; /* the same, by slot */
	_Atomic uint64_t backns;  /* card time that the page said at the last of them */
	_Atomic uint64_t backat;  /* instant of the last one */
};

extern struct fakeshare fakeshare;

/* How many cards it has: one, or with fakeshare_second two. */
unsigned fakeshare_cards(void);
void fakeshare_second(void);

/* Launches wait for leases from now on, or do not. There is no lease. */
void fakeshare_gate(bool gated);
void fakeshare_gate_of(unsigned slot, bool gated);
/* On the pages that are in use; wakes who waits there. end: an instant; 0: no lease. */
void fakeshare_lease(uint64_t end);
void fakeshare_lease_of(unsigned slot, uint64_t end);

/* The agent is back, with other pages and no lease: swaps them and wakes who waits on the old ones. */
void fakeshare_move(struct front_pages *fresh);

/* What the process says of itself on the pages that are in use. */
#define SAID(name) SAID_OF(0, name)
#define SAID_OF(slot, name) __atomic_load_n(&front_pages_now->client.card[slot].name, __ATOMIC_ACQUIRE)

/* A kernel of so many ns. */
CUresult launch(uint64_t ns, unsigned stream);
/* Launches that succeed. */
void launches(unsigned count, uint64_t ns, unsigned stream);
/* Like a call that waits for the card. */
void synchronise(void);

bool near(uint64_t one, uint64_t other, unsigned percent);

#endif
