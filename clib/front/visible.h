/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visible.h: what CUDA_VISIBLE_DEVICES means inside a share, whose GPUs are 0 to
 * n-1 in the order of their slots, and how the driver is told. Needs no driver.
 */
#ifndef FRONT_VISIBLE_H
#define FRONT_VISIBLE_H

#include <stdbool.h>
#include <stdint.h>

#include "divvy_wire.h"

#pragma GCC visibility push(hidden)

#define VISIBLE_VARIABLE "CUDA_VISIBLE_DEVICES"
#define VISIBLE_NAME_BYTES 41 /* GPU-, 16 bytes in hexadecimal with four dashes, NUL */
#define VISIBLE_TEXT_BYTES (sizeof(VISIBLE_VARIABLE) + DIVVY_MAX_CARDS * VISIBLE_NAME_BYTES)

/* GPUs of the share, in the order in which the program wants to see them. */
struct visible {
	unsigned count;
	uint8_t slot[DIVVY_MAX_CARDS];
};

/*
 * Reads a program's list as the driver does, but for its counting from the
 * share's GPUs: numbers, UUIDs or their unambiguous beginnings; it ends at the
 * first entry that names none of them, and a GPU named twice hides all. NULL:
 * all GPUs of the share.
 */
void visible_choose(const struct divvy_limits *limits, const char *list, struct visible *chosen);

/* The program has hidden all GPUs and knows it: an empty list, or one that begins with a minus. */
bool visible_hides(const char *list);

/* The variable, with its name, by which the driver enumerates just these. */
void visible_entry(const struct divvy_limits *limits, const struct visible *chosen, char text[VISIBLE_TEXT_BYTES]);

/*
 * Between these two, getenv answers as entry says ("NAME=value"), in the whole
 * process; what the program and other threads do to their environment meanwhile
 * is kept. Several threads may be between them at once, all with the first one's
 * entry. False: no memory, and nothing has changed.
 */
bool visible_tell(const char *entry);
void visible_told(void);

#pragma GCC visibility pop

#endif
