/* SPDX-License-Identifier: Apache-2.0 */
/* copy.h: a box of bytes copied between host memory, device memory and arrays. */
#ifndef DIVVY_STANDIN_COPY_H
#define DIVVY_STANDIN_COPY_H

#include "cuda/driver.h"

/* Whether it could be done now; does it: the lock is released while contents are touched. */
CUresult sd_copy_check(const CUDA_MEMCPY3D *copy, const struct sd_card *card);
CUresult sd_copy_run(const CUDA_MEMCPY3D *copy, const struct sd_card *card);
/* Whether it reads, or writes, host memory that the driver does not know. As in a driver
 * such memory is the caller's again when the call returns. */
void sd_copy_pageable(const CUDA_MEMCPY3D *copy, const struct sd_card *card, bool *from, bool *to);
/* For a run of bytes: has it read them from another place. */
void sd_copy_from(CUDA_MEMCPY3D *copy, const void *bytes);

#endif
