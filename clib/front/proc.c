/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc.c: cuGetProcAddress. The driver is asked first, so that status, versions
 * and flags are right by construction; of its answer only the address is
 * replaced, and only where a hook stands in front of it. cuGetExportTable hands
 * out private tables of the driver and passes.
 */
#include "front.h"
#include "names.h"

#include <string.h>

#define PER_THREAD 2u /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

enum { UNBUILT, BUILDING, BUILT };

static struct front_names names;
static uint32_t state;

#define WRAPPER_DIVVY_FATE_HOOKED(name) [SYM_##name] = (void *)name,
#define WRAPPER_DIVVY_FATE_PASSED(name)
#define WRAPPER_DIVVY_FATE_ABSENT(name)
#define DIVVY_SYMBOL(name, plain, version, fate, class) WRAPPER_##fate(name)
static void *const wrappers[DIVVY_SYMBOLS] = {
#include "symbols_table.inc"
};
#undef DIVVY_SYMBOL

void *front_wrapper(unsigned symbol)
{
	return symbol < DIVVY_SYMBOLS ? wrappers[symbol] : NULL;
}

static bool is_nvml(unsigned symbol)
{
	return strncmp(divvy_symbol_name(symbol), "nvml", 4) == 0;
}

/*
 * One thread builds; others do not wait for it (it takes the loader's lock,
 * which they may hold) and go by name meanwhile. So does a child that was
 * forked in between.
 */
static const struct front_names *names_now(void)
{
	uint32_t unbuilt = UNBUILT;

	if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == BUILT)
		return &names;
	if (!__atomic_compare_exchange_n(&state, &unbuilt, BUILDING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return unbuilt == BUILT ? &names : NULL;
	for (unsigned symbol = 0; symbol < DIVVY_SYMBOLS; symbol++) {
		void *address = is_nvml(symbol) ? NULL : front_address(symbol);

		if (address != NULL)
			front_names_add(&names, address, symbol, wrappers[symbol] != NULL);
	}
	__atomic_store_n(&state, BUILT, __ATOMIC_RELEASE);
	return &names;
}

static void *replace(const char *name, void *address, int version, cuuint64_t flags)
{
	const struct front_names *now = names_now();
	uint32_t symbol = 0;
	int chosen;

	switch (now == NULL ? FRONT_FOUND_BY_NAME : front_names_find(now, address, &symbol)) {
	case FRONT_FOUND_PASSED:
		return address;
	case FRONT_FOUND_HOOKED:
		return wrappers[symbol];
	case FRONT_FOUND_BY_NAME:
		break;
	}
	chosen = front_names_choose(name, version, (flags & PER_THREAD) != 0, front_has);
	return chosen < 0 || wrappers[chosen] == NULL ? address : wrappers[chosen];
}

CUresult hook_cuGetProcAddress(enum divvy_symbol called, const char *symbol, void **function, int version, cuuint64_t flags)
{
	CUresult rc = REAL(called, cuGetProcAddress)(symbol, function, version, flags);

	if (rc == CUDA_SUCCESS && !front_thread.inside && symbol != NULL && function != NULL && *function != NULL)
		*function = replace(symbol, *function, version, flags);
	return rc;
}

CUresult hook_cuGetProcAddress_v2(enum divvy_symbol called, const char *symbol, void **function, int version,
				  cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	CUresult rc = REAL(called, cuGetProcAddress_v2)(symbol, function, version, flags, status);

	if (rc == CUDA_SUCCESS && !front_thread.inside && symbol != NULL && function != NULL && *function != NULL)
		*function = replace(symbol, *function, version, flags);
	return rc;
}
