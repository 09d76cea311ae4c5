/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, cuMemFree, and what the card has left. */
#include "cuda/capture.h"
#include "cuda/enter.h"
#include "cuda/queue.h"
#include "memory.h"

static CUresult allocate(struct sd_context *context, enum sd_memory_kind kind, uint32_t chargedas, uint64_t bytes,
			 unsigned int flags, CUdeviceptr *address)
{
	struct sd_memory *memory = NULL;
	CUresult result = sd_capture_forbids();

	if (result == CUDA_SUCCESS)
		result = sd_linear_new(context, kind, chargedas, bytes, &memory);
	if (result != CUDA_SUCCESS)
		return result;
	memory->flags = flags;
	*address = memory->address;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!dptr || !bytesize)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return sd_leave(allocate(context, SD_LINEAR, DIVVY_SIM_KIND_LINEAR, bytesize, 0, dptr));
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
			    unsigned int ElementSizeBytes)
{
	struct sd_context *context = NULL;
	uint64_t pitch = 0;
	uint64_t bytes = 0;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!dptr || !pPitch || !WidthInBytes || !Height ||
	    (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (!sd_round(WidthInBytes, SD_UNIT, &pitch) || __builtin_mul_overflow(pitch, Height, &bytes))
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	result = allocate(context, SD_LINEAR, DIVVY_SIM_KIND_LINEAR, bytes, 0, dptr);
	if (result == CUDA_SUCCESS)
		*pPitch = pitch;
	return sd_leave(result);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!dptr || !bytesize || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return sd_leave(allocate(context, SD_MANAGED, DIVVY_SIM_KIND_MANAGED, bytesize, flags, dptr));
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct sd_memory *memory = NULL;
	CUresult result = sd_enter_idle();

	if (result != CUDA_SUCCESS)
		return result;
	if (!dptr)
		return sd_leave(CUDA_SUCCESS);
	result = sd_capture_forbids();
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	sd_stream_drain_all(); /* the hardware driver waits for the card here */
	result = sd_memory_returned(dptr, &memory);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (!memory)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	switch (memory->kind) {
	case SD_OPENED: /* a pool's pointer from another process; IPC handles are closed */
		if (!memory->owner)
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
		break;
	case SD_LINEAR:
	case SD_MANAGED:
	case SD_POOLED:
	case SD_GRAPHED:
	case SD_IMPORTED:
		break;
	default:
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	memory->end(memory);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	struct sd_context *context = NULL;
	uint64_t freebytes = 0;
	uint64_t totalbytes = 0;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!free || !total)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_error(sim_memory(context->card->index, &freebytes, &totalbytes));
	if (result == CUDA_SUCCESS) {
		*free = freebytes;
		*total = totalbytes;
	}
	return sd_leave(result);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_memory *memory = sd_memory_at(dptr);

	if (!memory)
		return sd_leave(CUDA_ERROR_NOT_FOUND);
	if (pbase)
		*pbase = memory->address;
	if (psize)
		*psize = memory->bytes;
	return sd_leave(CUDA_SUCCESS);
}
