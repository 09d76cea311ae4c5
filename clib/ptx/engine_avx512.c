/* SPDX-License-Identifier: Apache-2.0 */
/* engine_avx512.c: the engine for processors with AVX-512. */
#include "machine.h"

#include "lane.h"

#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd,prefer-vector-width=512")
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

const struct ptx_engine ptx_engine_avx512 = { "avx512", full, masked, single };

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
const struct ptx_engine ptx_engine_avx512; /* no such processor */
#endif
