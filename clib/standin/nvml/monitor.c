/* SPDX-License-Identifier: Apache-2.0 */
/*
 * monitor.c: what monitors ask besides: samples, violations of policies, what
 * the board is, and engines that nobody uses.
 */
#include <string.h>
#include <time.h>

#include "nvml.h"

/* One sample, taken now: the simulator keeps no more. */
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long lastSeenTimeStamp,
				  nvmlValueType_t *sampleValType, unsigned int *sampleCount, nvmlSample_t *samples)
{
	struct divvy_sim_health now;
	nvmlReturn_t result = nvml_health(device, NULL, &now);
	struct timespec time = {0};
	unsigned int value;

	if (result)
		return result;
	if (!sampleCount || !sampleValType || type >= NVML_SAMPLINGTYPE_COUNT || (samples && !*sampleCount))
		return NVML_ERROR_INVALID_ARGUMENT;
	switch (type) {
	case NVML_TOTAL_POWER_SAMPLES:
		value = now.powermw;
		break;
	case NVML_GPU_UTILIZATION_SAMPLES:
		value = now.gpupercent;
		break;
	case NVML_MEMORY_UTILIZATION_SAMPLES:
		value = now.memorypercent;
		break;
	case NVML_PROCESSOR_CLK_SAMPLES:
		value = now.smclockmhz;
		break;
	case NVML_MEMORY_CLK_SAMPLES:
		value = now.memoryclockmhz;
		break;
	case NVML_ENC_UTILIZATION_SAMPLES:
	case NVML_DEC_UTILIZATION_SAMPLES:
		value = 0;
		break;
	default:
		return NVML_ERROR_NOT_SUPPORTED;
	}
	*sampleValType = NVML_VALUE_TYPE_UNSIGNED_INT;
	*sampleCount = 1;
	if (!samples)
		return NVML_SUCCESS;
	clock_gettime(CLOCK_REALTIME, &time);
	samples[0].timeStamp = (unsigned long long)time.tv_sec * 1000000 + (unsigned long long)time.tv_nsec / 1000;
	samples[0].sampleValue = (nvmlValue_t){ .uiVal = value };
	return samples[0].timeStamp > lastSeenTimeStamp ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* No policy has ever been violated: nothing counts how long a slowdown was. */
nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t perfPolicyType, nvmlViolationTime_t *violTime)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);
	struct timespec time = {0};

	if (result)
		return result;
	if (!violTime || perfPolicyType >= NVML_PERF_POLICY_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	clock_gettime(CLOCK_REALTIME, &time);
	violTime->referenceTime = (unsigned long long)time.tv_sec * 1000000 + (unsigned long long)time.tv_nsec / 1000;
	violTime->violationTime = 0;
	return NVML_SUCCESS;
}

static nvmlReturn_t simulated(nvmlDevice_t device, char *text, unsigned int length)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	return result ? result : nvml_text(text, length, "simulated");
}

nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char *version, unsigned int length)
{
	return simulated(device, version, length);
}

nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, nvmlInforomObject_t object, char *version, unsigned int length)
{
	if (object >= NVML_INFOROM_COUNT)
		return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	return simulated(device, version, length);
}

nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *partNumber, unsigned int length)
{
	return simulated(device, partNumber, length);
}

nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_t *mode)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!mode)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (mode->version != nvmlDeviceAddressingMode_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	mode->value = NVML_DEVICE_ADDRESSING_MODE_NONE;
	return NVML_SUCCESS;
}

/* It has none of those metrics, and says so. */
nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *gpmSupport)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!gpmSupport)
		return NVML_ERROR_INVALID_ARGUMENT;
	gpmSupport->isSupportedDevice = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t *fbcStats)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!fbcStats)
		return NVML_ERROR_INVALID_ARGUMENT;
	*fbcStats = (nvmlFBCStats_t){0};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *sessionCount, nvmlFBCSessionInfo_t *sessionInfo)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	(void)sessionInfo;
	if (result)
		return result;
	if (!sessionCount)
		return NVML_ERROR_INVALID_ARGUMENT;
	*sessionCount = 0;
	return NVML_SUCCESS;
}
