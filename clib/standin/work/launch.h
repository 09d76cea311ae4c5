/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h: a kernel with its grid and its arguments, checked against what a card can do. */
#ifndef DIVVY_STANDIN_LAUNCH_H
#define DIVVY_STANDIN_LAUNCH_H

#include "cuda/driver.h"

enum {
	SD_BLOCK_XY = 1024,
	SD_BLOCK_Z = 64,
};

struct sd_function;

struct sd_launch {
	struct sd_function *function;
	unsigned int grid[3];
	unsigned int block[3];
	unsigned int shared;
	bool cooperative;
	void **arguments;   /* one pointer per parameter, or */
	const void *buffer; /* the first given bytes of the block of parameters */
	size_t given;
	void *own;          /* nodes: what arguments points into */
};

/* Makes the function ready and takes the arguments as callers give them: one pointer per parameter, or extra (see
 * CU_LAUNCH_PARAM_BUFFER_POINTER). */
CUresult sd_launch_take(struct sd_launch *launch, void **arguments, void **extra);
/* Writes the parameters as the kernel sees them; the block is zeroed. */
CUresult sd_launch_parameters(const struct sd_launch *launch, unsigned char *block);
/* Gives the launch a copy of its arguments, which its owner frees. */
CUresult sd_launch_own(struct sd_launch *launch);

/* Its shape; then what a graph is asked only when it becomes executable: whether a
 * block fits in what a multiprocessor has. */
CUresult sd_launch_check(const struct sd_launch *launch);
CUresult sd_launch_fits(const struct sd_launch *launch);
/* Whether it can run on the card now. */
CUresult sd_launch_run(const struct sd_launch *launch, const struct sd_card *card);
/* Whether it has code; while it is to run, from here to there, its module stays. */
bool sd_launch_loaded(const struct sd_launch *launch);
void sd_launch_begins(const struct sd_launch *launch);
void sd_launch_ended(const struct sd_launch *launch);
/* Blocks of one that fits that the card holds at once. */
uint64_t sd_launch_resident(const struct sd_launch *launch, const struct sd_card *card);

#endif
