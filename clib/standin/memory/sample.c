/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c: from handles of textures and surfaces to texels, for the interpreter. */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "memory.h"
#include "texture.h"

struct sd_sample {
	struct sd_sample *next;
	uint64_t handle;
	bool surface;
	bool found;
	struct ptx_texture texture;
};

/* How a channel is kept. */
static bool set_format(struct ptx_texture *texture, CUarray_format format, unsigned int channels)
{
	/* the normalised ones: 8 bits of 1, 2, 4 channels, then 16 bits; unsigned, then signed */
	bool unorm = format >= CU_AD_FORMAT_UNORM_INT8X1 && format <= CU_AD_FORMAT_UNORM_INT16X4;
	bool snorm = format >= CU_AD_FORMAT_SNORM_INT8X1 && format <= CU_AD_FORMAT_SNORM_INT16X4;

	texture->channels = (uint8_t)channels;
	if (unorm || snorm) {
		unsigned int which = (unsigned int)format -
				     (unsigned int)(unorm ? CU_AD_FORMAT_UNORM_INT8X1 : CU_AD_FORMAT_SNORM_INT8X1);

		texture->channels = (uint8_t)(1u << which % 3);
		texture->channelbytes = which < 3 ? 1 : 2;
		texture->sign = snorm;
		texture->integers = false;
		return true;
	}
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		texture->channelbytes = 1;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		texture->channelbytes = 2;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		texture->channelbytes = 4;
		break;
	default:
		return false;
	}
	texture->sign = format >= CU_AD_FORMAT_SIGNED_INT8 && format <= CU_AD_FORMAT_SIGNED_INT32;
	texture->real = format == CU_AD_FORMAT_HALF || format == CU_AD_FORMAT_FLOAT;
	return channels == 1 || channels == 2 || channels == 4;
}

static bool of_array(struct ptx_texture *texture, CUarray handle)
{
	const struct sd_array *array = sd_object_get(handle, SD_ARRAY);

	if (!array || !set_format(texture, array->shape.Format, array->shape.NumChannels))
		return false;
	const struct divvy_plane *layout = &array->layout;

	/* cubemaps have rules of their own; what is mapped into a sparse array is not in it */
	if (array->shape.Flags & DIVVY_ARRAY_CUBEMAP || array->tiles || array->texels.sparse ||
	    layout->elementbytes != (uint64_t)texture->channels * texture->channelbytes)
		return false;
	texture->host = sd_alias(array->address);
	texture->width = layout->columns;
	texture->height = array->shape.Height ? layout->rows : 0;
	texture->depth = array->shape.Depth ? layout->slices : 0;
	texture->pitch = layout->pitch;
	texture->slice = layout->pitch * layout->slicerows;
	texture->layered = (array->shape.Flags & DIVVY_ARRAY_LAYERED) != 0;
	return true;
}

/* The first level: that is what is read without a level of detail. */
static bool of_mipmap(struct ptx_texture *texture, CUmipmappedArray handle)
{
	const struct sd_mipmap *mipmap = sd_object_get(handle, SD_MIPMAP);
	struct divvy_plane layout;

	if (!mipmap || mipmap->levels != 1 || mipmap->tiles || mipmap->texels.sparse ||
	    mipmap->shape.Flags & DIVVY_ARRAY_CUBEMAP ||
	    !set_format(texture, mipmap->shape.Format, mipmap->shape.NumChannels) ||
	    divvy_array_plane(mipmap->shape.Width, mipmap->shape.Height, mipmap->shape.Depth, mipmap->shape.Format,
			      mipmap->shape.NumChannels, mipmap->shape.Flags, 0, 0, &layout) < 0)
		return false;
	texture->host = sd_alias(mipmap->texels.address);
	texture->width = layout.columns;
	texture->height = mipmap->shape.Height ? layout.rows : 0;
	texture->depth = mipmap->shape.Depth ? layout.slices : 0;
	texture->pitch = layout.pitch;
	texture->slice = layout.pitch * layout.slicerows;
	texture->layered = (mipmap->shape.Flags & DIVVY_ARRAY_LAYERED) != 0;
	return true;
}

static bool of_linear(struct ptx_texture *texture, const struct sd_card *card, CUdeviceptr address, size_t bytes,
		      CUarray_format format, unsigned int channels)
{
	if (!set_format(texture, format, channels))
		return false;
	texture->host = sd_reach(address, bytes, card, false, NULL);
	texture->width = bytes / ((uint64_t)texture->channels * texture->channelbytes);
	texture->pitch = bytes;
	texture->buffer = true;
	return texture->host && texture->width;
}

static bool of_pitched(struct ptx_texture *texture, const struct sd_card *card, CUdeviceptr address, size_t pitch,
		       size_t width, size_t height, CUarray_format format, unsigned int channels)
{
	uint64_t bytes = 0;

	if (!set_format(texture, format, channels) || !width || !height)
		return false;
	uint64_t row = width * ((uint64_t)texture->channels * texture->channelbytes);

	if (row > pitch || __builtin_mul_overflow((uint64_t)pitch, height - 1, &bytes))
		return false;
	texture->host = sd_reach(address, bytes + row, card, false, NULL);
	texture->width = width;
	texture->height = height;
	texture->pitch = pitch;
	return texture->host != NULL;
}

static void set_modes(struct ptx_texture *texture, const CUaddress_mode modes[3], CUfilter_mode filter,
		      unsigned int flags, const float color[4])
{
	static const uint8_t wraps[] = { PTX_WRAP, PTX_CLAMP, PTX_MIRROR, PTX_BORDER };

	texture->normalized = (flags & SD_TEXTURE_NORMALIZED) != 0;
	texture->linear = filter == CU_TR_FILTER_MODE_LINEAR;
	for (unsigned int i = 0; i < 3; i++)
		texture->wrap[i] = wraps[(unsigned int)modes[i] % 4];
	memcpy(texture->border, color, sizeof(texture->border));
}

static bool of_object(struct ptx_texture *texture, const struct sd_card *card, const struct sd_texture *object)
{
	const CUDA_RESOURCE_DESC *resource = &object->resource;

	/* before the format, which takes it back for formats that are fractions */
	texture->integers = (object->texture.flags & SD_TEXTURE_INTEGERS) != 0;
	set_modes(texture, object->texture.addressMode, object->texture.filterMode, object->texture.flags,
		  object->texture.borderColor);
	if (object->viewed && (object->view.format || object->view.firstMipmapLevel || object->view.firstLayer))
		return false; /* another view of the same bytes */
	switch (resource->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		return of_array(texture, resource->res.array.hArray);
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		return of_mipmap(texture, resource->res.mipmap.hMipmappedArray);
	case CU_RESOURCE_TYPE_LINEAR:
		return of_linear(texture, card, resource->res.linear.devPtr, resource->res.linear.sizeInBytes,
				 resource->res.linear.format, resource->res.linear.numChannels);
	case CU_RESOURCE_TYPE_PITCH2D:
		return of_pitched(texture, card, resource->res.pitch2D.devPtr, resource->res.pitch2D.pitchInBytes,
				  resource->res.pitch2D.width, resource->res.pitch2D.height,
				  resource->res.pitch2D.format, resource->res.pitch2D.numChannels);
	default:
		return false;
	}
}

static bool find(struct ptx_texture *texture, const struct sd_card *card, uint64_t handle, bool surface)
{
	const void *object = (const void *)(uintptr_t)handle;
	const struct sd_texture *made = sd_object_get(object, surface ? SD_SURFACE : SD_TEXTURE);

	return made && of_object(texture, card, made);
}

static const struct ptx_texture *known(const struct sd_samples *samples, uint64_t handle, bool surface, bool *seen)
{
	for (const struct sd_sample *one = samples->first; one; one = one->next) {
		if (one->handle == handle && one->surface == surface) {
			*seen = true;
			return one->found ? &one->texture : NULL;
		}
	}
	*seen = false;
	return NULL;
}

const struct ptx_texture *sd_samples_find(struct sd_samples *samples, uint64_t handle, bool surface)
{
	bool seen = false;
	const struct ptx_texture *texture = known(samples, handle, surface, &seen);

	if (seen)
		return texture;
	sd_lock();
	texture = known(samples, handle, surface, &seen); /* another thread's, since */
	struct sd_sample *made = seen ? NULL : calloc(1, sizeof(*made));

	if (made) {
		made->handle = handle;
		made->surface = surface;
		made->found = find(&made->texture, samples->card, handle, surface);
		made->next = samples->first;
		samples->first = made;
		texture = made->found ? &made->texture : NULL;
	}
	sd_unlock();
	return texture;
}

void sd_samples_end(struct sd_samples *samples)
{
	struct sd_sample *one = samples->first;

	while (one) {
		struct sd_sample *next = one->next;

		free(one);
		one = next;
	}
	samples->first = NULL;
}
