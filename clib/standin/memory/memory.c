/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"

static struct sd_tree ranges;

struct sd_memory *sd_memory_at(uint64_t address)
{
	struct sd_node *node = sd_tree_floor(&ranges, address, UINT64_MAX);

	if (!node)
		return NULL;
	struct sd_memory *memory = SD_OWNER(node, struct sd_memory, node);

	return address - memory->address < memory->bytes ? memory : NULL;
}

struct sd_memory *sd_memory_from(uint64_t address)
{
	struct sd_memory *memory = sd_memory_at(address);

	return memory && memory->address == address ? memory : NULL;
}

CUresult sd_memory_returned(uint64_t address, struct sd_memory **memory)
{
	struct sd_context *context = NULL;

	*memory = sd_memory_from(address);
	if (*memory)
		context = (*memory)->context;
	if (!context && sd_context_current(&context) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	return sd_context_healthy(context);
}

struct sd_memory *sd_memory_after(uint64_t address)
{
	struct sd_node *node = sd_tree_ceiling(&ranges, address, 0);

	return node ? SD_OWNER(node, struct sd_memory, node) : NULL;
}

static void drop(struct sd_context *context)
{
	while (context->memories)
		context->memories->end(context->memories);
}

bool sd_memory_enter(struct sd_memory *memory, struct sd_context *context)
{
	struct sd_memory *above = sd_memory_after(memory->address);

	if (sd_memory_at(memory->address) || (above && above->address - memory->address < memory->bytes))
		return false;
	sd_tree_add(&ranges, &memory->node, memory->address, 0);
	memory->id = sd_next_id();
	memory->context = context;
	if (context) {
		memory->prev = NULL;
		memory->next = context->memories;
		if (context->memories)
			context->memories->prev = memory;
		context->memories = memory;
		context->drop = drop;
	}
	return true;
}

void sd_memory_leave(struct sd_memory *memory)
{
	sd_tree_remove(&ranges, &memory->node);
	if (!memory->context)
		return;
	if (memory->next)
		memory->next->prev = memory->prev;
	if (memory->prev)
		memory->prev->next = memory->next;
	else
		memory->context->memories = memory->next;
}

CUresult sd_arena_take(struct sd_card *card, uint64_t bytes, uint64_t align, uint64_t *address)
{
	int result = sd_card_arena(card);

	if (result == 0)
		result = sd_space_take(&card->space, bytes, align, address);
	return sd_error(result);
}

void sd_arena_clear(uint64_t address, uint64_t bytes)
{
	uint64_t end = address + bytes;
	uint64_t first = (address + SD_PAGE - 1) & ~(uint64_t)(SD_PAGE - 1);
	uint64_t last = end & ~(uint64_t)(SD_PAGE - 1);

	if (first >= last || sd_punch(first, last - first) < 0) {
		memset(sd_alias(address), 0, bytes);
		return;
	}
	memset(sd_alias(address), 0, first - address);
	memset(sd_alias(last), 0, end - last);
}

void sd_arena_give(struct sd_card *card, uint64_t address, uint64_t bytes)
{
	uint64_t first = (address + SD_PAGE - 1) & ~(uint64_t)(SD_PAGE - 1);
	uint64_t last = (address + bytes) & ~(uint64_t)(SD_PAGE - 1);

	/* whole pages go back to the host; the ends share pages with neighbours */
	if (first < last)
		(void)sd_punch(first, last - first);
	sd_space_give(&card->space, address, bytes);
}

static void end_linear(struct sd_memory *memory)
{
	if (memory->kind == SD_MANAGED)
		sd_unmap((void *)(uintptr_t)memory->address, memory->span);
	if (memory->exported)
		(void)sim_ipc_revoke(memory->card->index, DIVVY_SIM_IPC_MEMORY, memory->address - memory->card->arena);
	sd_memory_leave(memory);
	sd_arena_give(memory->card, memory->address, memory->span);
	if (memory->charged)
		sd_release(memory->card, memory->chargedas, memory->charged);
	free(memory);
}

CUresult sd_linear_new(struct sd_context *context, enum sd_memory_kind kind, uint32_t chargedas,
		       uint64_t bytes, struct sd_memory **out)
{
	struct sd_card *card = context->card;
	uint64_t unit = kind == SD_MANAGED ? SD_PAGE : SD_UNIT;
	uint64_t charged = 0;
	uint64_t span = 0;
	uint64_t address = 0;

	if (!sd_round(bytes, SD_UNIT, &charged) || !sd_round(bytes, unit, &span))
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct sd_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = sd_charge(card, chargedas, charged);

	if (result != CUDA_SUCCESS)
		goto no_charge;
	result = sd_arena_take(card, span, unit, &address);
	if (result != CUDA_SUCCESS)
		goto no_space;
	*memory = (struct sd_memory){
		.kind = kind, .address = address, .bytes = bytes, .span = span,
		.charged = charged, .chargedas = chargedas, .card = card, .end = end_linear,
	};
	if (kind == SD_MANAGED && sd_map_again(address, span, (void *)(uintptr_t)address) < 0) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto no_mapping;
	}
	(void)sd_memory_enter(memory, context);
	*out = memory;
	return CUDA_SUCCESS;

no_mapping:
	sd_arena_give(card, address, span);
no_space:
	sd_release(card, chargedas, charged);
no_charge:
	free(memory);
	return result;
}

unsigned char *sd_memory_host(const struct sd_memory *memory, uint64_t address)
{
	return memory->kind == SD_HOST || memory->kind == SD_REGISTERED ? (unsigned char *)(uintptr_t)address
									: sd_alias(address);
}

unsigned char *sd_reach(uint64_t address, uint64_t bytes, const struct sd_card *card, bool write,
			struct sd_memory **found)
{
	struct sd_memory *memory = sd_memory_at(address);

	if (!memory)
		return NULL;
	if (found)
		*found = memory;
	unsigned char *host = sd_memory_host(memory, address);

	if (memory->kind != SD_MAPPED)
		return bytes <= memory->bytes - (address - memory->address) ? host : NULL;
	/* a reserved range may be mapped piece by piece */
	for (;;) {
		uint64_t granted = write ? memory->writable : memory->readable;
		uint64_t inside = memory->bytes - (address - memory->address);

		if (card ? !(granted >> card->ordinal & 1) : !granted)
			return NULL;
		if (bytes <= inside)
			return host;
		address += inside;
		bytes -= inside;
		memory = sd_memory_from(address);
		if (!memory || memory->kind != SD_MAPPED)
			return NULL;
	}
}
