/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c: memory, and the processes that hold it.
 */
#include <errno.h>
#include <stdlib.h>

#include "nvml.h"

#define NO_INSTANCE 0xffffffffu /* no MIG instance */
#define MORE_PROCESSES 4096 /* as room at first: nearly all lists fit, and are asked for once */

static nvmlReturn_t read_card(nvmlDevice_t device, struct divvy_sim_card *now)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (!result && card->flags & DIVVY_SIM_CARD_UNIFIED)
		result = NVML_ERROR_NOT_SUPPORTED; /* as a GB10's, seen with drivers 580 */
	return result ? result : nvml_error(sim_card(card->index, now));
}

/* In the first version what the driver keeps counts as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct divvy_sim_card now;
	nvmlReturn_t result;

	if (!memory)
		return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	result = read_card(device, &now);
	if (result)
		return result;
	memory->total = now.totalbytes;
	memory->used = now.reservedbytes + now.usedbytes;
	memory->free = now.usablebytes - now.usedbytes;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	struct divvy_sim_card now;
	nvmlReturn_t result;

	if (!memory)
		return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	if (memory->version != nvmlMemory_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	result = read_card(device, &now);
	if (result)
		return result;
	memory->total = now.totalbytes;
	memory->reserved = now.reservedbytes;
	memory->used = now.usedbytes;
	memory->free = now.usablebytes - now.usedbytes;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *bar1Memory)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!bar1Memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	bar1Memory->bar1Total = card->bar1bytes;
	bar1Memory->bar1Used = 1 << 20;
	bar1Memory->bar1Free = card->bar1bytes - bar1Memory->bar1Used;
	return NVML_SUCCESS;
}

/* Those on one card or MIG device, behind the count that the list has. */
static nvmlReturn_t add_processes(uint32_t index, struct divvy_sim_holder **list, unsigned int *count, uint32_t *instances)
{
	size_t room = MORE_PROCESSES;

	for (;;) {
		struct divvy_sim_holder *larger = realloc(*list, (*count + room) * sizeof(**list));
		long n;

		if (!larger)
			return NVML_ERROR_MEMORY;
		*list = larger;
		n = sim_holders(index, *list + *count, room, instances);
		if (n == -ENOENT)
			return NVML_SUCCESS; /* the device is no more */
		if (n < 0)
			return nvml_error(n);
		if ((size_t)n <= room) {
			*count += (unsigned int)n;
			return NVML_SUCCESS;
		}
		room = (size_t)n + MORE_PROCESSES;
	}
}

/* All processes on a card, those on its MIG devices too, and which those are; the
 * caller frees the list. */
static nvmlReturn_t read_processes(nvmlDevice_t device, struct divvy_sim_holder **list, unsigned int *count,
				   struct sim_mig *mig)
{
	const struct divvy_sim_card *card;
	uint32_t instances = 0;
	nvmlReturn_t result = nvml_card(device, &card);

	*list = NULL;
	*count = 0;
	mig->computecount = 0;
	if (result)
		return result;
	result = add_processes(card->index, list, count, &instances);
	if (!result && instances > 0)
		result = nvml_error(sim_mig(card->parent, mig));
	for (uint32_t i = 0; !result && !nvml_is_device(card) && i < mig->computecount; i++)
		result = add_processes(mig->computes[i].card, list, count, NULL);
	if (result) {
		free(*list);
		*list = NULL;
	}
	return result;
}

/* The compute instance that a process is on; NULL: none. */
static const struct divvy_sim_mig_compute *instance_of(const struct divvy_sim_holder *process, const struct sim_mig *mig)
{
	for (uint32_t i = 0; i < mig->computecount; i++)
		if (mig->computes[i].card == process->card)
			return &mig->computes[i];
	return NULL;
}

/* The protocol of all these lists: count is the caller's room, and how many
 * there are on return; too little room fills in nothing. */
static nvmlReturn_t answer_count(unsigned int *room, int have_list, unsigned int count)
{
	unsigned int given = *room;

	*room = count;
	if (count > 0 && (given < count || !have_list))
		return !have_list && given >= count ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_INSUFFICIENT_SIZE;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
	struct divvy_sim_holder *list;
	struct sim_mig mig;
	unsigned int count;
	nvmlReturn_t result;

	if (!infoCount)
		return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	result = read_processes(device, &list, &count, &mig);
	if (result)
		return result;
	result = answer_count(infoCount, infos != NULL, count);
	for (unsigned int i = 0; !result && i < count; i++) {
		const struct divvy_sim_mig_compute *on = instance_of(&list[i], &mig);

		infos[i] = (nvmlProcessInfo_t){
			.pid = list[i].pid, .usedGpuMemory = list[i].bytes,
			.gpuInstanceId = on ? on->gpu : NO_INSTANCE, .computeInstanceId = on ? on->id : NO_INSTANCE,
		};
	}
	free(list);
	return result;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(device, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
	struct divvy_sim_holder *list;
	struct sim_mig mig;
	unsigned int count;
	nvmlReturn_t result;

	if (!infoCount)
		return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	result = read_processes(device, &list, &count, &mig);
	if (result)
		return result;
	result = answer_count(infoCount, infos != NULL, count);
	for (unsigned int i = 0; !result && i < count; i++)
		infos[i] = (nvmlProcessInfo_v1_t){.pid = list[i].pid, .usedGpuMemory = list[i].bytes};
	free(list);
	return result;
}

/* Nobody draws, and there is no MPS server. */
static nvmlReturn_t no_processes(nvmlDevice_t device, unsigned int *infoCount)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!infoCount)
		return NVML_ERROR_INVALID_ARGUMENT;
	*infoCount = 0;
	return NVML_SUCCESS;
}

#define NO_PROCESSES(function, info)                                                                  \
	nvmlReturn_t function(nvmlDevice_t device, unsigned int *infoCount, info *infos)              \
	{                                                                                             \
		(void)infos;                                                                          \
		return no_processes(device, infoCount);                                               \
	}

NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *plist)
{
	struct divvy_sim_holder *list = NULL;
	struct sim_mig mig;
	unsigned int count = 0;
	nvmlReturn_t result;

	if (!plist)
		return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	if (plist->version != nvmlProcessDetailList_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (plist->mode > NVML_PROCESS_MODE_ALL)
		return NVML_ERROR_INVALID_ARGUMENT;
	result = read_processes(device, &list, &count, &mig);
	if (result)
		return result;
	if (plist->mode == NVML_PROCESS_MODE_GRAPHICS || plist->mode == NVML_PROCESS_MODE_MPS)
		count = 0;
	result = answer_count(&plist->numProcArrayEntries, plist->procArray != NULL, count);
	for (unsigned int i = 0; !result && i < count; i++) {
		const struct divvy_sim_mig_compute *on = instance_of(&list[i], &mig);

		plist->procArray[i] = (nvmlProcessDetail_v1_t){
			.pid = list[i].pid, .usedGpuMemory = list[i].bytes,
			.gpuInstanceId = on ? on->gpu : NO_INSTANCE, .computeInstanceId = on ? on->id : NO_INSTANCE,
		};
	}
	free(list);
	return result;
}
