/* SPDX-License-Identifier: Apache-2.0 */
#include "capture.h"

#include <stdlib.h>
#include <string.h>

static struct sd_capture *captures;

bool sd_capture_alive(const struct sd_capture *capture)
{
	const struct sd_object *graph = sd_object_get(capture->graph, SD_GRAPH);

	return graph && graph->id == capture->graphid;
}

static void detach(struct sd_stream *stream)
{
	struct sd_stream **link = &stream->capture->streams;

	while (*link && *link != stream)
		link = &(*link)->captured;
	if (*link)
		*link = stream->captured;
	stream->captured = NULL;
	free(stream->frontier);
	stream->frontier = NULL;
	stream->frontiercount = 0;
	stream->capture = NULL;
	stream->leave = NULL;
}

static void forget(struct sd_capture *capture)
{
	struct sd_capture **link = &captures;

	while (*link && *link != capture)
		link = &(*link)->next;
	if (*link)
		*link = capture->next;
	free(capture);
}

CUresult sd_capture_break(struct sd_stream *stream, CUresult error)
{
	stream->capture->invalid = true;
	return error;
}

CUresult sd_capture_spoil(struct sd_stream *stream)
{
	return sd_capture_break(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void sd_capture_over(struct sd_capture *capture, bool keep)
{
	while (capture->streams)
		detach(capture->streams);
	if (!keep && !capture->given && sd_capture_alive(capture))
		sd_object_end(capture->graph);
	forget(capture);
}

static void leave(struct sd_stream *stream)
{
	struct sd_capture *capture = stream->capture;

	detach(stream);
	capture->invalid = true;
	if (capture->origin == stream)
		capture->origin = NULL;
	if (!capture->streams)
		sd_capture_over(capture, false);
}

void sd_capture_start(struct sd_capture *capture, struct sd_stream *stream)
{
	capture->id = sd_next_id();
	capture->next = captures;
	captures = capture;
	sd_capture_enter(capture, stream);
}

void sd_capture_enter(struct sd_capture *capture, struct sd_stream *stream)
{
	stream->capture = capture;
	stream->leave = leave;
	stream->captured = capture->streams;
	capture->streams = stream;
}

bool sd_capture_blocks_legacy(const struct sd_context *context)
{
	if (!captures)
		return false;
	for (struct sd_object *object = context->object.first; object; object = object->next) {
		const struct sd_stream *stream = (struct sd_stream *)object;

		if (object->kind == SD_STREAM && stream->capture && !(stream->flags & CU_STREAM_NON_BLOCKING))
			return true;
	}
	return false;
}

CUresult sd_capture_forbids(void)
{
	const struct sd_thread *thread = sd_thread();

	if (!captures || !thread || thread->capturemode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (struct sd_capture *capture = captures; capture; capture = capture->next) {
		bool mine = capture->thread == thread && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
		bool global = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
			      thread->capturemode == CU_STREAM_CAPTURE_MODE_GLOBAL;

		if (mine || global) {
			capture->invalid = true;
			return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	return CUDA_SUCCESS;
}

CUresult sd_capture_set(struct sd_stream *stream, struct sd_vertex *const *list, size_t count)
{
	struct sd_vertex **frontier = malloc((count ? count : 1) * sizeof(struct sd_vertex *));

	if (!frontier)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (count)
		memcpy(frontier, list, count * sizeof(struct sd_vertex *));
	free(stream->frontier);
	stream->frontier = frontier;
	stream->frontiercount = count;
	return CUDA_SUCCESS;
}

CUresult sd_capture_extend(struct sd_stream *stream, struct sd_vertex *const *list, size_t count)
{
	size_t room = stream->frontiercount + count;
	struct sd_vertex **frontier = realloc(stream->frontier, (room ? room : 1) * sizeof(struct sd_vertex *));

	if (!frontier)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->frontier = frontier;
	for (size_t i = 0; i < count; i++) {
		size_t j = 0;

		while (j < stream->frontiercount && frontier[j] != list[i])
			j++;
		if (j == stream->frontiercount)
			frontier[stream->frontiercount++] = list[i];
	}
	return CUDA_SUCCESS;
}

CUresult sd_capture_usable(const struct sd_stream *stream)
{
	if (stream->capture->invalid || !sd_capture_alive(stream->capture))
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	return CUDA_SUCCESS;
}

CUresult sd_capture_mark(struct sd_stream *stream, struct sd_event *event)
{
	CUresult result = sd_capture_usable(stream);
	struct sd_vertex **frontier = NULL;

	if (result != CUDA_SUCCESS)
		return result;
	frontier = malloc((stream->frontiercount ? stream->frontiercount : 1) * sizeof(struct sd_vertex *));
	if (!frontier)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (stream->frontiercount)
		memcpy(frontier, stream->frontier, stream->frontiercount * sizeof(struct sd_vertex *));
	free(event->frontier);
	event->frontier = frontier;
	event->frontiercount = stream->frontiercount;
	event->capture = stream->capture;
	event->captureid = stream->capture->id;
	event->recorded = false;
	return CUDA_SUCCESS;
}

CUresult sd_capture_join(struct sd_stream *stream, const struct sd_event *event)
{
	struct sd_capture *capture = captures;

	while (capture && (capture != event->capture || capture->id != event->captureid))
		capture = capture->next;
	if (!capture) /* that capture is over */
		return stream->capture ? sd_capture_break(stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
				       : CUDA_ERROR_INVALID_VALUE;
	if (capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (stream->capture && stream->capture != capture) {
		capture->invalid = true;
		return sd_capture_break(stream, CUDA_ERROR_STREAM_CAPTURE_MERGE);
	}
	if (stream->legacy) {
		capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (!stream->capture) {
		CUresult result = sd_capture_set(stream, event->frontier, event->frontiercount);

		if (result != CUDA_SUCCESS)
			return result;
		sd_capture_enter(capture, stream);
		return CUDA_SUCCESS;
	}
	return sd_capture_extend(stream, event->frontier, event->frontiercount);
}
