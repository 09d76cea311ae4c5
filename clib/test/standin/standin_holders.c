/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds the stand-in driver's memory: references, contexts and their ends,
 * forks, other processes, other cards. Over a simulator with two A100-40GB at
 * $DIVVY_SIMULATOR.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/mman.h>
#include <sys/socket.h>

#include "driver.h"

/* sparse arrays and multicast objects cost nothing and hold what is put in them */
static void held(void)
{
	CUDA_ARRAY3D_DESCRIPTOR shape = {
		.Width = 4096, .Height = 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = 64,
	};
	CUmemAllocationProp props = physical();
	CUmemGenericAllocationHandle handle = 0, object = 0;
	CUDA_ARRAY_SPARSE_PROPERTIES tiles;
	CUarray array = NULL;
	CUarrayMapInfo info = { .resourceType = CU_RESOURCE_TYPE_ARRAY, .deviceBitMask = 1,
				.memOperationType = CU_MEM_OPERATION_TYPE_MAP };
	char text[16] = "";

	start();
	uint64_t before = room();

	OK(cuArray3DCreate_v2(&array, &shape));
	CHECK(room() == before);
	OK(cuArrayGetSparseProperties(&tiles, array));
	CHECK(tiles.tileExtent.width == 128 && tiles.tileExtent.height == 128);
	OK(cuMemCreate(&handle, 2 * MIB, &props, 0));
	info.resource.array = array;
	info.memHandle.memHandle = handle;
	info.subresource.sparseLevel.extentWidth = 128 * 32;
	info.subresource.sparseLevel.extentHeight = 128;
	info.subresource.sparseLevel.extentDepth = 1;
	OK(cuMemMapArrayAsync(&info, 1, NULL)); /* 32 tiles: all of it */
	info.subresource.sparseLevel.extentHeight = 256;
	GIVES(cuMemMapArrayAsync(&info, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	info.subresource.sparseLevel.extentHeight = 100;
	GIVES(cuMemMapArrayAsync(&info, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemRelease(handle));
	CHECK(before - room() == 2 * MIB);
	OK(cuMemcpyHtoA_v2(array, 16384, "texels!", 8));
	OK(cuMemcpyAtoH_v2(text, array, 16384, 8));
	CHECK(strcmp(text, "texels!") == 0);
	OK(cuArrayDestroy(array));
	CHECK(room() == before);

	CUmulticastObjectProp prop = { .numDevices = 1, .size = 8 * MIB };

	OK(cuMulticastCreate(&object, &prop));
	OK(cuMemCreate(&handle, 4 * MIB, &props, 0));
	GIVES(cuMulticastBindMem(object, 0, handle, 0, 4 * MIB, 0), CUDA_ERROR_INVALID_VALUE); /* no card yet */
	OK(cuMulticastAddDevice(object, 0));
	OK(cuMulticastBindMem(object, 4 * MIB, handle, 0, 4 * MIB, 0));
	GIVES(cuMulticastBindMem(object, 4 * MIB, handle, 0, 2 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemRelease(handle));
	CHECK(before - room() == 4 * MIB);
	GIVES(cuMulticastUnbind(object, 0, 0, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemRelease(object));
	finish(before);
}

static void context_ends(void)
{
	CUcontext first = NULL, second = NULL, current = NULL;
	CUdeviceptr at = 0;
	CUstream stream = NULL;
	size_t value = 0;
	CUdevice device = -1;

	GIVES(cuCtxGetDevice(&device), CUDA_ERROR_NOT_INITIALIZED);
	GIVES(cuInit(1), CUDA_ERROR_INVALID_VALUE);
	OK(cuInit(0));
	GIVES(cuMemAlloc_v2(&at, 1), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxCreate_v2(&first, 0, 0));
	uint64_t before = room();

	OK(cuCtxCreate_v2(&second, 0, 0));
	CHECK(before - room() == 64 * MIB);
	OK(cuMemAlloc_v2(&at, 3 * MIB));
	OK(cuStreamCreate(&stream, 0));
	OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 * MIB));
	CHECK(before - room() == 75 * MIB);
	OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
	CHECK(value == 16 * MIB);
	GIVES(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuCtxGetCurrent(&current));
	CHECK(current == second);
	OK(cuCtxPopCurrent_v2(&current));
	OK(cuCtxPushCurrent_v2(second));
	OK(cuCtxPushCurrent_v2(first));
	OK(cuCtxDestroy_v2(second)); /* takes everything along; it lies below the top */
	CHECK(room() == before);
	GIVES(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
	OK(cuCtxPopCurrent_v2(&current));
	GIVES(cuMemAlloc_v2(&at, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	GIVES(cuCtxPushCurrent_v2(second), CUDA_ERROR_INVALID_CONTEXT);
	GIVES(cuCtxDestroy_v2(second), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxSetCurrent(first));
	OK(cuCtxDestroy_v2(first));
	/* a primary context comes back under the same handle */
	OK(cuDevicePrimaryCtxRetain(&first, 0));
	OK(cuDevicePrimaryCtxRetain(&second, 0));
	CHECK(first == second);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuCtxSetCurrent(first));
	OK(cuMemAlloc_v2(&at, 1));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	GIVES(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
	GIVES(cuMemAlloc_v2(&at, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	OK(cuDevicePrimaryCtxRetain(&second, 0));
	CHECK(second == first);
	OK(cuMemAlloc_v2(&at, 1));
}

/* a child of a program that has the driver open gets nothing from it */
static void forked(void)
{
	int status = 0;
	CUdeviceptr at = 0;

	start();
	OK(cuMemAlloc_v2(&at, MIB));
	pid_t child = fork();

	if (child == 0) {
		GIVES(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
		GIVES(cuMemAlloc_v2(&at, 1), CUDA_ERROR_NOT_INITIALIZED);
		GIVES(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	OK(cuMemFree_v2(at));
}

static void send_fd(int socket, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	char byte = 0;
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(int));
	CHECK(sendmsg(socket, &message, 0) == 1);
}

static int receive_fd(int socket)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	char byte = 0;
	int fd = -1;
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };

	CHECK(recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return fd;
}

/* what the two processes of the next test tell each other */
struct shared_things {
	CUipcMemHandle memory;
	CUipcEventHandle event;
	CUmemPoolPtrExportData pointer;
};

static void importer(int socket)
{
	struct shared_things things;
	CUdeviceptr at = 0, again = 0, range = 0, pooled = 0;
	CUmemGenericAllocationHandle handle = 0;
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemoryPool pool = NULL;
	CUevent event = NULL;
	uint32_t word = 0;
	char byte = 0;

	start();
	CHECK(read(socket, &things, sizeof(things)) == sizeof(things));
	OK(cuIpcOpenMemHandle_v2(&at, things.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuIpcOpenMemHandle_v2(&again, things.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(at == again);
	OK(cuMemcpyDtoH_v2(&word, at + 4, 4));
	CHECK(word == 0x11111111);
	OK(cuMemsetD32_v2(at, 0x22222222, 1));
	GIVES(cuMemcpyDtoH_v2(&word, at + 5000, 4), CUDA_ERROR_INVALID_VALUE); /* only the block itself */
	GIVES(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
	OK(cuIpcCloseMemHandle(at));
	OK(cuIpcCloseMemHandle(at));
	GIVES(cuIpcCloseMemHandle(at), CUDA_ERROR_INVALID_VALUE);
	OK(cuIpcOpenEventHandle(&event, things.event));
	OK(cuEventSynchronize(event));
	OK(cuEventDestroy_v2(event));
	OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)receive_fd(socket),
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	OK(cuMemAddressReserve(&range, 2 * MIB, 0, 0, 0));
	OK(cuMemMap(range, 2 * MIB, 0, handle, 0));
	OK(cuMemRelease(handle));
	OK(cuMemSetAccess(range, 2 * MIB, &access, 1));
	OK(cuMemcpyDtoH_v2(&word, range + MIB, 4));
	CHECK(word == 0x33333333);
	OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)receive_fd(socket),
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemPoolImportPointer(&pooled, pool, &things.pointer));
	OK(cuMemcpyDtoH_v2(&word, pooled, 4));
	CHECK(word == 0x44444444);
	GIVES(cuMemAllocFromPoolAsync(&at, 1, pool, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFreeAsync(pooled, NULL));
	CHECK(write(socket, &byte, 1) == 1);
	CHECK(read(socket, &byte, 1) == 1); /* the maker has let go of everything */
	OK(cuMemUnmap(range, 2 * MIB));
	OK(cuMemPoolDestroy(pool));
	_exit(0);
}

static void between_processes(void)
{
	struct shared_things things = { 0 };
	CUmemGenericAllocationHandle handle = 0;
	CUmemAllocationProp props = physical();
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	const CUmemPoolProps poolprops = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
	};
	CUmemoryPool pool = NULL;
	CUdeviceptr at = 0, other = 0, range = 0, pooled = 0;
	CUevent event = NULL;
	uint32_t word = 0;
	int sockets[2], status = 0, fd = -1;
	char byte = 0;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
	pid_t child = fork(); /* before the driver is opened */

	if (child == 0)
		importer(sockets[1]);
	start();
	OK(cuMemAlloc_v2(&other, 100));
	OK(cuMemAlloc_v2(&at, 5000));
	OK(cuMemsetD32_v2(at, 0x11111111, 1250));
	OK(cuIpcGetMemHandle(&things.memory, at));
	GIVES(cuIpcOpenMemHandle_v2(&range, things.memory, 1), CUDA_ERROR_INVALID_CONTEXT); /* its own */
	OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	OK(cuIpcGetEventHandle(&things.event, event));
	OK(cuMemPoolCreate(&pool, &poolprops));
	OK(cuMemAllocFromPoolAsync(&pooled, 100, pool, NULL));
	OK(cuMemsetD32_v2(pooled, 0x44444444, 25));
	int poolfd = -1;

	OK(cuMemPoolExportToShareableHandle(&poolfd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemPoolExportPointer(&things.pointer, pooled));
	CHECK(write(sockets[0], &things, sizeof(things)) == sizeof(things));
	OK(cuMemCreate(&handle, 2 * MIB, &props, 0));
	OK(cuMemAddressReserve(&range, 2 * MIB, 0, 0, 0));
	OK(cuMemMap(range, 2 * MIB, 0, handle, 0));
	OK(cuMemSetAccess(range, 2 * MIB, &access, 1));
	OK(cuMemsetD32_v2(range, 0x33333333, 2 * MIB / 4));
	OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	send_fd(sockets[0], fd);
	send_fd(sockets[0], poolfd);
	close(fd);
	close(poolfd);
	CHECK(read(sockets[0], &byte, 1) == 1);
	OK(cuMemcpyDtoH_v2(&word, at, 4));
	CHECK(word == 0x22222222); /* written over there */
	uint64_t held = room();

	OK(cuMemUnmap(range, 2 * MIB));
	OK(cuMemRelease(handle));
	CHECK(room() == held); /* the other process has it mapped */
	CHECK(write(sockets[0], &byte, 1) == 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	EVENTUALLY(room() >= held + 2 * MIB + 64 * MIB, 10);
	OK(cuMemFree_v2(at));
	OK(cuMemFree_v2(other));
	OK(cuMemFreeAsync(pooled, NULL));
	OK(cuMemPoolDestroy(pool));
}

static void external(void)
{
	int fd = memfd_create("external", MFD_CLOEXEC);
	CUexternalMemory memory = NULL;
	CUdeviceptr at = 0;
	CUmipmappedArray mipmap = NULL;
	CUarray level = NULL;
	char text[16] = { 0 };

	CHECK(fd >= 0 && ftruncate(fd, 65536) == 0 && pwrite(fd, "from outside", 12, 5000) == 12);
	start();
	uint64_t before = room();
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {
		.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle = { .fd = fd }, .size = 1 << 20,
	};

	GIVES(cuImportExternalMemory(&memory, &desc), CUDA_ERROR_INVALID_VALUE); /* smaller than said */
	desc.size = 65536;
	OK(cuImportExternalMemory(&memory, &desc));
	const CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = { .offset = 5000, .size = 12 };

	OK(cuExternalMemoryGetMappedBuffer(&at, memory, &buffer));
	OK(cuMemcpyDtoH_v2(text, at, 12));
	CHECK(strcmp(text, "from outside") == 0);
	GIVES(cuMemcpyDtoH_v2(text, at, 13), CUDA_ERROR_INVALID_VALUE);
	const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC texels = {
		.offset = 8192, .numLevels = 1,
		.arrayDesc = { .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1 },
	};

	OK(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &texels));
	OK(cuDestroyExternalMemory(memory));
	OK(cuMipmappedArrayGetLevel(&level, mipmap, 0));
	OK(cuMemcpyHtoA_v2(level, 0, "texels", 6));
	OK(cuMemcpyAtoH_v2(text, level, 0, 6));
	CHECK(memcmp(text, "texels", 6) == 0);
	OK(cuMipmappedArrayDestroy(mipmap));
	OK(cuMemFree_v2(at));
	finish(before); /* it never cost the card anything */
}

static void two_cards(void)
{
	CUcontext first = NULL, second = NULL;
	CUdeviceptr here = 0, there = 0;
	uint32_t word = 0;
	int count = 0, can = 0;

	first = start();
	OK(cuDeviceGetCount(&count));
	CHECK(count == 2);
	OK(cuMemAlloc_v2(&here, 4096));
	OK(cuMemsetD32_v2(here, 77, 1024));
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	OK(cuCtxSetCurrent(second));
	OK(cuMemAlloc_v2(&there, 4096));
	OK(cuDeviceCanAccessPeer(&can, 0, 1));
	CHECK(can);
	OK(cuCtxEnablePeerAccess(first, 0));
	GIVES(cuCtxEnablePeerAccess(first, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	OK(cuMemcpyPeer(there, second, here, first, 4096));
	OK(cuMemcpyDtoH_v2(&word, there + 4092, 4));
	CHECK(word == 77);
	int device = -1;

	OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there));
	CHECK(device == 1);
	OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, here));
	CHECK(device == 0);
	GIVES(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&word),
	      CUDA_ERROR_INVALID_VALUE);
}

/* a program that closes all it has not opened keeps its memory, and what it
 * opens afterwards is left alone */
static void descriptors_closed(void)
{
	enum { BYTES = 1 << 20 };
	static unsigned char out[BYTES], in[BYTES];
	CUdeviceptr at = 0, more = 0, range = 0;
	CUmemGenericAllocationHandle handle = 0;
	CUmemAllocationProp props = physical();
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	int mine[8];

	start();
	OK(cuMemAlloc_v2(&at, BYTES));
	fill(out, BYTES);
	OK(cuMemcpyHtoD_v2(at, out, BYTES));
	OK(cuMemCreate(&handle, 2 * MIB, &props, 0));
	uint64_t before = room();

	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	for (size_t i = 0; i < COUNT(mine); i++) {
		mine[i] = memfd_create("mine", MFD_CLOEXEC);
		CHECK(mine[i] >= 0 && write(mine[i], out, BYTES) == BYTES);
	}
	OK(cuMemcpyDtoH_v2(in, at, BYTES));
	CHECK(memcmp(in, out, BYTES) == 0);
	OK(cuMemsetD8_v2(at, 0, BYTES)); /* stored as a hole */
	OK(cuMemAlloc_v2(&more, 3 * MIB));
	CHECK(before - room() == 3 * MIB);
	OK(cuMemFree_v2(more));
	OK(cuMemFree_v2(at));
	OK(cuMemAddressReserve(&range, 2 * MIB, 0, 0, 0));
	OK(cuMemMap(range, 2 * MIB, 0, handle, 0));
	OK(cuMemSetAccess(range, 2 * MIB, &access, 1));
	OK(cuMemcpyHtoD_v2(range + MIB, out, BYTES));
	OK(cuMemUnmap(range, 2 * MIB));
	OK(cuMemRelease(handle));
	CHECK(room() == before + 2 * MIB + BYTES);
	for (size_t i = 0; i < COUNT(mine); i++) {
		CHECK(pread(mine[i], in, BYTES, 0) == BYTES);
		CHECK(memcmp(in, out, BYTES) == 0);
	}
}

static const struct scenario list[] = {
	{ "held", held },
	{ "context_ends", context_ends },
	{ "forked", forked },
	{ "between_processes", between_processes },
	{ "external", external },
	{ "two_cards", two_cards },
	{ "descriptors_closed", descriptors_closed },
};

RUN_SCENARIOS(list)
