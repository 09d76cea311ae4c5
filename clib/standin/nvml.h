/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml.h: what the files of the NVML half share. Files: nvmlsystem.c (start and
 * end, versions, names of errors and processes), nvmlcard.c (finding cards, what
 * they are), nvmlmemory.c (memory and who holds it), nvmlstate.c (modes,
 * utilisation), nvmlpower.c (power, temperature, fans), nvmlclock.c (clocks and why
 * they are low), nvmlecc.c (errors of memory and its repair), nvmlfield.c (values by
 * number), nvmlevent.c (events), nvmlmonitor.c (samples, board, idle engines). A
 * function that none of them has says NOT_SUPPORTED.
 *
 * A device handle is the address of the card's facts.
 */
#ifndef DIVVY_STANDIN_NVML_H
#define DIVVY_STANDIN_NVML_H

#include "nvml_abi.h"
#include "sim.h"

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
