/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connection.h: frames to the library and bytes from it. Any thread may send; one at a
 * time reads, the one with the reading role (lanes.c).
 */
#ifndef WORKER_CONNECTION_H
#define WORKER_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "divvy_remote.h"

struct worker_lane;

/* From now on what kernels print is caught, too. */
void connection_open(int fd);
void connection_close(void); /* whoever reads learns that it is over */

bool connection_send(unsigned int op, uint64_t seq, uint32_t lane, const void *payload, size_t length);
bool connection_answer(struct worker_lane *lane, uint64_t seq); /* its reply, with room for a header */
void connection_send_printed(void);

bool connection_has(size_t length); /* so many bytes are there without waiting */
bool connection_take(void *to, size_t length); /* false: it is over */
/* So many bytes where they lie, if all of them are there and aligned; until the next read. */
uint8_t *connection_take_in_place(size_t length);

#endif
