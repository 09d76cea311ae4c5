/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range.c: advice and prefetching for managed memory. The simulated card reaches
 * host memory directly, so both are checked, accepted and without effect.
 */
#include <string.h>

#include "cuda/enter.h"
#include "memory.h"
#include "cuda/stream.h"

enum { CPU = -1, NOWHERE = -2 };

static bool managed(CUdeviceptr ptr, size_t count)
{
	const struct sd_memory *memory = sd_memory_at(ptr);

	return memory && memory->kind == SD_MANAGED && count && count <= memory->bytes - (ptr - memory->address);
}

static bool place(const CUmemLocation *location)
{
	switch ((int)location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return sd_card(location->id) != NULL;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return true;
	default:
		return false;
	}
}

static CUmemLocation location_of(CUdevice device)
{
	CUmemLocation location = { .type = device == CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
				   .id = device == CPU ? 0 : device };

	return location;
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	bool located = advice != CU_MEM_ADVISE_SET_READ_MOSTLY && advice != CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
		       advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;

	if ((unsigned int)advice < CU_MEM_ADVISE_SET_READ_MOSTLY ||
	    (unsigned int)advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY || !managed(devPtr, count))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (located && !place(&location))
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
	return cuMemAdvise_v2(devPtr, count, advice, location_of(device));
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
			       CUstream hStream)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_stream_of(hStream, &stream);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (flags || !managed(devPtr, count))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return sd_leave(place(&location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
	return cuMemPrefetchAsync_v2(devPtr, count, location_of(dstDevice), 0, hStream);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
				 size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
				 CUstream hStream)
{
	if (!dptrs || !sizes || !count || !prefetchLocs || !prefetchLocIdxs || !numPrefetchLocs || flags)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		size_t which = 0;

		while (which + 1 < numPrefetchLocs && prefetchLocIdxs[which + 1] <= i)
			which++;
		CUresult result = cuMemPrefetchAsync_v2(dptrs[i], sizes[i], prefetchLocs[which], 0, hStream);

		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_stream_of(hStream, &stream);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	const struct sd_memory *memory = sd_memory_from(dptr);

	if (!memory || memory->kind != SD_MANAGED || (length && length != memory->bytes) ||
	    (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE) ||
	    (flags == CU_MEM_ATTACH_SINGLE && stream->legacy))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
				size_t count)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!data || dataSize < 4 || dataSize % 4 || !managed(devPtr, count))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	int *values = data;

	switch (attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		values[0] = 0;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		values[0] = NOWHERE;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		for (size_t i = 0; i < dataSize / 4; i++)
			values[i] = NOWHERE;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		values[0] = CU_MEM_LOCATION_TYPE_INVALID;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		values[0] = 0;
		break;
	default:
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
				 size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
	if (!data || !dataSizes || !attributes || !numAttributes)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < numAttributes; i++) {
		CUresult result = cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count);

		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

SD_PTSZ(cuMemPrefetchAsync, (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream), devPtr, count,
	dstDevice, sd_per_thread(hStream))
SD_PTSZ(cuMemPrefetchAsync_v2,
	(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream), devPtr,
	count, location, flags, sd_per_thread(hStream))
SD_PTSZ(cuMemPrefetchBatchAsync,
	(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
	 size_t numPrefetchLocs, unsigned long long flags, CUstream hStream),
	dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, sd_per_thread(hStream))
SD_PTSZ(cuStreamAttachMemAsync, (CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags),
	sd_per_thread(hStream), dptr, length, flags)
