/* SPDX-License-Identifier: Apache-2.0 */
/* poolapi.c: stream-ordered allocation, and pools as handles. */
#include <string.h>
#include <unistd.h>

#include "cuda/enter.h"
#include "cuda/queue.h"
#include "memory/ipc.h"
#include "memory/memory.h"
#include "graph/record.h"

enum { HANDLE_FD = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR };

/* pool NULL: the current one of the stream's card */
static CUresult allocate(CUdeviceptr *dptr, size_t bytes, CUmemoryPool handle, CUstream hStream)
{
	struct sd_stream *stream = NULL;
	struct sd_pool *pool = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_stream_of(hStream, &stream);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (!dptr || !bytes)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (handle) {
		pool = sd_pool_get(handle);
		if (!pool || pool->imported)
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
	} else {
		result = sd_pool_current(stream->context->card, &pool);
		if (result != CUDA_SUCCESS)
			return sd_leave(result);
	}
	if (stream->capture)
		return sd_leave(sd_record_allocate(stream, pool, bytes, dptr));
	return sd_leave(sd_pool_take_again(pool, bytes, stream->object.id, dptr));
}

/* Memory that is freed once what is before it in its stream has been done. */
struct release {
	struct sd_step step;
	CUdeviceptr address;
	uint64_t as;
};

static CUresult release(struct sd_step *step, struct sd_stream *lane)
{
	const struct release *release = (struct release *)step;
	struct sd_memory *memory = sd_memory_from(release->address);

	(void)lane;
	/* unless the stream has it again */
	if (memory && memory->freeingas == release->as)
		memory->end(memory);
	return CUDA_SUCCESS;
}

static CUresult release_later(struct sd_stream *stream, struct sd_memory *memory)
{
	struct release *later = (struct release *)sd_step_new(stream, SD_STEP_COPY, sizeof(*later), false);

	if (!later)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory->freeing = stream->object.id;
	memory->freeingas = later->as = sd_next_id();
	if (memory->kind == SD_POOLED)
		((struct sd_pool *)memory->owner)->freeing++;
	later->address = memory->address;
	later->step.perform = release;
	sd_step_start(&later->step);
	return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return allocate(dptr, bytesize, NULL, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	return pool ? allocate(dptr, bytesize, pool, hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	struct sd_stream *stream = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_stream_of(hStream, &stream);
	if (result != CUDA_SUCCESS || !dptr)
		return sd_leave(result);
	if (stream->capture)
		return sd_leave(sd_record_free(stream, dptr));
	struct sd_memory *memory = NULL;

	result = sd_memory_returned(dptr, &memory);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	/* plain memory, too, goes back when the stream gets there */
	if (!memory || memory->freeingas ||
	    !(memory->kind == SD_LINEAR || memory->kind == SD_POOLED || memory->kind == SD_GRAPHED ||
	      (memory->kind == SD_OPENED && memory->owner)))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (sd_stream_busy(stream))
		return sd_leave(release_later(stream, memory));
	memory->end(memory);
	return sd_leave(CUDA_SUCCESS);
}

SD_PTSZ(cuMemAllocAsync, (CUdeviceptr *dptr, size_t bytesize, CUstream hStream), dptr, bytesize,
	sd_per_thread(hStream))
SD_PTSZ(cuMemAllocFromPoolAsync, (CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream), dptr,
	bytesize, pool, sd_per_thread(hStream))
SD_PTSZ(cuMemFreeAsync, (CUdeviceptr dptr, CUstream hStream), dptr, sd_per_thread(hStream))

/* Only memory of a card is pooled here: pools of host memory are not supported,
 * as the device attributes say. */
static struct sd_card *card_at(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? sd_card(location->id) : NULL;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	struct sd_pool *made = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!pool || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    (poolProps->handleTypes & ~(unsigned int)HANDLE_FD))
		return sd_leave(CUDA_ERROR_NOT_SUPPORTED);
	if (!card_at(&poolProps->location))
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	CUmemPoolProps props = *poolProps;

	if (sd_device_generation() < 12020)
		props.maxSize = 0; /* reserved then */
	result = sd_pool_new(card_at(&poolProps->location), &props, &made);
	if (result == CUDA_SUCCESS)
		*pool = (CUmemoryPool)made;
	return sd_leave(result);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult result = sd_enter_idle();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_pool *found = sd_pool_get(pool);

	if (!found || found->isdefault)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	sd_pool_destroy(found);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_pool *found = sd_pool_get(pool);

	if (!found)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	sd_pool_trim(found, minBytesToKeep);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_pool *found = sd_pool_get(pool);
	cuuint64_t amount = 0;

	if (!found || !value)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value = found->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
		return sd_leave(CUDA_SUCCESS);
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		amount = found->threshold;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		amount = found->reserved;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		amount = found->reservedhigh;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		amount = found->used;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		amount = found->usedhigh;
		break;
	default:
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	*(cuuint64_t *)value = amount;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_pool *found = sd_pool_get(pool);

	if (!found || !value)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		found->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(const int *)value != 0;
		return sd_leave(CUDA_SUCCESS);
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		found->threshold = *(const cuuint64_t *)value;
		return sd_leave(CUDA_SUCCESS);
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: /* high marks can only be reset */
		if (*(const cuuint64_t *)value)
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
		found->reservedhigh = found->reserved;
		return sd_leave(CUDA_SUCCESS);
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		if (*(const cuuint64_t *)value)
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
		found->usedhigh = found->used;
		return sd_leave(CUDA_SUCCESS);
	default:
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_pool *found = sd_pool_get(pool);

	if (!found || !map || !count)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < count; i++) {
		const struct sd_card *card = card_at(&map[i].location);

		if (!card)
			return sd_leave(CUDA_ERROR_INVALID_DEVICE);
		if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
		    (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE || card == found->card))
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	for (size_t i = 0; i < count; i++) {
		uint64_t bit = 1ull << map[i].location.id;

		found->readable = map[i].flags ? found->readable | bit : found->readable & ~bit;
		found->writable = found->readable;
	}
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_pool *found = sd_pool_get(memPool);

	if (!found || !flags || !location || !card_at(location))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = found->readable >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
						     : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return sd_leave(CUDA_SUCCESS);
}

static CUresult pool_of(CUdevice dev, CUresult (*which)(struct sd_card *, struct sd_pool **), CUmemoryPool *out)
{
	struct sd_pool *pool = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_card *card = sd_card(dev);

	if (!card)
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!out)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = which(card, &pool);
	if (result == CUDA_SUCCESS)
		*out = (CUmemoryPool)pool;
	return sd_leave(result);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
	return pool_of(dev, sd_pool_default, pool_out);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	return pool_of(dev, sd_pool_current, pool);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_card *card = sd_card(dev);
	struct sd_pool *found = sd_pool_get(pool);

	if (!card)
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!found || found->card != card || found->imported)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	card->currentpool = found;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
	if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return location ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	return cuDeviceGetDefaultMemPool(pool_out, location->id);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return location ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	return cuDeviceGetMemPool(pool, location->id);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return location ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	return cuDeviceSetMemPool(location->id, pool);
}

CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
					  unsigned long long flags)
{
	struct sim_object object;
	int fd = -1;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_pool *found = sd_pool_get(pool);

	if (!found || !handle_out || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !(found->props.handleTypes & HANDLE_FD) || found->imported)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (!found->identity) {
		result = sd_error(sim_object_create(found->card->index, DIVVY_SIM_OBJECT_POOL, 0, found->object.id,
						    &object));
		if (result != CUDA_SUCCESS)
			return sd_leave(result);
		found->identity = object.object;
	}
	result = sd_error(sim_object_export(found->identity, &fd));
	if (result == CUDA_SUCCESS)
		*(int *)handle_out = fd;
	return sd_leave(result);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle, CUmemAllocationHandleType handleType,
					    unsigned long long flags)
{
	struct sim_object object;
	struct sd_pool *pool = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!pool_out || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_error(sim_object_import((int)(intptr_t)handle, &object));
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	struct sd_card *card = sd_card_by_index(object.card);
	const CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = card ? card->ordinal : -1 },
	};

	result = object.kind != DIVVY_SIM_OBJECT_POOL ? CUDA_ERROR_INVALID_VALUE
		 : !card			      ? CUDA_ERROR_INVALID_DEVICE
						      : sd_pool_new(card, &props, &pool);
	if (result != CUDA_SUCCESS) {
		if (object.fd >= 0)
			close(object.fd);
		(void)sim_object_drop(object.object);
		return sd_leave(result);
	}
	pool->imported = true;
	pool->identity = object.object;
	*pool_out = (CUmemoryPool)pool;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_memory *memory = sd_memory_from(ptr);

	if (!shareData_out || !memory || memory->kind != SD_POOLED)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	const struct sd_pool *pool = memory->owner;

	if (!pool->identity)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_error(sim_ipc_export(memory->card->index, DIVVY_SIM_IPC_POINTER, ptr - memory->card->arena,
					 memory->bytes, pool->identity, shareData_out->reserved));
	if (result == CUDA_SUCCESS)
		memory->exported = true;
	return sd_leave(result);
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_pool *found = sd_pool_get(pool);

	if (!ptr_out || !shareData || !found || !found->imported)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return sd_leave(sd_ipc_open(shareData->reserved, NULL, found, ptr_out));
}
