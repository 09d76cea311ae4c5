/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array.c: CUDA arrays (1D to 3D, layered, cubemaps) and mipmapped arrays.
 *
 * Rule: what divvy_arrays.h says, which is the stand-in's own rule and, on
 * hardware, an estimate by the same tiling (64-byte rows, 8 rows high). Where
 * cuArrayGetMemoryRequirements answers for the array (11.6 and later; hardware
 * answers for some arrays only) the charge follows it. A sparse array and one
 * with deferred mapping have no memory of their own: what is mapped into them
 * was charged when it was made. A format that the rule does not know is taken
 * as 16 bytes a texel, the largest there is. Planes and levels of an array are
 * parts of it and are not freed on their own.
 */
#include "memory.h"
#include "front_hooks.h"
#include "divvy_arrays.h"

#define ARRAY_NO_MEMORY (0x40u | 0x80u) /* CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING */
#define ARRAY_UNKNOWN_TEXEL 16u

struct shape {
	uint64_t width, height, depth;
	unsigned format, channels, flags;
	unsigned levels; /* 0: a plain array */
};

static unsigned most_levels(const struct shape *shape)
{
	uint64_t longest = shape->width;
	bool layered = (shape->flags & (DIVVY_ARRAY_LAYERED | DIVVY_ARRAY_CUBEMAP)) != 0;

	if (shape->height > longest)
		longest = shape->height;
	if (!layered && shape->depth > longest)
		longest = shape->depth;
	return longest ? 64 - (unsigned)__builtin_clzll(longest) : 1;
}

static uint64_t estimate(const struct shape *shape)
{
	unsigned levels = shape->levels;
	uint64_t bytes;

	if (shape->flags & ARRAY_NO_MEMORY)
		return 0;
	if (levels > most_levels(shape))
		levels = most_levels(shape);
	if (divvy_array_bytes(shape->width, shape->height, shape->depth, shape->format, shape->channels,
			      shape->flags, levels, &bytes) == 0)
		return bytes;
	bytes = memory_times(memory_round(shape->width, DIVVY_ARRAY_ROW_UNIT), ARRAY_UNKNOWN_TEXEL);
	if (shape->height)
		bytes = memory_times(bytes, memory_round(shape->height, DIVVY_ARRAY_HEIGHT_UNIT));
	bytes = memory_times(bytes, shape->depth ? shape->depth : 1);
	if (levels > 1)
		bytes = memory_times(bytes, 2);
	return memory_round(bytes, DIVVY_ARRAY_UNIT);
}

/* What the driver says of a new array; 0 when it does not. */
static uint64_t array_truth(CUarray array, CUdevice device)
{
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs = { 0 };

	if (!front_has(SYM_cuArrayGetMemoryRequirements) ||
	    REAL(SYM_cuArrayGetMemoryRequirements, cuArrayGetMemoryRequirements)(&needs, array, device) != CUDA_SUCCESS)
		return 0;
	return needs.size;
}

static uint64_t mipmap_truth(CUmipmappedArray array, CUdevice device)
{
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs = { 0 };

	if (!front_has(SYM_cuMipmappedArrayGetMemoryRequirements) ||
	    REAL(SYM_cuMipmappedArrayGetMemoryRequirements, cuMipmappedArrayGetMemoryRequirements)(
		    &needs, array, device) != CUDA_SUCCESS)
		return 0;
	return needs.size;
}

/* The three ways to ask for an array differ in their descriptors only. */
struct wish {
	enum divvy_symbol called;
	const char *call;
	const void *descriptor;
	struct shape shape;
	CUresult (*ask)(const struct wish *wish, CUarray *array);
};

static CUresult ask_2d(const struct wish *wish, CUarray *array)
{
	return REAL(wish->called, cuArrayCreate_v2)(array, wish->descriptor);
}

static CUresult ask_2d_v1(const struct wish *wish, CUarray *array)
{
	return REAL(wish->called, cuArrayCreate)(array, wish->descriptor);
}

static CUresult ask_3d(const struct wish *wish, CUarray *array)
{
	return REAL(wish->called, cuArray3DCreate_v2)(array, wish->descriptor);
}

static CUresult ask_3d_v1(const struct wish *wish, CUarray *array)
{
	return REAL(wish->called, cuArray3DCreate)(array, wish->descriptor);
}

/* A handle may come again before the call that ended the array has returned; a number does not. */
static _Atomic uint64_t last_number;

/* Settles a new array and writes it down; false when it has to go again. */
static bool keep(struct table_record *record, uint64_t truth, const char *call)
{
	if (record->bytes && truth) {
		truth = memory_round(truth, DIVVY_ALLOCATION_UNIT);
		if (memory_settle(record->slot, record->bytes, truth, call) != 0)
			return false;
		record->bytes = truth;
	}
	return memory_note(record) == 0;
}

static CUresult create(const struct wish *wish, CUarray *handle)
{
	struct front_place place = context_place();
	uint64_t bytes = estimate(&wish->shape);
	struct table_record record;
	CUarray array = NULL;
	CUresult result = memory_charge(place.slot, bytes, wish->call);

	if (result != CUDA_SUCCESS)
		return result;
	result = wish->ask(wish, &array);
	if (result != CUDA_SUCCESS) {
		memory_refused(place.slot, bytes, result, wish->call);
		return result;
	}
	if (place.slot >= 0) {
		record = (struct table_record){
			.key = (uintptr_t)array, .bytes = bytes, .owner = place.owner,
			.space = SPACE_ARRAY, .slot = (uint8_t)place.slot,
			.extra = atomic_fetch_add(&last_number, 1) + 1,
		};
		if (!keep(&record, bytes ? array_truth(array, front_device(place.slot)) : 0, wish->call)) {
			(void)REAL(SYM_cuArrayDestroy, cuArrayDestroy)(array);
			front_uncharge(place.slot, record.bytes);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	*handle = array;
	return CUDA_SUCCESS;
}

CUresult hook_cuArrayCreate_v2(enum divvy_symbol called, CUarray *pHandle,
			       const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	struct wish wish = { called, "cuArrayCreate", pAllocateArray, { 0 }, ask_2d };
	CUresult result;

	if (!pHandle || !pAllocateArray || !front_enter())
		return REAL(called, cuArrayCreate_v2)(pHandle, pAllocateArray);
	wish.shape = (struct shape){
		.width = pAllocateArray->Width, .height = pAllocateArray->Height,
		.format = pAllocateArray->Format, .channels = pAllocateArray->NumChannels,
	};
	result = create(&wish, pHandle);
	front_leave();
	return result;
}

CUresult hook_cuArrayCreate(enum divvy_symbol called, CUarray *pHandle,
			    const struct CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)
{
	struct wish wish = { called, "cuArrayCreate", pAllocateArray, { 0 }, ask_2d_v1 };
	CUresult result;

	if (!pHandle || !pAllocateArray || !front_enter())
		return REAL(called, cuArrayCreate)(pHandle, pAllocateArray);
	wish.shape = (struct shape){
		.width = pAllocateArray->Width, .height = pAllocateArray->Height,
		.format = pAllocateArray->Format, .channels = pAllocateArray->NumChannels,
	};
	result = create(&wish, pHandle);
	front_leave();
	return result;
}

CUresult hook_cuArray3DCreate_v2(enum divvy_symbol called, CUarray *pHandle,
				 const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	struct wish wish = { called, "cuArray3DCreate", pAllocateArray, { 0 }, ask_3d };
	CUresult result;

	if (!pHandle || !pAllocateArray || !front_enter())
		return REAL(called, cuArray3DCreate_v2)(pHandle, pAllocateArray);
	wish.shape = (struct shape){
		.width = pAllocateArray->Width, .height = pAllocateArray->Height, .depth = pAllocateArray->Depth,
		.format = pAllocateArray->Format, .channels = pAllocateArray->NumChannels,
		.flags = pAllocateArray->Flags,
	};
	result = create(&wish, pHandle);
	front_leave();
	return result;
}

CUresult hook_cuArray3DCreate(enum divvy_symbol called, CUarray *pHandle,
			      const struct CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)
{
	struct wish wish = { called, "cuArray3DCreate", pAllocateArray, { 0 }, ask_3d_v1 };
	CUresult result;

	if (!pHandle || !pAllocateArray || !front_enter())
		return REAL(called, cuArray3DCreate)(pHandle, pAllocateArray);
	wish.shape = (struct shape){
		.width = pAllocateArray->Width, .height = pAllocateArray->Height, .depth = pAllocateArray->Depth,
		.format = pAllocateArray->Format, .channels = pAllocateArray->NumChannels,
		.flags = pAllocateArray->Flags,
	};
	result = create(&wish, pHandle);
	front_leave();
	return result;
}

CUresult hook_cuArrayDestroy(enum divvy_symbol called, CUarray hArray)
{
	struct table_record record;
	CUresult result;
	bool ours;

	if (!front_enter())
		return REAL(called, cuArrayDestroy)(hArray);
	ours = table_take(&front_held, SPACE_ARRAY, (uintptr_t)hArray, &record);
	result = REAL(called, cuArrayDestroy)(hArray);
	if (ours && result == CUDA_SUCCESS) {
		front_refund(record.slot, record.bytes);
		virtual_tiles_gone(record.extra, 0);
	} else if (ours) {
		memory_restore(&record);
	}
	front_leave();
	return result;
}

static CUresult create_mipmap(enum divvy_symbol called, CUmipmappedArray *handle,
			      const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels)
{
	static const char call[] = "cuMipmappedArrayCreate";
	struct front_place place = context_place();
	struct shape shape = {
		.width = descriptor->Width, .height = descriptor->Height, .depth = descriptor->Depth,
		.format = descriptor->Format, .channels = descriptor->NumChannels,
		.flags = descriptor->Flags, .levels = levels,
	};
	uint64_t bytes = estimate(&shape);
	struct table_record record;
	CUmipmappedArray array = NULL;
	CUresult result = memory_charge(place.slot, bytes, call);

	if (result != CUDA_SUCCESS)
		return result;
	result = REAL(called, cuMipmappedArrayCreate)(&array, descriptor, levels);
	if (result != CUDA_SUCCESS) {
		memory_refused(place.slot, bytes, result, call);
		return result;
	}
	if (place.slot >= 0) {
		record = (struct table_record){
			.key = (uintptr_t)array, .bytes = bytes, .owner = place.owner,
			.space = SPACE_MIPMAP, .slot = (uint8_t)place.slot,
			.extra = atomic_fetch_add(&last_number, 1) + 1,
		};
		if (!keep(&record, bytes ? mipmap_truth(array, front_device(place.slot)) : 0, call)) {
			(void)REAL(SYM_cuMipmappedArrayDestroy, cuMipmappedArrayDestroy)(array);
			front_uncharge(place.slot, record.bytes);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	*handle = array;
	return CUDA_SUCCESS;
}

CUresult hook_cuMipmappedArrayCreate(enum divvy_symbol called, CUmipmappedArray *pHandle,
				     const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
				     unsigned int numMipmapLevels)
{
	CUresult result;

	if (!pHandle || !pMipmappedArrayDesc || !front_enter())
		return REAL(called, cuMipmappedArrayCreate)(pHandle, pMipmappedArrayDesc, numMipmapLevels);
	result = create_mipmap(called, pHandle, pMipmappedArrayDesc, numMipmapLevels);
	front_leave();
	return result;
}

CUresult hook_cuMipmappedArrayDestroy(enum divvy_symbol called, CUmipmappedArray hMipmappedArray)
{
	struct table_record record;
	CUresult result;
	bool ours, opened;

	if (!front_enter())
		return REAL(called, cuMipmappedArrayDestroy)(hMipmappedArray);
	ours = table_take(&front_held, SPACE_MIPMAP, (uintptr_t)hMipmappedArray, &record);
	opened = !ours && external_take((uintptr_t)hMipmappedArray, &record);
	result = REAL(called, cuMipmappedArrayDestroy)(hMipmappedArray);
	if (opened && result == CUDA_SUCCESS) {
		external_given(&record);
	} else if (opened) {
		memory_restore(&record);
	} else if (ours && result == CUDA_SUCCESS) {
		front_refund(record.slot, record.bytes);
		virtual_tiles_gone(record.extra, 0);
	} else if (ours) {
		memory_restore(&record);
	}
	front_leave();
	return result;
}
