/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/enter.h"
#include "cuda/event.h"
#include "cuda/queue.h"
#include "memory.h"
#include "pool.h"
#include "cuda/sharedevent.h"

/* One opened handle of another process. */
struct opened {
	struct sd_memory memory; /* first: what end_opened is given */
	struct opened *next;
	uint64_t process;
	uint64_t place; /* in the exporter's arena */
	uint32_t kind;
	unsigned int refs;
};

static struct opened *all;

/* Addresses for bytes that begin at an offset into a page of what is mapped. */
static CUresult take_addresses(uint64_t offset, uint64_t bytes, uint64_t *at, uint64_t *length)
{
	if (bytes > UINT64_MAX - SD_PAGE || !sd_round(bytes + offset % SD_PAGE, SD_PAGE, length))
		return CUDA_ERROR_INVALID_VALUE;
	return sd_error(sd_space_take(sd_virtual_space(), *length, SD_STEP, at));
}

CUresult sd_map_file(int fd, uint64_t offset, uint64_t bytes, uint64_t *address, uint64_t *span)
{
	uint64_t at = 0;
	CUresult result = take_addresses(offset, bytes, &at, span);

	if (result != CUDA_SUCCESS)
		return result;
	if (mmap(sd_alias(at), *span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd,
		 (off_t)(offset - offset % SD_PAGE)) == MAP_FAILED) {
		sd_space_give(sd_virtual_space(), at, *span);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*address = at + offset % SD_PAGE;
	return CUDA_SUCCESS;
}

CUresult sd_map_view(uint64_t view, uint64_t offset, uint64_t bytes, uint64_t *address, uint64_t *span)
{
	uint64_t at = 0;
	CUresult result = take_addresses(offset, bytes, &at, span);

	if (result != CUDA_SUCCESS)
		return result;
	if (sd_map_again(view + offset - offset % SD_PAGE, *span, sd_alias(at)) < 0) {
		sd_space_give(sd_virtual_space(), at, *span);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*address = at + offset % SD_PAGE;
	return CUDA_SUCCESS;
}

void sd_unmap_file(uint64_t address, uint64_t span)
{
	uint64_t at = address & ~(uint64_t)(SD_PAGE - 1);

	sd_unmap(sd_alias(at), span);
	sd_space_give(sd_virtual_space(), at, span);
}

static void end_opened(struct sd_memory *memory)
{
	struct opened *opened = (struct opened *)(void *)memory;
	struct opened **link = &all;

	while (*link && *link != opened)
		link = &(*link)->next;
	if (*link)
		*link = opened->next;
	sd_memory_leave(memory);
	sd_unmap_file(memory->address, memory->span);
	free(opened);
}

CUresult sd_ipc_open(const unsigned char *handle, struct sd_context *context, struct sd_pool *pool,
		     CUdeviceptr *address)
{
	struct sim_ipc what;
	uint32_t kind = pool ? DIVVY_SIM_IPC_POINTER : DIVVY_SIM_IPC_MEMORY;
	int error = sim_ipc_open(handle, &what);

	if (error == -EALREADY)
		return pool ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
	if (error < 0)
		return sd_error(error);
	struct sd_card *card = sd_card_by_index(what.card);
	struct opened *opened = NULL;
	CUresult result = CUDA_SUCCESS;

	if (what.kind != kind || (pool && what.token != pool->identity))
		result = CUDA_ERROR_INVALID_VALUE;
	else if (!card)
		result = CUDA_ERROR_INVALID_DEVICE;
	for (opened = all; result == CUDA_SUCCESS && opened; opened = opened->next) {
		if (opened->process == what.process && opened->place == what.offset && opened->kind == kind &&
		    opened->memory.card == card)
			break;
	}
	if (result != CUDA_SUCCESS || opened) {
		close(what.fd);
		if (result != CUDA_SUCCESS)
			return result;
		opened->refs++;
		*address = opened->memory.address;
		return CUDA_SUCCESS;
	}
	opened = calloc(1, sizeof(*opened));
	if (!opened) {
		close(what.fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*opened = (struct opened){
		.memory = { .kind = SD_OPENED, .bytes = what.bytes, .card = card, .owner = pool, .end = end_opened },
		.process = what.process, .place = what.offset, .kind = kind, .refs = 1,
	};
	result = sd_map_file(what.fd, what.offset, what.bytes, &opened->memory.address, &opened->memory.span);
	close(what.fd);
	if (result != CUDA_SUCCESS) {
		free(opened);
		return result;
	}
	(void)sd_memory_enter(&opened->memory, context);
	opened->next = all;
	all = opened;
	*address = opened->memory.address;
	return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_memory *memory = sd_memory_at(dptr);

	if (!pHandle || !memory || memory->kind != SD_LINEAR)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_error(sim_ipc_export(memory->card->index, DIVVY_SIM_IPC_MEMORY,
					 memory->address - memory->card->arena, memory->bytes, memory->id,
					 (unsigned char *)pHandle->reserved));
	if (result == CUDA_SUCCESS)
		memory->exported = true;
	return sd_leave(result);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return sd_leave(sd_ipc_open((const unsigned char *)handle.reserved, context, NULL, pdptr));
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	struct sd_memory *memory = NULL;
	CUresult result = sd_enter_idle();

	if (result != CUDA_SUCCESS)
		return result;
	sd_stream_drain_all();
	result = sd_memory_returned(dptr, &memory);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);

	if (!memory || memory->kind != SD_OPENED || memory->owner)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct opened *opened = (struct opened *)(void *)memory;

	if (--opened->refs == 0)
		end_opened(memory);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_event *found = sd_object_get(event, SD_EVENT);

	if (!found)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!pHandle || !(found->flags & CU_EVENT_INTERPROCESS) || found->opened)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_error(sim_ipc_export(found->context->card->index, DIVVY_SIM_IPC_EVENT, found->object.id, 1, found->flags,
					 (unsigned char *)pHandle->reserved));
	if (result == CUDA_SUCCESS && !found->handle)
		result = sd_shared_make(found, (const unsigned char *)pHandle->reserved);
	return sd_leave(result);
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
	struct sd_context *context = NULL;
	struct sim_ipc what;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!phEvent)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	int error = sim_ipc_open((const unsigned char *)handle.reserved, &what);

	if (error < 0)
		return sd_leave(error == -EALREADY ? CUDA_ERROR_INVALID_CONTEXT : sd_error(error));
	if (what.fd >= 0)
		close(what.fd);
	if (what.kind != DIVVY_SIM_IPC_EVENT)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sd_event *event = NULL;

	result = sd_event_new(context, (unsigned int)what.token | CU_EVENT_DISABLE_TIMING, &event);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	event->opened = true;
	result = sd_shared_make(event, (const unsigned char *)handle.reserved);
	if (result != CUDA_SUCCESS) {
		sd_object_end(event);
		return sd_leave(result);
	}
	event->recorded = true;
	*phEvent = (CUevent)event;
	return sd_leave(CUDA_SUCCESS);
}
