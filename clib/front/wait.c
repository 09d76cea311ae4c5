/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait.c: calls that wait for the card. Pools and graphs give memory back to the
 * driver then, so the charge is looked at afterwards. A process without pools
 * and graphs with memory pays one load.
 */
#include "memory.h"
#include "front_hooks.h"

CUresult hook_cuStreamSynchronize(enum divvy_symbol called, CUstream hStream)
{
	CUresult result = REAL(called, cuStreamSynchronize)(hStream);

	if (__atomic_load_n(&front_pools_live, __ATOMIC_RELAXED) && front_enter()) {
		front_pools_settle_slow();
		front_leave();
	}
	return result;
}

CUresult hook_cuEventSynchronize(enum divvy_symbol called, CUevent hEvent)
{
	CUresult result = REAL(called, cuEventSynchronize)(hEvent);

	if (__atomic_load_n(&front_pools_live, __ATOMIC_RELAXED) && front_enter()) {
		front_pools_settle_slow();
		front_leave();
	}
	return result;
}

CUresult hook_cuCtxSynchronize(enum divvy_symbol called)
{
	CUresult result = REAL(called, cuCtxSynchronize)();

	if (__atomic_load_n(&front_pools_live, __ATOMIC_RELAXED) && front_enter()) {
		front_pools_settle_slow();
		front_leave();
	}
	return result;
}

CUresult hook_cuCtxSynchronize_v2(enum divvy_symbol called, CUcontext ctx)
{
	CUresult result = REAL(called, cuCtxSynchronize_v2)(ctx);

	if (__atomic_load_n(&front_pools_live, __ATOMIC_RELAXED) && front_enter()) {
		front_pools_settle_slow();
		front_leave();
	}
	return result;
}
