/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.h: contexts, and which one a thread works in. A context owns its
 * streams, events, modules, arrays and linear memory: all of it goes with it.
 */
#ifndef DIVVY_STANDIN_CONTEXT_H
#define DIVVY_STANDIN_CONTEXT_H

#include "driver.h"

struct sd_memory;
struct sd_stream;

enum { SD_LIMITS = 10 };

struct sd_context {
	struct sd_object object;
	struct sd_card *card;
	bool primary;
	bool green; /* stands for a green context, and ends with it alone */
	bool alive; /* a primary context outlives its end as a handle */
	CUresult sticky; /* see fault.h */
	unsigned int flags;
	unsigned int version;  /* what cuCtxGetApiVersion says */
	unsigned int attached; /* cuCtxAttach */
	size_t limit[SD_LIMITS];
	uint64_t limitbytes; /* charged for the limits */
	CUfunc_cache cache;
	CUsharedconfig banks;
	struct sd_memory *memories;
	void (*drop)(struct sd_context *context); /* frees them, once there were any */
	void (*stop)(const struct sd_context *context); /* ends its kernels: queue.h */
	struct sd_stream *legacy; /* once it has been used */
	unsigned int steps; /* queue.h: that are not done */
	unsigned int blockingsteps; /* those of streams that the legacy one waits for */
	uint64_t blocking; /* an item of a stream that the legacy one's next item must come after */
	uint64_t peers; /* bit per visible card whose contexts it may reach */
};

struct sd_green {
	struct sd_object object;
	struct sd_context *context; /* its own; see cuCtxFromGreenCtx */
	struct sd_card *card;       /* whose primary context it retains */
	CUdevResource resource;
};

/* The calling thread's context; the lock is held. CUDA_ERROR_INVALID_CONTEXT
 * without one, CUDA_ERROR_CONTEXT_IS_DESTROYED for a dead one. */
CUresult sd_context_current(struct sd_context **context);
struct sd_context *sd_context_get(CUcontext handle); /* alive, or NULL */
CUresult sd_context_new(struct sd_card *card, unsigned int flags, unsigned int version, bool primary,
			struct sd_context **out);
/* Ends it: everything in it is freed. A primary one stays as a handle. */
void sd_context_end(struct sd_context *context);
/* CUDA_SUCCESS, or the error that the context answers; see fault.h */
CUresult sd_context_healthy(const struct sd_context *context);
CUresult sd_context_push(struct sd_context *context);
CUresult sd_context_pop(struct sd_context **context);
CUresult sd_primary_retain(struct sd_card *card, struct sd_context **context);

#endif
