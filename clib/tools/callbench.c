/* SPDX-License-Identifier: Apache-2.0 */
/*
 * callbench.c: what a call costs, bare and through the front, in one process.
 *
 *	callbench DRIVER FRONT [ROUNDS [CALLS]]
 *
 * DRIVER and FRONT are paths of the null driver and of the front; the front
 * finds the driver by DIVVY_DRIVER_DIR and its share by DIVVY_SOCKET. Each round
 * times every probe on both, the one that begins taking turns. One line of JSON
 * per round, nanoseconds per call (per pair for allocFreeNs); medians are the
 * reader's to take.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_abi.h"

#define MOST 10000000
#define BLOCK_BYTES (2u << 20)

struct driver {
	__typeof__(cuInit) *init;
	__typeof__(cuDeviceGet) *device;
	__typeof__(cuDevicePrimaryCtxRetain) *retain;
	__typeof__(cuCtxSetCurrent) *current;
	__typeof__(cuLaunchKernel) *launch;
	__typeof__(cuMemAlloc_v2) *allocate;
	__typeof__(cuMemFree_v2) *release;
	__typeof__(cuEventQuery) *passed;
	__typeof__(cuMemGetInfo_v2) *info;
};

enum { LAUNCH, PAIR, PASSED, INFO, PROBES };

static void *find(void *library, const char *name)
{
	void *address = dlsym(library, name);

	if (address == NULL) {
		fprintf(stderr, "callbench: %s\n", dlerror());
		exit(1);
	}
	return address;
}

static void must(CUresult rc, const char *call, const char *path)
{
	if (rc != CUDA_SUCCESS) {
		fprintf(stderr, "callbench: %s of %s: error %d\n", call, path, (int)rc);
		exit(1);
	}
}

static struct driver open_driver(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	struct driver driver;
	CUcontext context;
	CUdevice device;

	if (library == NULL) {
		fprintf(stderr, "callbench: %s\n", dlerror());
		exit(1);
	}
	driver.init = find(library, "cuInit");
	driver.device = find(library, "cuDeviceGet");
	driver.retain = find(library, "cuDevicePrimaryCtxRetain");
	driver.current = find(library, "cuCtxSetCurrent");
	driver.launch = find(library, "cuLaunchKernel");
	driver.allocate = find(library, "cuMemAlloc_v2");
	driver.release = find(library, "cuMemFree_v2");
	driver.passed = find(library, "cuEventQuery");
	driver.info = find(library, "cuMemGetInfo_v2");
	must(driver.init(0), "cuInit", path);
	must(driver.device(&device, 0), "cuDeviceGet", path);
	must(driver.retain(&context, device), "cuDevicePrimaryCtxRetain", path);
	must(driver.current(context), "cuCtxSetCurrent", path);
	return driver;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static double probe(const struct driver *driver, int which, long calls)
{
	size_t freebytes, totalbytes;
	CUresult rc = CUDA_SUCCESS;
	double start = now();

	for (long i = 0; i < calls; i++) {
		CUdeviceptr block;

		switch (which) {
		case LAUNCH:
			rc |= driver->launch((CUfunction)16, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
			break;
		case PAIR:
			rc |= driver->allocate(&block, BLOCK_BYTES);
			rc |= driver->release(block);
			break;
		case PASSED:
			rc |= driver->passed((CUevent)16);
			break;
		case INFO:
			rc |= driver->info(&freebytes, &totalbytes);
			break;
		}
	}
	start = now() - start;
	must(rc, "a probe", "either driver");
	return start / (double)calls;
}

static long argument(int argc, char **argv, int i, long otherwise)
{
	char *end;
	long value;

	if (argc <= i)
		return otherwise;
	value = strtol(argv[i], &end, 10);
	if (*end != 0 || value < 1 || value > MOST) {
		fprintf(stderr, "callbench: %s is no number from 1 to %d\n", argv[i], MOST);
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	struct driver driver[2];
	long rounds = argument(argc, argv, 3, 200);
	long calls = argument(argc, argv, 4, 2000);

	if (argc < 3 || argc > 5) {
		fprintf(stderr, "usage: callbench DRIVER FRONT [ROUNDS [CALLS]]\n");
		return 2;
	}
	driver[0] = open_driver(argv[1]);
	driver[1] = open_driver(argv[2]);
	for (long round = 0; round < rounds; round++) {
		double ns[2][PROBES];

		for (int which = 0; which < PROBES; which++) {
			int first = (int)(round & 1);

			ns[first][which] = probe(&driver[first], which, calls);
			ns[!first][which] = probe(&driver[!first], which, calls);
		}
		printf("{\"round\":%ld", round);
		for (int i = 0; i < 2; i++)
			printf(",\"%s\":{\"launchNs\":%.2f,\"allocFreeNs\":%.2f,\"passThroughNs\":%.2f,\"memInfoNs\":%.2f}",
			       i == 0 ? "bare" : "front", ns[i][LAUNCH], ns[i][PAIR], ns[i][PASSED], ns[i][INFO]);
		printf("}\n");
	}
	return 0;
}
