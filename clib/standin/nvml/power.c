/* SPDX-License-Identifier: Apache-2.0 */
/*
 * power.c: power, temperature and fans. The model behind the numbers stands in
 * docs/simulated-gpu.md.
 */
#include "nvml.h"

NVML_HEALTH(nvmlDeviceGetPowerUsage, unsigned int, now.powermw)
NVML_HEALTH(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, now.energymj)
NVML_NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, card->powerlimitmw)
NVML_NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned int, card->powerlimitmw)
NVML_NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, card->powerlimitmw)
NVML_NUMBER(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
NVML_NUMBER(nvmlDeviceGetPowerSource, nvmlPowerSource_t, 0) /* the mains */
NVML_NUMBER(nvmlDeviceGetNumFans, unsigned int, nvml_fans(card))

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType, unsigned int *temp)
{
	struct divvy_sim_health now;
	nvmlReturn_t result = nvml_health(device, NULL, &now);

	if (result)
		return result;
	if (!temp || sensorType != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	*temp = now.temperature;
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
	struct divvy_sim_health now;
	nvmlReturn_t result = nvml_health(device, &card, &now);

	if (result)
		return result;
	if (!marginTempInfo)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (marginTempInfo->version != nvmlMarginTemperature_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	marginTempInfo->marginTemperature = (int)card->slowdowntemperature - (int)now.temperature;
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
	*minLimit = nvml_least_power(card);
	*maxLimit = card->powerlimitmw;
	return NVML_SUCCESS;
}

static nvmlReturn_t fan_speed(nvmlDevice_t device, unsigned int fan, unsigned int *speed)
{
	const struct divvy_sim_card *card;
	struct divvy_sim_health now;
	nvmlReturn_t result = nvml_health(device, &card, &now);

	if (result)
		return result;
	if (!nvml_fans(card))
		return NVML_ERROR_NOT_SUPPORTED;
	if (!speed || fan >= nvml_fans(card))
		return NVML_ERROR_INVALID_ARGUMENT;
	*speed = now.fanpercent;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *speed)
{
	return fan_speed(device, 0, speed);
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *speed)
{
	return fan_speed(device, fan, speed);
}

nvmlReturn_t nvmlDeviceGetTargetFanSpeed(nvmlDevice_t device, unsigned int fan, unsigned int *targetSpeed)
{
	return fan_speed(device, fan, targetSpeed);
}

nvmlReturn_t nvmlDeviceGetMinMaxFanSpeed(nvmlDevice_t device, unsigned int *minSpeed, unsigned int *maxSpeed)
{
	nvmlReturn_t result = fan_speed(device, 0, minSpeed);

	if (result)
		return result;
	if (!maxSpeed)
		return NVML_ERROR_INVALID_ARGUMENT;
	*minSpeed = 30;
	*maxSpeed = 100;
	return NVML_SUCCESS;
}
