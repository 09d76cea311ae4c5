/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h: where variables lie in the shared memory of blocks. */
#ifndef DIVVY_STANDIN_PTX_LAYOUT_H
#define DIVVY_STANDIN_PTX_LAYOUT_H

#include "ast.h"

/*
 * Every shared variable gets one offset, so that code is compiled once: two of
 * them overlap only if no kernel reaches both. A kernel's static shared memory
 * ends where the last one that it reaches ends.
 */
int ptx_layout(struct ptx_module *module, struct ptx_log *log);

#endif
