/* SPDX-License-Identifier: Apache-2.0 */
/* engine_avx2.c: the engine for processors with AVX2 and FMA. */
#include "machine.h"

#include "lane.h"

#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#endif
#ifdef __clang__
#define PTX_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define PTX_VECTORISE _Pragma("GCC ivdep")
#endif

#include "engine_memory.inc"

#define PTX_FORM 0
#define PTX_ENGINE full
#include "engine.inc"
#undef PTX_FORM
#undef PTX_ENGINE
#define PTX_FORM 1
#define PTX_ENGINE masked
#include "engine.inc"
#undef PTX_FORM
#undef PTX_ENGINE
#define PTX_FORM 2
#define PTX_ENGINE single
#include "engine.inc"

const struct ptx_engine ptx_engine_avx2 = { "avx2", full, masked, single };

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
const struct ptx_engine ptx_engine_avx2; /* no such processor */
#endif
