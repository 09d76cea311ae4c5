/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "event.h"
#include "fault.h"
#include "kernel.h"
#include "order.h"
#include "pool.h"
#include "work.h"

CUresult sd_stream_new(struct sd_context *context, unsigned int flags, int priority, struct sd_stream **out)
{
	struct sd_stream *stream = sd_object_new(SD_STREAM, sizeof(*stream), &context->object);

	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->context = context;
	stream->flags = flags;
	stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
	stream->policy = CU_SYNC_POLICY_AUTO;
	stream->domains.remote = 1;
	*out = stream;
	return CUDA_SUCCESS;
}

void sd_stream_end(struct sd_stream *stream)
{
	sd_capture_leave(stream);
	if (stream->context->legacy == stream)
		stream->context->legacy = NULL;
	sd_object_free(stream);
}

static CUresult special(bool perthread, struct sd_stream **out)
{
	struct sd_context *context = NULL;
	CUresult result = sd_context_current(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!perthread) {
		if (!context->legacy)
			result = sd_stream_new(context, 0, 0, &context->legacy);
		if (result != CUDA_SUCCESS)
			return result;
		context->legacy->legacy = true;
		*out = context->legacy;
		return CUDA_SUCCESS;
	}
	struct sd_thread *thread = sd_thread();
	struct sd_stream *stream = NULL;

	/* a record of an ended context is used again: ids are unique */
	for (size_t i = 0; i < thread->streamcount; i++) {
		if (thread->streamof[i].context == context && thread->streamof[i].id == context->object.id &&
		    sd_object_get(thread->streams[i], SD_STREAM) && thread->streams[i]->context == context &&
		    thread->streams[i]->perthread) {
			*out = thread->streams[i];
			return CUDA_SUCCESS;
		}
	}
	size_t count = thread->streamcount + 1;
	struct sd_entry *entries = realloc(thread->streamof, count * sizeof(*entries));

	if (!entries)
		return CUDA_ERROR_OUT_OF_MEMORY;
	thread->streamof = entries;
	struct sd_stream **streams = realloc(thread->streams, count * sizeof(*streams));

	if (!streams)
		return CUDA_ERROR_OUT_OF_MEMORY;
	thread->streams = streams;
	result = sd_stream_new(context, 0, 0, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	stream->perthread = true;
	entries[count - 1] = (struct sd_entry){ context, context->object.id };
	streams[count - 1] = stream;
	thread->streamcount = count;
	*out = stream;
	return CUDA_SUCCESS;
}

CUresult sd_stream_of(CUstream handle, struct sd_stream **stream)
{
	CUresult result = CUDA_SUCCESS;

	if (!handle || handle == SD_STREAM_LEGACY)
		result = special(false, stream);
	else if (handle == SD_STREAM_PER_THREAD)
		result = special(true, stream);
	else if (!(*stream = sd_object_get(handle, SD_STREAM)))
		result = CUDA_ERROR_INVALID_HANDLE;
	return result == CUDA_SUCCESS ? sd_context_healthy((*stream)->context) : result;
}

uint64_t sd_stream_ticket(const struct sd_stream *stream)
{
	uint64_t ticket = stream->ticket;

	if (stream->flags & CU_STREAM_NON_BLOCKING)
		return ticket;
	/* the legacy stream and the blocking ones wait for each other */
	for (struct sd_object *object = stream->context->object.first; object; object = object->next) {
		const struct sd_stream *other = (struct sd_stream *)object;

		if (object->kind == SD_STREAM && (stream->legacy || other->legacy) &&
		    !(other->flags & CU_STREAM_NON_BLOCKING) && other->ticket > ticket)
			ticket = other->ticket;
	}
	return ticket;
}

void sd_stream_drain(const struct sd_stream *stream)
{
	/* the usual case first: no host function has ever been queued */
	if (sd_ticket_last())
		sd_ticket_wait(sd_stream_ticket(stream));
}

CUresult sd_stream_drain_all(void)
{
	sd_ticket_wait(sd_ticket_last());
	CUresult result = sd_await_all();

	sd_kernels_settle();
	return result;
}

CUresult sd_submit(CUstream handle, const struct sd_work *work)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_stream_of(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (stream->capture)
		return sd_capture_record(stream, work);
	if (stream->legacy && sd_capture_blocks_legacy(stream->context))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	return sd_work_run(work, stream);
}

CUresult sd_submit_now(CUstream handle, const struct sd_work *work)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_stream_of(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (stream->capture)
		return sd_capture_break(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	result = sd_submit(handle, work);
	if (result != CUDA_SUCCESS || !sd_timed())
		return result;
	result = sd_stream_of(handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_context *context = stream->context;
	uint64_t id = context->object.id;

	return sd_context_still(context, id, sd_order_await(stream));
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	struct sd_context *context = NULL;
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!phStream || flags & ~(unsigned int)CU_STREAM_NON_BLOCKING)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_stream_new(context, flags, priority, &stream);
	if (result == CUDA_SUCCESS)
		*phStream = (CUstream)stream;
	return sd_leave(result);
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	return cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_stream *stream = sd_object_get(hStream, SD_STREAM);

	if (!stream || stream->legacy || stream->perthread)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	sd_stream_end(stream);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuStreamDestroy(CUstream hStream)
{
	return cuStreamDestroy_v2(hStream);
}

CUresult cuStreamQuery(CUstream hStream)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_stream_of(hStream, &stream);
	if (result == CUDA_SUCCESS && stream->capture)
		result = sd_capture_spoil(stream);
	else if (result == CUDA_SUCCESS && !(sd_ticket_done(sd_stream_ticket(stream)) && sd_order_done(stream)))
		result = CUDA_ERROR_NOT_READY;
	return sd_leave(result);
}

CUresult cuStreamSynchronize(CUstream hStream)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_stream_of(hStream, &stream);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (stream->capture)
		return sd_leave(sd_capture_spoil(stream));
	const struct sd_context *context = stream->context;
	uint64_t contextid = context->object.id;
	uint64_t id = stream->object.id;

	sd_stream_drain(stream);
	if (sd_object_get(stream, SD_STREAM) == stream && stream->object.id == id)
		result = sd_order_await(stream);
	sd_pool_settle();
	return sd_leave(sd_context_still(context, contextid, result));
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (Flags > 1)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sd_event *event = sd_object_get(hEvent, SD_EVENT);
	struct sd_stream *stream = NULL;

	if (!event)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	result = sd_stream_of(hStream, &stream);
	if (result == CUDA_SUCCESS && event->capture && !(Flags & CU_EVENT_WAIT_EXTERNAL))
		return sd_leave(sd_capture_join(stream, event));
	if (result == CUDA_SUCCESS && stream->capture) {
		struct sd_work work = { .kind = SD_WORK_WAIT, .event = hEvent };

		/* an event from outside may only be waited for as an external one */
		if (!(Flags & CU_EVENT_WAIT_EXTERNAL))
			return sd_leave(sd_capture_break(stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
		return sd_leave(sd_capture_record(stream, &work));
	}
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	return sd_leave(sd_event_wait(event, stream));
}

static CUresult queue(CUstream hStream, CUhostFn function, CUstreamCallback callback, void *data)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!function && !callback)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_stream_of(hStream, &stream);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (function) {
		struct sd_work work = { .kind = SD_WORK_HOST, .host = { .fn = function, .userData = data } };

		return sd_leave(sd_submit(hStream, &work));
	}
	if (stream->capture)
		return sd_leave(sd_capture_break(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
	struct sd_callback item = {
		.callback = callback, .stream = hStream, .data = data, .context = stream->context,
		.contextid = stream->context->object.id,
	};
	uint64_t id = stream->object.id;

	result = sd_order_gate(stream, &item.ready, &item.gate);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	uint64_t ticket = sd_callback_queue(&item);

	/* the lock may have been released: the stream may be gone */
	if (ticket && stream == sd_object_get(stream, SD_STREAM) && stream->object.id == id)
		stream->ticket = ticket;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
	return flags || !callback ? CUDA_ERROR_INVALID_VALUE : queue(hStream, NULL, callback, userData);
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	return queue(hStream, fn, NULL, userData);
}

CUresult cuCtxSynchronize(void)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (sd_capture_blocks_legacy(context))
		return sd_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	uint64_t id = context->object.id;

	result = sd_stream_drain_all();
	sd_pool_settle();
	return sd_leave(sd_context_still(context, id, result));
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_context *context = sd_context_get(ctx);

	if (!context)
		return sd_leave(CUDA_ERROR_INVALID_CONTEXT);
	result = sd_context_healthy(context);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	uint64_t id = context->object.id;

	result = sd_stream_drain_all();
	sd_pool_settle();
	return sd_leave(sd_context_still(context, id, result));
}

SD_PTSZ(cuStreamQuery, (CUstream hStream), sd_per_thread(hStream))
SD_PTSZ(cuStreamSynchronize, (CUstream hStream), sd_per_thread(hStream))
SD_PTSZ(cuStreamWaitEvent, (CUstream hStream, CUevent hEvent, unsigned int Flags), sd_per_thread(hStream), hEvent,
	Flags)
SD_PTSZ(cuStreamAddCallback, (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),
	sd_per_thread(hStream), callback, userData, flags)
SD_PTSZ(cuLaunchHostFunc, (CUstream hStream, CUhostFn fn, void *userData), sd_per_thread(hStream), fn, userData)
