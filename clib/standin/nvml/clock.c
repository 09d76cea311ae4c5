/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.c: clocks, why they are low, P-states.
 */
#include "nvml.h"

#define CLOCK_STEP_MHZ 15u
#define IDLE_MEMORY_MHZ 405u
#define REASONS 0x1ff /* all that a driver knows */

NVML_HEALTH(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, now.reasons)
NVML_HEALTH(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, now.reasons)
NVML_NUMBER(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, REASONS)
NVML_NUMBER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, REASONS)
NVML_HEALTH(nvmlDeviceGetPerformanceState, nvmlPstates_t, now.performance)
NVML_HEALTH(nvmlDeviceGetPowerState, nvmlPstates_t, now.performance)

static nvmlReturn_t highest_clock(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!clock || type >= NVML_CLOCK_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*clock = type == NVML_CLOCK_MEM ? card->memoryclockmhz : card->smclockmhz;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
	struct divvy_sim_health now;
	nvmlReturn_t result = nvml_health(device, NULL, &now);

	if (result)
		return result;
	if (!clock || type >= NVML_CLOCK_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*clock = type == NVML_CLOCK_MEM ? now.memoryclockmhz : now.smclockmhz;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
	return highest_clock(device, type, clock);
}

nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t clockType, unsigned int *clockMHz)
{
	return highest_clock(device, clockType, clockMHz);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType, unsigned int *clockMHz)
{
	return highest_clock(device, clockType, clockMHz);
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType, unsigned int *clockMHz)
{
	return highest_clock(device, clockType, clockMHz);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t clockType, nvmlClockId_t clockId, unsigned int *clockMHz)
{
	if (clockId >= NVML_CLOCK_ID_COUNT)
		return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	return clockId == NVML_CLOCK_ID_CURRENT ? nvmlDeviceGetClockInfo(device, clockType, clockMHz) :
						  highest_clock(device, clockType, clockMHz);
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count, unsigned int *clocksMHz)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);
	unsigned int room;

	if (result)
		return result;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	room = *count;
	*count = 1;
	if (room < 1 || !clocksMHz)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	clocksMHz[0] = card->memoryclockmhz;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memoryClockMHz, unsigned int *count,
						  unsigned int *clocksMHz)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);
	unsigned int room;

	if (result)
		return result;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (memoryClockMHz != card->memoryclockmhz)
		return NVML_ERROR_NOT_FOUND;
	room = *count;
	*count = (card->smclockmhz - card->baseclockmhz) / CLOCK_STEP_MHZ + 1;
	if (room < *count || !clocksMHz)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < *count; i++)
		clocksMHz[i] = card->smclockmhz - i * CLOCK_STEP_MHZ;
	return NVML_SUCCESS;
}

/* A card with stacked memory keeps P0; the others rest in P8. */
static bool rests(const struct divvy_sim_card *card)
{
	return card->buswidthbits < 1024;
}

nvmlReturn_t nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t device, nvmlPstates_t *pstates, unsigned int size)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);
	unsigned int room = size / sizeof(*pstates);

	if (result)
		return result;
	if (!pstates)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (room < (rests(card) ? 2u : 1u))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < room; i++)
		pstates[i] = NVML_PSTATE_UNKNOWN;
	pstates[0] = NVML_PSTATE_0;
	if (rests(card))
		pstates[1] = NVML_PSTATE_8;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t device, nvmlClockType_t type, nvmlPstates_t pstate,
					      unsigned int *minClockMHz, unsigned int *maxClockMHz)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!minClockMHz || !maxClockMHz || type >= NVML_CLOCK_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (pstate != NVML_PSTATE_0 && !(pstate == NVML_PSTATE_8 && rests(card)))
		return NVML_ERROR_NOT_SUPPORTED;
	*minClockMHz = type == NVML_CLOCK_MEM ? card->memoryclockmhz : card->baseclockmhz;
	*maxClockMHz = type == NVML_CLOCK_MEM ? card->memoryclockmhz : card->smclockmhz;
	if (pstate == NVML_PSTATE_8)
		*minClockMHz = *maxClockMHz = type == NVML_CLOCK_MEM ? IDLE_MEMORY_MHZ : card->baseclockmhz;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device, nvmlGpuDynamicPstatesInfo_t *info)
{
	struct divvy_sim_health now;
	nvmlReturn_t result = nvml_health(device, NULL, &now);

	if (result)
		return result;
	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	*info = (nvmlGpuDynamicPstatesInfo_t){ .flags = 1 };
	info->utilization[0].bIsPresent = 1; /* the processors */
	info->utilization[0].percentage = now.gpupercent;
	info->utilization[1].bIsPresent = 1; /* memory */
	info->utilization[1].percentage = now.memorypercent;
	return NVML_SUCCESS;
}
