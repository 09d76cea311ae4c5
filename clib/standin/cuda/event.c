/* SPDX-License-Identifier: Apache-2.0 */
#include "event.h"

#include <stdlib.h>

#include "hostfunction.h"
#include "order.h"
#include "sharedevent.h"

static void end_event(void *object)
{
	struct sd_event *event = object;

	sd_shared_end(event);
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

CUresult sd_event_record(struct sd_event *event, struct sd_stream *stream)
{
	uint64_t id = event->object.id;

	event->recorded = true;
	event->capture = NULL;
	event->ticket = sd_stream_ticket(stream);
	return publish(event, id, sd_order_event(stream, event));
}

CUresult sd_event_record_all(struct sd_event *event, struct sd_context *context)
{
	uint64_t id = event->object.id;

	event->recorded = true;
	event->capture = NULL;
	event->ticket = sd_ticket_last();
	return publish(event, id, sd_order_event_all(context, event));
}

CUresult sd_event_wait(struct sd_event *event, struct sd_stream *stream)
{
	if (event->ticket > stream->ticket)
		stream->ticket = event->ticket;
	return event->handle ? sd_shared_wait(event, stream) : sd_order_after(stream, event->item);
}
