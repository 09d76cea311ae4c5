/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event.c: event sets. Events are the simulator's incidents: XIDs, memory
 * errors, and changes of clocks and P-states. A set is told what happens after it
 * was asked to listen.
 */
#include <stdlib.h>
#include <time.h>

#include "nvml.h"

#define SET_MAGIC 0x746e7665u /* "evnt" */
#define NO_INSTANCE 0xffffffffu
#define LOOK_NS 100000000ull /* the card's rest is noticed by looking */
#define ECC_TYPES (nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError)
#define CHANGE_TYPES (nvmlEventTypePState | nvmlEventTypeClock)
#define EVENT_TYPES (ECC_TYPES | CHANGE_TYPES | nvmlEventTypeXidCriticalError)

struct nvmlEventSet_st {
	unsigned int magic;
	uint64_t cursor;                       /* the last incident looked at */
	uint32_t seen;                         /* the notice's word, when no other had happened */
	uint64_t since[DIVVY_SIM_MAX_CARDS];   /* incidents after it count */
	unsigned long long types[DIVVY_SIM_MAX_CARDS];
	bool listens;
	bool changes; /* to what happens without a fault, too */
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
	fresh = calloc(1, sizeof(*fresh));
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

static unsigned long long types_of(const struct divvy_sim_card *card)
{
	return card->flags & DIVVY_SIM_CARD_ECC ? EVENT_TYPES : EVENT_TYPES & ~ECC_TYPES;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *eventTypes)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!eventTypes)
		return NVML_ERROR_INVALID_ARGUMENT;
	*eventTypes = types_of(card);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes, nvmlEventSet_t set)
{
	struct divvy_sim_incident page[SIM_INCIDENTS];
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);
	uint64_t last = DIVVY_SIM_LAST;
	uint32_t count;

	if (!result)
		result = check(set);
	if (result)
		return result;
	if (eventTypes & ~types_of(card))
		return NVML_ERROR_NOT_SUPPORTED;
	result = nvml_error(sim_incidents(&last, page, &count));
	if (result)
		return result;
	struct nvmlEventSet_st *own = set.handle;

	if (!own->listens)
		own->cursor = last;
	if (!own->types[card->index])
		own->since[card->index] = last;
	own->types[card->index] |= eventTypes;
	own->listens = true;
	own->changes = own->changes || eventTypes & CHANGE_TYPES;
	return NVML_SUCCESS;
}

static bool wanted(const struct nvmlEventSet_st *set, const struct divvy_sim_incident *incident)
{
	return incident->card < DIVVY_SIM_MAX_CARDS && incident->number > set->since[incident->card] &&
	       set->types[incident->card] & incident->type;
}

/* The next one that the set listens to; TIMEOUT when there is none yet. */
static nvmlReturn_t next(struct nvmlEventSet_st *set, nvmlEventData_t *data)
{
	for (;;) {
		struct divvy_sim_incident page[SIM_INCIDENTS];
		uint64_t cursor = set->cursor;
		uint32_t count;
		nvmlReturn_t result = nvml_error(sim_incidents(&cursor, page, &count));

		if (result)
			return result;
		if (!count)
			return NVML_ERROR_TIMEOUT;
		for (uint32_t i = 0; i < count; i++) {
			set->cursor = page[i].number;
			if (!wanted(set, &page[i]))
				continue;
			*data = (nvmlEventData_t){
				.device = { .handle = (void *)sim_card_facts(page[i].card) }, .eventType = page[i].type,
				.eventData = page[i].data, .gpuInstanceId = NO_INSTANCE, .computeInstanceId = NO_INSTANCE,
			};
			return NVML_SUCCESS;
		}
	}
}

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static nvmlReturn_t await(struct nvmlEventSet_st *set, nvmlEventData_t *data, unsigned int timeoutms)
{
	uint64_t end = now_ns() + (uint64_t)timeoutms * 1000000u;

	for (;;) {
		const struct divvy_sim_notice *notice = sim_notice();
		const uint32_t *word = notice ? &notice->incidents : NULL;
		uint32_t seen = sim_word(word);
		bool looks = set->changes || !word; /* of those nothing tells */
		nvmlReturn_t result = set->listens && (looks || seen != set->seen) ? next(set, data) : NVML_ERROR_TIMEOUT;
		uint64_t now = now_ns();

		if (result != NVML_ERROR_TIMEOUT)
			return result;
		set->seen = seen;
		if (now >= end)
			return result;
		sim_sleep(word, seen, looks && end - now > LOOK_NS ? now + LOOK_NS : end);
	}
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	nvmlReturn_t result = check(set);

	if (result)
		return result;
	return data ? await(set.handle, data, timeoutms) : NVML_ERROR_INVALID_ARGUMENT;
}

/* The older layout ends before the instances. */
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	nvmlEventData_t whole;
	nvmlReturn_t result = nvmlEventSetWait_v2(set, data ? &whole : NULL, timeoutms);

	if (result)
		return result;
	data->device = whole.device;
	data->eventType = whole.eventType;
	data->eventData = whole.eventData;
	return NVML_SUCCESS;
}
