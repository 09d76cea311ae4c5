/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual.c: virtual-memory handles (cuMemCreate).
 *
 * Rule: the memory behind a handle is charged its size, which the driver wants
 * in whole granules already, from cuMemCreate until every reference to the
 * handle (its creation and each cuMemRetainAllocationHandle) is released and it
 * is mapped nowhere: so the driver frees it. A handle may be released while the
 * memory is still mapped, and its number may then be given to another one;
 * hence handles and mappings point at a backing, which has a number of ours.
 * Handles in host memory cost nothing. Reserving addresses costs nothing.
 *
 * cuMemMapArrayAsync maps handles into sparse arrays and charges nothing; the
 * backing stays charged until the same piece is unmapped or the array is
 * destroyed. A piece that is unmapped in another shape than it was mapped in
 * stays until the array goes: too much, never too little.
 *
 * What is exported gets a number at the agent, who charges it once in each share
 * that holds it (named.h); who imports it holds it by that number, until the last
 * release and unmapping here. A handle that nobody has named (of a process without
 * Divvy, or of another agent's) is charged what is mapped of it.
 * Multicast objects are in multicast.c.
 */
#include "named.h"
#include "front_hooks.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static _Atomic uint64_t last_backing;
static _Atomic uint32_t tiles; /* how many pieces of sparse arrays are mapped, about */

static bool one_more(struct table_record *record, void *arg)
{
	(void)arg;
	record->extra++;
	return true;
}

bool virtual_hold(uint64_t backing)
{
	return table_change(&front_held, SPACE_BACKING, backing, one_more, NULL);
}

struct last {
	bool was;
	struct table_record record;
};

static bool one_less(struct table_record *record, void *arg)
{
	struct last *last = arg;

	if (--record->extra)
		return true;
	*last = (struct last){ .was = true, .record = *record };
	return false;
}

void virtual_drop(uint64_t backing)
{
	struct last last = { 0 };

	if (!backing)
		return; /* not followed */
	table_change(&front_held, SPACE_BACKING, backing, one_less, &last);
	if (!last.was)
		return;
	if (!(last.record.flags & MEMORY_NAMED) || !named_released(SPACE_BACKING, backing))
		front_refund(last.record.slot, last.record.bytes);
	/* another process may have the object, and with it what is bound to it */
	if ((last.record.flags & (BACKING_MULTICAST | MEMORY_NAMED)) == BACKING_MULTICAST)
		multicast_gone(backing);
}

/* SPACE_HANDLE: bytes counts references, extra names the backing, which they hold once together. */
static int note_handle(uint64_t handle, uint64_t backing)
{
	struct table_record record = { .key = handle, .bytes = 1, .extra = backing, .space = SPACE_HANDLE };
	struct table_record old;
	int rc = table_put(&front_held, &record, &old);

	if (rc == 1)
		virtual_drop(old.extra); /* the driver gave the number to another handle: the old one is gone */
	return rc < 0 ? rc : 0;
}

static uint64_t new_backing(uint64_t bytes, int slot, unsigned flags)
{
	struct table_record backing = {
		.key = atomic_fetch_add(&last_backing, 1) + 1, .bytes = bytes, .extra = 1,
		.space = SPACE_BACKING, .slot = (uint8_t)slot, .flags = (uint8_t)flags,
	};

	return table_put(&front_held, &backing, NULL) < 0 ? 0 : backing.key;
}

int virtual_note(uint64_t handle, uint64_t bytes, int slot, unsigned flags)
{
	uint64_t backing = new_backing(bytes, slot, flags);
	struct table_record record;
	int rc = backing ? note_handle(handle, backing) : -ENOMEM;

	if (backing && rc < 0)
		(void)table_take(&front_held, SPACE_BACKING, backing, &record);
	return rc;
}

uint64_t virtual_import(uint64_t number, uint64_t bytes, int slot, unsigned flags)
{
	uint64_t backing = new_backing(bytes, slot, flags | (number ? MEMORY_NAMED : 0));
	struct table_record record;

	if (backing && number && named_imported(SPACE_BACKING, backing, number, 0) < 0) {
		(void)table_take(&front_held, SPACE_BACKING, backing, &record);
		return 0;
	}
	return backing;
}

uint64_t virtual_of_handle(uint64_t handle)
{
	struct table_record known;

	return table_get(&front_held, SPACE_HANDLE, handle, &known) ? known.extra : 0;
}

static bool reference_more(struct table_record *record, void *arg)
{
	(void)arg;
	record->bytes++;
	return true;
}

static bool reference_less(struct table_record *record, void *arg)
{
	struct last *last = arg;

	last->record = *record;
	last->was = record->bytes == 1;
	if (!last->was)
		record->bytes--;
	return !last->was;
}

static CUresult create(enum divvy_symbol called, CUmemGenericAllocationHandle *out, size_t size,
		       const CUmemAllocationProp *prop, unsigned long long flags)
{
	static const char call[] = "cuMemCreate";
	CUmemGenericAllocationHandle handle = 0;
	CUresult result;
	int slot = front_slot(prop->location.id);

	if (slot < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	result = memory_charge(slot, size, call);
	if (result != CUDA_SUCCESS)
		return result;
	result = REAL(called, cuMemCreate)(&handle, size, prop, flags);
	if (result != CUDA_SUCCESS) {
		memory_refused(slot, size, result, call);
		return result;
	}
	if (virtual_note(handle, size, slot, 0) != 0) {
		(void)REAL(SYM_cuMemRelease, cuMemRelease)(handle);
		front_uncharge(slot, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = handle;
	return CUDA_SUCCESS;
}

CUresult hook_cuMemCreate(enum divvy_symbol called, CUmemGenericAllocationHandle *handle, size_t size,
			  const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUresult result;

	if (!handle || !size || !prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !front_enter())
		return REAL(called, cuMemCreate)(handle, size, prop, flags);
	result = create(called, handle, size, prop, flags);
	front_leave();
	return result;
}

CUresult hook_cuMemRelease(enum divvy_symbol called, CUmemGenericAllocationHandle handle)
{
	struct last last = { 0 };
	CUresult result;
	bool ours;

	if (!front_enter())
		return REAL(called, cuMemRelease)(handle);
	ours = table_change(&front_held, SPACE_HANDLE, handle, reference_less, &last);
	result = REAL(called, cuMemRelease)(handle);
	if (ours && result == CUDA_SUCCESS) {
		if (last.was)
			virtual_drop(last.record.extra);
	} else if (ours) {
		if (last.was)
			memory_restore(&last.record);
		else
			table_change(&front_held, SPACE_HANDLE, handle, reference_more, NULL);
	}
	front_leave();
	return result;
}

struct search {
	uint64_t address;
	uint64_t backing;
};

static bool contains(const struct table_record *record, void *arg)
{
	struct search *search = arg;

	if (record->space == SPACE_MAPPING && search->address - record->key < record->bytes)
		search->backing = record->extra;
	return false;
}

uint64_t virtual_of_address(uint64_t address)
{
	struct search search = { .address = address };
	struct table_record mapping;

	if (table_get(&front_held, SPACE_MAPPING, address, &mapping))
		return mapping.extra;
	table_sweep(&front_held, contains, &search);
	return search.backing;
}

CUresult hook_cuMemRetainAllocationHandle(enum divvy_symbol called, CUmemGenericAllocationHandle *handle,
					  void *addr)
{
	CUmemGenericAllocationHandle got = 0;
	CUresult result;

	if (!handle || !front_enter())
		return REAL(called, cuMemRetainAllocationHandle)(handle, addr);
	result = REAL(called, cuMemRetainAllocationHandle)(&got, addr);
	if (result == CUDA_SUCCESS) {
		if (!table_change(&front_held, SPACE_HANDLE, got, reference_more, NULL)) {
			/* All references were released, the mapping kept the memory. Rare enough for a search. */
			uint64_t backing = virtual_of_address((uintptr_t)addr);

			if (backing && virtual_hold(backing) && note_handle(got, backing) < 0)
				front_log("no memory to follow a memory handle: its charge stays");
		}
		*handle = got;
	}
	front_leave();
	return result;
}

/* What a handle is exported as; false: in a way that we do not know. */
static bool name_of(struct named_name *name, CUmemAllocationHandleType type, const void *text)
{
	*name = (struct named_name){ .fd = -1, .text = text };
	if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		name->kind = DIVVY_NAME_DESCRIPTOR;
	else if ((unsigned)type == 8) /* CU_MEM_HANDLE_TYPE_FABRIC, of drivers from 12.3 on */
		name->kind = DIVVY_NAME_FABRIC;
	return name->kind != 0;
}

CUresult hook_cuMemExportToShareableHandle(enum divvy_symbol called, void *shareableHandle,
					   CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handleType,
					   unsigned long long flags)
{
	union {
		int fd;
		char text[NAMED_TEXT_BYTES];
	} made = { .text = { 0 } };
	struct table_record record = { 0 };
	struct named_name name;
	uint64_t backing;
	CUresult result;

	if (!shareableHandle || !name_of(&name, handleType, made.text) || !front_enter())
		return REAL(called, cuMemExportToShareableHandle)(shareableHandle, handle, handleType, flags);
	backing = virtual_of_handle(handle);
	if (!virtual_hold(backing)) {
		result = REAL(called, cuMemExportToShareableHandle)(shareableHandle, handle, handleType, flags);
		front_leave();
		return result;
	}
	result = REAL(called, cuMemExportToShareableHandle)(&made, handle, handleType, flags);
	if (result == CUDA_SUCCESS) {
		if (name.kind == DIVVY_NAME_DESCRIPTOR)
			name.fd = made.fd;
		(void)named_mark(SPACE_BACKING, backing, &record);
		record.owner = 0;
		result = named_export(SPACE_BACKING, backing, &record, &name);
		if (result == CUDA_SUCCESS)
			memcpy(shareableHandle, &made, name.fd >= 0 ? sizeof(made.fd) : sizeof(made.text));
		else if (name.fd >= 0)
			close(name.fd);
	}
	virtual_drop(backing);
	front_leave();
	return result;
}

static CUresult import(enum divvy_symbol called, CUmemGenericAllocationHandle *handle, void *osHandle,
		       CUmemAllocationHandleType type, const struct named_name *name)
{
	static const char call[] = "cuMemImportFromShareableHandle";
	CUmemGenericAllocationHandle got = 0;
	CUmemAllocationProp prop = { 0 };
	struct named_hold hold;
	CUresult result = named_import(name, call, &hold);
	uint64_t backing;

	if (result != CUDA_SUCCESS)
		return result;
	result = REAL(called, cuMemImportFromShareableHandle)(&got, osHandle, type);
	if (result != CUDA_SUCCESS) {
		named_release(hold.number);
		return result;
	}
	if (table_change(&front_held, SPACE_HANDLE, got, reference_more, NULL)) {
		/* The driver knows the memory as a handle that is here already: that is one reference more. */
		named_release(hold.number);
		*handle = got;
		return CUDA_SUCCESS;
	}
	if (!hold.number) {
		if (REAL(SYM_cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle)(&prop, got) != CUDA_SUCCESS ||
		    prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE || front_slot(prop.location.id) < 0) {
			*handle = got; /* not on a card of ours */
			return CUDA_SUCCESS;
		}
		hold.slot = front_slot(prop.location.id);
	}
	backing = virtual_import(hold.number, 0, hold.slot,
				 (hold.number ? 0 : BACKING_FOREIGN) | (hold.number && !hold.bytes ? BACKING_MULTICAST : 0));
	if (!backing || note_handle(got, backing) < 0) {
		(void)REAL(SYM_cuMemRelease, cuMemRelease)(got);
		if (backing)
			virtual_drop(backing);
		else
			named_release(hold.number);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*handle = got;
	return CUDA_SUCCESS;
}

CUresult hook_cuMemImportFromShareableHandle(enum divvy_symbol called, CUmemGenericAllocationHandle *handle,
					     void *osHandle, CUmemAllocationHandleType shHandleType)
{
	struct named_name name;
	CUresult result;

	if (!handle || !name_of(&name, shHandleType, osHandle) || (name.kind != DIVVY_NAME_DESCRIPTOR && !osHandle) ||
	    !front_enter())
		return REAL(called, cuMemImportFromShareableHandle)(handle, osHandle, shHandleType);
	name.fd = name.kind == DIVVY_NAME_DESCRIPTOR ? (int)(intptr_t)osHandle : -1;
	result = import(called, handle, osHandle, shHandleType, &name);
	front_leave();
	return result;
}

/* Of memory that nobody has named so much is to be mapped: it is charged what it was not yet. */
static bool larger(struct table_record *record, void *arg)
{
	uint64_t *bytes = arg;
	uint64_t more = record->flags & BACKING_FOREIGN && *bytes > record->bytes ? *bytes - record->bytes : 0;

	record->bytes += more;
	*bytes = more;
	return true;
}

static bool smaller(struct table_record *record, void *arg)
{
	record->bytes -= *(uint64_t *)arg;
	return true;
}

static CUresult pay_foreign(uint64_t backing, uint64_t end)
{
	struct table_record record;
	uint64_t more = end;

	if (!table_get(&front_held, SPACE_BACKING, backing, &record) || !(record.flags & BACKING_FOREIGN) ||
	    !table_change(&front_held, SPACE_BACKING, backing, larger, &more) || !more)
		return CUDA_SUCCESS;
	if (memory_charge(record.slot, more, "cuMemMap") == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	table_change(&front_held, SPACE_BACKING, backing, smaller, &more);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuMemMap(enum divvy_symbol called, CUdeviceptr ptr, size_t size, size_t offset,
		       CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct table_record old;
	struct table_record mapping = { .key = ptr, .bytes = size, .space = SPACE_MAPPING };
	CUresult result;
	int rc;

	if (!front_enter())
		return REAL(called, cuMemMap)(ptr, size, offset, handle, flags);
	mapping.extra = virtual_of_handle(handle);
	if (!virtual_hold(mapping.extra)) /* before the driver: a release beside us must not refund it */
		mapping.extra = 0;
	result = pay_foreign(mapping.extra, memory_plus(offset, size));
	if (result == CUDA_SUCCESS)
		result = REAL(called, cuMemMap)(ptr, size, offset, handle, flags);
	if (result != CUDA_SUCCESS) {
		virtual_drop(mapping.extra);
	} else {
		rc = table_put(&front_held, &mapping, &old);
		if (rc == 1)
			virtual_drop(old.extra);
	}
	front_leave();
	return result;
}

/* One call may unmap several mappings that stand side by side. */
static void unmapped(uint64_t start, uint64_t size)
{
	struct table_record mapping;
	uint64_t at = 0;

	while (at < size && table_take(&front_held, SPACE_MAPPING, start + at, &mapping)) {
		virtual_drop(mapping.extra);
		if (!mapping.bytes)
			break;
		at += mapping.bytes;
	}
}

CUresult hook_cuMemUnmap(enum divvy_symbol called, CUdeviceptr ptr, size_t size)
{
	CUresult result;

	if (!front_enter())
		return REAL(called, cuMemUnmap)(ptr, size);
	result = REAL(called, cuMemUnmap)(ptr, size);
	if (result == CUDA_SUCCESS)
		unmapped(ptr, size);
	front_leave();
	return result;
}

/* The array's number; of one that is not ours its handle, which is no number: the tiles go with the context. */
static uint64_t array_of(const CUarrayMapInfo *info)
{
	uint16_t space = info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY ? SPACE_MIPMAP : SPACE_ARRAY;
	uint64_t handle = (uintptr_t)info->resource.array;
	struct table_record array;

	return table_get(&front_held, space, handle, &array) ? array.extra : handle;
}

static uint64_t tile_key(const CUarrayMapInfo *info)
{
	uint64_t hash = memory_mix(1, array_of(info));

	hash = memory_mix(hash, info->subresourceType);
	if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
		hash = memory_mix(hash, info->subresource.miptail.layer);
		hash = memory_mix(hash, info->subresource.miptail.offset);
		return memory_mix(hash, info->subresource.miptail.size);
	}
	hash = memory_mix(hash, info->subresource.sparseLevel.level);
	hash = memory_mix(hash, info->subresource.sparseLevel.layer);
	hash = memory_mix(hash, info->subresource.sparseLevel.offsetX);
	hash = memory_mix(hash, info->subresource.sparseLevel.offsetY);
	hash = memory_mix(hash, info->subresource.sparseLevel.offsetZ);
	hash = memory_mix(hash, info->subresource.sparseLevel.extentWidth);
	hash = memory_mix(hash, info->subresource.sparseLevel.extentHeight);
	return memory_mix(hash, info->subresource.sparseLevel.extentDepth);
}

static void tile_mapped(const CUarrayMapInfo *info, uint32_t owner)
{
	struct table_record old;
	struct table_record tile = {
		.key = tile_key(info), .bytes = array_of(info), .space = SPACE_TILE, .owner = owner,
	};
	int rc;

	tile.extra = virtual_of_handle(info->memHandle.memHandle);
	if (!virtual_hold(tile.extra))
		return;
	rc = table_put(&front_held, &tile, &old);
	if (rc == 1)
		virtual_drop(old.extra);
	else if (rc == 0)
		atomic_fetch_add(&tiles, 1);
}

CUresult hook_cuMemMapArrayAsync(enum divvy_symbol called, CUarrayMapInfo *mapInfoList, unsigned int count,
				 CUstream hStream)
{
	struct table_record tile;
	CUresult result;
	uint32_t owner;

	if (!mapInfoList || !front_enter())
		return REAL(called, cuMemMapArrayAsync)(mapInfoList, count, hStream);
	result = REAL(called, cuMemMapArrayAsync)(mapInfoList, count, hStream);
	owner = result == CUDA_SUCCESS ? context_place().owner : 0;
	for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++) {
		if (mapInfoList[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
			tile_mapped(&mapInfoList[i], owner);
		} else if (table_take(&front_held, SPACE_TILE, tile_key(&mapInfoList[i]), &tile)) {
			atomic_fetch_sub(&tiles, 1);
			virtual_drop(tile.extra);
		}
	}
	front_leave();
	return result;
}

struct tile_sweep {
	uint64_t array;
	uint32_t owner;
	unsigned found;
	uint64_t backing[64];
};

static bool collect(const struct table_record *record, void *arg)
{
	struct tile_sweep *sweep = arg;

	if (record->space != SPACE_TILE || sweep->found == sizeof(sweep->backing) / sizeof(sweep->backing[0]) ||
	    (sweep->array ? record->bytes != sweep->array : record->owner != sweep->owner))
		return false;
	sweep->backing[sweep->found++] = record->extra;
	return true;
}

void virtual_tiles_gone(uint64_t array, uint32_t owner)
{
	struct tile_sweep sweep = { .array = array, .owner = owner };

	while (atomic_load_explicit(&tiles, memory_order_relaxed)) {
		sweep.found = 0;
		table_sweep(&front_held, collect, &sweep);
		for (unsigned i = 0; i < sweep.found; i++)
			virtual_drop(sweep.backing[i]);
		atomic_fetch_sub(&tiles, sweep.found);
		if (sweep.found < sizeof(sweep.backing) / sizeof(sweep.backing[0]))
			return;
	}
}
