/* SPDX-License-Identifier: Apache-2.0 */
/* duration.h: the nanoseconds that a launch takes on the card. */
#ifndef DIVVY_STANDIN_DURATION_H
#define DIVVY_STANDIN_DURATION_H

#include "launch.h"
#include "ptx/code.h"

/* By the function's name, 0 when that says nothing; by what it did. */
uint64_t sd_duration_named(const struct sd_launch *launch);
uint64_t sd_duration(const struct sd_launch *launch, const struct sd_card *card, const struct ptx_outcome *outcome);

#endif
