/* SPDX-License-Identifier: Apache-2.0 */
#include "submit.h"

#include "cuda/capture.h"
#include "cuda/enter.h"
#include "cuda/fault.h"
#include "cuda/order.h"
#include "cuda/queue.h"
#include "graph/record.h"
#include "graph/run.h"

CUresult sd_submit(CUstream handle, const struct sd_work *work)
{
	struct sd_stream *stream = NULL;
	CUresult result;

	sd_queue_room();
	result = sd_stream_of(handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (stream->capture)
		return sd_record(stream, work);
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
	/* so that it is done here, and this call tells what is wrong with it */
	sd_stream_drain(stream);
	result = sd_submit(handle, work);
	if (result == CUDA_SUCCESS)
		result = sd_stream_of(handle, &stream);
	if (result == CUDA_SUCCESS && sd_stream_busy(stream)) { /* another thread was quicker */
		sd_stream_drain(stream);
		result = sd_stream_of(handle, &stream);
	}
	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_context *context = stream->context;
	uint64_t id = context->object.id;

	return sd_context_still(context, id, sd_order_await(stream));
}

CUresult sd_call_submit(CUstream handle, struct sd_work *work, bool wait)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	work->card = context->card;
	return sd_leave(wait ? sd_submit_now(handle, work) : sd_submit(handle, work));
}
