/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c: one copy of a box of bytes between host memory, device memory and
 * arrays: check it, resolve both sides to the driver's own view, move the rows.
 */
#include "copy.h"

#include <string.h>
#include <sys/mman.h>

#include "memory/array.h"
#include "memory/memory.h"

/* One side, resolved: where its first byte is, and the steps to others. */
struct side {
	unsigned char *first;
	uint64_t pitch;
	uint64_t slice;
	bool device;
	bool pageable;
};

struct operand {
	size_t x, y, z;
	CUmemorytype type;
	uint64_t address;
	CUarray array;
	size_t pitch, height;
};

static struct operand source(const CUDA_MEMCPY3D *copy)
{
	return (struct operand){
		copy->srcXInBytes, copy->srcY, copy->srcZ, copy->srcMemoryType,
		copy->srcMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)copy->srcHost : copy->srcDevice,
		copy->srcArray, copy->srcPitch, copy->srcHeight,
	};
}

static struct operand target(const CUDA_MEMCPY3D *copy)
{
	return (struct operand){
		copy->dstXInBytes, copy->dstY, copy->dstZ, copy->dstMemoryType,
		copy->dstMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)copy->dstHost : copy->dstDevice,
		copy->dstArray, copy->dstPitch, copy->dstHeight,
	};
}

static CUresult resolve_array(const struct operand *operand, const CUDA_MEMCPY3D *copy, struct side *side)
{
	const struct sd_array *array = sd_object_get(operand->array, SD_ARRAY);

	if (!array)
		return CUDA_ERROR_INVALID_HANDLE;
	const struct divvy_plane *layout = &array->layout;
	uint64_t row = layout->columns * layout->elementbytes;

	if (operand->x > row || copy->WidthInBytes > row - operand->x || operand->y > layout->rows ||
	    copy->Height > layout->rows - operand->y || operand->z > layout->slices ||
	    copy->Depth > layout->slices - operand->z || operand->x % layout->elementbytes ||
	    copy->WidthInBytes % layout->elementbytes)
		return CUDA_ERROR_INVALID_VALUE;
	side->pitch = layout->pitch;
	side->slice = layout->pitch * layout->slicerows;
	side->first = sd_alias(array->address) + operand->z * side->slice + operand->y * side->pitch + operand->x;
	side->device = true;
	return CUDA_SUCCESS;
}

static CUresult resolve(const struct operand *operand, const CUDA_MEMCPY3D *copy, const struct sd_card *card,
			bool write, struct side *side)
{
	uint64_t offset = 0;
	uint64_t extent = 0;
	uint64_t part = 0;
	struct sd_memory *memory = NULL;

	side->pageable = false;
	if (operand->type == CU_MEMORYTYPE_ARRAY)
		return resolve_array(operand, copy, side);
	if (operand->type != CU_MEMORYTYPE_HOST && operand->type != CU_MEMORYTYPE_DEVICE &&
	    operand->type != CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t pitch = operand->pitch ? operand->pitch : operand->x + copy->WidthInBytes;
	uint64_t height = operand->height ? operand->height : operand->y + copy->Height;

	if ((copy->Height > 1 || copy->Depth > 1) &&
	    (pitch < operand->x || pitch - operand->x < copy->WidthInBytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (copy->Depth > 1 && (height < operand->y || height - operand->y < copy->Height))
		return CUDA_ERROR_INVALID_VALUE;
	side->pitch = pitch;
	if (__builtin_mul_overflow(pitch, height, &side->slice))
		return CUDA_ERROR_INVALID_VALUE;
	/* bytes from the operand's address to the first one, and from that to the end */
	if (__builtin_mul_overflow(operand->z, side->slice, &offset) ||
	    __builtin_mul_overflow(operand->y, pitch, &part) || __builtin_add_overflow(offset, part, &offset) ||
	    __builtin_add_overflow(offset, operand->x, &offset) ||
	    __builtin_add_overflow(offset, operand->address, &offset) ||
	    __builtin_mul_overflow(copy->Depth - 1, side->slice, &extent) ||
	    __builtin_mul_overflow(copy->Height - 1, pitch, &part) || __builtin_add_overflow(extent, part, &extent) ||
	    __builtin_add_overflow(extent, copy->WidthInBytes, &extent) || offset > UINT64_MAX - extent)
		return CUDA_ERROR_INVALID_VALUE;
	if (!operand->address)
		return CUDA_ERROR_INVALID_VALUE;
	side->first = sd_reach(offset, extent, card, write, &memory);
	if (side->first) {
		side->device = memory->kind != SD_HOST && memory->kind != SD_REGISTERED;
		return CUDA_SUCCESS;
	}
	/* what the driver does not know is host memory, where that may stand */
	if (operand->type == CU_MEMORYTYPE_DEVICE || sd_in_window(offset) || sd_in_window(offset + extent - 1))
		return CUDA_ERROR_INVALID_VALUE;
	side->first = (unsigned char *)(uintptr_t)offset;
	side->device = false;
	side->pageable = true;
	return CUDA_SUCCESS;
}

static CUresult resolve_both(const CUDA_MEMCPY3D *copy, const struct sd_card *card, struct side *from,
			     struct side *to)
{
	const struct operand src = source(copy);
	const struct operand dst = target(copy);

	if (copy->srcLOD || copy->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = resolve(&src, copy, card, false, from);

	return result == CUDA_SUCCESS ? resolve(&dst, copy, card, true, to) : result;
}

static bool empty(const CUDA_MEMCPY3D *copy)
{
	return !copy->WidthInBytes || !copy->Height || !copy->Depth;
}

CUresult sd_copy_check(const CUDA_MEMCPY3D *copy, const struct sd_card *card)
{
	struct side from;
	struct side to;

	return empty(copy) ? CUDA_SUCCESS : resolve_both(copy, card, &from, &to);
}

void sd_copy_pageable(const CUDA_MEMCPY3D *copy, const struct sd_card *card, bool *from, bool *to)
{
	struct side source;
	struct side target;
	bool known = !empty(copy) && resolve_both(copy, card, &source, &target) == CUDA_SUCCESS;

	*from = known && source.pageable;
	*to = known && target.pageable;
}

void sd_copy_from(CUDA_MEMCPY3D *copy, const void *bytes)
{
	copy->srcMemoryType = CU_MEMORYTYPE_HOST;
	copy->srcHost = bytes;
	copy->srcXInBytes = copy->srcY = copy->srcZ = 0;
}

/* How many of these bytes lie on pages that reading them would make. */
static uint64_t missing(const unsigned char *first, uint64_t bytes)
{
	enum { PAGE = 4096, PAGES = 512 };
	const unsigned char *at = (const unsigned char *)((uintptr_t)first & ~(uintptr_t)(PAGE - 1));
	const unsigned char *end = first + bytes;
	unsigned char there[PAGES];
	uint64_t sum = 0;

	for (; at < end; at += PAGE * PAGES) {
		uint64_t left = (uint64_t)(end - at);
		uint64_t part = left < PAGE * PAGES ? left : PAGE * PAGES;

		if (mincore((void *)(uintptr_t)at, part, there) < 0)
			return sum; /* not mapped: the copy will tell */
		for (uint64_t page = 0; page * PAGE < part; page++)
			sum += there[page] & 1 ? 0 : PAGE;
	}
	return sum;
}

/* A card's memory that nobody has written takes host memory when it is read. */
static CUresult touch_source(const struct side *from, const CUDA_MEMCPY3D *copy)
{
	uint64_t width = copy->WidthInBytes;
	uint64_t height = copy->Height;
	uint64_t sum = 0;

	if (from->pitch == width) {
		width *= height;
		height = 1;
	}
	for (uint64_t z = 0; z < copy->Depth; z++) {
		for (uint64_t y = 0; y < height; y++)
			sum += missing(from->first + z * from->slice + y * from->pitch, width);
	}
	return sum ? sd_error(sim_touch(sum)) : CUDA_SUCCESS;
}

static void move(const struct side *from, const struct side *to, uint64_t width, uint64_t height, uint64_t depth)
{
	/* rows without gaps on both sides are one row, slices too */
	if (from->pitch == width && to->pitch == width) {
		width *= height;
		height = 1;
		if (from->slice == width && to->slice == width) {
			width *= depth;
			depth = 1;
		}
	}
	for (uint64_t z = 0; z < depth; z++) {
		for (uint64_t y = 0; y < height; y++)
			memmove(to->first + z * to->slice + y * to->pitch, from->first + z * from->slice + y * from->pitch,
				width);
	}
}

CUresult sd_copy_run(const CUDA_MEMCPY3D *copy, const struct sd_card *card)
{
	struct side from;
	struct side to;

	if (empty(copy))
		return CUDA_SUCCESS;
	CUresult result = resolve_both(copy, card, &from, &to);

	if (result != CUDA_SUCCESS)
		return result;
	sd_unlock();
	if (to.device)
		result = sd_error(sim_touch(copy->WidthInBytes * copy->Height * copy->Depth));
	if (result == CUDA_SUCCESS && from.device)
		result = touch_source(&from, copy);
	if (result == CUDA_SUCCESS)
		move(&from, &to, copy->WidthInBytes, copy->Height, copy->Depth);
	sd_lock();
	return result;
}
