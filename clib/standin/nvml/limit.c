/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.c: memory limits of control groups. Of the generations that the
 * stand-in plays the last one has them; hardware drivers got them with r615.
 */
#include <errno.h>

#include "nvml.h"

static nvmlReturn_t limited_card(nvmlDevice_t device, const void *limits, const char *group, const struct divvy_sim_card **card)
{
	nvmlReturn_t result = nvml_card(device, card);

	if (result)
		return result;
	if (!limits || !group)
		return NVML_ERROR_INVALID_ARGUMENT;
	return nvml_is_device(*card) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

static nvmlReturn_t answer(int error)
{
	return error == -ENOENT ? NVML_ERROR_NOT_FOUND : nvml_change_error(error);
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = limited_card(device, limits, limits ? limits->nameSpace : NULL, &card);

	return result ? result : answer(sim_limit_set(card->index, limits->nameSpace, limits->softLimit, limits->hardLimit));
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
	const struct divvy_sim_card *card;
	uint64_t soft = 0;
	uint64_t hard = 0;
	uint64_t held = 0;
	nvmlReturn_t result = limited_card(device, limits, limits ? limits->nameSpace : NULL, &card);

	if (!result)
		result = answer(sim_limit_get(card->index, limits->nameSpace, &soft, &hard, &held));
	if (!result) {
		limits->softLimit = soft;
		limits->hardLimit = hard;
		limits->currentUsed = held;
	}
	return result;
}
