/* SPDX-License-Identifier: Apache-2.0 */
/* Linear, pitched and managed memory, and what the card tells of its memory. */
#include <pthread.h>

#include "snippet.h"

static int take_linear(struct holding *h, size_t bytes)
{
	CUdeviceptr address = h->address;
	int result = (int)DRIVER(cuMemAlloc_v2)(&address, bytes);

	h->address = address;
	return result;
}

static int give_linear(struct holding *h)
{
	return (int)DRIVER(cuMemFree_v2)(h->address);
}

/* By a thread without a context: the driver finds the owner by the address. */
static void *give(void *argument)
{
	struct holding *h = argument;

	h->second = (void *)(uintptr_t)DRIVER(cuMemFree_v2)(h->address);
	return NULL;
}

static int give_elsewhere(struct holding *h)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, give, h) != 0 || pthread_join(thread, NULL) != 0)
		return -1;
	return (int)(uintptr_t)h->second;
}

/* When the stream gets there. */
static int give_async(struct holding *h)
{
	int result = (int)DRIVER(cuMemFreeAsync)(h->address, NULL);

	return result ? result : (int)DRIVER(cuCtxSynchronize)();
}

static int take_pitch(struct holding *h, size_t bytes)
{
	CUdeviceptr address = h->address;
	size_t pitch = h->pitch;
	int result = (int)DRIVER(cuMemAllocPitch_v2)(&address, &pitch, ROW_BYTES, bytes / ROW_BYTES, 16);

	h->address = address;
	h->pitch = pitch;
	return result;
}

static int take_managed(struct holding *h, size_t bytes)
{
	CUdeviceptr address = h->address;
	int result = (int)DRIVER(cuMemAllocManaged)(&address, bytes, CU_MEM_ATTACH_GLOBAL);

	h->address = address;
	return result;
}

static const struct allocator allocators[] = {
	ALLOCATOR(cuMemAlloc_v2, take_linear, give_linear, COST_EXACT, DATA_LINEAR),
	ALLOCATOR(cuMemFree_v2, take_linear, give_elsewhere, COST_EXACT, DATA_LINEAR),
	ALLOCATOR(cuMemFreeAsync, take_linear, give_async, COST_EXACT, DATA_LINEAR),
	ALLOCATOR(cuMemAllocPitch_v2, take_pitch, give_linear, COST_EXACT, DATA_PITCH),
	ALLOCATOR(cuMemAllocManaged, take_managed, give_linear, COST_EXACT, DATA_LINEAR),
};

/* A request of n bytes costs n rounded up to 512, and each free gives exactly that back. */
static void free_v2(void)
{
	static const size_t sizes[] = {1, 511, 512, 513, 4096, 3 * MIB + 1};
	CUdeviceptr address[COUNT(sizes)];
	uint64_t before = snippet_room(), cost = 0;

	for (size_t i = 0; i < COUNT(sizes); i++) {
		OK(DRIVER(cuMemAlloc_v2)(&address[i], sizes[i]));
		cost += (sizes[i] + 511) / 512 * 512;
		EQUAL(before - snippet_room(), cost);
	}
	for (size_t i = 0; i < COUNT(sizes); i++)
		OK(DRIVER(cuMemFree_v2)(address[i]));
	EQUAL(snippet_room(), before);
	/* A free that the driver refuses gives nothing back. */
	CHECK(DRIVER(cuMemFree_v2)(address[0] + 8) != 0);
	EQUAL(snippet_room(), before);
}

/*
 * The first ABI has addresses of 32 bits. A driver that has none to give says
 * out of memory; then nothing may stay charged.
 */
static void oldest(void)
{
	CUdeviceptr_v1 address = 0xa5a5a5a5u;
	unsigned int pitch = 77;
	uint64_t before = snippet_room();
	CUresult result = DRIVER(cuMemAlloc)(&address, 1000);

	if (result == CUDA_SUCCESS) {
		EQUAL(before - snippet_room(), 1024);
		OK(DRIVER(cuMemFree)(address));
	} else {
		EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
		EQUAL(address, 0xa5a5a5a5u);
	}
	EQUAL(snippet_room(), before);
	result = DRIVER(cuMemAllocPitch)(&address, &pitch, 1000, 10, 16);
	if (result == CUDA_SUCCESS) {
		EQUAL(before - snippet_room(), (uint64_t)pitch * 10);
		OK(DRIVER(cuMemFree)(address));
	} else {
		EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
		EQUAL(pitch, 77);
	}
	EQUAL(snippet_room(), before);
	CHECK(DRIVER(cuMemFree)(8) != CUDA_SUCCESS);
	EQUAL(snippet_room(), before);
}

/* Bad requests answer as the driver does and cost nothing. */
static void alloc_bad(void)
{
	CUdeviceptr address = 0;
	uint64_t before = snippet_room();

	EQUAL(DRIVER(cuMemAlloc_v2)(&address, 0), CUDA_ERROR_INVALID_VALUE);
	EQUAL(DRIVER(cuMemAlloc_v2)(NULL, 4096), CUDA_ERROR_INVALID_VALUE);
	EQUAL(DRIVER(cuMemAlloc_v2)(&address, SIZE_MAX - 100), CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(DRIVER(cuMemAlloc_v2)(&address, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(address, 0);
	EQUAL(snippet_room(), before);
}

static void info_v2(void)
{
	size_t room = 0, total = 0;
	CUdeviceptr address = 0;

	OK(DRIVER(cuMemGetInfo_v2)(&room, &total));
	CHECK(room <= total);
	if (snippet_run.control)
		CHECK(total > snippet_run.quota);
	else
		EQUAL(total, snippet_run.quota);
	/* All that is free can be had, and one unit more cannot. */
	if (snippet_run.control)
		return;
	OK(DRIVER(cuMemAlloc_v2)(&address, room));
	EQUAL(snippet_room(), 0);
	CUdeviceptr more = 0;
	EQUAL(DRIVER(cuMemAlloc_v2)(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
	EQUAL(more, 0);
	OK(DRIVER(cuMemFree_v2)(address));
	EQUAL(snippet_room(), room);
}

static void info_v1(void)
{
	unsigned int room = 0, total = 0;

	OK(DRIVER(cuMemGetInfo)(&room, &total));
	CHECK(room <= total);
	if (!snippet_run.control) {
		EQUAL(total, snippet_run.quota);
		EQUAL(room, snippet_room());
	}
}

static void total_v2(void)
{
	size_t total = 0;

	OK(DRIVER(cuDeviceTotalMem_v2)(&total, snippet_run.device));
	if (snippet_run.control)
		CHECK(total > snippet_run.quota);
	else
		EQUAL(total, snippet_run.quota);
}

static void total_v1(void)
{
	unsigned int total = 0;

	OK(DRIVER(cuDeviceTotalMem)(&total, snippet_run.device));
	if (!snippet_run.control)
		EQUAL(total, snippet_run.quota);
}

static const struct snippet snippets[] = {
	SNIPPET(cuMemFree_v2, free_v2),
	SNIPPET(cuMemFree, oldest),
	SNIPPET(cuMemAlloc, oldest),
	SNIPPET(cuMemAllocPitch, oldest),
	SNIPPET(cuMemAlloc_v2, alloc_bad),
	SNIPPET(cuMemGetInfo_v2, info_v2),
	SNIPPET(cuMemGetInfo, info_v1),
	SNIPPET(cuDeviceTotalMem_v2, total_v2),
	SNIPPET(cuDeviceTotalMem, total_v1),
};

const struct area area_linear = {
	.name = "linear",
	.allocators = allocators,
	.allocators_count = COUNT(allocators),
	.snippets = snippets,
	.snippets_count = COUNT(snippets),
};
