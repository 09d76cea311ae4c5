/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c: everything that puts work on the card, counted. A gate would stand
 * where front_launched does: before the driver is asked. Most of these are one
 * jump after the count, so nothing may come after it.
 */
#include "front.h"
#include "memory.h"

__attribute__((noinline)) void front_launches_add(void)
{
	uint32_t launches = front_thread.launches;

	front_thread.launches = 0;
	if (!front_enter())
		return;
	front_count_launches(front_current_slot(), launches);
	front_leave();
}

CUresult hook_cuLaunch(enum divvy_symbol called, CUfunction function)
{
	front_launched();
	return REAL(called, cuLaunch)(function);
}

CUresult hook_cuLaunchGrid(enum divvy_symbol called, CUfunction function, int width, int height)
{
	front_launched();
	return REAL(called, cuLaunchGrid)(function, width, height);
}

CUresult hook_cuLaunchGridAsync(enum divvy_symbol called, CUfunction function, int width, int height, CUstream stream)
{
	front_launched();
	return REAL(called, cuLaunchGridAsync)(function, width, height, stream);
}

CUresult hook_cuLaunchKernel(enum divvy_symbol called, CUfunction function, unsigned int gridx, unsigned int gridy,
			     unsigned int gridz, unsigned int blockx, unsigned int blocky, unsigned int blockz,
			     unsigned int sharedbytes, CUstream stream, void **parameters, void **extra)
{
	front_launched();
	return REAL(called, cuLaunchKernel)(function, gridx, gridy, gridz, blockx, blocky, blockz, sharedbytes, stream,
					    parameters, extra);
}

CUresult hook_cuLaunchKernelEx(enum divvy_symbol called, const CUlaunchConfig *config, CUfunction function,
			       void **parameters, void **extra)
{
	front_launched();
	return REAL(called, cuLaunchKernelEx)(config, function, parameters, extra);
}

CUresult hook_cuLaunchCooperativeKernel(enum divvy_symbol called, CUfunction function, unsigned int gridx,
					unsigned int gridy, unsigned int gridz, unsigned int blockx, unsigned int blocky,
					unsigned int blockz, unsigned int sharedbytes, CUstream stream, void **parameters)
{
	front_launched();
	return REAL(called, cuLaunchCooperativeKernel)(function, gridx, gridy, gridz, blockx, blocky, blockz, sharedbytes,
						       stream, parameters);
}

CUresult hook_cuLaunchCooperativeKernelMultiDevice(enum divvy_symbol called, CUDA_LAUNCH_PARAMS *list,
						   unsigned int devices, unsigned int flags)
{
	front_launched();
	return REAL(called, cuLaunchCooperativeKernelMultiDevice)(list, devices, flags);
}

/* A graph with memory nodes may take memory when it runs (graphmem.c). */
CUresult hook_cuGraphLaunch(enum divvy_symbol called, CUgraphExec graph, CUstream stream)
{
	CUresult rc;

	front_launched();
	if (!front_enter())
		return REAL(called, cuGraphLaunch)(graph, stream);
	rc = front_graph_launching(graph, "cuGraphLaunch");
	if (rc == CUDA_SUCCESS) {
		rc = REAL(called, cuGraphLaunch)(graph, stream);
		front_graph_launched(graph);
	}
	front_leave();
	return rc;
}
