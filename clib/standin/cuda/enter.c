/* SPDX-License-Identifier: Apache-2.0 */
/* enter.c: cuInit, and the way in and out of all other calls. */
#include "enter.h"

#include "fault.h"
#include "mps.h"
#include "queue.h"

static bool ready;

CUresult cuInit(unsigned int Flags)
{
	CUresult result = CUDA_SUCCESS;

	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_forked())
		return CUDA_ERROR_NOT_INITIALIZED;
	sd_lock();
	if (!ready) {
		result = sd_driver_open();
		if (result == CUDA_SUCCESS) {
			sd_mps_connect();
			sd_faults_open();
			ready = true;
		}
	}
	sd_unlock();
	return result;
}

CUresult sd_enter(void)
{
	if (sim_forked())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (sd_worker())
		return CUDA_ERROR_NOT_PERMITTED;
	sd_lock();
	if (ready) {
		sd_faults_look();
		return CUDA_SUCCESS;
	}
	sd_unlock();
	return CUDA_ERROR_NOT_INITIALIZED;
}

CUresult sd_leave(CUresult result)
{
	sd_unlock();
	return result;
}

CUresult sd_enter_context(struct sd_context **context)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_context_current(context);
	if (result == CUDA_SUCCESS)
		result = sd_context_healthy(*context);
	if (result != CUDA_SUCCESS)
		sd_unlock();
	return result;
}

CUresult sd_enter_idle(void)
{
	CUresult result = sd_enter();

	if (result == CUDA_SUCCESS)
		sd_queue_settle();
	return result;
}
