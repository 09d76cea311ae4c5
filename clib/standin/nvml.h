/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml.h: what the files of the NVML half share. Files: nvmlsystem.c (start and
 * end, versions, names of errors and processes), nvmlcard.c (finding cards, what
 * they are), nvmlmemory.c (memory and who holds it), nvmlstate.c (clocks, power,
 * temperature, modes, health), nvmlevent.c (waiting for what never happens).
 * A function that none of them has says NOT_SUPPORTED.
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

/* The card behind a handle. */
nvmlReturn_t nvml_card(nvmlDevice_t device, const struct divvy_sim_card **card);

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

#endif
