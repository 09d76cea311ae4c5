/* SPDX-License-Identifier: Apache-2.0 */
#include "event.h"

#include <stdlib.h>

#include "order.h"
#include "outlook.h"
#include "queue.h"
#include "sharedevent.h"

static void end_event(void *object)
{
	struct sd_event *event = object;

	sd_shared_end(event);
	sd_step_drop(event->step);
	free(event->frontier);
	sd_object_free(event);
}

CUresult sd_event_new(struct sd_context *context, unsigned int flags, struct sd_event **out)
{
	struct sd_event *event = sd_object_new(SD_EVENT, sizeof(*event), &context->object);

	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->object.end = end_event;
	event->context = context;
	event->flags = flags;
	*out = event;
	return CUDA_SUCCESS;
}

/* What other processes hold of the event is told, if it is still there after the lock was released. */
static CUresult publish(const struct sd_event *event, uint64_t id, CUresult result)
{
	if (result != CUDA_SUCCESS || sd_object_get(event, SD_EVENT) != event || event->object.id != id || !event->handle)
		return result;
	return sd_shared_publish(event);
}

/* The same when work before it is still to do; and a wait for an event that
 * other processes record, too. */
struct record {
	struct sd_step step;
	struct sd_event *event;
	uint64_t id;
};

/* The event, unless it is gone or was recorded again. */
static struct sd_event *still(const struct record *record)
{
	struct sd_event *event = sd_object_get(record->event, SD_EVENT);

	return event && event->object.id == record->id && event->step == &record->step ? event : NULL;
}

static CUresult record_later(struct sd_step *step, struct sd_stream *lane)
{
	const struct record *record = (struct record *)step;
	struct sd_event *event = still(record);

	if (!event)
		return CUDA_SUCCESS;
	event->latens = sd_step_late(step);
	return publish(event, record->id, sd_order_event(lane, event));
}

static CUresult wait_later(struct sd_step *step, struct sd_stream *lane)
{
	const struct record *wait = (struct record *)step;
	const struct sd_event *event = sd_object_get(wait->event, SD_EVENT);

	return event && event->object.id == wait->id && event->handle ? sd_shared_wait(event, lane) : CUDA_SUCCESS;
}

static void takes(struct sd_event *event, struct sd_step *step)
{
	sd_step_drop(event->step);
	event->step = sd_step_keep(step);
}

CUresult sd_event_record(struct sd_event *event, struct sd_stream *stream)
{
	uint64_t id = event->object.id;
	uint64_t streamid = stream->object.id;

	event->recorded = true;
	event->capture = NULL;
	event->streamid = streamid;
	event->latens = stream->latens;
	if (sd_stream_open(stream)) {
		struct record *record = (struct record *)sd_step_new(stream, SD_STEP_COPY, sizeof(*record), false);

		if (!record)
			return CUDA_ERROR_OUT_OF_MEMORY;
		record->step.perform = record_later;
		record->event = event;
		record->id = id;
		event->item = 0;
		event->timens = sd_now();
		takes(event, &record->step);
		/* Others may look as soon as this has returned, so it is published by then. */
		struct sd_step *step = event->handle ? sd_step_keep(&record->step) : NULL;

		sd_step_start(&record->step);
		sd_step_wait(step);
		sd_step_drop(step);
		return CUDA_SUCCESS;
	}
	takes(event, NULL);
	CUresult result = sd_order_event(stream, event);

	if (result != CUDA_SUCCESS || sd_object_get(event, SD_EVENT) != event || event->object.id != id)
		return result;
	if (sd_object_get(stream, SD_STREAM) == stream && stream->object.id == streamid && sd_stream_busy(stream)) {
		/* host functions, whose items are known */
		struct sd_step *join = sd_step_new(stream, SD_STEP_JOIN, sizeof(*join), true);

		if (!join)
			return CUDA_ERROR_OUT_OF_MEMORY;
		takes(event, join);
		sd_step_start(join);
		/* a host function from before there was a ring is no item: it is waited for */
		if (event->handle && !event->item)
			sd_step_wait(join);
	}
	return publish(event, id, result);
}

CUresult sd_event_record_all(struct sd_event *event, struct sd_context *context)
{
	uint64_t id = event->object.id;

	event->recorded = true;
	event->capture = NULL;
	event->streamid = 0;
	takes(event, NULL);
	return publish(event, id, sd_order_event_all(context, event));
}

CUresult sd_event_wait(struct sd_event *event, struct sd_stream *stream)
{
	struct sd_step *step = event->step;
	bool recorded = !step || step->done;

	if (!event->handle) {
		CUresult result;

		sd_step_keep(step);
		result = sd_stream_after(stream, event->item, &step, step != NULL);
		sd_step_drop(step);
		return result;
	}
	/* the simulator knows where it stands, once that is known here */
	if (recorded && !sd_stream_open(stream))
		return sd_shared_wait(event, stream);
	struct record *wait = (struct record *)sd_step_new(stream, SD_STEP_COPY, sizeof(*wait), false);

	if (!wait)
		return CUDA_ERROR_OUT_OF_MEMORY;
	wait->step.perform = wait_later;
	wait->event = event;
	wait->id = event->object.id;
	sd_step_after(&wait->step, step, 0);
	sd_step_start(&wait->step);
	return CUDA_SUCCESS;
}
