/* SPDX-License-Identifier: Apache-2.0 */
/* copy.h: a box of bytes copied between host memory, device memory and arrays. */
#ifndef DIVVY_STANDIN_COPY_H
#define DIVVY_STANDIN_COPY_H

#include "cuda/driver.h"

/* Whether it could be done now; does it: the lock is released while contents are touched. */
CUresult sd_copy_check(const CUDA_MEMCPY3D *copy, const struct sd_card *card);
CUresult sd_copy_run(const CUDA_MEMCPY3D *copy, const struct sd_card *card);

#endif
