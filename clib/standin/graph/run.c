/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c: work and graphs of it, in the order of streams. Work is done within the
 * call where nothing before it is left to do; kernels never are, and what comes
 * after them is a step of the queue's (queue.h).
 */
#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "work/copy.h"
#include "work/duration.h"
#include "cuda/event.h"
#include "cuda/hostfunction.h"
#include "work/kernel.h"
#include "cuda/order.h"
#include "cuda/queue.h"
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
	case SD_WORK_WORDS:
		return sd_words_check(work->words.list, work->words.count, card);
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

/* What takes no time of the card. */
static CUresult touch(const struct sd_work *work, const struct sd_card *card)
{
	switch (work->kind) {
	case SD_WORK_COPY:
		return sd_copy_run(&work->copy, card);
	case SD_WORK_FILL:
		return sd_fill_run(&work->fill, card);
	case SD_WORK_FREE:
		return sd_graph_memory_give(work->memory.address);
	default:
		return CUDA_SUCCESS;
	}
}

/* Work that is to be done later. */
struct task {
	struct sd_step step;
	struct sd_work work;
	bool kernel;
	void *staged;             /* what it copies from */
	uint64_t named;           /* a kernel that only takes so long */
	unsigned int words;       /* that have been written, or were there */
	CUresult result;          /* of these */
};

/* Whether all words have been written or were there, or something is wrong. */
static bool words_are_there(struct sd_step *step)
{
	struct task *task = (struct task *)step;

	task->result = sd_words_run(task->work.words.list, task->work.words.count, &task->words, step->card);
	return task->result != CUDA_ERROR_NOT_READY;
}

static CUresult perform(struct sd_step *step, struct sd_stream *lane)
{
	const struct task *task = (struct task *)step;
	const struct sd_work *work = &task->work;
	struct ptx_outcome outcome = { 0 };

	if (work->kind != SD_WORK_LAUNCH) {
		CUresult result = work->kind == SD_WORK_WORDS ? task->result : touch(work, step->card);

		return result == CUDA_SUCCESS ? sd_order_mark(lane) : result;
	}
	if (task->named)
		return sd_order_kernel(lane, step->card, task->named, 0);
	CUresult result = sd_kernel_run(&work->launch, step, &outcome);

	step->latens = sd_order_free(lane, step->readyns);
	if (result != CUDA_SUCCESS)
		return result;
	return sd_order_kernel(lane, step->card, sd_duration(&work->launch, step->card, &outcome), outcome.threads);
}

static void end(struct sd_step *step)
{
	struct task *task = (struct task *)step;

	if (task->kernel)
		sd_launch_ended(&task->work.launch);
	free(task->staged);
	sd_work_free(&task->work);
}

static CUresult later(const struct sd_work *work, struct sd_stream *stream, const struct sd_card *card, uint64_t named,
		      void *staged)
{
	bool kernel = work->kind == SD_WORK_LAUNCH && !named;
	struct sd_work own;
	CUresult result = sd_work_copy(work, &own);

	if (result != CUDA_SUCCESS) {
		free(staged);
		return result;
	}
	struct task *task = (struct task *)sd_step_new(stream, kernel ? SD_STEP_KERNEL : SD_STEP_COPY, sizeof(*task), false);

	if (!task) {
		sd_work_free(&own);
		free(staged);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	task->work = own;
	task->named = named;
	task->staged = staged;
	if (staged)
		sd_copy_from(&task->work.copy, staged);
	task->step.perform = perform;
	task->step.end = end;
	task->step.card = card;
	if (work->kind == SD_WORK_WORDS)
		task->step.begins = words_are_there;
	if (kernel) {
		const struct sd_launch *launch = &own.launch;

		task->kernel = true;
		sd_launch_begins(&task->work.launch);
		task->step.blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
		task->step.resident = sd_launch_resident(launch, card);
	}
	sd_step_start(&task->step);
	return CUDA_SUCCESS;
}

static CUresult launch(const struct sd_work *work, struct sd_stream *stream, const struct sd_card *card)
{
	uint64_t named = sd_duration_named(&work->launch);
	CUresult result = sd_launch_run(&work->launch, card);

	if (result != CUDA_SUCCESS)
		return result;
	if (!named && !sd_launch_loaded(&work->launch))
		return CUDA_ERROR_INVALID_HANDLE;
	/* one that only takes time touches nothing: its item comes after what is before it */
	if (named && !sd_stream_open(stream))
		return sd_order_kernel(stream, card, named, 0);
	return later(work, stream, card, named, NULL);
}

/* Words that are not there are waited for by a step: the caller may be who writes them. */
static CUresult words(const struct sd_work *work, struct sd_stream *stream, const struct sd_card *card)
{
	struct sd_work rest = *work;
	unsigned int done = 0;
	CUresult result = sd_work_check(work, card);

	if (result == CUDA_SUCCESS)
		result = sd_stream_busy(stream) ? CUDA_ERROR_NOT_READY : sd_words_run(work->words.list, work->words.count, &done, card);
	if (result != CUDA_ERROR_NOT_READY)
		return result == CUDA_SUCCESS ? sd_order_mark(stream) : result;
	rest.words.list += done;
	rest.words.count -= done;
	return later(&rest, stream, card, 0, NULL);
}

enum { STAGED = 64 << 10 }; /* a driver keeps as much of the caller's memory for later */

/* Whether the call has to wait for what is before; or what to copy from then. */
static bool waits_for(const struct sd_work *work, const struct sd_card *card, void **staged)
{
	const CUDA_MEMCPY3D *copy = &work->copy;
	bool from;
	bool to;

	*staged = NULL;
	if (work->kind != SD_WORK_COPY)
		return false;
	sd_copy_pageable(copy, card, &from, &to);
	if (!from || to)
		return to;
	if (copy->Height > 1 || copy->Depth > 1 || copy->WidthInBytes > STAGED || copy->srcY || copy->srcZ)
		return true;
	*staged = malloc(copy->WidthInBytes);
	if (!*staged)
		return true;
	const unsigned char *source = copy->srcMemoryType == CU_MEMORYTYPE_HOST ? copy->srcHost
										: (const void *)(uintptr_t)copy->srcDevice;

	memcpy(*staged, source + copy->srcXInBytes, copy->WidthInBytes);
	return false;
}

CUresult sd_work_run(const struct sd_work *work, struct sd_stream *stream)
{
	struct sd_card *card = work->card ? work->card : stream->context->card;
	uint64_t id = stream->object.id;
	void *staged = NULL;

	switch (work->kind) {
	case SD_WORK_HOST: {
		const struct sd_callback item = { .function = work->host.fn, .data = work->host.userData };

		return item.function ? sd_callback_queue(stream, &item) : CUDA_ERROR_INVALID_VALUE;
	}
	case SD_WORK_RECORD:
	case SD_WORK_WAIT: {
		struct sd_event *event = sd_object_get(work->event, SD_EVENT);

		if (!event)
			return CUDA_ERROR_INVALID_HANDLE;
		return work->kind == SD_WORK_RECORD ? sd_event_record(event, stream) : sd_event_wait(event, stream);
	}
	case SD_WORK_LAUNCH:
		return launch(work, stream, card);
	case SD_WORK_GRAPH:
		return sd_graph_run(work->graph, stream);
	case SD_WORK_ALLOCATE: /* before all that may use it */
		return sd_graph_memory_take(work->memory.address);
	case SD_WORK_WORDS:
		return words(work, stream, card);
	default:
		break;
	}
	if (sd_stream_busy(stream)) {
		CUresult result = sd_work_check(work, card);

		if (result != CUDA_SUCCESS)
			return result;
		if (!waits_for(work, card, &staged))
			return later(work, stream, card, 0, staged);
		sd_stream_drain(stream);
	}
	CUresult result = touch(work, card);

	stream = again(stream, id);
	return result == CUDA_SUCCESS && stream ? sd_order_mark(stream) : result;
}

/* A graph while it is put into a stream, by way of a lane of its own. */
struct run {
	struct sd_stream *lane;
	struct place {
		uint64_t item;        /* what comes after a node comes after */
		struct sd_step *step;
		bool inner;           /* others come after it */
	} *places, base;
};

/* Where a place stands by now. */
static void settle(struct place *place)
{
	if (!place->step || !place->step->done)
		return;
	if (!place->step->early)
		place->item = place->step->item;
	sd_step_drop(place->step);
	place->step = NULL;
}

/* Lets the lane's next work come after a place, too. */
static CUresult comes_after(struct run *run, struct place *place)
{
	settle(place);
	return sd_stream_after(run->lane, place->item, &place->step, place->step != NULL);
}

static CUresult run_node(struct run *run, struct sd_vertex *vertex)
{
	struct place *own = &run->places[vertex->place];
	CUresult result = CUDA_SUCCESS;

	run->lane->step = NULL;
	sd_order_put(run->lane, 0);
	if (!vertex->aftercount)
		result = comes_after(run, &run->base);
	for (size_t i = 0; result == CUDA_SUCCESS && i < vertex->aftercount; i++) {
		struct place *place = &run->places[vertex->after[i]->place];

		place->inner = true;
		result = comes_after(run, place);
	}
	if (result == CUDA_SUCCESS && !vertex->disabled)
		result = sd_work_run(&vertex->work, run->lane);
	own->item = run->lane->tail;
	own->step = sd_step_keep(run->lane->step);
	return result;
}

/* Where the stream stands, and a lane beside it. */
static CUresult begin(struct run *run, struct sd_stream *stream)
{
	uint64_t id = stream->object.id;
	bool placed = !sd_stream_open(stream);
	CUresult result = sd_stream_new(stream->context, CU_STREAM_NON_BLOCKING, 0, &run->lane);

	if (result == CUDA_SUCCESS && placed)
		result = sd_order_mark(stream);
	if (result != CUDA_SUCCESS || !again(stream, id))
		return result;
	if (sd_stream_busy(stream)) {
		/* one step stands for all that are before */
		struct sd_step *step = sd_step_new(stream, SD_STEP_JOIN, sizeof(*step), placed && !sd_stream_open(stream));

		if (!step)
			return CUDA_ERROR_OUT_OF_MEMORY;
		run->base.step = sd_step_keep(step);
		sd_step_start(step);
	}
	run->base.item = stream->tail;
	return CUDA_SUCCESS;
}

CUresult sd_graph_run(struct sd_graph *graph, struct sd_stream *stream)
{
	bool cycle = false;
	uint64_t id = stream->object.id;
	size_t count = graph->count ? graph->count : 1;
	struct sd_vertex **order = sd_graph_order(graph, &cycle);
	struct run run = { .places = calloc(count, sizeof(*run.places)) };
	CUresult result = !order && cycle ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;

	if (result == CUDA_SUCCESS && (!order || !run.places))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS)
		result = begin(&run, stream);
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++)
		result = run_node(&run, order[i]);
	/* the stream goes on after all of it */
	for (size_t i = 0; run.places && i < graph->count; i++) {
		struct place *place = &run.places[i];

		settle(place);
		if (result == CUDA_SUCCESS && !place->inner && again(stream, id))
			result = sd_stream_after(stream, place->item, &place->step, place->step != NULL);
		sd_step_drop(place->step);
	}
	sd_step_drop(run.base.step);
	if (run.lane)
		sd_object_end(run.lane);
	free(run.places);
	free(order);
	return result;
}
