/* SPDX-License-Identifier: Apache-2.0 */
/* procaddress.c: cuGetProcAddress, by the generated table of what names mean. */
#include "remote.h"

#include <dlfcn.h>

#include "symbols.h"

struct meaning {
	const char *name;
	int symbol;
	int version;
	int twin; /* per-thread stream, or -1 */
};

static const struct meaning meanings[] = {
#include "procaddress.inc"
};

extern void *const remote_functions[DIVVY_SYMBOLS] __attribute__((visibility("hidden")));

/* Names mean what they mean to a driver of the server's version. */
static CUresult look_up(const char *name, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	const struct meaning *best = NULL;
	bool known = false;

	if (!name || !function || version < 0 ||
	    flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) ||
	    flags == (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
		return CUDA_ERROR_INVALID_VALUE;
	*function = NULL;
	CUresult result = remote_open();

	if (result != CUDA_SUCCESS)
		return result;
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
		const struct meaning *one = &meanings[i];

		if (one->version > remote_facts.version || strcmp(one->name, name) != 0)
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

	*function = remote_functions[perthread ? best->twin : best->symbol];
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
