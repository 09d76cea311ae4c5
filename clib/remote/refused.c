/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused.c: what is not carried answers that it is not supported, as where a system
 * lacks it, whatever its parameters are. A function of another file takes the place of
 * the one of its name here; a test sees to it that all others are refused in
 * data/remote.tsv.
 */
#include "symbols.h"

enum { CUDA_REFUSED = 801, NVML_REFUSED = 3 };

#define DIVVY_SYMBOL(name, ...) \
	__attribute__((weak, visibility("default"))) int name(void) \
	{ \
		return #name[0] == 'n' ? NVML_REFUSED : CUDA_REFUSED; \
	}
#include "symbols_table.inc"
#undef DIVVY_SYMBOL

/* The function of each symbol. */
extern void *const remote_functions[DIVVY_SYMBOLS] __attribute__((visibility("hidden")));
void *const remote_functions[DIVVY_SYMBOLS] = {
#define DIVVY_SYMBOL(name, ...) [SYM_##name] = (void *)name,
#include "symbols_table.inc"
#undef DIVVY_SYMBOL
};
