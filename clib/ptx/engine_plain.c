/* SPDX-License-Identifier: Apache-2.0 */
/* engine_plain.c: the engine for any processor. */
#include "machine.h"

#include "lane.h"

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

const struct ptx_engine ptx_engine_plain = { "plain", full, masked, single };
