/* SPDX-License-Identifier: Apache-2.0 */
#include "virtual.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/capture.h"
#include "cuda/enter.h"
#include "cuda/queue.h"
#include "ipc.h"
#include "memory.h"

enum { HANDLE_FD = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR };

struct reservation {
	struct sd_node node;
	uint64_t address;
	uint64_t bytes;
};

static struct sd_tree reservations;

static struct reservation *reservation_at(uint64_t address)
{
	struct sd_node *node = sd_tree_floor(&reservations, address, UINT64_MAX);

	if (!node)
		return NULL;
	struct reservation *found = SD_OWNER(node, struct reservation, node);

	return address - found->address < found->bytes ? found : NULL;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
			     unsigned long long flags)
{
	uint64_t address = 0;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!ptr || !size || size % SD_STEP || (alignment & (alignment - 1)) || flags)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (alignment < SD_STEP)
		alignment = SD_STEP;
	struct reservation *reservation = malloc(sizeof(*reservation));

	if (!reservation)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	/* addr is a wish */
	int error = addr && addr % alignment == 0 ? sd_space_take_at(sd_virtual_space(), addr, size) : -ENOSPC;

	if (error == 0)
		address = addr;
	else
		error = sd_space_take(sd_virtual_space(), size, alignment, &address);
	if (error < 0) {
		free(reservation);
		return sd_leave(sd_error(error));
	}
	reservation->address = address;
	reservation->bytes = size;
	sd_tree_add(&reservations, &reservation->node, address, 0);
	*ptr = address;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct reservation *reservation = reservation_at(ptr);
	const struct sd_memory *above = sd_memory_after(ptr);

	if (!reservation || reservation->address != ptr || reservation->bytes != size ||
	    (above && above->address - ptr < size))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	sd_tree_remove(&reservations, &reservation->node);
	sd_space_give(sd_virtual_space(), ptr, size);
	free(reservation);
	return sd_leave(CUDA_SUCCESS);
}

/* the card a property names; only device memory that a descriptor can share */
static CUresult check(const CUmemAllocationProp *prop, struct sd_card **card)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    ((unsigned int)prop->requestedHandleTypes & ~(unsigned int)HANDLE_FD))
		return CUDA_ERROR_NOT_SUPPORTED;
	*card = sd_card(prop->location.id);
	return *card ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	struct sd_card *card = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = check(prop, &card);
	if (result == CUDA_SUCCESS)
		*granularity = SD_STEP;
	return sd_leave(result);
}

static struct sd_physical *physical_new(const struct sim_object *object, struct sd_card *card,
					const CUmemAllocationProp *props)
{
	struct sd_physical *physical = sd_object_new(SD_PHYSICAL, sizeof(*physical), NULL);
	CUresult result = physical ? sd_map_file(object->fd, 0, object->bytes, &physical->view, &physical->span)
				   : CUDA_ERROR_OUT_OF_MEMORY;

	close(object->fd);
	if (result != CUDA_SUCCESS) {
		if (physical)
			sd_object_free(physical);
		(void)sim_object_drop(object->object);
		return NULL;
	}
	physical->card = card;
	physical->props = *props;
	physical->bytes = object->bytes;
	physical->number = object->object;
	physical->refs = 1;
	return physical;
}

struct sd_physical *sd_physical_get(CUmemGenericAllocationHandle handle)
{
	struct sd_physical *physical = sd_object_get((const void *)(uintptr_t)handle, SD_PHYSICAL);

	return physical && physical->refs ? physical : NULL;
}

static void settle(struct sd_physical *physical)
{
	if (physical->refs || physical->mappings)
		return;
	sd_unmap_file(physical->view, physical->span);
	(void)sim_object_drop(physical->number);
	sd_object_free(physical);
}

void sd_physical_hold(struct sd_physical *physical)
{
	physical->mappings++;
}

void sd_physical_drop(struct sd_physical *physical)
{
	physical->mappings--;
	settle(physical);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
		     unsigned long long flags)
{
	struct sim_object object;
	struct sd_card *card = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!handle || !size || size % SD_STEP || flags)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = check(prop, &card);
	if (result == CUDA_SUCCESS)
		result = sd_capture_forbids();
	if (result == CUDA_SUCCESS)
		result = sd_error(sim_object_create(card->index, DIVVY_SIM_OBJECT_MEMORY, size,
						    (uint64_t)prop->requestedHandleTypes, &object));
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	struct sd_physical *physical = physical_new(&object, card, prop);

	if (!physical)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_physical *physical = sd_physical_get(handle);

	if (sd_multicast_known(handle)) {
		sd_multicast_end(handle);
		return sd_leave(CUDA_SUCCESS);
	}
	if (!physical)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	physical->refs--;
	settle(physical);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_physical *physical = sd_physical_get(handle);
	const struct reservation *reservation = reservation_at(ptr);

	if (sd_multicast_known(handle))
		return sd_leave(CUDA_ERROR_NOT_SUPPORTED);
	if (!physical || !reservation || !size || size % SD_STEP || ptr % SD_STEP || offset % SD_STEP || flags ||
	    offset > physical->bytes || size > physical->bytes - offset ||
	    size > reservation->bytes - (ptr - reservation->address))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sd_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*memory = (struct sd_memory){
		.kind = SD_MAPPED, .address = ptr, .bytes = size, .span = size, .card = physical->card,
		.owner = physical, .offset = offset,
	};
	if (!sd_memory_enter(memory, NULL)) {
		free(memory);
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	if (sd_map_again(physical->view + offset, size, sd_alias(ptr)) < 0) {
		sd_memory_leave(memory);
		free(memory);
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	sd_physical_hold(physical);
	return sd_leave(CUDA_SUCCESS);
}

/* Whether mappings cover [address, address + bytes) exactly, from the start of
 * the first to the end of the last. */
static bool whole_mappings(uint64_t address, uint64_t bytes)
{
	if (!bytes)
		return false;
	while (bytes) {
		const struct sd_memory *memory = sd_memory_from(address);

		if (!memory || memory->kind != SD_MAPPED || memory->bytes > bytes)
			return false;
		address += memory->bytes;
		bytes -= memory->bytes;
	}
	return true;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	CUresult result = sd_enter_idle();

	if (result != CUDA_SUCCESS)
		return result;
	sd_stream_drain_all();
	if (!whole_mappings(ptr, size))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	sd_unmap(sd_alias(ptr), size);
	while (size) {
		struct sd_memory *memory = sd_memory_from(ptr);
		struct sd_physical *physical = memory->owner;

		ptr += memory->bytes;
		size -= memory->bytes;
		sd_memory_leave(memory);
		free(memory);
		sd_physical_drop(physical);
	}
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!desc || !count || !whole_mappings(ptr, size))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < count; i++) {
		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return sd_leave(CUDA_ERROR_NOT_SUPPORTED);
		if (!sd_card(desc[i].location.id))
			return sd_leave(CUDA_ERROR_INVALID_DEVICE);
		if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
		    desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	while (size) {
		struct sd_memory *memory = sd_memory_from(ptr);

		for (size_t i = 0; i < count; i++) {
			uint64_t bit = 1ull << desc[i].location.id;

			memory->readable &= ~bit;
			memory->writable &= ~bit;
			if (desc[i].flags)
				memory->readable |= bit;
			if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
				memory->writable |= bit;
		}
		ptr += memory->bytes;
		size -= memory->bytes;
	}
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_memory *memory = sd_memory_at(ptr);

	if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sd_card(location->id) ||
	    !memory || memory->kind != SD_MAPPED)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = memory->writable >> location->id & 1	? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
		 : memory->readable >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
							: CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_memory *memory = sd_memory_at((uint64_t)(uintptr_t)addr);

	if (!handle || !memory || memory->kind != SD_MAPPED)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sd_physical *physical = memory->owner;

	physical->refs++;
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_physical *physical = sd_physical_get(handle);

	if (!prop || !physical)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*prop = physical->props;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType handleType, unsigned long long flags)
{
	int fd = -1;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_physical *physical = sd_physical_get(handle);

	if (!physical || !shareableHandle || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !((unsigned int)physical->props.requestedHandleTypes & HANDLE_FD))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_error(sim_object_export(physical->number, &fd));
	if (result == CUDA_SUCCESS)
		*(int *)shareableHandle = fd;
	return sd_leave(result);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
					CUmemAllocationHandleType shHandleType)
{
	struct sim_object object;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return sd_leave(handle ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE);
	result = sd_error(sim_object_import((int)(intptr_t)osHandle, &object));
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	struct sd_card *card = sd_card_by_index(object.card);

	if (object.kind != DIVVY_SIM_OBJECT_MEMORY || !card) {
		if (object.fd >= 0)
			close(object.fd);
		(void)sim_object_drop(object.object);
		return sd_leave(card ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE);
	}
	const CUmemAllocationProp props = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = card->ordinal },
	};
	struct sd_physical *physical = physical_new(&object, card, &props);

	if (!physical)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
	return sd_leave(CUDA_SUCCESS);
}
