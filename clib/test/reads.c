/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reads.c: rows of copies to the host, as of a picture's planes, of waits for events, and
 * textures that are made again and again, with whatever may come between: another thread, a
 * row that goes on otherwise, memory that is freed. Wherever the driver is, each copy brings
 * what is there when it is called, an event that was waited for is reached, and a texture
 * stands for what it was made of.
 *
 *	reads ROUNDS
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tools/busy.h"
#include "cuda_abi.h"

enum { PLANES = 4, WIDE = 256, HIGH = 8, PLANE = WIDE * HIGH, BUFFERS = 3 };

static CUcontext context;
static CUstream stream, other;
static CUdeviceptr buffer[BUFFERS];
static unsigned char now[BUFFERS][PLANES]; /* what all bytes of a plane are */
static unsigned int failed;
static uint32_t state = 1;

static void must(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "reads: %s: %u\n", what, result);
		exit(1);
	}
}

#define MUST(call) must(call, #call)

static unsigned int dice(unsigned int sides)
{
	state = state * 1664525u + 1013904223u;
	return (state >> 16) % sides;
}

static CUdeviceptr plane(unsigned int of, unsigned int which)
{
	return buffer[of] + which * PLANE;
}

static void paint(unsigned int of, unsigned int which, CUstream with)
{
	now[of][which] = (unsigned char)dice(256);
	MUST(cuMemsetD8Async(plane(of, which), now[of][which], PLANE, with));
}

static void check(unsigned int round, unsigned int of, unsigned int which, const unsigned char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (bytes[i] != now[of][which]) {
			if (failed++ < 5)
				printf("not ok round %u: buffer %u plane %u has %u at %zu, want %u\n", round, of, which, bytes[i], i, now[of][which]);
			return;
		}
	}
}

static void copy(unsigned int round, unsigned int of, unsigned int which, unsigned int way)
{
	static unsigned char bytes[PLANE];
	const CUDA_MEMCPY2D box = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = plane(of, which), .srcPitch = WIDE,
		.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = bytes, .dstPitch = WIDE, .WidthInBytes = WIDE, .Height = HIGH,
	};

	memset(bytes, now[of][which] + 1, sizeof(bytes));
	if (way == 0)
		MUST(cuMemcpyDtoHAsync_v2(bytes, plane(of, which), PLANE, stream));
	else if (way == 1)
		MUST(cuMemcpy2DAsync_v2(&box, stream));
	else
		MUST(cuMemcpyDtoH_v2(bytes, plane(of, which), PLANE));
	if (dice(2))
		MUST(cuStreamSynchronize(stream)); /* the copy is to pageable memory: it has come without */
	check(round, of, which, bytes, PLANE);
}

static void *paint_elsewhere(void *argument)
{
	unsigned int of = (unsigned int)(uintptr_t)argument;

	MUST(cuCtxSetCurrent(context));
	paint(of, PLANES - 1, stream);
	return NULL;
}

/* Something that changes the last plane, or how a row goes on. */
static void disturb(unsigned int round, unsigned int of)
{
	pthread_t thread;

	switch (dice(5)) {
	case 0:
		paint(of, PLANES - 1, stream);
		break;
	case 1:
		if (pthread_create(&thread, NULL, paint_elsewhere, (void *)(uintptr_t)of) != 0)
			exit(1);
		pthread_join(thread, NULL);
		break;
	case 2:
		copy(round, (of + 1) % BUFFERS, dice(PLANES), dice(3));
		break;
	case 3:
		MUST(cuStreamSynchronize(other));
		break;
	default:
		break;
	}
}

static void rows(unsigned int rounds)
{
	unsigned int way = 0;

	for (unsigned int i = 0; i < BUFFERS; i++)
		MUST(cuMemAlloc_v2(&buffer[i], PLANES * PLANE));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	for (unsigned int round = 0; round < rounds; round++) {
		unsigned int of = round % BUFFERS, at = dice(8) ? PLANES : dice(PLANES);

		if (round % 16 == 0)
			way = dice(3);
		for (unsigned int i = 0; i < PLANES; i++)
			paint(of, i, stream);
		MUST(cuStreamSynchronize(stream));
		for (unsigned int i = 0; i < PLANES; i++) {
			if (i == at)
				disturb(round, of);
			copy(round, of, i, way);
			if (i == at && dice(2))
				break;
		}
		MUST(cuStreamSynchronize(stream));
		MUST(cuStreamSynchronize(other));
	}
}

/* Waits for events, one for each plane on a stream of its own. */

enum { SETS = 2 };

static CUstream lane[PLANES];
static CUevent reached[SETS][PLANES];
static CUfunction busy;

static void slow(CUstream with)
{
	uint64_t ns = 500000;
	void *arguments[] = { &ns };

	MUST(cuLaunchKernel(busy, 1, 1, 1, 32, 1, 1, 0, with, arguments, NULL));
}

/* What comes after a while in a plane, and then its event. */
static void promise(unsigned int of, unsigned int which, unsigned int set)
{
	if (dice(2))
		slow(lane[which]);
	paint(of, which, lane[which]);
	MUST(cuEventRecord(reached[set][which], lane[which]));
}

static void *promise_elsewhere(void *argument)
{
	unsigned int round = (unsigned int)(uintptr_t)argument;

	MUST(cuCtxSetCurrent(context));
	slow(lane[PLANES - 1]);
	promise(round % BUFFERS, PLANES - 1, round % SETS);
	return NULL;
}

static void kept(unsigned int round, unsigned int which)
{
	unsigned char bytes[PLANE];

	MUST(cuMemcpyDtoHAsync_v2(bytes, plane(round % BUFFERS, which), PLANE, other));
	MUST(cuStreamSynchronize(other));
	check(round, round % BUFFERS, which, bytes, PLANE);
}

static void waits(unsigned int rounds)
{
	CUmodule module;

	MUST(cuModuleLoadData(&module, busy_ptx));
	MUST(cuModuleGetFunction(&busy, module, "divvy_busy"));
	for (unsigned int i = 0; i < PLANES; i++) {
		MUST(cuStreamCreate(&lane[i], CU_STREAM_NON_BLOCKING));
		for (unsigned int set = 0; set < SETS; set++)
			MUST(cuEventCreate(&reached[set][i], CU_EVENT_DISABLE_TIMING));
	}
	for (unsigned int round = 0; round < rounds; round++) {
		unsigned int set = round % SETS, at = dice(6) ? PLANES : dice(PLANES);
		pthread_t thread;

		for (unsigned int i = 0; i < PLANES; i++)
			promise(round % BUFFERS, i, set);
		for (unsigned int i = 0; i < PLANES; i++) {
			if (i == at) {
				if (pthread_create(&thread, NULL, promise_elsewhere, (void *)(uintptr_t)round) != 0)
					exit(1);
				pthread_join(thread, NULL);
			}
			MUST(cuEventSynchronize(reached[set][i]));
			if (i == at)
				kept(round, i);
		}
		for (unsigned int i = PLANES; i-- > 0;) { /* the last is the one that was guessed longest ago */
			if (cuEventQuery(reached[set][i]) != CUDA_SUCCESS && failed++ < 5)
				printf("not ok round %u: event %u was waited for and is not reached\n", round, i);
			kept(round, i);
		}
	}
	MUST(cuEventDestroy_v2(reached[0][PLANES - 1]));
	for (unsigned int i = 0; i < PLANES; i++)
		printf("event %u: %u\n", i, cuEventSynchronize(reached[0][i]));
}

/* Textures. */

static CUresult make(CUtexObject *texture, CUdeviceptr memory)
{
	const CUDA_RESOURCE_DESC resource = {
		.resType = CU_RESOURCE_TYPE_PITCH2D,
		.res.pitch2D = { .devPtr = memory, .format = CU_AD_FORMAT_UNSIGNED_INT8, .numChannels = 1, .width = WIDE, .height = HIGH,
				 .pitchInBytes = WIDE },
	};
	const CUDA_TEXTURE_DESC how = { .filterMode = CU_TR_FILTER_MODE_POINT };

	return cuTexObjectCreate(texture, &resource, &how, NULL);
}

static void stands_for(unsigned int round, CUtexObject texture, CUdeviceptr memory)
{
	CUDA_RESOURCE_DESC resource = { 0 };

	MUST(cuTexObjectGetResourceDesc(&resource, texture));
	if (resource.res.pitch2D.devPtr != memory && failed++ < 5)
		printf("not ok round %u: a texture of %llx stands for %llx\n", round, memory, resource.res.pitch2D.devPtr);
}

static void textures(unsigned int rounds)
{
	CUtexObject texture[PLANES], twin, again;
	CUcontext second;
	CUdeviceptr memory;

	for (unsigned int round = 0; round < rounds; round++) {
		unsigned int of = round % BUFFERS;

		for (unsigned int i = 0; i < PLANES; i++)
			MUST(make(&texture[i], plane(of, i)));
		MUST(make(&twin, plane(of, 0)));
		if (twin == texture[0] && failed++ < 5)
			printf("not ok round %u: one texture was made twice\n", round);
		for (unsigned int i = 0; i < PLANES && round % 4 == 0; i++)
			stands_for(round, texture[i], plane(of, i));
		MUST(cuTexObjectDestroy(twin));
		for (unsigned int i = 0; i < PLANES; i++)
			MUST(cuTexObjectDestroy(texture[i]));
	}
	/* of memory that is gone none is made */
	MUST(cuMemAlloc_v2(&memory, PLANE));
	MUST(make(&again, memory));
	MUST(cuTexObjectDestroy(again));
	MUST(cuMemFree_v2(memory));
	printf("of freed memory: %u\n", make(&again, memory));
	/* nor does one that was given back come twice */
	MUST(make(&again, plane(0, 0)));
	MUST(cuTexObjectDestroy(again));
	CUresult twice = cuTexObjectDestroy(again), after = cuCtxSynchronize();

	printf("given back twice: %u\n", twice ? twice : after);
	CUDA_RESOURCE_DESC gone;

	printf("asked about afterwards: %u\n", cuTexObjectGetResourceDesc(&gone, again));
	/* another context's is another */
	MUST(make(&again, plane(0, 0)));
	MUST(cuTexObjectDestroy(again));
	MUST(cuCtxCreate_v2(&second, 0, 0));
	MUST(cuMemAlloc_v2(&memory, PLANE));
	MUST(make(&twin, memory));
	stands_for(0, twin, memory);
	MUST(cuTexObjectDestroy(twin));
	MUST(cuCtxDestroy_v2(second));
	MUST(cuCtxSetCurrent(context));
	MUST(make(&again, plane(0, 0)));
	stands_for(0, again, plane(0, 0));
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 10) : 100;

	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
	rows(rounds);
	waits(rounds / 5);
	textures(rounds);
	printf("%s\n", failed ? "failed" : "ok");
	return failed != 0;
}
