/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libraryfuzz.c: a worker that lies to a program's library. It greets as it should, then
 * answers with what is nearly right: other lengths, numbers, frames nobody asked for. The
 * library reads and writes only what is its own (the sanitizers say), and every call of
 * the program returns.
 *
 *	libraryfuzz ROUNDS SEED
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "divvy_remote.h"
#include "nvml_abi.h"
#include "remote_calls.h"

enum { ROW_BYTES = 24 };

static uint64_t state;

static uint64_t dice(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static bool whole(int fd, void *bytes, size_t length, bool out)
{
	for (size_t done = 0; done < length;) {
		ssize_t n = out ? send(fd, (char *)bytes + done, length - done, MSG_NOSIGNAL) : recv(fd, (char *)bytes + done, length - done, 0);

		if (n <= 0 && errno != EINTR)
			return false;
		done += n > 0 ? (size_t)n : 0;
	}
	return true;
}

static bool answer(int fd, struct divvy_remote_frame frame, const void *payload, size_t length)
{
	frame.length = (uint32_t)length;
	return whole(fd, &frame, sizeof(frame), true) && whole(fd, (void *)(uintptr_t)payload, length, true);
}

/* One answer: often what a call could have, with lengths that may be anything. */
static bool lie(int fd, const struct divvy_remote_frame *call)
{
	uint64_t words[128] = { 0 };
	struct divvy_remote_frame frame = { .op = DIVVY_REMOTE_REPLY, .seq = call->seq, .lane = call->lane };
	size_t length = 8 + dice() % 16 * 8;

	if (call->op == DIVVY_REMOTE_FIRST_CALL + CALL_cuMemcpyDtoHAsync_v2 && dice() % 4) { /* the truth, of a row */
		frame.op = DIVVY_REMOTE_DATA;
		if (!answer(fd, frame, words, ROW_BYTES))
			return false;
		frame.op = DIVVY_REMOTE_REPLY;
		return answer(fd, frame, words, 8);
	}
	if (call->op == DIVVY_REMOTE_FIRST_CALL + CALL_cuMemAlloc_v2 && dice() % 4) { /* and of memory to read it from */
		const uint64_t told[] = { 0, 8, 0x567000000000 + dice() % 4096 * 4096 };

		return answer(fd, frame, told, sizeof(told));
	}
	if (dice() % 8 == 0)
		frame.op = (uint16_t)(DIVVY_REMOTE_REPLY + dice() % 8);
	if (dice() % 32 == 0)
		frame.seq += dice() % 3;
	if (dice() % 32 == 0)
		frame.lane = (uint32_t)(dice() % 6000);
	words[0] = dice() % 4 ? 0 : dice() % 800;
	for (size_t i = 1; i < 128; i++) {
		switch (dice() % 6) {
		case 0:
			words[i] = 8;
			break;
		case 1:
			words[i] = dice() % 64;
			break;
		case 2:
			words[i] = (dice() % 24 << 56) | dice() % 4096;
			break;
		case 3:
			words[i] = dice();
			break;
		default:
			break;
		}
	}
	if (dice() % 16 == 0)
		length = dice() % sizeof(words);
	if (dice() % 64 == 0) { /* a length that is not there */
		frame.length = (uint32_t)dice();
		/* who takes it would wait for the rest for ever */
		return whole(fd, &frame, sizeof(frame), true) && frame.length > DIVVY_REMOTE_MAX_PAYLOAD;
	}
	bool sent = answer(fd, frame, words, length);

	/* whoever waits gets something in the end */
	if (sent && frame.op != DIVVY_REMOTE_REPLY) {
		frame.op = DIVVY_REMOTE_REPLY;
		sent = answer(fd, frame, words, 8);
	}
	return sent;
}

static void greet(int fd)
{
	struct divvy_remote_frame frame;
	struct divvy_remote_hello hello;
	struct {
		struct divvy_remote_welcome welcome;
		uint32_t facts[512];
	} told = { .welcome = { .magic = DIVVY_REMOTE_MAGIC, .version = 1, .driverversion = 13000, .operations = 1024, .devices = 1 } };
	size_t length = sizeof(told.welcome);

	if (!whole(fd, &frame, sizeof(frame), false) || !whole(fd, &hello, sizeof(hello), false))
		return;
	for (uint32_t *at = told.facts; at + 6 < told.facts + 512; at += 6, length += 24) {
		at[0] = 5; /* an attribute of the device */
		at[2] = 1 + (uint32_t)(at - told.facts) / 6;
		at[3] = 8;
		at[4] = 1024;
	}
	if (dice() % 16 == 0)
		told.facts[dice() % 512] = (uint32_t)dice();
	if (dice() % 16 == 0)
		length = sizeof(told.welcome) + dice() % sizeof(told.facts);
	frame = (struct divvy_remote_frame){ .op = DIVVY_REMOTE_WELCOME, .seq = 1 };
	answer(fd, frame, &told, length);
}

static void work(int fd)
{
	struct divvy_remote_frame call;
	char payload[65536];

	greet(fd);
	while (whole(fd, &call, sizeof(call), false)) {
		for (size_t left = call.length; left > 0;) {
			size_t part = left < sizeof(payload) ? left : sizeof(payload);

			if (!whole(fd, payload, part, false))
				return;
			left -= part;
		}
		if (!(call.flags & DIVVY_REMOTE_ONE_WAY) && !lie(fd, &call))
			return;
		if (call.flags & DIVVY_REMOTE_ONE_WAY && dice() % 16 == 0) {
			struct divvy_remote_failure failure = { .result = (uint32_t)(dice() % 800), .context = dice() % 2 ? 0 : dice() };

			if (!answer(fd, (struct divvy_remote_frame){ .op = DIVVY_REMOTE_ERROR, .seq = call.seq }, &failure, sizeof(failure)))
				return;
		}
	}
}

static void nothing(void *data)
{
	(void)data;
}

/* What a program might do, whatever it is told. */
static void play(void)
{
	CUcontext context = NULL;
	CUmodule module = NULL;
	CUfunction function = NULL;
	CUdeviceptr memory = 0;
	CUstream stream = NULL;
	CUevent event[4] = { NULL };
	CUgraph graph = NULL;
	CUgraphNode nodes[4];
	CUlinkState link = NULL;
	CUkernel kernels[4];
	nvmlDevice_t device;
	nvmlProcessInfo_t processes[4];
	size_t count = 4, bytes = 0;
	unsigned int many = 4, type = 0;
	char text[96], log[64] = "";
	void *parameters[] = { &memory, &memory, &memory, &memory };
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)sizeof(log) };
	void *image = NULL;
	CUstreamCaptureStatus status;
	const CUgraphNode *waits = NULL;
	cuuint64_t id = 0;
	CUtexObject texture = 0;
	const CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_LINEAR, .res.linear = { .devPtr = 0x10000, .sizeInBytes = 64 } };
	const CUDA_TEXTURE_DESC how = { 0 };

	if (cuInit(0) != CUDA_SUCCESS)
		return;
	for (int i = 0; i < 12; i++) {
		cuCtxCreate_v2(&context, 0, 0);
		cuCtxSetCurrent(context);
		cuModuleLoadDataEx(&module, "text", 2, options, values);
		cuModuleGetFunction(&function, module, "name");
		cuLibraryEnumerateKernels(kernels, 4, (CUlibrary)(void *)module);
		cuMemAlloc_v2(&memory, 4096);
		cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
		cuMemcpyDtoH_v2(text, memory, sizeof(text));
		cuMemcpyHtoD_v2(memory, text, sizeof(text));
		stream = NULL;
		cuStreamCreate(&stream, 0);
		cuLaunchHostFunc(stream, nothing, NULL);
		cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &waits, &count);
		cuGraphCreate(&graph, 0);
		count = 4;
		cuGraphGetNodes(graph, nodes, &count);
		cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory);
		cuMemcpy2D_v2(&(CUDA_MEMCPY2D){
			.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .srcPitch = 16, .dstMemoryType = CU_MEMORYTYPE_HOST,
			.dstHost = text, .dstPitch = 16, .WidthInBytes = 8, .Height = 4,
		});
		cuCtxSetCurrent(context);
		for (int each = 0; each < 4; each++)
			cuEventCreate(&event[each], 0);
		for (int row = 0; row < 6; row++) { /* each as the one before */
			cuMemsetD8Async(memory, 0, 1, stream);
			for (int each = 0; each < 4; each++)
				cuEventSynchronize(event[each]);
			cuMemsetD8Async(memory, 0, 1, stream);
			for (CUdeviceptr from = memory; from < memory + 4 * ROW_BYTES; from += ROW_BYTES)
				cuMemcpyDtoHAsync_v2(text, from, ROW_BYTES, stream);
		}
		cuTexObjectCreate(&texture, &resource, &how, NULL);
		cuTexObjectDestroy(texture);
		cuLinkCreate_v2(2, options, values, &link);
		cuLinkComplete(link, &image, &bytes);
		cuLinkDestroy(link);
		cuMemGetInfo_v2(&bytes, &count);
		nvmlInit_v2();
		nvmlDeviceGetHandleByIndex_v2(0, &device);
		nvmlDeviceGetName(device, text, sizeof(text));
		many = 4;
		nvmlDeviceGetComputeRunningProcesses_v3(device, &many, processes);
		cuMemFree_v2(memory);
		cuCtxSynchronize();
	}
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 10, seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char token[65];
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/libraryfuzz-%d", (int)getpid());
	unlink(address.sun_path);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(listener, 1) < 0) {
		perror("libraryfuzz");
		return 2;
	}
	memset(token, '0', sizeof(token) - 1);
	token[64] = '\0';
	setenv("DIVVY_REMOTE_SOCKET", address.sun_path, 1);
	setenv("DIVVY_REMOTE_RUN", token, 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	int result = 0;

	for (unsigned long round = 0; round < rounds && !result; round++) {
		int status = 0;
		pid_t child = fork();

		if (child == 0) {
			close(listener);
			if (!freopen("/dev/null", "w", stdout)) /* what kernels would print */
				_exit(2);
			alarm(60); /* a call that does not return */
			play();
			_exit(0);
		}
		state = (seed + round) * 0x9e3779b97f4a7c15ull | 1;
		int fd = accept(listener, NULL, NULL);

		work(fd);
		close(fd);
		if (waitpid(child, &status, 0) < 0 || status != 0) {
			printf("not ok: seed %lu: status %#x\n", seed + round, (unsigned int)status);
			result = 1;
		}
	}
	unlink(address.sun_path);
	if (!result)
		printf("ok %lu sessions\n", rounds);
	return result;
}
