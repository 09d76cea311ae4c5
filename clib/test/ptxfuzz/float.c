/* SPDX-License-Identifier: Apache-2.0 */
#include "semantics.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

/* Exceptions are no matter; the rounding is put back after each operation. */
static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

static float float_of(u32 a)
{
	float f;

	memcpy(&f, &a, sizeof f);
	return f;
}

static u32 bits_of(float f)
{
	u32 a;

	memcpy(&a, &f, sizeof a);
	return a;
}

static double double_of(u64 a)
{
	double d;

	memcpy(&d, &a, sizeof d);
	return d;
}

static u64 dbits_of(double d)
{
	u64 a;

	memcpy(&a, &d, sizeof a);
	return a;
}

u32 f32_flush(u32 a)
{
	return (a & 0x7f800000) == 0 ? a & 0x80000000 : a;
}

static u32 flush(u32 a, bool ftz)
{
	return ftz ? f32_flush(a) : a;
}

u32 f32_canonical(u32 a)
{
	return isnan(float_of(a)) ? 0x7fffffff : a;
}

u64 f64_canonical(u64 a)
{
	return isnan(double_of(a)) ? 0x7fffffffffffffff : a;
}

static u32 finish(float f, bool ftz, bool sat)
{
	u32 a = flush(bits_of(f), ftz);

	if (!sat)
		return a;
	f = float_of(a);
	return bits_of(f > 0 ? f < 1 ? f : 1.0f : 0.0f); /* a NaN is 0 too */
}

#define F32_OPERATION(name, arguments, expression) 	u32 f32_##name arguments 	{ 		volatile float x = float_of(flush(a, ftz)), result; 		fesetround(modes[round]); 		result = expression; 		fesetround(FE_TONEAREST); 		return finish(result, ftz, sat); 	}
#define F32_SECOND float_of(flush(b, ftz))
F32_OPERATION(add, (u32 a, u32 b, int round, bool ftz, bool sat), x + F32_SECOND)
F32_OPERATION(sub, (u32 a, u32 b, int round, bool ftz, bool sat), x - F32_SECOND)
F32_OPERATION(mul, (u32 a, u32 b, int round, bool ftz, bool sat), x * F32_SECOND)
F32_OPERATION(div, (u32 a, u32 b, int round, bool ftz, bool sat), x / F32_SECOND)
F32_OPERATION(fma, (u32 a, u32 b, u32 c, int round, bool ftz, bool sat), fmaf(x, F32_SECOND, float_of(flush(c, ftz))))
F32_OPERATION(sqrt, (u32 a, int round, bool ftz, bool sat), sqrtf(x))
F32_OPERATION(rcp, (u32 a, int round, bool ftz, bool sat), 1.0f / x)

#define F64_OPERATION(name, arguments, expression) 	u64 f64_##name arguments 	{ 		volatile double x = double_of(a), result; 		(void)ftz, (void)sat; 		fesetround(modes[round]); 		result = expression; 		fesetround(FE_TONEAREST); 		return dbits_of(result); 	}
F64_OPERATION(add, (u64 a, u64 b, int round, bool ftz, bool sat), x + double_of(b))
F64_OPERATION(sub, (u64 a, u64 b, int round, bool ftz, bool sat), x - double_of(b))
F64_OPERATION(mul, (u64 a, u64 b, int round, bool ftz, bool sat), x * double_of(b))
F64_OPERATION(div, (u64 a, u64 b, int round, bool ftz, bool sat), x / double_of(b))
F64_OPERATION(fma, (u64 a, u64 b, u64 c, int round, bool ftz, bool sat), fma(x, double_of(b), double_of(c)))
F64_OPERATION(sqrt, (u64 a, int round, bool ftz, bool sat), sqrt(x))
F64_OPERATION(rcp, (u64 a, int round, bool ftz, bool sat), 1.0 / x)

#define SIGN32 0x80000000u
#define SIGN64 0x8000000000000000u

u32 f32_abs(u32 a, bool ftz) { return flush(a, ftz) & ~SIGN32; }
u32 f32_neg(u32 a, bool ftz) { return flush(a, ftz) ^ SIGN32; }
u64 f64_abs(u64 a, bool ftz) { return (void)ftz, a & ~SIGN64; }
u64 f64_neg(u64 a, bool ftz) { return (void)ftz, a ^ SIGN64; }

/* the sign of a on the value of b */
u32 f32_copysign(u32 a, u32 b) { return (a & SIGN32) | (b & ~SIGN32); }
u64 f64_copysign(u64 a, u64 b) { return (a & SIGN64) | (b & ~SIGN64); }

u32 f32_extreme(u32 a, u32 b, bool most, bool ftz, bool nan, bool xorsign)
{
	u32 sign = (a ^ b) & SIGN32, chosen;
	float x, y;

	a = flush(a, ftz) & (xorsign ? ~SIGN32 : ~0u);
	b = flush(b, ftz) & (xorsign ? ~SIGN32 : ~0u);
	x = float_of(a);
	y = float_of(b);
	if (isnan(x) || isnan(y)) {
		if (nan || (isnan(x) && isnan(y)))
			return 0x7fffffff;
		chosen = isnan(x) ? b : a;
	} else if (x == y) {
		chosen = most ? a & b : a | b; /* 0 is more than -0 */
	} else {
		chosen = (x > y) == most ? a : b;
	}
	return xorsign ? chosen | sign : chosen;
}

u64 f64_extreme(u64 a, u64 b, bool most, bool ftz, bool nan, bool xorsign)
{
	double x = double_of(a), y = double_of(b);

	(void)ftz, (void)nan, (void)xorsign;
	if (isnan(x))
		return b;
	if (isnan(y))
		return a;
	if (x == y)
		return most ? a & b : a | b;
	return (x > y) == most ? a : b;
}

bool comparison(int how, int order)
{
	switch (how) {
	case CMP_EQ: return order == 0;
	case CMP_NE: return order == -1 || order == 1;
	case CMP_LT: return order == -1;
	case CMP_LE: return order == -1 || order == 0;
	case CMP_GT: return order == 1;
	case CMP_GE: return order == 1 || order == 0;
	case CMP_EQU: return order == 0 || order == 2;
	case CMP_NEU: return order != 0;
	case CMP_LTU: return order == -1 || order == 2;
	case CMP_LEU: return order != 1;
	case CMP_GTU: return order == 1 || order == 2;
	case CMP_GEU: return order != -1;
	case CMP_NUM: return order != 2;
	default: return order == 2;
	}
}

static int order(double x, double y)
{
	return isnan(x) || isnan(y) ? 2 : x < y ? -1 : x > y;
}

bool f32_compare(int how, u32 a, u32 b, bool ftz)
{
	return comparison(how, order((double)float_of(flush(a, ftz)), (double)float_of(flush(b, ftz))));
}

bool f64_compare(int how, u64 a, u64 b, bool ftz)
{
	return (void)ftz, comparison(how, order(double_of(a), double_of(b)));
}

static bool test(int what, int class)
{
	switch (what) {
	case 0: return class != FP_INFINITE && class != FP_NAN;
	case 1: return class == FP_INFINITE;
	case 2: return class != FP_NAN;
	case 3: return class == FP_NAN;
	case 4: return class == FP_NORMAL;
	default: return class == FP_SUBNORMAL;
	}
}

bool f32_test(int what, u32 a) { return test(what, fpclassify(float_of(a))); }
bool f64_test(int what, u64 a) { return test(what, fpclassify(double_of(a))); }
