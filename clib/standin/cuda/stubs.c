/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stubs.c: every function of the list says that it is not supported; one of the
 * same name in another file takes its place.
 */
#include "symbols.h"

enum { CUDA_NOT_SUPPORTED = 801, NVML_NOT_SUPPORTED = 3 };

#define DIVVY_SYMBOL(name, ...) \
	__attribute__((weak, visibility("default"))) int name(void) \
	{ \
		return #name[0] == 'n' ? NVML_NOT_SUPPORTED : CUDA_NOT_SUPPORTED; \
	}
#include "symbols_table.inc"
#undef DIVVY_SYMBOL

/* The function of each symbol. */
extern void *const standin_functions[DIVVY_SYMBOLS] __attribute__((visibility("hidden")));
void *const standin_functions[DIVVY_SYMBOLS] = {
#define DIVVY_SYMBOL(name, ...) [SYM_##name] = (void *)name,
#include "symbols_table.inc"
};
