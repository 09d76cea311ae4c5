/* SPDX-License-Identifier: Apache-2.0 */
#include "array.h"

#include "cuda/capture.h"
#include "cuda/enter.h"
#include "cuda/queue.h"
#include "memory.h"

enum {
	LAYERED = 1,
	SURFACE = 2,
	CUBEMAP = 4,
	GATHER = 8,
	DEPTH = 16,
	COLOR = 32,
	SPARSE = 64,
	DEFERRED = 128,
	KNOWN_FLAGS = 255,
};

static CUresult check(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	if (!shape->Width || shape->Flags & ~(unsigned int)KNOWN_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	if (shape->Flags & DEFERRED)
		return CUDA_ERROR_NOT_SUPPORTED; /* as the device attributes say */
	if (shape->Flags & SPARSE && (!shape->Height || divvy_array_planes(shape->Format) > 1))
		return CUDA_ERROR_INVALID_VALUE;
	if (divvy_array_planes(shape->Format) == 1 && shape->NumChannels != 1 && shape->NumChannels != 2 &&
	    shape->NumChannels != 4 && (unsigned int)shape->Format < 145)
		return CUDA_ERROR_INVALID_VALUE;
	if (shape->Flags & CUBEMAP) {
		if (shape->Width != shape->Height || !shape->Depth || shape->Depth % 6 ||
		    (!(shape->Flags & LAYERED) && shape->Depth != 6))
			return CUDA_ERROR_INVALID_VALUE;
	} else if (shape->Flags & LAYERED) {
		if (!shape->Depth)
			return CUDA_ERROR_INVALID_VALUE;
	} else if (shape->Depth && !shape->Height) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static CUresult take(struct sd_card *card, uint64_t bytes, bool sparse, struct sd_texels *texels)
{
	CUresult result = sparse ? CUDA_SUCCESS : sd_charge(card, DIVVY_SIM_KIND_ARRAY, bytes);

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_arena_take(card, bytes, SD_UNIT, &texels->address);
	if (result != CUDA_SUCCESS) {
		if (!sparse)
			sd_release(card, DIVVY_SIM_KIND_ARRAY, bytes);
		return result;
	}
	texels->bytes = bytes;
	texels->mapping = NULL;
	texels->sparse = sparse;
	return CUDA_SUCCESS;
}

static void give(struct sd_card *card, const struct sd_texels *texels)
{
	if (!texels->bytes)
		return;
	if (texels->mapping) {
		texels->mapping->end(texels->mapping);
		return;
	}
	sd_arena_give(card, texels->address, texels->bytes);
	if (!texels->sparse)
		sd_release(card, DIVVY_SIM_KIND_ARRAY, texels->bytes);
}

static int lay_out(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int level, unsigned int plane,
		   struct divvy_plane *layout)
{
	return divvy_array_plane(shape->Width, shape->Height, shape->Depth, shape->Format, shape->NumChannels,
				 shape->Flags, level, plane, layout);
}

static void end_array(void *object)
{
	struct sd_array *array = object;

	for (int i = 0; i < 2; i++) {
		if (array->planes[i])
			sd_object_free(array->planes[i]);
	}
	sd_tiles_drop(array->tiles);
	give(array->card, &array->texels);
	sd_object_free(array);
}

static CUresult array_new(struct sd_context *context, const CUDA_ARRAY3D_DESCRIPTOR *shape, CUarray *handle)
{
	uint64_t bytes = 0;
	struct sd_texels texels = { 0 };
	CUresult result = check(shape);

	if (result != CUDA_SUCCESS)
		return result;
	if (divvy_array_bytes(shape->Width, shape->Height, shape->Depth, shape->Format, shape->NumChannels,
			      shape->Flags, 1, &bytes) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = sd_capture_forbids();
	if (result == CUDA_SUCCESS)
		result = take(context->card, bytes, shape->Flags & SPARSE, &texels);
	if (result != CUDA_SUCCESS)
		return result;
	struct sd_array *array = sd_object_new(SD_ARRAY, sizeof(*array), &context->object);

	if (!array) {
		give(context->card, &texels);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	array->object.end = end_array;
	array->card = context->card;
	array->shape = *shape;
	array->texels = texels;
	array->address = texels.address;
	array->bytes = bytes;
	(void)lay_out(shape, 0, 0, &array->layout);
	*handle = (CUarray)array;
	return CUDA_SUCCESS;
}

static void end_mipmap(void *object)
{
	struct sd_mipmap *mipmap = object;

	for (unsigned int i = 0; i < mipmap->levels; i++) {
		if (mipmap->level[i])
			end_array(mipmap->level[i]);
	}
	sd_tiles_drop(mipmap->tiles);
	give(mipmap->card, &mipmap->texels);
	sd_object_free(mipmap);
}

CUresult sd_mipmap_new(struct sd_context *context, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels,
		       const struct sd_texels *mapped, struct sd_mipmap **out)
{
	uint64_t bytes = 0;
	uint64_t longest = shape->Width > shape->Height ? shape->Width : shape->Height;
	unsigned int most = 1;
	struct sd_texels texels = { 0 };
	CUresult result = check(shape);

	if (result != CUDA_SUCCESS)
		return result;
	if (!(shape->Flags & (LAYERED | CUBEMAP)) && shape->Depth > longest)
		longest = shape->Depth;
	for (; longest > 1; longest >>= 1)
		most++;
	if (!levels)
		return CUDA_ERROR_INVALID_VALUE;
	levels = levels < most ? levels : most;
	if (divvy_array_bytes(shape->Width, shape->Height, shape->Depth, shape->Format, shape->NumChannels,
			      shape->Flags, levels, &bytes) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (mapped) {
		if (mapped->bytes < bytes)
			return CUDA_ERROR_INVALID_VALUE;
		texels = *mapped;
	} else {
		result = take(context->card, bytes, shape->Flags & SPARSE, &texels);
	}
	if (result != CUDA_SUCCESS)
		return result;
	struct sd_mipmap *mipmap = sd_object_new(SD_MIPMAP, sizeof(*mipmap), &context->object);

	if (!mipmap) {
		if (!mapped)
			give(context->card, &texels);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	mipmap->object.end = end_mipmap;
	mipmap->card = context->card;
	mipmap->shape = *shape;
	mipmap->texels = texels;
	mipmap->levels = levels;
	*out = mipmap;
	return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pHandle || !pAllocateArray)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return sd_leave(array_new(context, pAllocateArray, pHandle));
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	if (!pAllocateArray)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_ARRAY3D_DESCRIPTOR shape = {
		.Width = pAllocateArray->Width, .Height = pAllocateArray->Height,
		.Format = pAllocateArray->Format, .NumChannels = pAllocateArray->NumChannels,
	};

	return cuArray3DCreate_v2(pHandle, &shape);
}

/* an array with a life of its own: no level, no plane */
static struct sd_array *whole(CUarray handle)
{
	struct sd_array *array = sd_object_get(handle, SD_ARRAY);

	return array && array->texels.bytes ? array : NULL;
}

CUresult cuArrayDestroy(CUarray hArray)
{
	CUresult result = sd_enter_idle();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_array *array = whole(hArray);

	if (!array)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	sd_stream_drain_all();
	array = whole(hArray); /* draining lets other threads in */
	if (array)
		sd_object_end(array);
	return sd_leave(array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_array *array = sd_object_get(hArray, SD_ARRAY);

	if (!array)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!pArrayDescriptor)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pArrayDescriptor = array->shape;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	CUDA_ARRAY3D_DESCRIPTOR shape = { 0 };
	CUresult result = cuArray3DGetDescriptor_v2(&shape, hArray);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pArrayDescriptor)
		return CUDA_ERROR_INVALID_VALUE;
	*pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){ shape.Width, shape.Height, shape.Format, shape.NumChannels };
	return CUDA_SUCCESS;
}

CUresult cuArrayGetPlane(CUarray *pPlaneArray, CUarray hArray, unsigned int planeIdx)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_array *array = sd_object_get(hArray, SD_ARRAY);

	if (!array)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!pPlaneArray || planeIdx >= divvy_array_planes(array->shape.Format))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (divvy_array_planes(array->shape.Format) == 1)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (!array->planes[planeIdx]) {
		struct sd_array *plane = sd_object_new(SD_ARRAY, sizeof(*plane), NULL);

		if (!plane)
			return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
		plane->card = array->card;
		plane->plane = planeIdx;
		(void)lay_out(&array->shape, 0, planeIdx, &plane->layout);
		plane->address = array->address + (planeIdx ? array->layout.bytes : 0);
		plane->bytes = plane->layout.bytes;
		plane->shape = (CUDA_ARRAY3D_DESCRIPTOR){
			.Width = plane->layout.columns,
			.Height = array->shape.Height ? plane->layout.rows : 0,
			.Depth = array->shape.Depth,
			.Format = array->shape.Format == CU_AD_FORMAT_NV12 ? CU_AD_FORMAT_UNSIGNED_INT8
									    : CU_AD_FORMAT_UNSIGNED_INT16,
			.NumChannels = planeIdx + 1,
			.Flags = array->shape.Flags,
		};
		array->planes[planeIdx] = plane;
	}
	*pPlaneArray = (CUarray)array->planes[planeIdx];
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUarray array,
				      CUdevice device)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_array *found = sd_object_get(array, SD_ARRAY);

	if (!found)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!memoryRequirements || !sd_card(device))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*memoryRequirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){ .size = found->bytes, .alignment = SD_UNIT };
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
				unsigned int numMipmapLevels)
{
	struct sd_context *context = NULL;
	struct sd_mipmap *mipmap = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pHandle || !pMipmappedArrayDesc)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_capture_forbids();
	if (result == CUDA_SUCCESS)
		result = sd_mipmap_new(context, pMipmappedArrayDesc, numMipmapLevels, NULL, &mipmap);
	if (result == CUDA_SUCCESS)
		*pHandle = (CUmipmappedArray)mipmap;
	return sd_leave(result);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	CUresult result = sd_enter_idle();

	if (result != CUDA_SUCCESS)
		return result;
	sd_stream_drain_all();
	struct sd_mipmap *mipmap = sd_object_get(hMipmappedArray, SD_MIPMAP);

	if (!mipmap)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	sd_object_end(mipmap);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_mipmap *mipmap = sd_object_get(hMipmappedArray, SD_MIPMAP);

	if (!mipmap)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!pLevelArray || level >= mipmap->levels)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (!mipmap->level[level]) {
		struct sd_array *array = sd_object_new(SD_ARRAY, sizeof(*array), NULL);
		uint64_t offset = 0;

		if (!array)
			return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
		for (unsigned int i = 0; i < level; i++) {
			for (unsigned int plane = 0; plane < divvy_array_planes(mipmap->shape.Format); plane++) {
				(void)lay_out(&mipmap->shape, i, plane, &array->layout);
				offset += array->layout.bytes;
			}
		}
		(void)lay_out(&mipmap->shape, level, 0, &array->layout);
		array->card = mipmap->card;
		array->address = mipmap->texels.address + offset;
		array->bytes = array->layout.bytes;
		array->shape = mipmap->shape;
		array->shape.Width = array->shape.Width >> level ? array->shape.Width >> level : 1;
		if (array->shape.Height)
			array->shape.Height = array->shape.Height >> level ? array->shape.Height >> level : 1;
		if (array->shape.Depth && !(array->shape.Flags & (LAYERED | CUBEMAP)))
			array->shape.Depth = array->shape.Depth >> level ? array->shape.Depth >> level : 1;
		mipmap->level[level] = array;
	}
	*pLevelArray = (CUarray)mipmap->level[level];
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
					       CUmipmappedArray mipmap, CUdevice device)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_mipmap *found = sd_object_get(mipmap, SD_MIPMAP);

	if (!found)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!memoryRequirements || !sd_card(device))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*memoryRequirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){ .size = found->texels.bytes, .alignment = SD_UNIT };
	return sd_leave(CUDA_SUCCESS);
}
