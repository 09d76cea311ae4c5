/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box.c: copies of boxes, two and three rows of dimensions. A host's end is packed into
 * rows without gaps, in parts that fit a frame, and spread again at the far side.
 */
#include "remote.h"

#include "payload.h"

/* A box without what the host's end needs: the worker sees handles and rows. */
struct box {
	CUDA_MEMCPY3D all;
	unsigned int number;
	bool async;
	uint64_t stream;
	uint32_t twin;
};

_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(((struct call_box *)NULL)->box), "a box travels as it is");

/* An address of either kind is one or the other. */
static void settle(CUmemorytype *type, CUdeviceptr device, void **host)
{
	if (*type != CU_MEMORYTYPE_UNIFIED)
		return;
	*type = remote_is_device(device) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	if (*type == CU_MEMORYTYPE_HOST)
		*host = (void *)(uintptr_t)device;
}

static struct call_box call_of(const struct box *box, const CUDA_MEMCPY3D *part, size_t bytes)
{
	struct call_box call = { .stream = box->stream, .bytes = bytes };

	memcpy(call.box, part, sizeof(call.box));
	return call;
}

/* A part that comes here. */
static CUresult read_box(struct remote_lane *lane, const struct box *box, const CUDA_MEMCPY3D *part, void *to, size_t bytes)
{
	const struct call_box want = call_of(box, part, bytes);
	size_t rows = part->srcZ * part->srcHeight + part->srcY + part->Height - 1;

	lane->twin = box->twin;
	return (CUresult)remote_read(lane, &(struct remote_copy){
		.number = box->number, .payload = &want, .length = sizeof(want), .place = offsetof(CUDA_MEMCPY3D, srcDevice),
		.span = part->srcMemoryType == CU_MEMORYTYPE_DEVICE ? rows * part->srcPitch + part->srcXInBytes + part->WidthInBytes : 0,
		.to = to, .bytes = bytes,
	});
}

/* A part whose rows go there, or one with both ends there. */
static CUresult send_box(struct remote_lane *lane, const struct box *box, const CUDA_MEMCPY3D *part, const struct remote_bytes *rows,
			 size_t bytes, bool wait)
{
	const struct call_box want = call_of(box, part, bytes);

	lane->twin = box->twin;
	if (!remote_begin(lane) || !remote_put(&lane->out, &want, sizeof(want)) || (rows && !remote_put(&lane->out, rows->at, rows->length)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return (CUresult)(wait ? remote_finish(lane, box->number) : remote_finish_one_way(lane, box->number));
}

/* Does the host's end overflow the address space? */
static bool fits(size_t x, size_t width, size_t y, size_t height, size_t z, size_t depth, size_t pitch, size_t rows)
{
	size_t plane, end;

	return !__builtin_mul_overflow(pitch, rows, &plane) && !__builtin_add_overflow(z, depth, &end) &&
	       !__builtin_mul_overflow(plane, end, &end) && !__builtin_add_overflow(y, height, &end) &&
	       !__builtin_mul_overflow(pitch, end, &end) && !__builtin_add_overflow(x, width, &end) && x + width <= pitch;
}

/* The part of a box that has rows y to y + height of plane z. */
static CUDA_MEMCPY3D part_of(const CUDA_MEMCPY3D *all, size_t z, size_t y, size_t height, bool up)
{
	CUDA_MEMCPY3D part = *all;

	part.Height = height;
	part.Depth = 1;
	part.srcY += y;
	part.srcZ += z;
	part.dstY += y;
	part.dstZ += z;
	if (up) { /* the worker has the rows in a buffer of its own */
		part.srcHost = NULL;
		part.srcXInBytes = part.srcY = part.srcZ = 0;
		part.srcPitch = part.WidthInBytes;
		part.srcHeight = height;
	} else {
		part.dstHost = NULL;
		part.dstXInBytes = part.dstY = part.dstZ = 0;
		part.dstPitch = part.WidthInBytes;
		part.dstHeight = height;
	}
	return part;
}

static CUresult upload(struct remote_lane *lane, const struct box *box)
{
	const CUDA_MEMCPY3D *all = &box->all;
	size_t pitch = all->srcPitch ? all->srcPitch : all->srcXInBytes + all->WidthInBytes;
	size_t planes = all->srcHeight ? all->srcHeight : all->srcY + all->Height;
	size_t most = COPY_BYTES / all->WidthInBytes ? COPY_BYTES / all->WidthInBytes : 1;
	CUresult result = CUDA_SUCCESS;

	if (!all->srcHost || all->WidthInBytes > COPY_BYTES ||
	    !fits(all->srcXInBytes, all->WidthInBytes, all->srcY, all->Height, all->srcZ, all->Depth, pitch, planes))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t z = 0; z < all->Depth && result == CUDA_SUCCESS; z++) {
		for (size_t y = 0, rows; y < all->Height && result == CUDA_SUCCESS; y += rows) {
			rows = all->Height - y < most ? all->Height - y : most;
			struct remote_bytes packed = { 0 };
			const uint8_t *from = (const uint8_t *)all->srcHost + ((all->srcZ + z) * planes + all->srcY + y) * pitch + all->srcXInBytes;
			bool last = z + 1 == all->Depth && y + rows == all->Height;
			CUDA_MEMCPY3D part = part_of(all, z, y, rows, true);

			if (!remote_room(&packed, call_padded(rows * all->WidthInBytes)))
				return CUDA_ERROR_OUT_OF_MEMORY;
			for (size_t row = 0; row < rows; row++)
				memcpy(packed.at + row * all->WidthInBytes, from + row * pitch, all->WidthInBytes);
			packed.length = call_padded(rows * all->WidthInBytes);
			result = send_box(lane, box, &part, &packed, rows * all->WidthInBytes, last && !box->async);
			remote_free(&packed);
		}
	}
	return result;
}

static CUresult download(struct remote_lane *lane, const struct box *box)
{
	const CUDA_MEMCPY3D *all = &box->all;
	size_t pitch = all->dstPitch ? all->dstPitch : all->dstXInBytes + all->WidthInBytes;
	size_t planes = all->dstHeight ? all->dstHeight : all->dstY + all->Height;
	size_t most = COPY_BYTES / all->WidthInBytes ? COPY_BYTES / all->WidthInBytes : 1;
	CUresult result = CUDA_SUCCESS;

	if (!all->dstHost || all->WidthInBytes > COPY_BYTES ||
	    !fits(all->dstXInBytes, all->WidthInBytes, all->dstY, all->Height, all->dstZ, all->Depth, pitch, planes))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t z = 0; z < all->Depth && result == CUDA_SUCCESS; z++) {
		for (size_t y = 0, rows; y < all->Height && result == CUDA_SUCCESS; y += rows) {
			rows = all->Height - y < most ? all->Height - y : most;
			struct remote_bytes packed = { 0 };
			uint8_t *to = (uint8_t *)all->dstHost + ((all->dstZ + z) * planes + all->dstY + y) * pitch + all->dstXInBytes;
			CUDA_MEMCPY3D part = part_of(all, z, y, rows, false);

			if (!remote_room(&packed, rows * all->WidthInBytes))
				return CUDA_ERROR_OUT_OF_MEMORY;
			result = read_box(lane, box, &part, packed.at, rows * all->WidthInBytes);
			for (size_t row = 0; result == CUDA_SUCCESS && row < rows; row++)
				memcpy(to + row * pitch, packed.at + row * all->WidthInBytes, all->WidthInBytes);
			remote_free(&packed);
		}
	}
	if (result == CUDA_SUCCESS && box->async)
		remote_settled(lane, box->stream, box->twin);
	return result;
}

/* Both ends on the host, which is here. */
static CUresult here(const struct box *box)
{
	const CUDA_MEMCPY3D *all = &box->all;
	size_t from = all->srcPitch ? all->srcPitch : all->WidthInBytes, to = all->dstPitch ? all->dstPitch : all->WidthInBytes;
	size_t fromrows = all->srcHeight ? all->srcHeight : all->Height, torows = all->dstHeight ? all->dstHeight : all->Height;
	CUresult result = cuStreamSynchronize((CUstream)(uintptr_t)box->stream);

	if (!all->srcHost || !all->dstHost ||
	    !fits(all->srcXInBytes, all->WidthInBytes, all->srcY, all->Height, all->srcZ, all->Depth, from, fromrows) ||
	    !fits(all->dstXInBytes, all->WidthInBytes, all->dstY, all->Height, all->dstZ, all->Depth, to, torows))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t z = 0; z < all->Depth && result == CUDA_SUCCESS; z++) {
		for (size_t y = 0; y < all->Height; y++)
			memmove((uint8_t *)all->dstHost + ((all->dstZ + z) * torows + all->dstY + y) * to + all->dstXInBytes,
				(const uint8_t *)all->srcHost + ((all->srcZ + z) * fromrows + all->srcY + y) * from + all->srcXInBytes,
				all->WidthInBytes);
	}
	return result;
}

static CUresult copy(struct box *box)
{
	CUDA_MEMCPY3D *all = &box->all;
	struct remote_lane *lane;
	CUresult result = remote_ready(&lane);

	if (result != CUDA_SUCCESS)
		return result;
	box->twin = lane->twin;
	settle(&all->srcMemoryType, all->srcDevice, (void **)(uintptr_t)&all->srcHost);
	settle(&all->dstMemoryType, all->dstDevice, &all->dstHost);
	bool up = all->srcMemoryType == CU_MEMORYTYPE_HOST, down = all->dstMemoryType == CU_MEMORYTYPE_HOST;

	if (!all->WidthInBytes || !all->Height || !all->Depth) {
		return CUDA_SUCCESS;
	} else if (up && down) {
		return here(box);
	} else if (up) {
		return upload(lane, box);
	} else if (down) {
		return download(lane, box);
	}
	return send_box(lane, box, all, NULL, 0, !box->async);
}

/* The first form of the structure has 32-bit fields. */
static CUDA_MEMCPY3D wide2(const CUDA_MEMCPY2D_v1 *old)
{
	return (CUDA_MEMCPY3D){
		.srcXInBytes = old->srcXInBytes, .srcY = old->srcY, .srcMemoryType = old->srcMemoryType, .srcHost = old->srcHost,
		.srcDevice = old->srcDevice, .srcArray = old->srcArray, .srcPitch = old->srcPitch,
		.dstXInBytes = old->dstXInBytes, .dstY = old->dstY, .dstMemoryType = old->dstMemoryType, .dstHost = old->dstHost,
		.dstDevice = old->dstDevice, .dstArray = old->dstArray, .dstPitch = old->dstPitch,
		.WidthInBytes = old->WidthInBytes, .Height = old->Height, .Depth = 1,
	};
}

static CUDA_MEMCPY3D box2(const CUDA_MEMCPY2D *flat)
{
	return (CUDA_MEMCPY3D){
		.srcXInBytes = flat->srcXInBytes, .srcY = flat->srcY, .srcMemoryType = flat->srcMemoryType, .srcHost = flat->srcHost,
		.srcDevice = flat->srcDevice, .srcArray = flat->srcArray, .srcPitch = flat->srcPitch,
		.dstXInBytes = flat->dstXInBytes, .dstY = flat->dstY, .dstMemoryType = flat->dstMemoryType, .dstHost = flat->dstHost,
		.dstDevice = flat->dstDevice, .dstArray = flat->dstArray, .dstPitch = flat->dstPitch,
		.WidthInBytes = flat->WidthInBytes, .Height = flat->Height, .Depth = 1,
	};
}

static CUDA_MEMCPY3D wide3(const CUDA_MEMCPY3D_v1 *old)
{
	return (CUDA_MEMCPY3D){
		.srcXInBytes = old->srcXInBytes, .srcY = old->srcY, .srcZ = old->srcZ, .srcLOD = old->srcLOD,
		.srcMemoryType = old->srcMemoryType, .srcHost = old->srcHost, .srcDevice = old->srcDevice, .srcArray = old->srcArray,
		.srcPitch = old->srcPitch, .srcHeight = old->srcHeight,
		.dstXInBytes = old->dstXInBytes, .dstY = old->dstY, .dstZ = old->dstZ, .dstLOD = old->dstLOD,
		.dstMemoryType = old->dstMemoryType, .dstHost = old->dstHost, .dstDevice = old->dstDevice, .dstArray = old->dstArray,
		.dstPitch = old->dstPitch, .dstHeight = old->dstHeight,
		.WidthInBytes = old->WidthInBytes, .Height = old->Height, .Depth = old->Depth,
	};
}

#define BOX(name, type, widen) \
	EXPORT CUresult name(const type *pCopy) \
	{ \
		if (!pCopy) \
			return CUDA_ERROR_INVALID_VALUE; \
		struct box box = { .all = widen(pCopy), .number = CALL_cuMemcpy3D_v2 }; \
\
		return copy(&box); \
	}
#define BOX_ASYNC(name, type, widen) \
	EXPORT CUresult name(const type *pCopy, CUstream hStream) \
	{ \
		if (!pCopy) \
			return CUDA_ERROR_INVALID_VALUE; \
		struct box box = { .all = widen(pCopy), .number = CALL_cuMemcpy3DAsync_v2, .async = true, .stream = WORD(hStream) }; \
\
		return copy(&box); \
	}

BOX(cuMemcpy2D, CUDA_MEMCPY2D_v1, wide2)
BOX(cuMemcpy2DUnaligned, CUDA_MEMCPY2D_v1, wide2)
BOX(cuMemcpy2D_v2, CUDA_MEMCPY2D, box2)
BOX(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, box2)
BOX(cuMemcpy3D, CUDA_MEMCPY3D_v1, wide3)
BOX(cuMemcpy3D_v2, CUDA_MEMCPY3D, *)
BOX_ASYNC(cuMemcpy2DAsync, CUDA_MEMCPY2D_v1, wide2)
BOX_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, box2)
BOX_ASYNC(cuMemcpy3DAsync, CUDA_MEMCPY3D_v1, wide3)
BOX_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, *)
