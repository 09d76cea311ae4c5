/* SPDX-License-Identifier: Apache-2.0 */
#include "context.h"

#include <stdlib.h>
#include <string.h>

#include "divvy_limits.h"

static void default_limits(struct sd_context *context)
{
	memset(context->limit, 0, sizeof(context->limit));
	context->limit[CU_LIMIT_STACK_SIZE] = DIVVY_LIMIT_STACK_DEFAULT;
	context->limit[CU_LIMIT_PRINTF_FIFO_SIZE] = DIVVY_LIMIT_PRINTF_DEFAULT;
	context->limit[CU_LIMIT_MALLOC_HEAP_SIZE] = DIVVY_LIMIT_HEAP_DEFAULT;
	context->limit[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
	context->limit[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
	context->limit[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

static CUresult bring_up(struct sd_context *context)
{
	if (sim_card_flags(context->card->facts->parent))
		return CUDA_ERROR_DEVICE_UNAVAILABLE; /* fallen off the bus, or waiting for a reset */
	CUresult result = sd_charge(context->card, DIVVY_SIM_KIND_CONTEXT, DIVVY_SIM_CONTEXT_BYTES);

	if (result != CUDA_SUCCESS)
		return result;
	default_limits(context);
	context->limitbytes = 0;
	context->peers = 0;
	context->cache = CU_FUNC_CACHE_PREFER_NONE;
	context->banks = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
	context->sticky = CUDA_SUCCESS;
	context->alive = true;
	return CUDA_SUCCESS;
}

CUresult sd_context_new(struct sd_card *card, unsigned int flags, unsigned int version, bool primary,
			struct sd_context **out)
{
	struct sd_context *context = sd_object_new(SD_CONTEXT, sizeof(*context), &card->contexts);

	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	context->card = card;
	context->flags = flags;
	context->version = version;
	context->primary = primary;
	context->attached = 1;
	CUresult result = bring_up(context);

	if (result != CUDA_SUCCESS) {
		sd_object_free(context);
		return result;
	}
	*out = context;
	return CUDA_SUCCESS;
}

CUresult sd_primary_retain(struct sd_card *card, struct sd_context **out)
{
	CUresult result = CUDA_SUCCESS;

	if (!card->primary)
		result = sd_context_new(card, card->primaryflags, 3020, true, &card->primary);
	else if (!card->primary->alive)
		result = bring_up(card->primary);
	if (result != CUDA_SUCCESS)
		return result;
	card->primary->flags = card->primaryflags;
	card->primaryrefs++;
	*out = card->primary;
	return CUDA_SUCCESS;
}

void sd_context_end(struct sd_context *context)
{
	if (!context->alive)
		return;
	context->alive = false;
	while (context->object.first)
		sd_object_end(context->object.first);
	if (context->drop)
		context->drop(context);
	if (context->limitbytes)
		(void)sd_adjust(context->card, DIVVY_SIM_KIND_CONTEXT, -(int64_t)context->limitbytes);
	context->limitbytes = 0;
	sd_release(context->card, DIVVY_SIM_KIND_CONTEXT, DIVVY_SIM_CONTEXT_BYTES);
	if (!context->primary)
		sd_object_free(context);
}

struct sd_context *sd_context_get(CUcontext handle)
{
	struct sd_context *context = sd_object_get(handle, SD_CONTEXT);

	return context && context->alive ? context : NULL;
}

CUresult sd_context_healthy(const struct sd_context *context)
{
	return context->sticky;
}

CUresult sd_context_current(struct sd_context **context)
{
	struct sd_thread *thread = sd_thread();

	if (!thread)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (thread->depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	const struct sd_entry *top = &thread->stack[thread->depth - 1];
	struct sd_context *found = sd_object_get(top->context, SD_CONTEXT);

	if (!found || found->object.id != top->id || !found->alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*context = found;
	return CUDA_SUCCESS;
}

CUresult sd_context_push(struct sd_context *context)
{
	struct sd_thread *thread = sd_thread();

	if (!thread)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (thread->depth == thread->room) {
		size_t room = thread->room ? thread->room * 2 : 4;
		struct sd_entry *stack = realloc(thread->stack, room * sizeof(*stack));

		if (!stack)
			return CUDA_ERROR_OUT_OF_MEMORY;
		thread->stack = stack;
		thread->room = room;
	}
	thread->stack[thread->depth++] = (struct sd_entry){ context, context->object.id };
	return CUDA_SUCCESS;
}

CUresult sd_context_pop(struct sd_context **context)
{
	struct sd_thread *thread = sd_thread();

	if (!thread || thread->depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*context = thread->stack[--thread->depth].context;
	return CUDA_SUCCESS;
}
