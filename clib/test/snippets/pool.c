/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocation: a pool is charged for what it reserves, until it is trimmed. */
#include "snippet.h"

static CUmemoryPool made_pool;

static CUmemPoolProps properties(void)
{
	CUmemPoolProps props = {0};

	props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = snippet_run.device;
	props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	return props;
}

/* The pool of this program, made at the first use; 0 when that fails. */
static CUmemoryPool pool(void)
{
	CUmemPoolProps props = properties();

	if (!made_pool && DRIVER(cuMemPoolCreate)(&made_pool, &props) != 0)
		made_pool = NULL;
	return made_pool;
}

static int settle(void)
{
	CUmemoryPool current = NULL;
	int result = (int)DRIVER(cuCtxSynchronize)();

	if (result == 0)
		result = (int)DRIVER(cuDeviceGetDefaultMemPool)(&current, snippet_run.device);
	if (result == 0)
		result = (int)DRIVER(cuMemPoolTrimTo)(current, 0);
	if (result == 0 && made_pool)
		result = (int)DRIVER(cuMemPoolTrimTo)(made_pool, 0);
	return result;
}

static int take_async_with(struct holding *h, size_t bytes, __typeof__(&cuMemAllocAsync) call)
{
	CUdeviceptr address = h->address;
	int result = (int)call(&address, bytes, NULL);

	h->address = address;
	return result ? result : (int)DRIVER(cuCtxSynchronize)();
}

static int take_async(struct holding *h, size_t bytes)
{
	return take_async_with(h, bytes, DRIVER(cuMemAllocAsync));
}

static int take_async_ptsz(struct holding *h, size_t bytes)
{
	return take_async_with(h, bytes, DRIVER(cuMemAllocAsync_ptsz));
}

static int give_async(struct holding *h)
{
	int result = (int)DRIVER(cuMemFreeAsync)(h->address, NULL);

	return result ? result : settle();
}

static int give_async_ptsz(struct holding *h)
{
	int result = (int)DRIVER(cuMemFreeAsync_ptsz)(h->address, NULL);

	return result ? result : settle();
}

/* cuMemFree takes stream-ordered memory too. */
static int give_plain(struct holding *h)
{
	int result = (int)DRIVER(cuMemFree_v2)(h->address);

	return result ? result : settle();
}

static int take_from_pool_with(struct holding *h, size_t bytes, __typeof__(&cuMemAllocFromPoolAsync) call)
{
	CUdeviceptr address = h->address;
	int result = (int)call(&address, bytes, pool(), NULL);

	h->address = address;
	return result ? result : (int)DRIVER(cuCtxSynchronize)();
}

static int take_from_pool(struct holding *h, size_t bytes)
{
	return take_from_pool_with(h, bytes, DRIVER(cuMemAllocFromPoolAsync));
}

static int take_from_pool_ptsz(struct holding *h, size_t bytes)
{
	return take_from_pool_with(h, bytes, DRIVER(cuMemAllocFromPoolAsync_ptsz));
}

static const struct allocator allocators[] = {
	ALLOCATOR(cuMemAllocAsync, take_async, give_async, COST_AT_LEAST, DATA_LINEAR),
	ALLOCATOR(cuMemFreeAsync, take_async, give_async, COST_AT_LEAST, DATA_NONE),
	ALLOCATOR(cuMemAllocAsync_ptsz, take_async_ptsz, give_async_ptsz, COST_AT_LEAST, DATA_LINEAR),
	ALLOCATOR(cuMemFreeAsync_ptsz, take_async, give_async_ptsz, COST_AT_LEAST, DATA_NONE),
	ALLOCATOR(cuMemFree_v2, take_async, give_plain, COST_AT_LEAST, DATA_NONE),
	ALLOCATOR(cuMemAllocFromPoolAsync, take_from_pool, give_async, COST_AT_LEAST, DATA_LINEAR),
	ALLOCATOR(cuMemAllocFromPoolAsync_ptsz, take_from_pool_ptsz, give_async_ptsz, COST_AT_LEAST,
		  DATA_LINEAR),
};

/* What a pool keeps under its threshold stays charged until it is trimmed. */
static void trim(void)
{
	CUmemPoolProps props = properties();
	CUmemoryPool own = NULL;
	CUdeviceptr address = 0;
	cuuint64_t keep = UINT64_MAX, reserved = 0;
	uint64_t before = snippet_room(), kept;

	OK(DRIVER(cuMemPoolCreate)(&own, &props));
	EQUAL(snippet_room(), before);
	OK(DRIVER(cuMemPoolSetAttribute)(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(DRIVER(cuMemAllocFromPoolAsync)(&address, 48 * MIB, own, NULL));
	OK(DRIVER(cuMemFreeAsync)(address, NULL));
	OK(DRIVER(cuCtxSynchronize)());
	kept = before - snippet_room();
	CHECK(kept >= 48 * MIB);
	OK(DRIVER(cuMemPoolGetAttribute)(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	EQUAL(reserved, kept);
	/* Taken again from what is reserved: no further charge. */
	OK(DRIVER(cuMemAllocFromPoolAsync)(&address, 32 * MIB, own, NULL));
	EQUAL(before - snippet_room(), kept);
	OK(DRIVER(cuMemFreeAsync)(address, NULL));
	OK(DRIVER(cuCtxSynchronize)());
	OK(DRIVER(cuMemPoolTrimTo)(own, 0));
	EQUAL(snippet_room(), before);
	OK(DRIVER(cuMemPoolDestroy)(own));
	EQUAL(snippet_room(), before);
}

static void destroy(void)
{
	CUmemPoolProps props = properties();
	CUmemoryPool own = NULL;
	CUdeviceptr address = 0;
	cuuint64_t keep = UINT64_MAX;
	uint64_t before = snippet_room();

	OK(DRIVER(cuMemPoolCreate)(&own, &props));
	OK(DRIVER(cuMemPoolSetAttribute)(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(DRIVER(cuMemAllocFromPoolAsync)(&address, 16 * MIB, own, NULL));
	OK(DRIVER(cuMemFreeAsync)(address, NULL));
	OK(DRIVER(cuCtxSynchronize)());
	CHECK(before - snippet_room() >= 16 * MIB);
	OK(DRIVER(cuMemPoolDestroy)(own));
	EQUAL(snippet_room(), before);
}

/* A lower threshold takes effect at the next synchronisation. */
static void threshold(void)
{
	CUmemPoolProps props = properties();
	CUmemoryPool own = NULL;
	CUdeviceptr address = 0;
	cuuint64_t keep = UINT64_MAX;
	uint64_t before = snippet_room();

	OK(DRIVER(cuMemPoolCreate)(&own, &props));
	OK(DRIVER(cuMemPoolSetAttribute)(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(DRIVER(cuMemAllocFromPoolAsync)(&address, 16 * MIB, own, NULL));
	OK(DRIVER(cuMemFreeAsync)(address, NULL));
	OK(DRIVER(cuCtxSynchronize)());
	CHECK(before - snippet_room() >= 16 * MIB);
	keep = 0;
	OK(DRIVER(cuMemPoolSetAttribute)(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(DRIVER(cuCtxSynchronize)());
	EQUAL(snippet_room(), before);
	OK(DRIVER(cuMemPoolDestroy)(own));
}

/* Another pool as the device's: what cuMemAllocAsync takes counts the same. */
static void set_pool(void)
{
	CUmemPoolProps props = properties();
	CUmemoryPool own = NULL, standard = NULL, now = NULL;
	CUdeviceptr address = 0;
	uint64_t before = snippet_room();

	OK(DRIVER(cuDeviceGetDefaultMemPool)(&standard, snippet_run.device));
	OK(DRIVER(cuMemPoolCreate)(&own, &props));
	OK(DRIVER(cuDeviceSetMemPool)(snippet_run.device, own));
	OK(DRIVER(cuDeviceGetMemPool)(&now, snippet_run.device));
	CHECK(now == own);
	OK(DRIVER(cuMemAllocAsync)(&address, 16 * MIB, NULL));
	CHECK(before - snippet_room() >= 16 * MIB);
	OK(DRIVER(cuMemFreeAsync)(address, NULL));
	OK(DRIVER(cuCtxSynchronize)());
	OK(DRIVER(cuDeviceSetMemPool)(snippet_run.device, standard));
	OK(DRIVER(cuMemPoolDestroy)(own));
	EQUAL(snippet_room(), before);
}

static const struct snippet snippets[] = {
	SNIPPET(cuMemPoolTrimTo, trim),
	SNIPPET(cuMemPoolCreate, trim),
	SNIPPET(cuMemPoolDestroy, destroy),
	SNIPPET(cuMemPoolSetAttribute, threshold),
	SNIPPET(cuDeviceSetMemPool, set_pool),
};

const struct area area_pool = {
	.name = "pool",
	.allocators = allocators,
	.allocators_count = COUNT(allocators),
	.snippets = snippets,
	.snippets_count = COUNT(snippets),
};
