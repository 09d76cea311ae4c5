/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml.c: the part of the null driver (nvml*) whose answers matter to a
 * caller. Everything else says success with zeros (calls.c).
 */
#include "null.h"

static nvmlDevice_t the_card(void)
{
	nvmlDevice_t device = {.handle = (void *)0x20000};

	return device;
}

static nvmlReturn_t give_card(nvmlDevice_t *device)
{
	if (!device)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = the_card();
	return NVML_SUCCESS;
}

static nvmlReturn_t give_text(char *buffer, unsigned int room, const char *text)
{
	if (!buffer)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(text) >= room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	return null_copy(buffer, room, text) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	switch (result) {
	case NVML_SUCCESS:
		return "The operation was successful";
	case NVML_ERROR_INVALID_ARGUMENT:
		return "A supplied argument is invalid";
	case NVML_ERROR_NOT_SUPPORTED:
		return "The requested operation is not available on this device";
	case NVML_ERROR_NOT_FOUND:
		return "A query to find an object was unsuccessful";
	case NVML_ERROR_INSUFFICIENT_SIZE:
		return "An input argument is not large enough";
	default:
		return "Unknown error";
	}
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	return give_text(version, length, "535.0 (simulated)");
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	return give_text(version, length, "12.535.0");
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cudaDriverVersion)
{
	if (!cudaDriverVersion)
		return NVML_ERROR_INVALID_ARGUMENT;
	*cudaDriverVersion = NULL_VERSION;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion)
{
	return nvmlSystemGetCudaDriverVersion(cudaDriverVersion);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)
{
	if (!deviceCount)
		return NVML_ERROR_INVALID_ARGUMENT;
	*deviceCount = 1;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount)
{
	return nvmlDeviceGetCount_v2(deviceCount);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	return index == 0 ? give_card(device) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	if (!uuid)
		return NVML_ERROR_INVALID_ARGUMENT;
	return strcmp(uuid, NULL_UUID) == 0 ? give_card(device) : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)
{
	return pciBusId ? give_card(device) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	return serial ? give_card(device) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	(void)device;
	return give_text(name, length, NULL_NAME);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	(void)device;
	return give_text(uuid, length, NULL_UUID);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
	(void)device;
	return give_text(serial, length, "0");
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	(void)device;
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	memset(pci, 0, sizeof(*pci));
	pci->bus = 1;
	null_copy(pci->busIdLegacy, sizeof(pci->busIdLegacy), NULL_PCI);
	null_copy(pci->busId, sizeof(pci->busId), "0000" NULL_PCI);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	(void)device;
	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	memory->total = NULL_MEMORY;
	memory->free = NULL_MEMORY;
	memory->used = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	(void)device;
	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	memory->total = NULL_MEMORY;
	memory->reserved = 0;
	memory->free = NULL_MEMORY;
	memory->used = 0;
	return NVML_SUCCESS;
}
