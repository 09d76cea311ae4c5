/* SPDX-License-Identifier: Apache-2.0 */
/* copy.c: copies with one end on the host, and of boxes. */
#include <stdlib.h>

#include "special.h"

uint64_t worker_upload(struct worker_call *call, struct reader *reader)
{
	const struct call_copy *want = worker_next(reader, sizeof(*want));
	unsigned int wrong = 0;
	const void *bytes = want && want->bytes <= COPY_BYTES ? worker_next(reader, want->bytes) : NULL;

	if (!want || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t stream = worker_real_of(KIND_CUstream, want->stream, &wrong);
	bool array = call->number == CALL_cuMemcpyHtoA_v2 || call->number == CALL_cuMemcpyHtoAAsync_v2;
	uint64_t to = array ? worker_real_of(KIND_CUarray, want->device, &wrong) : want->device;
	void *function = worker_function(call->number, call->twin);

	if (wrong)
		return wrong;
	switch (call->number) {
	case CALL_cuMemcpyHtoD_v2:
		return ((__typeof__(&cuMemcpyHtoD_v2))function)(to, bytes, want->bytes);
	case CALL_cuMemcpyHtoA_v2:
		return ((__typeof__(&cuMemcpyHtoA_v2))function)((CUarray)(uintptr_t)to, want->offset, bytes, want->bytes);
	case CALL_cuMemcpyHtoAAsync_v2:
		return worker_is_capturing(stream) ? CUDA_ERROR_NOT_SUPPORTED
					    : ((__typeof__(&cuMemcpyHtoAAsync_v2))function)((CUarray)(uintptr_t)to, want->offset, bytes, want->bytes,
											    (CUstream)(uintptr_t)stream);
	default:
		return worker_is_capturing(stream)
			       ? CUDA_ERROR_NOT_SUPPORTED
			       : ((__typeof__(&cuMemcpyHtoDAsync_v2))function)(to, bytes, want->bytes, (CUstream)(uintptr_t)stream);
	}
}

static CUresult one_download(const struct worker_call *call, const struct call_copy *want, uint64_t from, uint64_t stream, size_t done,
			     void *to, size_t part)
{
	void *function = worker_function(call->number, call->twin);
	CUresult result;

	switch (call->number) {
	case CALL_cuMemcpyDtoH_v2:
		return ((__typeof__(&cuMemcpyDtoH_v2))function)(to, from + done, part);
	case CALL_cuMemcpyAtoH_v2:
		return ((__typeof__(&cuMemcpyAtoH_v2))function)(to, (CUarray)(uintptr_t)from, want->offset + done, part);
	case CALL_cuMemcpyAtoHAsync_v2:
		result = ((__typeof__(&cuMemcpyAtoHAsync_v2))function)(to, (CUarray)(uintptr_t)from, want->offset + done, part, (CUstream)(uintptr_t)stream);
		break;
	default:
		result = ((__typeof__(&cuMemcpyDtoHAsync_v2))function)(to, from + done, part, (CUstream)(uintptr_t)stream);
		break;
	}
	__typeof__(&cuStreamSynchronize) wait = (__typeof__(&cuStreamSynchronize))worker_function(CALL_cuStreamSynchronize, call->twin);

	return result ? result : wait((CUstream)(uintptr_t)stream);
}

uint64_t worker_download(struct worker_call *call, struct reader *reader)
{
	const struct call_copy *want = worker_next(reader, sizeof(*want));
	unsigned int wrong = 0;
	CUresult result = CUDA_SUCCESS;

	if (!want || want->bytes > COPY_MOST)
		return CUDA_ERROR_INVALID_VALUE;
	bool array = call->number == CALL_cuMemcpyAtoH_v2 || call->number == CALL_cuMemcpyAtoHAsync_v2;
	uint64_t stream = worker_real_of(KIND_CUstream, want->stream, &wrong);
	uint64_t from = array ? worker_real_of(KIND_CUarray, want->device, &wrong) : want->device;

	if (wrong || worker_is_capturing(stream))
		return wrong ? wrong : CUDA_ERROR_NOT_SUPPORTED;
	uint8_t *part = malloc(want->bytes < COPY_BYTES ? want->bytes + 1 : COPY_BYTES);
	size_t done = 0;

	if (!part)
		return CUDA_ERROR_OUT_OF_MEMORY;
	do {
		size_t bytes = want->bytes - done < COPY_BYTES ? want->bytes - done : COPY_BYTES;

		result = one_download(call, want, from, stream, done, part, bytes);
		if (result == CUDA_SUCCESS && bytes && !worker_send_data(call->lane, call->seq, part, bytes))
			result = CUDA_ERROR_DEVICE_UNAVAILABLE;
		done += bytes;
	} while (result == CUDA_SUCCESS && done < want->bytes);
	free(part);
	return result;
}

uint64_t worker_copy_box(struct worker_call *call, struct reader *reader)
{
	const struct call_box *want = worker_next(reader, sizeof(*want));
	unsigned int wrong = 0;
	uint8_t *room = NULL;
	CUDA_MEMCPY3D box;
	CUresult result;

	if (!want || want->bytes > COPY_BYTES)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&box, want->box, sizeof(box));
	bool up = box.srcMemoryType == CU_MEMORYTYPE_HOST, down = box.dstMemoryType == CU_MEMORYTYPE_HOST;
	bool async = call->number == CALL_cuMemcpy3DAsync_v2;
	uint64_t stream = worker_real_of(KIND_CUstream, want->stream, &wrong), area = 0;

	worker_array_of(box.srcMemoryType, &box.srcArray, &wrong);
	worker_array_of(box.dstMemoryType, &box.dstArray, &wrong);
	if (wrong)
		return wrong;
	/* no pointer of the program's is one here */
	box.reserved0 = box.reserved1 = NULL;
	box.srcHost = box.dstHost = NULL;
	if (box.srcMemoryType == CU_MEMORYTYPE_UNIFIED || box.dstMemoryType == CU_MEMORYTYPE_UNIFIED || (up && down) ||
	    ((up || down) && (__builtin_mul_overflow(box.WidthInBytes, box.Height, &area) || area != want->bytes || box.Depth != 1)))
		return CUDA_ERROR_INVALID_VALUE;
	if ((up || down) && worker_is_capturing(stream))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (up) {
		box.srcHost = worker_next(reader, want->bytes);
		box.srcXInBytes = box.srcY = box.srcZ = box.srcLOD = 0;
		box.srcPitch = box.WidthInBytes;
		box.srcHeight = box.Height;
	} else if (down) {
		box.dstHost = room = malloc(want->bytes + 1);
		box.dstXInBytes = box.dstY = box.dstZ = box.dstLOD = 0;
		box.dstPitch = box.WidthInBytes;
		box.dstHeight = box.Height;
	}
	if ((up && !box.srcHost) || (down && !room))
		return CUDA_ERROR_INVALID_VALUE;
	void *function = worker_function(call->number, call->twin);

	if (async) {
		result = ((__typeof__(&cuMemcpy3DAsync_v2))function)(&box, (CUstream)(uintptr_t)stream);
		if (result == CUDA_SUCCESS && down)
			result = ((__typeof__(&cuStreamSynchronize))worker_function(CALL_cuStreamSynchronize, call->twin))((CUstream)(uintptr_t)stream);
	} else {
		result = ((__typeof__(&cuMemcpy3D_v2))function)(&box);
	}
	if (result == CUDA_SUCCESS && down && !worker_send_data(call->lane, call->seq, room, want->bytes))
		result = CUDA_ERROR_DEVICE_UNAVAILABLE;
	free(room);
	return result;
}
