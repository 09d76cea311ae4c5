/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c: MIG devices, one for each compute instance.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "nvml.h"

static nvmlReturn_t give(const struct divvy_sim_mig_compute *compute, nvmlDevice_t *device)
{
	const struct divvy_sim_card *facts = sim_mig_facts(compute->card, compute->uuid);

	if (!facts)
		return NVML_ERROR_NOT_FOUND;
	device->handle = (void *)facts;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	const struct divvy_sim_card *card;
	struct sim_mig mig;
	nvmlReturn_t result = nvml_mig(device, &card, &mig);

	if (result && result != NVML_ERROR_NOT_SUPPORTED)
		return result;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	for (uint32_t i = 0; !result && mig.current && i < mig.profilecount; i++)
		if (*count < mig.profiles[i].slices)
			*count = mig.profiles[i].slices;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *migDevice)
{
	const struct divvy_sim_card *card;
	struct sim_mig mig;
	nvmlReturn_t result = nvml_mig(device, &card, &mig);

	if (result)
		return result;
	if (!migDevice)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!mig.current)
		return NVML_ERROR_NOT_SUPPORTED;
	return index < mig.computecount ? give(&mig.computes[index], migDevice) : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvml_device_by_uuid(const char *uuid, nvmlDevice_t *device)
{
	for (uint32_t card = 0; card < (uint32_t)sim_cards(); card++) {
		const struct divvy_sim_card *facts = sim_card_facts(card);
		struct sim_mig mig;

		if (!facts || !(facts->flags & DIVVY_SIM_CARD_MIG) || sim_mig(card, &mig) != 0)
			continue;
		for (uint32_t i = 0; i < mig.computecount; i++) {
			const uint8_t *u = mig.computes[i].uuid;
			char text[48];

			snprintf(text, sizeof(text), "MIG-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
				 u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
			if (strcasecmp(text, uuid) == 0)
				return give(&mig.computes[i], device);
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

/* The compute instance of a MIG device, and how its card is divided. */
static nvmlReturn_t find(nvmlDevice_t device, struct sim_mig *mig, uint32_t *at)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!nvml_is_device(card))
		return NVML_ERROR_NOT_SUPPORTED;
	result = nvml_error(sim_mig(card->parent, mig));
	for (uint32_t i = 0; !result && i < mig->computecount; i++)
		if (mig->computes[i].card == card->index) {
			*at = i;
			return NVML_SUCCESS;
		}
	return result ? result : NVML_ERROR_NOT_FOUND;
}

unsigned int nvml_device_index(const struct divvy_sim_card *device)
{
	struct sim_mig mig;
	uint32_t at = 0;

	return find((nvmlDevice_t){.handle = (void *)device}, &mig, &at) ? 0 : at;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
	struct sim_mig mig;
	uint32_t at;
	nvmlReturn_t result = find(device, &mig, &at);

	if (result)
		return result;
	if (!id)
		return NVML_ERROR_INVALID_ARGUMENT;
	*id = mig.computes[at].gpu;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
	struct sim_mig mig;
	uint32_t at;
	nvmlReturn_t result = find(device, &mig, &at);

	if (result)
		return result;
	if (!id)
		return NVML_ERROR_INVALID_ARGUMENT;
	*id = mig.computes[at].id;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t migDevice, nvmlDevice_t *device)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(migDevice, &card);

	if (result)
		return result;
	if (!nvml_is_device(card) || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	device->handle = (void *)sim_card_facts(card->parent);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
	struct sim_mig mig;
	const struct divvy_sim_card *card = NULL;
	const struct divvy_sim_mig_profile *profile = NULL;
	uint32_t at;
	nvmlReturn_t result = find(device, &mig, &at);

	if (!result)
		result = nvml_card(device, &card);
	if (result)
		return result;
	for (uint32_t i = 0; i < mig.gpucount; i++)
		if (mig.gpus[i].number == mig.computes[at].gpunumber)
			profile = nvml_profile(&mig, mig.gpus[i].profile);
	if (!attributes || !profile)
		return NVML_ERROR_INVALID_ARGUMENT;
	*attributes = (nvmlDeviceAttributes_t){
		.multiprocessorCount = card->multiprocessors, .sharedCopyEngineCount = profile->copyengines,
		.sharedDecoderCount = profile->decoders, .sharedEncoderCount = profile->encoders,
		.sharedJpegCount = profile->jpegs, .sharedOfaCount = profile->ofas,
		.gpuInstanceSliceCount = profile->slices, .computeInstanceSliceCount = mig.computes[at].slices,
		.memorySizeMB = profile->memorymib,
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
	return nvmlDeviceGetAttributes_v2(device, attributes);
}
