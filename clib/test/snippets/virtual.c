/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual-memory handles: charged at create, given back when the last of handle and mappings goes. */
#include "snippet.h"

#include <unistd.h>

#ifndef CUDA_ARRAY3D_SPARSE
#define CUDA_ARRAY3D_SPARSE 0x40u
#endif

static const CUmemAllocationProp *property(void)
{
	static CUmemAllocationProp prop;

	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = snippet_run.device;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	return &prop;
}

static int map(uint64_t *address, size_t bytes, CUmemGenericAllocationHandle handle)
{
	CUdeviceptr range = 0;
	CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = snippet_run.device},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	int result = (int)DRIVER(cuMemAddressReserve)(&range, bytes, 0, 0, 0);

	if (result == 0)
		result = (int)DRIVER(cuMemMap)(range, bytes, 0, handle, 0);
	if (result == 0)
		result = (int)DRIVER(cuMemSetAccess)(range, bytes, &access, 1);
	*address = range;
	return result;
}

static int unmap(uint64_t address, size_t bytes)
{
	int result = (int)DRIVER(cuMemUnmap)(address, bytes);

	if (result == 0)
		result = (int)DRIVER(cuMemAddressFree)(address, bytes);
	return result;
}

static int take_handle(struct holding *h, size_t bytes)
{
	CUmemGenericAllocationHandle handle = (CUmemGenericAllocationHandle)(uintptr_t)h->handle;
	int result = (int)DRIVER(cuMemCreate)(&handle, bytes, property(), 0);

	h->handle = (void *)(uintptr_t)handle;
	return result;
}

static int give_handle(struct holding *h)
{
	return (int)DRIVER(cuMemRelease)((CUmemGenericAllocationHandle)(uintptr_t)h->handle);
}

/* The same, mapped, so that the data can be looked at. */
static int take_mapped(struct holding *h, size_t bytes)
{
	CUmemGenericAllocationHandle handle = 0;
	uint64_t address = 0;
	int result = (int)DRIVER(cuMemCreate)(&handle, bytes, property(), 0);

	if (result != 0)
		return result;
	result = map(&address, bytes, handle);
	h->address = address;
	h->bytes = bytes;
	h->handle = (void *)(uintptr_t)handle;
	return result;
}

static int give_mapped(struct holding *h)
{
	int result = unmap(h->address, h->bytes);

	return result ? result : give_handle(h);
}

static const struct allocator allocators[] = {
	ALLOCATOR(cuMemCreate, take_handle, give_handle, COST_EXACT, DATA_NONE),
	ALLOCATOR(cuMemMap, take_mapped, give_mapped, COST_EXACT, DATA_LINEAR),
};

/* Released while mapped: the memory is the mapping's and still counts. */
static void release(void)
{
	CUmemGenericAllocationHandle handle = 0;
	uint64_t before = snippet_room(), address = 0;
	const size_t bytes = 16 * MIB;

	OK(DRIVER(cuMemCreate)(&handle, bytes, property(), 0));
	OK(map(&address, bytes, handle));
	OK(DRIVER(cuMemRelease)(handle));
	EQUAL(before - snippet_room(), bytes);
	OK(snippet_linear_data(address, bytes));
	OK(unmap(address, bytes));
	EQUAL(snippet_room(), before);
}

/* Two mappings of one handle count once; the last unmap gives it back. */
static void unmap_last(void)
{
	CUmemGenericAllocationHandle handle = 0;
	uint64_t before = snippet_room(), one = 0, two = 0;
	const size_t bytes = 16 * MIB;

	OK(DRIVER(cuMemCreate)(&handle, bytes, property(), 0));
	OK(map(&one, bytes, handle));
	OK(map(&two, bytes, handle));
	EQUAL(before - snippet_room(), bytes);
	OK(DRIVER(cuMemRelease)(handle));
	OK(unmap(one, bytes));
	EQUAL(before - snippet_room(), bytes);
	OK(unmap(two, bytes));
	EQUAL(snippet_room(), before);
}

/* Unmapping while the handle lives gives nothing back. */
static void unmap_first(void)
{
	CUmemGenericAllocationHandle handle = 0;
	uint64_t before = snippet_room(), address = 0;
	const size_t bytes = 16 * MIB;

	OK(DRIVER(cuMemCreate)(&handle, bytes, property(), 0));
	OK(map(&address, bytes, handle));
	OK(unmap(address, bytes));
	EQUAL(before - snippet_room(), bytes);
	OK(DRIVER(cuMemRelease)(handle));
	EQUAL(snippet_room(), before);
}

/* A retained handle is one more reference to the same memory. */
static void retain(void)
{
	CUmemGenericAllocationHandle handle = 0, again = 0;
	uint64_t before = snippet_room(), address = 0;
	const size_t bytes = 16 * MIB;

	OK(DRIVER(cuMemCreate)(&handle, bytes, property(), 0));
	OK(map(&address, bytes, handle));
	OK(DRIVER(cuMemRetainAllocationHandle)(&again, (void *)(uintptr_t)address));
	EQUAL(before - snippet_room(), bytes);
	OK(DRIVER(cuMemRelease)(handle));
	OK(unmap(address, bytes));
	EQUAL(before - snippet_room(), bytes);
	OK(DRIVER(cuMemRelease)(again));
	EQUAL(snippet_room(), before);
}

/* Imported from this process's own export: the same memory, charged once. */
static void import(void)
{
	CUmemGenericAllocationHandle handle = 0, imported = 0;
	uint64_t before = snippet_room();
	const size_t bytes = 16 * MIB;
	int fd = -1;

	OK(DRIVER(cuMemCreate)(&handle, bytes, property(), 0));
	OK(DRIVER(cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(DRIVER(cuMemImportFromShareableHandle)(&imported, (void *)(uintptr_t)fd,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	EQUAL(before - snippet_room(), bytes);
	OK(DRIVER(cuMemRelease)(handle));
	OK(DRIVER(cuMemRelease)(imported));
	close(fd);
	/* An open export is a holder too; the driver sees its end in its own time. */
	CHECK(snippet_room_back(before));
}

/* Backs part of a sparse array: the tiles are the handle's memory. */
static void map_array_with(__typeof__(&cuMemMapArrayAsync) call)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor = {
		.Width = 8192,
		.Height = 8192,
		.Format = CU_AD_FORMAT_FLOAT,
		.NumChannels = 1,
		.Flags = CUDA_ARRAY3D_SPARSE,
	};
	CUDA_ARRAY_SPARSE_PROPERTIES tiles = {0};
	CUmemGenericAllocationHandle handle = 0;
	CUarrayMapInfo info = {0};
	CUarray array = NULL;
	uint64_t before = snippet_room();
	const size_t bytes = 2 * MIB;

	CUresult result = DRIVER(cuArray3DCreate_v2)(&array, &descriptor);

	if (result == CUDA_ERROR_NOT_SUPPORTED) {
		/* No sparse arrays: the driver's own refusal comes through. */
		CHECK(call(&info, 1, NULL) != CUDA_SUCCESS);
		EQUAL(snippet_room(), before);
		return;
	}
	OK(result);
	OK(DRIVER(cuArrayGetSparseProperties)(&tiles, array));
	OK(DRIVER(cuMemCreate)(&handle, bytes, property(), 0));
	info.resourceType = CU_RESOURCE_TYPE_ARRAY;
	info.resource.array = array;
	info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
	info.subresource.sparseLevel.extentWidth = tiles.tileExtent.width;
	info.subresource.sparseLevel.extentHeight = tiles.tileExtent.height;
	info.subresource.sparseLevel.extentDepth = 1;
	info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
	info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
	info.memHandle.memHandle = handle;
	info.deviceBitMask = 1u << snippet_run.device;
	OK(call(&info, 1, NULL));
	OK(DRIVER(cuMemRelease)(handle));
	EQUAL(before - snippet_room(), bytes);
	info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
	info.memHandle.memHandle = 0;
	OK(call(&info, 1, NULL));
	OK(DRIVER(cuArrayDestroy)(array));
	EQUAL(snippet_room(), before);
}

static void map_array(void)
{
	map_array_with(DRIVER(cuMemMapArrayAsync));
}

static void map_array_ptsz(void)
{
	map_array_with(DRIVER(cuMemMapArrayAsync_ptsz));
}

/* Makes a multicast object, or checks that a driver without them refuses all of it and takes nothing. */
static bool no_multicast(CUmemGenericAllocationHandle *object, const CUmulticastObjectProp *prop)
{
	uint64_t before = snippet_room();
	CUresult result = DRIVER(cuMulticastCreate)(object, prop);

	if (result == CUDA_SUCCESS)
		return false;
	if (result != CUDA_ERROR_NOT_SUPPORTED ||
	    DRIVER(cuMulticastBindMem)(1, 0, 1, 0, prop->size, 0) == CUDA_SUCCESS ||
	    DRIVER(cuMulticastBindAddr)(1, 0, 4096, prop->size, 0) == CUDA_SUCCESS ||
	    DRIVER(cuMulticastUnbind)(1, snippet_run.device, 0, prop->size) == CUDA_SUCCESS ||
	    snippet_room() != before)
		snippet_fail(__FILE__, __LINE__, "cuMulticastCreate = %d", (int)result);
	return true;
}

enum how { BY_MEMORY, BY_MEMORY_2, BY_ADDRESS, BY_ADDRESS_2 };

static CUresult bind(enum how how, uint64_t object, uint64_t what, size_t size)
{
	switch (how) {
	case BY_MEMORY:
		return DRIVER(cuMulticastBindMem)(object, 0, what, 0, size, 0);
	case BY_MEMORY_2:
		return DRIVER(cuMulticastBindMem_v2)(object, snippet_run.device, 0, what, 0, size, 0);
	case BY_ADDRESS:
		return DRIVER(cuMulticastBindAddr)(object, 0, what, size, 0);
	default:
		return DRIVER(cuMulticastBindAddr_v2)(object, snippet_run.device, 0, what, size, 0);
	}
}

/* A multicast object has no memory of its own; what is bound to it is counted already. */
static void multicast_memory(enum how how)
{
	CUmulticastObjectProp prop = {
		.numDevices = 1,
		.size = 16 * MIB,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	};
	CUmemGenericAllocationHandle object = 0, handle = 0;
	uint64_t before = snippet_room();

	if (no_multicast(&object, &prop))
		return;
	EQUAL(snippet_room(), before);
	OK(DRIVER(cuMulticastAddDevice)(object, snippet_run.device));
	OK(DRIVER(cuMemCreate)(&handle, prop.size, property(), 0));
	OK(bind(how, object, handle, prop.size));
	EQUAL(before - snippet_room(), prop.size);
	/* The binding holds the memory when its handle is released. */
	OK(DRIVER(cuMemRelease)(handle));
	EQUAL(before - snippet_room(), prop.size);
	OK(DRIVER(cuMulticastUnbind)(object, snippet_run.device, 0, prop.size));
	OK(DRIVER(cuMemRelease)(object));
	EQUAL(snippet_room(), before);
}

static void multicast_mapped(enum how how)
{
	CUmulticastObjectProp prop = {
		.numDevices = 1,
		.size = 16 * MIB,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	};
	CUmemGenericAllocationHandle object = 0, handle = 0;
	uint64_t before = snippet_room(), address = 0;

	if (no_multicast(&object, &prop))
		return;
	OK(DRIVER(cuMulticastAddDevice)(object, snippet_run.device));
	OK(DRIVER(cuMemCreate)(&handle, prop.size, property(), 0));
	OK(map(&address, prop.size, handle));
	OK(bind(how, object, address, prop.size));
	EQUAL(before - snippet_room(), prop.size);
	OK(DRIVER(cuMemRelease)(handle));
	OK(unmap(address, prop.size));
	EQUAL(before - snippet_room(), prop.size);
	OK(DRIVER(cuMulticastUnbind)(object, snippet_run.device, 0, prop.size));
	OK(DRIVER(cuMemRelease)(object));
	EQUAL(snippet_room(), before);
}

static void multicast(void)
{
	multicast_memory(BY_MEMORY);
}

static void multicast_2(void)
{
	multicast_memory(BY_MEMORY_2);
}

static void multicast_address(void)
{
	multicast_mapped(BY_ADDRESS);
}

static void multicast_address_2(void)
{
	multicast_mapped(BY_ADDRESS_2);
}

static const struct snippet snippets[] = {
	SNIPPET(cuMemRelease, release),
	SNIPPET(cuMemUnmap, unmap_last),
	SNIPPET(cuMemUnmap, unmap_first),
	SNIPPET(cuMemRetainAllocationHandle, retain),
	SNIPPET(cuMemImportFromShareableHandle, import),
	SNIPPET(cuMemMapArrayAsync, map_array),
	SNIPPET(cuMemMapArrayAsync_ptsz, map_array_ptsz),
	SNIPPET(cuMulticastCreate, multicast),
	SNIPPET(cuMulticastBindMem, multicast),
	SNIPPET(cuMulticastBindAddr, multicast_address),
	SNIPPET(cuMulticastBindMem_v2, multicast_2),
	SNIPPET(cuMulticastBindAddr_v2, multicast_address_2),
	SNIPPET(cuMulticastUnbind, multicast_address),
};

const struct area area_virtual = {
	.name = "virtual",
	.allocators = allocators,
	.allocators_count = COUNT(allocators),
	.snippets = snippets,
	.snippets_count = COUNT(snippets),
};
