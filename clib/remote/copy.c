/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c: copies with one end on the host. What goes to the GPU is taken before the call
 * returns, in parts of a frame each; what comes is waited for.
 *
 * Parts of a copy are calls of their own on the same stream, so nothing else of this
 * stream comes between them and whoever waits for the last has waited for all.
 */
#include "remote.h"

#include "payload.h"

struct host_copy {
	unsigned int number; /* the call */
	uint64_t device;     /* address, or array */
	uint64_t offset;     /* in the array */
	bool array, async;
	uint64_t stream;
};

/* To the GPU. wait: the last part's result is waited for. */
static CUresult upload(const struct host_copy *copy, const void *from, size_t bytes, bool wait)
{
	struct remote_lane *lane;
	CUresult result = remote_ready(&lane);
	uint32_t twin = lane ? lane->twin : 0;
	size_t done = 0;

	if (result != CUDA_SUCCESS)
		return result;
	if (!from && bytes)
		return CUDA_ERROR_INVALID_VALUE;
	do {
		size_t part = bytes - done < COPY_BYTES ? bytes - done : COPY_BYTES;
		const struct call_copy want = {
			.device = copy->array ? copy->device : copy->device + done,
			.offset = copy->array ? copy->offset + done : 0,
			.bytes = part,
			.stream = copy->stream,
		};

		if (!remote_begin(lane) || !remote_put(&lane->out, &want, sizeof(want)) ||
		    !remote_put(&lane->out, (const uint8_t *)from + done, part))
			return CUDA_ERROR_OUT_OF_MEMORY;
		lane->twin = twin;
		done += part;
		result = (CUresult)(wait && done == bytes ? remote_finish(lane, copy->number) : remote_finish_one_way(lane, copy->number));
	} while (result == CUDA_SUCCESS && done < bytes);
	return result;
}

void remote_settled(struct remote_lane *lane, uint64_t stream, uint32_t twin)
{
	lane->settled.sent = remote_sent();
	lane->settled.stream = stream;
	lane->settled.context = remote_current(lane);
	lane->settled.twin = twin;
}

/* After a copy to the host that was waited for, and before anything else is sent, there is
 * nothing to wait for. */
EXPORT CUresult cuStreamSynchronize(CUstream hStream)
{
	const uint64_t values[] = { WORD(hStream) };
	struct remote_lane *lane;
	CUresult result = remote_ready(&lane);

	if (result == CUDA_SUCCESS && lane->settled.sent == remote_sent() && lane->settled.stream == WORD(hStream) &&
	    lane->settled.context == remote_current(lane) && lane->settled.twin == lane->twin && !remote_strict())
		return (CUresult)remote_failure(lane);
	return (CUresult)remote_call(CALL_cuStreamSynchronize, result == CUDA_SUCCESS ? lane->twin : 0, values);
}

/* To the host: the bytes come in DATA frames before the reply. */
static CUresult download(const struct host_copy *copy, void *to, size_t bytes)
{
	struct remote_lane *lane;
	CUresult result = remote_ready(&lane);
	const struct call_copy want = { .device = copy->device, .offset = copy->offset, .bytes = bytes, .stream = copy->stream };

	if (result != CUDA_SUCCESS)
		return result;
	if (!to && bytes)
		return CUDA_ERROR_INVALID_VALUE;
	uint32_t twin = lane->twin;

	result = (CUresult)remote_read(lane, &(struct remote_copy){
		.number = copy->number, .payload = &want, .length = sizeof(want), .place = offsetof(struct call_copy, device),
		.span = copy->array ? 0 : bytes, .to = to, .bytes = bytes,
	});
	if (result == CUDA_SUCCESS && copy->async)
		remote_settled(lane, copy->stream, twin);
	return result;
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	const struct host_copy copy = { .number = CALL_cuMemcpyHtoD_v2, .device = dstDevice };

	return upload(&copy, srcHost, ByteCount, true);
}

EXPORT CUresult cuMemcpyHtoD(CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount)
{
	return cuMemcpyHtoD_v2(dstDevice, srcHost, ByteCount);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
	const struct host_copy copy = { .number = CALL_cuMemcpyHtoDAsync_v2, .device = dstDevice, .stream = WORD(hStream) };

	return upload(&copy, srcHost, ByteCount, false);
}

EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount, CUstream hStream)
{
	return cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream);
}

EXPORT CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount)
{
	const struct host_copy copy = { .number = CALL_cuMemcpyHtoA_v2, .device = WORD(dstArray), .offset = dstOffset, .array = true };

	return upload(&copy, srcHost, ByteCount, true);
}

EXPORT CUresult cuMemcpyHtoA(CUarray dstArray, unsigned int dstOffset, const void *srcHost, unsigned int ByteCount)
{
	return cuMemcpyHtoA_v2(dstArray, dstOffset, srcHost, ByteCount);
}

EXPORT CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream)
{
	const struct host_copy copy = {
		.number = CALL_cuMemcpyHtoAAsync_v2, .device = WORD(dstArray), .offset = dstOffset, .array = true, .stream = WORD(hStream),
	};

	return upload(&copy, srcHost, ByteCount, false);
}

EXPORT CUresult cuMemcpyHtoAAsync(CUarray dstArray, unsigned int dstOffset, const void *srcHost, unsigned int ByteCount,
				  CUstream hStream)
{
	return cuMemcpyHtoAAsync_v2(dstArray, dstOffset, srcHost, ByteCount, hStream);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	const struct host_copy copy = { .number = CALL_cuMemcpyDtoH_v2, .device = srcDevice };

	return download(&copy, dstHost, ByteCount);
}

EXPORT CUresult cuMemcpyDtoH(void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount)
{
	return cuMemcpyDtoH_v2(dstHost, srcDevice, ByteCount);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
	const struct host_copy copy = { .number = CALL_cuMemcpyDtoHAsync_v2, .device = srcDevice, .async = true, .stream = WORD(hStream) };

	return download(&copy, dstHost, ByteCount);
}

EXPORT CUresult cuMemcpyDtoHAsync(void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount, CUstream hStream)
{
	return cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
}

EXPORT CUresult cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	const struct host_copy copy = { .number = CALL_cuMemcpyAtoH_v2, .device = WORD(srcArray), .offset = srcOffset, .array = true };

	return download(&copy, dstHost, ByteCount);
}

EXPORT CUresult cuMemcpyAtoH(void *dstHost, CUarray srcArray, unsigned int srcOffset, unsigned int ByteCount)
{
	return cuMemcpyAtoH_v2(dstHost, srcArray, srcOffset, ByteCount);
}

EXPORT CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream)
{
	const struct host_copy copy = {
		.number = CALL_cuMemcpyAtoHAsync_v2, .device = WORD(srcArray), .offset = srcOffset, .array = true, .async = true,
		.stream = WORD(hStream),
	};

	return download(&copy, dstHost, ByteCount);
}

EXPORT CUresult cuMemcpyAtoHAsync(void *dstHost, CUarray srcArray, unsigned int srcOffset, unsigned int ByteCount, CUstream hStream)
{
	return cuMemcpyAtoHAsync_v2(dstHost, srcArray, srcOffset, ByteCount, hStream);
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
	struct remote_lane *lane;
	CUresult result = remote_ready(&lane);

	if (result != CUDA_SUCCESS)
		return result;
	uint32_t twin = lane->twin;
	bool to = remote_is_device(dst), from = remote_is_device(src);

	lane->twin = twin; /* the questions were calls of their own */
	if (to && from) {
		const uint64_t values[] = { dst, src, ByteCount, WORD(hStream) };

		return (CUresult)remote_call(CALL_cuMemcpyDtoDAsync_v2, twin, values);
	}
	if (to)
		return cuMemcpyHtoDAsync_v2(dst, (const void *)(uintptr_t)src, ByteCount, hStream);
	if (from)
		return cuMemcpyDtoHAsync_v2((void *)(uintptr_t)dst, src, ByteCount, hStream);
	/* between two places of this process, after what the stream has to do */
	result = cuStreamSynchronize(hStream);
	if (result == CUDA_SUCCESS)
		memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, ByteCount);
	return result;
}

EXPORT CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	struct remote_lane *lane;
	CUresult result = remote_ready(&lane);

	if (result != CUDA_SUCCESS)
		return result;
	uint32_t twin = lane->twin;
	bool to = remote_is_device(dst), from = remote_is_device(src);

	lane->twin = twin; /* the questions were calls of their own */
	if (to && from) {
		const uint64_t values[] = { dst, src, ByteCount };

		return (CUresult)remote_call(CALL_cuMemcpyDtoD_v2, twin, values);
	}
	if (to)
		return cuMemcpyHtoD_v2(dst, (const void *)(uintptr_t)src, ByteCount);
	if (from)
		return cuMemcpyDtoH_v2((void *)(uintptr_t)dst, src, ByteCount);
	memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, ByteCount);
	return CUDA_SUCCESS;
}

/* Batches are their copies, one after another; hints say nothing that must be kept. */
static CUresult batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count, const CUmemcpyAttributes *attrs,
		      const size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream)
{
	if (failIdx)
		*failIdx = SIZE_MAX; /* none of them */
	if (!dsts || !srcs || !sizes || !count || !attrs || !attrsIdxs || !numAttrs || numAttrs > count || WORD(hStream) == 0 || attrsIdxs[0] != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult result = cuMemcpyAsync(dsts[i], srcs[i], sizes[i], hStream);

		if (result != CUDA_SUCCESS) {
			if (failIdx)
				*failIdx = i;
			return result;
		}
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
				   size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream)
{
	return batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
}

EXPORT CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
				      size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
	return batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, NULL, hStream);
}
