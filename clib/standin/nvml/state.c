/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c: modes, and who uses the card how much.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nvml.h"

#define SAMPLING_US 1000000u
#define MOST_PROCESSES 4096

NVML_NUMBER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
NVML_NUMBER(nvmlDeviceGetDisplayMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
NVML_NUMBER(nvmlDeviceGetDisplayActive, nvmlEnableState_t, NVML_FEATURE_DISABLED)
NVML_NUMBER(nvmlDeviceGetAccountingMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
NVML_NUMBER(nvmlDeviceGetComputeMode, nvmlComputeMode_t, NVML_COMPUTEMODE_DEFAULT)
NVML_NUMBER(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, NVML_GPU_VIRTUALIZATION_MODE_NONE)
NVML_HEALTH(nvmlDeviceGetPcieReplayCounter, unsigned int, now.pciereplays)

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	struct divvy_sim_health now;
	nvmlReturn_t result = nvml_health(device, NULL, &now);

	if (result)
		return result;
	if (!utilization)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (now.flags & DIVVY_SIM_HEALTH_RESET)
		return NVML_ERROR_RESET_REQUIRED;
	utilization->gpu = now.gpupercent;
	utilization->memory = now.memorypercent;
	return NVML_SUCCESS;
}

static nvmlReturn_t idle_engine(nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!utilization || !samplingPeriodUs)
		return NVML_ERROR_INVALID_ARGUMENT;
	*utilization = 0;
	*samplingPeriodUs = SAMPLING_US;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs)
{
	return idle_engine(device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs)
{
	return idle_engine(device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs)
{
	return idle_engine(device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs)
{
	return idle_engine(device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessionCount, unsigned int *averageFps,
				       unsigned int *averageLatency)
{
	unsigned int unused;

	if (!averageLatency)
		return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t result = idle_engine(device, sessionCount, averageFps);

	if (result)
		return result;
	*averageFps = *averageLatency = 0;
	return idle_engine(device, sessionCount, &unused);
}

nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *sessionCount, nvmlEncoderSessionInfo_t *sessionInfos)
{
	unsigned int unused;

	(void)sessionInfos;
	return idle_engine(device, sessionCount, &unused);
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int *value)
{
	unsigned int unused;

	(void)counter;
	return idle_engine(device, value, &unused);
}

/* One sample for each process with a kernel in the last half second, taken now. */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization,
					     unsigned int *processSamplesCount, unsigned long long lastSeenTimeStamp)
{
	const struct divvy_sim_card *card;
	struct divvy_sim_time *times;
	struct timespec now = {0};
	nvmlReturn_t result = nvml_card(device, &card);
	unsigned int found = 0;

	if (result)
		return result;
	if (!processSamplesCount)
		return NVML_ERROR_INVALID_ARGUMENT;
	times = calloc(MOST_PROCESSES, sizeof(*times));
	if (!times)
		return NVML_ERROR_MEMORY;
	long count = sim_times(card->index, times, MOST_PROCESSES);

	clock_gettime(CLOCK_REALTIME, &now);
	unsigned long long stamp = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;

	for (long i = 0; i < count && i < MOST_PROCESSES; i++) {
		if (!times[i].percent || stamp <= lastSeenTimeStamp)
			continue;
		if (utilization && found < *processSamplesCount)
			utilization[found] = (nvmlProcessUtilizationSample_t){
				.pid = times[i].pid, .timeStamp = stamp, .smUtil = times[i].percent,
			};
		found++;
	}
	free(times);
	if (count < 0)
		return nvml_error((int)count);
	bool fits = utilization && found <= *processSamplesCount;

	*processSamplesCount = found;
	if (!found)
		return NVML_ERROR_NOT_FOUND;
	return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}
