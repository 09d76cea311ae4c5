/* SPDX-License-Identifier: Apache-2.0 */
/*
 * misc.c: calls around the edges that have nothing to do here: the profiler's
 * switches, core dump settings, flushes. Each checks its arguments and says what
 * is true of a card that never faults and has no profiler.
 */
#include <stdlib.h>
#include <string.h>

#include "enter.h"

CUresult cuProfilerInitialize(const char *configFile, const char *outputFile, CUoutput_mode outputMode)
{
	(void)configFile;
	(void)outputFile;
	(void)outputMode;
	return CUDA_ERROR_NOT_SUPPORTED; /* as in drivers since 11.0 */
}

CUresult cuProfilerStart(void)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	return result == CUDA_SUCCESS ? sd_leave(CUDA_SUCCESS) : result;
}

CUresult cuProfilerStop(void)
{
	return cuProfilerStart();
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	(void)target;
	(void)scope;
	return result == CUDA_SUCCESS ? sd_leave(CUDA_ERROR_NOT_SUPPORTED) : result;
}

/* Core dumps are off and stay so. */
static CUresult coredump(CUcoredumpSettings which, void *value, size_t *size)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!value || !size)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	switch (which) {
	case CU_COREDUMP_ENABLE_ON_EXCEPTION:
	case CU_COREDUMP_TRIGGER_HOST:
	case CU_COREDUMP_LIGHTWEIGHT:
	case CU_COREDUMP_ENABLE_USER_TRIGGER:
		if (*size < sizeof(unsigned char))
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
		*(unsigned char *)value = 0;
		*size = sizeof(unsigned char);
		return sd_leave(CUDA_SUCCESS);
	case CU_COREDUMP_FILE:
	case CU_COREDUMP_PIPE:
		if (!*size)
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
		*(char *)value = '\0';
		*size = 1;
		return sd_leave(CUDA_SUCCESS);
	default:
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
}

CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
	return coredump(attrib, value, size);
}

CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size)
{
	return coredump(attrib, value, size);
}

CUresult cuDeviceRegisterAsyncNotification(CUdevice device, CUasyncCallback callbackFunc, void *userData,
					   CUasyncCallbackHandle *callback)
{
	CUresult result = sd_enter();

	(void)userData;
	if (result != CUDA_SUCCESS)
		return result;
	if (!sd_card(device))
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!callbackFunc || !callback)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	/* nothing is ever notified: the card has no budget to go over */
	struct sd_object *made = sd_object_new(SD_NOTIFICATION, sizeof(*made), NULL);

	if (!made)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*callback = (CUasyncCallbackHandle)made;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceUnregisterAsyncNotification(CUdevice device, CUasyncCallbackHandle callback)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	void *made = sd_object_get(callback, SD_NOTIFICATION);

	if (!sd_card(device) || !made)
		return sd_leave(made ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_HANDLE);
	sd_object_free(made);
	return sd_leave(CUDA_SUCCESS);
}
