/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual.h: address ranges and physical memory as two things (cuMemAddressReserve,
 * cuMemCreate, cuMemMap). The card gets memory back when the handle is released
 * and the last mapping of it, in any process, is gone.
 */
#ifndef DIVVY_STANDIN_VIRTUAL_H
#define DIVVY_STANDIN_VIRTUAL_H

#include "cuda/driver.h"

struct sd_physical {
	struct sd_object object;
	struct sd_card *card;
	CUmemAllocationProp props;
	uint64_t bytes;
	uint64_t number; /* the simulator's object */
	uint64_t view; /* addresses of its own, where the driver sees all of it */
	uint64_t span;
	unsigned int refs;     /* of the handle; 0: released, kept by mappings */
	unsigned int mappings;  /* and whatever else holds it: tiles, bindings */
};

struct sd_physical *sd_physical_get(CUmemGenericAllocationHandle handle); /* not released, or NULL */
void sd_physical_hold(struct sd_physical *physical);
void sd_physical_drop(struct sd_physical *physical);

/* multicast.c: false if the handle is none */
bool sd_multicast_known(CUmemGenericAllocationHandle handle);
void sd_multicast_end(CUmemGenericAllocationHandle handle);

#endif
