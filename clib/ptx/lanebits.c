/* SPDX-License-Identifier: Apache-2.0 */
/* lanebits.c: shifts, and bits within words. */
#include "lane.h"

#define LANE(name) uint64_t name(uint64_t a, uint64_t b, uint64_t c, uint32_t mode)
#define UNUSED(x) (void)(x)

static unsigned int bits_of(uint32_t mode)
{
	return ptx_type_bytes(PTX_LANE_TYPE(mode)) * 8;
}

static uint64_t mask_of(unsigned int bits)
{
	return bits >= 64 ? ~0ull : (1ull << bits) - 1;
}

LANE(ptx_lane_shl)
{
	UNUSED(c);
	b = (uint32_t)b;
	return b >= bits_of(mode) ? 0 : a << b;
}

LANE(ptx_lane_shr)
{
	unsigned int bits = bits_of(mode);

	UNUSED(c);
	b = (uint32_t)b;
	if (ptx_signed(PTX_LANE_TYPE(mode)))
		return (uint64_t)(ptx_signed_value(a, PTX_LANE_TYPE(mode)) >> (b >= bits ? bits - 1 : b));
	return b >= bits ? 0 : (a & mask_of(bits)) >> b;
}

LANE(ptx_lane_shf)
{
	uint64_t both = (uint64_t)(uint32_t)b << 32 | (uint32_t)a;
	uint32_t by = (uint32_t)c;

	by = mode & PTX_LANE_B ? by & 31 : by > 32 ? 32 : by;
	return mode & PTX_LANE_A ? (by ? (both << by) >> 32 : both >> 32) & 0xffffffffu : (both >> by) & 0xffffffffu;
}

LANE(ptx_lane_bfe)
{
	uint8_t type = PTX_LANE_TYPE(mode);
	unsigned int bits = bits_of(mode);
	unsigned int at = (unsigned int)b & 255;
	unsigned int length = (unsigned int)c & 255;
	unsigned int last = at + length > bits ? bits - 1 : at + length - 1;
	uint64_t value;

	if (!length)
		return 0;
	value = at >= bits ? 0 : (a & mask_of(bits)) >> at & mask_of(length > 64 ? 64 : length);
	if (!ptx_signed(type))
		return value;
	bool sign = a >> (last > bits - 1 ? bits - 1 : last) & 1;

	if (!sign)
		return value;
	/* bits beyond the field, or beyond the word, are the sign */
	unsigned int have = at >= bits ? 0 : bits - at < length ? bits - at : length;

	return have >= 64 ? value : value | ~0ull << have;
}

LANE(ptx_lane_bfi)
{
	unsigned int bits = bits_of(mode);
	unsigned int at = (unsigned int)c & 255;
	unsigned int length = (unsigned int)(c >> 8) & 255;
	uint64_t field = mask_of(length > 64 ? 64 : length);

	if (at >= bits || !length)
		return b;
	field = field << at & mask_of(bits);
	return (b & ~field) | (a << at & field);
}

LANE(ptx_lane_pair)
{
	UNUSED(c);
	UNUSED(mode);
	return (a & 255) | (b & 255) << 8;
}

LANE(ptx_lane_brev)
{
	unsigned int bits = bits_of(mode);
	uint64_t result = 0;

	UNUSED(b);
	UNUSED(c);
	for (unsigned int i = 0; i < bits; i++)
		result |= (a >> i & 1) << (bits - 1 - i);
	return result;
}

LANE(ptx_lane_clz)
{
	unsigned int bits = bits_of(mode);

	UNUSED(b);
	UNUSED(c);
	a &= mask_of(bits);
	return a ? (uint64_t)__builtin_clzll(a) - (64 - bits) : bits;
}

LANE(ptx_lane_popc)
{
	UNUSED(b);
	UNUSED(c);
	return (uint64_t)__builtin_popcountll(a & mask_of(bits_of(mode)));
}

LANE(ptx_lane_bfind)
{
	uint8_t type = PTX_LANE_TYPE(mode);
	unsigned int bits = bits_of(mode);

	UNUSED(b);
	UNUSED(c);
	if (ptx_signed(type)) {
		int64_t value = ptx_signed_value(a, type);

		a = (uint64_t)(value < 0 ? ~value : value);
	}
	a &= mask_of(bits);
	if (!a)
		return 0xffffffffu;
	uint64_t at = 63 - (uint64_t)__builtin_clzll(a);

	return mode & PTX_LANE_A ? bits - 1 - at : at;
}

LANE(ptx_lane_fns)
{
	uint32_t word = (uint32_t)a;
	uint32_t base = (uint32_t)b & 31;
	int32_t count = (int32_t)c;

	UNUSED(mode);
	if (count == 0)
		return word >> base & 1 ? base : 0xffffffffu;
	int32_t step = count > 0 ? 1 : -1;

	count = count > 0 ? count : -(count + 1) + 1;
	for (int32_t i = (int32_t)base; i >= 0 && i < 32; i += step) {
		if (word >> i & 1 && --count == 0)
			return (uint64_t)i;
	}
	return 0xffffffffu;
}

LANE(ptx_lane_bmsk)
{
	uint32_t at = (uint32_t)a;
	uint32_t width = (uint32_t)b;

	UNUSED(c);
	if (mode & PTX_LANE_A) {
		if (at >= 32)
			return 0;
		width = width > 32 ? 32 : width;
	} else {
		at &= 31;
		width &= 31;
	}
	return (mask_of(width) << at) & 0xffffffffu;
}

LANE(ptx_lane_szext)
{
	uint32_t width = (uint32_t)b;
	bool sign = ptx_signed(PTX_LANE_TYPE(mode));

	UNUSED(c);
	if (mode & PTX_LANE_A) {
		if (width >= 32)
			return a;
	} else {
		width &= 31;
	}
	uint64_t value = a & mask_of(width);

	if (sign && width && value >> (width - 1) & 1)
		value |= ~mask_of(width);
	return value;
}

LANE(ptx_lane_prmt)
{
	uint64_t both = (uint64_t)(uint32_t)b << 32 | (uint32_t)a;
	uint32_t control = (uint32_t)c;
	uint32_t at = control & 3;
	uint64_t result = 0;

	for (uint32_t i = 0; i < 4; i++) {
		uint32_t select;
		bool replicate = false;

		switch (PTX_LANE_OTHER(mode)) {
		case PTX_DO_F4E:
			select = at + i;
			break;
		case PTX_DO_B4E:
			select = (at - i) & 7;
			break;
		case PTX_DO_RC8:
			select = at;
			break;
		case PTX_DO_ECL:
			select = i > at ? i : at;
			break;
		case PTX_DO_ECR:
			select = i < at ? i : at;
			break;
		case PTX_DO_RC16:
			select = (at & 1) * 2 + (i & 1);
			break;
		default:
			select = control >> (4 * i) & 7;
			replicate = control >> (4 * i) & 8;
			break;
		}
		uint8_t byte = (uint8_t)(both >> (8 * select));

		if (replicate)
			byte = byte & 0x80 ? 0xff : 0;
		result |= (uint64_t)byte << (8 * i);
	}
	return result;
}

LANE(ptx_lane_piece)
{
	UNUSED(b);
	UNUSED(c);
	return a >> PTX_LANE_OTHER(mode);
}

LANE(ptx_lane_join)
{
	unsigned int at = PTX_LANE_OTHER(mode);

	UNUSED(c);
	return (a & mask_of(at)) | b << at;
}
