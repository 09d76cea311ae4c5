/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.c: cvt. Integers go by way of 64 bits, floats by way of doubles; a
 * number that is rounded is rounded once.
 */
#include <math.h>

#include "lane.h"

static double to_integral(double value, uint8_t round)
{
	switch (round) {
	case PTX_ROUND_RZI: case PTX_ROUND_RZ:
		return trunc(value);
	case PTX_ROUND_RMI: case PTX_ROUND_RM:
		return floor(value);
	case PTX_ROUND_RPI: case PTX_ROUND_RP:
		return ceil(value);
	default:
		return nearbyint(value); /* the host rounds to nearest here */
	}
}

static uint64_t clamped(__int128 value, uint8_t type)
{
	int bits = (int)ptx_type_bytes(type) * 8;
	__int128 most = ptx_signed(type) ? ((__int128)1 << (bits - 1)) - 1 : ((__int128)1 << bits) - 1;
	__int128 least = ptx_signed(type) ? -most - 1 : 0;

	return (uint64_t)(value > most ? most : value < least ? least : value);
}

/* A NaN is 0, or the top bit alone if the number or the integer has 64 bits. */
static uint64_t not_a_number(uint8_t from, uint8_t type)
{
	unsigned int bits = ptx_type_bytes(type) * 8;

	if (from != PTX_F64 && bits < 64)
		return 0;
	return ptx_signed(type) ? ~0ull << (bits - 1) : 1ull << (bits - 1);
}

static uint64_t float_to_integer(double value, uint8_t from, uint8_t type, uint8_t round)
{
	if (isnan(value))
		return not_a_number(from, type);
	value = to_integral(value, round);
	if (value >= 0x1p64)
		return clamped((__int128)1 << 100, type);
	if (value < -0x1p63)
		return clamped(-((__int128)1 << 100), type);
	return clamped((__int128)value, type);
}

/* An integer as a float: 64 bits do not fit a double, so what is cut off is kept
 * as one odd bit. */
static double integer_to_double(__int128 value, bool exact64, uint8_t round)
{
	bool negative = value < 0;
	unsigned __int128 magnitude = (unsigned __int128)(negative ? -value : value);
	int shift = 0;

	if (magnitude >> 53 == 0)
		return (double)value;
	while (magnitude >> (53 + shift))
		shift++;
	uint64_t kept = (uint64_t)(magnitude >> shift);
	uint64_t rest = (uint64_t)(magnitude & (((unsigned __int128)1 << shift) - 1));
	uint64_t half = 1ull << (shift - 1);

	if (exact64) { /* to f64 itself */
		bool up = round == PTX_ROUND_RZ   ? false
			  : round == PTX_ROUND_RM ? negative && rest
			  : round == PTX_ROUND_RP ? !negative && rest
						  : rest > half || (rest == half && (kept & 1));

		kept += up;
	} else if (rest) {
		kept |= 1;
	}
	double result = ldexp((double)kept, shift);

	return negative ? -result : result;
}

/* A double as an f64, or as one that will be rounded again: nothing to do. */
static uint64_t real_to_real(uint64_t a, uint8_t from, uint8_t to, uint8_t round, uint32_t mode)
{
	double value = ptx_to_double(a, from);

	if (round == PTX_ROUND_RNI || round == PTX_ROUND_RZI || round == PTX_ROUND_RMI || round == PTX_ROUND_RPI)
		value = to_integral(value, round);
	if (from == to && round == PTX_ROUND_NONE && !isnan(value))
		return a;
	(void)mode;
	return ptx_from_double(value, to, round == PTX_ROUND_NONE ? PTX_ROUND_RN : round);
}

static uint8_t single(uint8_t type)
{
	switch (type) {
	case PTX_F16X2:
		return PTX_F16;
	case PTX_BF16X2:
		return PTX_BF16;
	case PTX_E4M3X2:
		return PTX_E4M3;
	case PTX_E5M2X2:
		return PTX_E5M2;
	default:
		return type;
	}
}

static bool small_float(uint8_t type)
{
	return ptx_floating(type) || type == PTX_TF32 || type == PTX_E4M3 || type == PTX_E5M2;
}

static uint64_t one(uint64_t a, uint32_t mode, uint8_t to, uint8_t from)
{
	uint8_t round = PTX_LANE_ROUND(mode);
	uint64_t result;

	if (small_float(from) && mode & PTX_LANE_FTZ && from == PTX_F32)
		a = ptx_flush(a, from);
	if (small_float(from) && small_float(to)) {
		result = real_to_real(a, from, to, round, mode);
		if (mode & PTX_LANE_D && isinf(ptx_to_double(result, to))) /* .satfinite */
			result = (result & ptx_sign_bit(to)) | ptx_from_double(0x1p1000, to, PTX_ROUND_RZ);
	} else if (small_float(from)) {
		return float_to_integer(ptx_to_double(a, from), from, to, round);
	} else {
		__int128 value = from == PTX_U64 || from == PTX_B64 ? (__int128)a : ptx_signed_value(a, from);

		if (!small_float(to))
			return mode & PTX_LANE_SAT ? clamped(value, to) : (uint64_t)ptx_signed_value((uint64_t)value, to);
		result = ptx_from_double(integer_to_double(value, to == PTX_F64, round), to,
					 round == PTX_ROUND_NONE ? PTX_ROUND_RN : round);
	}
	if (mode & PTX_LANE_FTZ && to == PTX_F32)
		result = ptx_flush(result, to);
	if (mode & PTX_LANE_SAT)
		result = ptx_saturate(result, to);
	if (mode & PTX_LANE_A && !ptx_is_nan(result, to) && result & ptx_sign_bit(to))
		result = 0;
	return result;
}

uint64_t ptx_lane_convert(uint64_t a, uint64_t b, uint64_t c, uint32_t mode)
{
	uint8_t to = PTX_LANE_TYPE(mode);
	uint8_t from = PTX_LANE_OTHER(mode);
	uint8_t target = single(to);
	uint8_t source = single(from);
	unsigned int bits = ptx_type_bytes(target) * 8;
	unsigned int have = ptx_type_bytes(source) * 8;

	(void)c;
	if (mode & PTX_LANE_B) /* the first operand is the upper half */
		return one(a, mode, target, source) << bits | one(b, mode, target, source);
	if (source != from) /* pairs into pairs */
		return one(a >> have & ((1ull << have) - 1), mode, target, source) << bits |
		       one(a & ((1ull << have) - 1), mode, target, source);
	return one(a, mode, target, source);
}

uint64_t ptx_lane_pack(uint64_t a, uint64_t b, uint64_t c, uint32_t mode)
{
	unsigned int bits = PTX_LANE_TYPE(mode);
	int32_t most = mode & PTX_LANE_A ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
	int32_t least = mode & PTX_LANE_A ? -most - 1 : 0;
	int32_t x = (int32_t)a;
	int32_t y = (int32_t)b;
	uint32_t mask = (1u << bits) - 1;

	x = x > most ? most : x < least ? least : x;
	y = y > most ? most : y < least ? least : y;
	uint32_t pair = ((uint32_t)x & mask) << bits | ((uint32_t)y & mask);

	return bits == 16 ? pair : (uint32_t)c << (2 * bits) | pair;
}
