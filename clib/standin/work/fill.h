/* SPDX-License-Identifier: Apache-2.0 */
/* fill.h: device memory filled with one value. */
#ifndef DIVVY_STANDIN_FILL_H
#define DIVVY_STANDIN_FILL_H

#include "cuda/driver.h"

struct sd_fill {
	uint64_t address;
	uint64_t pitch;
	uint32_t value;
	uint32_t element; /* bytes: 1, 2 or 4 */
	uint64_t width;   /* elements */
	uint64_t height;
};

/* Whether it could be done now; does it: the lock is released while contents are touched. */
CUresult sd_fill_check(const struct sd_fill *fill, const struct sd_card *card);
CUresult sd_fill_run(const struct sd_fill *fill, const struct sd_card *card);

#endif
