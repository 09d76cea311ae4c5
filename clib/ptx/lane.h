/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h: what one lane of an operation computes, one function for each kind. */
#ifndef DIVVY_STANDIN_PTX_LANE_H
#define DIVVY_STANDIN_PTX_LANE_H

#include <string.h>

#include "op.h"

/* mode of ptx_carry */
#define PTX_CARRY_OUT 1u
#define PTX_CARRY_IN 2u
#define PTX_CARRY_SUBTRACT 4u
#define PTX_CARRY_MULTIPLY 8u
#define PTX_CARRY_HIGH 16u
#define PTX_CARRY_SIGNED 32u

uint64_t ptx_carry(uint64_t a, uint64_t b, uint64_t c, uint32_t mode, uint8_t width, uint64_t *carry);

/* mode of most others: the type, and what changes the result */
#define PTX_LANE_TYPE(mode) ((mode) & 255)
#define PTX_LANE_OTHER(mode) ((mode) >> 8 & 255) /* another type, a comparison, an operation */
#define PTX_LANE_ROUND(mode) ((mode) >> 16 & 15)
#define PTX_LANE_FTZ 0x100000u
#define PTX_LANE_SAT 0x200000u
#define PTX_LANE_A 0x400000u /* of the operation: see there */
#define PTX_LANE_B 0x800000u
#define PTX_LANE_C 0x1000000u
#define PTX_LANE_D 0x2000000u
#define PTX_LANE_MODE(type, other, round) ((uint32_t)(type) | (uint32_t)(other) << 8 | (uint32_t)(round) << 16)

/* integers: laneint.c, lanebits.c */
uint64_t ptx_lane_add(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* .sat */
uint64_t ptx_lane_sub(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_mulhi(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_madhi(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* A: .sat */
uint64_t ptx_lane_mul24(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* A: hi, B: mad */
uint64_t ptx_lane_madwide(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_div(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_rem(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_abs(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_neg(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_min(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* A: relu */
uint64_t ptx_lane_max(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_sad(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_compare(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* integers: 0 or 1 */
uint64_t ptx_lane_shl(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_shr(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_shf(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* A: left, B: wrap */
uint64_t ptx_lane_bfe(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_bfi(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* c: position and length << 8 */
uint64_t ptx_lane_pair(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* a & 255 | (b & 255) << 8 */
uint64_t ptx_lane_brev(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_clz(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_popc(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_bfind(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* A: shiftamt */
uint64_t ptx_lane_fns(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_bmsk(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* A: clamp */
uint64_t ptx_lane_szext(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* A: clamp */
uint64_t ptx_lane_prmt(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_dp4a(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_dp2a(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* A: hi */
uint64_t ptx_lane_cnot(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_select(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_slct(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_move(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_piece(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* OTHER: shift */
uint64_t ptx_lane_join(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);  /* a | b << OTHER */

/* floating point: lanefloat.c, lanehalf.c, lanetest.c */
uint64_t ptx_lane_fadd(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_fsub(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_fmul(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_fma(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* A: relu, B: oob */
uint64_t ptx_lane_fdiv(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* A: approx */
uint64_t ptx_lane_frcp(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_fsqrt(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_frsqrt(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_fsin(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_fcos(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_fex2(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_flg2(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_ftanh(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_fneg(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_fabs(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_fmin(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* A: NaN, B: xorsign.abs, C: three, D: max */
uint64_t ptx_lane_copysign(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_testp(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_fcompare(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* 0 or 1 */
uint64_t ptx_lane_fslct(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);

/* setp and set: bit 0 is the result, bit 1 that of the opposite. A: and, B: or,
 * C: xor with the third operand. PTX_LANE_D: into a register, all ones or 1.0f. */
uint64_t ptx_lane_setp(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
uint64_t ptx_lane_set(uint64_t a, uint64_t b, uint64_t c, uint32_t mode); /* ROUND: destination: 0 u32/s32, 1 f32, 2 f16, 3 bf16, 4 16 bits */

/* convert.c: two integers of TYPE bits with what is in c behind them; A: signed */
uint64_t ptx_lane_pack(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);
/* from OTHER to TYPE; A: relu, B: two into one (.f16x2.f32) */
uint64_t ptx_lane_convert(uint64_t a, uint64_t b, uint64_t c, uint32_t mode);

static inline bool ptx_signed(uint8_t type)
{
	return type == PTX_S8 || type == PTX_S16 || type == PTX_S32 || type == PTX_S64 || type == PTX_S16X2;
}

static inline bool ptx_floating(uint8_t type)
{
	return type == PTX_F16 || type == PTX_F32 || type == PTX_F64 || type == PTX_BF16 || type == PTX_F16X2 ||
	       type == PTX_BF16X2;
}

/* An integer of that type as 64 bits. */
static inline int64_t ptx_signed_value(uint64_t value, uint8_t type)
{
	switch (type) {
	case PTX_S8:
		return (int8_t)value;
	case PTX_S16:
		return (int16_t)value;
	case PTX_S32:
		return (int32_t)value;
	case PTX_U8: case PTX_B8:
		return (uint8_t)value;
	case PTX_U16: case PTX_B16:
		return (uint16_t)value;
	case PTX_U32: case PTX_B32:
		return (uint32_t)value;
	default:
		return (int64_t)value;
	}
}

static inline float ptx_f32(uint64_t bits)
{
	uint32_t word = (uint32_t)bits;
	float value;

	memcpy(&value, &word, sizeof(value));
	return value;
}

/* 1, 5, 10 bits: each value is a float. */
static inline float ptx_f16(uint64_t bits)
{
	uint64_t exponent = bits >> 10 & 31, mantissa = bits & 1023, sign = (bits & 0x8000) << 16;

	if (exponent == 0)
		return (sign ? -1.0f : 1.0f) * (float)mantissa * 0x1p-24f;
	if (exponent == 31)
		return ptx_f32(sign | (mantissa ? 0x7fc00000 : 0x7f800000));
	return ptx_f32(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline double ptx_f64(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint64_t ptx_bits32(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline uint64_t ptx_bits64(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* real.c. Any float as a double, which holds all of them; and back, rounded once
 * (enum ptx_round), the sticky bit telling that value is not exact. */
double ptx_to_double(uint64_t bits, uint8_t type);
uint64_t ptx_from_double(double value, uint8_t type, uint8_t round);
/* a * b + c rounded to odd in 53 bits, so that rounding it again is exact */
double ptx_fma_odd(double a, double b, double c);
bool ptx_is_nan(uint64_t bits, uint8_t type);
uint64_t ptx_flush(uint64_t bits, uint8_t type); /* subnormal: zero of its sign */
uint64_t ptx_saturate(uint64_t bits, uint8_t type); /* to [0, 1], NaN to 0 */
uint64_t ptx_sign_bit(uint8_t type);
uint64_t ptx_quiet(uint8_t type); /* the NaN of operations */

/* An element of memory as a register's bits. mode: PTX_MODE_SIGNED. */
static inline __attribute__((always_inline)) uint64_t ptx_extend(const unsigned char *from, uint32_t bytes, uint32_t mode)
{
	uint64_t value = 0;

	switch (bytes) {
	case 1:
		value = *from;
		return mode & PTX_MODE_SIGNED ? (uint64_t)(int64_t)(int8_t)value : value;
	case 2: {
		uint16_t half;

		memcpy(&half, from, sizeof(half));
		return mode & PTX_MODE_SIGNED ? (uint64_t)(int64_t)(int16_t)half : half;
	}
	case 4: {
		uint32_t word;

		memcpy(&word, from, sizeof(word));
		return mode & PTX_MODE_SIGNED ? (uint64_t)(int64_t)(int32_t)word : word;
	}
	default:
		memcpy(&value, from, sizeof(value));
		return value;
	}
}

#endif
