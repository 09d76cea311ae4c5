/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.h: a small agent for the tests and benches of the front library: one
 * share, served by one thread over the real socket and real pages, after
 * divvy_wire.h. It keeps no journal: a second one started at the same path
 * plays an agent that was restarted.
 */
#ifndef DIVVY_TEST_AGENT_H
#define DIVVY_TEST_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "divvy_wire.h"

struct agent_share {
	const char *path;
	uint64_t limitbytes;
	uint64_t contextbytes;
	uint32_t cards;        /* 0: one */
	bool unlimited;
	uint32_t refuse;       /* DIVVY_STATUS_* to refuse everyone with */
	bool mute;             /* accept and never answer */
	unsigned dieonhello;   /* hang up instead of answering so many HELLOs */
	bool halfway;          /* grant a charge and hang up instead of answering */
	uint64_t firstcredit;  /* for every client; 0: the first one gets all that is left */
	uint64_t measured;     /* answer to MEASURE; 0: unknown */
	uint8_t uuid[DIVVY_MAX_CARDS][16]; /* all zero: the null driver's 00 01 02 ... */
};

struct agent;

struct agent *agent_start(const struct agent_share *share);
void agent_stop(struct agent *agent);

/* What the agent sees; all of it may be called while it runs. */
uint64_t agent_in_use(struct agent *agent, unsigned slot);
unsigned agent_clients(struct agent *agent);
unsigned agent_attached(struct agent *agent); /* WELCOMEs so far */
uint64_t agent_counter(struct agent *agent, unsigned slot, size_t offset); /* summed over clients; offset in struct divvy_client_card */
unsigned agent_events(struct agent *agent, unsigned kind, struct divvy_message *last);
void agent_set_tight(struct agent *agent, bool tight);
void agent_set_limit(struct agent *agent, uint64_t limitbytes);
unsigned agent_denials(struct agent *agent, struct divvy_message *last); /* that were final */
uint64_t agent_charges(struct agent *agent); /* CHARGE messages so far */
/* Like SIGSTOP, and SIGCONT. */
void agent_pause(struct agent *agent);
void agent_resume(struct agent *agent);

#endif
