/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy.c: the names from before CUDA 3.2, whose addresses and sizes have 32
 * bits. Device memory lies far above 4 GiB here, as on today's cards, so:
 *   what only takes sizes works (arrays, host memory, descriptors, copies
 *   between host memory and arrays);
 *   an answer that does not fit 32 bits is cut off at the largest one that does
 *   (cuDeviceTotalMem, cuMemGetInfo);
 *   what would have to hand out a device address fails with OUT_OF_MEMORY, and
 *   what is given one names no memory and fails with INVALID_VALUE.
 */
#include <string.h>

#include "enter.h"

static unsigned int cut(size_t value)
{
	return value > UINT32_MAX ? UINT32_MAX : (unsigned int)value;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	size_t wide = 0;
	CUresult result = cuDeviceTotalMem_v2(bytes ? &wide : NULL, dev);

	if (result == CUDA_SUCCESS)
		*bytes = cut(wide);
	return result;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total)
{
	size_t widefree = 0;
	size_t widetotal = 0;
	CUresult result = cuMemGetInfo_v2(free ? &widefree : NULL, total ? &widetotal : NULL);

	if (result == CUDA_SUCCESS) {
		*free = cut(widefree);
		*total = cut(widetotal);
	}
	return result;
}

/* the error of a call in a good state that cannot be served in 32 bits */
static CUresult no_address(bool valid)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	return result == CUDA_SUCCESS ? sd_leave(valid ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE) : result;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	return no_address(dptr && bytesize);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes, unsigned int Height,
			 unsigned int ElementSizeBytes)
{
	return no_address(dptr && pPitch && WidthInBytes && Height && ElementSizeBytes);
}

CUresult cuMemFree(CUdeviceptr_v1 dptr)
{
	return cuMemFree_v2(dptr);
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1 *pbase, unsigned int *psize, CUdeviceptr_v1 dptr)
{
	CUdeviceptr base = 0;
	size_t size = 0;
	CUresult result = cuMemGetAddressRange_v2(&base, &size, dptr);

	if (result != CUDA_SUCCESS)
		return result;
	if (pbase)
		*pbase = (CUdeviceptr_v1)base;
	if (psize)
		*psize = cut(size);
	return CUDA_SUCCESS;
}

CUresult cuMemAllocHost(void **pp, unsigned int bytesize)
{
	return cuMemAllocHost_v2(pp, bytesize);
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	return cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *pdptr, void *p, unsigned int Flags)
{
	CUdeviceptr wide = 0;
	CUresult result = cuMemHostGetDevicePointer_v2(pdptr ? &wide : NULL, p, Flags);

	if (result != CUDA_SUCCESS)
		return result;
	if (wide > UINT32_MAX)
		return CUDA_ERROR_NOT_SUPPORTED;
	*pdptr = (CUdeviceptr_v1)wide;
	return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal(CUdeviceptr_v1 *dptr, unsigned int *bytes, CUmodule hmod, const char *name)
{
	size_t size = 0;
	CUresult result = cuModuleGetGlobal_v2(NULL, &size, hmod, name);

	if (result != CUDA_SUCCESS)
		return result;
	if (dptr)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = cut(size);
	return CUDA_SUCCESS;
}

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)
{
	if (!pAllocateArray)
		return CUDA_ERROR_INVALID_VALUE;
	const CUDA_ARRAY_DESCRIPTOR wide = {
		pAllocateArray->Width, pAllocateArray->Height, pAllocateArray->Format, pAllocateArray->NumChannels,
	};

	return cuArrayCreate_v2(pHandle, &wide);
}

CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)
{
	if (!pAllocateArray)
		return CUDA_ERROR_INVALID_VALUE;
	const CUDA_ARRAY3D_DESCRIPTOR wide = {
		.Width = pAllocateArray->Width, .Height = pAllocateArray->Height, .Depth = pAllocateArray->Depth,
		.Format = pAllocateArray->Format, .NumChannels = pAllocateArray->NumChannels,
		.Flags = pAllocateArray->Flags,
	};

	return cuArray3DCreate_v2(pHandle, &wide);
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *pArrayDescriptor, CUarray hArray)
{
	CUDA_ARRAY_DESCRIPTOR wide;
	CUresult result = cuArrayGetDescriptor_v2(pArrayDescriptor ? &wide : NULL, hArray);

	if (result == CUDA_SUCCESS)
		*pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR_v1){
			cut(wide.Width), cut(wide.Height), wide.Format, wide.NumChannels,
		};
	return result;
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *pArrayDescriptor, CUarray hArray)
{
	CUDA_ARRAY3D_DESCRIPTOR wide;
	CUresult result = cuArray3DGetDescriptor_v2(pArrayDescriptor ? &wide : NULL, hArray);

	if (result == CUDA_SUCCESS)
		*pArrayDescriptor = (CUDA_ARRAY3D_DESCRIPTOR_v1){
			.Width = cut(wide.Width), .Height = cut(wide.Height), .Depth = cut(wide.Depth),
			.Format = wide.Format, .NumChannels = wide.NumChannels, .Flags = wide.Flags,
		};
	return result;
}

/* Copies of one run of bytes: the newer call with the arguments widened. */
#define WIDEN(name, newer, params, ...)                                                      \
	CUresult name params                                                                 \
	{                                                                                    \
		return newer(__VA_ARGS__);                                                   \
	}

WIDEN(cuMemcpyHtoD, cuMemcpyHtoD_v2, (CUdeviceptr_v1 dst, const void *src, unsigned int n), dst, src, n)
WIDEN(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *dst, CUdeviceptr_v1 src, unsigned int n), dst, src, n)
WIDEN(cuMemcpyDtoD, cuMemcpyDtoD_v2, (CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int n), dst, src, n)
WIDEN(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (CUdeviceptr_v1 dst, const void *src, unsigned int n, CUstream s), dst,
      src, n, s)
WIDEN(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr_v1 src, unsigned int n, CUstream s), dst, src, n,
      s)
WIDEN(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int n, CUstream s),
      dst, src, n, s)
WIDEN(cuMemcpyDtoA, cuMemcpyDtoA_v2, (CUarray dst, unsigned int offset, CUdeviceptr_v1 src, unsigned int n), dst,
      offset, src, n)
WIDEN(cuMemcpyAtoD, cuMemcpyAtoD_v2, (CUdeviceptr_v1 dst, CUarray src, unsigned int offset, unsigned int n), dst, src,
      offset, n)
WIDEN(cuMemcpyHtoA, cuMemcpyHtoA_v2, (CUarray dst, unsigned int offset, const void *src, unsigned int n), dst, offset,
      src, n)
WIDEN(cuMemcpyAtoH, cuMemcpyAtoH_v2, (void *dst, CUarray src, unsigned int offset, unsigned int n), dst, src, offset,
      n)
WIDEN(cuMemcpyAtoA, cuMemcpyAtoA_v2,
      (CUarray dst, unsigned int to, CUarray src, unsigned int from, unsigned int n), dst, to, src, from, n)
WIDEN(cuMemcpyHtoAAsync, cuMemcpyHtoAAsync_v2,
      (CUarray dst, unsigned int offset, const void *src, unsigned int n, CUstream s), dst, offset, src, n, s)
WIDEN(cuMemcpyAtoHAsync, cuMemcpyAtoHAsync_v2,
      (void *dst, CUarray src, unsigned int offset, unsigned int n, CUstream s), dst, src, offset, n, s)
WIDEN(cuMemsetD8, cuMemsetD8_v2, (CUdeviceptr_v1 dst, unsigned char value, unsigned int n), dst, value, n)
WIDEN(cuMemsetD16, cuMemsetD16_v2, (CUdeviceptr_v1 dst, unsigned short value, unsigned int n), dst, value, n)
WIDEN(cuMemsetD32, cuMemsetD32_v2, (CUdeviceptr_v1 dst, unsigned int value, unsigned int n), dst, value, n)
WIDEN(cuMemsetD2D8, cuMemsetD2D8_v2,
      (CUdeviceptr_v1 dst, unsigned int pitch, unsigned char value, unsigned int w, unsigned int h), dst, pitch, value,
      w, h)
WIDEN(cuMemsetD2D16, cuMemsetD2D16_v2,
      (CUdeviceptr_v1 dst, unsigned int pitch, unsigned short value, unsigned int w, unsigned int h), dst, pitch, value,
      w, h)
WIDEN(cuMemsetD2D32, cuMemsetD2D32_v2,
      (CUdeviceptr_v1 dst, unsigned int pitch, unsigned int value, unsigned int w, unsigned int h), dst, pitch, value,
      w, h)

static CUDA_MEMCPY2D widen2(const CUDA_MEMCPY2D_v1 *rect)
{
	return (CUDA_MEMCPY2D){
		.srcXInBytes = rect->srcXInBytes, .srcY = rect->srcY, .srcMemoryType = rect->srcMemoryType,
		.srcHost = rect->srcHost, .srcDevice = rect->srcDevice, .srcArray = rect->srcArray,
		.srcPitch = rect->srcPitch, .dstXInBytes = rect->dstXInBytes, .dstY = rect->dstY,
		.dstMemoryType = rect->dstMemoryType, .dstHost = rect->dstHost, .dstDevice = rect->dstDevice,
		.dstArray = rect->dstArray, .dstPitch = rect->dstPitch, .WidthInBytes = rect->WidthInBytes,
		.Height = rect->Height,
	};
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1 *pCopy)
{
	if (!pCopy)
		return CUDA_ERROR_INVALID_VALUE;
	const CUDA_MEMCPY2D wide = widen2(pCopy);

	return cuMemcpy2D_v2(&wide);
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1 *pCopy)
{
	return cuMemcpy2D(pCopy);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *pCopy, CUstream hStream)
{
	if (!pCopy)
		return CUDA_ERROR_INVALID_VALUE;
	const CUDA_MEMCPY2D wide = widen2(pCopy);

	return cuMemcpy2DAsync_v2(&wide, hStream);
}

static CUDA_MEMCPY3D widen3(const CUDA_MEMCPY3D_v1 *box)
{
	return (CUDA_MEMCPY3D){
		.srcXInBytes = box->srcXInBytes, .srcY = box->srcY, .srcZ = box->srcZ, .srcLOD = box->srcLOD,
		.srcMemoryType = box->srcMemoryType, .srcHost = box->srcHost, .srcDevice = box->srcDevice,
		.srcArray = box->srcArray, .srcPitch = box->srcPitch, .srcHeight = box->srcHeight,
		.dstXInBytes = box->dstXInBytes, .dstY = box->dstY, .dstZ = box->dstZ, .dstLOD = box->dstLOD,
		.dstMemoryType = box->dstMemoryType, .dstHost = box->dstHost, .dstDevice = box->dstDevice,
		.dstArray = box->dstArray, .dstPitch = box->dstPitch, .dstHeight = box->dstHeight,
		.WidthInBytes = box->WidthInBytes, .Height = box->Height, .Depth = box->Depth,
	};
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1 *pCopy)
{
	if (!pCopy)
		return CUDA_ERROR_INVALID_VALUE;
	const CUDA_MEMCPY3D wide = widen3(pCopy);

	return cuMemcpy3D_v2(&wide);
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *pCopy, CUstream hStream)
{
	if (!pCopy)
		return CUDA_ERROR_INVALID_VALUE;
	const CUDA_MEMCPY3D wide = widen3(pCopy);

	return cuMemcpy3DAsync_v2(&wide, hStream);
}
