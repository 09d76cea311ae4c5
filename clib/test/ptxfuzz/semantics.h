/* SPDX-License-Identifier: Apache-2.0 */
/*
 * semantics.h: what the arithmetic instructions of PTX do, in C for the CPU. All
 * values are raw bits. It is written from the language's description, with no
 * code of the interpreter that it checks.
 *
 * A rounding is 0 nearest even, 1 to zero, 2 down, 3 up. NaNs come out as any
 * NaN: their bits are not compared.
 */
#ifndef DIVVY_PTXFUZZ_SEMANTICS_H
#define DIVVY_PTXFUZZ_SEMANTICS_H

#include <stdbool.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef unsigned __int128 u128;
typedef __int128 s128;
typedef __float128 wide; /* holds all integers of 64 bits and all floats */

/* in the order of the generator's list */
enum { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_EQU, CMP_NEU, CMP_LTU, CMP_LEU, CMP_GTU, CMP_GEU, CMP_NUM, CMP_NAN };

#define LOW(pair) ((u16)(pair))
#define HIGH(pair) ((u16)((pair) >> 16))
#define PAIR2(low, high) ((u32)(high) << 16 | (u32)(low))

/* integer.c */
u64 shift_right_u16(u16 a, u32 by);
u64 shift_right_u32(u32 a, u32 by);
u64 shift_right_u64(u64 a, u32 by);
u64 shift_right_s16(u16 a, u32 by);
u64 shift_right_s32(u32 a, u32 by);
u64 shift_right_s64(u64 a, u32 by);
u32 bfe_u32(u32 a, u32 position, u32 length);
u32 bfe_s32(u32 a, u32 position, u32 length);
u64 bfe_u64(u64 a, u32 position, u32 length);
u64 bfe_s64(u64 a, u32 position, u32 length);
u64 bfi(u64 a, u64 b, u32 position, u32 length, int bits);
u32 bfind_u32(u32 a, bool shift);
u32 bfind_s32(u32 a, bool shift);
u32 bfind_u64(u64 a, bool shift);
u32 bfind_s64(u64 a, bool shift);
u64 reverse(u64 a);
u32 relu(u32 a);
u32 packed(s32 a, s32 b, int bits, bool sign); /* two, held to so many bits each */
u64 saturate_u8(s128 a);
u64 saturate_u16(s128 a);
u64 saturate_u32(s128 a);
u64 saturate_u64(s128 a);
u64 saturate_s8(s128 a);
u64 saturate_s16(s128 a);
u64 saturate_s32(s128 a);
u64 saturate_s64(s128 a);
s64 mul24_u32(u32 a, u32 b);
s64 mul24_s32(u32 a, u32 b);
u32 dp4a(u32 a, u32 b, u32 c, bool asigned, bool bsigned);
u32 dp2a(u32 a, u32 b, u32 c, bool asigned, bool bsigned, bool high);
u32 prmt(u32 a, u32 b, u32 selectors);
u32 prmt_mode(u32 a, u32 b, u32 selector, int mode);
u32 lop3(u32 a, u32 b, u32 c, u32 table);

/* float.c */
u32 f32_flush(u32 a);
u32 f32_canonical(u32 a);
u64 f64_canonical(u64 a);
u32 f32_add(u32 a, u32 b, int round, bool ftz, bool sat);
u32 f32_sub(u32 a, u32 b, int round, bool ftz, bool sat);
u32 f32_mul(u32 a, u32 b, int round, bool ftz, bool sat);
u32 f32_fma(u32 a, u32 b, u32 c, int round, bool ftz, bool sat);
u32 f32_div(u32 a, u32 b, int round, bool ftz, bool sat);
u32 f32_sqrt(u32 a, int round, bool ftz, bool sat);
u32 f32_rcp(u32 a, int round, bool ftz, bool sat);
u32 f32_abs(u32 a, bool ftz);
u32 f32_neg(u32 a, bool ftz);
u32 f32_copysign(u32 a, u32 b);
u32 f32_extreme(u32 a, u32 b, bool most, bool ftz, bool nan, bool xorsign);
bool f32_compare(int how, u32 a, u32 b, bool ftz);
bool f32_test(int what, u32 a);
u64 f64_add(u64 a, u64 b, int round, bool ftz, bool sat);
u64 f64_sub(u64 a, u64 b, int round, bool ftz, bool sat);
u64 f64_mul(u64 a, u64 b, int round, bool ftz, bool sat);
u64 f64_fma(u64 a, u64 b, u64 c, int round, bool ftz, bool sat);
u64 f64_div(u64 a, u64 b, int round, bool ftz, bool sat);
u64 f64_sqrt(u64 a, int round, bool ftz, bool sat);
u64 f64_rcp(u64 a, int round, bool ftz, bool sat);
u64 f64_abs(u64 a, bool ftz);
u64 f64_neg(u64 a, bool ftz);
u64 f64_copysign(u64 a, u64 b);
u64 f64_extreme(u64 a, u64 b, bool most, bool ftz, bool nan, bool xorsign);
bool f64_compare(int how, u64 a, u64 b, bool ftz);
bool f64_test(int what, u64 a);

/* convert.c */
wide f16_value(u16 a);
wide bf16_value(u16 a);
wide f32_value(u32 a);
wide f64_value(u64 a);
u16 f16_round(wide a, int round, bool ftz, bool sat);
u16 bf16_round(wide a, int round, bool relu);
u32 f32_round(wide a, int round, bool ftz, bool sat);
u64 f64_round(wide a, int round, bool ftz, bool sat);
/* operation: 0 add, 1 sub, 2 mul */
u16 f16_arithmetic(int operation, u16 a, u16 b, bool ftz, bool sat);
u16 f16_fma(u16 a, u16 b, u16 c, bool ftz, bool sat, bool relu);
u16 bf16_fma(u16 a, u16 b, u16 c, bool ftz, bool sat, bool relu);
u16 f16_extreme(u16 a, u16 b, bool most, bool nan);
u16 bf16_extreme(u16 a, u16 b, bool most, bool nan);
bool f16_compare(int how, u16 a, u16 b);
s64 f16_to_int(u16 a, int round, int bits, bool sign, bool ftz);
s64 f32_to_int(u32 a, int round, int bits, bool sign, bool ftz);
s64 f64_to_int(u64 a, int round, int bits, bool sign, bool ftz);
u16 f16_whole(u16 a, int round, bool ftz, bool sat);
u32 f32_whole(u32 a, int round, bool ftz, bool sat);
u64 f64_whole(u64 a, int round, bool ftz, bool sat);
/* what a comparison says of two values in order: -1, 0, 1, or 2 with a NaN */
bool comparison(int how, int order);

#endif
