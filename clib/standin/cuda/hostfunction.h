/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostfunction.h: host functions and stream callbacks. They run one after the other
 * on a thread of the driver's own (queue.h). The driver's lock is held.
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

#endif
