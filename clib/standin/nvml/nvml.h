/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml.h: what the files of the NVML half share. Files: system.c (start and
 * end, versions, names of errors and processes), card.c (finding cards, what
 * they are), memory.c (memory and who holds it), state.c (modes,
 * utilisation), power.c (power, temperature, fans), clock.c (clocks and why
 * they are low), ecc.c (errors of memory and its repair), field.c (values by
 * number), event.c (events), monitor.c (samples, board, idle engines),
 * mig.c (MIG mode and GPU instances), compute.c (compute instances),
 * device.c (MIG devices), topology.c (how cards are connected), limit.c
 * (memory limits of control groups). A function that none of them has says NOT_SUPPORTED.
 *
 * A device handle is the address of the card's or the MIG device's facts. The handle
 * of an instance is its number, which is never used again, and its card.
 */
#ifndef DIVVY_STANDIN_NVML_H
#define DIVVY_STANDIN_NVML_H

#include "nvml_abi.h"
#include "sim/sim.h"

/* Success while the library is initialised. */
nvmlReturn_t nvml_ready(void);

/* What a negative errno of sim.h is to NVML. */
nvmlReturn_t nvml_error(long error);

/* The card behind a handle. GPU_IS_LOST when it has fallen off the bus;
 * nvml_identity still says what it was. */
nvmlReturn_t nvml_card(nvmlDevice_t device, const struct divvy_sim_card **card);
nvmlReturn_t nvml_identity(nvmlDevice_t device, const struct divvy_sim_card **card);

/* The same, and how it is now; card may be NULL. */
nvmlReturn_t nvml_health(nvmlDevice_t device, const struct divvy_sim_card **card, struct divvy_sim_health *now);

/* Text into a caller's buffer, whole or not at all. */
nvmlReturn_t nvml_text(char *buffer, unsigned int room, const char *text);

/* A function whose answer is one number that follows from the card's facts. */
#define NVML_NUMBER(function, type, expression)                                    \
	nvmlReturn_t function(nvmlDevice_t device, type *number)                   \
	{                                                                          \
		const struct divvy_sim_card *card;                                 \
		nvmlReturn_t result = nvml_card(device, &card);                    \
                                                                                   \
		if (result)                                                        \
			return result;                                             \
		if (!number)                                                       \
			return NVML_ERROR_INVALID_ARGUMENT;                        \
		*number = (type)(expression);                                      \
		return NVML_SUCCESS;                                               \
	}

/* One that follows from how the card is now. */
#define NVML_HEALTH(function, type, expression)                                    \
	nvmlReturn_t function(nvmlDevice_t device, type *number)                   \
	{                                                                          \
		struct divvy_sim_health now;                                       \
		nvmlReturn_t result = nvml_health(device, NULL, &now);             \
                                                                                   \
		if (result)                                                        \
			return result;                                             \
		if (!number)                                                       \
			return NVML_ERROR_INVALID_ARGUMENT;                        \
		*number = (type)(expression);                                      \
		return NVML_SUCCESS;                                               \
	}

static inline int nvml_has_ecc(const struct divvy_sim_card *card)
{
	return (card->flags & DIVVY_SIM_CARD_ECC) != 0;
}

static inline bool nvml_is_device(const struct divvy_sim_card *card)
{
	return (card->flags & DIVVY_SIM_CARD_DEVICE) != 0;
}

/* MIG devices: by UUID, MIG-...; their place among those of their card. */
nvmlReturn_t nvml_device_by_uuid(const char *uuid, nvmlDevice_t *device);
unsigned int nvml_device_index(const struct divvy_sim_card *device);

/* A card, not a MIG device, and how it is divided. NOT_SUPPORTED without MIG. */
nvmlReturn_t nvml_mig(nvmlDevice_t device, const struct divvy_sim_card **card, struct sim_mig *mig);
/* What a change that the simulator refuses is to NVML. */
nvmlReturn_t nvml_change_error(int error);

/* Handles of instances: (number << 6 | card) + 1 */
static inline void *nvml_instance(uint64_t number, uint32_t card)
{
	return (void *)(uintptr_t)((number << 6 | card) + 1);
}

static inline uint64_t nvml_instance_number(const void *handle)
{
	return ((uint64_t)(uintptr_t)handle - 1) >> 6;
}

static inline uint32_t nvml_instance_card(const void *handle)
{
	return ((uint32_t)(uintptr_t)handle - 1) & 63;
}

/* The card of an instance's handle, and how it is divided. */
nvmlReturn_t nvml_mig_of(const void *instance, const struct divvy_sim_card **card, struct sim_mig *mig);

/* The GPU instance behind a handle, and how its card is divided. */
nvmlReturn_t nvml_gpu_instance(nvmlGpuInstance_t handle, const struct divvy_sim_card **card, struct sim_mig *mig,
			       const struct divvy_sim_mig_gpu **gpu);
/* the profile with an id; NULL: there is none */
const struct divvy_sim_mig_profile *nvml_profile(const struct sim_mig *mig, unsigned int id);

/* What a power limit can be set to, and by whom it could be cooled. */
static inline unsigned int nvml_least_power(const struct divvy_sim_card *card)
{
	return card->powerlimitmw / 2;
}

static inline unsigned int nvml_fans(const struct divvy_sim_card *card)
{
	return card->brand == NVML_BRAND_GEFORCE ? 2 : 0; /* servers cool the others */
}

#endif
