/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graphmemory.c: memory that graphs allocate and free. A node's address is
 * fixed when the node is made; memory stands behind it from the node's run to
 * its free. The card's graph memory is charged in steps of 2 MiB and kept for
 * the next launch until cuDeviceGraphMemTrim.
 */
#include <stdlib.h>

#include "cuda/enter.h"
#include "graph.h"
#include "memory/memory.h"

struct slot {
	struct sd_node node; /* by address */
	struct sd_card *card;
	uint64_t address;
	uint64_t bytes;
	uint64_t span;
	unsigned int refs; /* nodes that allocate it, and the memory itself */
	struct sd_memory *memory;
};

static struct sd_tree slots;

static struct slot *slot_of(uint64_t address)
{
	struct sd_node *node = sd_tree_ceiling(&slots, address, 0);

	return node && node->key == address ? SD_OWNER(node, struct slot, node) : NULL;
}

CUresult sd_graph_memory_new(struct sd_card *card, CUDA_MEM_ALLOC_NODE_PARAMS *asked, uint64_t *address)
{
	uint64_t span = 0;
	struct slot *slot = calloc(1, sizeof(*slot));

	if (!slot)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = sd_round(asked->bytesize, SD_UNIT, &span) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	if (result == CUDA_SUCCESS)
		result = sd_arena_take(card, span, SD_UNIT, &slot->address);
	if (result != CUDA_SUCCESS) {
		free(slot);
		return result;
	}
	slot->card = card;
	slot->bytes = asked->bytesize;
	slot->span = span;
	slot->refs = 1;
	sd_tree_add(&slots, &slot->node, slot->address, 0);
	*address = slot->address;
	return CUDA_SUCCESS;
}

bool sd_graph_memory_known(uint64_t address)
{
	return slot_of(address) != NULL;
}

bool sd_graph_memory_live(uint64_t address)
{
	const struct slot *slot = slot_of(address);

	return slot && slot->memory;
}

void sd_graph_memory_hold(uint64_t address)
{
	struct slot *slot = slot_of(address);

	if (slot)
		slot->refs++;
}

void sd_graph_memory_drop(uint64_t address)
{
	struct slot *slot = slot_of(address);

	if (!slot || --slot->refs)
		return;
	sd_tree_remove(&slots, &slot->node);
	sd_arena_give(slot->card, slot->address, slot->span);
	free(slot);
}

static void end_graphed(struct sd_memory *memory)
{
	struct slot *slot = memory->owner;

	slot->card->graphused -= slot->span;
	slot->memory = NULL;
	sd_memory_leave(memory);
	free(memory);
	sd_graph_memory_drop(slot->address);
}

CUresult sd_graph_memory_take(uint64_t address)
{
	struct slot *slot = slot_of(address);
	uint64_t reserved = 0;

	if (!slot || slot->memory)
		return CUDA_ERROR_INVALID_VALUE;
	struct sd_card *card = slot->card;
	struct sd_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (card->graphused > UINT64_MAX - slot->span || !sd_round(card->graphused + slot->span, SD_STEP, &reserved) ||
	    reserved > INT64_MAX) {
		free(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (reserved > card->graphreserved) {
		CUresult result = sd_adjust(card, DIVVY_SIM_KIND_GRAPH, (int64_t)(reserved - card->graphreserved));

		if (result != CUDA_SUCCESS) {
			free(memory);
			return result;
		}
		card->graphreserved = reserved;
	}
	card->graphused += slot->span;
	if (card->graphused > card->graphusedhigh)
		card->graphusedhigh = card->graphused;
	if (card->graphreserved > card->graphreservedhigh)
		card->graphreservedhigh = card->graphreserved;
	*memory = (struct sd_memory){
		.kind = SD_GRAPHED, .address = slot->address, .bytes = slot->bytes, .span = slot->span, .card = card,
		.owner = slot, .end = end_graphed,
	};
	(void)sd_memory_enter(memory, NULL);
	slot->memory = memory;
	slot->refs++;
	return CUDA_SUCCESS;
}

CUresult sd_graph_memory_give(uint64_t address)
{
	struct slot *slot = slot_of(address);

	if (!slot || !slot->memory)
		return CUDA_ERROR_INVALID_VALUE;
	end_graphed(slot->memory);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_card *card = sd_card(device);

	if (!card)
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!value || (unsigned int)attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	const uint64_t amounts[] = {
		[CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT] = card->graphused,
		[CU_GRAPH_MEM_ATTR_USED_MEM_HIGH] = card->graphusedhigh,
		[CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT] = card->graphreserved,
		[CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH] = card->graphreservedhigh,
	};

	*(cuuint64_t *)value = amounts[attr];
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_card *card = sd_card(device);

	if (!card)
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	/* high marks can only be reset */
	if (!value || *(const cuuint64_t *)value)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
		card->graphusedhigh = card->graphused;
	else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		card->graphreservedhigh = card->graphreserved;
	else
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	uint64_t keep = 0;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_card *card = sd_card(device);

	if (!card)
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	if (sd_round(card->graphused, SD_STEP, &keep) && keep < card->graphreserved) {
		(void)sd_adjust(card, DIVVY_SIM_KIND_GRAPH, -(int64_t)(card->graphreserved - keep));
		card->graphreserved = keep;
	}
	return sd_leave(CUDA_SUCCESS);
}
