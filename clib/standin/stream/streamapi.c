/* SPDX-License-Identifier: Apache-2.0 */
/* streamapi.c: streams as handles, and waiting for what is in them. */
#include "cuda/capture.h"
#include "cuda/enter.h"
#include "cuda/event.h"
#include "cuda/fault.h"
#include "cuda/hostfunction.h"
#include "cuda/order.h"
#include "cuda/queue.h"
#include "graph/record.h"
#include "submit.h"

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
	sd_object_end(stream);
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
	else if (result == CUDA_SUCCESS && (sd_stream_busy(stream) || !sd_order_done(stream)))
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
		return sd_leave(sd_record(stream, &work));
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
	const struct sd_callback item = { .callback = callback, .stream = hStream, .data = data };

	return sd_leave(sd_callback_queue(stream, &item));
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
