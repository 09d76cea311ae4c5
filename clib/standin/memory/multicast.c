/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multicast.c: multicast objects, as far as memory goes: they cost nothing, and
 * what is bound to them is held until it is unbound or they are released. They
 * cannot be mapped (cuMemMap answers NOT_SUPPORTED): one store would have to
 * reach several cards, and the device attribute says that no card can.
 */
#include <stdlib.h>

#include "cuda/enter.h"
#include "memory.h"
#include "virtual.h"

struct binding {
	struct binding *next;
	struct sd_physical *physical;
	uint64_t offset; /* in the object */
	uint64_t bytes;
};

struct multicast {
	struct sd_object object;
	CUmulticastObjectProp props;
	uint64_t devices; /* bit per visible card */
	unsigned int count;
	struct binding *bindings;
};

static struct multicast *get(CUmemGenericAllocationHandle handle)
{
	return sd_object_get((const void *)(uintptr_t)handle, SD_MULTICAST);
}

bool sd_multicast_known(CUmemGenericAllocationHandle handle)
{
	return get(handle) != NULL;
}

static void unbind(struct binding **link)
{
	struct binding *binding = *link;

	*link = binding->next;
	sd_physical_drop(binding->physical);
	free(binding);
}

void sd_multicast_end(CUmemGenericAllocationHandle handle)
{
	struct multicast *multicast = get(handle);

	while (multicast->bindings)
		unbind(&multicast->bindings);
	sd_object_free(multicast);
}

static CUresult check(const CUmulticastObjectProp *prop)
{
	if (!prop || !prop->numDevices || !prop->size || prop->flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->numDevices > sd_card_count() ||
	    prop->handleTypes & ~(unsigned long long)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop,
				   CUmulticastGranularity_flags option)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!granularity || (unsigned int)option > 1)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = check(prop);
	if (result == CUDA_SUCCESS)
		*granularity = SD_STEP;
	return sd_leave(result);
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle, const CUmulticastObjectProp *prop)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = mcHandle ? check(prop) : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && prop->size % SD_STEP)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	struct multicast *made = sd_object_new(SD_MULTICAST, sizeof(*made), NULL);

	if (!made)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	made->props = *prop;
	*mcHandle = (CUmemGenericAllocationHandle)(uintptr_t)made;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct multicast *multicast = get(mcHandle);

	if (!multicast)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (!sd_card(dev))
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	if (multicast->devices >> dev & 1 || multicast->count == multicast->props.numDevices)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	multicast->devices |= 1ull << dev;
	multicast->count++;
	return sd_leave(CUDA_SUCCESS);
}

static CUresult bind(struct multicast *multicast, uint64_t offset, struct sd_physical *physical, uint64_t memoffset,
		     uint64_t bytes, unsigned long long flags)
{
	/* all its cards first */
	if (!multicast || !physical || flags || multicast->count != multicast->props.numDevices ||
	    !(multicast->devices >> physical->card->ordinal & 1))
		return CUDA_ERROR_INVALID_VALUE;
	if (!bytes || bytes % SD_STEP || offset % SD_STEP || memoffset % SD_STEP || offset > multicast->props.size ||
	    bytes > multicast->props.size - offset || memoffset > physical->bytes ||
	    bytes > physical->bytes - memoffset)
		return CUDA_ERROR_INVALID_VALUE;
	for (const struct binding *other = multicast->bindings; other; other = other->next) {
		if (other->physical->card == physical->card && offset < other->offset + other->bytes &&
		    other->offset < offset + bytes)
			return CUDA_ERROR_INVALID_VALUE;
	}
	struct binding *binding = malloc(sizeof(*binding));

	if (!binding)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sd_physical_hold(physical);
	*binding = (struct binding){ multicast->bindings, physical, offset, bytes };
	multicast->bindings = binding;
	return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
			    CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
			    unsigned long long flags)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	return sd_leave(bind(get(mcHandle), mcOffset, sd_physical_get(memHandle), memOffset, size, flags));
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size,
			     unsigned long long flags)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_memory *memory = sd_memory_at(memptr);

	if (!memory || memory->kind != SD_MAPPED || size > memory->bytes - (memptr - memory->address))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return sd_leave(bind(get(mcHandle), mcOffset, memory->owner, memory->offset + (memptr - memory->address), size,
			     flags));
}

/* With the device said: it must be the memory's, since peers' memory is not bound here. */
CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
			       CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
			       unsigned long long flags)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_physical *physical = sd_physical_get(memHandle);

	if (!sd_card(dev))
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	if (physical && physical->card != sd_card(dev))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return sd_leave(bind(get(mcHandle), mcOffset, physical, memOffset, size, flags));
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, CUdeviceptr memptr,
				size_t size, unsigned long long flags)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_memory *memory = sd_memory_at(memptr);

	if (!sd_card(dev))
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!memory || memory->kind != SD_MAPPED || size > memory->bytes - (memptr - memory->address) ||
	    ((const struct sd_physical *)memory->owner)->card != sd_card(dev))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return sd_leave(bind(get(mcHandle), mcOffset, memory->owner, memory->offset + (memptr - memory->address), size,
			     flags));
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, size_t size)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct multicast *multicast = get(mcHandle);
	struct sd_card *card = sd_card(dev);

	if (!multicast || !card)
		return sd_leave(card ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE);
	for (struct binding **link = &multicast->bindings; *link; link = &(*link)->next) {
		if ((*link)->physical->card == card && (*link)->offset == mcOffset && (*link)->bytes == size) {
			unbind(link);
			return sd_leave(CUDA_SUCCESS);
		}
	}
	return sd_leave(CUDA_ERROR_INVALID_VALUE);
}
