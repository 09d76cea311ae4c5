/* SPDX-License-Identifier: Apache-2.0 */
/* nvml.c: the library of management: initialised and shut down any number of times. */
#include "remote.h"

/* How often it is initialised; as with the real one, each needs its shutdown. */
static uint32_t users;

static nvmlReturn_t begin(unsigned int number, const uint64_t *values)
{
	switch (remote_open()) {
	case CUDA_SUCCESS:
		break;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return NVML_ERROR_MEMORY;
	default:
		return NVML_ERROR_DRIVER_NOT_LOADED;
	}
	nvmlReturn_t result = (nvmlReturn_t)remote_call(number, 0, values);

	if (result == NVML_SUCCESS)
		__atomic_fetch_add(&users, 1, __ATOMIC_RELAXED);
	return result;
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
	const uint64_t none[] = { 0 };

	return begin(CALL_nvmlInit_v2, none);
}

EXPORT nvmlReturn_t nvmlInit(void)
{
	return nvmlInit_v2();
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	const uint64_t values[] = { flags };

	return begin(CALL_nvmlInitWithFlags, values);
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
	const uint64_t none[] = { 0 };
	uint32_t now = __atomic_load_n(&users, __ATOMIC_RELAXED);

	do {
		if (!now)
			return NVML_ERROR_UNINITIALIZED;
	} while (!__atomic_compare_exchange_n(&users, &now, now - 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return (nvmlReturn_t)remote_call(CALL_nvmlShutdown, 0, none);
}
