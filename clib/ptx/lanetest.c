/* SPDX-License-Identifier: Apache-2.0 */
/* lanetest.c: comparisons of all types, into predicates and registers. */
#include <math.h>

#include "lane.h"

#define LANE(name) uint64_t name(uint64_t a, uint64_t b, uint64_t c, uint32_t mode)

LANE(ptx_lane_fcompare)
{
	uint8_t type = PTX_LANE_TYPE(mode);

	(void)c;
	if (mode & PTX_LANE_FTZ) {
		a = ptx_flush(a, type);
		b = ptx_flush(b, type);
	}
	double x = ptx_to_double(a, type);
	double y = ptx_to_double(b, type);
	bool none = isnan(x) || isnan(y);

	switch (PTX_LANE_OTHER(mode)) {
	case PTX_CMP_EQ:
		return !none && x == y;
	case PTX_CMP_NE:
		return !none && x != y;
	case PTX_CMP_LT: case PTX_CMP_LO:
		return x < y;
	case PTX_CMP_LE: case PTX_CMP_LS:
		return x <= y;
	case PTX_CMP_GT: case PTX_CMP_HI:
		return x > y;
	case PTX_CMP_GE: case PTX_CMP_HS:
		return x >= y;
	case PTX_CMP_EQU:
		return none || x == y;
	case PTX_CMP_NEU:
		return none || x != y;
	case PTX_CMP_LTU:
		return none || x < y;
	case PTX_CMP_LEU:
		return none || x <= y;
	case PTX_CMP_GTU:
		return none || x > y;
	case PTX_CMP_GEU:
		return none || x >= y;
	case PTX_CMP_NUM:
		return !none;
	default:
		return none;
	}
}

static uint64_t both(uint64_t a, uint64_t b, uint64_t c, uint32_t mode)
{
	uint64_t r = ptx_floating(PTX_LANE_TYPE(mode)) ? ptx_lane_fcompare(a, b, 0, mode) : ptx_lane_compare(a, b, 0, mode);
	uint64_t other = !r;

	if (mode & PTX_LANE_A) {
		r &= c;
		other &= c;
	} else if (mode & PTX_LANE_B) {
		r |= c;
		other |= c;
	} else if (mode & PTX_LANE_C) {
		r ^= c;
		other ^= c;
	}
	return (r & 1) | (other & 1) << 1;
}

LANE(ptx_lane_setp)
{
	uint8_t type = PTX_LANE_TYPE(mode);

	if (type != PTX_F16X2 && type != PTX_BF16X2)
		return both(a, b, c, mode);
	/* a pair: the second predicate is the upper half's, not an opposite */
	uint32_t half = (mode & ~255u) | (type == PTX_F16X2 ? PTX_F16 : PTX_BF16);

	return (both(a & 0xffff, b & 0xffff, c, half) & 1) | (both(a >> 16 & 0xffff, b >> 16 & 0xffff, c, half) & 1) << 1;
}

static uint64_t value(bool is, uint32_t mode)
{
	switch (PTX_LANE_ROUND(mode)) {
	case 1:
		return is ? 0x3f800000u : 0;
	case 2:
		return is ? 0x3c00u : 0;
	case 3:
		return is ? 0x3f80u : 0;
	case 4:
		return is ? 0xffffu : 0;
	default:
		return is ? 0xffffffffu : 0;
	}
}

LANE(ptx_lane_set)
{
	uint8_t type = PTX_LANE_TYPE(mode);

	if (type != PTX_F16X2 && type != PTX_BF16X2)
		return value(both(a, b, c, mode) & 1, mode);
	uint32_t half = (mode & ~255u) | (type == PTX_F16X2 ? PTX_F16 : PTX_BF16);

	return value(both(a & 0xffff, b & 0xffff, c, half) & 1, mode) |
	       value(both(a >> 16 & 0xffff, b >> 16 & 0xffff, c, half) & 1, mode) << 16;
}
