/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outlook.h: when the items of a process end, by what stands in its ring (order.h) and
 * by what the simulator has answered before. On hardware this is a look at memory: a
 * question that waits for another process would hold up who asks on a busy host.
 *
 * The driver's lock is held but where it says so.
 */
#ifndef DIVVY_STANDIN_OUTLOOK_H
#define DIVVY_STANDIN_OUTLOOK_H

#include <stdbool.h>
#include <stdint.h>

struct divvy_sim_ring;

uint64_t sd_now(void); /* CLOCK_MONOTONIC */

/* Once, before all else. */
void sd_outlook_begin(const struct divvy_sim_ring *ring);
/* From now on host functions or other processes may keep work from beginning. */
void sd_outlook_gated(void);
/* What was heard of items that had not ended may be wrong by now. */
void sd_outlook_forget(void);

/* The end of an item, if the ring tells; it may lie ahead. For one whose place is
 * used again it was long ago: 0. The lock is not needed. */
bool sd_known_end(uint64_t item, uint64_t *end);
/* It has ended, by the ring. */
bool sd_seen_end(uint64_t item, uint64_t now);

/* Whether an item has ended; asks the simulator no more often than needed. */
bool sd_ended(uint64_t item);
/* When it ended, if it has, as long as its place in the ring is not used again. */
uint64_t sd_end_of(uint64_t item);

#endif
