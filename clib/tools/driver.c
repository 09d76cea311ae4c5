/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

int driver_open(struct driver *driver, const char *name)
{
	const struct {
		void **place;
		const char *symbol;
	} calls[] = {
		{(void **)&driver->init, "cuInit"},
		{(void **)&driver->device_get, "cuDeviceGet"},
		{(void **)&driver->device_count, "cuDeviceGetCount"},
		{(void **)&driver->device_uuid, "cuDeviceGetUuid"},
		{(void **)&driver->device_total, "cuDeviceTotalMem_v2"},
		{(void **)&driver->retain, "cuDevicePrimaryCtxRetain"},
		{(void **)&driver->set_current, "cuCtxSetCurrent"},
		{(void **)&driver->create, "cuCtxCreate_v2"},
		{(void **)&driver->destroy, "cuCtxDestroy_v2"},
		{(void **)&driver->alloc, "cuMemAlloc_v2"},
		{(void **)&driver->free, "cuMemFree_v2"},
		{(void **)&driver->info, "cuMemGetInfo_v2"},
		{(void **)&driver->to_device, "cuMemcpyHtoD_v2"},
		{(void **)&driver->to_host, "cuMemcpyDtoH_v2"},
		{(void **)&driver->copy, "cuMemcpyDtoD_v2"},
		{(void **)&driver->module_load, "cuModuleLoadData"},
		{(void **)&driver->module_function, "cuModuleGetFunction"},
		{(void **)&driver->launch, "cuLaunchKernel"},
		{(void **)&driver->query, "cuStreamQuery"},
	};
	void *library = dlopen(name, RTLD_NOW);

	if (!library) {
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, dlerror());
		return -1;
	}
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		*calls[i].place = dlsym(library, calls[i].symbol);
		if (!*calls[i].place) {
			fprintf(stderr, "%s: %s has no %s\n", program_invocation_short_name, name, calls[i].symbol);
			return -1;
		}
	}
	return 0;
}

int driver_start(struct driver *driver, CUdevice *device, CUcontext *context)
{
	return driver_start_on(driver, 0, device, context);
}

int driver_start_on(struct driver *driver, int number, CUdevice *device, CUcontext *context)
{
	int result = (int)driver->init(0);

	if (result == 0)
		result = (int)driver->device_get(device, number);
	if (result == 0)
		result = (int)driver->retain(context, *device);
	if (result == 0)
		result = (int)driver->set_current(*context);
	return result;
}

int driver_check(CUresult result, const char *call)
{
	if (result == CUDA_SUCCESS)
		return 0;
	fprintf(stderr, "%s: %s: CUresult %d\n", program_invocation_short_name, call, (int)result);
	return -1;
}

uint64_t driver_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
