/* SPDX-License-Identifier: Apache-2.0 */
/* copybox.c: copies of rectangles and boxes, and batches of copies. */
#include "memory/array.h"
#include "cuda/enter.h"
#include "cuda/stream.h"
#include "submit.h"

static CUresult run(const CUDA_MEMCPY3D *copy, CUstream stream, bool wait)
{
	struct sd_work work = { .kind = SD_WORK_COPY, .copy = *copy };

	return sd_call_submit(stream, &work, wait);
}

static CUresult rectangle(const CUDA_MEMCPY2D *rect, CUstream stream, bool wait)
{
	if (!rect)
		return CUDA_ERROR_INVALID_VALUE;
	const CUDA_MEMCPY3D copy = {
		.srcXInBytes = rect->srcXInBytes, .srcY = rect->srcY, .srcMemoryType = rect->srcMemoryType,
		.srcHost = rect->srcHost, .srcDevice = rect->srcDevice, .srcArray = rect->srcArray,
		.srcPitch = rect->srcPitch, .dstXInBytes = rect->dstXInBytes, .dstY = rect->dstY,
		.dstMemoryType = rect->dstMemoryType, .dstHost = rect->dstHost, .dstDevice = rect->dstDevice,
		.dstArray = rect->dstArray, .dstPitch = rect->dstPitch, .WidthInBytes = rect->WidthInBytes,
		.Height = rect->Height, .Depth = 1,
	};

	return run(&copy, stream, wait);
}

static CUresult box(const CUDA_MEMCPY3D *copy, CUstream stream, bool wait)
{
	return copy ? run(copy, stream, wait) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult peer(const CUDA_MEMCPY3D_PEER *box, CUstream stream, bool wait)
{
	if (!box)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	bool known = sd_context_get(box->srcContext) && sd_context_get(box->dstContext);

	sd_unlock();
	if (!known)
		return CUDA_ERROR_INVALID_CONTEXT;
	const CUDA_MEMCPY3D copy = {
		.srcXInBytes = box->srcXInBytes, .srcY = box->srcY, .srcZ = box->srcZ, .srcLOD = box->srcLOD,
		.srcMemoryType = box->srcMemoryType, .srcHost = box->srcHost, .srcDevice = box->srcDevice,
		.srcArray = box->srcArray, .srcPitch = box->srcPitch, .srcHeight = box->srcHeight,
		.dstXInBytes = box->dstXInBytes, .dstY = box->dstY, .dstZ = box->dstZ, .dstLOD = box->dstLOD,
		.dstMemoryType = box->dstMemoryType, .dstHost = box->dstHost, .dstDevice = box->dstDevice,
		.dstArray = box->dstArray, .dstPitch = box->dstPitch, .dstHeight = box->dstHeight,
		.WidthInBytes = box->WidthInBytes, .Height = box->Height, .Depth = box->Depth,
	};

	return run(&copy, stream, wait);
}

#define WAITS(name, type, call)                                                              \
	CUresult name(const type *pCopy)                                                     \
	{                                                                                    \
		return call(pCopy, NULL, true);                                              \
	}                                                                                    \
	CUresult name##_ptds(const type *pCopy)                                              \
	{                                                                                    \
		return call(pCopy, SD_STREAM_PER_THREAD, true);                              \
	}
#define STREAMS(name, type, call)                                                            \
	CUresult name(const type *pCopy, CUstream hStream)                                   \
	{                                                                                    \
		return call(pCopy, hStream, false);                                          \
	}                                                                                    \
	CUresult name##_ptsz(const type *pCopy, CUstream hStream)                            \
	{                                                                                    \
		return call(pCopy, sd_per_thread(hStream), false);                           \
	}

WAITS(cuMemcpy2D_v2, CUDA_MEMCPY2D, rectangle)
WAITS(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, rectangle)
WAITS(cuMemcpy3D_v2, CUDA_MEMCPY3D, box)
WAITS(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, peer)
STREAMS(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, rectangle)
STREAMS(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, box)
STREAMS(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, peer)

/* Batches may not go into the legacy stream. */
static CUresult batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count,
		      const CUmemcpyAttributes *attrs, const size_t *indices, size_t attrcount, size_t *failed,
		      CUstream stream)
{
	if (failed)
		*failed = SIZE_MAX;
	if (!dsts || !srcs || !sizes || !count || !stream || stream == SD_STREAM_LEGACY ||
	    (attrcount && (!attrs || !indices || indices[0] != 0)) || attrcount > count)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult result = sizes[i] ? cuMemcpyAsync(dsts[i], srcs[i], sizes[i], stream) : CUDA_ERROR_INVALID_VALUE;

		if (result != CUDA_SUCCESS) {
			if (failed)
				*failed = i;
			return result;
		}
	}
	return CUDA_SUCCESS;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
			    CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
			    CUstream hStream)
{
	return batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
			       CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
	return batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, NULL, hStream);
}

/* Row lengths and heights of pointer operands are in elements; the element is
 * the array's, or one byte between two pointers. */
static CUresult element_of(const CUmemcpy3DOperand *operand, size_t *bytes)
{
	if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY)
		return CUDA_SUCCESS;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_array *array = sd_object_get(operand->op.array.array, SD_ARRAY);

	if (array)
		*bytes = array->layout.elementbytes;
	return sd_leave(array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

static CUresult one_of_batch(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream)
{
	size_t element = 1;
	CUDA_MEMCPY3D copy = { .Height = op->extent.height, .Depth = op->extent.depth };
	CUresult result = element_of(&op->src, &element);

	if (result == CUDA_SUCCESS)
		result = element_of(&op->dst, &element);
	if (result != CUDA_SUCCESS)
		return result;
	copy.WidthInBytes = op->extent.width * element;
	if (op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		copy.srcArray = op->src.op.array.array;
		copy.srcXInBytes = op->src.op.array.offset.x * element;
		copy.srcY = op->src.op.array.offset.y;
		copy.srcZ = op->src.op.array.offset.z;
	} else {
		copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
		copy.srcDevice = op->src.op.ptr.ptr;
		copy.srcPitch = op->src.op.ptr.rowLength * element;
		copy.srcHeight = op->src.op.ptr.layerHeight;
	}
	if (op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		copy.dstArray = op->dst.op.array.array;
		copy.dstXInBytes = op->dst.op.array.offset.x * element;
		copy.dstY = op->dst.op.array.offset.y;
		copy.dstZ = op->dst.op.array.offset.z;
	} else {
		copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
		copy.dstDevice = op->dst.op.ptr.ptr;
		copy.dstPitch = op->dst.op.ptr.rowLength * element;
		copy.dstHeight = op->dst.op.ptr.layerHeight;
	}
	return run(&copy, stream, false);
}

static CUresult box_batch(size_t count, const CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed, unsigned long long flags,
			  CUstream stream)
{
	if (failed)
		*failed = SIZE_MAX;
	if (!count || !list || flags || !stream || stream == SD_STREAM_LEGACY)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult result = one_of_batch(&list[i], stream);

		if (result != CUDA_SUCCESS) {
			if (failed)
				*failed = i;
			return result;
		}
	}
	return CUDA_SUCCESS;
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags,
			      CUstream hStream)
{
	return box_batch(numOps, opList, failIdx, flags, hStream);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
				 CUstream hStream)
{
	return box_batch(numOps, opList, NULL, flags, hStream);
}

SD_PTSZ(cuMemcpyBatchAsync,
	(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
	 size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream),
	dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, sd_per_thread(hStream))
SD_PTSZ(cuMemcpyBatchAsync_v2,
	(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
	 size_t *attrsIdxs, size_t numAttrs, CUstream hStream),
	dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, sd_per_thread(hStream))
SD_PTSZ(cuMemcpy3DBatchAsync,
	(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags, CUstream hStream),
	numOps, opList, failIdx, flags, sd_per_thread(hStream))
SD_PTSZ(cuMemcpy3DBatchAsync_v2,
	(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream), numOps, opList,
	flags, sd_per_thread(hStream))
