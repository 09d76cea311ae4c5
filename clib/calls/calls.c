/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls: what single driver calls cost, for divvy bench calls.
 *
 * It opens libcuda.so.1 by name; whoever starts it decides whether that is a
 * driver or the front before it. For each line on its input it measures one
 * round and answers with one line, nanoseconds per call:
 *
 *	LAUNCH ALLOC+FREE PASSED MEMINFO
 *
 * A passed call is cuStreamQuery. It greets with "ready".
 */
#define _GNU_SOURCE
#include "cuda_abi.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LAUNCHES 20000
#define ALLOCATIONS 2000
#define QUERIES 20000
#define INFOS 20000
#define BLOCK_BYTES (2ull * 1024 * 1024)

static struct {
	__typeof__(&cuInit) init;
	__typeof__(&cuDeviceGet) device_get;
	__typeof__(&cuCtxCreate_v2) context_create;
	__typeof__(&cuModuleLoadData) module_load;
	__typeof__(&cuModuleGetFunction) module_function;
	__typeof__(&cuLaunchKernel) launch;
	__typeof__(&cuMemAlloc_v2) alloc;
	__typeof__(&cuMemFree_v2) free;
	__typeof__(&cuStreamQuery) query;
	__typeof__(&cuMemGetInfo_v2) info;
} driver;

static int find(void *library, void *place, const char *symbol)
{
	void *found = dlsym(library, symbol);

	if (!found) {
		fprintf(stderr, "calls: the driver has no %s\n", symbol);
		return -1;
	}
	memcpy(place, &found, sizeof found);
	return 0;
}

static int open_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library) {
		fprintf(stderr, "calls: %s\n", dlerror());
		return -1;
	}
	return find(library, &driver.init, "cuInit") || find(library, &driver.device_get, "cuDeviceGet") ||
	       find(library, &driver.context_create, "cuCtxCreate_v2") ||
	       find(library, &driver.module_load, "cuModuleLoadData") ||
	       find(library, &driver.module_function, "cuModuleGetFunction") ||
	       find(library, &driver.launch, "cuLaunchKernel") || find(library, &driver.alloc, "cuMemAlloc_v2") ||
	       find(library, &driver.free, "cuMemFree_v2") || find(library, &driver.query, "cuStreamQuery") ||
	       find(library, &driver.info, "cuMemGetInfo_v2");
}

static int check(CUresult result, const char *call)
{
	if (result == CUDA_SUCCESS)
		return 0;
	fprintf(stderr, "calls: %s: CUresult %d\n", call, (int)result);
	return -1;
}

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Nanoseconds per launch, or -1. */
static double launches(CUfunction function)
{
	int argument = 0;
	void *arguments[] = {&argument};
	unsigned failed = 0;
	double start = now_ns();

	for (int i = 0; i < LAUNCHES; i++)
		failed |= driver.launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL);
	return failed ? -1 : (now_ns() - start) / LAUNCHES;
}

static double allocations(void)
{
	unsigned failed = 0;
	double start = now_ns();

	for (int i = 0; i < ALLOCATIONS; i++) {
		CUdeviceptr block = 0;

		failed |= driver.alloc(&block, BLOCK_BYTES);
		failed |= driver.free(block);
	}
	return failed ? -1 : (now_ns() - start) / ALLOCATIONS;
}

static double queries(void)
{
	unsigned failed = 0;
	double start = now_ns();

	for (int i = 0; i < QUERIES; i++)
		failed |= driver.query(NULL);
	return failed ? -1 : (now_ns() - start) / QUERIES;
}

static double infos(void)
{
	unsigned failed = 0;
	double start = now_ns();

	for (int i = 0; i < INFOS; i++) {
		size_t available, total;

		failed |= driver.info(&available, &total);
	}
	return failed ? -1 : (now_ns() - start) / INFOS;
}

int main(void)
{
	static const char module_text[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
					  ".visible .entry nothing(.param .u32 n)\n{\n\tret;\n}\n";
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction function;
	char line[64];

	if (open_driver() || check(driver.init(0), "cuInit") || check(driver.device_get(&device, 0), "cuDeviceGet") ||
	    check(driver.context_create(&context, 0, device), "cuCtxCreate") ||
	    check(driver.module_load(&module, module_text), "cuModuleLoadData") ||
	    check(driver.module_function(&function, module, "nothing"), "cuModuleGetFunction"))
		return 1;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		double launch = launches(function), pair = allocations(), query = queries(), info = infos();

		if (launch < 0 || pair < 0 || query < 0 || info < 0) {
			fprintf(stderr, "calls: a measured call failed\n");
			return 1;
		}
		printf("%.3f %.3f %.3f %.3f\n", launch, pair, query, info);
		fflush(stdout);
	}
	return 0;
}
