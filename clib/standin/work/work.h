/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.h: one thing a card is asked to do, the same for streams and for graph
 * nodes. What it touches it touches in order (graph/run.h); how long it takes is
 * modelled (order.h).
 */
#ifndef DIVVY_STANDIN_WORK_H
#define DIVVY_STANDIN_WORK_H

#include "fill.h"
#include "launch.h"

struct sd_graph;

enum sd_work_kind {
	SD_WORK_EMPTY,
	SD_WORK_COPY,
	SD_WORK_FILL,
	SD_WORK_LAUNCH,
	SD_WORK_HOST,
	SD_WORK_RECORD, /* an event */
	SD_WORK_WAIT,
	SD_WORK_ALLOCATE, /* graph memory */
	SD_WORK_FREE,
	SD_WORK_GRAPH,
	SD_WORK_WORDS, /* cuStreamBatchMemOp */
};

struct sd_work {
	enum sd_work_kind kind;
	struct sd_card *card; /* on whose behalf; NULL: the current one's */
	CUcontext context;    /* as given to a graph node */
	union {
		CUDA_MEMCPY3D copy;
		struct sd_fill fill;
		struct sd_launch launch;
		CUDA_HOST_NODE_PARAMS host;
		CUevent event;
		struct {
			uint64_t address;
			uint64_t bytes;
			CUDA_MEM_ALLOC_NODE_PARAMS asked;
		} memory; /* allocate and free */
		struct sd_graph *graph;
		struct {
			CUstreamBatchMemOpParams *list;
			unsigned int count;
			unsigned int flags;
		} words;
	};
};

#endif
