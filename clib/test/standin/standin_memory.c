/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver's memory, over a simulator with two A100-40GB at $DIVVY_SIMULATOR. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "driver.h"

/* sizes are charged in units of 512; blocks do not overlap; frees give all back */
static void linear(void)
{
	enum { BLOCKS = 300, MOST = 40000 };
	static CUdeviceptr at[BLOCKS];
	static size_t bytes[BLOCKS];
	static unsigned char twin[BLOCKS][MOST], back[MOST];
	CUdeviceptr base = 0;
	size_t size = 0;

	start();
	uint64_t before = room();

	for (int round = 0; round < 3000; round++) {
		size_t i = random64() % BLOCKS;

		if (at[i]) {
			OK(cuMemcpyDtoH_v2(back, at[i], bytes[i]));
			CHECK(memcmp(back, twin[i], bytes[i]) == 0);
			OK(cuMemGetAddressRange_v2(&base, &size, at[i] + bytes[i] - 1));
			CHECK(base == at[i] && size == bytes[i]);
			OK(cuMemFree_v2(at[i]));
			at[i] = 0;
		} else {
			bytes[i] = 1 + random64() % MOST;
			uint64_t now = room();

			OK(cuMemAlloc_v2(&at[i], bytes[i]));
			CHECK(now - room() == (bytes[i] + 511) / 512 * 512);
			CHECK(at[i] % 512 == 0);
			fill(twin[i], bytes[i]);
			OK(cuMemcpyHtoD_v2(at[i], twin[i], bytes[i]));
		}
	}
	for (size_t i = 0; i < BLOCKS; i++) {
		if (at[i])
			OK(cuMemFree_v2(at[i]));
	}
	CHECK(room() == before);
	OK(cuMemAlloc_v2(&base, 1000));
	GIVES(cuMemcpyHtoD_v2(base, twin, 1001), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemcpyHtoD_v2(base + 1000, twin, 1), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemcpyDtoH_v2(back, base + 999, 2), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemcpyDtoH_v2(back, (CUdeviceptr)(uintptr_t)twin, 8), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemFree_v2(base + 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(base));
	GIVES(cuMemFree_v2(base), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(0));
	GIVES(cuMemAlloc_v2(&base, 0), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemAlloc_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemAlloc_v2(&base, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	GIVES(cuMemAlloc_v2(&base, room() + 1), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAlloc_v2(&base, room()));
	CHECK(room() == 0);
	OK(cuMemFree_v2(base));
	finish(before);
}

static sigjmp_buf jump;

static void caught(int signal)
{
	(void)signal;
	siglongjmp(jump, 1);
}

/* the host cannot touch a device address, before, while or after it is used;
 * managed memory it can */
static void host_access(void)
{
	volatile unsigned char *volatile pointer = NULL;
	CUdeviceptr device = 0;
	CUdeviceptr managed = 0;
	unsigned char byte = 0;

	signal(SIGSEGV, caught);
	signal(SIGBUS, caught);
	start();
	uint64_t before = room();

	OK(cuMemAlloc_v2(&device, MIB));
	OK(cuMemsetD8_v2(device, 7, MIB));
	pointer = (volatile unsigned char *)(uintptr_t)device;
	if (!sigsetjmp(jump, 1)) {
		(void)*pointer;
		CHECK(!"the host read device memory");
	}
	OK(cuMemAllocManaged(&managed, 10000, CU_MEM_ATTACH_GLOBAL));
	pointer = (volatile unsigned char *)(uintptr_t)managed;
	pointer[9999] = 42;
	OK(cuMemcpyDtoH_v2(&byte, managed + 9999, 1));
	CHECK(byte == 42);
	OK(cuMemsetD8_v2(managed, 9, 10000));
	CHECK(pointer[0] == 9 && pointer[9999] == 9);
	OK(cuMemFree_v2(managed));
	if (!sigsetjmp(jump, 1)) {
		(void)*pointer;
		CHECK(!"the host read freed managed memory");
	}
	OK(cuMemFree_v2(device));
	finish(before);
}

/* boxes between pitched memory, arrays and host memory, against a slow twin */
static void boxes(void)
{
	enum { W = 100, H = 20, D = 5, HOST = W * H * D };
	static unsigned char out[HOST], in[HOST], twin[HOST];
	CUdeviceptr linear = 0;
	CUarray array = NULL;
	size_t pitch = 0;
	const CUDA_ARRAY3D_DESCRIPTOR shape = {
		.Width = W, .Height = H, .Depth = D, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1,
	};

	start();
	uint64_t before = room();

	OK(cuMemAllocPitch_v2(&linear, &pitch, W, H * D, 4));
	CHECK(pitch == 512 && before - room() == 512 * H * D);
	OK(cuMemsetD8_v2(linear, 0, pitch * H * D));
	OK(cuArray3DCreate_v2(&array, &shape));
	CHECK(before - room() == 512 * H * D + 128 * 24 * D);
	memset(twin, 0, sizeof(twin));
	for (int round = 0; round < 400; round++) {
		size_t x = random64() % W, y = random64() % H, z = random64() % D;
		size_t w = random64() % (W - x + 1), h = random64() % (H - y + 1), d = random64() % (D - z + 1);
		CUDA_MEMCPY3D copy = {
			.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = out, .srcPitch = W, .srcHeight = H,
			.srcXInBytes = x, .srcY = y, .srcZ = z,
			.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = linear, .dstPitch = pitch, .dstHeight = H,
			.dstXInBytes = x, .dstY = y, .dstZ = z, .WidthInBytes = w, .Height = h, .Depth = d,
		};

		fill(out, HOST);
		for (size_t k = z; k < z + d; k++) {
			for (size_t j = y; j < y + h; j++)
				memcpy(&twin[(k * H + j) * W + x], &out[(k * H + j) * W + x], w);
		}
		OK(cuMemcpy3D_v2(&copy));
		/* the whole of it to the array and back */
		copy = (CUDA_MEMCPY3D){
			.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = linear, .srcPitch = pitch, .srcHeight = H,
			.dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array, .WidthInBytes = W, .Height = H, .Depth = D,
		};
		OK(cuMemcpy3D_v2(&copy));
		copy = (CUDA_MEMCPY3D){
			.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array,
			.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = in, .dstPitch = W, .dstHeight = H,
			.WidthInBytes = W, .Height = H, .Depth = D,
		};
		OK(cuMemcpy3D_v2(&copy));
		CHECK(memcmp(in, twin, HOST) == 0);
	}
	CUDA_MEMCPY2D rect = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = out, .srcPitch = W,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = linear, .dstPitch = pitch,
		.WidthInBytes = W, .Height = H * D + 1,
	};

	GIVES(cuMemcpy2D_v2(&rect), CUDA_ERROR_INVALID_VALUE); /* one row too many */
	rect.Height = H;
	rect.dstPitch = W - 1;
	GIVES(cuMemcpy2D_v2(&rect), CUDA_ERROR_INVALID_VALUE); /* rows would overlap */
	GIVES(cuMemcpyHtoA_v2(array, W, out, W + 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemcpyHtoA_v2(array, W, out, 2 * W)); /* two whole rows */
	OK(cuMemcpyAtoH_v2(in, array, W, 2 * W));
	CHECK(memcmp(in, out, 2 * W) == 0);
	OK(cuArrayDestroy(array));
	GIVES(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
	OK(cuMemFree_v2(linear));
	finish(before);
}

static void arrays(void)
{
	CUmipmappedArray mipmap = NULL;
	CUarray level = NULL, array = NULL, plane = NULL;
	CUDA_ARRAY3D_DESCRIPTOR shape = {
		.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1,
	};
	CUDA_ARRAY3D_DESCRIPTOR got;
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
	static unsigned char out[4096], in[4096];

	start();
	uint64_t before = room();

	OK(cuMipmappedArrayCreate(&mipmap, &shape, 3));
	CHECK(before - room() == 16384 + 4096 + 1024);
	OK(cuMipmappedArrayGetMemoryRequirements(&needs, mipmap, 0));
	CHECK(needs.size == before - room());
	GIVES(cuMipmappedArrayGetLevel(&level, mipmap, 3), CUDA_ERROR_INVALID_VALUE);
	for (unsigned int i = 0; i < 3; i++) {
		OK(cuMipmappedArrayGetLevel(&level, mipmap, i));
		OK(cuArray3DGetDescriptor_v2(&got, level));
		CHECK(got.Width == 64u >> i && got.Height == 64u >> i);
		memset(out, (int)i + 1, sizeof(out));
		CUDA_MEMCPY2D copy = {
			.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = out, .srcPitch = 64,
			.dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = level, .WidthInBytes = 64, .Height = 16,
		};
		OK(cuMemcpy2D_v2(&copy));
		GIVES(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
	}
	for (unsigned int i = 0; i < 3; i++) { /* levels do not overlap */
		OK(cuMipmappedArrayGetLevel(&level, mipmap, i));
		OK(cuMemcpyAtoH_v2(in, level, 0, 64));
		CHECK(in[0] == i + 1 && in[63] == i + 1);
	}
	OK(cuMipmappedArrayDestroy(mipmap));
	CHECK(room() == before);

	shape = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_NV12, .NumChannels = 3 };
	OK(cuArray3DCreate_v2(&array, &shape));
	CHECK(before - room() == 64 * 64 + 64 * 32);
	OK(cuArrayGetPlane(&plane, array, 1));
	OK(cuArray3DGetDescriptor_v2(&got, plane));
	CHECK(got.Width == 32 && got.Height == 32 && got.NumChannels == 2);
	GIVES(cuArrayGetPlane(&plane, array, 2), CUDA_ERROR_INVALID_VALUE);
	OK(cuArrayDestroy(array));

	shape.Format = CU_AD_FORMAT_FLOAT;
	shape.NumChannels = 3;
	GIVES(cuArray3DCreate_v2(&array, &shape), CUDA_ERROR_INVALID_VALUE);
	shape.NumChannels = 4;
	shape.Width = 1 << 20;
	shape.Height = 1 << 20;
	GIVES(cuArray3DCreate_v2(&array, &shape), CUDA_ERROR_OUT_OF_MEMORY);
	finish(before);
}

static void memset_values(void)
{
	enum { BYTES = 300000 };
	static unsigned char twin[BYTES], back[BYTES];
	CUdeviceptr at = 0;

	start();
	uint64_t before = room();

	OK(cuMemAlloc_v2(&at, BYTES));
	OK(cuMemcpyHtoD_v2(at, twin, BYTES));
	for (int round = 0; round < 300; round++) {
		size_t unit = (size_t)1 << random64() % 3;
		uint32_t value = round % 3 ? (uint32_t)random64() : 0;
		size_t place = random64() % BYTES / unit * unit;
		size_t count = random64() % ((BYTES - place) / unit + 1);

		for (size_t i = 0; i < count; i++)
			memcpy(&twin[place + i * unit], &value, unit);
		if (unit == 1)
			OK(cuMemsetD8_v2(at + place, (unsigned char)value, count));
		else if (unit == 2)
			OK(cuMemsetD16_v2(at + place, (unsigned short)value, count));
		else
			OK(cuMemsetD32_v2(at + place, value, count));
		OK(cuMemcpyDtoH_v2(back, at, BYTES));
		CHECK(memcmp(back, twin, BYTES) == 0);
	}
	OK(cuMemsetD2D16_v2(at + 2, 100, 0x1234, 3, 5));
	OK(cuMemcpyDtoH_v2(back, at, BYTES));
	for (size_t y = 0; y < 5; y++) {
		for (size_t x = 0; x < 3; x++) {
			twin[2 + y * 100 + x * 2] = 0x34;
			twin[3 + y * 100 + x * 2] = 0x12;
		}
	}
	CHECK(memcmp(back, twin, BYTES) == 0);
	GIVES(cuMemsetD32_v2(at + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemsetD8_v2(at, 0, BYTES + 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(at));
	finish(before);
}

static void host_memory(void)
{
	static unsigned char mine[100000];
	void *pinned = NULL;
	CUdeviceptr device = 0;
	unsigned int flags = 0;

	start();
	uint64_t before = room();

	OK(cuMemHostAlloc(&pinned, 5000, 4));
	CHECK(room() == before); /* costs the card nothing */
	OK(cuMemHostGetDevicePointer_v2(&device, pinned, 0));
	OK(cuMemHostGetFlags(&flags, pinned));
	CHECK(flags == 6);
	OK(cuMemsetD8_v2(device, 3, 5000));
	CHECK(((unsigned char *)pinned)[4999] == 3);
	GIVES(cuMemHostUnregister(pinned), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	GIVES(cuMemFree_v2(device), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFreeHost(pinned));
	GIVES(cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemHostRegister_v2(mine, sizeof(mine), 0));
	GIVES(cuMemHostRegister_v2(mine + 100, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	OK(cuMemHostGetDevicePointer_v2(&device, mine + 5, 0));
	OK(cuMemHostUnregister(mine));
	GIVES(cuMemHostGetDevicePointer_v2(&device, mine + 5, 0), CUDA_ERROR_INVALID_VALUE);
	finish(before);
}

static void pools(void)
{
	CUmemoryPool pool = NULL, standard = NULL;
	CUdeviceptr small = 0, big = 0, more = 0;
	cuuint64_t amount = 0;
	const CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
	};

	start();
	uint64_t before = room();

	OK(cuMemAllocAsync(&small, 1000, NULL));
	CHECK(before - room() == 2 * MIB); /* a pool grows by steps */
	OK(cuMemAllocAsync(&more, 1000, NULL));
	CHECK(before - room() == 2 * MIB);
	OK(cuMemAllocAsync(&big, 5 * MIB, NULL));
	CHECK(before - room() == 8 * MIB);
	OK(cuDeviceGetDefaultMemPool(&standard, 0));
	OK(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &amount));
	CHECK(amount == 8 * MIB);
	OK(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &amount));
	CHECK(amount == 5 * MIB + 2048);
	OK(cuMemFreeAsync(big, NULL));
	CHECK(before - room() == 8 * MIB); /* until the next synchronisation */
	OK(cuStreamSynchronize(NULL));
	CHECK(before - room() == 2 * MIB);
	amount = UINT64_MAX;
	OK(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &amount));
	OK(cuMemFreeAsync(small, NULL));
	OK(cuMemFree_v2(more));
	OK(cuCtxSynchronize());
	CHECK(before - room() == 2 * MIB);
	OK(cuMemPoolTrimTo(standard, 0));
	CHECK(room() == before);
	GIVES(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);

	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&small, 100, pool, NULL));
	OK(cuMemPoolDestroy(pool)); /* lives until its last part is freed */
	GIVES(cuMemAllocFromPoolAsync(&big, 100, pool, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK(before - room() == 2 * MIB);
	OK(cuMemFreeAsync(small, NULL));
	CHECK(room() == before);
	/* what a pool holds without need does not keep a request from fitting */
	OK(cuMemAllocAsync(&small, 1000, NULL));
	OK(cuMemFreeAsync(small, NULL));
	CHECK(before - room() == 2 * MIB);
	OK(cuMemAllocAsync(&big, before / (2 * MIB) * (2 * MIB), NULL));
	OK(cuMemFreeAsync(big, NULL));
	OK(cuMemPoolTrimTo(standard, 0));
	finish(before);
}

struct returned {
	CUdeviceptr linear, managed, pooled;
	void *host;
};

static unsigned char registered[8192] __attribute__((aligned(4096)));

static void *give_back(void *argument)
{
	struct returned *r = argument;
	CUcontext current = NULL;

	OK(cuCtxGetCurrent(&current));
	CHECK(!current);
	GIVES(cuMemFree_v2(r->linear + 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(r->linear));
	GIVES(cuMemFree_v2(r->linear), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(r->managed));
	OK(cuMemFree_v2(r->pooled));
	GIVES(cuMemFreeHost(registered), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemHostUnregister(registered));
	GIVES(cuMemHostUnregister(registered), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	OK(cuMemFreeHost(r->host));
	GIVES(cuMemFreeHost(r->host), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemAlloc_v2(&r->linear, 1), CUDA_ERROR_INVALID_CONTEXT); /* where, is not known */
	return NULL;
}

static void take(struct returned *r)
{
	OK(cuMemAlloc_v2(&r->linear, MIB));
	OK(cuMemAllocManaged(&r->managed, MIB, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemAllocAsync(&r->pooled, MIB, NULL));
	OK(cuMemAllocHost_v2(&r->host, 4096));
	OK(cuMemHostRegister_v2(registered, sizeof(registered), 0));
}

static void wait_for(void *flag)
{
	while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE))
		usleep(1000);
}

/* Memory is given back wherever the caller stands: its owner is known by the address. */
static void giving_back(void)
{
	CUcontext own = start(), other = NULL;
	CUdeviceptr at = 0;
	CUstream stream = NULL;
	struct returned r;
	pthread_t thread;
	int go = 0;
	uint64_t before = room();

	take(&r);
	CHECK(pthread_create(&thread, NULL, give_back, &r) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	OK(cuCtxSynchronize());
	CHECK(room() == before);

	/* in another context, and in one that has ended */
	take(&r);
	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuMemFree_v2(r.linear));
	OK(cuMemAlloc_v2(&at, MIB));
	OK(cuCtxSetCurrent(own));
	OK(cuCtxPushCurrent_v2(other));
	OK(cuCtxDestroy_v2(other));
	OK(cuMemFree_v2(r.managed));
	OK(cuMemFreeHost(r.host));
	OK(cuMemHostUnregister(registered));
	OK(cuCtxSetCurrent(own));
	GIVES(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE); /* went with its context */
	OK(cuMemFree_v2(r.pooled));
	OK(cuCtxSynchronize());
	CHECK(room() == before);

	/* plain memory when the stream gets there */
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc_v2(&at, MIB));
	OK(cuMemFreeAsync(at, stream));
	CHECK(room() == before);
	OK(cuMemAlloc_v2(&at, MIB));
	OK(cuLaunchHostFunc(stream, wait_for, &go));
	OK(cuMemFreeAsync(at, stream));
	GIVES(cuMemFreeAsync(at, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK(before - room() == MIB);
	__atomic_store_n(&go, 1, __ATOMIC_RELEASE);
	OK(cuStreamSynchronize(stream));
	CHECK(room() == before);
	OK(cuStreamDestroy_v2(stream));
	finish(before);
}

static void virtual_memory(void)
{
	CUmemGenericAllocationHandle a = 0, b = 0, again = 0;
	CUdeviceptr range = 0;
	CUmemAllocationProp props = physical();
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	static unsigned char out[4 * 1024 * 1024], in[4 * 1024 * 1024];
	unsigned long long flags = 0;
	size_t unit = 0;

	start();
	uint64_t before = room();

	OK(cuMemGetAllocationGranularity(&unit, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CHECK(unit == 2 * MIB);
	OK(cuMemAddressReserve(&range, 16 * MIB, 0, 0, 0));
	CHECK(room() == before);
	GIVES(cuMemCreate(&a, MIB, &props, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemCreate(&a, 2 * MIB, &props, 0));
	OK(cuMemCreate(&b, 4 * MIB, &props, 0));
	CHECK(before - room() == 6 * MIB);
	OK(cuMemMap(range, 2 * MIB, 0, a, 0));
	OK(cuMemMap(range + 2 * MIB, 4 * MIB, 0, b, 0));
	GIVES(cuMemMap(range, 2 * MIB, 0, b, 0), CUDA_ERROR_INVALID_VALUE); /* taken */
	GIVES(cuMemMap(range + 14 * MIB, 4 * MIB, 0, b, 0), CUDA_ERROR_INVALID_VALUE); /* over the end */
	fill(out, sizeof(out));
	GIVES(cuMemcpyHtoD_v2(range, out, 10), CUDA_ERROR_INVALID_VALUE); /* no access yet */
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
	OK(cuMemSetAccess(range, 2 * MIB, &access, 1));
	GIVES(cuMemcpyHtoD_v2(range, out, 10), CUDA_ERROR_INVALID_VALUE); /* only to read */
	OK(cuMemcpyDtoH_v2(in, range, 10));
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	GIVES(cuMemSetAccess(range, 8 * MIB, &access, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemSetAccess(range, 6 * MIB, &access, 1));
	OK(cuMemGetAccess(&flags, &access.location, range + 5 * MIB));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(cuMemcpyHtoD_v2(range + MIB, out, sizeof(out))); /* across both */
	OK(cuMemcpyDtoH_v2(in, range + MIB, sizeof(in)));
	CHECK(memcmp(in, out, sizeof(out)) == 0);
	GIVES(cuMemFree_v2(range), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(range + 3 * MIB)));
	CHECK(again == b);
	OK(cuMemRelease(b));
	OK(cuMemRelease(b));
	GIVES(cuMemRelease(b), CUDA_ERROR_INVALID_VALUE);
	CHECK(before - room() == 6 * MIB); /* mapped still */
	GIVES(cuMemUnmap(range, MIB), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemAddressFree(range, 16 * MIB), CUDA_ERROR_INVALID_VALUE);
	/* the same memory at a second place */
	OK(cuMemMap(range + 8 * MIB, 2 * MIB, 0, a, 0));
	OK(cuMemSetAccess(range + 8 * MIB, 2 * MIB, &access, 1));
	OK(cuMemcpyDtoH_v2(in, range + 9 * MIB, MIB));
	CHECK(memcmp(in, out, MIB) == 0);
	OK(cuMemUnmap(range, 6 * MIB));
	CHECK(before - room() == 2 * MIB);
	OK(cuMemUnmap(range + 8 * MIB, 2 * MIB));
	CHECK(before - room() == 2 * MIB); /* the handle holds it */
	OK(cuMemRelease(a));
	CHECK(room() == before);
	OK(cuMemAddressFree(range, 16 * MIB));
	GIVES(cuMemAddressFree(range, 16 * MIB), CUDA_ERROR_INVALID_VALUE);
	finish(before);
}

static const struct scenario list[] = {
	{ "linear", linear },
	{ "host_access", host_access },
	{ "boxes", boxes },
	{ "arrays", arrays },
	{ "memset_values", memset_values },
	{ "host_memory", host_memory },
	{ "pools", pools },
	{ "giving_back", giving_back },
	{ "virtual_memory", virtual_memory },
};

RUN_SCENARIOS(list)
