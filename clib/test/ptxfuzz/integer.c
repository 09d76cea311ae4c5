/* SPDX-License-Identifier: Apache-2.0 */
#include "semantics.h"

u64 shift_right_u16(u16 a, u32 by) { return by > 15 ? 0 : a >> by; }
u64 shift_right_u32(u32 a, u32 by) { return by > 31 ? 0 : a >> by; }
u64 shift_right_u64(u64 a, u32 by) { return by > 63 ? 0 : a >> by; }
u64 shift_right_s16(u16 a, u32 by) { return (u16)((s16)a >> (by > 15 ? 15 : by)); }
u64 shift_right_s32(u32 a, u32 by) { return (u32)((s32)a >> (by > 31 ? 31 : by)); }
u64 shift_right_s64(u64 a, u32 by) { return (u64)((s64)a >> (by > 63 ? 63 : by)); }

static bool bit(u64 a, u32 i)
{
	return a >> i & 1;
}

/* Bit by bit, as the language's description has it. */
static u64 extract(u64 a, u32 position, u32 length, u32 top, bool sign)
{
	u32 last;
	bool fill;
	u64 found = 0;

	position &= 255;
	length &= 255;
	last = position + length - 1;
	fill = sign && length > 0 && bit(a, last < top ? last : top);
	for (u32 i = 0; i <= top; i++)
		found |= (u64)(i < length && position + i <= top ? bit(a, position + i) : fill) << i;
	return found;
}

u32 bfe_u32(u32 a, u32 position, u32 length) { return (u32)extract(a, position, length, 31, false); }
u32 bfe_s32(u32 a, u32 position, u32 length) { return (u32)extract(a, position, length, 31, true); }
u64 bfe_u64(u64 a, u32 position, u32 length) { return extract(a, position, length, 63, false); }
u64 bfe_s64(u64 a, u32 position, u32 length) { return extract(a, position, length, 63, true); }

u64 bfi(u64 a, u64 b, u32 position, u32 length, int bits)
{
	position &= 255;
	length &= 255;
	for (u32 i = 0; i < length && position + i < (u32)bits; i++)
		b = (b & ~(1ull << (position + i))) | (u64)bit(a, i) << (position + i);
	return b;
}

static u32 find(u64 a, int top, bool shift)
{
	for (int i = top; i >= 0; i--)
		if (bit(a, (u32)i))
			return (u32)(shift ? top - i : i);
	return ~0u;
}

u32 bfind_u32(u32 a, bool shift) { return find(a, 31, shift); }
u32 bfind_s32(u32 a, bool shift) { return find((s32)a < 0 ? ~a : a, 31, shift); }
u32 bfind_u64(u64 a, bool shift) { return find(a, 63, shift); }
u32 bfind_s64(u64 a, bool shift) { return find((s64)a < 0 ? ~a : a, 63, shift); }

u64 reverse(u64 a)
{
	u64 turned = 0;

	for (u32 i = 0; i < 64; i++)
		turned |= (u64)bit(a, i) << (63 - i);
	return turned;
}

static s128 clamp(s128 a, s128 least, s128 most)
{
	return a < least ? least : a > most ? most : a;
}

u64 saturate_u8(s128 a) { return (u64)clamp(a, 0, UINT8_MAX); }
u64 saturate_u16(s128 a) { return (u64)clamp(a, 0, UINT16_MAX); }
u64 saturate_u32(s128 a) { return (u64)clamp(a, 0, UINT32_MAX); }
u64 saturate_u64(s128 a) { return (u64)clamp(a, 0, UINT64_MAX); }
u64 saturate_s8(s128 a) { return (u64)clamp(a, INT8_MIN, INT8_MAX); }
u64 saturate_s16(s128 a) { return (u64)clamp(a, INT16_MIN, INT16_MAX); }
u64 saturate_s32(s128 a) { return (u64)clamp(a, INT32_MIN, INT32_MAX); }
u64 saturate_s64(s128 a) { return (u64)clamp(a, INT64_MIN, INT64_MAX); }

static s64 low24(u32 a)
{
	return (s64)(s32)(a << 8) >> 8;
}

s64 mul24_u32(u32 a, u32 b) { return (s64)(a & 0xffffff) * (s64)(b & 0xffffff); }
s64 mul24_s32(u32 a, u32 b) { return low24(a) * low24(b); }

static s64 byte(u32 a, int i, bool sign)
{
	return sign ? (s8)(a >> 8 * i) : (u8)(a >> 8 * i);
}

u32 dp4a(u32 a, u32 b, u32 c, bool asigned, bool bsigned)
{
	s64 sum = c;

	for (int i = 0; i < 4; i++)
		sum += byte(a, i, asigned) * byte(b, i, bsigned);
	return (u32)sum;
}

u32 dp2a(u32 a, u32 b, u32 c, bool asigned, bool bsigned, bool high)
{
	s64 sum = c;

	for (int i = 0; i < 2; i++)
		sum += (asigned ? (s16)(a >> 16 * i) : (u16)(a >> 16 * i)) * byte(b, high ? i + 2 : i, bsigned);
	return (u32)sum;
}

static u32 chosen(u32 a, u32 b, u32 which)
{
	return (u8)(((u64)b << 32 | a) >> 8 * (which & 7));
}

u32 prmt(u32 a, u32 b, u32 selectors)
{
	u32 made = 0;

	for (u32 i = 0; i < 4; i++) {
		u32 selector = selectors >> 4 * i & 15, value = chosen(a, b, selector);

		if (selector & 8)
			value = value & 0x80 ? 0xff : 0;
		made |= value << 8 * i;
	}
	return made;
}

u32 prmt_mode(u32 a, u32 b, u32 selector, int mode)
{
	u32 s = selector & 3, made = 0;

	for (u32 i = 0; i < 4; i++) {
		u32 which = 0;

		switch (mode) {
		case 0: which = s + i; break;                /* f4e: four bytes forward */
		case 1: which = s - i; break;                /* b4e: backward */
		case 2: which = s; break;                    /* rc8: one byte four times */
		case 3: which = i > s ? i : s; break;        /* ecl: none below s */
		case 4: which = i < s ? i : s; break;        /* ecr: none above s */
		case 5: which = (s & 1) * 2 + (i & 1); break; /* rc16: one half twice */
		}
		made |= chosen(a, b, which) << 8 * i;
	}
	return made;
}

u32 lop3(u32 a, u32 b, u32 c, u32 table)
{
	u32 made = 0;

	for (u32 i = 0; i < 32; i++)
		made |= (u32)bit(table, (u32)bit(a, i) << 2 | (u32)bit(b, i) << 1 | (u32)bit(c, i)) << i;
	return made;
}

u32 relu(u32 a)
{
	return a & 0x80000000 ? 0 : a;
}

u32 packed(s32 a, s32 b, int bits, bool sign)
{
	s32 values[2] = {b, a}; /* the second is the lower */
	u32 sum = 0;

	for (int i = 0; i < 2; i++) {
		s64 top = sign ? 1ll << (bits - 1) : 1ll << bits;
		s64 value = values[i] >= top ? top - 1 : values[i];

		if (value < (sign ? -top : 0))
			value = sign ? -top : 0;
		sum += (u32)(value & ((1ll << bits) - 1)) << (i * bits);
	}
	return sum;
}
