/* SPDX-License-Identifier: Apache-2.0 */
/* procaddress.c: cuGetProcAddress, by the generated table of what names mean. */
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "driver.h"
#include "meaning.h"

extern void *const standin_functions[DIVVY_SYMBOLS] __attribute__((visibility("hidden")));

static CUresult look_up(const char *name, void **function, int version, cuuint64_t flags,
			CUdriverProcAddressQueryResult *status)
{
	int generation = sd_device_generation();

	if (!divvy_meaning_asked(name, function, version, flags))
		return CUDA_ERROR_INVALID_VALUE;
	*function = NULL;
	int symbol = divvy_meaning(name, version, flags, generation, status);

	if (symbol < 0)
		return CUDA_ERROR_NOT_FOUND;
	*function = standin_functions[symbol];
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
