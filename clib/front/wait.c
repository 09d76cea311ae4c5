/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait.c: calls that wait for the card. Pools and graphs give memory back to the
 * driver then, so the charge is looked at afterwards. The gate learns
 * what has ended. A process without any of that pays two loads.
 */
#include "memory.h"
#include "front_hooks.h"

static void after(uint32_t watched)
{
	front_gate_waited(watched);
	if (__atomic_load_n(&front_pools_live, __ATOMIC_RELAXED) && front_enter()) {
		front_pools_settle_slow();
		front_leave();
	}
}

CUresult hook_cuStreamSynchronize(enum divvy_symbol called, CUstream hStream)
{
	uint32_t watched = front_gate_waits();
	CUresult result = REAL(called, cuStreamSynchronize)(hStream);

	after(watched);
	return result;
}

CUresult hook_cuEventSynchronize(enum divvy_symbol called, CUevent hEvent)
{
	uint32_t watched = front_gate_waits();
	CUresult result = REAL(called, cuEventSynchronize)(hEvent);

	after(watched);
	return result;
}

CUresult hook_cuCtxSynchronize(enum divvy_symbol called)
{
	uint32_t watched = front_gate_waits();
	CUresult result = REAL(called, cuCtxSynchronize)();

	after(watched);
	return result;
}

CUresult hook_cuCtxSynchronize_v2(enum divvy_symbol called, CUcontext ctx)
{
	uint32_t watched = front_gate_waits();
	CUresult result = REAL(called, cuCtxSynchronize_v2)(ctx);

	after(watched);
	return result;
}
