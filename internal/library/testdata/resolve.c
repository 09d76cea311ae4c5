/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for the front's dispatch: names to functions of $TEST_DRIVER. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "front_hooks.h"

/* Launches are counted, and never gated. */
static const unsigned int ungated;
const unsigned int *front_gated = &ungated;
__thread struct {
	unsigned int inside;
	unsigned short launches;
} front_thread;

void *front_resolve(unsigned int symbol)
{
	const char *name = symbol < DIVVY_SYMBOLS ? divvy_symbol_name(symbol) : front_spare_names[symbol - DIVVY_SYMBOLS];
	void *driver = dlopen(getenv("TEST_DRIVER"), RTLD_NOW | RTLD_LOCAL);
	void *function = driver ? dlsym(driver, name) : NULL;

	if (!function)
		abort();
	__atomic_store_n(&front_real[symbol], function, __ATOMIC_RELEASE);
	return function;
}
