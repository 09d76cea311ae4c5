/* SPDX-License-Identifier: Apache-2.0 */
/* array.h: CUDA arrays and mipmapped arrays; their size rule is divvy_arrays.h. */
#ifndef DIVVY_STANDIN_ARRAY_H
#define DIVVY_STANDIN_ARRAY_H

#include "cuda/context.h"
#include "divvy_arrays.h"

/* Contents of an array or mipmapped array: in the card's arena, or in a mapping
 * of external memory that ends with the array. */
struct sd_texels {
	uint64_t address;
	uint64_t bytes;
	struct sd_memory *mapping;
	bool sparse; /* costs nothing: what is mapped into it has been paid for */
};

struct sd_array {
	struct sd_object object;
	struct sd_card *card;
	CUDA_ARRAY3D_DESCRIPTOR shape;
	struct sd_texels texels; /* its own; bytes is 0 for levels and planes */
	uint64_t address;        /* of this level or plane */
	uint64_t bytes;
	unsigned int plane;
	struct divvy_plane layout;
	struct sd_array *planes[2]; /* handles given out */
	struct sd_tile *tiles;      /* of a sparse one: what is mapped into it */
};

struct sd_mipmap {
	struct sd_object object;
	struct sd_card *card;
	CUDA_ARRAY3D_DESCRIPTOR shape;
	struct sd_texels texels;
	unsigned int levels;
	struct sd_array *level[32]; /* handles given out */
	struct sd_tile *tiles;
};

/* sparse.c: lets go of all that is mapped into a sparse array */
void sd_tiles_drop(struct sd_tile *first);

CUresult sd_mipmap_new(struct sd_context *context, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels,
		       const struct sd_texels *mapped, struct sd_mipmap **out);

#endif
