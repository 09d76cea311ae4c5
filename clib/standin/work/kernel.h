/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h: running a launch, with the lock released, on the calling thread, which is
 * one of the queue's, and on the interpreter's helpers; how long it takes on the
 * card is modelled from what it did (duration.c). What it reaches stays (enter.h).
 */
#ifndef DIVVY_STANDIN_KERNEL_H
#define DIVVY_STANDIN_KERNEL_H

#include "cuda/queue.h"
#include "launch.h"
#include "ptx/code.h"

/* The lock is held, and released while it runs. A fault is the context's
 * (fault.h) and no error of the launch. */
CUresult sd_kernel_run(const struct sd_launch *launch, struct sd_step *step, struct ptx_outcome *outcome);

#endif
