/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c: reading textures, reading and writing surfaces, lane by lane. */
#include <string.h>

#include "machine.h"
#include "texture.h"

/* What a lane's handle stands for. Lanes mostly have the same one. */
struct found {
	uint64_t handle;
	const struct ptx_texture *texture;
};

static bool find(struct ptx_warp *warp, const struct ptx_sample *sample, uint32_t lane, struct found *found)
{
	const struct ptx_launch *launch = warp->block->grid->launch;
	uint64_t handle = ptx_get(ptx_column(warp->frame, sample->handle), PTX_W_64, lane);

	if (!found->texture || handle != found->handle) {
		found->handle = handle;
		found->texture = launch->texture ? launch->texture(launch->who, handle, sample->surface) : NULL;
	}
	if (!found->texture)
		ptx_fault(warp, PTX_FAULT_ADDRESS, handle);
	return found->texture != NULL;
}

static uint32_t coordinate(struct ptx_warp *warp, const struct ptx_sample *sample, uint32_t which, uint32_t lane)
{
	return (uint32_t)ptx_get(ptx_column(warp->frame, sample->coordinate[which]), PTX_W_32, lane);
}

static void spot_of(struct ptx_warp *warp, const struct ptx_sample *sample, uint32_t lane, struct ptx_spot *spot)
{
	spot->dims = sample->dimensions;
	spot->layer = sample->layered ? coordinate(warp, sample, 0, lane) : 0;
	for (uint32_t i = 0; i < sample->dimensions; i++) {
		uint32_t bits = coordinate(warp, sample, i + sample->layered, lane);

		if (sample->floats)
			memcpy(&spot->at[i], &bits, sizeof(bits));
		else
			spot->texel[i] = (int32_t)bits;
	}
}

bool ptx_sample(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	const struct ptx_sample *sample = op->sample;
	struct found found = { .texture = NULL };
	struct ptx_spot spot = { .dims = 0 };

	for (uint32_t rest = mask; rest; rest &= rest - 1) {
		uint32_t lane = (uint32_t)__builtin_ctz(rest);
		uint32_t out[4];

		if (!find(warp, sample, lane, &found))
			return false;
		if (sample->layered != found.texture->layered) {
			ptx_fault(warp, PTX_FAULT_ADDRESS, found.handle);
			return false;
		}
		spot_of(warp, sample, lane, &spot);
		if (sample->gather)
			ptx_texture_gather(found.texture, &spot, sample->component, out);
		else if (sample->floats)
			ptx_texture_read(found.texture, &spot, out);
		else
			ptx_texture_fetch(found.texture, &spot, out);
		for (uint32_t i = 0; i < sample->count; i++) {
			if (sample->column[i] != PTX_NOWHERE)
				ptx_put(warp->frame->columns + sample->column[i], op->wd, lane, out[i]);
		}
		warp->bytes += (uint64_t)found.texture->channels * found.texture->channelbytes;
	}
	return true;
}

/* The bytes a lane means; NULL with *fault for a fault, else for nothing there. */
static unsigned char *bytes_of(struct ptx_warp *warp, const struct ptx_sample *sample, uint32_t lane,
			       struct found *found, bool *fault)
{
	*fault = !find(warp, sample, lane, found);
	if (*fault)
		return NULL;
	int64_t at[3] = { 0 };

	for (uint32_t i = 0; i < sample->dimensions; i++)
		at[i] = (int32_t)coordinate(warp, sample, i + sample->layered, lane);
	if (sample->layered)
		at[2] = coordinate(warp, sample, 0, lane);
	unsigned char *bytes = ptx_surface_at(found->texture, at[0], at[1], at[2],
					      (uint32_t)sample->bytes * sample->elements, sample->outside == 1);

	if (!bytes && !sample->outside) {
		ptx_fault(warp, PTX_FAULT_ADDRESS, found->handle);
		*fault = true;
	}
	return bytes;
}

static void load(struct ptx_warp *warp, const struct ptx_op *op, uint32_t lane, const unsigned char *bytes)
{
	const struct ptx_sample *sample = op->sample;

	for (uint32_t i = 0; i < sample->elements; i++) {
		uint64_t value = 0;

		if (bytes)
			memcpy(&value, bytes + i * sample->bytes, sample->bytes);
		if (sample->column[i] != PTX_NOWHERE)
			ptx_put(warp->frame->columns + sample->column[i], op->wd, lane, value);
	}
}

static void store(struct ptx_warp *warp, const struct ptx_op *op, uint32_t lane, unsigned char *bytes)
{
	const struct ptx_sample *sample = op->sample;

	for (uint32_t i = 0; i < sample->elements; i++) {
		uint64_t value = ptx_get(ptx_column(warp->frame, sample->column[i]), op->wd, lane);

		if (sample->query)
			(void)ptx_atom(sample->query | (uint32_t)sample->type << 8, bytes, value, 0);
		else
			memcpy(bytes + i * sample->bytes, &value, sample->bytes);
	}
	warp->written += (uint64_t)sample->bytes * sample->elements;
}

bool ptx_surface(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	struct found found = { .texture = NULL };

	for (uint32_t rest = mask; rest; rest &= rest - 1) {
		uint32_t lane = (uint32_t)__builtin_ctz(rest);
		bool fault = false;
		unsigned char *bytes = bytes_of(warp, op->sample, lane, &found, &fault);

		if (fault)
			return false;
		if (op->code == PTX_RUN_SULD)
			load(warp, op, lane, bytes);
		else if (bytes)
			store(warp, op, lane, bytes);
		warp->bytes += (uint64_t)op->sample->bytes * op->sample->elements;
	}
	return true;
}

static uint64_t answer(const struct ptx_texture *texture, uint8_t query)
{
	switch (query) {
	case PTX_DO_WIDTH:
		return texture->width;
	case PTX_DO_HEIGHT:
		return texture->height;
	case PTX_DO_DEPTH:
		return texture->layered ? 0 : texture->depth;
	case PTX_DO_ARRAY_SIZE:
		return texture->layered ? texture->depth : 0;
	default: /* NORMALIZED_COORDS */
		return texture->normalized;
	}
}

bool ptx_texture_query(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	const struct ptx_sample *sample = op->sample;
	struct found found = { .texture = NULL };

	for (uint32_t rest = mask; rest; rest &= rest - 1) {
		uint32_t lane = (uint32_t)__builtin_ctz(rest);

		if (!find(warp, sample, lane, &found))
			return false;
		if (sample->column[0] != PTX_NOWHERE)
			ptx_put(warp->frame->columns + sample->column[0], op->wd, lane, answer(found.texture, sample->query));
	}
	return true;
}
