/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanevideo.c: video instructions: parts of operands are selected and extended,
 * something is done to them with room to spare, and the result is saturated and
 * put into, added to or compared with the third operand. In pairs and fours all
 * parts are done at once.
 */
#include "lanevideo.h"

#include "lane.h"

static int64_t extended(uint64_t value, uint32_t bits, bool is_signed)
{
	value &= bits < 64 ? (1ull << bits) - 1 : ~0ull;
	if (is_signed && value >> (bits - 1))
		value |= ~0ull << bits;
	return (int64_t)value;
}

/* selector: 0 all, 1 to 4 bytes, 5 and 6 halves */
static int64_t part(uint64_t value, uint32_t selector, bool is_signed)
{
	if (!selector)
		return extended(value, 32, is_signed);
	if (selector < 5)
		return extended(value >> (selector - 1) * 8, 8, is_signed);
	return extended(value >> (selector - 5) * 16, 16, is_signed);
}

static int64_t clamped(int64_t value, uint32_t bits, bool is_signed)
{
	int64_t most = is_signed ? (1ll << (bits - 1)) - 1 : (1ll << bits) - 1;
	int64_t least = is_signed ? -(1ll << (bits - 1)) : 0;

	return value < least ? least : value > most ? most : value;
}

static bool compared(int64_t a, int64_t b, uint32_t how)
{
	switch (how) {
	case PTX_CMP_EQ:
		return a == b;
	case PTX_CMP_NE:
		return a != b;
	case PTX_CMP_LT:
		return a < b;
	case PTX_CMP_LE:
		return a <= b;
	case PTX_CMP_GT:
		return a > b;
	default:
		return a >= b;
	}
}

static int64_t shifted(int64_t a, int64_t count, uint32_t mode, bool left)
{
	uint64_t by = (uint32_t)count;

	if (mode & PTX_VIDEO_WRAP)
		by &= 31;
	else if (by > 32)
		by = 32;
	return left ? (int64_t)((uint64_t)a << by) : a >> by;
}

static int64_t done(int64_t a, int64_t b, uint32_t mode)
{
	switch (PTX_VIDEO_DOES(mode)) {
	case PTX_VIDEO_ADD:
		return a + b;
	case PTX_VIDEO_SUB:
		return a - b;
	case PTX_VIDEO_ABSDIFF:
		return a > b ? a - b : b - a;
	case PTX_VIDEO_MIN:
		return a < b ? a : b;
	case PTX_VIDEO_MAX:
		return a > b ? a : b;
	case PTX_VIDEO_AVERAGE:
		return (a + b + (a + b >= 0)) >> 1;
	case PTX_VIDEO_SHL:
		return shifted(a, b, mode, true);
	case PTX_VIDEO_SHR:
		return shifted(a, b, mode, false);
	default:
		return compared(a, b, PTX_VIDEO_COMPARES(mode));
	}
}

/* All parts at once; parts is 2 or 4. */
static uint32_t several(uint64_t a, uint64_t b, uint64_t c, uint32_t mode, uint32_t parts)
{
	uint32_t bits = 32 / parts;
	bool adds = PTX_VIDEO_THEN(mode) == PTX_VIDEO_THEN_ADD;
	uint32_t result = adds ? (uint32_t)c : 0;

	for (uint32_t i = 0; i < parts; i++) {
		int64_t value = done(extended(a >> i * bits, bits, mode & PTX_VIDEO_SIGNED_A),
				     extended(b >> i * bits, bits, mode & PTX_VIDEO_SIGNED_B), mode);

		if (mode & PTX_VIDEO_SAT)
			value = clamped(value, bits, mode & PTX_VIDEO_SIGNED_D);
		if (adds)
			result += (uint32_t)value;
		else
			result |= ((uint32_t)value & ((1u << bits) - 1)) << i * bits;
	}
	return result;
}

static uint32_t multiplied(uint64_t a, uint64_t b, uint64_t c, uint32_t mode)
{
	bool negated = mode & PTX_VIDEO_NEGATE_PRODUCT;
	bool is_signed = mode & (PTX_VIDEO_SIGNED_A | PTX_VIDEO_SIGNED_B | PTX_VIDEO_NEGATE_PRODUCT | PTX_VIDEO_NEGATE_C);
	__int128 product = (__int128)part(a, PTX_VIDEO_SELECTS_A(mode), mode & PTX_VIDEO_SIGNED_A) *
			   part(b, PTX_VIDEO_SELECTS_B(mode), mode & PTX_VIDEO_SIGNED_B);
	__int128 sum = negated ? -product : product;

	/* the third operand is signed where the product is */
	int64_t third = extended(c, 32, (mode & (PTX_VIDEO_SIGNED_A | PTX_VIDEO_SIGNED_B)) || negated);

	sum += mode & PTX_VIDEO_NEGATE_C ? -(__int128)third : third;
	sum += mode & PTX_VIDEO_PLUS_ONE ? 1 : 0;
	sum >>= PTX_VIDEO_SCALES(mode) == 1 ? 7 : PTX_VIDEO_SCALES(mode) == 2 ? 15 : 0;
	if (mode & PTX_VIDEO_SAT) {
		__int128 most = is_signed ? 0x7fffffff : 0xffffffff;
		__int128 least = is_signed ? -(__int128)0x80000000 : 0;

		sum = sum < least ? least : sum > most ? most : sum;
	}
	return (uint32_t)sum;
}

uint64_t ptx_lane_video(uint64_t a, uint64_t b, uint64_t c, uint32_t mode)
{
	uint32_t selector = PTX_VIDEO_SELECTS_D(mode);
	uint32_t bits = !selector ? 32 : selector < 5 ? 8 : 16;
	bool is_signed = mode & PTX_VIDEO_SIGNED_D;

	if (PTX_VIDEO_PARTS(mode))
		return several(a, b, c, mode, PTX_VIDEO_PARTS(mode) == 1 ? 2 : 4);
	if (PTX_VIDEO_DOES(mode) == PTX_VIDEO_MAD)
		return multiplied(a, b, c, mode);
	int64_t value = done(part(a, PTX_VIDEO_SELECTS_A(mode), mode & PTX_VIDEO_SIGNED_A),
			     part(b, PTX_VIDEO_SELECTS_B(mode), mode & PTX_VIDEO_SIGNED_B), mode);

	if (mode & PTX_VIDEO_SAT)
		value = clamped(value, bits, is_signed);
	switch (PTX_VIDEO_THEN(mode)) {
	case PTX_VIDEO_THEN_ADD:
		return (uint32_t)((uint64_t)value + c);
	case PTX_VIDEO_THEN_MIN:
	case PTX_VIDEO_THEN_MAX: {
		int64_t one = extended((uint64_t)value, 32, is_signed);
		int64_t other = extended(c, 32, is_signed);
		bool first = PTX_VIDEO_THEN(mode) == PTX_VIDEO_THEN_MIN ? one < other : one > other;

		return (uint32_t)(first ? one : other);
	}
	default:
		break;
	}
	if (!selector)
		return (uint32_t)value;
	uint32_t shift = selector < 5 ? (selector - 1) * 8 : (selector - 5) * 16;
	uint32_t mask = ((1u << bits) - 1) << shift;

	return ((uint32_t)c & ~mask) | ((uint32_t)value << shift & mask);
}
