/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanefloat.c: floating point arithmetic of one lane. f32 and f64 are computed in
 * the host's rounding mode, which the engine sets; smaller ones as doubles and
 * rounded once. The approximations (.approx) are exact to the last place of a
 * correctly rounded result or better than hardware's documented error.
 */
#include <math.h>

#include "lane.h"

#define LANE(name) uint64_t name(uint64_t a, uint64_t b, uint64_t c, uint32_t mode)
#define UNUSED(x) (void)(x)

typedef uint64_t (*one)(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode);

static bool paired(uint8_t type)
{
	return type == PTX_F16X2 || type == PTX_BF16X2 || type == PTX_F32X2;
}

static uint64_t finish(uint64_t r, uint8_t type, uint32_t mode)
{
	if (mode & PTX_LANE_FTZ)
		r = ptx_flush(r, type);
	if (mode & PTX_LANE_SAT)
		r = ptx_saturate(r, type);
	return r;
}

/* Both halves of .f16x2 and .f32x2, or the value. */
static uint64_t each(one function, uint64_t a, uint64_t b, uint64_t c, uint32_t mode)
{
	uint8_t type = PTX_LANE_TYPE(mode);
	int count = paired(type) ? 2 : 1;
	uint64_t result = 0;

	if (type == PTX_F16X2)
		type = PTX_F16;
	else if (type == PTX_BF16X2)
		type = PTX_BF16;
	else if (type == PTX_F32X2)
		type = PTX_F32;
	int bits = type == PTX_F32 ? 32 : 16;
	uint64_t mask = type == PTX_F64 ? ~0ull : type == PTX_F32 ? 0xffffffffu : 0xffff;

	for (int i = 0; i < count; i++) {
		uint64_t x = a >> (bits * i) & mask;
		uint64_t y = b >> (bits * i) & mask;
		uint64_t z = c >> (bits * i) & mask;

		if (mode & PTX_LANE_FTZ) {
			x = ptx_flush(x, type);
			y = ptx_flush(y, type);
			z = ptx_flush(z, type);
		}
		result |= finish(function(x, y, z, type, mode), type, mode) << (bits * i);
	}
	return result;
}

static uint64_t small(double value, uint8_t type)
{
	return ptx_from_double(value, type, PTX_ROUND_RN);
}

static uint64_t add(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(c);
	UNUSED(mode);
	if (type == PTX_F32)
		return ptx_bits32(ptx_f32(a) + ptx_f32(b));
	if (type == PTX_F64)
		return ptx_bits64(ptx_f64(a) + ptx_f64(b));
	return small(ptx_fma_odd(ptx_to_double(a, type), 1.0, ptx_to_double(b, type)), type);
}

static uint64_t sub(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(c);
	UNUSED(mode);
	if (type == PTX_F32)
		return ptx_bits32(ptx_f32(a) - ptx_f32(b));
	if (type == PTX_F64)
		return ptx_bits64(ptx_f64(a) - ptx_f64(b));
	return small(ptx_fma_odd(ptx_to_double(b, type), -1.0, ptx_to_double(a, type)), type);
}

static uint64_t mul(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(c);
	UNUSED(mode);
	if (type == PTX_F32)
		return ptx_bits32(ptx_f32(a) * ptx_f32(b));
	if (type == PTX_F64)
		return ptx_bits64(ptx_f64(a) * ptx_f64(b));
	return small(ptx_to_double(a, type) * ptx_to_double(b, type), type);
}

static uint64_t fused(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	uint64_t r;

	/* .oob: what was read outside of a tensor, which has a NaN of its own */
	if (mode & PTX_LANE_B && ((a & 0xffff) == 0xffff || (b & 0xffff) == 0xffff))
		return 0;
	if (type == PTX_F32)
		r = ptx_bits32(fmaf(ptx_f32(a), ptx_f32(b), ptx_f32(c)));
	else if (type == PTX_F64)
		r = ptx_bits64(fma(ptx_f64(a), ptx_f64(b), ptx_f64(c)));
	else
		r = small(ptx_fma_odd(ptx_to_double(a, type), ptx_to_double(b, type), ptx_to_double(c, type)), type);
	if (mode & PTX_LANE_A)
		r = ptx_is_nan(r, type) ? ptx_quiet(type) : r & ptx_sign_bit(type) ? 0 : r;
	return r;
}

static uint64_t divide(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(c);
	if (type == PTX_F64)
		return ptx_bits64(ptx_f64(a) / ptx_f64(b));
	/* .approx takes the reciprocal first: of a huge number it is nothing */
	if (mode & PTX_LANE_A && fabsf(ptx_f32(b)) > 0x1p126f && fabsf(ptx_f32(b)) < INFINITY)
		return isinf(ptx_f32(a)) ? ptx_quiet(type) : (a ^ b) & 0x80000000u;
	return ptx_bits32(ptx_f32(a) / ptx_f32(b));
}

static uint64_t reciprocal(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(b);
	UNUSED(c);
	if (type == PTX_F64) {
		double r = 1.0 / ptx_f64(a);

		/* .approx.ftz.f64 gives 20 bits of mantissa and no subnormals */
		if (mode & PTX_LANE_A) {
			uint64_t x = a & 0x7ff0000000000000ull ? a : a & 1ull << 63;

			r = 1.0 / ptx_f64(x & ~0xffffffffull);
			x = ptx_bits64(r) & ~0xffffffffull;
			return x & 0x7ff0000000000000ull ? x : x & 1ull << 63;
		}
		return ptx_bits64(r);
	}
	return ptx_bits32(1.0f / ptx_f32(a));
}

static uint64_t root(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(b);
	UNUSED(c);
	UNUSED(mode);
	return type == PTX_F64 ? ptx_bits64(sqrt(ptx_f64(a))) : ptx_bits32(sqrtf(ptx_f32(a)));
}

static uint64_t reciprocal_root(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(b);
	UNUSED(c);
	UNUSED(mode);
	if (type == PTX_F64)
		return ptx_bits64(1.0 / sqrt(ptx_f64(a)));
	return ptx_bits32((float)(1.0 / sqrt((double)ptx_f32(a))));
}

static uint64_t sine(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(b);
	UNUSED(c);
	UNUSED(type);
	UNUSED(mode);
	return ptx_bits32((float)sin((double)ptx_f32(a)));
}

static uint64_t cosine(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(b);
	UNUSED(c);
	UNUSED(type);
	UNUSED(mode);
	return ptx_bits32((float)cos((double)ptx_f32(a)));
}

static uint64_t power(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(b);
	UNUSED(c);
	UNUSED(mode);
	return type == PTX_F32 ? ptx_bits32((float)exp2((double)ptx_f32(a))) : small(exp2(ptx_to_double(a, type)), type);
}

static uint64_t logarithm(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(b);
	UNUSED(c);
	UNUSED(type);
	UNUSED(mode);
	return ptx_bits32((float)log2((double)ptx_f32(a)));
}

static uint64_t hyperbolic(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(b);
	UNUSED(c);
	UNUSED(mode);
	return type == PTX_F32 ? ptx_bits32((float)tanh((double)ptx_f32(a))) : small(tanh(ptx_to_double(a, type)), type);
}

static uint64_t negative(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(b);
	UNUSED(c);
	UNUSED(mode);
	return a ^ ptx_sign_bit(type);
}

static uint64_t absolute(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	UNUSED(b);
	UNUSED(c);
	UNUSED(mode);
	return a & ~ptx_sign_bit(type);
}

static uint64_t lesser(uint64_t a, uint64_t b, uint8_t type, uint32_t mode)
{
	bool second = ptx_is_nan(b, type);
	uint64_t sign = ptx_sign_bit(type);

	if (ptx_is_nan(a, type))
		return second || mode & PTX_LANE_A ? ptx_quiet(type) : b;
	if (second)
		return mode & PTX_LANE_A ? ptx_quiet(type) : a;
	double x = ptx_to_double(a, type);
	double y = ptx_to_double(b, type);
	/* zeros differ by their sign */
	bool less = x < y || (x == y && (a & sign) && !(b & sign));

	return less != ((mode & PTX_LANE_D) != 0) ? a : b;
}

static uint64_t extreme(uint64_t a, uint64_t b, uint64_t c, uint8_t type, uint32_t mode)
{
	uint64_t sign = ptx_sign_bit(type);
	uint64_t flip = 0;

	if (mode & PTX_LANE_B) {
		flip = (a ^ b) & sign;
		a &= ~sign;
		b &= ~sign;
	}
	uint64_t r = lesser(a, b, type, mode);

	if (mode & PTX_LANE_C)
		r = lesser(r, c, type, mode);
	return mode & PTX_LANE_B && !ptx_is_nan(r, type) ? (r & ~sign) | flip : r;
}

LANE(ptx_lane_fadd) { return each(add, a, b, c, mode); }
LANE(ptx_lane_fsub) { return each(sub, a, b, c, mode); }
LANE(ptx_lane_fmul) { return each(mul, a, b, c, mode); }
LANE(ptx_lane_fma) { return each(fused, a, b, c, mode); }
LANE(ptx_lane_fdiv) { return each(divide, a, b, c, mode); }
LANE(ptx_lane_frcp) { return each(reciprocal, a, b, c, mode); }
LANE(ptx_lane_fsqrt) { return each(root, a, b, c, mode); }
LANE(ptx_lane_frsqrt) { return each(reciprocal_root, a, b, c, mode); }
LANE(ptx_lane_fsin) { return each(sine, a, b, c, mode); }
LANE(ptx_lane_fcos) { return each(cosine, a, b, c, mode); }
LANE(ptx_lane_fex2) { return each(power, a, b, c, mode); }
LANE(ptx_lane_flg2) { return each(logarithm, a, b, c, mode); }
LANE(ptx_lane_ftanh) { return each(hyperbolic, a, b, c, mode); }
LANE(ptx_lane_fneg) { return each(negative, a, b, c, mode); }
LANE(ptx_lane_fabs) { return each(absolute, a, b, c, mode); }
LANE(ptx_lane_fmin) { return each(extreme, a, b, c, mode); }

LANE(ptx_lane_copysign)
{
	uint64_t sign = ptx_sign_bit(PTX_LANE_TYPE(mode));

	UNUSED(c);
	/* the first operand gives the sign */
	return (b & ~sign) | (a & sign);
}

LANE(ptx_lane_testp)
{
	uint8_t type = PTX_LANE_TYPE(mode);
	double value = ptx_to_double(a, type);
	bool tiny = type == PTX_F32 ? !(a & 0x7f800000u) : !(a & 0x7ff0000000000000ull);
	bool zero = value == 0;

	UNUSED(b);
	UNUSED(c);
	switch (PTX_LANE_OTHER(mode)) {
	case PTX_DO_FINITE:
		return isfinite(value);
	case PTX_DO_INFINITE:
		return isinf(value) != 0;
	case PTX_DO_NUMBER:
		return !isnan(value);
	case PTX_DO_NOTANUMBER:
		return isnan(value) != 0;
	case PTX_DO_NORMAL:
		return isfinite(value) && !tiny;
	default:
		return tiny && !zero;
	}
}

LANE(ptx_lane_fslct)
{
	double value = ptx_f32(mode & PTX_LANE_FTZ ? ptx_flush(c, PTX_F32) : c);

	/* NaN takes b */
	return value >= 0 ? a : b;
}
