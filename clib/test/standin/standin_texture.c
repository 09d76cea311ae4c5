/* SPDX-License-Identifier: Apache-2.0 */
/* Reading textures: filters, modes of addressing, formats, against values worked out by hand. */
#include <math.h>
#include <stdint.h>

#include "../check.h"
#include "ptx/texture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static float line[4] = { 10, 20, 30, 40 };

static struct ptx_texture floats(void)
{
	return (struct ptx_texture){
		.host = (unsigned char *)line, .width = 4, .pitch = sizeof(line), .channels = 1, .channelbytes = 4, .real = true,
		.wrap = { PTX_CLAMP, PTX_CLAMP, PTX_CLAMP }, .border = { 7, 8, 9, 10 },
	};
}

static float read_at(const struct ptx_texture *texture, float x)
{
	const struct ptx_spot place = { .dims = 1, .at = { x } };
	uint32_t out[4];
	float value = 0;

	ptx_texture_read(texture, &place, out);
	memcpy(&value, &out[0], sizeof(value));
	return value;
}

static void nearest(void)
{
	struct ptx_texture texture = floats();

	CHECK(read_at(&texture, 0) == 10 && read_at(&texture, 0.99f) == 10 && read_at(&texture, 1) == 20);
	CHECK(read_at(&texture, -5) == 10 && read_at(&texture, 4) == 40 && read_at(&texture, 1e30f) == 40);
	CHECK(read_at(&texture, NAN) == 10 && read_at(&texture, -INFINITY) == 10);
	texture.wrap[0] = PTX_BORDER;
	CHECK(read_at(&texture, -0.01f) == 7 && read_at(&texture, 3.9f) == 40 && read_at(&texture, 4) == 7);
	texture.wrap[0] = PTX_WRAP; /* not without normalised coordinates */
	CHECK(read_at(&texture, 5) == 40);
	texture.normalized = true;
	CHECK(read_at(&texture, 0.25f) == 20 && read_at(&texture, 1.25f) == 20 && read_at(&texture, -0.25f) == 40);
	texture.wrap[0] = PTX_MIRROR;
	CHECK(read_at(&texture, 1.1f) == 40 && read_at(&texture, 1.9f) == 10 && read_at(&texture, -0.1f) == 10);
	CHECK(read_at(&texture, 2.3f) == 20);
}

static void linear(void)
{
	struct ptx_texture texture = floats();

	texture.linear = true;
	CHECK(read_at(&texture, 0.5f) == 10 && read_at(&texture, 1) == 15 && read_at(&texture, 1.25f) == 17.5f);
	CHECK(read_at(&texture, 0) == 10 && read_at(&texture, 9) == 40);
	/* a weight has 8 bits of fraction: a step of less is none */
	CHECK(read_at(&texture, 0.5f + 1.0f / 1024) == 10 && read_at(&texture, 0.5f + 1.0f / 256) == 10 + 10.0f / 256);
	texture.wrap[0] = PTX_BORDER;
	CHECK(read_at(&texture, 0) == (10 + 7) / 2.0f && read_at(&texture, 4) == (40 + 7) / 2.0f);
	texture.normalized = true;
	texture.wrap[0] = PTX_WRAP;
	CHECK(read_at(&texture, 0) == 25 && read_at(&texture, 1) == 25 && read_at(&texture, 0.25f) == 15);
	texture.wrap[0] = PTX_MIRROR;
	CHECK(read_at(&texture, 0) == 10 && read_at(&texture, 1) == 40);
	line[1] = INFINITY; /* what has no weight has no say */
	texture.normalized = false;
	texture.wrap[0] = PTX_CLAMP;
	CHECK(read_at(&texture, 0.5f) == 10 && isinf(read_at(&texture, 0.75f)));
}

/* Four bytes by four formats, two rows, two channels. */
static void formats(void)
{
	static const unsigned char bytes[] = { 0, 255, 128, 127, 1, 2, 3, 4 };
	struct ptx_texture texture = {
		.host = (unsigned char *)(uintptr_t)bytes, .width = 2, .height = 2, .pitch = 4, .channels = 2, .channelbytes = 1,
		.wrap = { PTX_CLAMP, PTX_CLAMP, PTX_CLAMP },
	};
	struct ptx_spot place = { .dims = 2, .at = { 0, 0 } };
	uint32_t out[4];
	float value[4];

	ptx_texture_read(&texture, &place, out);
	memcpy(value, out, sizeof(value));
	CHECK(value[0] == 0 && value[1] == 1 && value[2] == 0 && value[3] == 0);
	texture.sign = true;
	place.at[0] = 1;
	ptx_texture_read(&texture, &place, out);
	memcpy(value, out, sizeof(value));
	CHECK(value[0] == -1 && value[1] == 1); /* -128 / 127 is no less than -1 */
	texture.integers = true;
	ptx_texture_read(&texture, &place, out);
	CHECK((int32_t)out[0] == -128 && out[1] == 127);
	texture.sign = false;
	place.at[1] = 1;
	ptx_texture_read(&texture, &place, out);
	CHECK(out[0] == 3 && out[1] == 4);
	place.texel[0] = -1;
	place.texel[1] = 1;
	ptx_texture_fetch(&texture, &place, out);
	CHECK(out[0] == 1 && out[1] == 2);
	/* halves: one, the smallest of all, infinity */
	static const uint16_t halves[] = { 0x3c00, 0x0001, 0xfc00 };

	texture = (struct ptx_texture){ .host = (unsigned char *)(uintptr_t)halves, .width = 3, .pitch = 6, .channels = 1,
					.channelbytes = 2, .real = true };
	CHECK(read_at(&texture, 0) == 1 && read_at(&texture, 1) == 0x1p-24f && read_at(&texture, 2) == -INFINITY);
}

static void planes(void)
{
	static float cube[2][2][2] = { { { 0, 1 }, { 2, 3 } }, { { 4, 5 }, { 6, 7 } } };
	struct ptx_texture texture = {
		.host = (unsigned char *)cube, .width = 2, .height = 2, .depth = 2, .pitch = 8, .slice = 16, .channels = 1,
		.channelbytes = 4, .real = true, .linear = true, .wrap = { PTX_CLAMP, PTX_CLAMP, PTX_CLAMP },
	};
	struct ptx_spot place = { .dims = 3, .at = { 1, 1, 1 } };
	uint32_t out[4];
	float value = 0;

	ptx_texture_read(&texture, &place, out);
	memcpy(&value, out, sizeof(value));
	CHECK(value == 3.5f);
	texture.layered = true;
	place.dims = 2;
	place.layer = 1;
	ptx_texture_read(&texture, &place, out);
	memcpy(&value, out, sizeof(value));
	CHECK(value == 5.5f);
	float four[4];

	ptx_texture_gather(&texture, &place, 0, out);
	memcpy(four, out, sizeof(four));
	CHECK(four[0] == 6 && four[1] == 7 && four[2] == 5 && four[3] == 4);
}

/* Linear memory: only inside it, whatever the modes say. */
static void buffers(void)
{
	struct ptx_texture texture = floats();
	struct ptx_spot place = { .dims = 1, .texel = { 3 } };
	uint32_t out[4];
	float value = 0;

	line[1] = 20;
	texture.buffer = true;
	texture.linear = true;
	ptx_texture_fetch(&texture, &place, out);
	memcpy(&value, out, sizeof(value));
	CHECK(value == 40);
	place.texel[0] = 4;
	ptx_texture_fetch(&texture, &place, out);
	CHECK(out[0] == 0);
	place.texel[0] = -1;
	ptx_texture_fetch(&texture, &place, out);
	CHECK(out[0] == 0 && read_at(&texture, 1.7f) == 20);
}

static void surfaces(void)
{
	static unsigned char bytes[4][16];
	const struct ptx_texture surface = {
		.host = bytes[0], .width = 3, .height = 4, .pitch = 16, .slice = sizeof(bytes), .channels = 1, .channelbytes = 4,
	};

	CHECK(ptx_surface_at(&surface, 0, 0, 0, 4, false) == bytes[0]);
	CHECK(ptx_surface_at(&surface, 8, 3, 0, 4, false) == bytes[3] + 8);
	CHECK(!ptx_surface_at(&surface, 12, 3, 0, 4, false) && !ptx_surface_at(&surface, -4, 0, 0, 4, false));
	CHECK(!ptx_surface_at(&surface, 8, 0, 0, 8, false) && ptx_surface_at(&surface, 4, 0, 0, 8, false) == bytes[0] + 4);
	CHECK(!ptx_surface_at(&surface, 0, 4, 0, 4, false) && !ptx_surface_at(&surface, 0, 0, 1, 4, false));
	CHECK(ptx_surface_at(&surface, 100, -3, 5, 4, true) == bytes[0] + 8);
	CHECK(!ptx_surface_at(&surface, 0, 0, 0, 16, true));
}

static const struct scenario scenarios[] = {
	{ "nearest", nearest }, { "linear", linear },	{ "formats", formats },
	{ "planes", planes },	{ "buffers", buffers }, { "surfaces", surfaces },
};

RUN_SCENARIOS(scenarios)
