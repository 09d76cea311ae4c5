/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostfunction.h: host functions and stream callbacks. They run one after the other
 * on a thread of the driver's own, each with a ticket. The driver's lock is held.
 */
#ifndef DIVVY_STANDIN_HOSTFUNCTION_H
#define DIVVY_STANDIN_HOSTFUNCTION_H

#include "stream.h"

struct sd_callback {
	CUhostFn function;
	CUstreamCallback callback; /* or this one */
	CUstream stream;
	void *data;
};
/* Puts it into the stream, which may be gone afterwards; it ran here and now when
 * there is no thread. May wait. */
CUresult sd_callback_queue(struct sd_stream *stream, const struct sd_callback *callback);
bool sd_ticket_done(uint64_t ticket);
void sd_ticket_wait(uint64_t ticket); /* releases the lock meanwhile */
uint64_t sd_ticket_last(void);
/* Whether host functions may be pending that no item (order.h) stands for: from
 * before the first launch. */
bool sd_tickets_early(void);

/* Waits until the host functions before are done; the lock is released meanwhile,
 * so look things up again afterwards. */
void sd_stream_drain(const struct sd_stream *stream);
/* The same for everything before, kernels included. */
CUresult sd_stream_drain_all(void);

#endif
