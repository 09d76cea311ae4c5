/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.h: what goes wrong with a context for good. As on hardware such an error
 * is sticky: every later call in the context answers it, and nothing but the end
 * of the context helps. Other contexts and processes notice nothing.
 */
#ifndef DIVVY_STANDIN_FAULT_H
#define DIVVY_STANDIN_FAULT_H

#include "context.h"

/* Opens the eyes for faults that the simulator injects: sd_faults_look is cheap
 * while there are none, and sd_enter calls it. The lock is held. */
void sd_faults_open(void);
void sd_faults_look(void);

/* A kernel has faulted: from here on the context answers this error, and NVML tells
 * of an XID. The first error stays. */
void sd_context_fault(struct sd_context *context, CUresult error);
/* What a call that has waited answers: result, or the error that came meanwhile.
 * The context may be gone; id is its object's from before. */
CUresult sd_context_still(const struct sd_context *context, uint64_t id, CUresult result);

#endif
