/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/fault.h"
#include "memory/memory.h"
#include "module/module.h"
#include "cuda/print.h"
#include "memory/texture.h"

enum { STACK_FACTOR = 8, STACK_LEAST = 16384 };

/* Whether kernels of the context on this card may reach it, and write it. */
static bool reachable(const struct sd_memory *memory, const struct sd_card *card, const struct sd_context *context,
		      bool *readonly)
{
	*readonly = false;
	switch (memory->kind) {
	case SD_HOST:
	case SD_REGISTERED:
	case SD_MANAGED:
		return true;
	case SD_MAPPED:
		*readonly = !(memory->writable >> card->ordinal & 1);
		return memory->readable >> card->ordinal & 1;
	default:
		return !memory->card || memory->card == card || memory->kind == SD_OPENED || memory->kind == SD_POOLED ||
		       (context->peers >> memory->card->ordinal & 1);
	}
}

static CUresult ranges_of(const struct sd_card *card, const struct sd_context *context, struct ptx_range **out,
			  size_t *count)
{
	struct ptx_range *ranges = NULL;
	size_t room = 0;

	*count = 0;
	for (struct sd_memory *memory = sd_memory_after(0); memory;) {
		struct sd_node *next = sd_tree_next(&memory->node);
		bool readonly;

		if (reachable(memory, card, context, &readonly)) {
			if (*count == room) {
				room = room ? room * 2 : 64;
				struct ptx_range *more = realloc(ranges, room * sizeof(*more));

				if (!more) {
					free(ranges);
					return CUDA_ERROR_OUT_OF_MEMORY;
				}
				ranges = more;
			}
			ranges[(*count)++] = (struct ptx_range){
				.start = memory->address,
				.bytes = memory->bytes,
				.delta = (uint64_t)(uintptr_t)sd_memory_host(memory, memory->address) - memory->address,
				.readonly = readonly,
			};
		}
		memory = next ? SD_OWNER(next, struct sd_memory, node) : NULL;
	}
	*out = ranges;
	return CUDA_SUCCESS;
}

static CUresult error_of(enum ptx_fault fault)
{
	switch (fault) {
	case PTX_FAULT_ADDRESS:
	case PTX_FAULT_STACK:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	case PTX_FAULT_MISALIGNED:
		return CUDA_ERROR_MISALIGNED_ADDRESS;
	case PTX_FAULT_ASSERT:
		return CUDA_ERROR_ASSERT;
	case PTX_FAULT_PC:
		return CUDA_ERROR_INVALID_PC;
	case PTX_FAULT_SPACE:
		return CUDA_ERROR_INVALID_ADDRESS_SPACE;
	default: /* trap, no memory of the host's */
		return CUDA_ERROR_LAUNCH_FAILED;
	}
}

static const struct ptx_texture *texture(void *who, uint64_t handle, bool surface)
{
	return sd_samples_find(who, handle, surface);
}

static int touch(void *who, uint64_t bytes)
{
	(void)who;
	return sim_touch(bytes);
}

static void print(void *who, const char *text, size_t size)
{
	(void)who;
	sd_print_add(text, size);
}

CUresult sd_kernel_run(const struct sd_launch *launch, struct sd_step *step, struct ptx_outcome *outcome)
{
	const struct sd_card *card = step->card;
	struct sd_context *context = step->context;
	static uint64_t grids;
	const struct sd_function *function = launch->function;
	struct ptx_range *ranges = NULL;
	unsigned char *parameters = calloc(1, function->parameterbytes + 16);
	size_t count = 0;
	struct sd_samples samples = { .card = card };
	CUresult result = parameters ? ranges_of(card, context, &ranges, &count) : CUDA_ERROR_OUT_OF_MEMORY;

	if (result == CUDA_SUCCESS)
		result = sd_launch_parameters(launch, parameters);
	if (result == CUDA_SUCCESS && !function->module)
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS) {
		size_t limit = context->limit[CU_LIMIT_STACK_SIZE];
		const struct ptx_launch run = {
			.code = function->entry->code,
			.function = function->entry->function,
			.grid = { launch->grid[0], launch->grid[1], launch->grid[2] },
			.block = { launch->block[0], launch->block[1], launch->block[2] },
			.shared = launch->shared,
			.cooperative = launch->cooperative,
			.parameters = parameters,
			/* frames here are larger than the compilers' of hardware */
			.stackbytes = limit * STACK_FACTOR < STACK_LEAST ? STACK_LEAST
				      : limit > 1u << 20                 ? 8u << 20
									 : (uint32_t)limit * STACK_FACTOR,
			.multiprocessors = card->facts->multiprocessors,
			.resident = (uint32_t)step->resident,
			.clockmhz = card->facts->smclockmhz,
			.gridid = ++grids,
			.ranges = ranges,
			.rangecount = count,
			.texture = texture,
			.touch = touch,
			.print = print,
			.who = &samples,
			.left = &step->blocks,
			.stop = &step->stop,
		};

		sd_unlock();
		ptx_run(&run, outcome);
		sd_samples_end(&samples);
		sd_lock();
		if (outcome->fault != PTX_FAULT_NONE)
			sd_context_fault(context, error_of(outcome->fault));
	}
	free(parameters);
	free(ranges);
	return result;
}
