/* SPDX-License-Identifier: Apache-2.0 */
/* frame.h: what came over the connection, on its way to the lane that it is for. */
#ifndef WORKER_FRAME_H
#define WORKER_FRAME_H

#include "worker.h"

struct frame {
	struct frame *next;
	struct divvy_remote_frame header;
	uint64_t after; /* one-way calls before it */
	bool own;       /* lies in memory of its own */
	uint8_t *payload;
	uint8_t bytes[];
};

/* execute.c: finds where the calls are counted, if the server gave it; makes what a frame asks
 * for. False: the session is over. */
void worker_find_tally(void);
bool worker_execute(struct worker_lane *lane, struct frame *frame);

/* lanes.c: reads and makes calls until the connection is over. */
void worker_run_lanes(void);

#endif
