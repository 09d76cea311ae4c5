/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c: contexts.
 *
 * Rule: each context is charged what limits.card[].contextbytes says (measured
 * by the agent; the simulated cards' own figure on those), and is shown apart
 * in the client page. A context on a card that is not the share's is
 * CUDA_ERROR_INVALID_DEVICE. Primary and green contexts are in primary.c.
 *
 * Whatever was made in a context dies with it: records carry the serial of
 * their context (a handle may come again, a serial does not), and one sweep of
 * the table finds them. Memory handles, pools and graphs belong to no context.
 *
 * Contexts that come into being without us (for graphics, by private tables)
 * are taken onto the ledger when memory is first asked for in them; if there is
 * no room for them, the refusal is reported and they stay uncharged.
 *
 * Lock order: a card's primary lock (primary.c), then adoption; both are held
 * across the driver and across front_charge, and nothing that these call takes
 * them again.
 */
#include "context.h"
#include "named.h"
#include "front_hooks.h"

#define CONTEXT_KNOWN 64u /* a power of two */

/*
 * The contexts made last, found without a lock: the reader sees handle, info
 * and the same handle again. Only the maker of a context fills a place and only
 * who removes it from the table empties it, so that a stale one cannot return.
 */
static struct {
	_Atomic uint64_t handle;
	_Atomic uint64_t info; /* serial << 8 | slot */
} known[CONTEXT_KNOWN];
static struct front_lock known_lock;

static _Atomic uint32_t last_serial;

static struct front_lock adoption;

static unsigned place_of(uint64_t handle)
{
	return (unsigned)((handle * 0x9e3779b97f4a7c15ull) >> 58) & (CONTEXT_KNOWN - 1);
}

static void remember(const struct table_record *context)
{
	unsigned i = place_of(context->key);

	front_lock_take(&known_lock);
	atomic_store(&known[i].handle, 0);
	atomic_store(&known[i].info, (uint64_t)context->owner << 8 | context->slot);
	atomic_store(&known[i].handle, context->key);
	front_lock_drop(&known_lock);
}

static void forget(uint64_t handle)
{
	unsigned i = place_of(handle);

	front_lock_take(&known_lock);
	if (atomic_load(&known[i].handle) == handle)
		atomic_store(&known[i].handle, 0);
	front_lock_drop(&known_lock);
}

static bool recall(uint64_t handle, struct front_place *place)
{
	unsigned i = place_of(handle);
	uint64_t info;

	if (atomic_load_explicit(&known[i].handle, memory_order_acquire) != handle)
		return false;
	info = atomic_load_explicit(&known[i].info, memory_order_acquire);
	if (atomic_load_explicit(&known[i].handle, memory_order_relaxed) != handle)
		return false;
	*place = (struct front_place){ .slot = (int)(info & 0xff), .owner = (uint32_t)(info >> 8) };
	return true;
}

struct sweep {
	uint32_t owner;
	uint64_t bytes[DIVVY_MAX_CARDS];
};

static bool dies(const struct table_record *record, void *arg)
{
	struct sweep *sweep = arg;

	if (record->owner != sweep->owner || record->space == SPACE_CONTEXT || record->space == SPACE_TILE)
		return false;
	if (record->space == SPACE_OPENED || record->space == SPACE_VIEW || record->space == SPACE_NAMED)
		return false; /* seen to */
	if (record->space == SPACE_POINTER && record->flags & MEMORY_NAMED)
		return true; /* the agent's */
	if (record->space != SPACE_LIBRARY || !(record->flags & LIBRARY_UNPAID))
		sweep->bytes[record->slot] += record->bytes;
	return true;
}

void context_emptied(uint32_t owner)
{
	struct sweep sweep = { .owner = owner };

	virtual_tiles_gone(0, owner);
	external_views_gone(owner);
	named_context_gone(owner);
	table_sweep(&front_held, dies, &sweep);
	for (int slot = 0; slot < (int)DIVVY_MAX_CARDS; slot++) {
		if (sweep.bytes[slot])
			front_refund(slot, sweep.bytes[slot]);
	}
}

void context_gone(const struct table_record *context)
{
	forget(context->key);
	if (context->flags & CONTEXT_GREEN)
		return;
	context_emptied(context->owner);
	front_context_held(context->slot, -(int64_t)context->bytes);
	front_refund(context->slot, context->bytes);
	front_pools_settle();
}

int context_add(CUcontext handle, uint64_t bytes, int slot, unsigned flags, uint32_t owner)
{
	struct table_record old;
	struct table_record record = {
		.key = (uintptr_t)handle, .bytes = bytes, .space = SPACE_CONTEXT,
		.slot = (uint8_t)slot, .flags = (uint8_t)flags,
		.owner = owner ? owner : atomic_fetch_add(&last_serial, 1) + 1,
	};
	int rc = table_put(&front_held, &record, &old);

	if (rc < 0)
		return rc;
	if (rc == 1)
		context_gone(&old);
	remember(&record);
	front_context_held(slot, (int64_t)bytes);
	return 0;
}

struct removal {
	uint32_t owner;
	bool done;
	struct table_record record;
};

static bool remove_if_same(struct table_record *record, void *arg)
{
	struct removal *removal = arg;

	if (record->owner != removal->owner)
		return true;
	removal->record = *record;
	removal->done = true;
	return false;
}

void context_destroyed(const struct table_record *seen)
{
	struct removal removal = { .owner = seen->owner };

	table_change(&front_held, SPACE_CONTEXT, seen->key, remove_if_same, &removal);
	if (removal.done)
		context_gone(&removal.record);
}

static struct front_place adopt(CUcontext handle)
{
	struct front_place place = { .slot = front_context_slot(handle) };
	struct table_record record;
	unsigned version;
	uint64_t bytes;

	if (place.slot < 0)
		return place;
	/* A context that another thread destroyed may still be current here. */
	if (REAL(SYM_cuCtxGetApiVersion, cuCtxGetApiVersion)(handle, &version) != CUDA_SUCCESS)
		return place;
	front_lock_take(&adoption);
	if (!table_get(&front_held, SPACE_CONTEXT, (uintptr_t)handle, &record)) {
		bytes = front_context_bytes(place.slot);
		if (front_charge(place.slot, bytes, "a context made elsewhere") != 0)
			bytes = 0;
		if (context_add(handle, bytes, place.slot, 0, 0) != 0)
			front_uncharge(place.slot, bytes);
	}
	if (table_get(&front_held, SPACE_CONTEXT, (uintptr_t)handle, &record))
		place.owner = record.owner;
	front_lock_drop(&adoption);
	return place;
}

struct front_place context_place(void)
{
	CUcontext current = NULL;
	struct table_record record;
	struct front_place place;

	if (REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&current) != CUDA_SUCCESS || !current)
		return (struct front_place){ .slot = front_current_slot() };
	if (recall((uintptr_t)current, &place))
		return place;
	if (table_get(&front_held, SPACE_CONTEXT, (uintptr_t)current, &record))
		return (struct front_place){ .slot = record.slot, .owner = record.owner };
	return adopt(current);
}

int context_slot_of(CUcontext handle)
{
	struct front_place place;

	return recall((uintptr_t)handle, &place) ? place.slot : front_context_slot(handle);
}

int front_stream_slot(CUstream stream)
{
	CUcontext context = NULL;

	if (front_cards() == 1 || (uintptr_t)stream <= 2 ||
	    REAL(SYM_cuStreamGetCtx, cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS || !context)
		return front_current_slot();
	return context_slot_of(context);
}

/* The versions of cuCtxCreate differ in what they take besides. */
struct making {
	enum divvy_symbol called;
	CUdevice device;
	unsigned flags;
	CUexecAffinityParam *affinity; /* _v3 */
	int affinities;                /* _v3 */
	CUctxCreateParams *parameters; /* _v4 */
	CUresult (*ask)(const struct making *making, CUcontext *context);
};

static CUresult ask_v2(const struct making *making, CUcontext *context)
{
	return REAL(making->called, cuCtxCreate_v2)(context, making->flags, making->device);
}

static CUresult ask_v3(const struct making *making, CUcontext *context)
{
	return REAL(making->called, cuCtxCreate_v3)(context, making->affinity, making->affinities, making->flags,
						    making->device);
}

static CUresult ask_v4(const struct making *making, CUcontext *context)
{
	return REAL(making->called, cuCtxCreate_v4)(context, making->parameters, making->flags, making->device);
}

static CUresult make(const struct making *making, CUcontext *out)
{
	static const char call[] = "cuCtxCreate";
	int slot = front_slot(making->device);
	CUcontext context = NULL;
	uint64_t bytes;
	CUresult result;

	if (slot < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	bytes = front_context_bytes(slot);
	result = memory_charge(slot, bytes, call);
	if (result != CUDA_SUCCESS)
		return result;
	result = making->ask(making, &context);
	if (result != CUDA_SUCCESS) {
		memory_refused(slot, bytes, result, call);
		return result;
	}
	if (context_add(context, bytes, slot, 0, 0) != 0) {
		(void)REAL(SYM_cuCtxDestroy_v2, cuCtxDestroy_v2)(context);
		front_uncharge(slot, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = context;
	return CUDA_SUCCESS;
}

/* cuCtxCreate and cuCtxCreate_v2 have one signature. */
static CUresult create_plain(enum divvy_symbol called, CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	struct making making = { .called = called, .device = dev, .flags = flags, .ask = ask_v2 };
	CUresult result;

	if (!pctx || !front_enter())
		return REAL(called, cuCtxCreate_v2)(pctx, flags, dev);
	result = make(&making, pctx);
	front_leave();
	return result;
}

CUresult hook_cuCtxCreate(enum divvy_symbol called, CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return create_plain(called, pctx, flags, dev);
}

CUresult hook_cuCtxCreate_v2(enum divvy_symbol called, CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return create_plain(called, pctx, flags, dev);
}

CUresult hook_cuCtxCreate_v3(enum divvy_symbol called, CUcontext *pctx, CUexecAffinityParam *paramsArray,
			     int numParams, unsigned int flags, CUdevice dev)
{
	struct making making = {
		.called = called, .device = dev, .flags = flags, .affinity = paramsArray,
		.affinities = numParams, .ask = ask_v3,
	};
	CUresult result;

	if (!pctx || !front_enter())
		return REAL(called, cuCtxCreate_v3)(pctx, paramsArray, numParams, flags, dev);
	result = make(&making, pctx);
	front_leave();
	return result;
}

CUresult hook_cuCtxCreate_v4(enum divvy_symbol called, CUcontext *pctx, CUctxCreateParams *ctxCreateParams,
			     unsigned int flags, CUdevice dev)
{
	struct making making = {
		.called = called, .device = dev, .flags = flags, .parameters = ctxCreateParams, .ask = ask_v4,
	};
	CUresult result;

	if (!pctx || !front_enter())
		return REAL(called, cuCtxCreate_v4)(pctx, ctxCreateParams, flags, dev);
	result = make(&making, pctx);
	front_leave();
	return result;
}

static CUresult destroy(enum divvy_symbol called, CUcontext ctx)
{
	struct table_record seen;
	CUresult result;
	bool ours;

	if (!front_enter())
		return REAL(called, cuCtxDestroy_v2)(ctx);
	ours = table_get(&front_held, SPACE_CONTEXT, (uintptr_t)ctx, &seen);
	front_gate_forget(ctx);
	result = REAL(called, cuCtxDestroy_v2)(ctx);
	if (ours && result == CUDA_SUCCESS)
		context_destroyed(&seen);
	front_leave();
	return result;
}

CUresult hook_cuCtxDestroy(enum divvy_symbol called, CUcontext ctx)
{
	return destroy(called, ctx);
}

CUresult hook_cuCtxDestroy_v2(enum divvy_symbol called, CUcontext ctx)
{
	return destroy(called, ctx);
}

static bool one_use_more(struct table_record *record, void *arg)
{
	(void)arg;
	record->extra++;
	return true;
}

static bool one_use_less(struct table_record *record, void *arg)
{
	bool *last = arg;

	if (record->extra)
		record->extra--;
	else
		*last = true;
	return true;
}

CUresult hook_cuCtxAttach(enum divvy_symbol called, CUcontext *pctx, unsigned int flags)
{
	CUresult result;

	if (!pctx || !front_enter())
		return REAL(called, cuCtxAttach)(pctx, flags);
	result = REAL(called, cuCtxAttach)(pctx, flags);
	if (result == CUDA_SUCCESS)
		table_change(&front_held, SPACE_CONTEXT, (uintptr_t)*pctx, one_use_more, NULL);
	front_leave();
	return result;
}

CUresult hook_cuCtxDetach(enum divvy_symbol called, CUcontext ctx)
{
	struct table_record seen;
	CUresult result;
	bool ours, last = false;

	if (!front_enter())
		return REAL(called, cuCtxDetach)(ctx);
	ours = table_get(&front_held, SPACE_CONTEXT, (uintptr_t)ctx, &seen);
	front_gate_forget(ctx);
	result = REAL(called, cuCtxDetach)(ctx);
	if (ours && result == CUDA_SUCCESS) {
		table_change(&front_held, SPACE_CONTEXT, (uintptr_t)ctx, one_use_less, &last);
		if (last)
			context_destroyed(&seen);
	}
	front_leave();
	return result;
}
