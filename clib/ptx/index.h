/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h: where in a text each thing of module scope is, found without reading the
 * bodies of functions, so that one kernel can be read out of a large text.
 *
 *	ptx_index_make(text, size, &index)        the text must stay
 *	ptx_index_parse(index, module, PTX_NONE, ...)   the variables
 *	ptx_index_parse(index, another, 17, ...)        a kernel, and all that it names
 *
 * A module read so is linked and compiled as any other. A variable and a function have
 * the same place in all of them (ast.h).
 */
#ifndef DIVVY_STANDIN_PTX_INDEX_H
#define DIVVY_STANDIN_PTX_INDEX_H

#include "ast.h"

struct ptx_index;

/* -ENOSYS: the text has something that only the parser understands, or makes no
 * sense: it must be read as a whole. -ENOMEM. */
int ptx_index_make(const char *text, size_t size, struct ptx_index **out);
void ptx_index_free(struct ptx_index *index);
/* Kernels with a body, each name once, in the order of the text. */
uint32_t ptx_index_kernels(const struct ptx_index *index);
const char *ptx_index_kernel(const struct ptx_index *index, uint32_t kernel, uint32_t *length);
/* As ptx_parse. kernel: one of ptx_index_kernels, or PTX_NONE: all variables and what they name. */
int ptx_index_parse(struct ptx_index *index, struct ptx_module *module, uint32_t kernel, uint32_t maxversion,
		    struct ptx_log *log);

#endif
