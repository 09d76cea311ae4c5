/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credit.h: the arithmetic on the words of a client page that both sides write.
 * Pure: no page is found or kept here.
 */
#ifndef DIVVY_FRONT_CREDIT_H
#define DIVVY_FRONT_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "divvy_memory.h"
#include "page.h"

#pragma GCC visibility push(hidden)

/* Takes bytes if there are as many; used is what is in use after it. */
bool front_credit_take(struct divvy_client_card *card, uint64_t bytes, uint64_t *used);
void front_credit_put(struct divvy_client_card *card, uint64_t bytes);

/* Takes all credit and returns it; used is what was in use at that moment. */
uint64_t front_credit_set_aside(struct divvy_client_card *card, uint64_t *used, bool *mark);

/* Another than before: the agent has granted a CHARGE meanwhile. */
bool front_credit_mark(const struct divvy_client_card *card);

/* What was granted and is no credit. */
uint64_t front_in_use(const struct divvy_client_card *card);

/* Makes word at least to. */
void front_peak_raise(uint64_t *word, uint64_t to);

/* Moves what late frees and counts have put on a page that was left behind. */
void front_credit_sweep(struct front_pages *from, struct front_pages *to);

/* Copies the words that are the process's own account of its time on the card. */
void front_time_carry(const struct front_pages *from, struct front_pages *to);

#pragma GCC visibility pop

#endif
