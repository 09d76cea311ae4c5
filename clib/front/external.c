/* SPDX-License-Identifier: Apache-2.0 */
/*
 * external.c: memory of others, opened here.
 *
 * Rule: it costs nothing. Memory opened by IPC belongs to the process that
 * allocated it and is on that process's ledger; external memory (Vulkan,
 * Direct3D, NvSci) belongs to the exporter, which is on a ledger only if it
 * allocated through the CUDA driver. Addresses from here are in no table of
 * ours, so that cuMemFree, cuIpcCloseMemHandle and cuMipmappedArrayDestroy of
 * them go to the driver and refund nothing.
 *
 * The hooks do nothing today; they are the place where a share that may not
 * import from outside would be refused.
 */
#include "memory.h"
#include "front_hooks.h"

CUresult hook_cuIpcOpenMemHandle(enum divvy_symbol called, CUdeviceptr *pdptr, CUipcMemHandle handle,
				 unsigned int Flags)
{
	return REAL(called, cuIpcOpenMemHandle)(pdptr, handle, Flags);
}

CUresult hook_cuIpcOpenMemHandle_v2(enum divvy_symbol called, CUdeviceptr *pdptr, CUipcMemHandle handle,
				    unsigned int Flags)
{
	return REAL(called, cuIpcOpenMemHandle_v2)(pdptr, handle, Flags);
}

CUresult hook_cuIpcCloseMemHandle(enum divvy_symbol called, CUdeviceptr dptr)
{
	return REAL(called, cuIpcCloseMemHandle)(dptr);
}

CUresult hook_cuImportExternalMemory(enum divvy_symbol called, CUexternalMemory *extMem_out,
				     const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
	return REAL(called, cuImportExternalMemory)(extMem_out, memHandleDesc);
}

CUresult hook_cuDestroyExternalMemory(enum divvy_symbol called, CUexternalMemory extMem)
{
	return REAL(called, cuDestroyExternalMemory)(extMem);
}

CUresult hook_cuExternalMemoryGetMappedBuffer(enum divvy_symbol called, CUdeviceptr *devPtr,
					      CUexternalMemory extMem,
					      const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc)
{
	return REAL(called, cuExternalMemoryGetMappedBuffer)(devPtr, extMem, bufferDesc);
}

CUresult hook_cuExternalMemoryGetMappedMipmappedArray(enum divvy_symbol called, CUmipmappedArray *mipmap,
						      CUexternalMemory extMem,
						      const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *mipmapDesc)
{
	return REAL(called, cuExternalMemoryGetMappedMipmappedArray)(mipmap, extMem, mipmapDesc);
}
