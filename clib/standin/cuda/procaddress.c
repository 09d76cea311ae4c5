/* SPDX-License-Identifier: Apache-2.0 */
/* procaddress.c: cuGetProcAddress, by the generated table of what names mean. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"
#include "symbols.h"

extern void *const standin_functions[DIVVY_SYMBOLS] __attribute__((visibility("hidden")));

struct meaning {
	const char *name;
	int symbol;
	int version;
	int twin; /* per-thread stream, or -1 */
};

static const struct meaning meanings[] = {
#include "procaddress.inc"
};

static CUresult look_up(const char *name, void **function, int version, cuuint64_t flags,
			CUdriverProcAddressQueryResult *status)
{
	const struct meaning *best = NULL;
	bool known = false;
	int generation = sd_device_generation();

	if (!name || !function || version < 0 ||
	    flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) ||
	    flags == (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
		return CUDA_ERROR_INVALID_VALUE;
	*function = NULL;
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
		const struct meaning *one = &meanings[i];

		/* what a newer driver brought is unknown to this one */
		if (one->version > generation || strcmp(one->name, name) != 0)
			continue;
		known = true;
		if (one->version <= version && (!best || one->version >= best->version))
			best = one;
	}
	if (status)
		*status = best	  ? CU_GET_PROC_ADDRESS_SUCCESS
			  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	if (!best)
		return CUDA_ERROR_NOT_FOUND;
	bool perthread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && best->twin >= 0;

	*function = standin_functions[perthread ? best->twin : best->symbol];
	return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *symbolStatus)
{
	return look_up(symbol, pfn, cudaVersion, flags, symbolStatus);
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	return look_up(symbol, pfn, cudaVersion, flags, NULL);
}

/* The hardware driver hands out undocumented tables here; there are none. NVIDIA's runtime
 * library asks for them before it works, and says 500 (cudaErrorSymbolNotFound) then. */
CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	static bool told;

	if (!ppExportTable || !pExportTableId)
		return CUDA_ERROR_INVALID_VALUE;
	*ppExportTable = NULL;
	if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		dprintf(STDERR_FILENO, "divvy: simulated GPU: this program asks the driver for private tables, as NVIDIA's runtime "
			"library (libcudart) does, which does not start on a simulated GPU: divvy doctor PROGRAM\n");
	return CUDA_ERROR_NOT_FOUND;
}
