/* SPDX-License-Identifier: Apache-2.0 */
#include "space.h"

#include <errno.h>
#include <stdlib.h>

struct sd_hole {
	struct sd_node byaddress;
	struct sd_node bysize;
	uint64_t at;
	uint64_t bytes;
	struct sd_hole *next; /* while spare */
};

enum { ALIGNED_TRIES = 16 };

static void add(struct sd_space *space, struct sd_hole *hole, uint64_t at, uint64_t bytes)
{
	hole->at = at;
	hole->bytes = bytes;
	sd_tree_add(&space->byaddress, &hole->byaddress, at, 0);
	sd_tree_add(&space->bysize, &hole->bysize, bytes, at);
}

static void drop(struct sd_space *space, struct sd_hole *hole)
{
	sd_tree_remove(&space->byaddress, &hole->byaddress);
	sd_tree_remove(&space->bysize, &hole->bysize);
}

static void keep(struct sd_space *space, struct sd_hole *hole)
{
	hole->next = space->spare;
	space->spare = hole;
	space->spares++;
}

static int set_aside(struct sd_space *space)
{
	struct sd_hole *hole = calloc(1, sizeof(*hole));

	if (!hole)
		return -ENOMEM;
	keep(space, hole);
	return 0;
}

static struct sd_hole *spare(struct sd_space *space)
{
	struct sd_hole *hole = space->spare;

	space->spare = hole->next;
	space->spares--;
	return hole;
}

int sd_space_open(struct sd_space *space, uint64_t base, uint64_t size)
{
	*space = (struct sd_space){ .base = base, .size = size };
	if (size == 0)
		return 0;
	if (set_aside(space) < 0)
		return -ENOMEM;
	add(space, spare(space), base, size);
	return 0;
}

int sd_space_add(struct sd_space *space, uint64_t at, uint64_t bytes)
{
	if (set_aside(space) < 0)
		return -ENOMEM;
	space->parts++;
	space->taken += bytes;
	space->size += bytes;
	sd_space_give(space, at, bytes);
	return 0;
}

int sd_space_remove(struct sd_space *space, uint64_t at, uint64_t bytes)
{
	int result = sd_space_take_at(space, at, bytes);

	if (result < 0)
		return result;
	space->parts--;
	space->taken -= bytes;
	space->size -= bytes;
	while (space->spares > space->parts)
		free(spare(space));
	return 0;
}

void sd_space_close(struct sd_space *space)
{
	struct sd_node *node;

	while ((node = space->byaddress.root)) {
		struct sd_hole *hole = SD_OWNER(node, struct sd_hole, byaddress);

		drop(space, hole);
		free(hole);
	}
	while (space->spare)
		free(spare(space));
	*space = (struct sd_space){ 0 };
}

/* cuts [at, at+bytes) out of a hole that contains it; two spares were set aside:
 * one for this cut, one for the part's return */
static void cut(struct sd_space *space, struct sd_hole *hole, uint64_t at, uint64_t bytes)
{
	uint64_t before = at - hole->at;
	uint64_t after = hole->bytes - before - bytes;
	uint64_t start = hole->at;

	drop(space, hole);
	if (before)
		add(space, hole, start, before);
	if (after)
		add(space, before ? spare(space) : hole, at + bytes, after);
	if (!before && !after)
		keep(space, hole);
	space->taken += bytes;
	space->parts++;
}

static struct sd_hole *fitting(const struct sd_space *space, uint64_t bytes, uint64_t align, uint64_t *at)
{
	struct sd_node *node = sd_tree_ceiling(&space->bysize, bytes, 0);

	for (int tries = 0; node && tries < ALIGNED_TRIES; tries++, node = sd_tree_next(node)) {
		struct sd_hole *hole = SD_OWNER(node, struct sd_hole, bysize);
		uint64_t start = (hole->at + align - 1) & ~(align - 1);

		if (start - hole->at <= hole->bytes - bytes) {
			*at = start;
			return hole;
		}
	}
	if (bytes > UINT64_MAX - align)
		return NULL;
	node = sd_tree_ceiling(&space->bysize, bytes + align - 1, 0);
	if (!node)
		return NULL;
	struct sd_hole *hole = SD_OWNER(node, struct sd_hole, bysize);

	*at = (hole->at + align - 1) & ~(align - 1);
	return hole;
}

int sd_space_take(struct sd_space *space, uint64_t bytes, uint64_t align, uint64_t *at)
{
	uint64_t start = 0;
	struct sd_hole *hole = fitting(space, bytes, align, &start);

	if (!hole)
		return -ENOSPC;
	if (set_aside(space) < 0 || set_aside(space) < 0)
		return -ENOMEM;
	cut(space, hole, start, bytes);
	*at = start;
	return 0;
}

int sd_space_take_at(struct sd_space *space, uint64_t at, uint64_t bytes)
{
	struct sd_node *node = sd_tree_floor(&space->byaddress, at, 0);

	if (!node)
		return -ENOSPC;
	struct sd_hole *hole = SD_OWNER(node, struct sd_hole, byaddress);

	if (at - hole->at > hole->bytes || hole->bytes - (at - hole->at) < bytes)
		return -ENOSPC;
	if (set_aside(space) < 0 || set_aside(space) < 0)
		return -ENOMEM;
	cut(space, hole, at, bytes);
	return 0;
}

void sd_space_give(struct sd_space *space, uint64_t at, uint64_t bytes)
{
	struct sd_node *below = sd_tree_floor(&space->byaddress, at, 0);
	struct sd_node *above = sd_tree_ceiling(&space->byaddress, at, 0);
	struct sd_hole *hole = spare(space);

	space->taken -= bytes;
	space->parts--;
	if (above) {
		struct sd_hole *next = SD_OWNER(above, struct sd_hole, byaddress);

		if (next->at == at + bytes) {
			bytes += next->bytes;
			drop(space, next);
			free(next);
		}
	}
	if (below) {
		struct sd_hole *last = SD_OWNER(below, struct sd_hole, byaddress);

		if (last->at + last->bytes == at) {
			at = last->at;
			bytes += last->bytes;
			drop(space, last);
			free(last);
		}
	}
	add(space, hole, at, bytes);
	/* one spare per part that is out is enough */
	while (space->spares > space->parts)
		free(spare(space));
}
