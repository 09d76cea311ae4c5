/* SPDX-License-Identifier: Apache-2.0 */
/*
 * card.c: finding cards, and what they are.
 */
#include <stdio.h>
#include <string.h>

#include "nvml.h"

nvmlReturn_t nvml_identity(nvmlDevice_t device, const struct divvy_sim_card **card)
{
	nvmlReturn_t result = nvml_ready();
	int count = sim_cards();

	if (result)
		return result;
	for (int i = 0; i < count; i++) {
		*card = sim_card_facts((uint32_t)i);
		if (device.handle && (const void *)device.handle == (const void *)*card)
			return NVML_SUCCESS;
	}
	if (!device.handle || !sim_mig_known(device.handle))
		return NVML_ERROR_INVALID_ARGUMENT;
	*card = (const struct divvy_sim_card *)(const void *)device.handle;
	return sim_mig_current(*card) ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvml_card(nvmlDevice_t device, const struct divvy_sim_card **card)
{
	nvmlReturn_t result = nvml_identity(device, card);

	if (!result && sim_card_flags((*card)->parent) & DIVVY_SIM_HEALTH_LOST)
		result = NVML_ERROR_GPU_IS_LOST;
	return result;
}

nvmlReturn_t nvml_health(nvmlDevice_t device, const struct divvy_sim_card **card, struct divvy_sim_health *now)
{
	const struct divvy_sim_card *found;
	nvmlReturn_t result = nvml_card(device, &found);

	if (result)
		return result;
	if (card)
		*card = found;
	if (nvml_is_device(found))
		return NVML_ERROR_NOT_SUPPORTED; /* it is the card that has sensors */
	result = nvml_error(sim_health(found->index, now));
	return !result && now->flags & DIVVY_SIM_HEALTH_LOST ? NVML_ERROR_GPU_IS_LOST : result;
}

static nvmlDevice_t handle_of(uint32_t index)
{
	return (nvmlDevice_t){.handle = (void *)sim_card_facts(index)};
}

/* Nobody gets a handle of a card that has fallen off the bus. */
static nvmlReturn_t give(uint32_t index, nvmlDevice_t *device)
{
	if (sim_card_flags(index) & DIVVY_SIM_HEALTH_LOST)
		return NVML_ERROR_GPU_IS_LOST;
	*device = handle_of(index);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)
{
	nvmlReturn_t result = nvml_ready();

	if (result)
		return result;
	if (!deviceCount)
		return NVML_ERROR_INVALID_ARGUMENT;
	*deviceCount = (unsigned int)sim_cards();
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount)
{
	return nvmlDeviceGetCount_v2(deviceCount);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	nvmlReturn_t result = nvml_ready();

	if (result)
		return result;
	if (!device || index >= (unsigned int)sim_cards())
		return NVML_ERROR_INVALID_ARGUMENT;
	return give(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static void uuid_text(const struct divvy_sim_card *card, char text[48])
{
	int n = snprintf(text, 48, nvml_is_device(card) ? "MIG-" : "GPU-");

	for (int i = 0; i < 16; i++)
		n += snprintf(text + n, (size_t)(48 - n), i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", card->uuid[i]);
}

/* The first card that matches what is asked for. */
static nvmlReturn_t find(nvmlDevice_t *device, const void *wanted,
			 int (*matches)(const struct divvy_sim_card *card, const void *wanted))
{
	nvmlReturn_t result = nvml_ready();

	if (result)
		return result;
	if (!device || !wanted)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < (uint32_t)sim_cards(); i++)
		if (matches(sim_card_facts(i), wanted))
			return give(i, device);
	return NVML_ERROR_NOT_FOUND;
}

static int same_uuid(const struct divvy_sim_card *card, const void *wanted)
{
	char text[48];

	uuid_text(card, text);
	return strcmp(text, wanted) == 0;
}

static int same_uuid_bytes(const struct divvy_sim_card *card, const void *wanted)
{
	return memcmp(card->uuid, wanted, sizeof(card->uuid)) == 0;
}

static int same_serial(const struct divvy_sim_card *card, const void *wanted)
{
	return strcmp(card->serial, wanted) == 0;
}

struct address {
	unsigned int domain;
	unsigned int bus;
	unsigned int device;
	unsigned int function;
};

static int same_address(const struct divvy_sim_card *card, const void *wanted)
{
	const struct address *a = wanted;

	return card->pcidomain == a->domain && card->pcibus == a->bus && card->pcidevice == a->device && a->function == 0;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	nvmlReturn_t result = find(device, uuid, same_uuid);

	return result == NVML_ERROR_NOT_FOUND ? nvml_device_by_uuid(uuid, device) : result;
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device)
{
	char text[sizeof(uuid->value.str) + 1] = "";

	if (!uuid)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (uuid->version != nvmlUUID_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	switch (uuid->type) {
	case NVML_UUID_TYPE_ASCII:
		memcpy(text, uuid->value.str, sizeof(uuid->value.str));
		return nvmlDeviceGetHandleByUUID(text, device);
	case NVML_UUID_TYPE_BINARY:
		return find(device, uuid->value.bytes, same_uuid_bytes);
	default:
		return NVML_ERROR_INVALID_ARGUMENT;
	}
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	return find(device, serial, same_serial);
}

/* domain:bus:device.function in hexadecimal; the domain may be left out. */
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)
{
	struct address a = {0};
	int end = -1;

	if (!pciBusId)
		return find(device, NULL, same_address);
	if (sscanf(pciBusId, "%8x:%2x:%2x.%1x%n", &a.domain, &a.bus, &a.device, &a.function, &end) != 4 || end < 0 ||
	    pciBusId[end]) {
		a.domain = 0;
		end = -1;
		if (sscanf(pciBusId, "%2x:%2x.%1x%n", &a.bus, &a.device, &a.function, &end) != 3 || end < 0 || pciBusId[end])
			return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	}
	return find(device, &a, same_address);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_identity(device, &card);
	char text[48];

	if (result)
		return result;
	uuid_text(card, text);
	return nvml_text(uuid, length, text);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	return result ? result : nvml_text(name, length, card->name);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	return result ? result : nvml_text(serial, length, card->serial);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	return result ? result : nvml_text(version, length, "simulated");
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_identity(device, &card);

	if (result)
		return result;
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	memset(pci, 0, sizeof(*pci));
	snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0", card->pcidomain & 0xffff,
		 card->pcibus & 0xff, card->pcidevice & 0xff);
	snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", card->pcidomain, card->pcibus & 0xff, card->pcidevice & 0xff);
	pci->domain = card->pcidomain;
	pci->bus = card->pcibus;
	pci->device = card->pcidevice;
	pci->pciDeviceId = card->pciid;
	pci->pciSubSystemId = card->pcisubsystem;
	return NVML_SUCCESS;
}

/* The older layouts end earlier: their callers' buffers are shorter. */
static nvmlReturn_t old_pci_info(nvmlDevice_t device, nvmlPciInfo_t *pci, size_t bytes)
{
	nvmlPciInfo_t whole;
	nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, &whole);

	if (result)
		return result;
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	memcpy(pci, &whole, bytes);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return old_pci_info(device, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return old_pci_info(device, pci, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
	nvmlPciInfo_t whole;
	nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, &whole);

	if (result)
		return result;
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (pci->version != nvmlPciInfoExt_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	pci->domain = whole.domain;
	pci->bus = whole.bus;
	pci->device = whole.device;
	pci->pciDeviceId = whole.pciDeviceId;
	pci->pciSubSystemId = whole.pciSubSystemId;
	pci->baseClass = 3; /* display controller */
	pci->subClass = 2;  /* 3D */
	memcpy(pci->busId, whole.busId, sizeof(pci->busId));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!major || !minor)
		return NVML_ERROR_INVALID_ARGUMENT;
	*major = (int)card->major;
	*minor = (int)card->minorcc;
	return NVML_SUCCESS;
}

/* Of one lane, for nvmlDeviceGetPcieSpeed. */
static unsigned int megabits(unsigned int generation)
{
	return generation <= 2 ? 2500u * generation : 8000u << (generation - 3);
}

/* NVML_PCIE_LINK_MAX_SPEED_*: 1 for the first generation, and so on. */
static unsigned int max_speed(unsigned int generation)
{
	return generation;
}

/* Those that a card keeps when it is lost. */
#define IDENTITY_NUMBER(function, expression)                            \
	nvmlReturn_t function(nvmlDevice_t device, unsigned int *number) \
	{                                                                \
		const struct divvy_sim_card *card;                       \
		nvmlReturn_t result = nvml_identity(device, &card);      \
                                                                         \
		if (result)                                              \
			return result;                                   \
		if (!number)                                             \
			return NVML_ERROR_INVALID_ARGUMENT;              \
		*number = (expression);                                  \
		return NVML_SUCCESS;                                     \
	}

IDENTITY_NUMBER(nvmlDeviceGetIndex, nvml_is_device(card) ? nvml_device_index(card) : card->index)
IDENTITY_NUMBER(nvmlDeviceGetMinorNumber, card->minor)
NVML_NUMBER(nvmlDeviceGetBrand, nvmlBrandType_t, card->brand)
NVML_NUMBER(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, card->architecture)
NVML_NUMBER(nvmlDeviceGetNumGpuCores, unsigned int, card->multiprocessors * card->corespermultiprocessor)
NVML_NUMBER(nvmlDeviceGetMemoryBusWidth, unsigned int, card->buswidthbits)
NVML_NUMBER(nvmlDeviceGetBusType, nvmlBusType_t, NVML_BUS_TYPE_PCIE)
NVML_NUMBER(nvmlDeviceGetBoardId, unsigned int, card->pcidomain << 16 | card->pcibus << 8)
NVML_NUMBER(nvmlDeviceGetMultiGpuBoard, unsigned int, 0)
NVML_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, card->pciegeneration)
NVML_NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int, card->pciegeneration)
NVML_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, card->pciegeneration)
NVML_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, card->pciewidth)
NVML_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, card->pciewidth)
NVML_NUMBER(nvmlDeviceGetPcieSpeed, unsigned int, megabits(card->pciegeneration))
NVML_NUMBER(nvmlDeviceGetPcieLinkMaxSpeed, unsigned int, max_speed(card->pciegeneration))
NVML_NUMBER(nvmlDeviceIsMigDeviceHandle, unsigned int, nvml_is_device(card))

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int *onSameBoard)
{
	const struct divvy_sim_card *a;
	const struct divvy_sim_card *b;
	nvmlReturn_t result = nvml_card(device1, &a);

	if (!result)
		result = nvml_card(device2, &b);
	if (result)
		return result;
	if (!onSameBoard)
		return NVML_ERROR_INVALID_ARGUMENT;
	*onSameBoard = a == b;
	return NVML_SUCCESS;
}
