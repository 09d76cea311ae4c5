/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.c: where each register of a function is in its frame. Registers that never
 * hold values at the same time share a column. A column that an instruction reads
 * is free only after it: what it writes is always another one.
 */
#include <stdlib.h>
#include <string.h>

#include "compile.h"

enum ptx_width ptx_register_width(const struct ptx_register *reg)
{
	return (enum ptx_width)ptx_width_of(reg->type);
}

/* A register of 128 bits is a vector of two. */
static uint32_t columns_of(const struct ptx_register *reg)
{
	return (reg->vector ? reg->vector : 1u) * (reg->type == PTX_B128 ? 2u : 1u);
}

static uint32_t bytes_of(const struct ptx_register *reg)
{
	return ptx_column_bytes(ptx_register_width(reg)) * columns_of(reg);
}

static void one_each(const struct ptx_function *function, uint32_t *slots, uint32_t *bytes)
{
	for (uint32_t i = 0; i < function->registercount; i++) {
		slots[i] = *bytes;
		*bytes += bytes_of(&function->registers[i]);
	}
}

struct item {
	uint32_t at; /* instruction */
	uint32_t reg;
};

static int earlier(const void *one, const void *two)
{
	const struct item *a = one;
	const struct item *b = two;

	if (a->at != b->at)
		return a->at < b->at ? -1 : 1;
	return a->reg < b->reg ? -1 : a->reg > b->reg;
}

/* Columns to use again, by width. */
struct shelf {
	uint32_t *column;
	uint32_t count;
};

static void share(const struct ptx_function *function, const struct ptx_interval *intervals, struct item *begins,
		  struct item *ends, struct shelf shelves[4], uint32_t *slots, uint32_t *bytes)
{
	uint32_t count = 0;
	uint32_t ended = 0;

	for (uint32_t i = 0; i < function->registercount; i++) {
		if (intervals[i].first == PTX_NONE) {
			slots[i] = 0;
			continue;
		}
		begins[count] = (struct item){ intervals[i].first, i };
		ends[count++] = (struct item){ intervals[i].last, i };
	}
	qsort(begins, count, sizeof(*begins), earlier);
	qsort(ends, count, sizeof(*ends), earlier);
	for (uint32_t i = 0; i < count; i++) {
		const struct ptx_register *reg = &function->registers[begins[i].reg];
		struct shelf *shelf = &shelves[ptx_register_width(reg)];

		for (; ended < count && ends[ended].at < begins[i].at; ended++) {
			const struct ptx_register *old = &function->registers[ends[ended].reg];

			if (columns_of(old) == 1)
				shelves[ptx_register_width(old)].column[shelves[ptx_register_width(old)].count++] =
					slots[ends[ended].reg];
		}
		if (columns_of(reg) == 1 && shelf->count) {
			slots[begins[i].reg] = shelf->column[--shelf->count];
		} else {
			slots[begins[i].reg] = *bytes;
			*bytes += bytes_of(reg);
		}
	}
}

bool ptx_slots_assign(const struct ptx_function *function, const struct ptx_flow *flow, uint32_t *slots,
		      uint32_t *bytes)
{
	size_t count = (size_t)function->registercount + 1;
	struct ptx_interval *intervals = malloc(count * sizeof(*intervals));
	struct item *items = malloc(2 * count * sizeof(*items));
	uint32_t *columns = malloc(4 * count * sizeof(*columns));
	bool good = intervals && items && columns;

	*bytes = 0;
	if (good && flow) {
		struct shelf shelves[4];

		ptx_intervals(flow, intervals);
		for (size_t i = 0; i < 4; i++)
			shelves[i] = (struct shelf){ columns + i * count, 0 };
		share(function, intervals, items, items + count, shelves, slots, bytes);
		if (!*bytes)
			*bytes = ptx_column_bytes(PTX_W_64);
	} else if (good) {
		one_each(function, slots, bytes);
	}
	free(intervals);
	free(items);
	free(columns);
	return good;
}
