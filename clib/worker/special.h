/* SPDX-License-Identifier: Apache-2.0 */
/*
 * special.h: calls whose payload has a form of its own, by subject, and what their makers
 * have in common. Each makes the call, adds to the lane's reply, and returns the result.
 */
#ifndef WORKER_SPECIAL_H
#define WORKER_SPECIAL_H

#include "worker.h"

/* A payload, read from its beginning. */
struct reader {
	uint8_t *at;
	size_t left;
};

/* The next bytes, padded to words; NULL: there are not so many. */
void *worker_next(struct reader *reader, size_t length);

/* What a number stands for; wrong becomes what a driver says, when it stands for nothing. */
uint64_t worker_real_of(unsigned int kind, uint64_t handle, unsigned int *wrong);

/* Of a copy's end: an array there is a number. */
void worker_array_of(CUmemorytype type, CUarray *array, unsigned int *wrong);

/* Host memory in a graph is read when the graph runs; here it would be read once. */
bool worker_is_capturing(uint64_t stream);

typedef uint64_t worker_maker(struct worker_call *call, struct reader *reader);

/* module.c */
worker_maker worker_find, worker_enumerate, worker_load, worker_create_link, worker_complete_link;

/* copy.c */
worker_maker worker_upload, worker_download, worker_copy_box;

/* graph.c */
worker_maker worker_kernel_node, worker_copy_node, worker_allocation_node, worker_batch_node, worker_capture_info;

#endif
