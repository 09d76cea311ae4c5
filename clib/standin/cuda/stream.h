/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h: streams, and events: moments in them.
 *
 * Two things order work. Contents are touched within the call when nothing is left
 * to do before, else by a step that the driver's own threads take (queue.h); a stream
 * remembers its last step. And time is modelled (order.h): a stream remembers the
 * item that its next one comes after.
 */
#ifndef DIVVY_STANDIN_STREAM_H
#define DIVVY_STANDIN_STREAM_H

#include "context.h"

struct sd_capture;
struct sd_step;
struct sd_vertex;

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
	struct sd_step *step; /* the last one, while it is not done */
	uint64_t tail;   /* the item that its next one comes after */
	uint64_t latens; /* by how much, in all, kernels' items came late: results were being computed */
	struct sd_capture *capture;
	void (*leave)(struct sd_stream *stream); /* the capture, when the stream ends */
	struct sd_stream *captured; /* next stream of the same capture */
	struct sd_vertex **frontier; /* what its next captured node depends on */
	size_t frontiercount;
	CUaccessPolicyWindow window; /* attributes: kept, without effect */
	CUsynchronizationPolicy policy;
	unsigned int domain;
	CUlaunchMemSyncDomainMap domains;
};

struct sd_event {
	struct sd_object object;
	struct sd_context *context;
	unsigned int flags;
	bool recorded;
	bool opened;     /* from an IPC handle */
	unsigned char *handle; /* other processes may hold it; see sharedevent.h */
	struct sd_step *step; /* done when this is: NULL or one that may be done long since */
	uint64_t item;   /* and this item has ended: 0 once timens says when */
	uint64_t timens; /* CLOCK_MONOTONIC */
	uint64_t streamid; /* recorded in this stream (0: in all), when its items were so late */
	uint64_t latens;
	struct sd_capture *capture; /* recorded while its stream was captured */
	uint64_t captureid;
	struct sd_vertex **frontier;
	size_t frontiercount;
};

/* The stream behind a handle, the three special ones included; the lock is
 * held. Special ones belong to the calling thread's current context. */
CUresult sd_stream_of(CUstream handle, struct sd_stream **stream);
CUresult sd_stream_new(struct sd_context *context, unsigned int flags, int priority, struct sd_stream **out);

#endif
