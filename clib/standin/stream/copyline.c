/* SPDX-License-Identifier: Apache-2.0 */
/* copyline.c: the copies of one run of bytes, in every direction. */
#include "memory/array.h"
#include "cuda/enter.h"
#include "cuda/stream.h"
#include "submit.h"

static CUDA_MEMCPY3D line(CUmemorytype from, uint64_t src, CUmemorytype to, uint64_t dst, size_t bytes)
{
	CUDA_MEMCPY3D copy = { .srcMemoryType = from, .dstMemoryType = to,
			       .WidthInBytes = bytes, .Height = 1, .Depth = 1 };

	if (from == CU_MEMORYTYPE_HOST)
		copy.srcHost = (const void *)(uintptr_t)src;
	else
		copy.srcDevice = src;
	if (to == CU_MEMORYTYPE_HOST)
		copy.dstHost = (void *)(uintptr_t)dst;
	else
		copy.dstDevice = dst;
	return copy;
}

static CUresult run(const CUDA_MEMCPY3D *copy, CUstream stream, bool wait)
{
	struct sd_work work = { .kind = SD_WORK_COPY, .copy = *copy };

	return sd_call_submit(stream, &work, wait);
}

static CUresult run_line(CUmemorytype from, uint64_t src, CUmemorytype to, uint64_t dst, size_t bytes,
			 CUstream stream, bool wait)
{
	const CUDA_MEMCPY3D copy = line(from, src, to, dst, bytes);

	return run(&copy, stream, wait);
}

/* The part of an array that offset and bytes name, counted along its rows:
 * inside one row, or whole rows. */
static CUresult rows(CUarray handle, size_t offset, size_t bytes, size_t *x, size_t *y, size_t *width,
		     size_t *height)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_array *array = sd_object_get(handle, SD_ARRAY);

	if (!array)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	size_t row = array->layout.columns * array->layout.elementbytes;

	*x = offset % row;
	*y = offset / row;
	*width = bytes;
	*height = 1;
	if (bytes > row - *x) {
		if (*x || bytes % row)
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
		*width = row;
		*height = bytes / row;
	}
	return sd_leave(CUDA_SUCCESS);
}

static CUresult to_array(CUarray array, size_t offset, CUmemorytype from, uint64_t src, size_t bytes,
			 CUstream stream, bool wait)
{
	CUDA_MEMCPY3D copy = line(from, src, CU_MEMORYTYPE_ARRAY, 0, bytes);

	copy.dstArray = array;
	CUresult result = rows(array, offset, bytes, &copy.dstXInBytes, &copy.dstY, &copy.WidthInBytes, &copy.Height);

	return result == CUDA_SUCCESS ? run(&copy, stream, wait) : result;
}

static CUresult from_array(CUmemorytype to, uint64_t dst, CUarray array, size_t offset, size_t bytes,
			   CUstream stream, bool wait)
{
	CUDA_MEMCPY3D copy = line(CU_MEMORYTYPE_ARRAY, 0, to, dst, bytes);

	copy.srcArray = array;
	CUresult result = rows(array, offset, bytes, &copy.srcXInBytes, &copy.srcY, &copy.WidthInBytes, &copy.Height);

	return result == CUDA_SUCCESS ? run(&copy, stream, wait) : result;
}

static CUresult array_to_array(CUarray dst, size_t dstoffset, CUarray src, size_t srcoffset, size_t bytes,
			       CUstream stream)
{
	CUDA_MEMCPY3D copy = line(CU_MEMORYTYPE_ARRAY, 0, CU_MEMORYTYPE_ARRAY, 0, bytes);
	size_t width = 0;
	size_t height = 0;

	copy.srcArray = src;
	copy.dstArray = dst;
	CUresult result = rows(src, srcoffset, bytes, &copy.srcXInBytes, &copy.srcY, &copy.WidthInBytes, &copy.Height);

	if (result == CUDA_SUCCESS)
		result = rows(dst, dstoffset, bytes, &copy.dstXInBytes, &copy.dstY, &width, &height);
	if (result == CUDA_SUCCESS && (width != copy.WidthInBytes || height != copy.Height))
		result = CUDA_ERROR_INVALID_VALUE;
	return result == CUDA_SUCCESS ? run(&copy, stream, true) : result;
}

#define HOST(p) CU_MEMORYTYPE_HOST, (uint64_t)(uintptr_t)(p)
#define DEVICE(p) CU_MEMORYTYPE_DEVICE, (p)
#define UNIFIED(p) CU_MEMORYTYPE_UNIFIED, (p)

/* A copy that waits, and its twin in the thread's own stream. */
#define WAITS(name, params, call, ...)                                                       \
	CUresult name params                                                                 \
	{                                                                                    \
		return call(__VA_ARGS__, NULL, true);                                        \
	}                                                                                    \
	CUresult name##_ptds params                                                          \
	{                                                                                    \
		return call(__VA_ARGS__, SD_STREAM_PER_THREAD, true);                        \
	}

/* A copy in a stream; params end with it. */
#define STREAMS(name, params, call, ...)                                                     \
	CUresult name params                                                                 \
	{                                                                                    \
		return call(__VA_ARGS__, hStream, false);                                    \
	}                                                                                    \
	CUresult name##_ptsz params                                                          \
	{                                                                                    \
		return call(__VA_ARGS__, sd_per_thread(hStream), false);                     \
	}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	return run_line(UNIFIED(src), UNIFIED(dst), ByteCount, NULL, true);
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	return run_line(UNIFIED(src), UNIFIED(dst), ByteCount, SD_STREAM_PER_THREAD, true);
}

STREAMS(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream), run_line, UNIFIED(src),
	UNIFIED(dst), ByteCount)
WAITS(cuMemcpyHtoD_v2, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount), run_line, HOST(srcHost),
      DEVICE(dstDevice), ByteCount)
WAITS(cuMemcpyDtoH_v2, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount), run_line, DEVICE(srcDevice),
      HOST(dstHost), ByteCount)
WAITS(cuMemcpyDtoD_v2, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount), run_line, DEVICE(srcDevice),
      DEVICE(dstDevice), ByteCount)
STREAMS(cuMemcpyHtoDAsync_v2, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream),
	run_line, HOST(srcHost), DEVICE(dstDevice), ByteCount)
STREAMS(cuMemcpyDtoHAsync_v2, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream), run_line,
	DEVICE(srcDevice), HOST(dstHost), ByteCount)
STREAMS(cuMemcpyDtoDAsync_v2, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
	run_line, DEVICE(srcDevice), DEVICE(dstDevice), ByteCount)

WAITS(cuMemcpyHtoA_v2, (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount), to_array, dstArray,
      dstOffset, HOST(srcHost), ByteCount)
WAITS(cuMemcpyDtoA_v2, (CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount), to_array,
      dstArray, dstOffset, DEVICE(srcDevice), ByteCount)
STREAMS(cuMemcpyHtoAAsync_v2,
	(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream), to_array,
	dstArray, dstOffset, HOST(srcHost), ByteCount)
WAITS(cuMemcpyAtoH_v2, (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount), from_array,
      HOST(dstHost), srcArray, srcOffset, ByteCount)
WAITS(cuMemcpyAtoD_v2, (CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount), from_array,
      DEVICE(dstDevice), srcArray, srcOffset, ByteCount)
STREAMS(cuMemcpyAtoHAsync_v2,
	(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream), from_array,
	HOST(dstHost), srcArray, srcOffset, ByteCount)

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	return array_to_array(dstArray, dstOffset, srcArray, srcOffset, ByteCount, NULL);
}

CUresult cuMemcpyAtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	return array_to_array(dstArray, dstOffset, srcArray, srcOffset, ByteCount, SD_STREAM_PER_THREAD);
}

static CUresult peer(CUdeviceptr dst, CUcontext dstcontext, CUdeviceptr src, CUcontext srccontext, size_t bytes,
		     CUstream stream, bool wait)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	bool known = sd_context_get(dstcontext) && sd_context_get(srccontext);

	sd_unlock();
	if (!known)
		return CUDA_ERROR_INVALID_CONTEXT;
	return run_line(DEVICE(src), DEVICE(dst), bytes, stream, wait);
}

WAITS(cuMemcpyPeer,
      (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount),
      peer, dstDevice, dstContext, srcDevice, srcContext, ByteCount)
STREAMS(cuMemcpyPeerAsync,
	(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount,
	 CUstream hStream),
	peer, dstDevice, dstContext, srcDevice, srcContext, ByteCount)
