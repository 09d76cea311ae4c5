/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmlevent.c: event sets. No event ever comes until faults can be simulated;
 * who waits waits out its time.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "nvml.h"

#define SET_MAGIC 0x746e7665u /* "evnt" */
#define EVENT_TYPES                                                                                  \
	(nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError | nvmlEventTypePState |     \
	 nvmlEventTypeXidCriticalError | nvmlEventTypeClock)

struct nvmlEventSet_st {
	unsigned int magic;
};

static nvmlReturn_t check(nvmlEventSet_t set)
{
	nvmlReturn_t result = nvml_ready();

	if (result)
		return result;
	return set.handle && set.handle->magic == SET_MAGIC ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	nvmlReturn_t result = nvml_ready();
	struct nvmlEventSet_st *fresh;

	if (result)
		return result;
	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	fresh = malloc(sizeof(*fresh));
	if (!fresh)
		return NVML_ERROR_MEMORY;
	fresh->magic = SET_MAGIC;
	set->handle = fresh;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	nvmlReturn_t result = check(set);

	if (result)
		return result;
	set.handle->magic = 0;
	free(set.handle);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *eventTypes)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!eventTypes)
		return NVML_ERROR_INVALID_ARGUMENT;
	*eventTypes = EVENT_TYPES;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes, nvmlEventSet_t set)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (!result)
		result = check(set);
	if (result)
		return result;
	return eventTypes & ~(unsigned long long)EVENT_TYPES ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	struct timespec left = {.tv_sec = timeoutms / 1000, .tv_nsec = (long)(timeoutms % 1000) * 1000000};
	nvmlReturn_t result = check(set);

	if (result)
		return result;
	if (!data)
		return NVML_ERROR_INVALID_ARGUMENT;
	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		;
	return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	return nvmlEventSetWait_v2(set, data, timeoutms);
}
