/* SPDX-License-Identifier: Apache-2.0 */
/* laneint.c: integer arithmetic. */
#include "lane.h"

#define LANE(name) uint64_t name(uint64_t a, uint64_t b, uint64_t c, uint32_t mode)
#define UNUSED(x) (void)(x)

static int bits_of(uint8_t type)
{
	return (int)ptx_type_bytes(type) * 8;
}

static uint64_t saturated(__int128 value, uint8_t type)
{
	int bits = bits_of(type);
	__int128 most = ((__int128)1 << (bits - 1)) - 1;
	__int128 least = -most - 1;

	if (!ptx_signed(type)) {
		least = 0;
		most = ((__int128)1 << bits) - 1;
	}
	return (uint64_t)(value > most ? most : value < least ? least : value);
}

/* As a number, whatever its sign means. */
static __int128 number(uint64_t value, uint8_t type)
{
	if (type == PTX_U64 || type == PTX_B64)
		return value;
	return ptx_signed_value(value, type);
}

static uint64_t halves(uint64_t a, uint64_t b, uint8_t type, int what, bool relu)
{
	uint64_t result = 0;

	for (int i = 0; i < 2; i++) {
		uint16_t x = (uint16_t)(a >> (16 * i));
		uint16_t y = (uint16_t)(b >> (16 * i));
		bool less = type == PTX_S16X2 ? (int16_t)x < (int16_t)y : x < y;
		uint16_t r = what == 0 ? (uint16_t)(x + y) : what == 1 ? (less ? x : y) : (less ? y : x);

		if (relu && (int16_t)r < 0)
			r = 0;
		result |= (uint64_t)r << (16 * i);
	}
	return result;
}

LANE(ptx_lane_add)
{
	uint8_t type = PTX_LANE_TYPE(mode);

	UNUSED(c);
	if (type == PTX_U16X2 || type == PTX_S16X2)
		return halves(a, b, type, 0, false);
	return mode & PTX_LANE_SAT ? saturated(number(a, type) + number(b, type), type) : a + b;
}

LANE(ptx_lane_sub)
{
	uint8_t type = PTX_LANE_TYPE(mode);

	UNUSED(c);
	return mode & PTX_LANE_SAT ? saturated(number(a, type) - number(b, type), type) : a - b;
}

LANE(ptx_lane_mulhi)
{
	uint8_t type = PTX_LANE_TYPE(mode);

	UNUSED(c);
	if (!ptx_signed(type))
		return (uint64_t)(((unsigned __int128)number(a, type) * (unsigned __int128)number(b, type)) >> bits_of(type));
	return (uint64_t)((number(a, type) * number(b, type)) >> bits_of(type));
}

LANE(ptx_lane_madhi)
{
	uint8_t type = PTX_LANE_TYPE(mode);
	uint64_t high = ptx_lane_mulhi(a, b, 0, mode);

	if (mode & PTX_LANE_SAT)
		return saturated((__int128)ptx_signed_value(high, type) + number(c, type), type);
	return high + c;
}

LANE(ptx_lane_madwide)
{
	uint8_t type = PTX_LANE_TYPE(mode);

	return (uint64_t)(number(a, type) * number(b, type)) + c;
}

LANE(ptx_lane_mul24)
{
	uint8_t type = PTX_LANE_TYPE(mode);
	int64_t x = (int64_t)(a & 0xffffff);
	int64_t y = (int64_t)(b & 0xffffff);

	if (ptx_signed(type)) {
		x = (int64_t)((uint64_t)x << 40) >> 40;
		y = (int64_t)((uint64_t)y << 40) >> 40;
	}
	uint64_t product = (uint64_t)(x * y);

	if (mode & PTX_LANE_A)
		product >>= 16;
	product &= 0xffffffffu;
	if (!(mode & PTX_LANE_B))
		return product;
	if (mode & PTX_LANE_SAT)
		return saturated((__int128)(int32_t)product + (int32_t)c, PTX_S32);
	return product + c;
}

LANE(ptx_lane_div)
{
	uint8_t type = PTX_LANE_TYPE(mode);

	UNUSED(c);
	if (ptx_signed(type)) {
		int64_t x = ptx_signed_value(a, type);
		int64_t y = ptx_signed_value(b, type);

		/* by zero: all ones, as hardware gives */
		if (!y)
			return ~0ull;
		return y == -1 ? 0 - (uint64_t)x : (uint64_t)(x / y);
	}
	uint64_t y = (uint64_t)number(b, type);

	return y ? (uint64_t)number(a, type) / y : ~0ull;
}

LANE(ptx_lane_rem)
{
	uint8_t type = PTX_LANE_TYPE(mode);

	UNUSED(c);
	if (ptx_signed(type)) {
		int64_t x = ptx_signed_value(a, type);
		int64_t y = ptx_signed_value(b, type);

		if (!y)
			return (uint64_t)x;
		return y == -1 ? 0 : (uint64_t)(x % y);
	}
	uint64_t y = (uint64_t)number(b, type);

	return y ? (uint64_t)number(a, type) % y : a;
}

LANE(ptx_lane_abs)
{
	int64_t value = ptx_signed_value(a, PTX_LANE_TYPE(mode));

	UNUSED(b);
	UNUSED(c);
	return value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
}

LANE(ptx_lane_neg)
{
	UNUSED(b);
	UNUSED(c);
	UNUSED(mode);
	return 0 - a;
}

LANE(ptx_lane_min)
{
	uint8_t type = PTX_LANE_TYPE(mode);

	UNUSED(c);
	if (type == PTX_U16X2 || type == PTX_S16X2)
		return halves(a, b, type, 1, mode & PTX_LANE_A);
	__int128 x = number(a, type);
	__int128 y = number(b, type);
	__int128 r = x < y ? x : y;

	return (uint64_t)(mode & PTX_LANE_A && r < 0 ? 0 : r);
}

LANE(ptx_lane_max)
{
	uint8_t type = PTX_LANE_TYPE(mode);

	UNUSED(c);
	if (type == PTX_U16X2 || type == PTX_S16X2)
		return halves(a, b, type, 2, mode & PTX_LANE_A);
	__int128 x = number(a, type);
	__int128 y = number(b, type);
	__int128 r = x > y ? x : y;

	return (uint64_t)(mode & PTX_LANE_A && r < 0 ? 0 : r);
}

LANE(ptx_lane_sad)
{
	uint8_t type = PTX_LANE_TYPE(mode);
	__int128 difference = number(a, type) - number(b, type);

	return c + (uint64_t)(difference < 0 ? -difference : difference);
}

LANE(ptx_lane_compare)
{
	uint8_t type = PTX_LANE_TYPE(mode);
	__int128 x = number(a, type);
	__int128 y = number(b, type);

	UNUSED(c);
	switch (PTX_LANE_OTHER(mode)) {
	case PTX_CMP_EQ:
		return x == y;
	case PTX_CMP_NE:
		return x != y;
	case PTX_CMP_LT: case PTX_CMP_LO:
		return x < y;
	case PTX_CMP_LE: case PTX_CMP_LS:
		return x <= y;
	case PTX_CMP_GT: case PTX_CMP_HI:
		return x > y;
	default:
		return x >= y;
	}
}

LANE(ptx_lane_cnot)
{
	UNUSED(b);
	UNUSED(c);
	return ptx_signed_value(a, PTX_LANE_TYPE(mode)) == 0;
}

LANE(ptx_lane_select)
{
	UNUSED(mode);
	return c ? a : b;
}

LANE(ptx_lane_slct)
{
	UNUSED(mode);
	return (int32_t)c >= 0 ? a : b;
}

LANE(ptx_lane_move)
{
	UNUSED(b);
	UNUSED(c);
	UNUSED(mode);
	return a;
}

LANE(ptx_lane_dp4a)
{
	uint32_t sum = (uint32_t)c;
	bool first = PTX_LANE_TYPE(mode) == PTX_S32;
	bool second = PTX_LANE_OTHER(mode) == PTX_S32;

	for (int i = 0; i < 4; i++) {
		uint8_t x = (uint8_t)(a >> (8 * i));
		uint8_t y = (uint8_t)(b >> (8 * i));

		sum += (uint32_t)((first ? (int8_t)x : x) * (second ? (int8_t)y : y));
	}
	return sum;
}

LANE(ptx_lane_dp2a)
{
	uint32_t sum = (uint32_t)c;
	bool first = PTX_LANE_TYPE(mode) == PTX_S32;
	bool second = PTX_LANE_OTHER(mode) == PTX_S32;

	for (int i = 0; i < 2; i++) {
		uint16_t x = (uint16_t)(a >> (16 * i));
		uint8_t y = (uint8_t)(b >> (8 * i + (mode & PTX_LANE_A ? 16 : 0)));

		sum += (uint32_t)((first ? (int16_t)x : x) * (second ? (int8_t)y : y));
	}
	return sum;
}

uint64_t ptx_carry(uint64_t a, uint64_t b, uint64_t c, uint32_t mode, uint8_t width, uint64_t *carry)
{
	int bits = width == PTX_W_64 ? 64 : 32;
	uint64_t in = mode & PTX_CARRY_IN ? *carry : 0;
	unsigned __int128 sum;

	if (bits == 32) {
		a = (uint32_t)a;
		b = (uint32_t)b;
		c = (uint32_t)c;
	}
	if (mode & PTX_CARRY_MULTIPLY) {
		__int128 product = mode & PTX_CARRY_SIGNED
					   ? bits == 64 ? (__int128)(int64_t)a * (int64_t)b : (__int128)(int32_t)a * (int32_t)b
					   : (__int128)((unsigned __int128)a * b);
		uint64_t part = (uint64_t)(mode & PTX_CARRY_HIGH ? product >> bits : product);

		sum = (unsigned __int128)(bits == 32 ? (uint32_t)part : part) + c + in;
		*carry = (uint64_t)(sum >> bits) & 1;
		return (uint64_t)sum;
	}
	if (mode & PTX_CARRY_SUBTRACT) {
		/* the carry out of a - b is a borrow, and comes back as one */
		sum = (unsigned __int128)a - b - in;
		*carry = (uint64_t)(sum >> bits) & 1;
		return (uint64_t)sum;
	}
	sum = (unsigned __int128)a + b + in;
	*carry = (uint64_t)(sum >> bits) & 1;
	return (uint64_t)sum;
}
