/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml.c: the card as NVML shows it: only the share's cards, the share's memory
 * and the share's processes. Utilisation passes until the gate measures it.
 *
 * Process ids come from the agent: those this process sees where both live in
 * one pid namespace, else the agent's own. Lists that the driver makes
 * (accounting, utilisation samples) are cut to the ids of the share; in a
 * container, where the driver speaks of the host's ids, that may leave nothing.
 */
#include "front.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define UUID_TEXT_BYTES 48
#define MOST_USERS 512
#define NO_INSTANCE 0xffffffffu

struct card {
	struct nvmlDevice_t device;
	unsigned index; /* the driver's */
	int slot;
};

struct view {
	unsigned visible;
	struct card card[DIVVY_MAX_CARDS]; /* in the share's order, which CUDA's numbers follow too */
};

/* A new view is made at every nvmlInit and put beside the last one: readers may still hold that. */
static struct view views[2];
static const struct view *view_now;

static const struct view *view(void)
{
	return __atomic_load_n(&view_now, __ATOMIC_ACQUIRE);
}

/* A forked child may use what its parent has initialised: it joins the share on its own. */
static bool enter(void)
{
	if (front_enter())
		return true;
	return !front_thread.inside && front_forked() && view() != NULL && front_join() == 0 && front_enter();
}

static const struct card *card_of(struct nvmlDevice_t device)
{
	const struct view *now = view();

	for (unsigned i = 0; now != NULL && i < now->visible; i++) {
		if (now->card[i].device.handle == device.handle)
			return &now->card[i];
	}
	return NULL;
}

static void uuid_text(const uint8_t uuid[16], char text[UUID_TEXT_BYTES])
{
	int at = snprintf(text, UUID_TEXT_BYTES, "GPU");

	for (int i = 0; i < 16; i++)
		at += snprintf(text + at, (size_t)(UUID_TEXT_BYTES - at), i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
}

static void look_for_cards(void)
{
	const struct divvy_limits *limits = front_limits();
	struct view *fresh = view() == &views[0] ? &views[1] : &views[0];

	fresh->visible = 0;
	for (unsigned slot = 0; slot < limits->cards; slot++) {
		struct card card = {.slot = (int)slot};
		char uuid[UUID_TEXT_BYTES];

		uuid_text(limits->card[slot].uuid, uuid);
		if (REAL(SYM_nvmlDeviceGetHandleByUUID, nvmlDeviceGetHandleByUUID)(uuid, &card.device) != NVML_SUCCESS ||
		    REAL(SYM_nvmlDeviceGetIndex, nvmlDeviceGetIndex)(card.device, &card.index) != NVML_SUCCESS)
			continue;
		fresh->card[fresh->visible++] = card;
	}
	__atomic_store_n(&view_now, fresh, __ATOMIC_RELEASE);
}

/* -- starting --------------------------------------------------------------- */

static bool begin(nvmlReturn_t *rc)
{
	if (front_thread.inside)
		return false;
	if (front_join() < 0) {
		*rc = NVML_ERROR_DRIVER_NOT_LOADED;
		return true;
	}
	return false;
}

static nvmlReturn_t begun(nvmlReturn_t rc)
{
	if (rc == NVML_SUCCESS && front_enter()) {
		front_start_lock();
		look_for_cards();
		front_start_unlock();
		front_leave();
	}
	return rc;
}

nvmlReturn_t hook_nvmlInit(enum divvy_symbol called)
{
	nvmlReturn_t rc;

	return begin(&rc) ? rc : begun(REAL(called, nvmlInit)());
}

nvmlReturn_t hook_nvmlInit_v2(enum divvy_symbol called)
{
	nvmlReturn_t rc;

	return begin(&rc) ? rc : begun(REAL(called, nvmlInit_v2)());
}

nvmlReturn_t hook_nvmlInitWithFlags(enum divvy_symbol called, unsigned int flags)
{
	nvmlReturn_t rc;

	return begin(&rc) ? rc : begun(REAL(called, nvmlInitWithFlags)(flags));
}

/* The driver counts its users; what we know of its cards is replaced at the next nvmlInit. */
nvmlReturn_t hook_nvmlShutdown(enum divvy_symbol called)
{
	return REAL(called, nvmlShutdown)();
}

/* -- cards ------------------------------------------------------------------ */

static nvmlReturn_t count_cards(enum divvy_symbol called, unsigned int *count)
{
	unsigned int all;
	nvmlReturn_t rc;

	if (count == NULL || !enter())
		return REAL(called, nvmlDeviceGetCount_v2)(count);
	rc = REAL(called, nvmlDeviceGetCount_v2)(&all);
	if (rc == NVML_SUCCESS)
		*count = view() == NULL ? 0 : view()->visible;
	front_leave();
	return rc;
}

nvmlReturn_t hook_nvmlDeviceGetCount(enum divvy_symbol called, unsigned int *count)
{
	return count_cards(called, count);
}

nvmlReturn_t hook_nvmlDeviceGetCount_v2(enum divvy_symbol called, unsigned int *count)
{
	return count_cards(called, count);
}

static nvmlReturn_t handle_by_index(enum divvy_symbol called, unsigned int index, struct nvmlDevice_t *device)
{
	const struct view *now = view();
	nvmlReturn_t rc;

	if (device == NULL || !enter())
		return REAL(called, nvmlDeviceGetHandleByIndex_v2)(index, device);
	if (now != NULL && index < now->visible)
		rc = REAL(called, nvmlDeviceGetHandleByIndex_v2)(now->card[index].index, device);
	else /* beyond any card: the driver finds the right words */
		rc = REAL(called, nvmlDeviceGetHandleByIndex_v2)(UINT32_MAX, device);
	front_leave();
	return rc;
}

nvmlReturn_t hook_nvmlDeviceGetHandleByIndex(enum divvy_symbol called, unsigned int index, struct nvmlDevice_t *device)
{
	return handle_by_index(called, index, device);
}

nvmlReturn_t hook_nvmlDeviceGetHandleByIndex_v2(enum divvy_symbol called, unsigned int index, struct nvmlDevice_t *device)
{
	return handle_by_index(called, index, device);
}

/* Only a card of the share is handed out. */
static nvmlReturn_t hand_out(nvmlReturn_t rc, struct nvmlDevice_t found, struct nvmlDevice_t *device)
{
	if (rc == NVML_SUCCESS && card_of(found) == NULL)
		rc = NVML_ERROR_NOT_FOUND;
	if (rc == NVML_SUCCESS)
		*device = found;
	front_leave();
	return rc;
}

static nvmlReturn_t handle_by_text(enum divvy_symbol called, const char *text, struct nvmlDevice_t *device)
{
	struct nvmlDevice_t found;

	/* by address, serial and UUID: one signature */
	if (device == NULL || !enter())
		return REAL(called, nvmlDeviceGetHandleByUUID)(text, device);
	return hand_out(REAL(called, nvmlDeviceGetHandleByUUID)(text, &found), found, device);
}

nvmlReturn_t hook_nvmlDeviceGetHandleByPciBusId(enum divvy_symbol called, const char *address, struct nvmlDevice_t *device)
{
	return handle_by_text(called, address, device);
}

nvmlReturn_t hook_nvmlDeviceGetHandleByPciBusId_v2(enum divvy_symbol called, const char *address, struct nvmlDevice_t *device)
{
	return handle_by_text(called, address, device);
}

nvmlReturn_t hook_nvmlDeviceGetHandleBySerial(enum divvy_symbol called, const char *serial, struct nvmlDevice_t *device)
{
	return handle_by_text(called, serial, device);
}

nvmlReturn_t hook_nvmlDeviceGetHandleByUUID(enum divvy_symbol called, const char *uuid, struct nvmlDevice_t *device)
{
	return handle_by_text(called, uuid, device);
}

nvmlReturn_t hook_nvmlDeviceGetHandleByUUIDV(enum divvy_symbol called, const struct nvmlUUID_t *uuid, struct nvmlDevice_t *device)
{
	struct nvmlDevice_t found;

	if (device == NULL || !enter())
		return REAL(called, nvmlDeviceGetHandleByUUIDV)(uuid, device);
	return hand_out(REAL(called, nvmlDeviceGetHandleByUUIDV)(uuid, &found), found, device);
}

nvmlReturn_t hook_nvmlDeviceGetIndex(enum divvy_symbol called, struct nvmlDevice_t device, unsigned int *index)
{
	const struct card *card;
	unsigned int all;
	nvmlReturn_t rc;

	if (index == NULL || !enter())
		return REAL(called, nvmlDeviceGetIndex)(device, index);
	rc = REAL(called, nvmlDeviceGetIndex)(device, &all);
	card = card_of(device);
	if (rc == NVML_SUCCESS && card == NULL)
		rc = NVML_ERROR_INVALID_ARGUMENT;
	if (rc == NVML_SUCCESS)
		*index = (unsigned int)(card - view()->card);
	front_leave();
	return rc;
}

/* -- memory ----------------------------------------------------------------- */

nvmlReturn_t hook_nvmlDeviceGetMemoryInfo(enum divvy_symbol called, struct nvmlDevice_t device, nvmlMemory_t *memory)
{
	const struct card *card;
	nvmlMemory_t driver;
	uint64_t sharefree, sharetotal;
	nvmlReturn_t rc;

	if (memory == NULL || !enter())
		return REAL(called, nvmlDeviceGetMemoryInfo)(device, memory);
	rc = REAL(called, nvmlDeviceGetMemoryInfo)(device, &driver);
	card = card_of(device);
	if (rc == NVML_SUCCESS && card != NULL && front_limited(card->slot)) {
		front_memory(card->slot, driver.free, driver.total, &sharefree, &sharetotal);
		driver.free = sharefree;
		driver.total = sharetotal;
		driver.used = sharetotal - sharefree;
	}
	if (rc == NVML_SUCCESS)
		*memory = driver;
	front_leave();
	return rc;
}

nvmlReturn_t hook_nvmlDeviceGetMemoryInfo_v2(enum divvy_symbol called, struct nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	const struct card *card;
	nvmlMemory_v2_t driver;
	uint64_t sharefree, sharetotal;
	nvmlReturn_t rc;

	if (memory == NULL || !enter())
		return REAL(called, nvmlDeviceGetMemoryInfo_v2)(device, memory);
	driver = *memory; /* its version is the caller's to say */
	rc = REAL(called, nvmlDeviceGetMemoryInfo_v2)(device, &driver);
	card = card_of(device);
	if (rc == NVML_SUCCESS && card != NULL && front_limited(card->slot)) {
		front_memory(card->slot, driver.free, driver.total, &sharefree, &sharetotal);
		driver.free = sharefree;
		driver.total = sharetotal;
		driver.used = sharetotal - sharefree;
		driver.reserved = 0;
	}
	if (rc == NVML_SUCCESS)
		*memory = driver;
	front_leave();
	return rc;
}

/* -- processes -------------------------------------------------------------- */

/* The share's processes on the card, at most MOST_USERS; this one alone when the agent does not say. */
static unsigned users_of(struct nvmlDevice_t device, struct front_user users[MOST_USERS])
{
	const struct card *card = card_of(device);
	int count;

	if (card == NULL)
		return 0;
	count = front_users(card->slot, users, MOST_USERS);
	if (count < 0) {
		users[0] = (struct front_user){.pid = (uint32_t)getpid(), .bytes = front_own_use(card->slot)};
		count = 1;
	}
	return count < MOST_USERS ? (unsigned)count : MOST_USERS;
}

/* Those of them that hold memory: whoever only looks round is no compute process. */
static unsigned holders_of(struct nvmlDevice_t device, struct front_user users[MOST_USERS])
{
	unsigned count = users_of(device, users);
	unsigned kept = 0;

	for (unsigned i = 0; i < count; i++) {
		if (users[i].bytes != 0)
			users[kept++] = users[i];
	}
	return kept;
}

static bool is_user(const struct front_user *users, unsigned count, uint32_t pid)
{
	for (unsigned i = 0; i < count; i++) {
		if (users[i].pid == pid)
			return true;
	}
	return false;
}

/* NVML's way to hand out a list: the number, and the list if there is room for it. */
static nvmlReturn_t list_room(unsigned int *count, unsigned have, const void *list)
{
	unsigned room = *count;

	*count = have;
	if (have != 0 && (room < have || list == NULL))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	return NVML_SUCCESS;
}

/*
 * The driver is asked for its number alone: so it says what is wrong with the
 * request, and nothing about others gets out.
 */
static bool answers(nvmlReturn_t rc)
{
	return rc == NVML_SUCCESS || rc == NVML_ERROR_INSUFFICIENT_SIZE;
}

static nvmlReturn_t processes_v1(enum divvy_symbol called, struct nvmlDevice_t device, unsigned int *count,
				 nvmlProcessInfo_v1_t *list, bool compute)
{
	struct front_user users[MOST_USERS];
	unsigned int none = 0;
	unsigned have = 0;
	nvmlReturn_t rc;

	if (count == NULL || !enter())
		return REAL(called, nvmlDeviceGetComputeRunningProcesses)(device, count, list);
	rc = REAL(called, nvmlDeviceGetComputeRunningProcesses)(device, &none, NULL);
	if (answers(rc)) {
		if (compute)
			have = holders_of(device, users);
		rc = list_room(count, have, list);
		for (unsigned i = 0; rc == NVML_SUCCESS && i < have; i++)
			list[i] = (nvmlProcessInfo_v1_t){.pid = users[i].pid, .usedGpuMemory = users[i].bytes};
	}
	front_leave();
	return rc;
}

static nvmlReturn_t processes(enum divvy_symbol called, struct nvmlDevice_t device, unsigned int *count,
			      nvmlProcessInfo_t *list, bool compute)
{
	struct front_user users[MOST_USERS];
	unsigned int none = 0;
	unsigned have = 0;
	nvmlReturn_t rc;

	if (count == NULL || !enter())
		return REAL(called, nvmlDeviceGetComputeRunningProcesses_v3)(device, count, list);
	rc = REAL(called, nvmlDeviceGetComputeRunningProcesses_v3)(device, &none, NULL);
	if (answers(rc)) {
		if (compute)
			have = holders_of(device, users);
		rc = list_room(count, have, list);
		for (unsigned i = 0; rc == NVML_SUCCESS && i < have; i++)
			list[i] = (nvmlProcessInfo_t){.pid = users[i].pid,
						      .usedGpuMemory = users[i].bytes,
						      .gpuInstanceId = NO_INSTANCE,
						      .computeInstanceId = NO_INSTANCE};
	}
	front_leave();
	return rc;
}

#define PROCESSES(kind, compute) \
	nvmlReturn_t hook_nvmlDeviceGet##kind##RunningProcesses(enum divvy_symbol called, struct nvmlDevice_t device, \
								unsigned int *count, nvmlProcessInfo_v1_t *list) \
	{ \
		return processes_v1(called, device, count, list, compute); \
	} \
	nvmlReturn_t hook_nvmlDeviceGet##kind##RunningProcesses_v2(enum divvy_symbol called, struct nvmlDevice_t device, \
								   unsigned int *count, nvmlProcessInfo_v2_t *list) \
	{ \
		return processes(called, device, count, list, compute); \
	} \
	nvmlReturn_t hook_nvmlDeviceGet##kind##RunningProcesses_v3(enum divvy_symbol called, struct nvmlDevice_t device, \
								   unsigned int *count, nvmlProcessInfo_t *list) \
	{ \
		return processes(called, device, count, list, compute); \
	}

PROCESSES(Compute, true)
PROCESSES(Graphics, false)
PROCESSES(MPSCompute, false)

nvmlReturn_t hook_nvmlDeviceGetRunningProcessDetailList(enum divvy_symbol called, struct nvmlDevice_t device,
							struct nvmlProcessDetailList_t *list)
{
	struct front_user users[MOST_USERS];
	struct nvmlProcessDetailList_t asked;
	unsigned have = 0;
	nvmlReturn_t rc;

	if (list == NULL || !enter())
		return REAL(called, nvmlDeviceGetRunningProcessDetailList)(device, list);
	asked = *list;
	asked.numProcArrayEntries = 0;
	asked.procArray = NULL;
	rc = REAL(called, nvmlDeviceGetRunningProcessDetailList)(device, &asked);
	if (answers(rc)) {
		if (list->mode == 0) /* compute */
			have = holders_of(device, users);
		rc = list_room(&list->numProcArrayEntries, have, list->procArray);
		for (unsigned i = 0; rc == NVML_SUCCESS && i < have; i++)
			list->procArray[i] = (struct nvmlProcessDetail_v1_t){.pid = users[i].pid,
									     .usedGpuMemory = users[i].bytes,
									     .gpuInstanceId = NO_INSTANCE,
									     .computeInstanceId = NO_INSTANCE};
	}
	front_leave();
	return rc;
}

/* -- lists that the driver makes, cut to the share --------------------------- */

nvmlReturn_t hook_nvmlDeviceGetAccountingPids(enum divvy_symbol called, struct nvmlDevice_t device, unsigned int *count,
					      unsigned int *pids)
{
	struct front_user users[MOST_USERS];
	nvmlReturn_t rc = REAL(called, nvmlDeviceGetAccountingPids)(device, count, pids);

	if (rc == NVML_SUCCESS && count != NULL && pids != NULL && enter()) {
		unsigned have = users_of(device, users);
		unsigned kept = 0;

		for (unsigned i = 0; i < *count; i++) {
			if (is_user(users, have, pids[i]))
				pids[kept++] = pids[i];
		}
		*count = kept;
		front_leave();
	}
	return rc;
}

static bool foreign(struct nvmlDevice_t device, uint32_t pid)
{
	struct front_user users[MOST_USERS];
	bool is;

	if (!enter())
		return false;
	is = !is_user(users, users_of(device, users), pid);
	front_leave();
	return is;
}

nvmlReturn_t hook_nvmlDeviceGetAccountingStats(enum divvy_symbol called, struct nvmlDevice_t device, unsigned int pid,
					       nvmlAccountingStats_t *stats)
{
	if (foreign(device, pid))
		return NVML_ERROR_NOT_FOUND;
	return REAL(called, nvmlDeviceGetAccountingStats)(device, pid, stats);
}

nvmlReturn_t hook_nvmlDeviceGetAccountingStats_v2(enum divvy_symbol called, struct nvmlDevice_t device,
						  struct nvmlAccountingStats_v2_t *stats)
{
	if (stats != NULL && foreign(device, stats->pid))
		return NVML_ERROR_NOT_FOUND;
	return REAL(called, nvmlDeviceGetAccountingStats_v2)(device, stats);
}

nvmlReturn_t hook_nvmlDeviceGetProcessUtilization(enum divvy_symbol called, struct nvmlDevice_t device,
						  nvmlProcessUtilizationSample_t *samples, unsigned int *count,
						  unsigned long long since)
{
	struct front_user users[MOST_USERS];
	nvmlReturn_t rc = REAL(called, nvmlDeviceGetProcessUtilization)(device, samples, count, since);

	if (rc == NVML_SUCCESS && samples != NULL && count != NULL && enter()) {
		unsigned have = users_of(device, users);
		unsigned kept = 0;

		for (unsigned i = 0; i < *count; i++) {
			if (is_user(users, have, samples[i].pid))
				samples[kept++] = samples[i];
		}
		*count = kept;
		front_leave();
	}
	return rc;
}

nvmlReturn_t hook_nvmlDeviceGetProcessesUtilizationInfo(enum divvy_symbol called, struct nvmlDevice_t device,
							struct nvmlProcessesUtilizationInfo_t *info)
{
	struct front_user users[MOST_USERS];
	nvmlReturn_t rc = REAL(called, nvmlDeviceGetProcessesUtilizationInfo)(device, info);

	if (rc == NVML_SUCCESS && info != NULL && info->procUtilArray != NULL && enter()) {
		unsigned have = users_of(device, users);
		unsigned kept = 0;

		for (unsigned i = 0; i < info->processSamplesCount; i++) {
			if (is_user(users, have, info->procUtilArray[i].pid))
				info->procUtilArray[kept++] = info->procUtilArray[i];
		}
		info->processSamplesCount = kept;
		front_leave();
	}
	return rc;
}

/* The card's own figure until the gate measures the share's part of its quota. */
nvmlReturn_t hook_nvmlDeviceGetUtilizationRates(enum divvy_symbol called, struct nvmlDevice_t device, nvmlUtilization_t *rates)
{
	return REAL(called, nvmlDeviceGetUtilizationRates)(device, rates);
}
