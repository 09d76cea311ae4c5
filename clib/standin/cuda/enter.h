/* SPDX-License-Identifier: Apache-2.0 */
/*
 * enter.h: the way in and out of an entry point, which is
 *
 *	CUresult result = sd_enter();            or sd_enter_context(&context)
 *	if (result != CUDA_SUCCESS)
 *		return result;
 *	...
 *	return sd_leave(result);
 *
 * What a kernel reaches must stay until it has run, without the lock: calls that take
 * memory, modules or contexts away enter by sd_enter_idle.
 */
#ifndef DIVVY_STANDIN_ENTER_H
#define DIVVY_STANDIN_ENTER_H

#include "context.h"

CUresult sd_enter(void);
CUresult sd_leave(CUresult result);
/* with the calling thread's current context, which is alive and without a fault */
CUresult sd_enter_context(struct sd_context **context);
/* when all that was put into streams before has been done */
CUresult sd_enter_idle(void);

/* Per-thread twins: handle 0 means the thread's own stream there. */
static inline CUstream sd_per_thread(CUstream stream)
{
	return stream ? stream : (CUstream)(uintptr_t)2;
}

#define SD_TWIN(name, twin, params, ...)                                   \
	CUresult twin params                                               \
	{                                                                  \
		return name(__VA_ARGS__);                                  \
	}
#define SD_PTSZ(name, params, ...) SD_TWIN(name, name##_ptsz, params, __VA_ARGS__)
#define SD_PTDS(name, params, ...) SD_TWIN(name, name##_ptds, params, __VA_ARGS__)

#endif
