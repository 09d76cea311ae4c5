/* SPDX-License-Identifier: Apache-2.0 */
/* liveness.h: from where to where in a function each register holds a value. */
#ifndef DIVVY_STANDIN_PTX_LIVENESS_H
#define DIVVY_STANDIN_PTX_LIVENESS_H

#include "ast.h"

/* Instructions by index; first > last: never used. */
struct ptx_interval {
	uint32_t first;
	uint32_t last;
};

/* intervals: one per register. false: no memory, or a function so large that all
 * of it counts as one piece; then nothing is known. */
bool ptx_liveness(const struct ptx_function *function, struct ptx_interval *intervals);

#endif
