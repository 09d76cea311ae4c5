/* SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include "cuda/capture.h"
#include "run.h"

/* Keeps the nodes of the list that are still nodes of the capture's graph. */
static size_t living(const struct sd_capture *capture, struct sd_vertex **list, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		if (sd_vertex_get((CUgraphNode)list[i], capture->graph))
			list[kept++] = list[i];
	}
	return kept;
}

CUresult sd_record(struct sd_stream *stream, const struct sd_work *work)
{
	struct sd_vertex *vertex = NULL;
	struct sd_work own = *work;
	CUresult result = sd_capture_usable(stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!own.card)
		own.card = stream->context->card;
	/* memory that the graph itself allocates is not there yet: copies and
	 * memsets are checked when the graph runs */
	if (own.kind != SD_WORK_COPY && own.kind != SD_WORK_FILL)
		result = sd_work_check(&own, own.card);
	if (result != CUDA_SUCCESS)
		return result;
	stream->frontiercount = living(stream->capture, stream->frontier, stream->frontiercount);
	result = sd_graph_add(stream->capture->graph, stream->frontier, stream->frontiercount, &own, &vertex);
	return result == CUDA_SUCCESS ? sd_capture_set(stream, &vertex, 1) : result;
}

CUresult sd_record_allocate(struct sd_stream *stream, struct sd_pool *pool, uint64_t bytes, CUdeviceptr *address)
{
	CUDA_MEM_ALLOC_NODE_PARAMS asked = { .poolProps = pool->props, .bytesize = bytes };
	struct sd_work work = { .kind = SD_WORK_ALLOCATE, .card = pool->card };
	CUresult result = sd_capture_usable(stream);

	if (result == CUDA_SUCCESS)
		result = sd_graph_memory_new(pool->card, &asked, &work.memory.address);
	if (result != CUDA_SUCCESS)
		return result;
	asked.dptr = work.memory.address;
	work.memory.bytes = bytes;
	work.memory.asked = asked;
	result = sd_record(stream, &work);
	if (result == CUDA_SUCCESS)
		*address = work.memory.address;
	sd_graph_memory_drop(work.memory.address);
	return result;
}

CUresult sd_record_free(struct sd_stream *stream, CUdeviceptr address)
{
	const struct sd_work work = { .kind = SD_WORK_FREE, .memory = { .address = address } };
	CUresult result = sd_capture_usable(stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!sd_graph_memory_known(address))
		return sd_capture_break(stream, CUDA_ERROR_INVALID_VALUE);
	return sd_record(stream, &work);
}
