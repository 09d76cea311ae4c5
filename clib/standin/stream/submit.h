/* SPDX-License-Identifier: Apache-2.0 */
/* submit.h: what calls do with work: put it into a stream. */
#ifndef DIVVY_STANDIN_SUBMIT_H
#define DIVVY_STANDIN_SUBMIT_H

#include "work/work.h"

/* Records the work when the stream is being captured, else does it. The lock is
 * held, and released while contents are touched. */
CUresult sd_submit(CUstream handle, const struct sd_work *work);
/* for calls that wait for their work, which a capture cannot contain */
CUresult sd_submit_now(CUstream handle, const struct sd_work *work);
/* Both, as a whole call, on behalf of the current context's card. */
CUresult sd_call_submit(CUstream handle, struct sd_work *work, bool wait);

#endif
