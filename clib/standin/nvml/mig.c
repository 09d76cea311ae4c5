/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mig.c: MIG mode and GPU instances.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nvml.h"

nvmlReturn_t nvml_change_error(int error)
{
	return error == -EPERM ? NVML_ERROR_NO_PERMISSION : nvml_error(error);
}

nvmlReturn_t nvml_mig(nvmlDevice_t device, const struct divvy_sim_card **card, struct sim_mig *mig)
{
	nvmlReturn_t result = nvml_card(device, card);

	if (result)
		return result;
	if (nvml_is_device(*card))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!((*card)->flags & DIVVY_SIM_CARD_MIG))
		return NVML_ERROR_NOT_SUPPORTED;
	return nvml_error(sim_mig((*card)->index, mig));
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *currentMode, unsigned int *pendingMode)
{
	const struct divvy_sim_card *card;
	struct sim_mig mig;
	nvmlReturn_t result = nvml_mig(device, &card, &mig);

	if (result)
		return result;
	if (!currentMode || !pendingMode)
		return NVML_ERROR_INVALID_ARGUMENT;
	*currentMode = mig.current;
	*pendingMode = mig.pending;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activationStatus)
{
	const struct divvy_sim_card *card;
	struct sim_mig mig;
	uint32_t done = 0;
	nvmlReturn_t result = nvml_mig(device, &card, &mig);

	if (result)
		return result;
	if (!activationStatus || mode > NVML_DEVICE_MIG_ENABLE)
		return NVML_ERROR_INVALID_ARGUMENT;
	result = nvml_change_error(sim_mig_change(card->index, DIVVY_SIM_MIG_SET_MODE, mode, 0, NULL, &done));
	if (!result)
		*activationStatus = done ? NVML_SUCCESS : NVML_ERROR_IN_USE;
	return result;
}

const struct divvy_sim_mig_profile *nvml_profile(const struct sim_mig *mig, unsigned int id)
{
	for (uint32_t i = 0; i < mig->profilecount; i++)
		if (mig->profiles[i].id == id)
			return &mig->profiles[i];
	return NULL;
}

/* The profile by NVML's number or by its own. */
static nvmlReturn_t find_profile(nvmlDevice_t device, unsigned int number, bool byid, struct sim_mig *mig,
				 const struct divvy_sim_mig_profile **profile)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_mig(device, &card, mig);

	if (result)
		return result;
	if (!byid && number >= NVML_GPU_INSTANCE_PROFILE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < mig->profilecount; i++)
		if ((byid ? mig->profiles[i].id : mig->profiles[i].nvml) == number) {
			*profile = &mig->profiles[i];
			return NVML_SUCCESS;
		}
	return byid && mig->profilecount ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_t *info)
{
	const struct divvy_sim_mig_profile *found;
	struct sim_mig mig;
	nvmlReturn_t result = find_profile(device, profile, false, &mig, &found);

	if (result)
		return result;
	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	*info = (nvmlGpuInstanceProfileInfo_t){
		.id = found->id, .sliceCount = found->slices, .instanceCount = found->most,
		.multiprocessorCount = found->multiprocessors, .copyEngineCount = found->copyengines,
		.decoderCount = found->decoders, .encoderCount = found->encoders, .jpegCount = found->jpegs,
		.ofaCount = found->ofas, .memorySizeMB = found->memorymib,
	};
	return NVML_SUCCESS;
}

static bool draws(const struct divvy_sim_mig_profile *profile)
{
	return strstr(profile->name, "gfx") != NULL;
}

/* In the version that the caller's structure says it is of. */
static nvmlReturn_t fill_info(const struct divvy_sim_mig_profile *found, nvmlGpuInstanceProfileInfo_v2_t *info)
{
	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (info->version == nvmlGpuInstanceProfileInfo_v2) {
		*info = (nvmlGpuInstanceProfileInfo_v2_t){
			.version = nvmlGpuInstanceProfileInfo_v2, .id = found->id, .sliceCount = found->slices,
			.instanceCount = found->most, .multiprocessorCount = found->multiprocessors,
			.copyEngineCount = found->copyengines, .decoderCount = found->decoders,
			.encoderCount = found->encoders, .jpegCount = found->jpegs, .ofaCount = found->ofas,
			.memorySizeMB = found->memorymib,
		};
		snprintf(info->name, sizeof(info->name), "MIG %s", found->name);
		return NVML_SUCCESS;
	}
	if (info->version == nvmlGpuInstanceProfileInfo_v3) {
		nvmlGpuInstanceProfileInfo_v3_t whole = {
			.version = nvmlGpuInstanceProfileInfo_v3, .id = found->id, .sliceCount = found->slices,
			.instanceCount = found->most, .multiprocessorCount = found->multiprocessors,
			.copyEngineCount = found->copyengines, .decoderCount = found->decoders,
			.encoderCount = found->encoders, .jpegCount = found->jpegs, .ofaCount = found->ofas,
			.memorySizeMB = found->memorymib,
			.capabilities = draws(found) ? NVML_GPU_INSTANCE_PROFILE_CAPS_GFX : 0,
		};

		snprintf(whole.name, sizeof(whole.name), "MIG %s", found->name);
		memcpy((void *)info, &whole, sizeof(whole));
		return NVML_SUCCESS;
	}
	return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_v2_t *info)
{
	const struct divvy_sim_mig_profile *found;
	struct sim_mig mig;
	nvmlReturn_t result = find_profile(device, profile, false, &mig, &found);

	return result ? result : fill_info(found, info);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int profileId,
						      nvmlGpuInstanceProfileInfo_v2_t *info)
{
	const struct divvy_sim_mig_profile *found;
	struct sim_mig mig;
	nvmlReturn_t result = find_profile(device, profileId, true, &mig, &found);

	return result ? result : fill_info(found, info);
}

/* Where a profile may start on an empty card. */
nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int profileId,
							   nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
	const struct divvy_sim_mig_profile *found;
	struct sim_mig mig;
	unsigned int n = 0;
	nvmlReturn_t result = find_profile(device, profileId, true, &mig, &found);

	if (result)
		return result;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int start = 0; start < 32; start++) {
		if (!(found->starts >> start & 1))
			continue;
		if (placements) {
			if (n >= *count)
				return NVML_ERROR_INSUFFICIENT_SIZE;
			placements[n] = (nvmlGpuInstancePlacement_t){.start = start, .size = found->size};
		}
		n++;
	}
	*count = n;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int profileId,
							nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
	return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, profileId, placements, count);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int profileId, unsigned int *count)
{
	const struct divvy_sim_mig_profile *found;
	struct sim_mig mig;
	nvmlReturn_t result = find_profile(device, profileId, true, &mig, &found);

	if (result)
		return result;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!mig.current)
		return NVML_ERROR_NOT_SUPPORTED;
	*count = found->remaining;
	return NVML_SUCCESS;
}

static nvmlReturn_t create(nvmlDevice_t device, unsigned int profileId, uint64_t start, nvmlGpuInstance_t *gpuInstance)
{
	const struct divvy_sim_card *card;
	struct sim_mig mig;
	uint64_t number = 0;
	nvmlReturn_t result = nvml_mig(device, &card, &mig);

	if (result)
		return result;
	if (!gpuInstance)
		return NVML_ERROR_INVALID_ARGUMENT;
	result = nvml_change_error(sim_mig_change(card->index, DIVVY_SIM_MIG_CREATE_GPU, profileId, start, &number, NULL));
	if (!result)
		gpuInstance->handle = nvml_instance(number, card->index);
	return result;
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profileId, nvmlGpuInstance_t *gpuInstance)
{
	return create(device, profileId, DIVVY_SIM_MIG_ANYWHERE, gpuInstance);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profileId,
						      const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *gpuInstance)
{
	const struct divvy_sim_mig_profile *found;
	struct sim_mig mig;
	nvmlReturn_t result = find_profile(device, profileId, true, &mig, &found);

	if (result)
		return result;
	if (!placement || placement->size != found->size)
		return NVML_ERROR_INVALID_ARGUMENT;
	return create(device, profileId, placement->start, gpuInstance);
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profileId, nvmlGpuInstance_t *gpuInstances,
				       unsigned int *count)
{
	const struct divvy_sim_card *card;
	struct sim_mig mig;
	nvmlReturn_t result = nvml_mig(device, &card, &mig);

	if (result)
		return result;
	if (!mig.current)
		return NVML_ERROR_NOT_SUPPORTED;
	if (!gpuInstances || !count || !nvml_profile(&mig, profileId))
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	/* by id, which is rarely the order they were made in; the caller's room is the
	 * profile's count */
	for (uint32_t i = 0; i < mig.gpucount; i++)
		if (mig.gpus[i].profile == profileId)
			gpuInstances[(*count)++].handle = nvml_instance(mig.gpus[i].number, card->index);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *gpuInstance)
{
	const struct divvy_sim_card *card;
	struct sim_mig mig;
	nvmlReturn_t result = nvml_mig(device, &card, &mig);

	if (result)
		return result;
	if (!mig.current)
		return NVML_ERROR_NOT_SUPPORTED;
	if (!gpuInstance)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < mig.gpucount; i++)
		if (mig.gpus[i].id == id) {
			gpuInstance->handle = nvml_instance(mig.gpus[i].number, card->index);
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvml_mig_of(const void *instance, const struct divvy_sim_card **card, struct sim_mig *mig)
{
	nvmlReturn_t result = nvml_ready();

	if (result)
		return result;
	*card = instance ? sim_card_facts(nvml_instance_card(instance)) : NULL;
	return *card ? nvml_mig((nvmlDevice_t){.handle = (void *)*card}, card, mig) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvml_gpu_instance(nvmlGpuInstance_t handle, const struct divvy_sim_card **card, struct sim_mig *mig,
			       const struct divvy_sim_mig_gpu **gpu)
{
	nvmlReturn_t result = nvml_mig_of(handle.handle, card, mig);

	for (uint32_t i = 0; !result && i < mig->gpucount; i++)
		if (mig->gpus[i].number == nvml_instance_number(handle.handle)) {
			*gpu = &mig->gpus[i];
			return NVML_SUCCESS;
		}
	return result ? result : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t gpuInstance, nvmlGpuInstanceInfo_t *info)
{
	const struct divvy_sim_card *card;
	const struct divvy_sim_mig_gpu *gpu;
	struct sim_mig mig;
	nvmlReturn_t result = nvml_gpu_instance(gpuInstance, &card, &mig, &gpu);

	if (result)
		return result;
	const struct divvy_sim_mig_profile *profile = nvml_profile(&mig, gpu->profile);

	if (!info || !profile)
		return NVML_ERROR_INVALID_ARGUMENT;
	*info = (nvmlGpuInstanceInfo_t){
		.device = {.handle = (void *)card}, .id = gpu->id, .profileId = gpu->profile,
		.placement = {.start = gpu->start, .size = profile->size},
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t gpuInstance)
{
	const struct divvy_sim_card *card;
	const struct divvy_sim_mig_gpu *gpu;
	struct sim_mig mig;
	nvmlReturn_t result = nvml_gpu_instance(gpuInstance, &card, &mig, &gpu);

	if (result)
		return result;
	uint64_t number = gpu->number;

	return nvml_change_error(sim_mig_change(card->index, DIVVY_SIM_MIG_DESTROY_GPU, 0, 0, &number, NULL));
}
