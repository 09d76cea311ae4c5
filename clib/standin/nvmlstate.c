/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmlstate.c: clocks, power, temperature, modes and health, and who uses the
 * card how much. Clocks and power are those of an idle, healthy card.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nvml.h"

#define SAMPLING_US 1000000u
#define CLOCK_STEP_MHZ 15u
#define MOST_PROCESSES 4096

/* Numbers that change, asked of the simulator. */
#define STATE_NUMBER(function, type, expression)                                   \
	nvmlReturn_t function(nvmlDevice_t device, type *number)                   \
	{                                                                          \
		const struct divvy_sim_card *card;                                 \
		struct divvy_sim_card now;                                         \
		nvmlReturn_t result = nvml_card(device, &card);                    \
                                                                                   \
		if (result)                                                        \
			return result;                                             \
		if (!number)                                                       \
			return NVML_ERROR_INVALID_ARGUMENT;                        \
		result = nvml_error(sim_card(card->index, &now));                  \
		if (result)                                                        \
			return result;                                             \
		*number = (type)(expression);                                      \
		return NVML_SUCCESS;                                               \
	}

STATE_NUMBER(nvmlDeviceGetPowerUsage, unsigned int, now.powermw)
NVML_NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, card->powerlimitmw)
NVML_NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned int, card->powerlimitmw)
NVML_NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, card->powerlimitmw)
NVML_NUMBER(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
NVML_NUMBER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
NVML_NUMBER(nvmlDeviceGetDisplayMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
NVML_NUMBER(nvmlDeviceGetDisplayActive, nvmlEnableState_t, NVML_FEATURE_DISABLED)
NVML_NUMBER(nvmlDeviceGetAccountingMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
NVML_NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t, NVML_FEATURE_DISABLED)
NVML_NUMBER(nvmlDeviceGetComputeMode, nvmlComputeMode_t, NVML_COMPUTEMODE_DEFAULT)
NVML_NUMBER(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, NVML_GPU_VIRTUALIZATION_MODE_NONE)
NVML_NUMBER(nvmlDeviceGetPerformanceState, nvmlPstates_t, NVML_PSTATE_0)
NVML_NUMBER(nvmlDeviceGetPowerState, nvmlPstates_t, NVML_PSTATE_0)
NVML_NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned int, 0)
NVML_NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, nvmlClocksEventReasonGpuIdle)
NVML_NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, nvmlClocksEventReasonGpuIdle)
NVML_NUMBER(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, 0x1ff)
NVML_NUMBER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, 0x1ff)

static int has_ecc(const struct divvy_sim_card *card)
{
	return (card->flags & DIVVY_SIM_CARD_ECC) != 0;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	const struct divvy_sim_card *card;
	struct divvy_sim_card now;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!utilization)
		return NVML_ERROR_INVALID_ARGUMENT;
	result = nvml_error(sim_card(card->index, &now));
	if (result)
		return result;
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

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType, unsigned int *temp)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!temp || sensorType != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	*temp = card->temperature;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
	unsigned int celsius = 0;
	nvmlReturn_t result;

	if (!temperature)
		return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	if (temperature->version != nvmlTemperature_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	result = nvmlDeviceGetTemperature(device, temperature->sensorType, &celsius);
	if (!result)
		temperature->temperature = (int)celsius;
	return result;
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *marginTempInfo)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!marginTempInfo)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (marginTempInfo->version != nvmlMarginTemperature_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	marginTempInfo->marginTemperature = (int)card->slowdowntemperature - (int)card->temperature;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t thresholdType, unsigned int *temp)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!temp || thresholdType >= NVML_TEMPERATURE_THRESHOLD_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	switch (thresholdType) {
	case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN:
		*temp = card->shutdowntemperature;
		return NVML_SUCCESS;
	case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN:
	case NVML_TEMPERATURE_THRESHOLD_MEM_MAX:
		*temp = card->slowdowntemperature;
		return NVML_SUCCESS;
	case NVML_TEMPERATURE_THRESHOLD_GPU_MAX:
		*temp = card->slowdowntemperature - 3;
		return NVML_SUCCESS;
	default:
		return NVML_ERROR_NOT_SUPPORTED;
	}
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *minLimit, unsigned int *maxLimit)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!minLimit || !maxLimit)
		return NVML_ERROR_INVALID_ARGUMENT;
	*minLimit = card->powerlimitmw / 2;
	*maxLimit = card->powerlimitmw;
	return NVML_SUCCESS;
}

/* Millijoules since the host started, all of it idle. */
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);
	struct timespec now;

	if (result)
		return result;
	if (!energy)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
		return NVML_ERROR_UNKNOWN;
	*energy = card->idlepowermw * (unsigned long long)now.tv_sec +
		  card->idlepowermw * (unsigned long long)now.tv_nsec / 1000000000ull;
	return NVML_SUCCESS;
}

static nvmlReturn_t give_clock(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock, int highest)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!clock || type >= NVML_CLOCK_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (type == NVML_CLOCK_MEM)
		*clock = card->memoryclockmhz;
	else
		*clock = highest ? card->smclockmhz : card->baseclockmhz;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
	return give_clock(device, type, clock, 0);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
	return give_clock(device, type, clock, 1);
}

nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t clockType, unsigned int *clockMHz)
{
	return give_clock(device, clockType, clockMHz, 1);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType, unsigned int *clockMHz)
{
	return give_clock(device, clockType, clockMHz, 1);
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType, unsigned int *clockMHz)
{
	return give_clock(device, clockType, clockMHz, 1);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t clockType, nvmlClockId_t clockId, unsigned int *clockMHz)
{
	if (clockId >= NVML_CLOCK_ID_COUNT)
		return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	return give_clock(device, clockType, clockMHz, clockId != NVML_CLOCK_ID_CURRENT);
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count, unsigned int *clocksMHz)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);
	unsigned int room;

	if (result)
		return result;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	room = *count;
	*count = 1;
	if (room < 1 || !clocksMHz)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	clocksMHz[0] = card->memoryclockmhz;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memoryClockMHz, unsigned int *count,
						  unsigned int *clocksMHz)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);
	unsigned int room;

	if (result)
		return result;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (memoryClockMHz != card->memoryclockmhz)
		return NVML_ERROR_NOT_FOUND;
	room = *count;
	*count = (card->smclockmhz - card->baseclockmhz) / CLOCK_STEP_MHZ + 1;
	if (room < *count || !clocksMHz)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < *count; i++)
		clocksMHz[i] = card->smclockmhz - i * CLOCK_STEP_MHZ;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!current || !pending)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!has_ecc(card))
		return NVML_ERROR_NOT_SUPPORTED;
	*current = *pending = NVML_FEATURE_ENABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *defaultMode)
{
	nvmlEnableState_t unused;

	return nvmlDeviceGetEccMode(device, defaultMode, &unused);
}

static nvmlReturn_t no_ecc_errors(nvmlDevice_t device, unsigned long long *count)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!has_ecc(card))
		return NVML_ERROR_NOT_SUPPORTED;
	*count = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType, nvmlEccCounterType_t counterType,
					 unsigned long long *eccCounts)
{
	(void)errorType;
	(void)counterType;
	return no_ecc_errors(device, eccCounts);
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t errorType, nvmlEccCounterType_t counterType,
					     nvmlMemoryLocation_t locationType, unsigned long long *count)
{
	(void)errorType;
	(void)counterType;
	(void)locationType;
	return no_ecc_errors(device, count);
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *pageCount,
				       unsigned long long *addresses)
{
	unsigned int unused;

	(void)cause;
	(void)addresses;
	return idle_engine(device, pageCount, &unused); /* none */
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrRows, unsigned int *uncRows, unsigned int *isPending,
				       unsigned int *failureOccurred)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!corrRows || !uncRows || !isPending || !failureOccurred)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (card->architecture < NVML_DEVICE_ARCH_AMPERE || !has_ecc(card))
		return NVML_ERROR_NOT_SUPPORTED;
	*corrRows = *uncRows = *isPending = *failureOccurred = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *currentMode, unsigned int *pendingMode)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);

	if (result)
		return result;
	if (!currentMode || !pendingMode)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!(card->flags & DIVVY_SIM_CARD_MIG))
		return NVML_ERROR_NOT_SUPPORTED;
	*currentMode = *pendingMode = NVML_DEVICE_MIG_DISABLE;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *migDevice)
{
	unsigned int current;
	unsigned int pending;
	nvmlReturn_t result = nvmlDeviceGetMigMode(device, &current, &pending);

	(void)index;
	(void)migDevice;
	return result ? result : NVML_ERROR_NOT_FOUND;
}

/* Each value says for itself that it is not supported. */
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t *values)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = nvml_card(device, &card);
	struct timespec now = {0};

	if (result)
		return result;
	if (!values || valuesCount <= 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	clock_gettime(CLOCK_REALTIME, &now);
	for (int i = 0; i < valuesCount; i++) {
		values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		values[i].timestamp = (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
		values[i].latencyUsec = 0;
	}
	return NVML_SUCCESS;
}
