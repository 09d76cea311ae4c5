/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear.c: hooks for linear, pitched and managed memory (the rule is in
 * alloc.c). Nothing is written to the program's variables on failure; a null
 * pointer or a size of zero goes to the driver, which knows what to say. The
 * names without a version are the 32-bit interface of before CUDA 3.2.
 *
 * Page-locked host memory (cuMemAllocHost, cuMemHostAlloc, cuMemHostRegister)
 * is not on the card: charged nothing, passed.
 */
#include "memory.h"
#include "front_hooks.h"

CUresult hook_cuMemAlloc_v2(enum divvy_symbol called, CUdeviceptr *dptr, size_t bytesize)
{
	struct front_request request = {
		.sort = FRONT_LINEAR, .symbol = called, .call = "cuMemAlloc", .bytes = bytesize,
	};
	CUresult result;

	if (!dptr || !bytesize || !front_enter())
		return REAL(called, cuMemAlloc_v2)(dptr, bytesize);
	result = front_allocate(&request);
	if (result == CUDA_SUCCESS)
		*dptr = request.pointer;
	front_leave();
	return result;
}

CUresult hook_cuMemAlloc(enum divvy_symbol called, CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	struct front_request request = {
		.sort = FRONT_LINEAR_V1, .symbol = called, .call = "cuMemAlloc", .bytes = bytesize,
	};
	CUresult result;

	if (!dptr || !bytesize || !front_enter())
		return REAL(called, cuMemAlloc)(dptr, bytesize);
	result = front_allocate(&request);
	if (result == CUDA_SUCCESS)
		*dptr = (CUdeviceptr_v1)request.pointer;
	front_leave();
	return result;
}

CUresult hook_cuMemAllocManaged(enum divvy_symbol called, CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct front_request request = {
		.sort = FRONT_MANAGED, .symbol = called, .call = "cuMemAllocManaged", .bytes = bytesize,
		.flags = flags,
	};
	CUresult result;

	if (!dptr || !bytesize || !front_enter())
		return REAL(called, cuMemAllocManaged)(dptr, bytesize, flags);
	result = front_allocate(&request);
	if (result == CUDA_SUCCESS)
		*dptr = request.pointer;
	front_leave();
	return result;
}

CUresult hook_cuMemAllocPitch_v2(enum divvy_symbol called, CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
				 size_t Height, unsigned int ElementSizeBytes)
{
	struct front_request request = {
		.sort = FRONT_PITCH, .symbol = called, .call = "cuMemAllocPitch", .bytes = WidthInBytes,
		.rows = Height, .element = ElementSizeBytes,
	};
	CUresult result;

	if (!dptr || !pPitch || !WidthInBytes || !Height || !front_enter())
		return REAL(called, cuMemAllocPitch_v2)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	result = front_allocate(&request);
	if (result == CUDA_SUCCESS) {
		*dptr = request.pointer;
		*pPitch = request.pitch;
	}
	front_leave();
	return result;
}

CUresult hook_cuMemAllocPitch(enum divvy_symbol called, CUdeviceptr_v1 *dptr, unsigned int *pPitch,
			      unsigned int WidthInBytes, unsigned int Height, unsigned int ElementSizeBytes)
{
	struct front_request request = {
		.sort = FRONT_PITCH_V1, .symbol = called, .call = "cuMemAllocPitch", .bytes = WidthInBytes,
		.rows = Height, .element = ElementSizeBytes,
	};
	CUresult result;

	if (!dptr || !pPitch || !WidthInBytes || !Height || !front_enter())
		return REAL(called, cuMemAllocPitch)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	result = front_allocate(&request);
	if (result == CUDA_SUCCESS) {
		*dptr = (CUdeviceptr_v1)request.pointer;
		*pPitch = (unsigned int)request.pitch;
	}
	front_leave();
	return result;
}

static CUresult give_v2(uint64_t address, enum divvy_symbol called)
{
	return REAL(called, cuMemFree_v2)(address);
}

static CUresult give_v1(uint64_t address, enum divvy_symbol called)
{
	return REAL(called, cuMemFree)((CUdeviceptr_v1)address);
}

CUresult hook_cuMemFree_v2(enum divvy_symbol called, CUdeviceptr dptr)
{
	CUresult result;

	if (!front_enter())
		return REAL(called, cuMemFree_v2)(dptr);
	result = front_free(dptr, give_v2, called);
	front_leave();
	return result;
}

CUresult hook_cuMemFree(enum divvy_symbol called, CUdeviceptr_v1 dptr)
{
	CUresult result;

	if (!front_enter())
		return REAL(called, cuMemFree)(dptr);
	result = front_free(dptr, give_v1, called);
	front_leave();
	return result;
}
