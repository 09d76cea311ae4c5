/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h: running a launch. It runs within the call, with the lock released, on
 * the calling thread and on the interpreter's helpers; how long it takes on the
 * card is modelled from what it did (duration.c). What it reaches stays (enter.h).
 */
#ifndef DIVVY_STANDIN_KERNEL_H
#define DIVVY_STANDIN_KERNEL_H

#include "cuda/context.h"
#include "launch.h"
#include "ptx/code.h"

/* The lock is held, and released while it runs. A fault is the context's
 * (fault.h) and no error of the call. */
CUresult sd_kernel_run(const struct sd_launch *launch, const struct sd_card *card, struct sd_context *context,
		       struct ptx_outcome *outcome);

#endif
