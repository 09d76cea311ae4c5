/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library.c: libraries (CUDA 12): code that belongs to no context.
 *
 * Rule: measured as modules are (module.c), but a library takes its memory in a
 * context when something of it is first asked for there: a module, a variable
 * or a kernel's function. The first such call in each context is measured, and
 * so is the load. Without room for it the call fails with
 * CUDA_ERROR_OUT_OF_MEMORY, and so does every later one until there is room:
 * the driver cannot be made to take back a part, so what it took stays on the
 * card, reported as a denial and shown as drift, until the library is unloaded.
 * It goes back when the library is unloaded or the context destroyed.
 */
#include "memory.h"
#include "front_hooks.h"

#include <errno.h>

static _Atomic uint64_t last_number;
static _Atomic uint32_t known; /* records of libraries in contexts and of kernels, about */

/*
 * A use of a library in the current context that may make the driver load it.
 * Several threads may be the first: each has what it measured, all together pay.
 */
struct use {
	const char *call;
	struct table_record record;
	bool first;
	struct measuring measuring;
};

struct leaving {
	uint64_t number;
	uint32_t records;
	uint64_t bytes[DIVVY_MAX_CARDS];
};

static bool leaves(const struct table_record *record, void *arg)
{
	struct leaving *leaving = arg;

	if ((record->space != SPACE_LIBRARY && record->space != SPACE_KERNEL) || record->extra != leaving->number)
		return false;
	if (record->space == SPACE_LIBRARY && !(record->flags & LIBRARY_UNPAID))
		leaving->bytes[record->slot] += record->bytes;
	leaving->records++;
	return true;
}

/* The library with this number is no more. */
static void gone(uint64_t number)
{
	struct leaving leaving = { .number = number };

	if (!atomic_load(&known))
		return;
	table_sweep(&front_held, leaves, &leaving);
	atomic_fetch_sub(&known, leaving.records);
	for (int slot = 0; slot < (int)DIVVY_MAX_CARDS; slot++) {
		if (leaving.bytes[slot])
			front_refund(slot, leaving.bytes[slot]);
	}
}

/*
 * A handle may come again before the call that unloaded the library has returned; a
 * number does not. 0: there is no place for it, and it is not measured.
 */
static uint64_t number_new(CUlibrary library)
{
	struct table_record old;
	struct table_record record = {
		.key = (uintptr_t)library, .extra = atomic_fetch_add(&last_number, 1) + 1, .space = SPACE_LOADED,
	};
	int rc = table_put(&front_held, &record, &old);

	if (rc == 1)
		gone(old.extra); /* unloaded in a way that we did not see */
	return rc < 0 ? 0 : record.extra;
}

static uint64_t number_of(CUlibrary library)
{
	struct table_record record;

	if (!library)
		return 0;
	return table_get(&front_held, SPACE_LOADED, (uintptr_t)library, &record) ? record.extra : number_new(library);
}

static struct table_record record_of(uint64_t number, struct front_place place)
{
	return (struct table_record){
		.key = memory_mix(memory_mix(1, number), place.owner), .extra = number, .owner = place.owner,
		.space = SPACE_LIBRARY, .slot = (uint8_t)place.slot,
	};
}

static bool pay(struct table_record *record, void *arg)
{
	struct table_record *owed = arg;

	if (!(record->flags & LIBRARY_UNPAID) || record->bytes != owed->bytes)
		return true;
	record->flags = 0;
	owed->flags = 0;
	return true;
}

/* CUDA_SUCCESS: ask the driver, then use_end. */
static CUresult use_begin(struct use *use, const char *call, CUlibrary library)
{
	struct front_place place = context_place();
	uint64_t number = number_of(library);
	struct table_record record;

	*use = (struct use){ .call = call, .record = record_of(number, place) };
	if (place.slot < 0 || !place.owner || !number)
		return CUDA_SUCCESS;
	while (table_get(&front_held, SPACE_LIBRARY, use->record.key, &record)) {
		if (!(record.flags & LIBRARY_UNPAID))
			return CUDA_SUCCESS;
		if (front_charge(record.slot, record.bytes, call) != 0)
			return CUDA_ERROR_OUT_OF_MEMORY;
		table_change(&front_held, SPACE_LIBRARY, record.key, pay, &record);
		if (record.flags & LIBRARY_UNPAID)
			front_uncharge(record.slot, record.bytes); /* another thread was before us */
	}
	use->first = true;
	use->measuring = module_measure(place.slot);
	return CUDA_SUCCESS;
}

struct merging {
	struct table_record old;
	uint64_t back;
	bool unpaid;
};

static bool merge(struct table_record *record, void *arg)
{
	struct merging *merging = arg;
	const struct table_record *old = &merging->old;

	if (record->flags == old->flags) {
		record->bytes += old->bytes;
	} else if (old->flags & LIBRARY_UNPAID) {
		merging->back = record->bytes; /* all of it is owed */
		record->bytes += old->bytes;
		record->flags = old->flags;
	} else {
		record->bytes = old->bytes; /* paid; what came now shows as drift */
		record->flags = 0;
	}
	merging->unpaid = (record->flags & LIBRARY_UNPAID) != 0;
	return true;
}

static CUresult use_end(struct use *use, CUresult result)
{
	struct merging merging = { .back = 0 };
	int rc, put;

	if (!use->first)
		return result;
	/* A call that fails for want of a name may have loaded all the same. */
	rc = module_measured(&use->measuring, true, use->call, &use->record.bytes);
	if (result != CUDA_SUCCESS && !use->record.bytes)
		return result;
	if (rc != 0)
		use->record.flags = LIBRARY_UNPAID;
	merging.unpaid = rc != 0;
	put = table_put(&front_held, &use->record, &merging.old);
	if (put == 0)
		atomic_fetch_add(&known, 1);
	else if (put == 1 && !table_change(&front_held, SPACE_LIBRARY, use->record.key, merge, &merging) &&
		 !(merging.old.flags & LIBRARY_UNPAID))
		merging.back = merging.old.bytes; /* unloaded meanwhile */
	if (merging.back)
		front_refund(use->record.slot, merging.back);
	return merging.unpaid && result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* After a load: a driver may have taken memory at once. */
static CUresult loaded(const struct measuring *measuring, struct front_place place, CUresult result, CUlibrary library,
		       CUlibrary *out, const char *call)
{
	struct table_record record;
	uint64_t bytes;
	int rc = module_measured(measuring, result == CUDA_SUCCESS, call, &bytes);

	if (result != CUDA_SUCCESS)
		return result;
	if (rc == 0) {
		record = record_of(number_new(library), place);
		record.bytes = bytes;
		rc = !record.extra ? -ENOMEM : bytes ? memory_note(&record) : 0;
		if (rc != 0)
			front_uncharge(place.slot, bytes);
		else if (bytes)
			atomic_fetch_add(&known, 1);
	}
	if (rc != 0) {
		(void)table_take(&front_held, SPACE_LOADED, (uintptr_t)library, &record);
		(void)REAL(SYM_cuLibraryUnload, cuLibraryUnload)(library);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = library;
	return CUDA_SUCCESS;
}

CUresult hook_cuLibraryLoadData(enum divvy_symbol called, CUlibrary *library, const void *code,
				CUjit_option *jitOptions, void **jitOptionsValues, unsigned int numJitOptions,
				CUlibraryOption *libraryOptions, void **libraryOptionValues,
				unsigned int numLibraryOptions)
{
	struct measuring measuring;
	struct front_place place;
	CUlibrary got = NULL;
	CUresult result;

	if (!library || !code || !front_enter())
		return REAL(called, cuLibraryLoadData)(library, code, jitOptions, jitOptionsValues, numJitOptions,
						       libraryOptions, libraryOptionValues, numLibraryOptions);
	place = context_place();
	measuring = module_measure(place.owner ? place.slot : -1);
	result = REAL(called, cuLibraryLoadData)(&got, code, jitOptions, jitOptionsValues, numJitOptions,
						 libraryOptions, libraryOptionValues, numLibraryOptions);
	result = loaded(&measuring, place, result, got, library, "cuLibraryLoadData");
	front_leave();
	return result;
}

CUresult hook_cuLibraryLoadFromFile(enum divvy_symbol called, CUlibrary *library, const char *fileName,
				    CUjit_option *jitOptions, void **jitOptionsValues, unsigned int numJitOptions,
				    CUlibraryOption *libraryOptions, void **libraryOptionValues,
				    unsigned int numLibraryOptions)
{
	struct measuring measuring;
	struct front_place place;
	CUlibrary got = NULL;
	CUresult result;

	if (!library || !fileName || !front_enter())
		return REAL(called, cuLibraryLoadFromFile)(library, fileName, jitOptions, jitOptionsValues,
							   numJitOptions, libraryOptions, libraryOptionValues,
							   numLibraryOptions);
	place = context_place();
	measuring = module_measure(place.owner ? place.slot : -1);
	result = REAL(called, cuLibraryLoadFromFile)(&got, fileName, jitOptions, jitOptionsValues, numJitOptions,
						     libraryOptions, libraryOptionValues, numLibraryOptions);
	result = loaded(&measuring, place, result, got, library, "cuLibraryLoadFromFile");
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
	ours = table_take(&front_held, SPACE_LOADED, (uintptr_t)library, &record);
	result = REAL(called, cuLibraryUnload)(library);
	if (ours && result != CUDA_SUCCESS)
		memory_restore(&record);
	else if (ours)
		gone(record.extra);
	front_leave();
	return result;
}

CUresult hook_cuLibraryGetModule(enum divvy_symbol called, CUmodule *pMod, CUlibrary library)
{
	CUmodule module = NULL;
	struct use use;
	CUresult result;

	if (!pMod || !front_enter())
		return REAL(called, cuLibraryGetModule)(pMod, library);
	result = use_begin(&use, "cuLibraryGetModule", library);
	if (result == CUDA_SUCCESS)
		result = use_end(&use, REAL(called, cuLibraryGetModule)(&module, library));
	if (result == CUDA_SUCCESS)
		*pMod = module;
	front_leave();
	return result;
}

/* cuLibraryGetGlobal and cuLibraryGetManaged have one signature, and either result may be left out. */
static CUresult variable(enum divvy_symbol called, const char *call, CUdeviceptr *dptr, size_t *bytes,
			 CUlibrary library, const char *name)
{
	CUdeviceptr address = 0;
	size_t size = 0;
	struct use use;
	CUresult result;

	if ((!dptr && !bytes) || !front_enter())
		return REAL(called, cuLibraryGetGlobal)(dptr, bytes, library, name);
	result = use_begin(&use, call, library);
	if (result == CUDA_SUCCESS)
		result = use_end(&use, REAL(called, cuLibraryGetGlobal)(dptr ? &address : NULL, bytes ? &size : NULL,
									library, name));
	if (result == CUDA_SUCCESS && dptr)
		*dptr = address;
	if (result == CUDA_SUCCESS && bytes)
		*bytes = size;
	front_leave();
	return result;
}

CUresult hook_cuLibraryGetGlobal(enum divvy_symbol called, CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
				 const char *name)
{
	return variable(called, "cuLibraryGetGlobal", dptr, bytes, library, name);
}

CUresult hook_cuLibraryGetManaged(enum divvy_symbol called, CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
				  const char *name)
{
	return variable(called, "cuLibraryGetManaged", dptr, bytes, library, name);
}

/* A kernel belongs to no context and takes nothing; remember whose it is. */
CUresult hook_cuLibraryGetKernel(enum divvy_symbol called, CUkernel *pKernel, CUlibrary library, const char *name)
{
	struct table_record record = {
		.bytes = (uintptr_t)library, .extra = number_of(library), .space = SPACE_KERNEL,
	};
	CUkernel kernel = NULL;
	CUresult result;

	if (!pKernel || !front_enter())
		return REAL(called, cuLibraryGetKernel)(pKernel, library, name);
	result = REAL(called, cuLibraryGetKernel)(&kernel, library, name);
	if (result == CUDA_SUCCESS) {
		record.key = (uintptr_t)kernel;
		if (table_put(&front_held, &record, NULL) == 0)
			atomic_fetch_add(&known, 1);
		*pKernel = kernel;
	}
	front_leave();
	return result;
}

/* NULL: unknown, then the use is not measured. */
static CUlibrary library_of(CUkernel kernel)
{
	struct table_record record;
	CUlibrary library = NULL;

	if (table_get(&front_held, SPACE_KERNEL, (uintptr_t)kernel, &record))
		return (CUlibrary)(uintptr_t)record.bytes;
	if (front_has(SYM_cuKernelGetLibrary))
		(void)REAL(SYM_cuKernelGetLibrary, cuKernelGetLibrary)(&library, kernel);
	return library;
}

CUresult hook_cuKernelGetFunction(enum divvy_symbol called, CUfunction *pFunc, CUkernel kernel)
{
	CUfunction function = NULL;
	struct use use;
	CUresult result;

	if (!pFunc || !kernel || !front_enter())
		return REAL(called, cuKernelGetFunction)(pFunc, kernel);
	result = use_begin(&use, "cuKernelGetFunction", library_of(kernel));
	if (result == CUDA_SUCCESS)
		result = use_end(&use, REAL(called, cuKernelGetFunction)(&function, kernel));
	if (result == CUDA_SUCCESS)
		*pFunc = function;
	front_leave();
	return result;
}
