/* SPDX-License-Identifier: Apache-2.0 */
/*
 * real.c: floating point formats: to a double, which holds each value of the
 * small ones, and back with one rounding; and the host's rounding mode.
 */
#include <fenv.h>
#include <math.h>

#include "lane.h"
#include "machine.h"

struct format {
	int mantissa; /* bits stored */
	int bias;
	int bytes;
	bool infinity; /* e4m3 has none */
};

static struct format format_of(uint8_t type)
{
	switch (type) {
	case PTX_F16: case PTX_F16X2:
		return (struct format){ 10, 15, 2, true };
	case PTX_BF16: case PTX_BF16X2:
		return (struct format){ 7, 127, 2, true };
	case PTX_TF32:
		return (struct format){ 10, 127, 4, true };
	case PTX_E5M2: case PTX_E5M2X2:
		return (struct format){ 2, 15, 1, true };
	case PTX_E4M3: case PTX_E4M3X2:
		return (struct format){ 3, 7, 1, false };
	default:
		return (struct format){ 23, 127, 4, true };
	}
}

int ptx_rounding_set(uint8_t round)
{
	int before = fegetround();

	switch (round) {
	case PTX_ROUND_RZ:
		fesetround(FE_TOWARDZERO);
		break;
	case PTX_ROUND_RM:
		fesetround(FE_DOWNWARD);
		break;
	case PTX_ROUND_RP:
		fesetround(FE_UPWARD);
		break;
	default:
		fesetround(FE_TONEAREST);
	}
	return before;
}

void ptx_rounding_reset(int before)
{
	fesetround(before);
}

double ptx_to_double(uint64_t bits, uint8_t type)
{
	if (type == PTX_F64)
		return ptx_f64(bits);
	if (type == PTX_F32)
		return ptx_f32(bits);
	if (type == PTX_F16)
		return ptx_f16(bits);
	const struct format format = format_of(type);

	if (type == PTX_BF16)
		return ptx_f32(bits << 16);
	if (type == PTX_TF32)
		return ptx_f32(bits);
	uint64_t mantissa = bits & ((1ull << format.mantissa) - 1);
	int expbits = format.bytes * 8 - 1 - format.mantissa;
	int exponent = (int)(bits >> format.mantissa & ((1ull << expbits) - 1));
	bool sign = bits >> (format.bytes * 8 - 1) & 1;
	double value;

	if (format.infinity && exponent == (1 << expbits) - 1)
		value = mantissa ? NAN : INFINITY;
	else if (!format.infinity && exponent == (1 << expbits) - 1 && mantissa == 7)
		value = NAN;
	else if (exponent)
		value = ldexp((double)(mantissa | 1ull << format.mantissa), exponent - format.bias - format.mantissa);
	else
		value = ldexp((double)mantissa, 1 - format.bias - format.mantissa);
	return sign ? -value : value;
}

uint64_t ptx_quiet(uint8_t type)
{
	switch (type) {
	case PTX_F16: case PTX_BF16:
		return 0x7fff;
	case PTX_F32: case PTX_TF32:
		return 0x7fffffff;
	case PTX_F64:
		return 0x7ff8000000000000ull;
	default:
		return 0x7f;
	}
}

uint64_t ptx_sign_bit(uint8_t type)
{
	switch (type) {
	case PTX_F16: case PTX_BF16:
		return 0x8000;
	case PTX_F64:
		return 1ull << 63;
	case PTX_E4M3: case PTX_E5M2:
		return 0x80;
	default:
		return 0x80000000u;
	}
}

static bool rounds_up(uint64_t mantissa, uint64_t rest, uint64_t half, bool negative, uint8_t round)
{
	switch (round) {
	case PTX_ROUND_RZ: case PTX_ROUND_RZI:
		return false;
	case PTX_ROUND_RM: case PTX_ROUND_RMI:
		return negative && rest;
	case PTX_ROUND_RP: case PTX_ROUND_RPI:
		return !negative && rest;
	case PTX_ROUND_RNA:
		return rest >= half;
	default:
		return rest > half || (rest == half && (mantissa & 1));
	}
}

uint64_t ptx_from_double(double value, uint8_t type, uint8_t round)
{
	if (type == PTX_F64)
		return ptx_bits64(value);
	const struct format format = format_of(type);
	uint64_t bits = ptx_bits64(value);
	bool negative = bits >> 63;
	uint64_t sign = negative ? ptx_sign_bit(type) : 0;
	int shift = type == PTX_TF32 ? 13 : 0;
	int width = type == PTX_TF32 ? 19 : format.bytes * 8;
	int most = (1 << (width - 1 - format.mantissa)) - 1; /* exponent of infinities */
	int exponent = (int)(bits >> 52 & 2047);
	uint64_t mantissa = bits & ((1ull << 52) - 1);

	if (isnan(value))
		return ptx_quiet(type);
	uint64_t infinity = (uint64_t)most << format.mantissa;
	uint64_t largest = infinity - 1;

	if (!format.infinity)
		largest = infinity = (uint64_t)most << format.mantissa | ((1u << format.mantissa) - 2);
	if (isinf(value))
		return sign | infinity << shift;
	if (exponent == 0) /* below all that the small ones hold, but not nothing */
		exponent = mantissa ? 1 : 0;
	else
		mantissa |= 1ull << 52;
	if (!mantissa)
		return sign;
	int target = exponent - 1023 + format.bias; /* its exponent there */
	int drop = 52 - format.mantissa;

	if (target < 1) {
		drop += 1 - target;
		target = 0;
	}
	uint64_t kept = drop > 63 ? 0 : mantissa >> drop;
	uint64_t half = drop > 63 ? 1ull << 63 : 1ull << (drop - 1);
	uint64_t rest = drop > 63 ? 1 : mantissa & ((half << 1) - 1);

	if (rounds_up(kept, rest, half, negative, round))
		kept++;
	/* the implied bit adds one to the exponent where there is one */
	uint64_t result = target > 0 ? ((uint64_t)(target - 1) << format.mantissa) + kept : kept;

	if (target > most || result > largest) {
		bool away = round == PTX_ROUND_RZ || (round == PTX_ROUND_RM && !negative) || (round == PTX_ROUND_RP && negative);

		result = away ? largest : infinity;
	}
	return sign | result << shift;
}

double ptx_fma_odd(double a, double b, double c)
{
	/* the product of two small floats is exact */
	double product = a * b;
	double sum = product + c;

	if (!isfinite(sum) || isnan(sum))
		return sum;
	double back = sum - product;
	double error = (product - (sum - back)) + (c - back);

	if (error != 0.0 && !(ptx_bits64(sum) & 1)) {
		/* towards the error */
		bool up = (error > 0) == (sum > 0);

		return ptx_f64(ptx_bits64(sum) + (up ? 1u : ~0ull));
	}
	return sum;
}

bool ptx_is_nan(uint64_t bits, uint8_t type)
{
	switch (type) {
	case PTX_F16:
		return (bits & 0x7fff) > 0x7c00;
	case PTX_BF16:
		return (bits & 0x7fff) > 0x7f80;
	case PTX_F32:
		return (bits & 0x7fffffff) > 0x7f800000;
	default:
		return (bits & ~(1ull << 63)) > 0x7ff0000000000000ull;
	}
}

uint64_t ptx_flush(uint64_t bits, uint8_t type)
{
	switch (type) {
	case PTX_F16:
		return bits & 0x7c00 ? bits : bits & 0x8000;
	case PTX_BF16:
		return bits & 0x7f80 ? bits : bits & 0x8000;
	case PTX_F32:
		return bits & 0x7f800000 ? bits & 0xffffffffu : bits & 0x80000000u;
	default:
		return bits;
	}
}

uint64_t ptx_saturate(uint64_t bits, uint8_t type)
{
	double value = ptx_to_double(bits, type);

	if (!(value > 0))
		return 0;
	return value >= 1 ? ptx_from_double(1.0, type, PTX_ROUND_RN) : bits;
}
