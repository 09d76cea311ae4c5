/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c: everything that puts work on the card: counted, and where launches
 * are gated or it is one to be timed, taken through the gate. Otherwise these are
 * one jump after the count, so nothing may come after it.
 */
#include "estimate.h"
#include "front.h"
#include "memory.h"

#define LAUNCH_STREAM(called, twin, stream) \
	((stream) == NULL && (called) == (twin) ? (CUstream)2 /* per thread */ : (stream))

/* The step is full, or launches are gated: true in the former case. */
static bool step(void)
{
	uint32_t launches = front_thread.launches;

	if (launches < FRONT_LAUNCH_STEP)
		return false;
	front_thread.launches = 0;
	if (front_enter()) {
		front_count_launches(front_current_slot(), launches);
		front_leave();
	}
	return true;
}

static struct burst *before(CUstream stream, const void *function, const uint32_t grid[3], const uint32_t block[3],
			    uint32_t shared)
{
	bool sample = step();

	return front_gate_before(stream, estimate_key(function, grid, block, shared), sample);
}

static CUresult after(struct burst *burst, CUresult result)
{
	if (burst != NULL)
		front_gate_after(burst, result);
	return result;
}

static const uint32_t nothing[3];

CUresult hook_cuLaunch(enum divvy_symbol called, CUfunction function)
{
	struct burst *burst;

	if (!front_launched())
		return REAL(called, cuLaunch)(function);
	burst = before(NULL, function, nothing, nothing, 0);
	return after(burst, REAL(called, cuLaunch)(function));
}

CUresult hook_cuLaunchGrid(enum divvy_symbol called, CUfunction function, int width, int height)
{
	struct burst *burst;

	if (!front_launched())
		return REAL(called, cuLaunchGrid)(function, width, height);
	burst = before(NULL, function, (uint32_t[3]){(uint32_t)width, (uint32_t)height, 1}, nothing, 0);
	return after(burst, REAL(called, cuLaunchGrid)(function, width, height));
}

CUresult hook_cuLaunchGridAsync(enum divvy_symbol called, CUfunction function, int width, int height, CUstream stream)
{
	struct burst *burst;

	if (!front_launched())
		return REAL(called, cuLaunchGridAsync)(function, width, height, stream);
	burst = before(stream, function, (uint32_t[3]){(uint32_t)width, (uint32_t)height, 1}, nothing, 0);
	return after(burst, REAL(called, cuLaunchGridAsync)(function, width, height, stream));
}

__attribute__((noinline)) static CUresult launch_kernel(enum divvy_symbol called, CUfunction function, unsigned int gridx,
							unsigned int gridy, unsigned int gridz, unsigned int blockx,
							unsigned int blocky, unsigned int blockz, unsigned int sharedbytes,
							CUstream stream, void **parameters, void **extra)
{
	struct burst *burst = before(LAUNCH_STREAM(called, SYM_cuLaunchKernel_ptsz, stream), function,
				     (uint32_t[3]){gridx, gridy, gridz}, (uint32_t[3]){blockx, blocky, blockz}, sharedbytes);

	return after(burst, REAL(called, cuLaunchKernel)(function, gridx, gridy, gridz, blockx, blocky, blockz, sharedbytes,
							 stream, parameters, extra));
}

CUresult hook_cuLaunchKernel(enum divvy_symbol called, CUfunction function, unsigned int gridx, unsigned int gridy,
			     unsigned int gridz, unsigned int blockx, unsigned int blocky, unsigned int blockz,
			     unsigned int sharedbytes, CUstream stream, void **parameters, void **extra)
{
	if (!front_launched())
		return REAL(called, cuLaunchKernel)(function, gridx, gridy, gridz, blockx, blocky, blockz, sharedbytes,
						    stream, parameters, extra);
	return launch_kernel(called, function, gridx, gridy, gridz, blockx, blocky, blockz, sharedbytes, stream, parameters,
			     extra);
}

CUresult hook_cuLaunchKernelEx(enum divvy_symbol called, const CUlaunchConfig *config, CUfunction function,
			       void **parameters, void **extra)
{
	struct burst *burst;

	if (!front_launched() || config == NULL)
		return REAL(called, cuLaunchKernelEx)(config, function, parameters, extra);
	burst = before(LAUNCH_STREAM(called, SYM_cuLaunchKernelEx_ptsz, config->hStream), function,
		       (uint32_t[3]){config->gridDimX, config->gridDimY, config->gridDimZ},
		       (uint32_t[3]){config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes);
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
	burst = before(LAUNCH_STREAM(called, SYM_cuLaunchCooperativeKernel_ptsz, stream), function,
		       (uint32_t[3]){gridx, gridy, gridz}, (uint32_t[3]){blockx, blocky, blockz}, sharedbytes);
	return after(burst, REAL(called, cuLaunchCooperativeKernel)(function, gridx, gridy, gridz, blockx, blocky, blockz,
								    sharedbytes, stream, parameters));
}

/* Of the list only what runs on the first stream is timed: with one card there is no more. */
CUresult hook_cuLaunchCooperativeKernelMultiDevice(enum divvy_symbol called, CUDA_LAUNCH_PARAMS *list,
						   unsigned int devices, unsigned int flags)
{
	struct burst *burst;

	if (!front_launched() || list == NULL || devices == 0)
		return REAL(called, cuLaunchCooperativeKernelMultiDevice)(list, devices, flags);
	burst = before(list->hStream, list->function, (uint32_t[3]){list->gridDimX, list->gridDimY, list->gridDimZ},
		       (uint32_t[3]){list->blockDimX, list->blockDimY, list->blockDimZ}, list->sharedMemBytes);
	return after(burst, REAL(called, cuLaunchCooperativeKernelMultiDevice)(list, devices, flags));
}

/* A graph with memory nodes may take memory when it runs (graphmem.c). */
CUresult hook_cuGraphLaunch(enum divvy_symbol called, CUgraphExec graph, CUstream stream)
{
	struct front_graph_launch launch;
	struct burst *burst = NULL;
	CUresult rc;

	if (front_launched())
		burst = before(LAUNCH_STREAM(called, SYM_cuGraphLaunch_ptsz, stream), graph, nothing, nothing, 0);
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
