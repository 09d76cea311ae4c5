/* SPDX-License-Identifier: Apache-2.0 */
/*
 * info.c: starting, and what a program learns about cards and memory through
 * the driver API. The driver is made to enumerate the cards of the share that
 * the program wants to see, and no other; numbers and handles are the driver's.
 */
#include "memory.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "visible.h"

struct cards {
	unsigned visible;                  /* cards of the share that the driver shows */
	CUdevice ordinal[DIVVY_MAX_CARDS]; /* by the number that the program uses */
	int slot[DIVVY_MAX_CARDS];
	CUdevice device[DIVVY_MAX_CARDS]; /* by slot; -1: hidden */
};

static struct cards cards;
static uint32_t mapped;      /* cards is filled in */
static uint32_t initialised; /* the driver's own cuInit has been called; a forked child inherits that */

static const struct cards *cards_now(void)
{
	return __atomic_load_n(&mapped, __ATOMIC_ACQUIRE) ? &cards : NULL;
}

int front_slot(CUdevice device)
{
	const struct cards *now = cards_now();

	for (unsigned i = 0; now != NULL && i < now->visible; i++) {
		if (now->ordinal[i] == device)
			return now->slot[i];
	}
	return -1;
}

CUdevice front_device(int slot)
{
	const struct cards *now = cards_now();

	return now == NULL || (unsigned)slot >= DIVVY_MAX_CARDS ? -1 : now->device[slot];
}

unsigned front_cards(void)
{
	const struct divvy_limits *limits = front_limits();

	return limits == NULL ? 0 : limits->cards;
}

int front_current_slot(void)
{
	CUdevice device;

	if (front_cards() == 1)
		return 0;
	return REAL(SYM_cuCtxGetDevice, cuCtxGetDevice)(&device) == CUDA_SUCCESS ? front_slot(device) : -1;
}

int front_context_slot(CUcontext context)
{
	CUdevice device = -1;
	CUcontext popped;
	bool known;

	if (context == NULL || front_cards() == 1)
		return front_current_slot();
	if (REAL(SYM_cuCtxPushCurrent_v2, cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS)
		return -1;
	known = REAL(SYM_cuCtxGetDevice, cuCtxGetDevice)(&device) == CUDA_SUCCESS;
	REAL(SYM_cuCtxPopCurrent_v2, cuCtxPopCurrent_v2)(&popped);
	return known ? front_slot(device) : -1;
}

uint64_t front_total(int slot, uint64_t drivertotal)
{
	return front_limited(slot) ? __atomic_load_n(&front_limits()->card[slot].limitbytes, __ATOMIC_RELAXED) : drivertotal;
}

/* The driver shows no card of the share; a program that has hidden them itself need not be told. */
static void report_hidden(const char *list)
{
	char text[DIVVY_TEXT_BYTES];

	if (visible_hides(list))
		return;
	if (list == NULL)
		snprintf(text, sizeof(text), "the driver does not show it");
	else
		snprintf(text, sizeof(text), "%s=%.40s, and the share has GPUs 0 to %u", VISIBLE_VARIABLE, list, front_cards() - 1);
	front_log("the share's GPU is hidden from this process: %s", text);
	front_event(DIVVY_EVENT_HIDDEN, 0, 0, text);
}

/*
 * Finds the chosen cards among the driver's: *foreign counts what it shows
 * besides them, or in another order. It may show fewer: one that is lost.
 */
static CUresult find_cards(const struct divvy_limits *limits, const struct visible *chosen, struct cards *found, unsigned *foreign)
{
	unsigned next = 0;
	int count = 0;
	CUresult rc = REAL(SYM_cuDeviceGetCount, cuDeviceGetCount)(&count);

	*foreign = 0;
	found->visible = 0;
	for (unsigned slot = 0; slot < DIVVY_MAX_CARDS; slot++)
		found->device[slot] = -1;
	for (int i = 0; rc == CUDA_SUCCESS && i < count; i++) {
		CUdevice device;
		CUuuid uuid;
		unsigned at;

		rc = REAL(SYM_cuDeviceGet, cuDeviceGet)(&device, i);
		if (rc == CUDA_SUCCESS)
			rc = REAL(SYM_cuDeviceGetUuid, cuDeviceGetUuid)(&uuid, device);
		if (rc != CUDA_SUCCESS)
			break;
		for (at = next; at < chosen->count; at++) {
			if (memcmp(uuid.bytes, limits->card[chosen->slot[at]].uuid, sizeof(uuid.bytes)) == 0)
				break;
		}
		if (at == chosen->count) {
			++*foreign;
			continue;
		}
		next = at + 1;
		found->device[chosen->slot[at]] = device;
		found->ordinal[found->visible] = device;
		found->slot[found->visible++] = chosen->slot[at];
	}
	return rc;
}

/* Once the driver has started: takes its cards over, or refuses them. */
static CUresult map_cards(const struct divvy_limits *limits, const struct visible *chosen, const char *list)
{
	struct cards found;
	unsigned foreign;
	CUresult rc = find_cards(limits, chosen, &found, &foreign);

	if (rc != CUDA_SUCCESS)
		return rc;
	if (found.visible > 0 && foreign > 0) {
		char text[DIVVY_TEXT_BYTES];

		snprintf(text, sizeof(text), "it shows %u besides %u of the share", foreign, found.visible);
		front_log("the driver shows GPUs that are not the share's, as when it was started before Divvy's library: %s", text);
		front_event(DIVVY_EVENT_FOREIGN, 0, 0, text);
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	cards = found;
	__atomic_store_n(&mapped, 1, __ATOMIC_RELEASE);
	if (found.visible == 0)
		report_hidden(list);
	return CUDA_SUCCESS;
}

/*
 * Starts the driver, which reads the environment now: whatever that says, it
 * enumerates the chosen cards of the share and no other. With the program's list
 * or with none it would count from the machine's cards, and whoever asks the
 * driver past us would see others than the program does.
 */
static CUresult start(enum divvy_symbol called, unsigned int flags)
{
	const struct divvy_limits *limits = front_limits();
	const char *list = getenv(VISIBLE_VARIABLE);
	char entry[VISIBLE_TEXT_BYTES];
	struct visible chosen;
	CUresult rc;

	visible_choose(limits, list, &chosen);
	visible_entry(limits, &chosen, entry);
	if (!visible_tell(entry))
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = REAL(called, cuInit)(flags);
	visible_told();
	front_start_lock();
	if (rc == CUDA_SUCCESS && !mapped)
		rc = map_cards(limits, &chosen, list);
	else if (rc == CUDA_ERROR_NO_DEVICE)
		report_hidden(list);
	front_start_unlock();
	return rc;
}

CUresult hook_cuInit(enum divvy_symbol called, unsigned int flags)
{
	CUresult rc;

	/* the child of a process that used the driver gets the driver's own answer */
	if (front_thread.inside || (front_forked() && __atomic_load_n(&initialised, __ATOMIC_ACQUIRE)))
		return REAL(called, cuInit)(flags);
	rc = front_ready();
	if (rc != CUDA_SUCCESS || !front_enter())
		return rc;
	__atomic_store_n(&initialised, 1, __ATOMIC_RELEASE);
	rc = __atomic_load_n(&mapped, __ATOMIC_ACQUIRE) ? REAL(called, cuInit)(flags) : start(called, flags);
	if (rc == CUDA_SUCCESS && cards.visible == 0)
		rc = CUDA_ERROR_NO_DEVICE;
	front_leave();
	return rc;
}

CUresult hook_cuDeviceGetCount(enum divvy_symbol called, int *count)
{
	int all;
	CUresult rc;

	if (count == NULL || !front_enter())
		return REAL(called, cuDeviceGetCount)(count);
	rc = REAL(called, cuDeviceGetCount)(&all);
	if (rc == CUDA_SUCCESS)
		*count = (int)cards.visible;
	front_leave();
	return rc;
}

CUresult hook_cuDeviceGet(enum divvy_symbol called, CUdevice *device, int ordinal)
{
	CUdevice found;
	CUresult rc;

	if (device == NULL || !front_enter())
		return REAL(called, cuDeviceGet)(device, ordinal);
	/* the driver says whether it is initialised; its first card is as good as any */
	rc = REAL(called, cuDeviceGet)(&found, 0);
	if (rc == CUDA_SUCCESS && (ordinal < 0 || (unsigned)ordinal >= cards.visible))
		rc = CUDA_ERROR_INVALID_DEVICE;
	if (rc == CUDA_SUCCESS)
		*device = cards.ordinal[ordinal];
	front_leave();
	return rc;
}

CUresult hook_cuDeviceGetByPCIBusId(enum divvy_symbol called, CUdevice *device, const char *address)
{
	CUdevice found;
	CUresult rc;

	if (device == NULL || !front_enter())
		return REAL(called, cuDeviceGetByPCIBusId)(device, address);
	rc = REAL(called, cuDeviceGetByPCIBusId)(&found, address);
	if (rc == CUDA_SUCCESS && front_slot(found) < 0)
		rc = CUDA_ERROR_INVALID_DEVICE;
	if (rc == CUDA_SUCCESS)
		*device = found;
	front_leave();
	return rc;
}

CUresult hook_cuDeviceTotalMem_v2(enum divvy_symbol called, size_t *bytes, CUdevice device)
{
	size_t all;
	int slot;
	CUresult rc;

	if (bytes == NULL || !front_enter())
		return REAL(called, cuDeviceTotalMem_v2)(bytes, device);
	rc = REAL(called, cuDeviceTotalMem_v2)(&all, device);
	slot = front_slot(device);
	if (rc == CUDA_SUCCESS && slot < 0)
		rc = CUDA_ERROR_INVALID_DEVICE;
	if (rc == CUDA_SUCCESS)
		*bytes = front_total(slot, all);
	front_leave();
	return rc;
}

/* The functions of before CUDA 3.2 tell 32 bits. */
static unsigned int saturate(uint64_t bytes)
{
	return bytes < UINT_MAX ? (unsigned int)bytes : UINT_MAX;
}

CUresult hook_cuDeviceTotalMem(enum divvy_symbol called, unsigned int *bytes, CUdevice device)
{
	unsigned int all;
	int slot;
	CUresult rc;

	if (bytes == NULL || !front_enter())
		return REAL(called, cuDeviceTotalMem)(bytes, device);
	rc = REAL(called, cuDeviceTotalMem)(&all, device);
	slot = front_slot(device);
	if (rc == CUDA_SUCCESS && slot < 0)
		rc = CUDA_ERROR_INVALID_DEVICE;
	if (rc == CUDA_SUCCESS)
		*bytes = saturate(front_total(slot, all));
	front_leave();
	return rc;
}

CUresult hook_cuMemGetInfo_v2(enum divvy_symbol called, size_t *freebytes, size_t *totalbytes)
{
	size_t driverfree, drivertotal;
	uint64_t sharefree, sharetotal;
	CUresult rc;

	if (freebytes == NULL || totalbytes == NULL || !front_enter())
		return REAL(called, cuMemGetInfo_v2)(freebytes, totalbytes);
	/* only the driver knows whether a context is current */
	rc = REAL(called, cuMemGetInfo_v2)(&driverfree, &drivertotal);
	if (rc == CUDA_SUCCESS) {
		front_pools_settle();
		front_memory(front_current_slot(), driverfree, drivertotal, &sharefree, &sharetotal);
		*freebytes = sharefree;
		*totalbytes = sharetotal;
	}
	front_leave();
	return rc;
}

CUresult hook_cuMemGetInfo(enum divvy_symbol called, unsigned int *freebytes, unsigned int *totalbytes)
{
	unsigned int driverfree, drivertotal;
	uint64_t sharefree, sharetotal;
	CUresult rc;

	if (freebytes == NULL || totalbytes == NULL || !front_enter())
		return REAL(called, cuMemGetInfo)(freebytes, totalbytes);
	rc = REAL(called, cuMemGetInfo)(&driverfree, &drivertotal);
	if (rc == CUDA_SUCCESS) {
		front_pools_settle();
		front_memory(front_current_slot(), driverfree, drivertotal, &sharefree, &sharetotal);
		*freebytes = saturate(sharefree);
		*totalbytes = saturate(sharetotal);
	}
	front_leave();
	return rc;
}
