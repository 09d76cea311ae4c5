/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c: modules: code, and the global variables in them.
 *
 * Rule: nobody can say beforehand what a load takes, so it is measured: what
 * the driver says this process holds on the card (asked of the agent) before
 * and after, less what was charged meanwhile by other threads. The difference
 * is charged after the fact; without room for it the module is unloaded again
 * and the program gets CUDA_ERROR_OUT_OF_MEMORY. Where the driver does not
 * tell, nothing is charged; the agent's reconciliation shows the drift.
 *
 * Loads on a card that tells are measured one after the other, or two at once
 * would each count both: the lock is held across the driver's load and across
 * front_charge.
 *
 * A driver that loads lazily takes some memory only when a function is first
 * launched; that shows up as drift. cuLinkComplete builds in host memory.
 */
#include "memory.h"
#include "front_hooks.h"

static struct front_lock lock[DIVVY_MAX_CARDS];

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

struct measuring module_measure(int slot)
{
	struct measuring measuring = { .slot = slot };

	if (slot < 0)
		return measuring;
	front_lock_take(&lock[slot]);
	measuring.measured = unaccounted(slot, &measuring.before);
	if (!measuring.measured)
		front_lock_drop(&lock[slot]);
	return measuring;
}

int module_measured(const struct measuring *measuring, bool loaded, const char *call, uint64_t *bytes)
{
	int64_t after;
	int rc = 0;

	*bytes = 0;
	if (!measuring->measured)
		return 0;
	if (loaded && unaccounted(measuring->slot, &after) && after > measuring->before) {
		*bytes = memory_round((uint64_t)(after - measuring->before), DIVVY_ALLOCATION_UNIT);
		rc = front_charge(measuring->slot, *bytes, call);
	}
	front_lock_drop(&lock[measuring->slot]);
	return rc;
}

struct load {
	const char *call;
	struct front_place place;
	struct measuring measuring;
};

static struct load begin(const char *call)
{
	struct load load = { .call = call, .place = context_place() };

	load.measuring = module_measure(load.place.slot);
	return load;
}

static CUresult end(const struct load *load, CUresult result, CUmodule loaded, CUmodule *out)
{
	struct table_record record = {
		.key = (uintptr_t)loaded, .owner = load->place.owner, .space = SPACE_MODULE,
		.slot = (uint8_t)load->place.slot,
	};
	int rc = module_measured(&load->measuring, result == CUDA_SUCCESS, load->call, &record.bytes);

	if (result != CUDA_SUCCESS)
		return result;
	if (rc == 0 && record.bytes) {
		rc = memory_note(&record);
		if (rc != 0)
			front_uncharge(record.slot, record.bytes);
	}
	if (rc != 0) {
		(void)REAL(SYM_cuModuleUnload, cuModuleUnload)(loaded);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = loaded;
	return CUDA_SUCCESS;
}

CUresult hook_cuModuleLoad(enum divvy_symbol called, CUmodule *module, const char *fname)
{
	CUmodule loaded = NULL;
	struct load load;
	CUresult result;

	if (!module || !fname || !front_enter())
		return REAL(called, cuModuleLoad)(module, fname);
	load = begin("cuModuleLoad");
	result = REAL(called, cuModuleLoad)(&loaded, fname);
	result = end(&load, result, loaded, module);
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
	load = begin("cuModuleLoadData");
	result = REAL(called, cuModuleLoadData)(&loaded, image);
	result = end(&load, result, loaded, module);
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
	load = begin("cuModuleLoadDataEx");
	result = REAL(called, cuModuleLoadDataEx)(&loaded, image, numOptions, options, optionValues);
	result = end(&load, result, loaded, module);
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
	load = begin("cuModuleLoadFatBinary");
	result = REAL(called, cuModuleLoadFatBinary)(&loaded, fatCubin);
	result = end(&load, result, loaded, module);
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
