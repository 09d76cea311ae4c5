/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c: everything that puts work on the card: counted, and where launches
 * are gated or it is one to be timed, taken through the gate. Otherwise these are
 * one jump after the count, so nothing may come after it.
 */
#include "estimate.h"
#include "front.h"
#include "memory.h"

#include <stddef.h>

#define LAUNCH_STREAM(called, twin, stream) \
	((stream) == NULL && (called) == (twin) ? (CUstream)2 /* per thread */ : (stream))

/* The share has several cards. Of one it is told without a call. */
static inline bool several(void)
{
	return __atomic_load_n(&front_gated, __ATOMIC_RELAXED) == &front_several;
}

/* How many launches the step that ends with this one has; 0: it does not end. */
static unsigned step(int slot)
{
	unsigned launches, most;

	if (several()) {
		/* each card has its own step: every launch comes here */
		front_thread.launches = 0;
		launches = ++front_thread.counted[slot];
		if (launches < front_gate_step((unsigned)slot))
			return 0;
		front_thread.counted[slot] = 0;
	} else {
		if (front_thread.launches < FRONT_LAUNCH_STEP)
			return 0;
		launches = front_thread.step;
		most = front_gate_step((unsigned)slot);
		front_thread.step = (uint16_t)most;
		front_thread.launches = (uint16_t)(FRONT_LAUNCH_STEP - most);
	}
	if (front_enter()) {
		front_count_launches(slot, launches);
		front_leave();
	}
	return launches;
}

static struct burst *before_on(int slot, CUstream stream, uint64_t key)
{
	unsigned sample;

	if (slot < 0)
		return NULL; /* without a context it will fail */
	sample = step(slot);
	return front_gate_before((unsigned)slot, stream, key, sample);
}

static struct burst *before(CUstream stream, uint64_t key)
{
	return before_on(several() ? front_current_slot() : 0, stream, key);
}

static CUresult after(struct burst *burst, CUresult result)
{
	if (burst != NULL)
		front_gate_after(burst, result);
	return result;
}

CUresult hook_cuLaunch(enum divvy_symbol called, CUfunction function)
{
	struct burst *burst;

	if (!front_launched())
		return REAL(called, cuLaunch)(function);
	burst = before(NULL, estimate_key(function, 0, 0, 0, 0, 0, 0, 0));
	return after(burst, REAL(called, cuLaunch)(function));
}

CUresult hook_cuLaunchGrid(enum divvy_symbol called, CUfunction function, int width, int height)
{
	struct burst *burst;

	if (!front_launched())
		return REAL(called, cuLaunchGrid)(function, width, height);
	burst = before(NULL, estimate_key(function, (uint32_t)width, (uint32_t)height, 1, 0, 0, 0, 0));
	return after(burst, REAL(called, cuLaunchGrid)(function, width, height));
}

CUresult hook_cuLaunchGridAsync(enum divvy_symbol called, CUfunction function, int width, int height, CUstream stream)
{
	struct burst *burst;

	if (!front_launched())
		return REAL(called, cuLaunchGridAsync)(function, width, height, stream);
	burst = before(stream, estimate_key(function, (uint32_t)width, (uint32_t)height, 1, 0, 0, 0, 0));
	return after(burst, REAL(called, cuLaunchGridAsync)(function, width, height, stream));
}

_Static_assert(offsetof(struct front_thread, launches) == FRONT_THREAD_LAUNCHES, "as front_jumps.S has it");

/* It is counted already. */
CUresult hook_cuLaunchKernel(enum divvy_symbol called, CUfunction function, unsigned int gridx, unsigned int gridy,
			     unsigned int gridz, unsigned int blockx, unsigned int blocky, unsigned int blockz,
			     unsigned int sharedbytes, CUstream stream, void **parameters, void **extra)
{
	struct burst *burst = before(LAUNCH_STREAM(called, SYM_cuLaunchKernel_ptsz, stream),
				     estimate_key(function, gridx, gridy, gridz, blockx, blocky, blockz, sharedbytes));

	if (burst == NULL) /* a jump */
		return REAL(called, cuLaunchKernel)(function, gridx, gridy, gridz, blockx, blocky, blockz, sharedbytes,
						    stream, parameters, extra);
	return after(burst, REAL(called, cuLaunchKernel)(function, gridx, gridy, gridz, blockx, blocky, blockz, sharedbytes,
							 stream, parameters, extra));
}

CUresult hook_cuLaunchKernelEx(enum divvy_symbol called, const CUlaunchConfig *config, CUfunction function,
			       void **parameters, void **extra)
{
	struct burst *burst;

	if (!front_launched() || config == NULL)
		return REAL(called, cuLaunchKernelEx)(config, function, parameters, extra);
	burst = before(LAUNCH_STREAM(called, SYM_cuLaunchKernelEx_ptsz, config->hStream),
		       estimate_key(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
				    config->blockDimY, config->blockDimZ, config->sharedMemBytes));
	return after(burst, REAL(called, cuLaunchKernelEx)(config, function, parameters, extra));
}

CUresult hook_cuLaunchCooperativeKernel(enum divvy_symbol called, CUfunction function, unsigned int gridx,
					unsigned int gridy, unsigned int gridz, unsigned int blockx, unsigned int blocky,
					unsigned int blockz, unsigned int sharedbytes, CUstream stream, void **parameters)
{
	struct burst *burst;

	if (!front_launched())
		return REAL(called, cuLaunchCooperativeKernel)(function, gridx, gridy, gridz, blockx, blocky, blockz,
							       sharedbytes, stream, parameters);
	burst = before(LAUNCH_STREAM(called, SYM_cuLaunchCooperativeKernel_ptsz, stream),
		       estimate_key(function, gridx, gridy, gridz, blockx, blocky, blockz, sharedbytes));
	return after(burst, REAL(called, cuLaunchCooperativeKernel)(function, gridx, gridy, gridz, blockx, blocky, blockz,
								    sharedbytes, stream, parameters));
}

/* Each of the list is on another card, and waits for that one's gate. */
CUresult hook_cuLaunchCooperativeKernelMultiDevice(enum divvy_symbol called, CUDA_LAUNCH_PARAMS *list,
						   unsigned int devices, unsigned int flags)
{
	struct burst *burst[DIVVY_MAX_CARDS] = {NULL};
	CUresult result;

	if (!front_launched() || list == NULL)
		return REAL(called, cuLaunchCooperativeKernelMultiDevice)(list, devices, flags);
	for (unsigned i = 0; i < devices && i < DIVVY_MAX_CARDS; i++) {
		const CUDA_LAUNCH_PARAMS *one = &list[i];

		burst[i] = before_on(front_stream_slot(one->hStream), one->hStream,
				     estimate_key(one->function, one->gridDimX, one->gridDimY, one->gridDimZ, one->blockDimX,
						  one->blockDimY, one->blockDimZ, one->sharedMemBytes));
	}
	result = REAL(called, cuLaunchCooperativeKernelMultiDevice)(list, devices, flags);
	for (unsigned i = 0; i < DIVVY_MAX_CARDS; i++)
		after(burst[i], result);
	return result;
}

/*
 * A graph with memory nodes may take memory when it runs (graphmem.c). What it does on
 * other cards than its stream's counts for that of its stream.
 */
CUresult hook_cuGraphLaunch(enum divvy_symbol called, CUgraphExec graph, CUstream stream)
{
	struct front_graph_launch launch;
	struct burst *burst = NULL;
	CUresult rc;

	if (front_launched())
		burst = before_on(several() ? front_stream_slot(stream) : 0, LAUNCH_STREAM(called, SYM_cuGraphLaunch_ptsz, stream),
				  estimate_key(graph, 0, 0, 0, 0, 0, 0, 0));
	if (!front_enter())
		return REAL(called, cuGraphLaunch)(graph, stream);
	launch.call = "cuGraphLaunch";
	rc = front_graph_launching(graph, &launch);
	if (rc == CUDA_SUCCESS) {
		rc = REAL(called, cuGraphLaunch)(graph, stream);
		front_graph_launched(&launch);
	}
	front_leave();
	return after(burst, rc);
}
