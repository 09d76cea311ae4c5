/* SPDX-License-Identifier: Apache-2.0 */
/* facts.c: what does not change while a session lasts, read once when it opens. */
#include "facts.h"
#include "remote.h"

#include <stdlib.h>

struct remote_facts remote_facts;

/* Texts of errors, kept for ever: programs keep what they get. */
#define RESULTS 1024
static char *error_name[RESULTS], *error_text[RESULTS], *nvml_text[RESULTS];

static char *kept(const uint8_t *text, size_t length)
{
	char *copy = malloc(length + 1);

	if (copy) {
		memcpy(copy, text, length);
		copy[length] = '\0';
	}
	return copy;
}

static void copy_text(char *to, size_t room, const uint8_t *text, size_t length)
{
	if (length > room - 1)
		length = room - 1;
	memcpy(to, text, length);
	to[length] = '\0';
}

static void take(const struct call_fact_header *fact, const uint8_t *bytes)
{
	struct remote_device *device = &remote_facts.device[fact->device < REMOTE_DEVICES ? fact->device : 0];
	char **texts = fact->fact == FACT_ERROR_NAME ? error_name : fact->fact == FACT_ERROR_TEXT ? error_text : nvml_text;
	uint64_t word = 0;

	if (fact->device >= REMOTE_DEVICES)
		return;
	memcpy(&word, bytes, fact->length < sizeof(word) ? fact->length : sizeof(word));
	switch (fact->fact) {
	case FACT_NAME:
		copy_text(device->name, sizeof(device->name), bytes, fact->length);
		break;
	case FACT_UUID:
		memcpy(device->uuid, bytes, fact->length < 16 ? fact->length : 16);
		break;
	case FACT_PCI:
		copy_text(device->pci, sizeof(device->pci), bytes, fact->length);
		break;
	case FACT_MEMORY:
		device->memory = word;
		break;
	case FACT_ATTRIBUTE:
		if (fact->key < REMOTE_ATTRIBUTES)
			device->attribute[fact->key] = (int)word;
		break;
	case FACT_ERROR_NAME:
	case FACT_ERROR_TEXT:
	case FACT_NVML_ERROR:
		if (fact->key < RESULTS && !texts[fact->key])
			texts[fact->key] = kept(bytes, fact->length);
		break;
	default:
		break;
	}
}

/* What a GPU over there cannot do for a program here: host memory that kernels reach,
 * memory shared with other programs' processes, pages that both sides have. */
static const uint8_t masked[] = {
	CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
	CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
	CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
	CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
	CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
	CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
	CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
	CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
};

bool remote_facts_read(const struct divvy_remote_welcome *welcome, const uint8_t *bytes, size_t length)
{
	struct call_fact_header fact;

	if (welcome->devices > REMOTE_DEVICES)
		return false;
	while (length >= sizeof(fact)) {
		memcpy(&fact, bytes, sizeof(fact));
		bytes += sizeof(fact);
		length -= sizeof(fact);
		size_t padded = call_padded(fact.length);

		if (fact.length > FACT_BYTES || padded > length)
			return false;
		take(&fact, bytes);
		bytes += padded;
		length -= padded;
	}
	remote_facts.version = (int)welcome->driverversion;
	remote_facts.devices = welcome->devices;
	for (unsigned int i = 0; i < welcome->devices; i++) {
		for (size_t j = 0; j < sizeof(masked); j++)
			remote_facts.device[i].attribute[masked[j]] = 0;
	}
	return length == 0;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **pStr)
{
	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = (unsigned int)error < RESULTS ? error_name[error] : NULL;
	return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **pStr)
{
	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = (unsigned int)error < RESULTS ? error_text[error] : NULL;
	return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
	const char *text = (unsigned int)result < RESULTS ? nvml_text[result] : NULL;

	return text ? text : nvml_text[NVML_ERROR_UNKNOWN] ? nvml_text[NVML_ERROR_UNKNOWN] : "Unknown Error";
}
