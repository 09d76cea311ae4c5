/* SPDX-License-Identifier: Apache-2.0 */
/* pointer.c: what an address is: cuPointerGetAttribute and friends. */
#include <string.h>

#include "cuda/enter.h"
#include "memory.h"
#include "virtual.h"

static bool on_host(const struct sd_memory *memory)
{
	return memory->kind == SD_HOST || memory->kind == SD_REGISTERED;
}

/* memory NULL: an address the driver does not know */
static CUresult attribute(void *data, CUpointer_attribute which, CUdeviceptr ptr, struct sd_memory *memory)
{
	struct sd_context *primary = NULL;

	switch (which) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		if (!memory)
			return CUDA_ERROR_INVALID_VALUE;
		/* pools and mappings belong to no context */
		primary = memory->card ? memory->card->primary : NULL;
		*(CUcontext *)data = (CUcontext)(memory->context ? memory->context : primary);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		if (!memory)
			return CUDA_ERROR_INVALID_VALUE;
		*(unsigned int *)data = on_host(memory) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		if (!memory)
			return CUDA_ERROR_INVALID_VALUE;
		*(CUdeviceptr *)data = ptr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!memory || (!on_host(memory) && memory->kind != SD_MANAGED))
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)data = (void *)(uintptr_t)ptr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return CUDA_ERROR_NOT_SUPPORTED;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		if (!memory)
			return CUDA_ERROR_INVALID_VALUE;
		*(unsigned int *)data = memory->syncmemops;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		if (!memory)
			return CUDA_ERROR_INVALID_VALUE;
		*(unsigned long long *)data = memory->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)data = memory && memory->kind == SD_MANAGED;
		return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		if (!memory)
			return CUDA_ERROR_INVALID_VALUE;
		*(int *)data = memory->card ? memory->card->ordinal : -1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned int *)data = memory && memory->kind == SD_LINEAR;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		if (!memory)
			return CUDA_ERROR_INVALID_VALUE;
		*(CUdeviceptr *)data = memory->address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		if (!memory)
			return CUDA_ERROR_INVALID_VALUE;
		*(size_t *)data = memory->bytes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned int *)data = memory != NULL;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(unsigned int *)data = memory && memory->kind == SD_MAPPED
						? (unsigned int)((struct sd_physical *)memory->owner)->props.requestedHandleTypes
						: 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*(unsigned int *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		if (!memory)
			return CUDA_ERROR_INVALID_VALUE;
		*(unsigned int *)data = memory->kind == SD_MAPPED && !memory->writable ? (memory->readable ? 1 : 0) : 3;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = memory && (memory->kind == SD_POOLED || memory->kind == SD_OPENED)
						? (CUmemoryPool)memory->owner
						: NULL;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		if (!memory)
			return CUDA_ERROR_INVALID_VALUE;
		*(unsigned long long *)data =
			memory->kind == SD_MAPPED ? ((struct sd_physical *)memory->owner)->object.id : memory->id;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* how many attributes a generation knows */
static unsigned int last_attribute(void)
{
	int generation = sd_device_generation();

	return generation < 12000   ? CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
	       : generation < 12080 ? CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID
				    : CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute_, CUdeviceptr ptr)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!data || (unsigned int)attribute_ > last_attribute())
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return sd_leave(attribute(data, attribute_, ptr, sd_memory_at(ptr)));
}

/* size of an attribute's value, for those that read as zero where they make no sense */
static size_t value_bytes(CUpointer_attribute which)
{
	switch (which) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		return 4;
	default:
		return 8;
	}
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
				CUdeviceptr ptr)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!numAttributes || !attributes || !data)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	for (unsigned int i = 0; i < numAttributes; i++) {
		if (!data[i] || (unsigned int)attributes[i] < 1 || (unsigned int)attributes[i] > last_attribute())
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	struct sd_memory *memory = sd_memory_at(ptr);

	/* unlike the single call this one does not fail for unknown addresses */
	for (unsigned int i = 0; i < numAttributes; i++) {
		if (attribute(data[i], attributes[i], ptr, memory) == CUDA_SUCCESS)
			continue;
		memset(data[i], 0, value_bytes(attributes[i]));
		if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)data[i] = -2;
	}
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute_, CUdeviceptr ptr)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_memory *memory = sd_memory_at(ptr);

	if (!value || !memory || attribute_ != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || on_host(memory))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	memory->syncmemops = *(const unsigned int *)value != 0;
	return sd_leave(CUDA_SUCCESS);
}
