/* SPDX-License-Identifier: Apache-2.0 */
/* Events that two processes hold, in modelled time, over a simulator at $DIVVY_SIMULATOR. */
#include <signal.h>
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

static void death(void)
{
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
	kill(child, SIGKILL);
	CHECK(waitpid(child, &status, 0) == child);
	OK(cuStreamSynchronize(stream));
	OK(cuEventSynchronize(event));
	OK(cuEventDestroy_v2(event));
}

static const struct scenario list[] = {
	{ "both_ways", both_ways },
	{ "death", death },
};

RUN_SCENARIOS(list)
