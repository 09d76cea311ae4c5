/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill.c: fills. Large runs of zeros in a card's arena are stored as holes:
 * clearing 80 GiB costs the host nothing.
 */
#include "fill.h"

#include <string.h>

#include "memory/memory.h"

enum { HOLE_BYTES = 64 << 10 };

struct area {
	unsigned char *first;
	uint64_t row; /* bytes */
	struct sd_memory *memory;
};

static CUresult resolve(const struct sd_fill *fill, const struct sd_card *card, struct area *area)
{
	uint64_t extent = 0;

	if (fill->address % fill->element || __builtin_mul_overflow(fill->width, fill->element, &area->row))
		return CUDA_ERROR_INVALID_VALUE;
	if (fill->height > 1 && (fill->pitch < area->row || fill->pitch % fill->element))
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_mul_overflow(fill->height - 1, fill->pitch, &extent) ||
	    __builtin_add_overflow(extent, area->row, &extent))
		return CUDA_ERROR_INVALID_VALUE;
	area->first = sd_reach(fill->address, extent, card, true, &area->memory);
	return area->first ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sd_fill_check(const struct sd_fill *fill, const struct sd_card *card)
{
	struct area area;

	if (fill->element != 1 && fill->element != 2 && fill->element != 4)
		return CUDA_ERROR_INVALID_VALUE;
	return fill->width && fill->height ? resolve(fill, card, &area) : CUDA_SUCCESS;
}

static void fill_row(unsigned char *row, const struct sd_fill *fill, uint64_t bytes)
{
	uint32_t value = fill->value;

	if (fill->element == 1)
		value = (value & 0xff) * 0x01010101u;
	else if (fill->element == 2)
		value = (value & 0xffff) * 0x00010001u;
	if ((value & 0xff) * 0x01010101u == value) {
		memset(row, (int)(value & 0xff), bytes);
		return;
	}
	uint64_t done = 0;

	/* double what is there until the row is full */
	for (; done < bytes && done < sizeof(value); done += fill->element)
		memcpy(row + done, &value, fill->element);
	while (done < bytes) {
		uint64_t more = done < bytes - done ? done : bytes - done;

		memcpy(row + done, row, more);
		done += more;
	}
}

static bool in_arena(const struct sd_memory *memory)
{
	return memory->kind == SD_LINEAR || memory->kind == SD_MANAGED || memory->kind == SD_POOLED ||
	       memory->kind == SD_GLOBAL || memory->kind == SD_GRAPHED;
}

CUresult sd_fill_run(const struct sd_fill *fill, const struct sd_card *card)
{
	struct area area;
	CUresult result = sd_fill_check(fill, card);

	if (result != CUDA_SUCCESS || !fill->width || !fill->height)
		return result;
	(void)resolve(fill, card, &area);
	bool zero = !(fill->value & (fill->element == 4 ? 0xffffffffu : (1u << fill->element * 8) - 1));
	bool solid = fill->height == 1 || fill->pitch == area.row;
	uint64_t bytes = area.row * fill->height;

	if (zero && solid && bytes >= HOLE_BYTES && in_arena(area.memory)) {
		sd_unlock();
		sd_arena_clear(fill->address, bytes);
		sd_lock();
		return CUDA_SUCCESS;
	}
	bool device = area.memory->kind != SD_HOST && area.memory->kind != SD_REGISTERED;

	sd_unlock();
	if (device)
		result = sd_error(sim_touch(bytes));
	for (uint64_t y = 0; result == CUDA_SUCCESS && y < fill->height; y++)
		fill_row(area.first + y * fill->pitch, fill, area.row);
	sd_lock();
	return result;
}
