/* SPDX-License-Identifier: Apache-2.0 */
/* textureref.c: texture and surface references, from before texture objects. */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "memory.h"
#include "module.h"
#include "textureref.h"

/* The reference, with the lock taken; unlocked unless it and out are there. */
static CUresult enter(CUtexref handle, const void *out, struct sd_reference **reference)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	*reference = sd_object_get(handle, SD_TEXTURE_REFERENCE);
	if (!*reference)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	return out ? CUDA_SUCCESS : sd_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuTexRefCreate(CUtexref *pTexRef)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pTexRef)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sd_reference *made = sd_object_new(SD_TEXTURE_REFERENCE, sizeof(*made), &context->object);

	if (!made)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	made->format = CU_AD_FORMAT_FLOAT;
	made->channels = 1;
	*pTexRef = (CUtexref)made;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefDestroy(CUtexref hTexRef)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, hTexRef, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	if (reference->module) /* it goes with its module */
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	sd_object_free(reference);
	return sd_leave(CUDA_SUCCESS);
}

CUresult sd_reference_new(bool surface, struct sd_module *module, struct sd_reference **out)
{
	struct sd_reference *made =
		sd_object_new(surface ? SD_SURFACE_REFERENCE : SD_TEXTURE_REFERENCE, sizeof(*made), NULL);

	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->module = module;
	made->format = CU_AD_FORMAT_FLOAT;
	made->channels = 1;
	*out = made;
	return CUDA_SUCCESS;
}

CUresult cuTexRefSetArray(CUtexref hTexRef, CUarray hArray, unsigned int Flags)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, hTexRef, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_array *array = sd_object_get(hArray, SD_ARRAY);

	if (Flags != 1 || !array) /* CU_TRSA_OVERRIDE_FORMAT */
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	reference->array = hArray;
	reference->mipmap = NULL;
	reference->address = 0;
	reference->format = array->shape.Format;
	reference->channels = (int)array->shape.NumChannels;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefSetMipmappedArray(CUtexref hTexRef, CUmipmappedArray hMipmappedArray, unsigned int Flags)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, hTexRef, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	if (Flags != 1 || !sd_object_get(hMipmappedArray, SD_MIPMAP))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	reference->mipmap = hMipmappedArray;
	reference->array = NULL;
	reference->address = 0;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefSetAddress_v2(size_t *ByteOffset, CUtexref hTexRef, CUdeviceptr dptr, size_t bytes)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, hTexRef, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	if (!sd_reach(dptr, bytes, NULL, false, NULL) || (dptr % 512 && !ByteOffset))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	reference->address = dptr;
	reference->bytes = bytes;
	reference->pitch = 0;
	reference->array = NULL;
	reference->mipmap = NULL;
	if (ByteOffset)
		*ByteOffset = dptr % 512;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefSetAddress2D_v3(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR *desc, CUdeviceptr dptr, size_t Pitch)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, desc, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	if (!Pitch || !sd_reach(dptr, 1, NULL, false, NULL))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	reference->address = dptr;
	reference->bytes = 0;
	reference->pitch = Pitch;
	reference->width = desc->Width;
	reference->height = desc->Height;
	reference->array = NULL;
	reference->mipmap = NULL;
	reference->format = desc->Format;
	reference->channels = (int)desc->NumChannels;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefSetAddress2D_v2(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR *desc, CUdeviceptr dptr, size_t Pitch)
{
	return cuTexRefSetAddress2D_v3(hTexRef, desc, dptr, Pitch);
}

CUresult cuTexRefSetAddress(unsigned int *ByteOffset, CUtexref hTexRef, CUdeviceptr_v1 dptr, unsigned int bytes)
{
	size_t offset = 0;
	CUresult result = cuTexRefSetAddress_v2(&offset, hTexRef, dptr, bytes);

	if (result == CUDA_SUCCESS && ByteOffset)
		*ByteOffset = (unsigned int)offset;
	return result;
}

CUresult cuTexRefSetAddress2D(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR_v1 *desc, CUdeviceptr_v1 dptr,
			      unsigned int Pitch)
{
	if (!desc)
		return CUDA_ERROR_INVALID_VALUE;
	const CUDA_ARRAY_DESCRIPTOR wide = { desc->Width, desc->Height, desc->Format, desc->NumChannels };

	return cuTexRefSetAddress2D_v3(hTexRef, &wide, dptr, Pitch);
}

CUresult cuTexRefGetArray(CUarray *phArray, CUtexref hTexRef)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, phArray, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	if (!reference->array)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*phArray = reference->array;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefGetMipmappedArray(CUmipmappedArray *phMipmappedArray, CUtexref hTexRef)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, phMipmappedArray, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	if (!reference->mipmap)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*phMipmappedArray = reference->mipmap;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefGetAddress_v2(CUdeviceptr *pdptr, CUtexref hTexRef)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, pdptr, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	if (!reference->address)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pdptr = reference->address;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefGetAddress(CUdeviceptr_v1 *pdptr, CUtexref hTexRef)
{
	(void)pdptr;
	(void)hTexRef;
	return CUDA_ERROR_NOT_SUPPORTED; /* no address here has 32 bits */
}

CUresult cuTexRefSetFormat(CUtexref hTexRef, CUarray_format fmt, int NumPackedComponents)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, hTexRef, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	if (NumPackedComponents != 1 && NumPackedComponents != 2 && NumPackedComponents != 4)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	reference->format = fmt;
	reference->channels = NumPackedComponents;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefGetFormat(CUarray_format *pFormat, int *pNumChannels, CUtexref hTexRef)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, hTexRef, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	if (pFormat)
		*pFormat = reference->format;
	if (pNumChannels)
		*pNumChannels = reference->channels;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefSetAddressMode(CUtexref hTexRef, int dim, CUaddress_mode am)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, hTexRef, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	if (dim < 0 || dim > 2 || (unsigned int)am > 3)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	reference->mode[dim] = am;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefGetAddressMode(CUaddress_mode *pam, CUtexref hTexRef, int dim)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, pam, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	if (dim < 0 || dim > 2)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pam = reference->mode[dim];
	return sd_leave(CUDA_SUCCESS);
}

/* One value of a reference, set and read. */
#define PROPERTY(setter, getter, type, field, valid)                                         \
	CUresult setter(CUtexref hTexRef, type value)                                        \
	{                                                                                    \
		struct sd_reference *reference = NULL;                                          \
		CUresult result = enter(hTexRef, hTexRef, &reference);                       \
                                                                                             \
		if (result != CUDA_SUCCESS)                                                  \
			return result;                                                       \
		if (!(valid))                                                                \
			return sd_leave(CUDA_ERROR_INVALID_VALUE);                           \
		reference->field = value;                                                    \
		return sd_leave(CUDA_SUCCESS);                                               \
	}                                                                                    \
	CUresult getter(PROPERTY_OUT(type) out, CUtexref hTexRef)                            \
	{                                                                                    \
		struct sd_reference *reference = NULL;                                          \
		CUresult result = enter(hTexRef, out, &reference);                           \
                                                                                             \
		if (result != CUDA_SUCCESS)                                                  \
			return result;                                                       \
		*out = (__typeof__(*out))reference->field;                                   \
		return sd_leave(CUDA_SUCCESS);                                               \
	}

#define PROPERTY_OUT(type) type *
PROPERTY(cuTexRefSetFilterMode, cuTexRefGetFilterMode, CUfilter_mode, filter, (unsigned int)value <= 1)
PROPERTY(cuTexRefSetMipmapFilterMode, cuTexRefGetMipmapFilterMode, CUfilter_mode, mipfilter, (unsigned int)value <= 1)
PROPERTY(cuTexRefSetMipmapLevelBias, cuTexRefGetMipmapLevelBias, float, bias, true)
PROPERTY(cuTexRefSetFlags, cuTexRefGetFlags, unsigned int, flags, value <= 0x1f)
#undef PROPERTY_OUT
#define PROPERTY_OUT(type) int *
PROPERTY(cuTexRefSetMaxAnisotropy, cuTexRefGetMaxAnisotropy, unsigned int, anisotropy, value <= 16)

CUresult cuTexRefSetMipmapLevelClamp(CUtexref hTexRef, float minMipmapLevelClamp, float maxMipmapLevelClamp)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, hTexRef, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	reference->clamp[0] = minMipmapLevelClamp;
	reference->clamp[1] = maxMipmapLevelClamp;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefGetMipmapLevelClamp(float *pminMipmapLevelClamp, float *pmaxMipmapLevelClamp, CUtexref hTexRef)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, hTexRef, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	if (pminMipmapLevelClamp)
		*pminMipmapLevelClamp = reference->clamp[0];
	if (pmaxMipmapLevelClamp)
		*pmaxMipmapLevelClamp = reference->clamp[1];
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefSetBorderColor(CUtexref hTexRef, float *pBorderColor)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, pBorderColor, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	memcpy(reference->border, pBorderColor, sizeof(reference->border));
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuTexRefGetBorderColor(float *pBorderColor, CUtexref hTexRef)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, pBorderColor, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	memcpy(pBorderColor, reference->border, sizeof(reference->border));
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuParamSetTexRef(CUfunction hfunc, int texunit, CUtexref hTexRef)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter(hTexRef, hTexRef, &reference);

	(void)texunit;
	if (result != CUDA_SUCCESS)
		return result;
	return sd_leave(sd_object_get(hfunc, SD_FUNCTION) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

/* The surface reference, with the lock taken; unlocked unless it is there. */
static CUresult enter_surface(CUsurfref handle, struct sd_reference **reference)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	*reference = sd_object_get(handle, SD_SURFACE_REFERENCE);
	return *reference ? CUDA_SUCCESS : sd_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuSurfRefSetArray(CUsurfref hSurfRef, CUarray hArray, unsigned int Flags)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter_surface(hSurfRef, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_array *array = sd_object_get(hArray, SD_ARRAY);

	if (Flags || !array || !(array->shape.Flags & 2)) /* CUDA_ARRAY3D_SURFACE_LDST */
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	reference->array = hArray;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuSurfRefGetArray(CUarray *phArray, CUsurfref hSurfRef)
{
	struct sd_reference *reference = NULL;
	CUresult result = enter_surface(hSurfRef, &reference);

	if (result != CUDA_SUCCESS)
		return result;
	if (!phArray || !reference->array)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*phArray = reference->array;
	return sd_leave(CUDA_SUCCESS);
}
