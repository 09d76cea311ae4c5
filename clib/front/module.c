/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c: modules and libraries: code, and the global variables in them.
 *
 * Rule: nobody can say beforehand what a load takes, so it is measured: what
 * the driver says this process holds on the card (asked of the agent) before
 * and after, less what was charged meanwhile by other threads. The difference
 * is charged after the fact; without room for it the module is unloaded again
 * and the program gets CUDA_ERROR_OUT_OF_MEMORY. Where the driver does not
 * tell, nothing is charged; the agent's reconciliation shows the drift.
 *
 * A driver that loads lazily takes the memory when a function is first used;
 * that, too, shows up as drift only. cuLinkComplete builds in host memory.
 */
#include "memory.h"
#include "front_hooks.h"

/* The driver's figure less what is charged: what is on the card and not on the ledger. */
static bool unaccounted(int slot, int64_t *bytes)
{
	struct front_pages *pages = __atomic_load_n(&front_pages_now, __ATOMIC_ACQUIRE);
	uint64_t held;

	if (slot < 0 || !pages || front_measure(slot, &held) != 0)
		return false;
	*bytes = (int64_t)held - (int64_t)front_in_use(&pages->client.card[slot]);
	return true;
}

struct load {
	const char *call;
	uint16_t space;
	struct front_place place;
	bool measured;
	int64_t before;
};

static struct load begin(const char *call, uint16_t space)
{
	struct load load = { .call = call, .space = space, .place = context_place() };

	load.measured = unaccounted(load.place.slot, &load.before);
	return load;
}

/* CUDA_ERROR_OUT_OF_MEMORY: unload it again. */
static CUresult end(const struct load *load, uint64_t handle)
{
	struct table_record record = {
		.key = handle, .owner = load->place.owner, .space = load->space, .slot = (uint8_t)load->place.slot,
	};
	int64_t after;

	if (!load->measured || !unaccounted(load->place.slot, &after) || after <= load->before)
		return CUDA_SUCCESS;
	record.bytes = (uint64_t)(after - load->before);
	if (front_charge(load->place.slot, record.bytes, DIVVY_KIND_MODULE, load->call) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (memory_note(&record) == 0)
		return CUDA_SUCCESS;
	front_uncharge(load->place.slot, record.bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult end_module(const struct load *load, CUresult result, CUmodule loaded, CUmodule *out)
{
	if (result != CUDA_SUCCESS)
		return result;
	result = end(load, (uintptr_t)loaded);
	if (result == CUDA_SUCCESS)
		*out = loaded;
	else
		(void)REAL(SYM_cuModuleUnload, cuModuleUnload)(loaded);
	return result;
}

static CUresult end_library(const struct load *load, CUresult result, CUlibrary loaded, CUlibrary *out)
{
	if (result != CUDA_SUCCESS)
		return result;
	result = end(load, (uintptr_t)loaded);
	if (result == CUDA_SUCCESS)
		*out = loaded;
	else
		(void)REAL(SYM_cuLibraryUnload, cuLibraryUnload)(loaded);
	return result;
}

CUresult hook_cuModuleLoad(enum divvy_symbol called, CUmodule *module, const char *fname)
{
	CUmodule loaded = NULL;
	struct load load;
	CUresult result;

	if (!module || !fname || !front_enter())
		return REAL(called, cuModuleLoad)(module, fname);
	load = begin("cuModuleLoad", SPACE_MODULE);
	result = REAL(called, cuModuleLoad)(&loaded, fname);
	result = end_module(&load, result, loaded, module);
	front_leave();
	return result;
}

CUresult hook_cuModuleLoadData(enum divvy_symbol called, CUmodule *module, const void *image)
{
	CUmodule loaded = NULL;
	struct load load;
	CUresult result;

	if (!module || !image || !front_enter())
		return REAL(called, cuModuleLoadData)(module, image);
	load = begin("cuModuleLoadData", SPACE_MODULE);
	result = REAL(called, cuModuleLoadData)(&loaded, image);
	result = end_module(&load, result, loaded, module);
	front_leave();
	return result;
}

CUresult hook_cuModuleLoadDataEx(enum divvy_symbol called, CUmodule *module, const void *image,
				 unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	CUmodule loaded = NULL;
	struct load load;
	CUresult result;

	if (!module || !image || !front_enter())
		return REAL(called, cuModuleLoadDataEx)(module, image, numOptions, options, optionValues);
	load = begin("cuModuleLoadDataEx", SPACE_MODULE);
	result = REAL(called, cuModuleLoadDataEx)(&loaded, image, numOptions, options, optionValues);
	result = end_module(&load, result, loaded, module);
	front_leave();
	return result;
}

CUresult hook_cuModuleLoadFatBinary(enum divvy_symbol called, CUmodule *module, const void *fatCubin)
{
	CUmodule loaded = NULL;
	struct load load;
	CUresult result;

	if (!module || !fatCubin || !front_enter())
		return REAL(called, cuModuleLoadFatBinary)(module, fatCubin);
	load = begin("cuModuleLoadFatBinary", SPACE_MODULE);
	result = REAL(called, cuModuleLoadFatBinary)(&loaded, fatCubin);
	result = end_module(&load, result, loaded, module);
	front_leave();
	return result;
}

CUresult hook_cuModuleUnload(enum divvy_symbol called, CUmodule hmod)
{
	struct table_record record;
	CUresult result;
	bool ours;

	if (!front_enter())
		return REAL(called, cuModuleUnload)(hmod);
	ours = table_take(&front_held, SPACE_MODULE, (uintptr_t)hmod, &record);
	result = REAL(called, cuModuleUnload)(hmod);
	if (ours && result == CUDA_SUCCESS)
		front_refund(record.slot, record.bytes);
	else if (ours)
		memory_restore(&record);
	front_leave();
	return result;
}

CUresult hook_cuLibraryLoadData(enum divvy_symbol called, CUlibrary *library, const void *code,
				CUjit_option *jitOptions, void **jitOptionsValues, unsigned int numJitOptions,
				CUlibraryOption *libraryOptions, void **libraryOptionValues,
				unsigned int numLibraryOptions)
{
	CUlibrary loaded = NULL;
	struct load load;
	CUresult result;

	if (!library || !code || !front_enter())
		return REAL(called, cuLibraryLoadData)(library, code, jitOptions, jitOptionsValues, numJitOptions,
						       libraryOptions, libraryOptionValues, numLibraryOptions);
	load = begin("cuLibraryLoadData", SPACE_LIBRARY);
	result = REAL(called, cuLibraryLoadData)(&loaded, code, jitOptions, jitOptionsValues, numJitOptions,
						 libraryOptions, libraryOptionValues, numLibraryOptions);
	result = end_library(&load, result, loaded, library);
	front_leave();
	return result;
}

CUresult hook_cuLibraryLoadFromFile(enum divvy_symbol called, CUlibrary *library, const char *fileName,
				    CUjit_option *jitOptions, void **jitOptionsValues, unsigned int numJitOptions,
				    CUlibraryOption *libraryOptions, void **libraryOptionValues,
				    unsigned int numLibraryOptions)
{
	CUlibrary loaded = NULL;
	struct load load;
	CUresult result;

	if (!library || !fileName || !front_enter())
		return REAL(called, cuLibraryLoadFromFile)(library, fileName, jitOptions, jitOptionsValues,
							   numJitOptions, libraryOptions, libraryOptionValues,
							   numLibraryOptions);
	load = begin("cuLibraryLoadFromFile", SPACE_LIBRARY);
	result = REAL(called, cuLibraryLoadFromFile)(&loaded, fileName, jitOptions, jitOptionsValues, numJitOptions,
						     libraryOptions, libraryOptionValues, numLibraryOptions);
	result = end_library(&load, result, loaded, library);
	front_leave();
	return result;
}

CUresult hook_cuLibraryUnload(enum divvy_symbol called, CUlibrary library)
{
	struct table_record record;
	CUresult result;
	bool ours;

	if (!front_enter())
		return REAL(called, cuLibraryUnload)(library);
	ours = table_take(&front_held, SPACE_LIBRARY, (uintptr_t)library, &record);
	result = REAL(called, cuLibraryUnload)(library);
	if (ours && result == CUDA_SUCCESS)
		front_refund(record.slot, record.bytes);
	else if (ours)
		memory_restore(&record);
	front_leave();
	return result;
}
