/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h: streams, and the order of what is put into them.
 *
 * Two things order work. Contents are touched within the call, so the call waits
 * for the host functions before it: those run one after the other on a thread of
 * the driver's own, each with a ticket; a stream remembers the ticket that its next
 * work has to wait for. And time is modelled (order.h): a stream remembers the item
 * that its next one comes after.
 */
#ifndef DIVVY_STANDIN_STREAM_H
#define DIVVY_STANDIN_STREAM_H

#include "context.h"

struct sd_capture;
struct sd_vertex;
struct sd_work;

#define SD_STREAM_LEGACY ((CUstream)(uintptr_t)1)
#define SD_STREAM_PER_THREAD ((CUstream)(uintptr_t)2)

struct sd_stream {
	struct sd_object object;
	struct sd_context *context;
	struct sd_green *green;
	bool legacy;
	bool perthread;
	unsigned int flags;
	int priority;
	uint64_t ticket; /* of the last host function its work comes after */
	uint64_t tail;   /* the item that its next one comes after */
	struct sd_capture *capture;
	struct sd_stream *captured; /* next stream of the same capture */
	struct sd_vertex **frontier; /* what its next captured node depends on */
	size_t frontiercount;
	CUaccessPolicyWindow window; /* attributes: kept, without effect */
	CUsynchronizationPolicy policy;
	unsigned int domain;
	CUlaunchMemSyncDomainMap domains;
};

/* The stream behind a handle, the three special ones included; the lock is
 * held. Special ones belong to the calling thread's current context. */
CUresult sd_stream_of(CUstream handle, struct sd_stream **stream);
CUresult sd_stream_new(struct sd_context *context, unsigned int flags, int priority, struct sd_stream **out);
void sd_stream_end(struct sd_stream *stream);

/* The ticket that work put into the stream now comes after. */
uint64_t sd_stream_ticket(const struct sd_stream *stream);
/* Waits until the host functions before are done; the lock is released meanwhile,
 * so look things up again afterwards. */
void sd_stream_drain(const struct sd_stream *stream);
/* The same for everything before, kernels included. */
CUresult sd_stream_drain_all(void);

/* Records the work when the stream is being captured, else does it. The lock is
 * held, and released while contents are touched. */
CUresult sd_submit(CUstream handle, const struct sd_work *work);
/* for calls that wait for their work, which a capture cannot contain */
CUresult sd_submit_now(CUstream handle, const struct sd_work *work);

/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED when the calling thread may not do what
 * a capture cannot contain (an allocation ...) */
CUresult sd_capture_forbids(void);

/* hostfunction.c */
struct sd_callback {
	CUhostFn function;
	CUstreamCallback callback; /* or this one */
	CUstream stream;
	const struct sd_context *context; /* whose stream; NULL: none */
	uint64_t contextid;
	void *data;
	uint64_t ready; /* the item it comes after */
	uint64_t gate;  /* the item that ends when it returns */
};
uint64_t sd_callback_queue(const struct sd_callback *callback); /* its ticket; 0: it ran here and now */
bool sd_ticket_done(uint64_t ticket);
void sd_ticket_wait(uint64_t ticket); /* releases the lock meanwhile */
uint64_t sd_ticket_last(void);

#endif
