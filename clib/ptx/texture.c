/* SPDX-License-Identifier: Apache-2.0 */
#include "texture.h"

#include <math.h>
#include <string.h>

#define FRACTION 256.0f /* steps of a filter's weight */
#define FAR 1073741824.0f /* beyond it a coordinate is outside of everything */

/* The texel for index i of n, or -1 for the border. */
static int64_t index_of(int64_t i, int64_t n, uint8_t wrap, bool normalized)
{
	if (i >= 0 && i < n)
		return i;
	if (wrap == PTX_BORDER)
		return -1;
	if (wrap == PTX_CLAMP || !normalized)
		return i < 0 ? 0 : n - 1;
	int64_t period = wrap == PTX_MIRROR ? 2 * n : n;
	int64_t rest = i % period;

	if (rest < 0)
		rest += period;
	return rest < n ? rest : period - 1 - rest;
}

static float half_to_float(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16;
	uint32_t exponent = half >> 10 & 31;
	uint32_t fraction = half & 1023;
	uint32_t bits = 0;
	float value = 0;

	if (exponent == 31) {
		bits = sign | 0x7f800000 | fraction << 13;
	} else if (exponent) {
		bits = sign | (exponent + 112) << 23 | fraction << 13;
	} else {
		value = (float)fraction / 16777216.0f; /* exact */
		memcpy(&bits, &value, sizeof(bits));
		bits |= sign;
	}
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t bits_of(float value)
{
	uint32_t bits = 0;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static float float_of(uint32_t bits)
{
	float value = 0;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* One channel as its bits in memory, extended to 32. */
static uint32_t raw(const struct ptx_texture *texture, const unsigned char *at)
{
	uint16_t two = 0;
	uint32_t four = 0;

	switch (texture->channelbytes) {
	case 1:
		return texture->sign ? (uint32_t)(int8_t)*at : *at;
	case 2:
		memcpy(&two, at, sizeof(two));
		return texture->sign && !texture->real ? (uint32_t)(int16_t)two : two;
	default:
		memcpy(&four, at, sizeof(four));
		return four;
	}
}

/* One channel as a program sees it. */
static uint32_t channel(const struct ptx_texture *texture, const unsigned char *at)
{
	uint32_t value = raw(texture, at);

	if (texture->real)
		return texture->channelbytes == 2 ? bits_of(half_to_float((uint16_t)value)) : value;
	if (texture->integers || texture->channelbytes == 4)
		return value;
	if (!texture->sign)
		return bits_of((float)value / (texture->channelbytes == 1 ? 255.0f : 65535.0f));
	float part = (float)(int32_t)value / (texture->channelbytes == 1 ? 127.0f : 32767.0f);

	return bits_of(part < -1.0f ? -1.0f : part);
}

static void border(const struct ptx_texture *texture, uint32_t out[4])
{
	bool floats = texture->real || !(texture->integers || texture->channelbytes == 4);

	for (uint32_t i = 0; i < 4; i++) {
		if (floats)
			out[i] = bits_of(texture->border[i]);
		else
			out[i] = texture->sign ? (uint32_t)(int32_t)texture->border[i] : (uint32_t)texture->border[i];
	}
}

/* index: of each dimension, -1 for the border */
static void texel(const struct ptx_texture *texture, const struct ptx_spot *place, const int64_t index[3],
		  uint32_t out[4])
{
	for (uint32_t i = 0; i < place->dims; i++) {
		if (index[i] < 0) {
			border(texture, out);
			return;
		}
	}
	uint64_t bytes = (uint64_t)texture->channels * texture->channelbytes;
	uint64_t slice = place->dims > 2 ? (uint64_t)index[2] : 0;

	if (texture->layered)
		slice = place->layer < texture->depth ? place->layer : texture->depth ? texture->depth - 1 : 0;
	const unsigned char *at = texture->host + slice * texture->slice +
				  (place->dims > 1 ? (uint64_t)index[1] : 0) * texture->pitch + (uint64_t)index[0] * bytes;

	out[0] = out[1] = out[2] = out[3] = 0;
	for (uint32_t i = 0; i < texture->channels; i++)
		out[i] = channel(texture, at + i * texture->channelbytes);
}

static int64_t extent(const struct ptx_texture *texture, uint32_t dimension)
{
	uint64_t size = dimension == 0 ? texture->width : dimension == 1 ? texture->height : texture->depth;

	return size ? (int64_t)size : 1;
}

/* Coordinate in texels. */
static float scaled(const struct ptx_texture *texture, float at, uint32_t dimension)
{
	uint8_t wrap = texture->wrap[dimension];

	if (isnan(at))
		return 0;
	if (!texture->normalized)
		return at > FAR ? FAR : at < -FAR ? -FAR : at;
	/* what repeats is brought near first, for the sake of large coordinates */
	if (isinf(at) && (wrap == PTX_WRAP || wrap == PTX_MIRROR))
		at = 0;
	if (wrap == PTX_WRAP)
		at -= floorf(at);
	else if (wrap == PTX_MIRROR)
		at -= 2.0f * floorf(at * 0.5f);
	at *= (float)extent(texture, dimension);
	return at > FAR ? FAR : at < -FAR ? -FAR : at;
}

static int64_t resolve(const struct ptx_texture *texture, int64_t i, uint32_t dimension)
{
	return index_of(i, extent(texture, dimension), texture->wrap[dimension], texture->normalized);
}

static void nearest(const struct ptx_texture *texture, const struct ptx_spot *place, uint32_t out[4])
{
	int64_t index[3] = { 0 };

	for (uint32_t i = 0; i < place->dims; i++)
		index[i] = resolve(texture, (int64_t)floorf(scaled(texture, place->at[i], i)), i);
	texel(texture, place, index, out);
}

/* The lower texel of each dimension and the weight of the upper one. */
static void neighbours(const struct ptx_texture *texture, const struct ptx_spot *place, int64_t low[3],
		       float weight[3])
{
	for (uint32_t i = 0; i < place->dims; i++) {
		float at = scaled(texture, place->at[i], i) - 0.5f;
		float floor = floorf(at);

		low[i] = (int64_t)floor;
		weight[i] = floorf((at - floor) * FRACTION + 0.5f) / FRACTION;
	}
}

static void linear(const struct ptx_texture *texture, const struct ptx_spot *place, uint32_t out[4])
{
	int64_t low[3] = { 0 };
	float weight[3] = { 0 };
	float sum[4] = { 0 };

	neighbours(texture, place, low, weight);
	for (uint32_t corner = 0; corner < 1u << place->dims; corner++) {
		int64_t index[3] = { 0 };
		uint32_t values[4];
		float share = 1;

		for (uint32_t i = 0; i < place->dims; i++) {
			bool upper = corner >> i & 1;

			index[i] = resolve(texture, low[i] + upper, i);
			share *= upper ? weight[i] : 1.0f - weight[i];
		}
		if (share == 0)
			continue; /* so that no infinity beside it becomes NaN */
		texel(texture, place, index, values);
		for (uint32_t i = 0; i < 4; i++)
			sum[i] += share * float_of(values[i]);
	}
	for (uint32_t i = 0; i < 4; i++)
		out[i] = bits_of(sum[i]);
}

void ptx_texture_fetch(const struct ptx_texture *texture, const struct ptx_spot *place, uint32_t out[4])
{
	int64_t index[3] = { 0 };

	if (texture->buffer && (place->texel[0] < 0 || (uint64_t)place->texel[0] >= texture->width)) {
		out[0] = out[1] = out[2] = out[3] = 0;
		return;
	}
	for (uint32_t i = 0; i < place->dims; i++)
		index[i] = index_of(place->texel[i], extent(texture, i), texture->wrap[i], false);
	texel(texture, place, index, out);
}

void ptx_texture_read(const struct ptx_texture *texture, const struct ptx_spot *place, uint32_t out[4])
{
	bool floats = texture->real || !(texture->integers || texture->channelbytes == 4);

	if (texture->buffer) {
		struct ptx_spot whole = *place;
		float at = isnan(place->at[0]) ? 0 : floorf(place->at[0]);

		whole.texel[0] = at < -1 ? -1 : at > FAR ? INT32_MAX : (int32_t)at;
		ptx_texture_fetch(texture, &whole, out);
	} else if (texture->linear && floats) {
		linear(texture, place, out);
	} else {
		nearest(texture, place, out);
	}
}

void ptx_texture_gather(const struct ptx_texture *texture, const struct ptx_spot *place, uint32_t channel,
			uint32_t out[4])
{
	/* counter-clockwise from the lower left */
	static const uint8_t corners[4][2] = { { 0, 1 }, { 1, 1 }, { 1, 0 }, { 0, 0 } };
	int64_t low[3] = { 0 };
	float weight[3];

	neighbours(texture, place, low, weight);
	for (uint32_t i = 0; i < 4; i++) {
		const int64_t index[3] = { resolve(texture, low[0] + corners[i][0], 0),
					   resolve(texture, low[1] + corners[i][1], 1), 0 };
		uint32_t values[4];

		texel(texture, place, index, values);
		out[i] = values[channel & 3];
	}
}

static bool inside(int64_t *at, int64_t count, bool clamp)
{
	if (*at >= 0 && *at < count)
		return true;
	*at = *at < 0 || count <= 0 ? 0 : count - 1;
	return clamp && count > 0;
}

unsigned char *ptx_surface_at(const struct ptx_texture *surface, int64_t x, int64_t y, int64_t z, uint32_t bytes,
			      bool clamp)
{
	int64_t texel = (int64_t)surface->channels * surface->channelbytes;
	int64_t row = (int64_t)surface->width * texel;

	/* the last place where so many bytes fit */
	if (row < (int64_t)bytes)
		return NULL;
	int64_t last = (row - (int64_t)bytes) / texel * texel;

	if (x > last || x < 0) {
		if (!clamp)
			return NULL;
		x = x < 0 ? 0 : last;
	}
	if (!inside(&y, extent(surface, 1), clamp) || !inside(&z, extent(surface, 2), clamp))
		return NULL;
	return surface->host + (uint64_t)z * surface->slice + (uint64_t)y * surface->pitch + (uint64_t)x;
}
