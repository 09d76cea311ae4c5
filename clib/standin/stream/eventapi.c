/* SPDX-License-Identifier: Apache-2.0 */
/* eventapi.c: events as handles. */
#include "cuda/capture.h"
#include "cuda/enter.h"
#include "cuda/event.h"
#include "cuda/fault.h"
#include "cuda/queue.h"
#include "cuda/order.h"
#include "cuda/outlook.h"
#include "graph/record.h"
#include "cuda/sharedevent.h"

enum { KNOWN_FLAGS = 7 };

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!phEvent || Flags & ~(unsigned int)KNOWN_FLAGS ||
	    (Flags & CU_EVENT_INTERPROCESS && !(Flags & CU_EVENT_DISABLE_TIMING)))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sd_event *event = NULL;

	result = sd_event_new(context, Flags, &event);
	if (result == CUDA_SUCCESS)
		*phEvent = (CUevent)event;
	return sd_leave(result);
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_event *event = sd_object_get(hEvent, SD_EVENT);

	if (!event)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	sd_object_end(event);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy(CUevent hEvent)
{
	return cuEventDestroy_v2(hEvent);
}

static bool done(const struct sd_event *event)
{
	return (!event->step || event->step->done) && (event->handle ? sd_shared_done(event) : sd_ended(event->item));
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_event *event = sd_object_get(hEvent, SD_EVENT);

	if (!event)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (flags > 1)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_stream_of(hStream, &stream);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (!stream->capture)
		return sd_leave(sd_event_record(event, stream));
	if (flags & CU_EVENT_RECORD_EXTERNAL) {
		struct sd_work work = { .kind = SD_WORK_RECORD, .event = hEvent };

		return sd_leave(sd_record(stream, &work));
	}
	return sd_leave(sd_capture_mark(stream, event));
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
	return cuEventRecordWithFlags(hEvent, hStream, 0);
}

CUresult cuEventQuery(CUevent hEvent)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_event *event = sd_object_get(hEvent, SD_EVENT);

	if (!event)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	result = sd_context_healthy(event->context);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (event->capture)
		return sd_leave(CUDA_ERROR_CAPTURED_EVENT);
	return sd_leave(done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult cuEventSynchronize(CUevent hEvent)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_event *event = sd_object_get(hEvent, SD_EVENT);

	if (!event)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	const struct sd_context *context = event->context;
	uint64_t id = context->object.id;
	uint64_t item = event->item;

	result = sd_context_healthy(context);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (event->capture)
		return sd_leave(CUDA_ERROR_CAPTURED_EVENT);
	if (event->handle) {
		result = sd_shared_await(event);
	} else {
		struct sd_step *step = sd_step_keep(event->step);
		bool placed = !step || step->placed;

		sd_step_wait(step);
		result = sd_await(placed ? item : step->item);
		sd_step_drop(step);
	}
	sd_pool_settle();
	return sd_leave(sd_context_still(context, id, result));
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_event *start = sd_object_get(hStart, SD_EVENT);
	const struct sd_event *end = sd_object_get(hEnd, SD_EVENT);

	if (!pMilliseconds)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (!start || !end || !start->recorded || !end->recorded ||
	    (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!done(start) || !done(end))
		return sd_leave(CUDA_ERROR_NOT_READY);
	uint64_t from = start->item ? sd_end_of(start->item) : start->timens;
	uint64_t to = end->item ? sd_end_of(end->item) : end->timens;
	/* what the host computes for a kernel is no time of the card's */
	uint64_t late = start->streamid && start->streamid == end->streamid ? end->latens - start->latens : 0;

	*pMilliseconds = (float)((double)(int64_t)(to - from - late) / 1e6);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	return cuEventElapsedTime(pMilliseconds, hStart, hEnd);
}

/* A whole context as the stream. */
CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_event *event = sd_object_get(hEvent, SD_EVENT);

	struct sd_context *context = sd_context_get(hCtx);

	if (!context)
		return sd_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!event)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	/* where the context stands is known when all in it has been done */
	sd_queue_settle();
	event = sd_object_get(hEvent, SD_EVENT);
	context = sd_context_get(hCtx);
	if (!event || !context)
		return sd_leave(event ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE);
	return sd_leave(sd_event_record_all(event, context));
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_context *context = sd_context_get(hCtx);
	const struct sd_event *event = sd_object_get(hEvent, SD_EVENT);

	if (!context)
		return sd_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!event)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (event->handle)
		return sd_leave(sd_shared_await(event));
	uint64_t item = event->item;
	struct sd_step *step = sd_step_keep(event->step);

	if (step && !step->placed) {
		sd_step_wait(step);
		item = step->item;
	}
	if (step && !step->done && sd_context_get(hCtx) == context) {
		struct sd_object *next;

		/* nothing below waits: all that comes before is placed */
		for (struct sd_object *object = context->object.first; object; object = next) {
			next = object->next;
			if (object->kind == SD_STREAM)
				result = sd_stream_after((struct sd_stream *)object, 0, &step, 1);
		}
	}
	sd_step_drop(step);
	return sd_leave(sd_context_get(hCtx) == context ? sd_order_after_all(context, item) : result);
}

SD_PTSZ(cuEventRecord, (CUevent hEvent, CUstream hStream), hEvent, sd_per_thread(hStream))
SD_PTSZ(cuEventRecordWithFlags, (CUevent hEvent, CUstream hStream, unsigned int flags), hEvent,
	sd_per_thread(hStream), flags)
