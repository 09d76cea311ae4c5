/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.c: every function of the null driver, by the generated list. Each says
 * success at once and gives what a caller reads next; where that is not enough,
 * a function of the same name in driver.c or nvml.c takes its place.
 */
#include "null.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

static inline void fill(void *target, unsigned long long value, size_t size)
{
	if (target)
		memcpy(target, &value, size);
}

#define HANDLE(target) fill(target, null_handle(), sizeof(*target));
#define ADDRESS(target) fill(target, null_address(1), sizeof(*target));
#define ZERO(target) \
	if (target) \
		memset(target, 0, sizeof(*target));
#define ZERO_BEHIND_VERSION(target) \
	if (target) \
		memset((char *)target + sizeof(target->version), 0, sizeof(*target) - sizeof(target->version));

#define NULL_CALL(result, name, parameters, fills) \
	__attribute__((weak, visibility("default"))) result name parameters \
	{ \
		fills return 0; \
	}
#include "null_calls.inc"
#undef NULL_CALL

void *const null_functions[DIVVY_SYMBOLS] = {
#define NULL_CALL(result, name, parameters, fills) [SYM_##name] = (void *)name,
#include "null_calls.inc"
};
