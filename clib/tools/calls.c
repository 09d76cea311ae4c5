/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls: what single driver calls cost, for divvy bench calls.
 *
 * It opens libcuda.so.1 by name; whoever starts it decides whether that is a
 * driver or the front before it. For each line on its input it measures one
 * round, of one in N of the calls where the line is a number N (a slow driver), and
 * answers with one line, nanoseconds per call:
 *
 *	LAUNCH ALLOC+FREE PASSED MEMINFO
 *
 * A passed call is cuStreamQuery. It greets with "ready".
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>

#define LAUNCHES 20000
#define ALLOCATIONS 2000
#define QUERIES 20000
#define INFOS 20000
#define BLOCK_BYTES (2ull * 1024 * 1024)

static struct driver driver;

/* Nanoseconds per launch, or -1. */
static double launches(CUfunction function, int count)
{
	int argument = 0;
	void *arguments[] = {&argument};
	unsigned failed = 0;
	uint64_t start = driver_now_ns();

	for (int i = 0; i < count; i++)
		failed |= driver.launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL);
	return failed ? -1 : (double)(driver_now_ns() - start) / count;
}

static double allocations(int count)
{
	unsigned failed = 0;
	uint64_t start = driver_now_ns();

	for (int i = 0; i < count; i++) {
		CUdeviceptr block = 0;

		failed |= driver.alloc(&block, BLOCK_BYTES);
		failed |= driver.free(block);
	}
	return failed ? -1 : (double)(driver_now_ns() - start) / count;
}

static double queries(int count)
{
	unsigned failed = 0;
	uint64_t start = driver_now_ns();

	for (int i = 0; i < count; i++)
		failed |= driver.query(NULL);
	return failed ? -1 : (double)(driver_now_ns() - start) / count;
}

static double infos(int count)
{
	unsigned failed = 0;
	uint64_t start = driver_now_ns();

	for (int i = 0; i < count; i++) {
		size_t available, total;

		failed |= driver.info(&available, &total);
	}
	return failed ? -1 : (double)(driver_now_ns() - start) / count;
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

	if (driver_open(&driver, "libcuda.so.1") || driver_check(driver.init(0), "cuInit") || driver_check(driver.device_get(&device, 0), "cuDeviceGet") ||
	    driver_check(driver.create(&context, 0, device), "cuCtxCreate") ||
	    driver_check(driver.module_load(&module, module_text), "cuModuleLoadData") ||
	    driver_check(driver.module_function(&function, module, "nothing"), "cuModuleGetFunction"))
		return 1;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		int part = atoi(line) > 0 && atoi(line) <= ALLOCATIONS ? atoi(line) : 1;
		double launch = launches(function, LAUNCHES / part), pair = allocations(ALLOCATIONS / part), query = queries(QUERIES / part),
		       info = infos(INFOS / part);

		if (launch < 0 || pair < 0 || query < 0 || info < 0) {
			fprintf(stderr, "calls: a measured call failed\n");
			return 1;
		}
		printf("%.3f %.3f %.3f %.3f\n", launch, pair, query, info);
		fflush(stdout);
	}
	return 0;
}
