/* SPDX-License-Identifier: Apache-2.0 */
/*
 * field.c: values by number. Each says for itself whether the card has it.
 */
#include <time.h>

#include "nvml.h"

enum { CORRECTED_VOLATILE, CORRECTED_AGGREGATE, UNCORRECTED_VOLATILE, UNCORRECTED_AGGREGATE };

struct value {
	nvmlValueType_t type;
	unsigned long long number;
};

static bool answer(struct value *out, nvmlValueType_t type, unsigned long long number)
{
	*out = (struct value){ type, number };
	return true;
}

static bool whole(struct value *out, unsigned long long number)
{
	return answer(out, NVML_VALUE_TYPE_UNSIGNED_INT, number);
}

static bool count(struct value *out, unsigned long long number)
{
	return answer(out, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, number);
}

/* Errors of memory; all are in device memory. */
static bool ecc(unsigned int field, const struct divvy_sim_health *now, struct value *out)
{
	switch (field) {
	case NVML_FI_DEV_ECC_CURRENT:
	case NVML_FI_DEV_ECC_PENDING:
		return whole(out, 1);
	case NVML_FI_DEV_ECC_SBE_VOL_TOTAL:
	case NVML_FI_DEV_ECC_SBE_VOL_DEV:
		return count(out, now->ecc[CORRECTED_VOLATILE]);
	case NVML_FI_DEV_ECC_DBE_VOL_TOTAL:
	case NVML_FI_DEV_ECC_DBE_VOL_DEV:
		return count(out, now->ecc[UNCORRECTED_VOLATILE]);
	case NVML_FI_DEV_ECC_SBE_AGG_TOTAL:
	case NVML_FI_DEV_ECC_SBE_AGG_DEV:
		return count(out, now->ecc[CORRECTED_AGGREGATE]);
	case NVML_FI_DEV_ECC_DBE_AGG_TOTAL:
	case NVML_FI_DEV_ECC_DBE_AGG_DEV:
		return count(out, now->ecc[UNCORRECTED_AGGREGATE]);
	default:
		if (field < NVML_FI_DEV_ECC_SBE_VOL_L1 || field > NVML_FI_DEV_ECC_DBE_AGG_CBU)
			return false;
		return count(out, 0);
	}
}

static bool repair(unsigned int field, const struct divvy_sim_card *card, const struct divvy_sim_health *now, struct value *out)
{
	bool remaps = card->architecture >= NVML_DEVICE_ARCH_AMPERE;

	switch (field) {
	case NVML_FI_DEV_RETIRED_SBE:
		return !remaps && whole(out, now->retiredsingle);
	case NVML_FI_DEV_RETIRED_DBE:
		return !remaps && whole(out, now->retireddouble);
	case NVML_FI_DEV_RETIRED_PENDING:
	case NVML_FI_DEV_RETIRED_PENDING_DBE:
		return !remaps && whole(out, now->retiredpending);
	case NVML_FI_DEV_RETIRED_PENDING_SBE:
		return !remaps && whole(out, 0);
	case NVML_FI_DEV_REMAPPED_COR:
		return remaps && whole(out, now->remappedcorrectable);
	case NVML_FI_DEV_REMAPPED_UNC:
		return remaps && whole(out, now->remappeduncorrectable);
	case NVML_FI_DEV_REMAPPED_PENDING:
		return remaps && whole(out, now->remappending);
	case NVML_FI_DEV_REMAPPED_FAILURE:
		return remaps && whole(out, now->remapfailed);
	default:
		return false;
	}
}

static bool power(unsigned int field, const struct divvy_sim_card *card, const struct divvy_sim_health *now, struct value *out)
{
	switch (field) {
	case NVML_FI_DEV_MEMORY_TEMP:
		return card->buswidthbits >= 1024 && whole(out, now->memorytemperature);
	case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
	case NVML_FI_DEV_ENERGY:
		return count(out, now->energymj);
	case NVML_FI_DEV_POWER_AVERAGE:
	case NVML_FI_DEV_POWER_INSTANT:
		return whole(out, now->powermw);
	case NVML_FI_DEV_POWER_MIN_LIMIT:
		return whole(out, nvml_least_power(card));
	case NVML_FI_DEV_POWER_MAX_LIMIT:
	case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
	case NVML_FI_DEV_POWER_CURRENT_LIMIT:
	case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
		return whole(out, card->powerlimitmw);
	case NVML_FI_DEV_NVLINK_LINK_COUNT:
		return whole(out, 0);
	case NVML_FI_DEV_PCIE_REPLAY_COUNTER:
		return whole(out, now->pciereplays);
	case NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER:
		return whole(out, 0);
	default:
		return false;
	}
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t *values)
{
	const struct divvy_sim_card *card;
	struct divvy_sim_health health;
	nvmlReturn_t result = nvml_health(device, &card, &health);
	struct timespec now = {0};

	if (result)
		return result;
	if (!values || valuesCount <= 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	clock_gettime(CLOCK_REALTIME, &now);
	for (int i = 0; i < valuesCount; i++) {
		nvmlFieldValue_t *to = &values[i];
		struct value found = { NVML_VALUE_TYPE_UNSIGNED_INT, 0 };
		bool has = (nvml_has_ecc(card) && (ecc(to->fieldId, &health, &found) || repair(to->fieldId, card, &health, &found))) ||
			   power(to->fieldId, card, &health, &found);

		to->nvmlReturn = has ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
		to->timestamp = (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
		to->latencyUsec = 0;
		to->valueType = found.type;
		to->value.ullVal = 0;
		if (found.type == NVML_VALUE_TYPE_UNSIGNED_INT)
			to->value.uiVal = (unsigned int)found.number;
		else
			to->value.ullVal = found.number;
	}
	return NVML_SUCCESS;
}
