/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h: running a launch. It runs within the call, with the lock released, on
 * the calling thread and on the interpreter's helpers; how long it takes on the
 * card is modelled from what it did (duration.c). What a kernel reaches must stay:
 * calls that take memory, modules or contexts away enter by sd_enter_idle.
 */
#ifndef DIVVY_STANDIN_KERNEL_H
#define DIVVY_STANDIN_KERNEL_H

#include "context.h"
#include "ptx/code.h"

struct sd_launch;

/* The lock is held, and released while it runs. A fault is the context's
 * (fault.h) and no error of the call. */
CUresult sd_kernel_run(const struct sd_launch *launch, const struct sd_card *card, struct sd_context *context,
		       struct ptx_outcome *outcome);
/* Waits until no kernel runs; the lock is held, and released meanwhile. */
void sd_kernels_settle(void);
/* sd_enter and sd_enter_context when no kernel runs. */
CUresult sd_enter_idle(void);
CUresult sd_enter_context_idle(struct sd_context **context);

/* print.c: what kernels print comes out when the program waits for them. */
void sd_print_add(const char *text, size_t size);
void sd_print_flush(void);

#endif
