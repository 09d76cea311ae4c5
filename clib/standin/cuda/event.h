/* SPDX-License-Identifier: Apache-2.0 */
/* event.h: putting a moment of a stream into an event, and waiting for it. */
#ifndef DIVVY_STANDIN_EVENT_H
#define DIVVY_STANDIN_EVENT_H

#include "stream.h"

CUresult sd_event_new(struct sd_context *context, unsigned int flags, struct sd_event **out);
CUresult sd_event_record(struct sd_event *event, struct sd_stream *stream);
/* A whole context as the stream. */
CUresult sd_event_record_all(struct sd_event *event, struct sd_context *context);
/* Lets the stream's next work come after the event. May wait for room. */
CUresult sd_event_wait(struct sd_event *event, struct sd_stream *stream);

#endif
