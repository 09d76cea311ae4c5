/* SPDX-License-Identifier: Apache-2.0 */
/* procaddress.c: cuGetProcAddress, by the generated table of what names mean. */
#include "remote.h"

#include "meaning.h"

extern void *const remote_functions[DIVVY_SYMBOLS] __attribute__((visibility("hidden")));

/* Names mean what they mean to a driver of the server's version. */
static CUresult look_up(const char *name, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	if (!divvy_meaning_asked(name, function, version, flags))
		return CUDA_ERROR_INVALID_VALUE;
	*function = NULL;
	CUresult result = remote_open();

	if (result != CUDA_SUCCESS)
		return result;
	int symbol = divvy_meaning(name, version, flags, remote_facts.version, status);

	if (symbol < 0)
		return CUDA_ERROR_NOT_FOUND;
	*function = remote_functions[symbol];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
				    CUdriverProcAddressQueryResult *symbolStatus)
{
	return look_up(symbol, pfn, cudaVersion, flags, symbolStatus);
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	return look_up(symbol, pfn, cudaVersion, flags, NULL);
}

/* Private tables of a driver, which NVIDIA's runtime asks for before it works. */
EXPORT CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	static bool told;

	if (!ppExportTable || !pExportTableId)
		return CUDA_ERROR_INVALID_VALUE;
	*ppExportTable = NULL;
	if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		remote_say("this program asks the driver for private tables, as NVIDIA's runtime library (libcudart) does, "
			   "which does not work over a network: divvy doctor PROGRAM");
	return CUDA_ERROR_NOT_FOUND;
}
