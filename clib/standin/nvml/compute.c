/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compute.c: compute instances. Their profiles have the same ids as numbers: how
 * many slices of the GPU instance they take.
 */
#include <stdio.h>
#include <string.h>

#include "nvml.h"

/* Slices of a profile; 0: no GPU instance has such a one. */
static uint32_t slices_of(unsigned int profile)
{
	static const uint32_t slices[NVML_COMPUTE_INSTANCE_PROFILE_COUNT] = {
		[NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE] = 1, [NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE] = 2,
		[NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE] = 3, [NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE] = 4,
		[NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE] = 7, [NVML_COMPUTE_INSTANCE_PROFILE_8_SLICE] = 8,
		[NVML_COMPUTE_INSTANCE_PROFILE_6_SLICE] = 6,
	};

	return profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT ? slices[profile] : 0;
}

/* A profile in a GPU instance. */
struct kind {
	const struct divvy_sim_card *card;
	struct sim_mig mig;
	const struct divvy_sim_mig_gpu *gpu;
	const struct divvy_sim_mig_profile *of; /* the GPU instance's */
	uint32_t slices;
	uint32_t step; /* between two starts: one of 3 leaves room for one of 4 */
	uint32_t most;
};

static nvmlReturn_t find_kind(nvmlGpuInstance_t gpuInstance, unsigned int profile, struct kind *kind)
{
	nvmlReturn_t result = nvml_gpu_instance(gpuInstance, &kind->card, &kind->mig, &kind->gpu);

	if (result)
		return result;
	kind->of = nvml_profile(&kind->mig, kind->gpu->profile);
	kind->slices = slices_of(profile);
	if (!kind->of || profile >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!kind->slices || kind->slices > kind->of->slices)
		return NVML_ERROR_NOT_SUPPORTED;
	kind->step = kind->slices == 3 ? 4 : kind->slices;
	kind->most = (kind->of->slices - kind->slices) / kind->step + 1;
	return NVML_SUCCESS;
}

static bool is_free(const struct kind *kind, uint32_t start)
{
	for (uint32_t i = 0; i < kind->mig.computecount; i++) {
		const struct divvy_sim_mig_compute *c = &kind->mig.computes[i];

		if (c->gpunumber == kind->gpu->number && start < c->start + c->slices && c->start < start + kind->slices)
			return false;
	}
	return true;
}

static void name_of(const struct kind *kind, char *name, size_t room)
{
	if (kind->slices == kind->of->slices)
		snprintf(name, room, "MIG %s", kind->of->name);
	else
		snprintf(name, room, "MIG %uc.%s", kind->slices, kind->of->name);
}

static unsigned int multiprocessors(const struct kind *kind)
{
	return kind->of->multiprocessors * kind->slices / kind->of->slices;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t gpuInstance, unsigned int profile,
							  unsigned int engProfile, nvmlComputeInstanceProfileInfo_t *info)
{
	struct kind kind;
	nvmlReturn_t result = find_kind(gpuInstance, profile, &kind);

	if (result)
		return result;
	if (!info || engProfile >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*info = (nvmlComputeInstanceProfileInfo_t){
		.id = profile, .sliceCount = kind.slices, .instanceCount = kind.most,
		.multiprocessorCount = multiprocessors(&kind), .sharedCopyEngineCount = kind.of->copyengines,
		.sharedDecoderCount = kind.of->decoders, .sharedEncoderCount = kind.of->encoders,
		.sharedJpegCount = kind.of->jpegs, .sharedOfaCount = kind.of->ofas,
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t gpuInstance, unsigned int profile,
							   unsigned int engProfile, nvmlComputeInstanceProfileInfo_v2_t *info)
{
	nvmlComputeInstanceProfileInfo_t first;
	nvmlComputeInstanceProfileInfo_v3_t whole = {0};
	struct kind kind;
	nvmlReturn_t result = find_kind(gpuInstance, profile, &kind);

	if (!result)
		result = nvmlGpuInstanceGetComputeInstanceProfileInfo(gpuInstance, profile, engProfile, &first);
	if (result)
		return result;
	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	/* the two versions are the same but for their last word */
	size_t bytes = info->version == nvmlComputeInstanceProfileInfo_v3 ? sizeof(whole) : sizeof(*info);

	if (info->version != nvmlComputeInstanceProfileInfo_v2 && info->version != nvmlComputeInstanceProfileInfo_v3)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	whole.version = info->version;
	memcpy(&whole.id, &first, sizeof(first));
	name_of(&kind, whole.name, sizeof(whole.name));
	memcpy((void *)info, &whole, bytes);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
								 nvmlComputeInstancePlacement_t *placements, unsigned int *count)
{
	struct kind kind;
	nvmlReturn_t result = find_kind(gpuInstance, profileId, &kind);

	if (result)
		return result;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (placements && *count < kind.most)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (uint32_t i = 0; placements && i < kind.most; i++)
		placements[i] = (nvmlComputeInstancePlacement_t){.start = i * kind.step, .size = kind.slices};
	*count = kind.most;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
								unsigned int *count)
{
	struct kind kind;
	nvmlReturn_t result = find_kind(gpuInstance, profileId, &kind);

	if (result)
		return result;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	for (uint32_t i = 0; i < kind.most; i++)
		*count += is_free(&kind, i * kind.step);
	return NVML_SUCCESS;
}

static nvmlReturn_t create(nvmlGpuInstance_t gpuInstance, unsigned int profileId, const nvmlComputeInstancePlacement_t *placement,
			   nvmlComputeInstance_t *computeInstance)
{
	struct kind kind;
	nvmlReturn_t result = find_kind(gpuInstance, profileId, &kind);

	if (result)
		return result;
	if (!computeInstance || (placement && placement->size != kind.slices))
		return NVML_ERROR_INVALID_ARGUMENT;
	uint64_t number = kind.gpu->number;

	result = nvml_change_error(sim_mig_change(kind.card->index, DIVVY_SIM_MIG_CREATE_COMPUTE, profileId,
						  placement ? placement->start : DIVVY_SIM_MIG_ANYWHERE, &number, NULL));
	if (!result)
		computeInstance->handle = nvml_instance(number, kind.card->index);
	return result;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
						  nvmlComputeInstance_t *computeInstance)
{
	return create(gpuInstance, profileId, NULL, computeInstance);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
							       const nvmlComputeInstancePlacement_t *placement,
							       nvmlComputeInstance_t *computeInstance)
{
	return placement ? create(gpuInstance, profileId, placement, computeInstance) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
						nvmlComputeInstance_t *computeInstances, unsigned int *count)
{
	struct kind kind;
	nvmlReturn_t result = find_kind(gpuInstance, profileId, &kind);

	if (result)
		return result;
	if (!computeInstances || !count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	for (uint32_t i = 0; i < kind.mig.computecount; i++) {
		const struct divvy_sim_mig_compute *c = &kind.mig.computes[i];

		if (c->gpunumber == kind.gpu->number && c->profile == profileId)
			computeInstances[(*count)++].handle = nvml_instance(c->number, kind.card->index);
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t gpuInstance, unsigned int id,
						   nvmlComputeInstance_t *computeInstance)
{
	const struct divvy_sim_card *card;
	const struct divvy_sim_mig_gpu *gpu;
	struct sim_mig mig;
	nvmlReturn_t result = nvml_gpu_instance(gpuInstance, &card, &mig, &gpu);

	if (result)
		return result;
	if (!computeInstance)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < mig.computecount; i++)
		if (mig.computes[i].gpunumber == gpu->number && mig.computes[i].id == id) {
			computeInstance->handle = nvml_instance(mig.computes[i].number, card->index);
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t find(nvmlComputeInstance_t handle, const struct divvy_sim_card **card, struct sim_mig *mig,
			 const struct divvy_sim_mig_compute **compute)
{
	nvmlReturn_t result = nvml_mig_of(handle.handle, card, mig);

	for (uint32_t i = 0; !result && i < mig->computecount; i++)
		if (mig->computes[i].number == nvml_instance_number(handle.handle)) {
			*compute = &mig->computes[i];
			return NVML_SUCCESS;
		}
	return result ? result : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t computeInstance, nvmlComputeInstanceInfo_t *info)
{
	const struct divvy_sim_card *card;
	const struct divvy_sim_mig_compute *compute;
	struct sim_mig mig;
	nvmlReturn_t result = find(computeInstance, &card, &mig, &compute);

	if (result)
		return result;
	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	*info = (nvmlComputeInstanceInfo_t){
		.device = {.handle = (void *)card}, .gpuInstance = {.handle = nvml_instance(compute->gpunumber, card->index)},
		.id = compute->id, .profileId = compute->profile,
		.placement = {.start = compute->start, .size = compute->slices},
	};
	return NVML_SUCCESS;
}

/* The first version ends before the placement. */
nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t computeInstance, nvmlComputeInstanceInfo_t *info)
{
	nvmlComputeInstanceInfo_t whole;
	nvmlReturn_t result = nvmlComputeInstanceGetInfo_v2(computeInstance, &whole);

	if (result)
		return result;
	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	memcpy(info, &whole, offsetof(nvmlComputeInstanceInfo_t, placement));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t computeInstance)
{
	const struct divvy_sim_card *card;
	const struct divvy_sim_mig_compute *compute;
	struct sim_mig mig;
	nvmlReturn_t result = find(computeInstance, &card, &mig, &compute);

	if (result)
		return result;
	uint64_t number = compute->number;

	return nvml_change_error(sim_mig_change(card->index, DIVVY_SIM_MIG_DESTROY_COMPUTE, 0, 0, &number, NULL));
}
