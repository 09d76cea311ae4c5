/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.h: streams whose work is recorded into a graph (record.h). The lock is
 * held around every call.
 */
#ifndef DIVVY_STANDIN_CAPTURE_H
#define DIVVY_STANDIN_CAPTURE_H

#include "stream.h"

struct sd_graph;
struct sd_vertex;

struct sd_capture {
	struct sd_capture *next;
	uint64_t id;
	struct sd_graph *graph;
	uint64_t graphid;
	bool given; /* the program's own graph: it stays when the capture fails */
	CUstreamCaptureMode mode;
	struct sd_stream *origin;
	const struct sd_thread *thread;
	struct sd_stream *streams; /* that take part */
	bool invalid;
};

/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED when the calling thread may not do what
 * a capture cannot contain (an allocation ...) */
CUresult sd_capture_forbids(void);
/* Marks the place in the stream by the event; lets the stream come after such a mark. */
CUresult sd_capture_mark(struct sd_stream *stream, struct sd_event *event);
CUresult sd_capture_join(struct sd_stream *stream, const struct sd_event *event);
/* The capture is no good any more: returns the error, or for a call that waits
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED. */
CUresult sd_capture_break(struct sd_stream *stream, CUresult error);
CUresult sd_capture_spoil(struct sd_stream *stream);
/* Whether a stream that the legacy one waits for is being captured. */
bool sd_capture_blocks_legacy(const struct sd_context *context);

/* for captureapi.c */
void sd_capture_start(struct sd_capture *capture, struct sd_stream *stream);
void sd_capture_enter(struct sd_capture *capture, struct sd_stream *stream);
void sd_capture_over(struct sd_capture *capture, bool keep); /* keep: the graph */
bool sd_capture_alive(const struct sd_capture *capture);     /* its graph is still there */
CUresult sd_capture_usable(const struct sd_stream *stream);
CUresult sd_capture_set(struct sd_stream *stream, struct sd_vertex *const *list, size_t count);
CUresult sd_capture_extend(struct sd_stream *stream, struct sd_vertex *const *list, size_t count);

#endif
