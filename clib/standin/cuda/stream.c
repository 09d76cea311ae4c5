/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include <stdlib.h>
#include <string.h>

static void end_stream(void *object)
{
	struct sd_stream *stream = object;

	if (stream->leave)
		stream->leave(stream);
	if (stream->context->legacy == stream)
		stream->context->legacy = NULL;
	sd_object_free(stream);
}

CUresult sd_stream_new(struct sd_context *context, unsigned int flags, int priority, struct sd_stream **out)
{
	struct sd_stream *stream = sd_object_new(SD_STREAM, sizeof(*stream), &context->object);

	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->object.end = end_stream;
	stream->context = context;
	stream->flags = flags;
	stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
	stream->policy = CU_SYNC_POLICY_AUTO;
	stream->domains.remote = 1;
	*out = stream;
	return CUDA_SUCCESS;
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
