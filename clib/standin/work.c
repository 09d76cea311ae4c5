/* SPDX-License-Identifier: Apache-2.0 */
#include "work.h"

#include <stdlib.h>
#include <string.h>

#include "event.h"
#include "graph.h"
#include "kernel.h"
#include "module.h"
#include "order.h"
#include "stream.h"

CUresult sd_work_check(const struct sd_work *work, const struct sd_card *card)
{
	card = work->card ? work->card : card;
	switch (work->kind) {
	case SD_WORK_COPY:
		return sd_copy_check(&work->copy, card);
	case SD_WORK_FILL:
		return sd_fill_check(&work->fill, card);
	case SD_WORK_LAUNCH:
		return sd_launch_check(&work->launch);
	case SD_WORK_HOST:
		return work->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case SD_WORK_RECORD:
	case SD_WORK_WAIT:
		return sd_object_get(work->event, SD_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	default:
		return CUDA_SUCCESS;
	}
}

/* the stream, if it is still there after the lock was released */
static struct sd_stream *again(struct sd_stream *stream, uint64_t id)
{
	struct sd_stream *found = sd_object_get(stream, SD_STREAM);

	return found && found->object.id == id ? found : NULL;
}

/* Checks a launch, does anything else. */
static CUresult touch(const struct sd_work *work, const struct sd_card *card)
{
	switch (work->kind) {
	case SD_WORK_COPY:
		return sd_copy_run(&work->copy, card);
	case SD_WORK_FILL:
		return sd_fill_run(&work->fill, card);
	case SD_WORK_LAUNCH:
		return sd_launch_run(&work->launch, card);
	case SD_WORK_ALLOCATE:
		return sd_graph_memory_take(work->memory.address);
	case SD_WORK_FREE:
		return sd_graph_memory_give(work->memory.address);
	case SD_WORK_WORDS:
		return sd_words_run(work->words.list, work->words.count, card);
	default:
		return CUDA_SUCCESS;
	}
}

CUresult sd_work_run(const struct sd_work *work, struct sd_stream *stream)
{
	struct sd_card *card = work->card ? work->card : stream->context->card;
	uint64_t id = stream->object.id;

	if (work->kind == SD_WORK_HOST) {
		struct sd_callback item = {
			.function = work->host.fn, .data = work->host.userData, .context = stream->context,
			.contextid = stream->context->object.id,
		};

		if (!item.function)
			return CUDA_ERROR_INVALID_VALUE;
		CUresult result = sd_order_gate(stream, &item.ready, &item.gate);

		if (result != CUDA_SUCCESS)
			return result;
		uint64_t ticket = sd_callback_queue(&item);

		stream = again(stream, id);
		if (ticket && stream)
			stream->ticket = ticket;
		return CUDA_SUCCESS;
	}
	if (work->kind == SD_WORK_RECORD || work->kind == SD_WORK_WAIT) {
		struct sd_event *event = sd_object_get(work->event, SD_EVENT);

		if (!event)
			return CUDA_ERROR_INVALID_HANDLE;
		if (work->kind == SD_WORK_RECORD)
			return sd_event_record(event, stream);
		return sd_event_wait(event, stream);
	}
	uint64_t named = work->kind == SD_WORK_LAUNCH ? sd_duration_named(&work->launch) : 0;

	/* a launch that only takes time touches nothing: its item comes after the host functions' */
	if (!named || sd_order_early())
		sd_stream_drain(stream);
	if (work->kind == SD_WORK_GRAPH) {
		stream = again(stream, id);
		return stream ? sd_graph_run(work->graph, stream) : CUDA_ERROR_INVALID_HANDLE;
	}
	struct ptx_outcome outcome = { 0 };
	CUresult result = touch(work, card);

	stream = again(stream, id);
	if (result == CUDA_SUCCESS && stream && work->kind == SD_WORK_LAUNCH && !named) {
		result = sd_kernel_run(&work->launch, card, stream->context, &outcome);
		stream = again(stream, id);
	}
	if (result != CUDA_SUCCESS || !stream)
		return result;
	if (work->kind == SD_WORK_LAUNCH)
		return sd_order_kernel(stream, card, named ? named : sd_duration(&work->launch, card, &outcome));
	return sd_order_mark(stream);
}

/* Gathers a launch's arguments into one block of its own: pointers to the
 * parameters first, then the parameters as the kernel sees them. */
static CUresult own_arguments(struct sd_launch *launch)
{
	const struct sd_function *function = launch->function;
	size_t count = function->parametercount;
	size_t bytes = function->parameterbytes;
	const unsigned char *buffer = NULL;
	size_t given = 0;

	if (launch->extra) {
		for (void **extra = launch->extra; extra[0]; extra += 2) {
			if (extra[0] == (void *)1)
				buffer = extra[1];
			else if (extra[0] == (void *)2)
				given = *(size_t *)extra[1];
			else
				return CUDA_ERROR_INVALID_VALUE;
		}
		if (given > bytes || (given && !buffer))
			return CUDA_ERROR_INVALID_VALUE;
	}
	void **arguments = launch->arguments;

	launch->arguments = NULL;
	launch->extra = NULL;
	launch->parameters = NULL;
	launch->parameterbytes = 0;
	if (!bytes || (!buffer && !arguments))
		return CUDA_SUCCESS;
	void **block = calloc(1, (count + 1) * sizeof(void *) + bytes);

	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	unsigned char *values = (unsigned char *)(block + count + 1);

	if (buffer)
		memcpy(values, buffer, given);
	for (size_t i = 0; i < count; i++) {
		if (!buffer && arguments[i])
			memcpy(values + function->parameters[i].offset, arguments[i], function->parameters[i].bytes);
		block[i] = values + function->parameters[i].offset;
	}
	launch->parameters = block;
	launch->parameterbytes = bytes;
	launch->arguments = count ? block : NULL;
	return CUDA_SUCCESS;
}

CUresult sd_work_copy(const struct sd_work *work, struct sd_work *out)
{
	CUresult result = CUDA_SUCCESS;

	*out = *work;
	switch (work->kind) {
	case SD_WORK_LAUNCH:
		if (!sd_object_get(work->launch.function, SD_FUNCTION))
			return CUDA_ERROR_INVALID_HANDLE;
		result = own_arguments(&out->launch);
		break;
	case SD_WORK_GRAPH:
		result = sd_graph_copy(work->graph, &out->graph);
		break;
	case SD_WORK_WORDS:
		out->words.list = calloc(work->words.count ? work->words.count : 1, sizeof(*out->words.list));
		if (!out->words.list)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(out->words.list, work->words.list, work->words.count * sizeof(*out->words.list));
		break;
	case SD_WORK_ALLOCATE:
		sd_graph_memory_hold(work->memory.address);
		break;
	default:
		break;
	}
	return result;
}

void sd_work_free(struct sd_work *work)
{
	switch (work->kind) {
	case SD_WORK_LAUNCH:
		free(work->launch.parameters);
		break;
	case SD_WORK_GRAPH:
		sd_graph_end(work->graph);
		break;
	case SD_WORK_WORDS:
		free(work->words.list);
		break;
	case SD_WORK_ALLOCATE:
		sd_graph_memory_drop(work->memory.address);
		break;
	default:
		break;
	}
	work->kind = SD_WORK_EMPTY;
}
