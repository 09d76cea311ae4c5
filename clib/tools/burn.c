/* SPDX-License-Identifier: Apache-2.0 */
/*
 * burn: keeps a card busy with kernels of a known duration, and says how many
 * there were. It is a plain program of the driver API.
 *
 *	burn [--us MICROSECONDS] [--seconds S] [--pattern async|sync|graph|streams]
 *	     [--ahead-ms MS] [--gpus N] [DRIVER]
 *
 *	async    launches ahead, at least MS (100) and two kernels
 *	sync     waits for each kernel before the next
 *	graph    like async, with graphs of 8 kernels one after the other, or fewer where
 *	         that would take longer than 20 ms
 *	streams  like async, on four streams in turn
 *
 * With --gpus it does so on the first N cards (1), each from a thread of its own.
 *
 * It writes "ready PID" once it is about to launch, begins when a line comes or
 * its input ends, and prints one line of JSON at the end. Without --seconds it
 * goes on until it is killed. DRIVER is what it opens instead of libcuda.so.1.
 *
 * The kernel is called divvy_busy: a simulated card runs it for as many
 * nanoseconds as its parameter says. On hardware it spins on the card's clock of
 * nanoseconds for so long.
 */
#define _GNU_SOURCE
#include "busy.h"
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STREAMS = 4, NODES = 8, MOST_CARDS = 8 };

#define MOST_GRAPH_NS 20000000u

static struct {
	__typeof__(&cuModuleLoadData) load;
	__typeof__(&cuModuleGetFunction) function;
	__typeof__(&cuLaunchKernel) launch;
	__typeof__(&cuCtxSynchronize) synchronize;
	__typeof__(&cuStreamCreate) stream;
	__typeof__(&cuStreamBeginCapture_v2) begin;
	__typeof__(&cuStreamEndCapture) end;
	__typeof__(&cuGraphInstantiateWithFlags) instantiate;
	__typeof__(&cuGraphLaunch) launchgraph;
	__typeof__(&cuEventCreate) event;
	__typeof__(&cuEventRecord) record;
	__typeof__(&cuEventSynchronize) await;
} call;

/* Of a card's thread. */
static __thread CUstream streams[STREAMS];
static __thread CUfunction function;
static __thread CUgraphExec graph;
static __thread uint64_t nodes = NODES; /* of the graph */
static __thread uint64_t longest;	/* that a launch took, in nanoseconds */

static uint64_t busyns = 1000000;
static const char *pattern = "async";
static double seconds, ahead = 100;
static struct driver driver;
static pthread_barrier_t ready, begun;

/* What each thread has done. */
static struct card {
	pthread_t thread;
	int number;
	uint64_t kernels, longest, first, last;
} cards[MOST_CARDS];

static void need(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "burn: %s: error %d\n", what, (int)result);
	exit(1);
}

static void find(void *library)
{
	const struct {
		void **place;
		const char *symbol;
	} calls[] = {
		{(void **)&call.load, "cuModuleLoadData"},
		{(void **)&call.function, "cuModuleGetFunction"},
		{(void **)&call.launch, "cuLaunchKernel"},
		{(void **)&call.synchronize, "cuCtxSynchronize"},
		{(void **)&call.stream, "cuStreamCreate"},
		{(void **)&call.begin, "cuStreamBeginCapture_v2"},
		{(void **)&call.end, "cuStreamEndCapture"},
		{(void **)&call.instantiate, "cuGraphInstantiateWithFlags"},
		{(void **)&call.launchgraph, "cuGraphLaunch"},
		{(void **)&call.event, "cuEventCreate"},
		{(void **)&call.record, "cuEventRecord"},
		{(void **)&call.await, "cuEventSynchronize"},
	};

	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		*calls[i].place = dlsym(library, calls[i].symbol);
		if (!*calls[i].place) {
			fprintf(stderr, "burn: the driver has no %s\n", calls[i].symbol);
			exit(1);
		}
	}
}

static void launched(uint64_t begun)
{
	uint64_t took = driver_now_ns() - begun;

	if (took > longest)
		longest = took;
}

static void launch(CUstream stream)
{
	void *arguments[] = {&busyns};
	uint64_t begun = driver_now_ns();

	need(call.launch(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL), "launch");
	launched(begun);
}

static void capture(void)
{
	CUgraph captured = NULL;

	need(call.begin(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "begin a capture");
	while (nodes > 1 && nodes * busyns > MOST_GRAPH_NS)
		nodes--;
	for (uint64_t i = 0; i < nodes; i++)
		launch(streams[0]);
	need(call.end(streams[0], &captured), "end a capture");
	need(call.instantiate(&graph, captured, 0), "make a graph");
}

/* Launches about count kernels; how many they were. */
static uint64_t batch(uint64_t count)
{
	uint64_t done = 0;

	while (done < count) {
		if (strcmp(pattern, "graph") == 0) {
			uint64_t begun = driver_now_ns();

			need(call.launchgraph(graph, streams[0]), "launch a graph");
			launched(begun);
			done += nodes;
		} else {
			launch(streams[strcmp(pattern, "streams") == 0 ? done % STREAMS : 0]);
			done++;
		}
	}
	return done;
}

static void *burn(void *argument)
{
	struct card *mine = argument;
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUevent reached[2][STREAMS];
	uint64_t count = (uint64_t)(ahead * 1e6) / 2 / busyns + 1, now, until = UINT64_MAX;
	char line[16];

	need((CUresult)driver_start_on(&driver, mine->number, &device, &context), "start");
	need(call.load(&module, busy_ptx), "load");
	need(call.function(&function, module, "divvy_busy"), "find the kernel");
	for (int i = 0; i < STREAMS; i++) {
		need(call.stream(&streams[i], CU_STREAM_NON_BLOCKING), "make a stream");
		need(call.event(&reached[0][i], CU_EVENT_DISABLE_TIMING), "make an event");
		need(call.event(&reached[1][i], CU_EVENT_DISABLE_TIMING), "make an event");
	}
	capture();
	pthread_barrier_wait(&ready);
	if (mine->number == 0) {
		printf("ready %d\n", (int)getpid());
		fflush(stdout);
		if (!fgets(line, sizeof line, stdin))
			line[0] = '\0';
	}
	pthread_barrier_wait(&begun);

	mine->first = now = driver_now_ns();
	if (seconds > 0)
		until = now + (uint64_t)(seconds * 1e9);
	if (strcmp(pattern, "sync") == 0) {
		for (; now < until; now = driver_now_ns()) {
			launch(streams[0]);
			need(call.synchronize(), "wait");
			mine->kernels++;
		}
	} else {
		/* two batches, one of which is waited for while the other runs */
		for (unsigned int turn = 0; now < until; turn ^= 1, now = driver_now_ns()) {
			for (int i = 0; i < STREAMS; i++)
				need(call.await(reached[turn][i]), "wait");
			mine->kernels += batch(count);
			for (int i = 0; i < STREAMS; i++)
				need(call.record(reached[turn][i], streams[i]), "record");
		}
		need(call.synchronize(), "wait");
	}
	mine->last = driver_now_ns();
	mine->longest = longest;
	return NULL;
}

int main(int argc, char **argv)
{
	const char *name = "libcuda.so.1";
	uint64_t kernels = 0, most = 0, wall;
	long gpus = 1;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--us") == 0 && i + 1 < argc) {
			busyns = (uint64_t)(strtod(argv[++i], NULL) * 1e3);
		} else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
			seconds = strtod(argv[++i], NULL);
		} else if (strcmp(argv[i], "--ahead-ms") == 0 && i + 1 < argc) {
			ahead = strtod(argv[++i], NULL);
		} else if (strcmp(argv[i], "--gpus") == 0 && i + 1 < argc) {
			gpus = strtol(argv[++i], NULL, 10);
		} else if (strcmp(argv[i], "--pattern") == 0 && i + 1 < argc) {
			pattern = argv[++i];
		} else if (argv[i][0] != '-') {
			name = argv[i];
		} else {
			fprintf(stderr, "burn: unknown flag %s\n", argv[i]);
			return 2;
		}
	}
	if (busyns < 1 || gpus < 1 || gpus > MOST_CARDS ||
	    (strcmp(pattern, "async") != 0 && strcmp(pattern, "sync") != 0 && strcmp(pattern, "graph") != 0 &&
	     strcmp(pattern, "streams") != 0)) {
		fprintf(stderr, "burn: at least a nanosecond, 1 to %d GPUs, and a pattern of async, sync, graph, streams\n", MOST_CARDS);
		return 2;
	}
	if (driver_open(&driver, name) != 0)
		return 1;
	find(dlopen(name, RTLD_NOW));
	pthread_barrier_init(&ready, NULL, (unsigned)gpus);
	pthread_barrier_init(&begun, NULL, (unsigned)gpus);
	for (int i = 0; i < (int)gpus; i++)
		cards[i].number = i;
	for (int i = 1; i < (int)gpus; i++) {
		if (pthread_create(&cards[i].thread, NULL, burn, &cards[i]) != 0) {
			fprintf(stderr, "burn: no thread for GPU %d\n", i);
			return 1;
		}
	}
	burn(&cards[0]);
	for (int i = 0; i < (int)gpus; i++) {
		if (i > 0)
			pthread_join(cards[i].thread, NULL);
		kernels += cards[i].kernels;
		if (cards[i].longest > most)
			most = cards[i].longest;
	}
	wall = cards[0].last - cards[0].first;
	printf("{\"schema\":\"divvy.burn/v1\",\"pid\":%d,\"pattern\":\"%s\",\"kernelNs\":%llu,\"kernels\":%llu,"
	       "\"wallNs\":%llu,\"busyPercent\":%.3f,\"longestLaunchNs\":%llu}\n",
	       (int)getpid(), pattern, (unsigned long long)busyns, (unsigned long long)kernels, (unsigned long long)wall,
	       100.0 * (double)kernels * (double)busyns / (double)wall, (unsigned long long)most);
	return 0;
}
