/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ecc.c: errors of memory, and how it is repaired: rows are remapped from Ampere
 * on, pages are retired before. All errors are in device memory.
 */
#include "nvml.h"

/* The counters, for a card that has ECC. */
static nvmlReturn_t counters(nvmlDevice_t device, const struct divvy_sim_card **card, struct divvy_sim_health *now)
{
	nvmlReturn_t result = nvml_health(device, card, now);

	return !result && !nvml_has_ecc(*card) ? NVML_ERROR_NOT_SUPPORTED : result;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!current || !pending)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!nvml_has_ecc(card))
		return NVML_ERROR_NOT_SUPPORTED;
	*current = *pending = NVML_FEATURE_ENABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *defaultMode)
{
	nvmlEnableState_t unused;

	return nvmlDeviceGetEccMode(device, defaultMode, &unused);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType, nvmlEccCounterType_t counterType,
					 unsigned long long *eccCounts)
{
	const struct divvy_sim_card *card;
	struct divvy_sim_health now;
	nvmlReturn_t result = counters(device, &card, &now);

	if (result)
		return result;
	if (!eccCounts || errorType >= NVML_MEMORY_ERROR_TYPE_COUNT || counterType >= NVML_ECC_COUNTER_TYPE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*eccCounts = now.ecc[errorType * 2 + counterType];
	return NVML_SUCCESS;
}

/* Which places a card counts errors of follows its generation. */
static bool counted(const struct divvy_sim_card *card, nvmlMemoryLocation_t location)
{
	if (card->architecture >= NVML_DEVICE_ARCH_AMPERE)
		return location == NVML_MEMORY_LOCATION_DRAM || location == NVML_MEMORY_LOCATION_SRAM;
	return location == NVML_MEMORY_LOCATION_DEVICE_MEMORY || location == NVML_MEMORY_LOCATION_L1_CACHE ||
	       location == NVML_MEMORY_LOCATION_L2_CACHE || location == NVML_MEMORY_LOCATION_REGISTER_FILE ||
	       location == NVML_MEMORY_LOCATION_CBU;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t errorType, nvmlEccCounterType_t counterType,
					     nvmlMemoryLocation_t locationType, unsigned long long *count)
{
	const struct divvy_sim_card *card;
	struct divvy_sim_health now;
	nvmlReturn_t result = counters(device, &card, &now);

	if (result)
		return result;
	if (!count || errorType >= NVML_MEMORY_ERROR_TYPE_COUNT || counterType >= NVML_ECC_COUNTER_TYPE_COUNT ||
	    locationType >= NVML_MEMORY_LOCATION_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!counted(card, locationType))
		return NVML_ERROR_NOT_SUPPORTED;
	*count = locationType == NVML_MEMORY_LOCATION_DEVICE_MEMORY ? now.ecc[errorType * 2 + counterType] : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType, nvmlEccCounterType_t counterType,
					    nvmlEccErrorCounts_t *eccCounts)
{
	unsigned long long total = 0;
	nvmlReturn_t result = nvmlDeviceGetTotalEccErrors(device, errorType, counterType, &total);

	if (result)
		return result;
	if (!eccCounts)
		return NVML_ERROR_INVALID_ARGUMENT;
	*eccCounts = (nvmlEccErrorCounts_t){ .deviceMemory = total };
	return NVML_SUCCESS;
}

/* Pages by number from 1 MiB on; the simulator counts them and no more. */
static nvmlReturn_t retired(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *pageCount,
			    unsigned long long *addresses, unsigned long long *timestamps)
{
	const struct divvy_sim_card *card;
	struct divvy_sim_health now;
	nvmlReturn_t result = counters(device, &card, &now);
	unsigned int count;

	if (result)
		return result;
	if (card->architecture >= NVML_DEVICE_ARCH_AMPERE)
		return NVML_ERROR_NOT_SUPPORTED;
	if (!pageCount || cause >= NVML_PAGE_RETIREMENT_CAUSE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	count = cause == NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR ? now.retireddouble : now.retiredsingle;
	if (count > *pageCount || (count && !addresses)) {
		*pageCount = count;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	*pageCount = count;
	for (unsigned int i = 0; i < count; i++) {
		addresses[i] = (1ull << 20) + 4096ull * i;
		if (timestamps)
			timestamps[i] = 0;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *pageCount,
				       unsigned long long *addresses)
{
	return retired(device, cause, pageCount, addresses, NULL);
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *pageCount,
					  unsigned long long *addresses, unsigned long long *timestamps)
{
	return retired(device, cause, pageCount, addresses, timestamps);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *isPending)
{
	const struct divvy_sim_card *card;
	struct divvy_sim_health now;
	nvmlReturn_t result = counters(device, &card, &now);

	if (result)
		return result;
	if (card->architecture >= NVML_DEVICE_ARCH_AMPERE)
		return NVML_ERROR_NOT_SUPPORTED;
	if (!isPending)
		return NVML_ERROR_INVALID_ARGUMENT;
	*isPending = now.retiredpending ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrRows, unsigned int *uncRows, unsigned int *isPending,
				       unsigned int *failureOccurred)
{
	const struct divvy_sim_card *card;
	struct divvy_sim_health now;
	nvmlReturn_t result = counters(device, &card, &now);

	if (result)
		return result;
	if (!corrRows || !uncRows || !isPending || !failureOccurred)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (card->architecture < NVML_DEVICE_ARCH_AMPERE)
		return NVML_ERROR_NOT_SUPPORTED;
	*corrRows = now.remappedcorrectable;
	*uncRows = now.remappeduncorrectable;
	*isPending = now.remappending;
	*failureOccurred = now.remapfailed;
	return NVML_SUCCESS;
}

/* Banks by how many spare rows they have left: every remapped row is in a bank of
 * its own. */
nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *values)
{
	enum { BANKS = 640 };
	const struct divvy_sim_card *card;
	struct divvy_sim_health now;
	nvmlReturn_t result = counters(device, &card, &now);
	unsigned int used;

	if (result)
		return result;
	if (!values)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (card->architecture < NVML_DEVICE_ARCH_AMPERE)
		return NVML_ERROR_NOT_SUPPORTED;
	used = now.remappedcorrectable + now.remappeduncorrectable;
	used = used < BANKS ? used : BANKS;
	*values = (nvmlRowRemapperHistogramValues_t){ .max = BANKS - used, .high = used };
	return NVML_SUCCESS;
}
