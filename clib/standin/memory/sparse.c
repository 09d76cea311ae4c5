/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse.c: sparse arrays, and mapping physical memory into their tiles.
 *
 * A tile has 64 KiB. What is mapped is held (its memory stays charged when its
 * handle is released) until it is unmapped or the array goes. The contents are
 * the array's own: the same memory mapped elsewhere does not show them, and
 * what is written where nothing is mapped is kept, which hardware discards.
 */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "cuda/capture.h"
#include "cuda/enter.h"
#include "cuda/queue.h"
#include "virtual.h"

enum { TILE = 64 << 10, SPARSE = 64, LAYERS = DIVVY_ARRAY_LAYERED | DIVVY_ARRAY_CUBEMAP };

/* One mapping into an array: the place, and what is there. */
struct sd_tile {
	struct sd_tile *next;
	CUarraySparseSubresourceType type;
	unsigned int level;
	unsigned int layer;
	uint64_t offset[3]; /* of the miptail: in the first */
	uint64_t extent[3];
	struct sd_physical *physical;
};

struct extent {
	uint64_t width, height, depth;
};

static struct extent tile_extent(const CUDA_ARRAY3D_DESCRIPTOR *shape, uint64_t element)
{
	static const struct extent flat[] = {
		{ 256, 256, 1 }, { 256, 128, 1 }, { 128, 128, 1 }, { 128, 64, 1 }, { 64, 64, 1 },
	};
	static const struct extent deep[] = {
		{ 64, 32, 32 }, { 32, 32, 32 }, { 32, 32, 16 }, { 32, 16, 16 }, { 16, 16, 16 },
	};
	unsigned int power = 0;

	while (power < 4 && 1ull << power < element)
		power++;
	return shape->Depth && !(shape->Flags & LAYERS) ? deep[power] : flat[power];
}

static uint64_t level_of(uint64_t size, unsigned int level)
{
	return size >> level ? size >> level : 1;
}

static CUresult properties(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels,
			   CUDA_ARRAY_SPARSE_PROPERTIES *out)
{
	struct divvy_plane plane;
	uint64_t tail = 0;
	unsigned int first = levels;

	if (!(shape->Flags & SPARSE) ||
	    divvy_array_plane(shape->Width, shape->Height, shape->Depth, shape->Format, shape->NumChannels, shape->Flags,
			      0, 0, &plane) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	const struct extent tile = tile_extent(shape, plane.elementbytes);

	/* levels smaller than a tile are packed into the tail */
	for (unsigned int level = 0; level < levels; level++) {
		if (first == levels && level_of(shape->Width, level) >= tile.width &&
		    level_of(shape->Height, level) >= tile.height)
			continue;
		if (first == levels)
			first = level;
		(void)divvy_array_plane(shape->Width, shape->Height, shape->Depth, shape->Format, shape->NumChannels,
					shape->Flags, level, 0, &plane);
		tail += plane.bytes;
	}
	*out = (CUDA_ARRAY_SPARSE_PROPERTIES){
		.tileExtent = { (unsigned int)tile.width, (unsigned int)tile.height, (unsigned int)tile.depth },
		.miptailFirstLevel = first,
		.miptailSize = (tail + TILE - 1) / TILE * TILE,
		.flags = 1, /* one tail for all layers */
	};
	return CUDA_SUCCESS;
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *sparseProperties, CUarray array)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_array *found = sd_object_get(array, SD_ARRAY);

	if (!found)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	return sd_leave(sparseProperties ? properties(&found->shape, 1, sparseProperties) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *sparseProperties, CUmipmappedArray mipmap)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_mipmap *found = sd_object_get(mipmap, SD_MIPMAP);

	if (!found)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	return sd_leave(sparseProperties ? properties(&found->shape, found->levels, sparseProperties)
					 : CUDA_ERROR_INVALID_VALUE);
}

/* The array that an entry names. */
struct target {
	const CUDA_ARRAY3D_DESCRIPTOR *shape;
	const struct sd_card *card;
	unsigned int levels;
	struct sd_tile **tiles;
};

static CUresult find(const CUarrayMapInfo *info, struct target *target)
{
	if (info->resourceType == CU_RESOURCE_TYPE_ARRAY) {
		struct sd_array *array = sd_object_get(info->resource.array, SD_ARRAY);

		if (!array || !array->texels.sparse)
			return array ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
		*target = (struct target){ &array->shape, array->card, 1, &array->tiles };
		return CUDA_SUCCESS;
	}
	if (info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
		struct sd_mipmap *mipmap = sd_object_get(info->resource.mipmap, SD_MIPMAP);

		if (!mipmap || !mipmap->texels.sparse)
			return mipmap ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
		*target = (struct target){ &mipmap->shape, mipmap->card, mipmap->levels, &mipmap->tiles };
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* one direction of a level's part: whole tiles, or up to the level's end */
static bool whole_tiles(uint64_t offset, uint64_t extent, uint64_t size, uint64_t tile, uint64_t *count)
{
	if (!extent || offset % tile || offset >= size || extent > (size + tile - 1) / tile * tile - offset)
		return false;
	if (extent % tile && offset + extent != size)
		return false;
	*count *= (extent + tile - 1) / tile;
	return true;
}

/* Reads an entry's place, checks it, and says how many bytes of memory it takes. */
static CUresult place(const CUarrayMapInfo *info, const struct target *target, struct sd_tile *tile, uint64_t *bytes)
{
	CUDA_ARRAY_SPARSE_PROPERTIES is;
	const CUDA_ARRAY3D_DESCRIPTOR *shape = target->shape;
	bool layered = shape->Flags & LAYERS;
	uint64_t tiles = 1;
	CUresult result = properties(shape, target->levels, &is);

	if (result != CUDA_SUCCESS)
		return result;
	*tile = (struct sd_tile){ .type = info->subresourceType };
	if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
		tile->layer = info->subresource.miptail.layer;
		tile->offset[0] = info->subresource.miptail.offset;
		tile->extent[0] = *bytes = info->subresource.miptail.size;
		if (!*bytes || *bytes % TILE || tile->offset[0] % TILE || tile->offset[0] > is.miptailSize ||
		    *bytes > is.miptailSize - tile->offset[0])
			return CUDA_ERROR_INVALID_VALUE;
		return CUDA_SUCCESS;
	}
	if (info->subresourceType != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL)
		return CUDA_ERROR_INVALID_VALUE;
	tile->level = info->subresource.sparseLevel.level;
	tile->layer = info->subresource.sparseLevel.layer;
	tile->offset[0] = info->subresource.sparseLevel.offsetX;
	tile->offset[1] = info->subresource.sparseLevel.offsetY;
	tile->offset[2] = info->subresource.sparseLevel.offsetZ;
	tile->extent[0] = info->subresource.sparseLevel.extentWidth;
	tile->extent[1] = info->subresource.sparseLevel.extentHeight;
	tile->extent[2] = info->subresource.sparseLevel.extentDepth;
	uint64_t depth = shape->Depth && !layered ? level_of(shape->Depth, tile->level) : 1;

	if (tile->level >= target->levels || tile->layer >= (layered ? shape->Depth : 1) ||
	    !whole_tiles(tile->offset[0], tile->extent[0], level_of(shape->Width, tile->level), is.tileExtent.width, &tiles) ||
	    !whole_tiles(tile->offset[1], tile->extent[1], level_of(shape->Height, tile->level), is.tileExtent.height,
			 &tiles) ||
	    !whole_tiles(tile->offset[2], tile->extent[2], depth, is.tileExtent.depth, &tiles))
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = tiles * TILE;
	return CUDA_SUCCESS;
}

/* the mapping at that place, as a link to it */
static struct sd_tile **mapped(struct sd_tile **link, const struct sd_tile *at)
{
	while (*link && ((*link)->type != at->type || (*link)->level != at->level || (*link)->layer != at->layer ||
			 memcmp((*link)->offset, at->offset, sizeof(at->offset)) != 0 ||
			 memcmp((*link)->extent, at->extent, sizeof(at->extent)) != 0))
		link = &(*link)->next;
	return link;
}

static void unmap(struct sd_tile **link)
{
	struct sd_tile *tile = *link;

	if (!tile)
		return;
	*link = tile->next;
	sd_physical_drop(tile->physical);
	free(tile);
}

void sd_tiles_drop(struct sd_tile *first)
{
	while (first)
		unmap(&first);
}

static CUresult apply(const CUarrayMapInfo *info, bool dry)
{
	struct target target;
	struct sd_tile at;
	uint64_t bytes = 0;
	CUresult result = find(info, &target);

	if (result != CUDA_SUCCESS)
		return result;
	if (info->flags || info->memHandleType != CU_MEM_HANDLE_TYPE_GENERIC ||
	    info->deviceBitMask != 1u << target.card->ordinal)
		return CUDA_ERROR_INVALID_VALUE;
	result = place(info, &target, &at, &bytes);
	if (result != CUDA_SUCCESS)
		return result;
	if (info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP) {
		if (!dry)
			unmap(mapped(target.tiles, &at));
		return CUDA_SUCCESS;
	}
	at.physical = sd_physical_get(info->memHandle.memHandle);
	if (info->memOperationType != CU_MEM_OPERATION_TYPE_MAP || !at.physical || at.physical->card != target.card ||
	    info->offset % TILE || info->offset > at.physical->bytes || bytes > at.physical->bytes - info->offset)
		return CUDA_ERROR_INVALID_VALUE;
	if (dry)
		return CUDA_SUCCESS;
	struct sd_tile *tile = malloc(sizeof(*tile));

	if (!tile)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sd_physical_hold(at.physical);
	unmap(mapped(target.tiles, &at)); /* it takes the place of what was there */
	*tile = at;
	tile->next = *target.tiles;
	*target.tiles = tile;
	return CUDA_SUCCESS;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_stream_of(hStream, &stream);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (!mapInfoList || !count)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (stream->capture)
		return sd_leave(sd_capture_break(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
	sd_stream_drain(stream);
	/* all of it or nothing */
	for (unsigned int i = 0; result == CUDA_SUCCESS && i < count; i++)
		result = apply(&mapInfoList[i], true);
	for (unsigned int i = 0; result == CUDA_SUCCESS && i < count; i++)
		result = apply(&mapInfoList[i], false);
	return sd_leave(result);
}

SD_PTSZ(cuMemMapArrayAsync, (CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream), mapInfoList, count,
	sd_per_thread(hStream))
