/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c: host memory the card may reach. Its device address is its host
 * address. It costs the card nothing.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "cuda/capture.h"
#include "cuda/enter.h"
#include "cuda/queue.h"
#include "memory.h"

enum {
	ALLOC_FLAGS = 7, /* portable, device map, write combined */
	REGISTER_FLAGS = 15, /* portable, device map, io memory, read only */
};

static void end_host(struct sd_memory *memory)
{
	sd_memory_leave(memory);
	if (memory->kind == SD_HOST)
		munmap((void *)(uintptr_t)memory->address, memory->span);
	free(memory);
}

static CUresult allocate(void **pp, size_t bytes, unsigned int flags)
{
	struct sd_context *context = NULL;
	uint64_t span = 0;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pp || !bytes || flags & ~(unsigned int)ALLOC_FLAGS)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (!sd_round(bytes, SD_PAGE, &span))
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	result = sd_capture_forbids();
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	struct sd_memory *memory = calloc(1, sizeof(*memory));
	void *host = memory ? mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;

	if (host == MAP_FAILED) {
		free(memory);
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*memory = (struct sd_memory){
		.kind = SD_HOST, .address = (uint64_t)(uintptr_t)host, .bytes = bytes, .span = span,
		.card = context->card, .flags = flags, .end = end_host,
	};
	(void)sd_memory_enter(memory, context);
	*pp = host;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return allocate(pp, bytesize, 0);
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	return allocate(pp, bytesize, Flags);
}

CUresult cuMemFreeHost(void *p)
{
	struct sd_memory *memory = NULL;
	CUresult result = sd_enter_idle();

	if (result != CUDA_SUCCESS)
		return result;
	if (!p)
		return sd_leave(CUDA_SUCCESS);
	sd_stream_drain_all();
	result = sd_memory_returned((uint64_t)(uintptr_t)p, &memory);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (!memory || memory->kind != SD_HOST)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	memory->end(memory);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	struct sd_context *context = NULL;
	uint64_t address = (uint64_t)(uintptr_t)p;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!p || !bytesize || address > UINT64_MAX - bytesize || Flags & ~(unsigned int)REGISTER_FLAGS ||
	    sd_in_window(address))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sd_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*memory = (struct sd_memory){
		.kind = SD_REGISTERED, .address = address, .bytes = bytesize, .span = bytesize,
		.card = context->card, .flags = Flags, .end = end_host,
	};
	if (!sd_memory_enter(memory, context)) {
		free(memory);
		return sd_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	}
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemHostUnregister(void *p)
{
	struct sd_memory *memory = NULL;
	CUresult result = sd_enter_idle();

	if (result != CUDA_SUCCESS)
		return result;
	sd_stream_drain_all();
	result = sd_memory_returned((uint64_t)(uintptr_t)p, &memory);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (!memory || memory->kind != SD_REGISTERED)
		return sd_leave(p ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE);
	memory->end(memory);
	return sd_leave(CUDA_SUCCESS);
}

static struct sd_memory *pinned(const void *p)
{
	struct sd_memory *memory = sd_memory_at((uint64_t)(uintptr_t)p);

	return memory && (memory->kind == SD_HOST || memory->kind == SD_REGISTERED) ? memory : NULL;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pdptr || Flags || !pinned(p))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pdptr = (CUdeviceptr)(uintptr_t)p;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_memory *memory = pinned(p);

	if (!pFlags || !memory)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	/* with one address space for host and card all pinned memory is mapped */
	*pFlags = memory->flags | 2;
	return sd_leave(CUDA_SUCCESS);
}
