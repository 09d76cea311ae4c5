/* SPDX-License-Identifier: Apache-2.0 */
/* Events that two processes hold, in modelled time, over a simulator at $DIVVY_SIMULATOR. */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <time.h>

#include "driver.h"

#define MS 1000000ull

static const char source[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
			     ".visible .entry divvy_busy(.param .u64 ns)\n{\n	ret;\n}\n";

static CUfunction busy(void)
{
	CUmodule module = NULL;
	CUfunction function = NULL;

	OK(cuModuleLoadData(&module, source));
	OK(cuModuleGetFunction(&function, module, "divvy_busy"));
	return function;
}

static void launch(CUfunction function, CUstream stream, uint64_t ns)
{
	void *arguments[] = { &ns };

	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

struct message {
	CUipcEventHandle handle;
	CUipcMemHandle memory;
	uint64_t launched; /* before the kernel that the event stands behind */
};

static void tell(int socket, const struct message *message)
{
	CHECK(write(socket, message, sizeof(*message)) == sizeof(*message));
}

static struct message hear(int socket)
{
	struct message message;

	CHECK(read(socket, &message, sizeof(message)) == sizeof(message));
	return message;
}

/* The one that opens the event: its stream waits for the other's kernel of 300 ms,
 * another stream does not; then it records the event behind a kernel of its own. */
static void opener(int socket)
{
	struct message message = hear(socket);
	CUstream waits = NULL, goes = NULL;
	CUevent event = NULL, own = NULL;
	CUfunction function;

	start();
	function = busy();
	OK(cuStreamCreate(&waits, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&goes, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&own, 0));
	OK(cuIpcOpenEventHandle(&event, message.handle));
	GIVES(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	OK(cuStreamWaitEvent(waits, event, 0));
	launch(function, waits, MS);
	OK(cuEventRecord(own, waits));
	GIVES(cuEventQuery(own), CUDA_ERROR_NOT_READY);
	OK(cuStreamSynchronize(goes));
	OK(cuStreamSynchronize(waits));
	CHECK(now() >= message.launched + 301 * MS);
	OK(cuEventQuery(event));
	OK(cuEventQuery(own));
	message.launched = now();
	launch(function, goes, 200 * MS);
	OK(cuEventRecord(event, goes));
	GIVES(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	OK(cuStreamWaitEvent(waits, event, 0)); /* its own moment now */
	GIVES(cuStreamQuery(waits), CUDA_ERROR_NOT_READY);
	tell(socket, &message);
	OK(cuStreamSynchronize(waits));
	CHECK(now() >= message.launched + 200 * MS);
	OK(cuEventSynchronize(event));
	hear(socket);
	OK(cuEventDestroy_v2(event));
	_exit(0);
}

static void both_ways(void)
{
	struct message message = { 0 };
	CUstream stream = NULL;
	CUevent event = NULL;
	int sockets[2], status = 0;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
	pid_t child = fork(); /* before the driver is opened */

	if (child == 0)
		opener(sockets[1]);
	start();
	CUfunction function = busy();

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	message.launched = now();
	launch(function, stream, 300 * MS);
	OK(cuEventRecord(event, stream));
	OK(cuIpcGetEventHandle(&message.handle, event));
	GIVES(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	tell(sockets[0], &message);
	message = hear(sockets[0]); /* the other has recorded it */
	GIVES(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	OK(cuStreamSynchronize(stream)); /* its own kernel is long over */
	OK(cuEventSynchronize(event));
	CHECK(now() >= message.launched + 200 * MS);
	OK(cuEventQuery(event));
	tell(sockets[0], &message);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	OK(cuEventDestroy_v2(event));
}

/* An exporter whose kernel takes an hour: its death lets those go on that wait. */
static void exporter(int socket)
{
	struct message message = { 0 };
	CUstream stream = NULL;
	CUevent event = NULL;

	start();
	CUfunction function = busy();

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	OK(cuIpcGetEventHandle(&message.handle, event));
	launch(function, stream, 3600000 * MS);
	OK(cuEventRecord(event, stream));
	tell(socket, &message);
	for (;;)
		pause();
}

static void *kills(void *child)
{
	struct timespec nap = { .tv_nsec = 200000000 };

	nanosleep(&nap, NULL); /* so that the other sleeps by then */
	kill((pid_t)(intptr_t)child, SIGKILL);
	return NULL;
}

/* of_stream: waits for a stream that waits for the event, else for the event. */
static void death(bool of_stream)
{
	pthread_t killer;
	CUstream stream = NULL;
	CUevent event = NULL;
	int sockets[2], status = 0;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
	pid_t child = fork();

	if (child == 0)
		exporter(sockets[1]);
	struct message message = hear(sockets[0]);

	start();
	CUfunction function = busy();

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuIpcOpenEventHandle(&event, message.handle));
	OK(cuStreamWaitEvent(stream, event, 0));
	launch(function, stream, MS);
	GIVES(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	GIVES(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	CHECK(pthread_create(&killer, NULL, kills, (void *)(intptr_t)child) == 0);
	if (of_stream)
		OK(cuStreamSynchronize(stream));
	OK(cuEventSynchronize(event));
	OK(cuStreamSynchronize(stream));
	CHECK(pthread_join(killer, NULL) == 0 && waitpid(child, &status, 0) == child);
	OK(cuEventDestroy_v2(event));
}

static void death_of_stream(void)
{
	death(true);
}

static void death_of_event(void)
{
	death(false);
}

static const char twice[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
			    ".visible .entry twice(.param .u64 at)\n{\n	.reg .u64 %rd<3>;\n	.reg .u32 %r<3>;\n"
			    "	ld.param.u64 %rd0, [at];\n	mov.u32 %r0, %tid.x;\n	mul.wide.u32 %rd1, %r0, 4;\n"
			    "	add.u64 %rd2, %rd0, %rd1;\n	ld.global.u32 %r1, [%rd2];\n	add.u32 %r2, %r1, %r1;\n"
			    "	st.global.u32 [%rd2], %r2;\n	ret;\n}\n";

static void double_words(CUdeviceptr at, CUstream stream)
{
	CUmodule module = NULL;
	CUfunction function = NULL;
	void *arguments[] = { &at };

	OK(cuModuleLoadData(&module, twice));
	OK(cuModuleGetFunction(&function, module, "twice"));
	OK(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, arguments, NULL));
}

/* The other end of a ping and a pong over one block of memory and one event. */
static void partner(int socket)
{
	struct message message = hear(socket);
	CUdeviceptr at = 0;
	CUstream stream = NULL;
	CUevent event = NULL;

	start();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuIpcOpenMemHandle_v2(&at, message.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuIpcOpenEventHandle(&event, message.handle));
	for (int turn = 0; turn < 8; turn++) {
		OK(cuStreamWaitEvent(stream, event, 0));
		double_words(at, stream);
		OK(cuEventRecord(event, stream));
		tell(socket, &message);
		message = hear(socket);
	}
	OK(cuIpcCloseMemHandle(at));
	_exit(0);
}

/* Kernels of two processes take turns on the same words. */
static void ping_pong(void)
{
	struct message message = { 0 };
	uint32_t words[64];
	CUdeviceptr at = 0;
	CUstream stream = NULL;
	CUevent event = NULL;
	int sockets[2], status = 0;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
	pid_t child = fork();

	if (child == 0)
		partner(sockets[1]);
	start();
	for (uint32_t i = 0; i < COUNT(words); i++)
		words[i] = i + 1;
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&at, sizeof(words)));
	OK(cuMemcpyHtoD_v2(at, words, sizeof(words)));
	OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	OK(cuIpcGetEventHandle(&message.handle, event));
	OK(cuIpcGetMemHandle(&message.memory, at));
	for (int turn = 0; turn < 8; turn++) {
		double_words(at, stream);
		OK(cuEventRecord(event, stream));
		tell(sockets[0], &message);
		message = hear(sockets[0]);
		OK(cuStreamWaitEvent(stream, event, 0));
	}
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH_v2(words, at, sizeof(words)));
	for (uint32_t i = 0; i < COUNT(words); i++)
		CHECK(words[i] == (i + 1) << 16);
	tell(sockets[0], &message);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	OK(cuMemFree_v2(at));
}

static const struct scenario list[] = {
	{ "ping_pong", ping_pong },
	{ "both_ways", both_ways },
	{ "death_of_stream", death_of_stream },
	{ "death_of_event", death_of_event },
};

RUN_SCENARIOS(list)
