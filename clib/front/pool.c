/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c: the pools that stream-ordered memory comes from (async.c).
 *
 * Rule: a pool is charged what it reserves (CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
 * what the driver keeps from everybody else), not what is in use of it. Before an
 * allocation, what the request must add to the reserve is charged: the request
 * less what is charged, unused and not spoken for, rounded up to 2 MiB, the step
 * in which pools grow. Afterwards the reserve is read and the charge follows it;
 * if it grew further than there is room for, the memory is freed again, the pool
 * is trimmed and the program gets CUDA_ERROR_OUT_OF_MEMORY. Reserves shrink
 * later, when streams get that far, so they are read again at every call that
 * waits for the card, when memory is freed, and before a denial is final.
 *
 * Pools in host memory cost nothing, managed ones cost like those on the card.
 * An imported pool costs nothing here: what is imported of it has a number at the
 * agent (named.h), and is charged here when its maker has gone.
 *
 * A pool that is destroyed lives on in the driver until its last allocation is
 * freed and its streams have got that far, and could no longer be asked. So the
 * program's destruction only empties it; the driver's comes when the driver says
 * that nothing is reserved, with the next pool that is made or destroyed.
 *
 * During a stream capture an allocation is a node of a graph (graphmem.c) and
 * reserves nothing. Nothing here waits. Reading a pool's attributes is legal
 * while a capture is open; trimming may not be, and is done only where a call
 * is about to be refused.
 *
 * One lock, never held across a call that allocates or charges.
 */
#include "pool.h"
#include "front_hooks.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define POOLS_FIRST 64u
#define POOLS_PLACE_BITS 16u
#define POOLS_MAX (1u << POOLS_PLACE_BITS)

struct pool {
	uint64_t handle;
	uint64_t charged;
	uint64_t pending; /* charged for allocations that are under way */
	uint64_t coming;  /* being charged, because the reserve grew further; not yet in charged */
	uint64_t claimed; /* asked for by allocations that are under way */
	uint32_t serial;  /* its place and, above that, how often the place was used; 0: empty place */
	uint32_t uses;    /* of an empty place: how often it was used */
	uint32_t next;    /* of an empty place: the next empty one, + 1 */
	int16_t slot;     /* -1: costs nothing */
	bool made;        /* by the program, not the card's default */
	bool destroyed;   /* by the program; by the driver when it is empty */
};

uint32_t front_pools_live;

void front_pools_began(void)
{
	__atomic_store_n(&front_yield, front_pools_yield_slow, __ATOMIC_RELEASE);
	__atomic_store_n(&front_pools_live, 1, __ATOMIC_RELAXED);
}

static struct front_lock lock;
static struct pool *pools;
static uint32_t pools_size;
static uint32_t pools_used; /* places below this may be in use */
static uint32_t pools_empty; /* the first empty place among them, + 1; 0: none */

static bool grow(void)
{
	uint32_t size = pools_size ? pools_size * 2 : POOLS_FIRST;
	struct pool *bigger;

	if (size > POOLS_MAX)
		return false;
	bigger = mmap(NULL, size * sizeof(struct pool), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bigger == MAP_FAILED)
		return false;
	if (pools) {
		memcpy(bigger, pools, pools_size * sizeof(struct pool));
		munmap(pools, pools_size * sizeof(struct pool));
	}
	pools = bigger;
	pools_size = size;
	return true;
}

/* Under lock. NULL when it is gone. */
static struct pool *find_serial(uint32_t serial)
{
	uint32_t place = serial & (POOLS_MAX - 1);

	return serial && place < pools_used && pools[place].serial == serial ? &pools[place] : NULL;
}

/* Under lock. NULL when it is not known. */
static struct pool *find(CUmemoryPool handle)
{
	struct table_record record;

	if (!table_get(&front_held, SPACE_POOL, (uintptr_t)handle, &record))
		return NULL;
	return find_serial((uint32_t)record.extra);
}

/* Under lock. The handle may be another pool's by now. */
static void forget(struct pool *pool)
{
	struct table_record record;
	uint32_t place = pool->serial & (POOLS_MAX - 1);
	uint32_t uses = pool->serial >> POOLS_PLACE_BITS;

	if (table_get(&front_held, SPACE_POOL, pool->handle, &record) && record.extra == pool->serial)
		(void)table_take(&front_held, SPACE_POOL, pool->handle, &record);
	*pool = (struct pool){ .uses = uses, .next = pools_empty };
	pools_empty = place + 1;
}

/* Under lock. NULL when there is no place for it. */
static struct pool *add(CUmemoryPool handle, int slot, bool made)
{
	struct table_record record = { .key = (uintptr_t)handle, .space = SPACE_POOL };
	uint32_t place, uses;

	if (pools_empty) {
		place = pools_empty - 1;
	} else {
		if (pools_used == pools_size && !grow())
			return NULL;
		place = pools_used;
	}
	uses = pools[place].uses % 255 + 1; /* 24 bits in all, never 0 */
	record.extra = uses << POOLS_PLACE_BITS | place;
	if (table_put(&front_held, &record, NULL) < 0)
		return NULL;
	if (place == pools_used)
		pools_used++;
	else
		pools_empty = pools[place].next;
	pools[place] = (struct pool){
		.handle = (uintptr_t)handle, .serial = (uint32_t)record.extra, .slot = (int16_t)slot, .made = made,
	};
	front_pools_began();
	return &pools[place];
}

static uint64_t attribute(const struct pool *pool, CUmemPool_attribute which, uint64_t otherwise)
{
	cuuint64_t value = 0;

	if (REAL(SYM_cuMemPoolGetAttribute, cuMemPoolGetAttribute)((CUmemoryPool)(uintptr_t)pool->handle, which,
								   &value) != CUDA_SUCCESS)
		return otherwise;
	return memory_round(value, DIVVY_ALLOCATION_UNIT);
}

/*
 * Under lock: what the pool is charged beyond its reserve and may be refunded;
 * it is taken off. An allocation under way that needed no charge because there
 * was enough unused counts on that, though the driver may let go of it and
 * reserve it again while we look.
 */
static uint64_t surplus(struct pool *pool, uint64_t reserved)
{
	uint64_t growth = memory_round(pool->claimed, MEMORY_STEP);
	uint64_t wanted = memory_plus(reserved, growth > pool->pending ? growth : pool->pending);
	uint64_t extra;

	if (pool->charged <= wanted)
		return 0;
	extra = pool->charged - wanted;
	pool->charged = wanted;
	return extra;
}

static uint64_t look(struct pool *pool)
{
	if (pool->slot < 0)
		return 0;
	return surplus(pool, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, pool->charged));
}

static void settle_all(bool trim)
{
	uint64_t back[DIVVY_MAX_CARDS] = { 0 };

	front_lock_take(&lock);
	for (uint32_t i = 0; i < pools_used; i++) {
		struct pool *pool = &pools[i];

		if (!pool->serial || pool->slot < 0 || !pool->charged)
			continue;
		if (trim && !pool->claimed)
			(void)REAL(SYM_cuMemPoolTrimTo, cuMemPoolTrimTo)((CUmemoryPool)(uintptr_t)pool->handle, 0);
		back[pool->slot] += look(pool);
	}
	front_lock_drop(&lock);
	for (int slot = 0; slot < (int)DIVVY_MAX_CARDS; slot++) {
		if (back[slot])
			front_refund(slot, back[slot]);
	}
}

void front_pools_settle_slow(void)
{
	settle_all(false);
	graphmem_settle();
}

void front_pools_yield_slow(void)
{
	settle_all(true);
	graphmem_trim();
	graphmem_settle();
}

void pool_card_reset(int slot)
{
	uint64_t back = 0;

	front_lock_take(&lock);
	for (uint32_t i = 0; i < pools_used; i++) {
		struct pool *pool = &pools[i];

		if (!pool->serial || pool->slot != slot || !pool->made)
			continue;
		/* If it lives on after all, its next allocation finds it unknown and charges it whole. */
		back += pool->charged;
		forget(pool);
	}
	front_lock_drop(&lock);
	front_refund(slot, back);
}

int pool_slot(CUmemoryPool handle, int otherwise)
{
	for (int slot = 0; slot < (int)front_cards(); slot++) {
		CUdevice device = front_device(slot);
		CUmemoryPool known = NULL;

		if (device < 0)
			continue;
		if ((REAL(SYM_cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool)(&known, device) == CUDA_SUCCESS &&
		     known == handle) ||
		    (REAL(SYM_cuDeviceGetMemPool, cuDeviceGetMemPool)(&known, device) == CUDA_SUCCESS &&
		     known == handle))
			return slot;
	}
	return otherwise;
}

CUresult pool_reserve(CUmemoryPool handle, int slot, uint64_t bytes, const char *call, struct pool_claim *claim)
{
	uint64_t request = memory_round(bytes, DIVVY_ALLOCATION_UNIT);
	uint64_t taken, need;
	struct pool *pool;

	*claim = (struct pool_claim){ .request = request, .call = call };
	front_lock_take(&lock);
	pool = find(handle);
	if (!pool)
		pool = add(handle, slot, false);
	if (!pool || pool->destroyed) {
		front_lock_drop(&lock);
		return pool ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	}
	claim->serial = pool->serial;
	if (pool->slot < 0) {
		front_lock_drop(&lock);
		return CUDA_SUCCESS;
	}
	slot = pool->slot;
	taken = attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, pool->charged);
	taken = memory_plus(memory_plus(taken, pool->claimed), request);
	need = taken > pool->charged ? taken - pool->charged : 0;
	if (need > request)
		need = request;
	need = memory_round(need, MEMORY_STEP);
	pool->claimed += request;
	front_lock_drop(&lock);

	if (need && memory_charge(slot, need, call) != CUDA_SUCCESS) {
		front_lock_take(&lock);
		pool = find_serial(claim->serial);
		if (pool)
			pool->claimed -= request;
		front_lock_drop(&lock);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	front_lock_take(&lock);
	pool = find_serial(claim->serial);
	if (pool) {
		pool->charged += need;
		pool->pending += need;
		claim->added = need;
	}
	front_lock_drop(&lock);
	if (!pool)
		front_uncharge(slot, need); /* the card was reset meanwhile */
	return CUDA_SUCCESS;
}

int pool_follow(const struct pool_claim *claim)
{
	uint64_t reserved, back = 0, more = 0;
	struct pool *pool;
	int slot, rc;

	front_lock_take(&lock);
	pool = find_serial(claim->serial);
	if (!pool || pool->slot < 0) {
		front_lock_drop(&lock);
		return 0;
	}
	slot = pool->slot;
	pool->claimed -= claim->request;
	pool->pending -= claim->added;
	reserved = attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, pool->charged);
	if (reserved > memory_plus(pool->charged, pool->coming)) {
		more = reserved - pool->charged - pool->coming;
		pool->coming += more; /* ours to charge: nobody else shall count it again */
	} else {
		back = surplus(pool, reserved);
	}
	front_lock_drop(&lock);
	if (back)
		front_refund(slot, back);
	if (!more)
		return 0;
	rc = front_charge(slot, more, claim->call);
	front_lock_take(&lock);
	pool = find_serial(claim->serial);
	if (!pool) {
		back = rc == 0 ? more : 0; /* the card was reset meanwhile */
	} else {
		pool->coming -= more;
		if (rc == 0)
			pool->charged += more;
		back = look(pool); /* the reserve may have shrunk meanwhile */
	}
	front_lock_drop(&lock);
	if (back)
		front_refund(slot, back);
	return rc;
}

void pool_give(uint32_t serial)
{
	uint64_t back = 0;
	struct pool *pool;
	int slot = -1;

	front_lock_take(&lock);
	pool = find_serial(serial);
	if (pool) {
		slot = pool->slot;
		back = look(pool);
	}
	front_lock_drop(&lock);
	if (back)
		front_refund(slot, back);
}

/* Has the driver destroy what the program has, where it is empty by now. */
static void bury(void)
{
	for (uint32_t i = 0;; i++) {
		CUmemoryPool empty = NULL;
		uint64_t back = 0;
		int slot = -1;

		front_lock_take(&lock);
		for (; i < pools_used && !empty; i++) {
			if (!pools[i].serial || !pools[i].destroyed)
				continue;
			slot = pools[i].slot;
			back = look(&pools[i]);
			if (!pools[i].charged && !pools[i].claimed) {
				empty = (CUmemoryPool)(uintptr_t)pools[i].handle;
				forget(&pools[i]);
			}
			break;
		}
		front_lock_drop(&lock);
		if (slot < 0)
			return;
		if (back)
			front_refund(slot, back);
		if (empty && REAL(SYM_cuMemPoolDestroy, cuMemPoolDestroy)(empty) != CUDA_SUCCESS) {
			struct pool *pool;

			front_lock_take(&lock);
			pool = add(empty, slot, true);
			if (pool)
				pool->destroyed = true;
			front_lock_drop(&lock);
		}
	}
}

CUresult hook_cuMemPoolCreate(enum divvy_symbol called, CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	CUmemoryPool handle = NULL;
	CUresult result;
	int slot = -1;

	if (!pool || !poolProps || !front_enter())
		return REAL(called, cuMemPoolCreate)(pool, poolProps);
	bury();
	if (poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
		slot = front_slot(poolProps->location.id);
		if (slot < 0) {
			front_leave();
			return CUDA_ERROR_INVALID_DEVICE;
		}
	} else if (poolProps->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED) {
		slot = front_current_slot(); /* wherever it starts, it may come to the card */
	}
	result = REAL(called, cuMemPoolCreate)(&handle, poolProps);
	if (result == CUDA_SUCCESS) {
		struct pool old = { .slot = -1 };
		struct pool *known;

		front_lock_take(&lock);
		known = find(handle);
		if (known) {
			old = *known; /* gone without our seeing it: the handle is new again */
			forget(known);
		}
		known = add(handle, slot, true);
		front_lock_drop(&lock);
		front_refund(old.slot, old.charged);
		if (known) {
			*pool = handle;
		} else {
			(void)REAL(SYM_cuMemPoolDestroy, cuMemPoolDestroy)(handle);
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	front_leave();
	return result;
}

/* A card whose pool is destroyed uses its default one. */
static void use_default(CUmemoryPool instead, int slot)
{
	CUdevice device = front_device(slot);
	CUmemoryPool pool = NULL;

	if (REAL(SYM_cuDeviceGetMemPool, cuDeviceGetMemPool)(&pool, device) == CUDA_SUCCESS && pool == instead &&
	    REAL(SYM_cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool)(&pool, device) == CUDA_SUCCESS)
		(void)REAL(SYM_cuDeviceSetMemPool, cuDeviceSetMemPool)(device, pool);
}

/* What the driver would do with the rest of a pool that is destroyed: let go of it as soon as it can. */
static void empty(CUmemoryPool pool)
{
	cuuint64_t keep = 0;

	(void)REAL(SYM_cuMemPoolSetAttribute, cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
	(void)REAL(SYM_cuMemPoolTrimTo, cuMemPoolTrimTo)(pool, 0);
}

CUresult hook_cuMemPoolDestroy(enum divvy_symbol called, CUmemoryPool pool)
{
	struct pool before = { 0 };
	CUresult result = CUDA_SUCCESS;
	struct pool *known;
	uint64_t back = 0;

	if (!front_enter())
		return REAL(called, cuMemPoolDestroy)(pool);
	bury();
	front_lock_take(&lock);
	known = find(pool);
	if (known && known->destroyed) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else if (known && known->made) {
		if (known->slot >= 0) {
			empty(pool);
			back = look(known);
		}
		before = *known;
		if (known->charged || known->claimed)
			known->destroyed = true;
		else
			forget(known); /* the handle may come again as soon as the driver has it back */
	}
	front_lock_drop(&lock);
	if (back)
		front_refund(before.slot, back);
	if (before.charged || before.claimed) {
		use_default(pool, before.slot);
	} else if (result == CUDA_SUCCESS) {
		result = REAL(called, cuMemPoolDestroy)(pool);
		if (result != CUDA_SUCCESS && before.serial) {
			front_lock_take(&lock);
			(void)add(pool, before.slot, true);
			front_lock_drop(&lock);
		}
	}
	front_leave();
	return result;
}

CUresult hook_cuMemPoolTrimTo(enum divvy_symbol called, CUmemoryPool pool, size_t minBytesToKeep)
{
	CUresult result;

	if (!front_enter())
		return REAL(called, cuMemPoolTrimTo)(pool, minBytesToKeep);
	result = REAL(called, cuMemPoolTrimTo)(pool, minBytesToKeep);
	front_pools_settle();
	front_leave();
	return result;
}

/* A lower release threshold gives memory back, on some drivers at once. */
CUresult hook_cuMemPoolSetAttribute(enum divvy_symbol called, CUmemoryPool pool, CUmemPool_attribute attr,
				    void *value)
{
	CUresult result;

	if (!front_enter())
		return REAL(called, cuMemPoolSetAttribute)(pool, attr, value);
	result = REAL(called, cuMemPoolSetAttribute)(pool, attr, value);
	front_pools_settle();
	front_leave();
	return result;
}

CUresult hook_cuMemPoolImportFromShareableHandle(enum divvy_symbol called, CUmemoryPool *pool_out, void *handle,
						 CUmemAllocationHandleType handleType, unsigned long long flags)
{
	CUresult result;

	if (!pool_out || !front_enter())
		return REAL(called, cuMemPoolImportFromShareableHandle)(pool_out, handle, handleType, flags);
	result = REAL(called, cuMemPoolImportFromShareableHandle)(pool_out, handle, handleType, flags);
	if (result == CUDA_SUCCESS) {
		front_lock_take(&lock);
		if (!find(*pool_out))
			(void)add(*pool_out, -1, true);
		front_lock_drop(&lock);
	}
	front_leave();
	return result;
}

int pool_slot_of(uint32_t serial)
{
	struct pool *pool;
	int slot;

	front_lock_take(&lock);
	pool = find_serial(serial);
	slot = pool ? pool->slot : -1;
	front_lock_drop(&lock);
	return slot;
}
