/* SPDX-License-Identifier: Apache-2.0 */
/* run.c: work and graphs of it, done in the order of streams. */
#include "run.h"

#include <stdlib.h>

#include "work/copy.h"
#include "work/duration.h"
#include "cuda/event.h"
#include "cuda/hostfunction.h"
#include "work/kernel.h"
#include "cuda/order.h"
#include "work/word.h"

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
		const struct sd_callback item = { .function = work->host.fn, .data = work->host.userData };

		return item.function ? sd_callback_queue(stream, &item) : CUDA_ERROR_INVALID_VALUE;
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
	if (!named || sd_tickets_early())
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

/* What is left of a graph while it is put into a stream. */
struct run {
	struct sd_stream *stream;
	uint64_t id;    /* the stream's */
	uint64_t base;  /* the item its first nodes come after */
	uint64_t left;  /* the stream's, as it was left */
	uint64_t *item; /* what comes after each node comes after */
	bool *inner;    /* nodes that others come after */
};

static bool gone(const struct run *run)
{
	return sd_object_get(run->stream, SD_STREAM) != run->stream || run->stream->object.id != run->id;
}

/* What other threads have put into the stream meanwhile counts as before it. */
static CUresult look(struct run *run)
{
	const struct sd_card *card = run->stream->context->card;
	CUresult result = CUDA_SUCCESS;

	while (result == CUDA_SUCCESS && !gone(run) && run->stream->tail != run->left) {
		run->left = run->stream->tail;
		result = sd_order_join(card, run->base, run->left, &run->base);
	}
	return result == CUDA_SUCCESS && gone(run) ? CUDA_ERROR_INVALID_HANDLE : result;
}

static CUresult run_node(struct run *run, struct sd_vertex *vertex)
{
	const struct sd_card *card = run->stream->context->card;
	uint64_t after = 0;
	CUresult result = look(run);

	for (size_t i = 0; result == CUDA_SUCCESS && i < vertex->aftercount; i++) {
		size_t place = vertex->after[i]->place;

		run->inner[place] = true;
		result = sd_order_join(card, after, run->item[place], &after);
	}
	if (result == CUDA_SUCCESS)
		result = look(run);
	if (result != CUDA_SUCCESS)
		return result;
	if (!vertex->aftercount)
		after = run->base;
	sd_order_put(run->stream, after);
	if (!vertex->disabled)
		result = sd_work_run(&vertex->work, run->stream);
	if (result == CUDA_SUCCESS && gone(run))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS)
		run->item[vertex->place] = run->left = run->stream->tail;
	return result;
}

CUresult sd_graph_run(struct sd_graph *graph, struct sd_stream *stream)
{
	bool cycle = false;
	size_t count = graph->count ? graph->count : 1;
	struct sd_vertex **order = sd_graph_order(graph, &cycle);
	struct run run = {
		.stream = stream, .id = stream->object.id, .base = stream->tail, .left = stream->tail,
		.item = calloc(count, sizeof(uint64_t)), .inner = calloc(count, sizeof(bool)),
	};
	CUresult result = !order && cycle ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;

	if (result == CUDA_SUCCESS && (!order || !run.item || !run.inner))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++)
		result = run_node(&run, order[i]);
	/* the stream goes on after all of it */
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++) {
		if (!run.inner[i])
			result = sd_order_join(stream->context->card, run.base, run.item[i], &run.base);
		if (result == CUDA_SUCCESS)
			result = look(&run);
	}
	if (result == CUDA_SUCCESS)
		sd_order_put(stream, run.base);
	free(run.inner);
	free(run.item);
	free(order);
	return result;
}
