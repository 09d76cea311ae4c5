/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c: the part of the null driver (cu*) whose answers matter to a caller.
 * Everything else only says success (calls.c). The null driver has one card
 * without memory: addresses are numbers that were never given before, and
 * nothing may be read or written there.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "null.h"

/* Both counters only grow; 2^20 per step of a handle would overflow after 10^13 calls. */
static uint64_t next_handle = 0x100000;
static uint64_t next_address = 0x700000000000ull;

static __thread CUcontext current;

#define PRIMARY ((CUcontext)0x10000)

unsigned long long null_handle(void)
{
	return __atomic_fetch_add(&next_handle, 16, __ATOMIC_RELAXED);
}

unsigned long long null_address(unsigned long long bytes)
{
	return __atomic_fetch_add(&next_address, (bytes + 511) & ~511ull, __ATOMIC_RELAXED);
}

/* Memory whose size matters for the distance between addresses. */

static CUresult allocate(CUdeviceptr *pointer, size_t bytes)
{
	if (!pointer || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*pointer = null_address(bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	return allocate(dptr, bytesize);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	(void)flags;
	return allocate(dptr, bytesize);
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	(void)hStream;
	return allocate(dptr, bytesize);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	(void)hStream;
	return allocate(dptr, bytesize);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	(void)pool;
	(void)hStream;
	return allocate(dptr, bytesize);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	(void)pool;
	(void)hStream;
	return allocate(dptr, bytesize);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes)
{
	(void)ElementSizeBytes;
	if (!pPitch)
		return CUDA_ERROR_INVALID_VALUE;
	*pPitch = (WidthInBytes + 511) & ~(size_t)511;
	return allocate(dptr, *pPitch * Height);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes, unsigned int Height, unsigned int ElementSizeBytes)
{
	(void)ElementSizeBytes;
	if (!dptr || !pPitch)
		return CUDA_ERROR_INVALID_VALUE;
	*pPitch = (WidthInBytes + 511) & ~511u;
	*dptr = (CUdeviceptr_v1)null_address((unsigned long long)*pPitch * Height) | 512;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	if (!dptr || !bytesize)
		return CUDA_ERROR_INVALID_VALUE;
	*dptr = (CUdeviceptr_v1)null_address(bytesize) | 512;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags)
{
	(void)alignment;
	(void)addr;
	(void)flags;
	return allocate(ptr, size);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	if (pbase)
		*pbase = dptr;
	if (psize)
		*psize = 512;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	(void)hGraph;
	(void)dependencies;
	(void)numDependencies;
	if (!phGraphNode || !nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	*phGraphNode = (CUgraphNode)null_handle();
	return allocate(&nodeParams->dptr, nodeParams->bytesize);
}

/* Host memory is real: programs use it. */

static CUresult allocate_host(void **pointer, size_t bytes)
{
	void *block;

	if (!pointer || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (posix_memalign(&block, 4096, bytes) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*pointer = block;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocHost(void **pp, unsigned int bytesize)
{
	return allocate_host(pp, bytesize);
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return allocate_host(pp, bytesize);
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	(void)Flags;
	return allocate_host(pp, bytesize);
}

CUresult cuMemFreeHost(void *p)
{
	free(p);
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	(void)Flags;
	if (!pdptr)
		return CUDA_ERROR_INVALID_VALUE;
	*pdptr = (CUdeviceptr)p;
	return CUDA_SUCCESS;
}

/* The card. */

CUresult cuDriverGetVersion(int *driverVersion)
{
	if (!driverVersion)
		return CUDA_ERROR_INVALID_VALUE;
	*driverVersion = NULL_VERSION;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = 1;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (ordinal != 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = 0;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
	if (!dev || !pciBusId)
		return CUDA_ERROR_INVALID_VALUE;
	*dev = 0;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	(void)dev;
	return null_copy(name, len, NULL_NAME) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
	(void)dev;
	return null_copy(pciBusId, len, NULL_PCI) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	(void)dev;
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < 16; i++)
		uuid->bytes[i] = (char)i;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	return cuDeviceGetUuid(uuid, dev);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	(void)dev;
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = NULL_MEMORY;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	(void)dev;
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = UINT32_MAX;
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	if (!free || !total)
		return CUDA_ERROR_INVALID_VALUE;
	*free = NULL_MEMORY;
	*total = NULL_MEMORY;
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total)
{
	if (!free || !total)
		return CUDA_ERROR_INVALID_VALUE;
	*free = UINT32_MAX;
	*total = UINT32_MAX;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
	(void)prop;
	(void)option;
	if (!granularity)
		return CUDA_ERROR_INVALID_VALUE;
	*granularity = 2 << 20;
	return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	(void)dev;
	if (!major || !minor)
		return CUDA_ERROR_INVALID_VALUE;
	*major = 9;
	*minor = 0;
	return CUDA_SUCCESS;
}

/* What programs divide by or size their launches with; the rest is 0. */
CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
	(void)dev;
	if (!pi)
		return CUDA_ERROR_INVALID_VALUE;
	switch ((int)attrib) {
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		*pi = 32;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
		*pi = 1024;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
		*pi = 64;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
		*pi = INT32_MAX;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
	case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
		*pi = 65535;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
		*pi = 48 << 10;
		break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*pi = 132;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		*pi = 2048;
		break;
	case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
	case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
		*pi = 512;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*pi = 9;
		break;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
		*pi = 1;
		break;
	default:
		*pi = 0;
	}
	return CUDA_SUCCESS;
}

/* Pools: the card has one, which is empty and keeps nothing. */

#define POOL ((CUmemoryPool)0x20000)

static CUresult card_pool(CUmemoryPool *pool)
{
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	*pool = POOL;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
	(void)dev;
	return card_pool(pool_out);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	(void)dev;
	return card_pool(pool);
}

/* Contexts: one primary, others numbered; the current one is per thread, without a stack. */

static CUresult create_context(CUcontext *context)
{
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	current = *context = (CUcontext)null_handle();
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	(void)flags;
	(void)dev;
	return create_context(pctx);
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	(void)flags;
	(void)dev;
	return create_context(pctx);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags, CUdevice dev)
{
	(void)paramsArray;
	(void)numParams;
	(void)flags;
	(void)dev;
	return create_context(pctx);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	(void)dev;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = PRIMARY;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = current ? current : PRIMARY;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	current = ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	current = ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
	CUresult result = pctx ? cuCtxGetCurrent(pctx) : CUDA_SUCCESS;

	current = NULL;
	return result;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
	(void)hStream;
	return cuCtxGetCurrent(pctx);
}

CUresult cuStreamGetCtx_ptsz(CUstream hStream, CUcontext *pctx)
{
	(void)hStream;
	return cuCtxGetCurrent(pctx);
}

/* Names. */

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_UNKNOWN";
	return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = error == CUDA_SUCCESS ? "no error" : "unknown error";
	return CUDA_SUCCESS;
}

CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	(void)pExportTableId;
	if (ppExportTable)
		*ppExportTable = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

static const struct meaning {
	const char *name;
	int symbol;
	int version;
	int twin;
} meanings[] = {
#include "procaddress.inc"
};

#define MEANINGS (sizeof(meanings) / sizeof(meanings[0]))

/* The first meaning of a name, or MEANINGS. */
static size_t first_meaning(const char *name)
{
	size_t low = 0, high = MEANINGS;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (strcmp(meanings[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < MEANINGS && strcmp(meanings[low].name, name) == 0 ? low : MEANINGS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags, CUdriverProcAddressQueryResult *symbolStatus)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	void *function = NULL;

	if (!symbol || !pfn)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = first_meaning(symbol); i < MEANINGS && strcmp(meanings[i].name, symbol) == 0; i++) {
		int wanted = meanings[i].symbol;

		if (!null_functions[wanted])
			continue; /* of a later generation */
		if (meanings[i].version > cudaVersion) {
			if (!function)
				status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
			break;
		}
		if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) && meanings[i].twin >= 0)
			wanted = meanings[i].twin;
		function = null_functions[wanted];
		status = CU_GET_PROC_ADDRESS_SUCCESS;
	}
	*pfn = function;
	if (symbolStatus)
		*symbolStatus = status;
	return function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);
}
