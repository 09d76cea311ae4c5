/* SPDX-License-Identifier: Apache-2.0 */
/*
 * texture.h: reading textures as the CUDA programming guide's chapter on texture
 * fetching says: a coordinate x of N texels, normalised ones multiplied by N, is
 *
 *	nearest  T[floor(x)]
 *	linear   (1 - a) T[i] + a T[i + 1] with i = floor(x - 0.5), a = x - 0.5 - i
 *
 * where a has 8 bits of fraction, and i outside the texture is clamped, wrapped,
 * mirrored or the border. Wrapping and mirroring need normalised coordinates.
 */
#ifndef DIVVY_STANDIN_PTX_TEXTURE_H
#define DIVVY_STANDIN_PTX_TEXTURE_H

#include "code.h"

/* A place in a texture: dims of the coordinates count, layer of a layered one. */
struct ptx_spot {
	uint32_t dims; /* 1, 2 or 3 */
	uint32_t layer;
	float at[3];
	int32_t texel[3]; /* of ptx_texture_fetch */
};

/* Four channels: bits of f32, or integers of 32 bits where the texture says so. */
void ptx_texture_read(const struct ptx_texture *texture, const struct ptx_spot *place, uint32_t out[4]);
/* By texels: no filter, nothing normalised. */
void ptx_texture_fetch(const struct ptx_texture *texture, const struct ptx_spot *place, uint32_t out[4]);
/* tld4: one channel of the four texels that a linear filter in two dimensions reads */
void ptx_texture_gather(const struct ptx_texture *texture, const struct ptx_spot *place, uint32_t channel,
			uint32_t out[4]);

/* The bytes of a surface at x (in bytes), y and z; NULL outside it. With clamp,
 * the nearest ones inside. z is the layer of a layered surface. */
unsigned char *ptx_surface_at(const struct ptx_texture *surface, int64_t x, int64_t y, int64_t z, uint32_t bytes,
			      bool clamp);

#endif
