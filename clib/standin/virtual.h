/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual.h: address ranges and physical memory as two things (cuMemAddressReserve,
 * cuMemCreate, cuMemMap). The card gets memory back when the handle is released
 * and the last mapping of it, in any process, is gone.
 */
#ifndef DIVVY_STANDIN_VIRTUAL_H
#define DIVVY_STANDIN_VIRTUAL_H

#include "driver.h"

struct sd_physical {
	struct sd_object object;
	struct sd_card *card;
	CUmemAllocationProp props;
	uint64_t bytes;
	uint64_t number; /* the simulator's object */
	int fd;
	unsigned int refs;     /* of the handle; 0: released, kept by mappings */
	unsigned int mappings;
};

#endif
