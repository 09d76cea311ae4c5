/* SPDX-License-Identifier: Apache-2.0 */
#include "hostfunction.h"

#include "fault.h"
#include "order.h"
#include "queue.h"

struct call {
	struct sd_step step;
	struct sd_callback callback;
	bool gated;
	uint64_t ready; /* the item it comes after */
	uint64_t gate;  /* the item that ends when it returns */
};

/* In a context with a fault a callback is told of it, and a host function is not
 * called any more. */
static CUresult run(struct sd_step *step, struct sd_stream *lane)
{
	struct call *call = (struct call *)step;
	const struct sd_callback *callback = &call->callback;
	const struct sd_context *context = step->context;
	CUresult result = call->gated ? CUDA_SUCCESS : sd_order_gate(lane, &call->ready, &call->gate);
	struct sd_thread *thread = sd_thread();
	bool before = thread && thread->worker;

	sd_unlock();
	sd_await_unlocked(call->ready);
	sd_lock();
	CUresult status = sd_context_still(context, context->object.id, CUDA_SUCCESS);

	if (thread)
		thread->worker = true;
	sd_unlock();
	if (callback->callback)
		callback->callback(callback->stream, status, callback->data);
	else if (status == CUDA_SUCCESS)
		callback->function(callback->data);
	sd_order_open(call->gate);
	sd_lock();
	if (thread)
		thread->worker = before;
	return result;
}

CUresult sd_callback_queue(struct sd_stream *stream, const struct sd_callback *callback)
{
	uint64_t id = stream->object.id;
	uint64_t ready = 0;
	uint64_t gate = 0;
	/* what only takes time may follow it into the ring before it has run */
	bool gated = sd_timed() && !sd_stream_open(stream);

	if (gated) {
		CUresult result = sd_order_gate(stream, &ready, &gate);

		if (result != CUDA_SUCCESS)
			return result;
		if (sd_object_get(stream, SD_STREAM) != stream || stream->object.id != id) {
			sd_order_open(gate);
			return CUDA_SUCCESS;
		}
	}
	struct call *call = (struct call *)sd_step_new(stream, SD_STEP_HOST, sizeof(*call), gated && !sd_stream_open(stream));

	if (!call) {
		sd_order_open(gate);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	call->step.perform = run;
	call->callback = *callback;
	call->gated = gated;
	call->ready = ready;
	call->gate = gate;
	sd_step_start(&call->step);
	return CUDA_SUCCESS;
}
