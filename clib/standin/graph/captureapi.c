/* SPDX-License-Identifier: Apache-2.0 */
/* captureapi.c: the calls that begin, end and show a capture. */
#include <stdlib.h>

#include "cuda/capture.h"
#include "cuda/enter.h"
#include "graph.h"

static CUresult begin(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies, size_t count,
		      CUstreamCaptureMode mode)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_stream_of(hStream, &stream);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	struct sd_graph *graph = hGraph ? sd_object_get(hGraph, SD_GRAPH) : NULL;

	if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (hGraph && !graph) || (count && !dependencies))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (stream->legacy)
		return sd_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (stream->capture)
		return sd_leave(CUDA_ERROR_ILLEGAL_STATE);
	for (size_t i = 0; i < count; i++) {
		if (!sd_vertex_get(dependencies[i], graph))
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	struct sd_capture *capture = calloc(1, sizeof(*capture));

	if (!capture)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	capture->given = graph != NULL;
	if (!graph)
		result = sd_graph_new(&graph);
	if (result == CUDA_SUCCESS)
		result = sd_capture_set(stream, (struct sd_vertex *const *)(const void *)dependencies, count);
	if (result != CUDA_SUCCESS) {
		if (graph && !capture->given)
			sd_object_end(graph);
		free(capture);
		return sd_leave(result);
	}
	capture->graph = graph;
	capture->graphid = graph->object.id;
	capture->mode = mode;
	capture->origin = stream;
	capture->thread = sd_thread();
	sd_capture_start(capture, stream);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	return begin(hStream, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCapture(CUstream hStream)
{
	return begin(hStream, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
				     const CUgraphEdgeData *dependencyData, size_t numDependencies,
				     CUstreamCaptureMode mode)
{
	(void)dependencyData;
	return hGraph ? begin(hStream, hGraph, dependencies, numDependencies, mode) : CUDA_ERROR_INVALID_VALUE;
}

/* Whether all that other streams recorded comes before what the origin does next. */
static bool joined(const struct sd_capture *capture)
{
	struct sd_graph *graph = capture->graph;
	struct sd_vertex **stack = malloc((graph->count ? graph->count : 1) * sizeof(struct sd_vertex *));
	size_t depth = 0;

	if (!stack)
		return false;
	for (size_t i = 0; i < graph->count; i++)
		graph->list[i]->mark = 0;
	for (size_t i = 0; i < capture->origin->frontiercount; i++) {
		struct sd_vertex *vertex = sd_vertex_get((CUgraphNode)capture->origin->frontier[i], graph);

		if (vertex && !vertex->mark) {
			vertex->mark = 1;
			stack[depth++] = vertex;
		}
	}
	while (depth) {
		const struct sd_vertex *vertex = stack[--depth];

		for (size_t i = 0; i < vertex->aftercount; i++) {
			if (!vertex->after[i]->mark) {
				vertex->after[i]->mark = 1;
				stack[depth++] = vertex->after[i];
			}
		}
	}
	free(stack);
	for (const struct sd_stream *stream = capture->streams; stream; stream = stream->captured) {
		for (size_t j = 0; j < stream->frontiercount; j++) {
			const struct sd_vertex *vertex = sd_vertex_get((CUgraphNode)stream->frontier[j], graph);

			if (vertex && !vertex->mark)
				return false;
		}
	}
	return true;
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_stream_of(hStream, &stream);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	struct sd_capture *capture = stream->capture;

	if (!phGraph)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*phGraph = NULL;
	if (!capture)
		return sd_leave(CUDA_ERROR_ILLEGAL_STATE);
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sd_thread())
		return sd_leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	if (capture->origin != stream)
		return sd_leave(sd_capture_break(stream, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
	CUgraph graph = (CUgraph)capture->graph;

	if (capture->invalid || !sd_capture_alive(capture))
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!joined(capture))
		result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	sd_capture_over(capture, result == CUDA_SUCCESS);
	if (result == CUDA_SUCCESS)
		*phGraph = graph;
	return sd_leave(result);
}

static CUresult info(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
		     const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_stream_of(hStream, &stream);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (!status)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	const struct sd_capture *capture = stream->capture;

	if (!capture && stream->legacy && sd_capture_blocks_legacy(stream->context))
		return sd_leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	if (!capture) {
		*status = CU_STREAM_CAPTURE_STATUS_NONE;
		return sd_leave(CUDA_SUCCESS);
	}
	*status = capture->invalid || !sd_capture_alive(capture) ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
							    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	if (*status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		return sd_leave(CUDA_SUCCESS);
	if (id)
		*id = capture->id;
	if (graph)
		*graph = (CUgraph)capture->graph;
	if (dependencies)
		*dependencies = (const CUgraphNode *)(const void *)stream->frontier;
	if (edges)
		*edges = NULL; /* no edge carries data */
	if (count)
		*count = stream->frontiercount;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
	return info(hStream, captureStatus, NULL, NULL, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out)
{
	return info(hStream, captureStatus_out, id_out, NULL, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
				   CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *numDependencies_out)
{
	return info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
				   CUgraph *graph_out, const CUgraphNode **dependencies_out,
				   const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
	return info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
		    numDependencies_out);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies,
					   unsigned int flags)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_stream_of(hStream, &stream);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (!stream->capture)
		return sd_leave(CUDA_ERROR_ILLEGAL_STATE);
	result = sd_capture_usable(stream);
	if (result == CUDA_SUCCESS && (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (numDependencies && !dependencies)))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; result == CUDA_SUCCESS && i < numDependencies; i++) {
		if (!sd_vertex_get(dependencies[i], stream->capture->graph))
			result = CUDA_ERROR_INVALID_VALUE;
	}
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	struct sd_vertex *const *list = (struct sd_vertex *const *)(const void *)dependencies;

	return sd_leave(flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES ? sd_capture_set(stream, list, numDependencies)
								    : sd_capture_extend(stream, list, numDependencies));
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
					      const CUgraphEdgeData *dependencyData, size_t numDependencies,
					      unsigned int flags)
{
	(void)dependencyData;
	return cuStreamUpdateCaptureDependencies(hStream, dependencies, numDependencies, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_thread *thread = sd_thread();

	if (!thread)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	if (!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	CUstreamCaptureMode before = thread->capturemode;

	thread->capturemode = *mode;
	*mode = before;
	return sd_leave(CUDA_SUCCESS);
}

SD_PTSZ(cuStreamBeginCapture, (CUstream hStream), sd_per_thread(hStream))
SD_PTSZ(cuStreamBeginCapture_v2, (CUstream hStream, CUstreamCaptureMode mode), sd_per_thread(hStream), mode)
SD_PTSZ(cuStreamBeginCaptureToGraph,
	(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
	 size_t numDependencies, CUstreamCaptureMode mode),
	sd_per_thread(hStream), hGraph, dependencies, dependencyData, numDependencies, mode)
SD_PTSZ(cuStreamEndCapture, (CUstream hStream, CUgraph *phGraph), sd_per_thread(hStream), phGraph)
SD_PTSZ(cuStreamIsCapturing, (CUstream hStream, CUstreamCaptureStatus *captureStatus), sd_per_thread(hStream),
	captureStatus)
SD_PTSZ(cuStreamGetCaptureInfo, (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out),
	sd_per_thread(hStream), captureStatus_out, id_out)
SD_PTSZ(cuStreamGetCaptureInfo_v2,
	(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out,
	 const CUgraphNode **dependencies_out, size_t *numDependencies_out),
	sd_per_thread(hStream), captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out)
SD_PTSZ(cuStreamGetCaptureInfo_v3,
	(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out,
	 const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out),
	sd_per_thread(hStream), captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
	numDependencies_out)
SD_PTSZ(cuStreamUpdateCaptureDependencies,
	(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies, unsigned int flags),
	sd_per_thread(hStream), dependencies, numDependencies, flags)
SD_PTSZ(cuStreamUpdateCaptureDependencies_v2,
	(CUstream hStream, CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData, size_t numDependencies,
	 unsigned int flags),
	sd_per_thread(hStream), dependencies, dependencyData, numDependencies, flags)
