/* SPDX-License-Identifier: Apache-2.0 */
#include "texture.h"

#include "array.h"
#include "cuda/enter.h"
#include "cuda/queue.h"
#include "memory.h"

static CUresult check(const CUDA_RESOURCE_DESC *resource)
{
	switch (resource->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		return sd_object_get(resource->res.array.hArray, SD_ARRAY) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		return sd_object_get(resource->res.mipmap.hMipmappedArray, SD_MIPMAP) ? CUDA_SUCCESS
										       : CUDA_ERROR_INVALID_HANDLE;
	case CU_RESOURCE_TYPE_LINEAR:
		return sd_reach(resource->res.linear.devPtr, resource->res.linear.sizeInBytes, NULL, false, NULL)
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_INVALID_VALUE;
	case CU_RESOURCE_TYPE_PITCH2D: {
		uint64_t bytes = 0;

		if (!resource->res.pitch2D.height ||
		    __builtin_mul_overflow(resource->res.pitch2D.pitchInBytes, resource->res.pitch2D.height - 1, &bytes))
			return CUDA_ERROR_INVALID_VALUE;
		return sd_reach(resource->res.pitch2D.devPtr, bytes + 1, NULL, false, NULL) ? CUDA_SUCCESS
											    : CUDA_ERROR_INVALID_VALUE;
	}
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
			   const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pTexObject || !pResDesc || !pTexDesc || pResDesc->flags)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (pTexDesc->flags & SD_TEXTURE_SRGB)
		return sd_leave(CUDA_ERROR_NOT_SUPPORTED);
	result = check(pResDesc);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	struct sd_texture *made = sd_object_new(SD_TEXTURE, sizeof(*made), &context->object);

	if (!made)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	made->resource = *pResDesc;
	made->texture = *pTexDesc;
	made->viewed = pResViewDesc != NULL;
	if (pResViewDesc)
		made->view = *pResViewDesc;
	*pTexObject = (CUtexObject)(uintptr_t)made;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pSurfObject || !pResDesc || pResDesc->flags || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	const struct sd_array *array = sd_object_get(pResDesc->res.array.hArray, SD_ARRAY);

	if (!array)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!(array->shape.Flags & 2)) /* CUDA_ARRAY3D_SURFACE_LDST */
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sd_texture *made = sd_object_new(SD_SURFACE, sizeof(*made), &context->object);

	if (!made)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	made->resource = *pResDesc;
	*pSurfObject = (CUsurfObject)(uintptr_t)made;
	return sd_leave(CUDA_SUCCESS);
}

/* The object, with the lock taken; unlocked unless it is there. */
static CUresult enter(unsigned long long handle, enum sd_kind kind, struct sd_texture **texture)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	*texture = sd_object_get((const void *)(uintptr_t)handle, kind);
	return *texture && !(*texture)->destroyed ? CUDA_SUCCESS : sd_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuTexObjectDestroy(CUtexObject texObject)
{
	struct sd_texture *texture = NULL;
	CUresult result = enter(texObject, SD_TEXTURE, &texture);

	if (result != CUDA_SUCCESS)
		return result;
	texture->destroyed = true;
	sd_queue_free(&texture->object);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject)
{
	struct sd_texture *texture = NULL;
	CUresult result = enter(surfObject, SD_SURFACE, &texture);

	if (result != CUDA_SUCCESS)
		return result;
	texture->destroyed = true;
	sd_queue_free(&texture->object);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
	struct sd_texture *texture = NULL;
	CUresult result = enter(texObject, SD_TEXTURE, &texture);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pResDesc)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pResDesc = texture->resource;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
	struct sd_texture *texture = NULL;
	CUresult result = enter(surfObject, SD_SURFACE, &texture);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pResDesc)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pResDesc = texture->resource;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
	struct sd_texture *texture = NULL;
	CUresult result = enter(texObject, SD_TEXTURE, &texture);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pTexDesc)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pTexDesc = texture->texture;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc, CUtexObject texObject)
{
	struct sd_texture *texture = NULL;
	CUresult result = enter(texObject, SD_TEXTURE, &texture);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pResViewDesc || !texture->viewed)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pResViewDesc = texture->view;
	return sd_leave(CUDA_SUCCESS);
}
