/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.h: the few driver calls that the load programs need, found by
 * dlopen("libcuda.so.1") as many programs do. Whoever starts the program decides
 * what that name means: a driver, or the front library in its place.
 */
#ifndef DIVVY_TOOLS_DRIVER_H
#define DIVVY_TOOLS_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

struct driver {
	__typeof__(&cuInit) init;
	__typeof__(&cuDeviceGet) device_get;
	__typeof__(&cuDeviceGetCount) device_count;
	__typeof__(&cuDeviceGetUuid) device_uuid;
	__typeof__(&cuDeviceTotalMem_v2) device_total;
	__typeof__(&cuDevicePrimaryCtxRetain) retain;
	__typeof__(&cuCtxSetCurrent) set_current;
	__typeof__(&cuCtxCreate_v2) create;
	__typeof__(&cuCtxDestroy_v2) destroy;
	__typeof__(&cuMemAlloc_v2) alloc;
	__typeof__(&cuMemFree_v2) free;
	__typeof__(&cuMemGetInfo_v2) info;
	__typeof__(&cuMemcpyHtoD_v2) to_device;
	__typeof__(&cuMemcpyDtoH_v2) to_host;
	__typeof__(&cuMemcpyDtoD_v2) copy;
	__typeof__(&cuModuleLoadData) module_load;
	__typeof__(&cuModuleGetFunction) module_function;
	__typeof__(&cuLaunchKernel) launch;
	__typeof__(&cuStreamQuery) query;
};

/* Opens the driver by name and finds the calls; 0, or -1 after a line on stderr. */
int driver_open(struct driver *driver, const char *name);
/* cuInit, the first card and its primary context, current in this thread; a CUresult. */
int driver_start(struct driver *driver, CUdevice *device, CUcontext *context);
/* The same of another card. */
int driver_start_on(struct driver *driver, int number, CUdevice *device, CUcontext *context);
/* 0, or -1 after a line on stderr that names the call */
int driver_check(CUresult result, const char *call);
/* CLOCK_MONOTONIC */
uint64_t driver_now_ns(void);

#endif
