/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multicast.c: multicast objects.
 *
 * Rule: an object has no memory of its own and costs nothing. What is bound to
 * it was charged when it was made and stays charged until it is unbound, also
 * when its handle is released before; the object goes when its handles are
 * released and it is mapped nowhere, and with it what is still bound. A binding
 * is known by its first byte; one that is unbound in another shape than it was
 * bound in stays until the object goes: too much, never too little. An object that
 * other processes may have, because it was exported or imported, does not go as far
 * as we see: what is bound to it stays charged until it is unbound.
 */
#include "memory.h"
#include "front_hooks.h"

static _Atomic uint32_t bindings; /* how many there are, about */

static uint64_t binding_key(uint64_t object, CUdevice device, uint64_t offset)
{
	return memory_mix(memory_mix(memory_mix(1, object), (uint64_t)device), offset);
}

static void bound(CUmemGenericAllocationHandle handle, uint64_t offset, uint64_t backing)
{
	struct table_record binding = { .space = SPACE_BINDING, .bytes = virtual_of_handle(handle), .extra = backing };
	struct table_record memory, old;
	int rc;

	if (!binding.bytes || !table_get(&front_held, SPACE_BACKING, backing, &memory)) {
		virtual_drop(backing); /* to an object of another process: not followed */
		return;
	}
	binding.key = binding_key(binding.bytes, front_device(memory.slot), offset);
	rc = table_put(&front_held, &binding, &old);
	if (rc == 1)
		virtual_drop(old.extra);
	else if (rc == 0)
		atomic_fetch_add(&bindings, 1);
}

CUresult hook_cuMulticastCreate(enum divvy_symbol called, CUmemGenericAllocationHandle *mcHandle,
				const CUmulticastObjectProp *prop)
{
	CUmemGenericAllocationHandle handle = 0;
	CUresult result;

	if (!mcHandle || !prop || !front_enter())
		return REAL(called, cuMulticastCreate)(mcHandle, prop);
	result = REAL(called, cuMulticastCreate)(&handle, prop);
	if (result == CUDA_SUCCESS) {
		/* without a place for it nothing can be bound to it on the ledger */
		(void)virtual_note(handle, 0, 0, BACKING_MULTICAST);
		*mcHandle = handle;
	}
	front_leave();
	return result;
}

/* Holds what is to be bound before the driver is asked: a release beside us must not refund it. */
static uint64_t held(uint64_t backing)
{
	return backing && virtual_hold(backing) ? backing : 0;
}

/* What the driver said of binding it. */
static void bind_done(CUresult result, CUmemGenericAllocationHandle object, size_t offset, uint64_t backing)
{
	if (result != CUDA_SUCCESS)
		virtual_drop(backing);
	else if (backing)
		bound(object, offset, backing);
}

CUresult hook_cuMulticastBindMem(enum divvy_symbol called, CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
				 CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
				 unsigned long long flags)
{
	uint64_t backing;
	CUresult result;

	if (!front_enter())
		return REAL(called, cuMulticastBindMem)(mcHandle, mcOffset, memHandle, memOffset, size, flags);
	backing = held(virtual_of_handle(memHandle));
	result = REAL(called, cuMulticastBindMem)(mcHandle, mcOffset, memHandle, memOffset, size, flags);
	bind_done(result, mcHandle, mcOffset, backing);
	front_leave();
	return result;
}

CUresult hook_cuMulticastBindAddr(enum divvy_symbol called, CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
				  CUdeviceptr memptr, size_t size, unsigned long long flags)
{
	uint64_t backing;
	CUresult result;

	if (!front_enter())
		return REAL(called, cuMulticastBindAddr)(mcHandle, mcOffset, memptr, size, flags);
	backing = held(virtual_of_address(memptr));
	result = REAL(called, cuMulticastBindAddr)(mcHandle, mcOffset, memptr, size, flags);
	bind_done(result, mcHandle, mcOffset, backing);
	front_leave();
	return result;
}

CUresult hook_cuMulticastBindMem_v2(enum divvy_symbol called, CUmemGenericAllocationHandle mcHandle, CUdevice dev,
				    size_t mcOffset, CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
				    unsigned long long flags)
{
	uint64_t backing;
	CUresult result;

	if (!front_enter())
		return REAL(called, cuMulticastBindMem_v2)(mcHandle, dev, mcOffset, memHandle, memOffset, size, flags);
	backing = held(virtual_of_handle(memHandle));
	result = REAL(called, cuMulticastBindMem_v2)(mcHandle, dev, mcOffset, memHandle, memOffset, size, flags);
	bind_done(result, mcHandle, mcOffset, backing);
	front_leave();
	return result;
}

CUresult hook_cuMulticastBindAddr_v2(enum divvy_symbol called, CUmemGenericAllocationHandle mcHandle, CUdevice dev,
				     size_t mcOffset, CUdeviceptr memptr, size_t size, unsigned long long flags)
{
	uint64_t backing;
	CUresult result;

	if (!front_enter())
		return REAL(called, cuMulticastBindAddr_v2)(mcHandle, dev, mcOffset, memptr, size, flags);
	backing = held(virtual_of_address(memptr));
	result = REAL(called, cuMulticastBindAddr_v2)(mcHandle, dev, mcOffset, memptr, size, flags);
	bind_done(result, mcHandle, mcOffset, backing);
	front_leave();
	return result;
}

CUresult hook_cuMulticastUnbind(enum divvy_symbol called, CUmemGenericAllocationHandle mcHandle, CUdevice dev,
				size_t mcOffset, size_t size)
{
	struct table_record binding;
	CUresult result;

	if (!front_enter())
		return REAL(called, cuMulticastUnbind)(mcHandle, dev, mcOffset, size);
	result = REAL(called, cuMulticastUnbind)(mcHandle, dev, mcOffset, size);
	if (result == CUDA_SUCCESS &&
	    table_take(&front_held, SPACE_BINDING, binding_key(virtual_of_handle(mcHandle), dev, mcOffset), &binding)) {
		atomic_fetch_sub(&bindings, 1);
		virtual_drop(binding.extra);
	}
	front_leave();
	return result;
}

struct end {
	uint64_t object;
	unsigned found;
	uint64_t backing[64];
};

static bool collect(const struct table_record *record, void *arg)
{
	struct end *end = arg;

	if (record->space != SPACE_BINDING || record->bytes != end->object ||
	    end->found == sizeof(end->backing) / sizeof(end->backing[0]))
		return false;
	end->backing[end->found++] = record->extra;
	return true;
}

void multicast_gone(uint64_t object)
{
	struct end end = { .object = object };

	while (atomic_load_explicit(&bindings, memory_order_relaxed)) {
		end.found = 0;
		table_sweep(&front_held, collect, &end);
		for (unsigned i = 0; i < end.found; i++)
			virtual_drop(end.backing[i]);
		atomic_fetch_sub(&bindings, end.found);
		if (end.found < sizeof(end.backing) / sizeof(end.backing[0]))
			return;
	}
}
