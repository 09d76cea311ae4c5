/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.h: one thing a card is asked to do, the same for streams and for graph
 * nodes. What it touches it touches within the call; how long it takes is
 * modelled (order.h).
 */
#ifndef DIVVY_STANDIN_WORK_H
#define DIVVY_STANDIN_WORK_H

#include "driver.h"

struct sd_graph;
struct sd_function;
struct sd_stream;

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

struct sd_fill {
	uint64_t address;
	uint64_t pitch;
	uint32_t value;
	uint32_t element; /* bytes: 1, 2 or 4 */
	uint64_t width;   /* elements */
	uint64_t height;
};

struct sd_launch {
	struct sd_function *function;
	unsigned int grid[3];
	unsigned int block[3];
	unsigned int shared;
	bool cooperative;
	void **arguments;   /* as given: one pointer per parameter */
	void **extra;       /* or the argument buffer, see CU_LAUNCH_PARAM_BUFFER_POINTER */
	void *parameters;   /* nodes: their own block of arguments, which the two above point into */
	size_t parameterbytes;
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

/* Does it, in order after what the stream waits for; the lock is held and
 * released while contents are touched or host functions are waited for. */
CUresult sd_work_run(const struct sd_work *work, struct sd_stream *stream);

/* copy.c, fill.c, launch.c, word.c */
/* Whether it could be done now. */
CUresult sd_work_check(const struct sd_work *work, const struct sd_card *card);

CUresult sd_copy_check(const CUDA_MEMCPY3D *copy, const struct sd_card *card);
CUresult sd_copy_run(const CUDA_MEMCPY3D *copy, const struct sd_card *card);
CUresult sd_fill_check(const struct sd_fill *fill, const struct sd_card *card);
CUresult sd_fill_run(const struct sd_fill *fill, const struct sd_card *card);
/* Its shape; then what a graph is asked only when it becomes executable: whether a
 * block fits in what a multiprocessor has. */
CUresult sd_launch_check(const struct sd_launch *launch);
CUresult sd_launch_fits(const struct sd_launch *launch);
CUresult sd_launch_run(const struct sd_launch *launch, const struct sd_card *card);
/* Blocks of one that fits that the card holds at once. */
uint64_t sd_launch_resident(const struct sd_launch *launch, const struct sd_card *card);
CUresult sd_words_run(const CUstreamBatchMemOpParams *list, unsigned int count, const struct sd_card *card);

/* Deep copies for nodes; free what copy made. */
CUresult sd_work_copy(const struct sd_work *work, struct sd_work *out);
void sd_work_free(struct sd_work *work);

#endif
