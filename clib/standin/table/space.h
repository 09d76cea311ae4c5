/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space.h: which parts of a range of numbers (addresses, offsets) are free.
 * Best fit, taking and giving back in O(log n), neighbours merge at once.
 * Giving back never fails: its bookkeeping is set aside when a part is taken.
 */
#ifndef DIVVY_STANDIN_SPACE_H
#define DIVVY_STANDIN_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "tree.h"

struct sd_hole;

struct sd_space {
	uint64_t base;
	uint64_t size; /* 0 at first for one that grows by sd_space_add */
	uint64_t taken;
	struct sd_tree byaddress;
	struct sd_tree bysize;
	struct sd_hole *spare;
	uint64_t spares; /* holes set aside: never fewer than parts */
	uint64_t parts;  /* taken and not given back */
};

int sd_space_open(struct sd_space *space, uint64_t base, uint64_t size);
/* more room, and less: a part can be removed only while it is free (-ENOSPC) */
int sd_space_add(struct sd_space *space, uint64_t at, uint64_t bytes);
int sd_space_remove(struct sd_space *space, uint64_t at, uint64_t bytes);
void sd_space_close(struct sd_space *space);
/* bytes > 0, align a power of two; -ENOSPC or -ENOMEM */
int sd_space_take(struct sd_space *space, uint64_t bytes, uint64_t align, uint64_t *at);
int sd_space_take_at(struct sd_space *space, uint64_t at, uint64_t bytes);
void sd_space_give(struct sd_space *space, uint64_t at, uint64_t bytes);

#endif
