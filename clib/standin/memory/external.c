/* SPDX-License-Identifier: Apache-2.0 */
/*
 * external.c: external memory by opaque descriptor: one that cuMemCreate's
 * memory was exported as, or any memory file. It costs the card nothing: its
 * maker has paid. Mappings outlive the import.
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "array.h"
#include "cuda/enter.h"
#include "ipc.h"
#include "memory.h"

struct external {
	struct sd_object object;
	struct sd_card *card;
	uint64_t bytes;
	uint64_t number; /* the simulator's object, 0 for a plain file */
	uint64_t view; /* addresses of its own, where the driver sees all of it */
	uint64_t span;
};

static CUresult import(const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc, struct sd_card *card, struct external *external)
{
	struct sim_object object;
	struct stat status;

	if (sim_object_import(desc->handle.fd, &object) == 0) {
		if (object.kind != DIVVY_SIM_OBJECT_MEMORY || object.fd < 0 || object.bytes < desc->size) {
			if (object.fd >= 0)
				close(object.fd);
			(void)sim_object_drop(object.object);
			return CUDA_ERROR_INVALID_VALUE;
		}
		struct sd_card *owner = sd_card_by_index(object.card);

		external->card = owner ? owner : card;
		external->bytes = desc->size;
		CUresult result = sd_map_file(object.fd, 0, desc->size, &external->view, &external->span);

		close(object.fd);
		if (result == CUDA_SUCCESS)
			external->number = object.object;
		else
			(void)sim_object_drop(object.object);
		return result;
	}
	if (fstat(desc->handle.fd, &status) < 0 || !S_ISREG(status.st_mode) || (uint64_t)status.st_size < desc->size)
		return CUDA_ERROR_INVALID_VALUE;
	external->card = card;
	external->bytes = desc->size;
	return sd_map_file(desc->handle.fd, 0, desc->size, &external->view, &external->span);
}

CUresult cuImportExternalMemory(CUexternalMemory *extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!extMem_out || !memHandleDesc || !memHandleDesc->size || memHandleDesc->flags > 1)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (memHandleDesc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
		return sd_leave(CUDA_ERROR_NOT_SUPPORTED);
	struct external *external = sd_object_new(SD_EXTERNAL_MEMORY, sizeof(*external), NULL);

	if (!external)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	result = import(memHandleDesc, context->card, external);
	if (result != CUDA_SUCCESS) {
		sd_object_free(external);
		return sd_leave(result);
	}
	close(memHandleDesc->handle.fd); /* the descriptor is the driver's from here on */
	*extMem_out = (CUexternalMemory)external;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDestroyExternalMemory(CUexternalMemory extMem)
{
	CUresult result = sd_enter_idle();

	if (result != CUDA_SUCCESS)
		return result;
	struct external *external = sd_object_get(extMem, SD_EXTERNAL_MEMORY);

	if (!external)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	sd_unmap_file(external->view, external->span);
	if (external->number)
		(void)sim_object_drop(external->number);
	sd_object_free(external);
	return sd_leave(CUDA_SUCCESS);
}

static void end_imported(struct sd_memory *memory)
{
	sd_memory_leave(memory);
	sd_unmap_file(memory->address, memory->span);
	free(memory);
}

/* maps a part of it as device memory of the context */
static CUresult map(struct sd_context *context, const struct external *external, uint64_t offset, uint64_t bytes,
		    struct sd_memory **out)
{
	if (!bytes || offset > external->bytes || bytes > external->bytes - offset)
		return CUDA_ERROR_INVALID_VALUE;
	struct sd_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*memory = (struct sd_memory){ .kind = SD_IMPORTED, .bytes = bytes, .card = external->card, .end = end_imported };
	CUresult result = sd_map_view(external->view, offset, bytes, &memory->address, &memory->span);

	if (result != CUDA_SUCCESS) {
		free(memory);
		return result;
	}
	(void)sd_memory_enter(memory, context);
	*out = memory;
	return CUDA_SUCCESS;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem,
					 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc)
{
	struct sd_context *context = NULL;
	struct sd_memory *memory = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	const struct external *external = sd_object_get(extMem, SD_EXTERNAL_MEMORY);

	if (!external)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!devPtr || !bufferDesc || bufferDesc->flags)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = map(context, external, bufferDesc->offset, bufferDesc->size, &memory);
	if (result == CUDA_SUCCESS)
		*devPtr = memory->address;
	return sd_leave(result);
}

CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *mipmap, CUexternalMemory extMem,
						 const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *mipmapDesc)
{
	struct sd_context *context = NULL;
	struct sd_memory *memory = NULL;
	struct sd_mipmap *made = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	const struct external *external = sd_object_get(extMem, SD_EXTERNAL_MEMORY);

	if (!external)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!mipmap || !mipmapDesc || mipmapDesc->offset >= external->bytes)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = map(context, external, mipmapDesc->offset, external->bytes - mipmapDesc->offset, &memory);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	const struct sd_texels texels = { .address = memory->address, .bytes = memory->bytes, .mapping = memory };

	result = sd_mipmap_new(context, &mipmapDesc->arrayDesc, mipmapDesc->numLevels, &texels, &made);
	if (result == CUDA_SUCCESS)
		*mipmap = (CUmipmappedArray)made;
	else
		end_imported(memory);
	return sd_leave(result);
}
