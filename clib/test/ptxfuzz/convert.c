/* SPDX-License-Identifier: Apache-2.0 */
#include "semantics.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

#define CANONICAL16 0x7fff

wide f16_value(u16 a)
{
	_Float16 f;

	memcpy(&f, &a, sizeof f);
	return (wide)f;
}

wide bf16_value(u16 a)
{
	return f32_value((u32)a << 16);
}

wide f32_value(u32 a)
{
	float f;

	memcpy(&f, &a, sizeof f);
	return (wide)f;
}

wide f64_value(u64 a)
{
	double d;

	memcpy(&d, &a, sizeof d);
	return (wide)d;
}

/* 0 to 1; a NaN is 0 */
static wide saturated(wide a, bool sat)
{
	return !sat ? a : a > 0 ? a < 1 ? a : 1 : 0;
}

#define ROUND(type, from, to, round) 	do { 		volatile wide exact_ = (from); 		volatile type rounded_; 		fesetround(modes[round]); 		rounded_ = (type)exact_; 		fesetround(FE_TONEAREST); 		(to) = rounded_; 	} while (0)

u16 f16_round(wide a, int round, bool ftz, bool sat)
{
	_Float16 f;
	u16 bits;

	ROUND(_Float16, saturated(a, sat), f, round);
	memcpy(&bits, &f, sizeof bits);
	return ftz && (bits & 0x7c00) == 0 ? bits & 0x8000 : bits;
}

u32 f32_round(wide a, int round, bool ftz, bool sat)
{
	float f;
	u32 bits;

	ROUND(float, saturated(a, sat), f, round);
	memcpy(&bits, &f, sizeof bits);
	return ftz ? f32_flush(bits) : bits;
}

u64 f64_round(wide a, int round, bool ftz, bool sat)
{
	double d;
	u64 bits;

	(void)ftz;
	ROUND(double, saturated(a, sat), d, round);
	memcpy(&bits, &d, sizeof bits);
	return bits;
}

/* By way of an f32 whose last bit says whether something was cut off. */
u16 bf16_round(wide a, int round, bool relu)
{
	u32 bits = f32_round(a, 1, false, false), rest;

	if (a != a)
		return CANONICAL16;
	if (relu && a <= 0)
		return 0;
	if (f32_value(bits) != a)
		bits |= 1;
	rest = bits & 0xffff;
	bits >>= 16;
	if (round == 0 && (rest > 0x8000 || (rest == 0x8000 && (bits & 1))))
		bits++;
	return (u16)bits;
}

static u16 flush16(u16 a, bool ftz)
{
	return ftz && (a & 0x7c00) == 0 ? a & 0x8000 : a;
}

u16 f16_arithmetic(int operation, u16 a, u16 b, bool ftz, bool sat)
{
	wide x = f16_value(flush16(a, ftz)), y = f16_value(flush16(b, ftz));

	return f16_round(operation == 0 ? x + y : operation == 1 ? x - y : x * y, 0, ftz, sat);
}

static wide positive(wide a, bool relu)
{
	return relu && a <= 0 ? 0 : a;
}

u16 f16_fma(u16 a, u16 b, u16 c, bool ftz, bool sat, bool relu)
{
	wide exact = f16_value(flush16(a, ftz)) * f16_value(flush16(b, ftz)) + f16_value(flush16(c, ftz));

	return f16_round(positive(exact, relu), 0, ftz, sat);
}

/* The product is exact; where the sum is not, its last bit says so. */
u16 bf16_fma(u16 a, u16 b, u16 c, bool ftz, bool sat, bool relu)
{
	volatile wide product = bf16_value(a) * bf16_value(b), other = bf16_value(c), sum;
	bool inexact;
	u128 bits;
	wide exact;

	(void)ftz, (void)sat;
	feclearexcept(FE_ALL_EXCEPT);
	fesetround(FE_TOWARDZERO);
	sum = product + other;
	inexact = fetestexcept(FE_INEXACT) != 0;
	fesetround(FE_TONEAREST);
	if (!inexact)
		sum = product + other; /* the sign of a zero depends on the rounding */
	exact = sum;
	if (inexact) {
		memcpy(&bits, &exact, sizeof bits);
		bits |= 1;
		memcpy(&exact, &bits, sizeof bits);
	}
	return bf16_round(positive(exact, relu), 0, relu);
}

static u16 extreme(u16 a, u16 b, wide x, wide y, bool most, bool nan)
{
	if (x != x || y != y) {
		if (nan || (x != x && y != y))
			return CANONICAL16;
		return x != x ? b : a;
	}
	if (x == y)
		return most ? a & b : a | b;
	return (x > y) == most ? a : b;
}

u16 f16_extreme(u16 a, u16 b, bool most, bool nan)
{
	return extreme(a, b, f16_value(a), f16_value(b), most, nan);
}

u16 bf16_extreme(u16 a, u16 b, bool most, bool nan)
{
	return extreme(a, b, bf16_value(a), bf16_value(b), most, nan);
}

bool f16_compare(int how, u16 a, u16 b)
{
	wide x = f16_value(a), y = f16_value(b);

	return comparison(how, x != x || y != y ? 2 : x < y ? -1 : x > y);
}

/* f16, f32 and f64 all fit a double. */
static double whole(double d, int round)
{
	switch (round) {
	case 0: return nearbyint(d);
	case 1: return trunc(d);
	case 2: return floor(d);
	default: return ceil(d);
	}
}

/*
 * A NaN becomes 0, or the number with the top bit alone if one of the two types
 * has 64 bits.
 */
static s64 to_int(double d, int round, int bits, bool sign, bool from64)
{
	s128 least = sign ? -((s128)1 << (bits - 1)) : 0, most = ((s128)1 << (sign ? bits - 1 : bits)) - 1;

	if (isnan(d))
		return !from64 && bits < 64 ? 0 : sign ? (s64)least : (s64)((u64)1 << (bits - 1));
	d = whole(d, round);
	if (d <= (double)least)
		return (s64)least;
	if (d >= (double)most)
		return (s64)most;
	return (s64)(s128)d;
}

s64 f16_to_int(u16 a, int round, int bits, bool sign, bool ftz)
{
	return (void)ftz, to_int((double)f16_value(a), round, bits, sign, false);
}

s64 f32_to_int(u32 a, int round, int bits, bool sign, bool ftz)
{
	return to_int((double)f32_value(ftz ? f32_flush(a) : a), round, bits, sign, false);
}

s64 f64_to_int(u64 a, int round, int bits, bool sign, bool ftz)
{
	return (void)ftz, to_int((double)f64_value(a), round, bits, sign, true);
}

u16 f16_whole(u16 a, int round, bool ftz, bool sat)
{
	return f16_round((wide)whole((double)f16_value(a), round), 0, ftz, sat);
}

u32 f32_whole(u32 a, int round, bool ftz, bool sat)
{
	return f32_round((wide)whole((double)f32_value(ftz ? f32_flush(a) : a), round), 0, ftz, sat);
}

u64 f64_whole(u64 a, int round, bool ftz, bool sat)
{
	return f64_round((wide)whole((double)f64_value(a), round), 0, ftz, sat);
}
