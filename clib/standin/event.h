/* SPDX-License-Identifier: Apache-2.0 */
/* event.h: events: a moment in a stream. */
#ifndef DIVVY_STANDIN_EVENT_H
#define DIVVY_STANDIN_EVENT_H

#include "context.h"

struct sd_capture;
struct sd_stream;
struct sd_vertex;

struct sd_event {
	struct sd_object object;
	struct sd_context *context;
	unsigned int flags;
	bool recorded;
	bool opened;     /* from an IPC handle */
	unsigned char *handle; /* other processes may hold it; see sharedevent.c */
	uint64_t ticket; /* done when this host function is */
	uint64_t item;   /* and this item has ended: 0 once timens says when */
	uint64_t timens; /* CLOCK_MONOTONIC */
	struct sd_capture *capture; /* recorded while its stream was captured */
	uint64_t captureid;
	struct sd_vertex **frontier;
	size_t frontiercount;
};

void sd_event_end(struct sd_event *event);
CUresult sd_event_record(struct sd_event *event, struct sd_stream *stream);
/* Lets the stream's next work come after the event. May wait for room. */
CUresult sd_event_wait(struct sd_event *event, struct sd_stream *stream);

/* sharedevent.c: events that other processes may hold. Each of these may release
 * the lock meanwhile. */
CUresult sd_shared_make(struct sd_event *event, const unsigned char *handle);
void sd_shared_end(struct sd_event *event);
CUresult sd_shared_publish(const struct sd_event *event);
CUresult sd_shared_wait(const struct sd_event *event, struct sd_stream *stream);
bool sd_shared_done(const struct sd_event *event);
CUresult sd_shared_await(const struct sd_event *event);

#endif
