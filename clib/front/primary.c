/* SPDX-License-Identifier: Apache-2.0 */
/*
 * primary.c: primary and green contexts.
 *
 * Rule: a primary context is charged when it becomes active, once however often
 * it is retained, and goes back when the driver says that it is inactive. A
 * green context is charged like any other, and the primary context that it
 * brings to life with it; the handle that stands for it costs nothing, and what
 * is allocated through that belongs to the primary context. A reset of the card
 * ends what was allocated in the primary context, and its pools and graphs.
 *
 * A card's lock is held across the driver and across front_charge, so that two
 * threads agree on who made the context active.
 */
#include "context.h"
#include "front_hooks.h"

static struct {
	struct front_lock lock;
	uint64_t handle; /* 0: not active as far as we know */
} primary[DIVVY_MAX_CARDS];

/* Under primary[slot].lock: the primary context is active, as handle, and bytes were charged for it. */
static int primary_began(int slot, CUcontext handle, uint64_t bytes)
{
	struct table_record seen;

	if (table_get(&front_held, SPACE_CONTEXT, (uintptr_t)handle, &seen)) {
		front_uncharge(slot, bytes); /* adopted before: it has its charge */
	} else if (context_add(handle, bytes, slot, 0, 0) != 0) {
		return -1;
	}
	primary[slot].handle = (uintptr_t)handle;
	return 0;
}

/* Under primary[slot].lock, after a call that may have ended the primary context. */
static void primary_look(int slot, CUdevice device, bool reset)
{
	struct table_record seen;
	unsigned flags = 0;
	int active = 0;

	if (!primary[slot].handle ||
	    !table_get(&front_held, SPACE_CONTEXT, primary[slot].handle, &seen))
		return;
	if (REAL(SYM_cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS)
		return;
	if (reset) {
		pool_card_reset(slot);
		graphmem_card_reset(slot);
	}
	if (!active) {
		primary[slot].handle = 0;
		context_destroyed(&seen);
	} else if (reset) {
		context_emptied(seen.owner);
		front_pools_settle();
	}
}

CUresult hook_cuDevicePrimaryCtxRetain(enum divvy_symbol called, CUcontext *pctx, CUdevice dev)
{
	static const char call[] = "cuDevicePrimaryCtxRetain";
	CUcontext context = NULL;
	uint64_t bytes = 0;
	CUresult result;
	int slot;

	if (!pctx || !front_enter())
		return REAL(called, cuDevicePrimaryCtxRetain)(pctx, dev);
	slot = front_slot(dev);
	if (slot < 0) {
		front_leave();
		return CUDA_ERROR_INVALID_DEVICE;
	}
	front_lock_take(&primary[slot].lock);
	if (!primary[slot].handle) {
		bytes = front_context_bytes(slot);
		result = memory_charge(slot, bytes, call);
		if (result != CUDA_SUCCESS)
			goto out;
	}
	result = REAL(called, cuDevicePrimaryCtxRetain)(&context, dev);
	if (result != CUDA_SUCCESS) {
		memory_refused(slot, bytes, result, call);
	} else if (!primary[slot].handle && primary_began(slot, context, bytes) != 0) {
		(void)REAL(SYM_cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease_v2)(dev);
		front_uncharge(slot, bytes);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		*pctx = context;
	}
out:
	front_lock_drop(&primary[slot].lock);
	front_leave();
	return result;
}

/* Release and Reset, both versions, have one signature. */
static CUresult primary_end(enum divvy_symbol called, CUdevice dev, bool reset)
{
	CUresult result;
	int slot;

	if (!front_enter())
		return REAL(called, cuDevicePrimaryCtxRelease_v2)(dev);
	slot = front_slot(dev);
	if (slot < 0) {
		front_leave();
		return CUDA_ERROR_INVALID_DEVICE;
	}
	front_lock_take(&primary[slot].lock);
	if (primary[slot].handle != 0)
		front_gate_forget((CUcontext)primary[slot].handle);
	result = REAL(called, cuDevicePrimaryCtxRelease_v2)(dev);
	if (result == CUDA_SUCCESS)
		primary_look(slot, dev, reset);
	front_lock_drop(&primary[slot].lock);
	front_leave();
	return result;
}

CUresult hook_cuDevicePrimaryCtxRelease(enum divvy_symbol called, CUdevice dev)
{
	return primary_end(called, dev, false);
}

CUresult hook_cuDevicePrimaryCtxRelease_v2(enum divvy_symbol called, CUdevice dev)
{
	return primary_end(called, dev, false);
}

CUresult hook_cuDevicePrimaryCtxReset(enum divvy_symbol called, CUdevice dev)
{
	return primary_end(called, dev, true);
}

CUresult hook_cuDevicePrimaryCtxReset_v2(enum divvy_symbol called, CUdevice dev)
{
	return primary_end(called, dev, true);
}

/* Under primary[slot].lock: a green context has retained the primary one; learn its handle. */
static void primary_learn(int slot, CUdevice device, uint64_t bytes)
{
	CUcontext context = NULL;

	if (REAL(SYM_cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)(&context, device) != CUDA_SUCCESS)
		return; /* the charge stays: too much, never too little */
	(void)REAL(SYM_cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease_v2)(device);
	(void)primary_began(slot, context, bytes);
}

static CUresult make_green(enum divvy_symbol called, CUgreenCtx *out, CUdevResourceDesc desc, CUdevice dev,
			   unsigned flags)
{
	static const char call[] = "cuGreenCtxCreate";
	int slot = front_slot(dev);
	CUgreenCtx green = NULL;
	uint64_t own, whole;
	CUresult result;

	if (slot < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	front_lock_take(&primary[slot].lock);
	own = front_context_bytes(slot);
	whole = primary[slot].handle ? own : memory_times(own, 2);
	result = memory_charge(slot, whole, call);
	if (result == CUDA_SUCCESS) {
		result = REAL(called, cuGreenCtxCreate)(&green, desc, dev, flags);
		if (result != CUDA_SUCCESS)
			memory_refused(slot, whole, result, call);
	}
	if (result == CUDA_SUCCESS) {
		struct table_record record = {
			.key = (uintptr_t)green, .bytes = own, .space = SPACE_GREEN, .slot = (uint8_t)slot,
		};

		if (!primary[slot].handle)
			primary_learn(slot, dev, own);
		if (memory_note(&record) == 0)
			front_context_held(slot, (int64_t)own);
		*out = green;
	}
	front_lock_drop(&primary[slot].lock);
	return result;
}

CUresult hook_cuGreenCtxCreate(enum divvy_symbol called, CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
			       unsigned int flags)
{
	CUresult result;

	if (!phCtx || !front_enter())
		return REAL(called, cuGreenCtxCreate)(phCtx, desc, dev, flags);
	result = make_green(called, phCtx, desc, dev, flags);
	front_leave();
	return result;
}

CUresult hook_cuGreenCtxDestroy(enum divvy_symbol called, CUgreenCtx hCtx)
{
	struct table_record green, derived;
	CUresult result;
	bool known;

	if (!front_enter())
		return REAL(called, cuGreenCtxDestroy)(hCtx);
	if (!table_take(&front_held, SPACE_GREEN, (uintptr_t)hCtx, &green)) {
		front_gate_forget(NULL);
		result = REAL(called, cuGreenCtxDestroy)(hCtx);
		front_leave();
		return result;
	}
	front_lock_take(&primary[green.slot].lock);
	known = green.extra && table_get(&front_held, SPACE_CONTEXT, green.extra, &derived);
	front_gate_forget(NULL);
	result = REAL(called, cuGreenCtxDestroy)(hCtx);
	if (result == CUDA_SUCCESS) {
		if (known)
			context_destroyed(&derived);
		front_context_held(green.slot, -(int64_t)green.bytes);
		front_refund(green.slot, green.bytes);
		primary_look(green.slot, front_device(green.slot), false);
	} else {
		memory_restore(&green);
	}
	front_lock_drop(&primary[green.slot].lock);
	front_leave();
	return result;
}

static bool note_derived(struct table_record *record, void *arg)
{
	record->extra = *(uint64_t *)arg;
	return true;
}

CUresult hook_cuCtxFromGreenCtx(enum divvy_symbol called, CUcontext *pContext, CUgreenCtx hCtx)
{
	struct table_record green, seen;
	CUresult result;

	if (!pContext || !front_enter())
		return REAL(called, cuCtxFromGreenCtx)(pContext, hCtx);
	result = REAL(called, cuCtxFromGreenCtx)(pContext, hCtx);
	if (result == CUDA_SUCCESS && table_get(&front_held, SPACE_GREEN, (uintptr_t)hCtx, &green) &&
	    !table_get(&front_held, SPACE_CONTEXT, (uintptr_t)*pContext, &seen)) {
		uint64_t handle = (uintptr_t)*pContext;
		uint32_t owner = 0;

		front_lock_take(&primary[green.slot].lock);
		if (table_get(&front_held, SPACE_CONTEXT, primary[green.slot].handle, &seen))
			owner = seen.owner;
		if (owner && context_add(*pContext, 0, green.slot, CONTEXT_GREEN, owner) == 0)
			table_change(&front_held, SPACE_GREEN, (uintptr_t)hCtx, note_derived, &handle);
		front_lock_drop(&primary[green.slot].lock);
	}
	front_leave();
	return result;
}
