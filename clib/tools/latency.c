/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latency: launches a kernel of a known duration now and then, waits for it, and
 * says how long each took. It is a plain program of the driver API.
 *
 *	latency [--us MICROSECONDS] [--every-us MICROSECONDS] [--count N] [--futex] [DRIVER]
 *
 * From one launch to the next are between half and one and a half times --every-us,
 * however long it took. With --futex it uses no driver: a thread waits on a futex, and what
 * is measured is how long it takes to wake: what the host costs anybody.
 *
 * It writes "ready PID", begins when a line comes or its input ends, and prints
 * one line of JSON at the end: latencyNs, of which the kernel is a part.
 */
#define _GNU_SOURCE
#include "busy.h"
#include "driver.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1000000 };

static uint32_t word;      /* futex: +1 for each wake */
static uint64_t wokenat;   /* when the waiter saw it */
static uint32_t seen;

static void *wait_for_wakes(void *unused)
{
	(void)unused;
	for (uint32_t now = 0;; now++) {
		while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == now)
			syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
		wokenat = driver_now_ns();
		__atomic_store_n(&seen, now + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static uint64_t wake(void)
{
	uint64_t begun = driver_now_ns();
	uint32_t next = __atomic_add_fetch(&word, 1, __ATOMIC_RELEASE);

	syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	while (__atomic_load_n(&seen, __ATOMIC_ACQUIRE) != next)
		usleep(100);
	return wokenat - begun;
}

static struct {
	struct driver driver;
	__typeof__(&cuCtxSynchronize) synchronize;
	CUfunction function;
	uint64_t busyns;
} card = {.busyns = 200000};

static int start(const char *name)
{
	CUdevice device;
	CUcontext context;
	CUmodule module;

	if (driver_open(&card.driver, name) != 0)
		return -1;
	card.synchronize = dlsym(dlopen(name, RTLD_NOW), "cuCtxSynchronize");
	if (card.synchronize == NULL || driver_check((CUresult)driver_start(&card.driver, &device, &context), "start") != 0 ||
	    driver_check(card.driver.module_load(&module, busy_ptx), "cuModuleLoadData") != 0 ||
	    driver_check(card.driver.module_function(&card.function, module, "divvy_busy"), "cuModuleGetFunction") != 0)
		return -1;
	return 0;
}

static int run(uint64_t *latency)
{
	void *arguments[] = {&card.busyns};
	uint64_t begun = driver_now_ns();

	if (driver_check(card.driver.launch(card.function, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL), "cuLaunchKernel") != 0 ||
	    driver_check(card.synchronize(), "cuCtxSynchronize") != 0)
		return -1;
	*latency = driver_now_ns() - begun;
	return 0;
}

/* When the next launch is due, and sleeps until then. */
static uint64_t await_next(uint64_t last, uint64_t every, uint32_t *random)
{
	struct timespec time;

	*random = *random * 1664525u + 1013904223u;
	last += every / 2 + (every * (*random >> 8) >> 24);
	time = (struct timespec){.tv_sec = (time_t)(last / 1000000000u), .tv_nsec = (long)(last % 1000000000u)};
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
	return last;
}

int main(int argc, char **argv)
{
	const char *name = "libcuda.so.1";
	uint64_t every = 10000000, due, *all;
	uint32_t random = (uint32_t)getpid();
	long count = 100;
	bool futex = false;
	char line[16];
	pthread_t thread;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--us") == 0 && i + 1 < argc) {
			card.busyns = (uint64_t)(strtod(argv[++i], NULL) * 1e3);
		} else if (strcmp(argv[i], "--every-us") == 0 && i + 1 < argc) {
			every = (uint64_t)(strtod(argv[++i], NULL) * 1e3);
		} else if (strcmp(argv[i], "--count") == 0 && i + 1 < argc) {
			count = strtol(argv[++i], NULL, 10);
		} else if (strcmp(argv[i], "--futex") == 0) {
			futex = true;
		} else if (argv[i][0] != '-') {
			name = argv[i];
		} else {
			fprintf(stderr, "latency: unknown flag %s\n", argv[i]);
			return 2;
		}
	}
	if (count < 1 || count > MOST || every < 1000 || card.busyns < 1) {
		fprintf(stderr, "latency: 1 to %d launches, at least 1 us apart, of at least 1 ns\n", MOST);
		return 2;
	}
	all = calloc((size_t)count, sizeof(*all));
	if (all == NULL || (!futex && start(name) != 0) ||
	    (futex && pthread_create(&thread, NULL, wait_for_wakes, NULL) != 0))
		return 1;
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		line[0] = '\0';
	due = driver_now_ns();
	for (long i = 0; i < count; i++) {
		due = await_next(due, every, &random);
		if (futex)
			all[i] = wake();
		else if (run(&all[i]) != 0)
			return 1;
	}
	printf("{\"schema\":\"divvy.latency/v1\",\"kernelNs\":%llu,\"latencyNs\":[", futex ? 0ull : (unsigned long long)card.busyns);
	for (long i = 0; i < count; i++)
		printf("%s%llu", i > 0 ? "," : "", (unsigned long long)all[i]);
	printf("]}\n");
	return 0;
}
