/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes.c: threads that share what a driver made, with ROUNDS of each. What has returned
 * in one thread comes before what another calls afterwards, wherever the driver is.
 *
 *	lanes ROUNDS
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_abi.h"

enum { THREADS = 16, WORDS = 64 };

static CUcontext context;
static unsigned int rounds;
static unsigned int failed;

static void must(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "lanes: %s: %u\n", what, result);
		exit(1);
	}
}

#define MUST(call) must(call, #call)

static void wrong(const char *what, unsigned int round, unsigned int is, unsigned int want)
{
	if (__atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED) < 5)
		printf("not ok %s: round %u: %u, want %u\n", what, round, is, want);
}

static void *start(void *(*run)(void *), pthread_t *thread, void *argument)
{
	if (pthread_create(thread, NULL, run, argument) != 0)
		exit(1);
	return NULL;
}

/* Recorded in one thread, awaited in another. */

static struct {
	CUstream first, second;
	CUevent event;
	CUdeviceptr from, to;
	sem_t recorded, taken;
} relay;

static void *record(void *unused)
{
	(void)unused;
	MUST(cuCtxSetCurrent(context));
	for (unsigned int round = 1; round <= rounds; round++) {
		MUST(cuMemsetD32Async(relay.from, round, WORDS, relay.first));
		MUST(cuEventRecord(relay.event, relay.first));
		sem_post(&relay.recorded);
		sem_wait(&relay.taken);
	}
	return NULL;
}

static void *await(void *unused)
{
	unsigned int words[WORDS];

	(void)unused;
	MUST(cuCtxSetCurrent(context));
	for (unsigned int round = 1; round <= rounds; round++) {
		sem_wait(&relay.recorded);
		MUST(cuStreamWaitEvent(relay.second, relay.event, 0));
		MUST(cuMemcpyDtoDAsync_v2(relay.to, relay.from, sizeof(words), relay.second));
		MUST(cuMemcpyDtoHAsync_v2(words, relay.to, sizeof(words), relay.second));
		MUST(cuStreamSynchronize(relay.second));
		if (words[0] != round || words[WORDS - 1] != round)
			wrong("record and wait", round, words[0], round);
		sem_post(&relay.taken);
	}
	return NULL;
}

static void record_and_wait(void)
{
	pthread_t threads[2];

	sem_init(&relay.recorded, 0, 0);
	sem_init(&relay.taken, 0, 0);
	MUST(cuStreamCreate(&relay.first, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&relay.second, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&relay.event, 0));
	MUST(cuMemAlloc_v2(&relay.from, 4 * WORDS));
	MUST(cuMemAlloc_v2(&relay.to, 4 * WORDS));
	start(record, &threads[0], NULL);
	start(await, &threads[1], NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* Many threads at once, each with memory of its own. */

static void *alone(void *argument)
{
	unsigned int self = (unsigned int)(uintptr_t)argument, words[WORDS];
	CUdeviceptr memory;
	CUstream stream;

	MUST(cuCtxPushCurrent_v2(context));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned int round = 0; round < rounds; round++) {
		unsigned int value = self * 1000000 + round;

		MUST(cuMemAlloc_v2(&memory, sizeof(words)));
		MUST(cuMemsetD32Async(memory, value, WORDS, stream));
		MUST(cuStreamSynchronize(stream));
		MUST(cuMemcpyDtoH_v2(words, memory, sizeof(words)));
		if (words[0] != value || words[WORDS - 1] != value)
			wrong("threads", round, words[0], value);
		MUST(cuMemFree_v2(memory));
	}
	MUST(cuStreamDestroy_v2(stream));
	MUST(cuCtxPopCurrent_v2(NULL));
	return NULL;
}

static void many(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		start(alone, &threads[i], (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* A context wanders from thread to thread, and one thread works in two of them. */

static struct {
	CUcontext one, two;
	CUdeviceptr memory;
} wander;

static void *carry(void *argument)
{
	unsigned int round = (unsigned int)(uintptr_t)argument, word = 0;
	CUcontext now = NULL;

	MUST(cuCtxPushCurrent_v2(wander.one));
	MUST(cuCtxPushCurrent_v2(wander.two));
	MUST(cuCtxGetCurrent(&now));
	if (now != wander.two)
		wrong("contexts", round, 0, 2);
	MUST(cuCtxPopCurrent_v2(&now));
	MUST(cuMemsetD32_v2(wander.memory, round, 1));
	MUST(cuMemcpyDtoH_v2(&word, wander.memory, sizeof(word)));
	if (word != round || now != wander.two)
		wrong("contexts", round, word, round);
	MUST(cuCtxPopCurrent_v2(&now));
	if (now != wander.one || cuCtxPopCurrent_v2(&now) != CUDA_ERROR_INVALID_CONTEXT)
		wrong("contexts", round, 1, 0);
	return NULL;
}

static void migrate(void)
{
	MUST(cuCtxCreate_v2(&wander.two, 0, 0));
	MUST(cuCtxPopCurrent_v2(NULL));
	MUST(cuCtxCreate_v2(&wander.one, 0, 0));
	MUST(cuMemAlloc_v2(&wander.memory, 4));
	MUST(cuCtxPopCurrent_v2(NULL));
	for (uintptr_t round = 0; round < 64; round++) {
		pthread_t thread;

		start(carry, &thread, (void *)round);
		pthread_join(thread, NULL);
	}
	MUST(cuCtxDestroy_v2(wander.one));
	MUST(cuCtxDestroy_v2(wander.two));
	MUST(cuCtxSetCurrent(context));
}

/* What a context held goes with it; its addresses come again, each at its first try. */
static void again(void)
{
	CUdeviceptr memory = 0, first = 0;
	size_t before = 0, after = 0, total = 0;

	for (unsigned int round = 0; round < 8; round++) {
		CUcontext passing;

		MUST(cuCtxCreate_v2(&passing, 0, 0));
		MUST(cuMemAlloc_v2(&memory, 64 << 20));
		MUST(cuMemGetInfo_v2(&after, &total));
		if (round == 0) {
			first = memory;
			before = after;
		}
		if (memory != first || after != before)
			wrong("contexts' memory", round, (unsigned int)(after >> 20), (unsigned int)(before >> 20));
		MUST(cuCtxDestroy_v2(passing));
	}
	MUST(cuCtxSetCurrent(context));
}

/* A host function reads what a copy before it brought. */

static unsigned int brought, seen;

static void look(void *data)
{
	__atomic_store_n(&seen, *(unsigned int *)data, __ATOMIC_RELEASE);
}

static void host_functions(void)
{
	CUdeviceptr memory;
	CUstream stream;

	MUST(cuMemAlloc_v2(&memory, 4));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned int round = 1; round <= (rounds < 200 ? rounds : 200); round++) {
		MUST(cuMemsetD32Async(memory, round, 1, stream));
		MUST(cuMemcpyDtoHAsync_v2(&brought, memory, 4, stream));
		MUST(cuLaunchHostFunc(stream, look, &brought));
		MUST(cuStreamSynchronize(stream));
		if (__atomic_load_n(&seen, __ATOMIC_ACQUIRE) != round)
			wrong("host function", round, seen, round);
	}
}

/* Many launches behind a host function that takes its time: whatever they wait for, it can
 * return. */

static void dawdle(void *data)
{
	usleep(100000);
	__atomic_store_n((unsigned int *)data, 1, __ATOMIC_RELEASE);
}

static void behind(void)
{
	CUdeviceptr memory;
	CUstream stream;
	unsigned int word = 0;

	seen = 0;
	MUST(cuMemAlloc_v2(&memory, 4));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuLaunchHostFunc(stream, dawdle, &seen));
	for (unsigned int round = 1; round <= 4000; round++)
		MUST(cuMemsetD32Async(memory, round, 1, stream));
	MUST(cuStreamSynchronize(stream));
	MUST(cuMemcpyDtoH_v2(&word, memory, sizeof(word)));
	if (!__atomic_load_n(&seen, __ATOMIC_ACQUIRE) || word != 4000)
		wrong("behind a host function", 0, word, 4000);
}

/* Large copies beside another thread's frees. */

static void *free_much(void *unused)
{
	CUdeviceptr memory;

	(void)unused;
	MUST(cuCtxSetCurrent(context));
	for (unsigned int round = 0; round < rounds; round++) {
		MUST(cuMemAlloc_v2(&memory, 1 << 20));
		MUST(cuMemFree_v2(memory));
	}
	return NULL;
}

static void uploads(void)
{
	enum { BYTES = 8 << 20 };
	unsigned char *host = malloc(BYTES), *back = malloc(BYTES);
	CUdeviceptr memory;
	pthread_t thread;

	start(free_much, &thread, NULL);
	MUST(cuMemAlloc_v2(&memory, BYTES));
	for (unsigned int round = 0; round < 8; round++) {
		memset(host, (int)round + 1, BYTES);
		MUST(cuMemcpyHtoD_v2(memory, host, BYTES));
		MUST(cuMemcpyDtoH_v2(back, memory, BYTES));
		if (memcmp(host, back, BYTES) != 0)
			wrong("uploads", round, back[0], round + 1);
	}
	pthread_join(thread, NULL);
	free(host);
	free(back);
}

int main(int argc, char **argv)
{
	rounds = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 10) : 100;
	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
	record_and_wait();
	many();
	migrate();
	again();
	host_functions();
	behind();
	uploads();
	printf("%s\n", failed ? "failed" : "ok");
	return failed != 0;
}
