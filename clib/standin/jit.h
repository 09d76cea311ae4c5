/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jit.h: the options of calls that compile. Only the logs mean something here:
 * the caller gives a buffer and its size, and finds in the size's place how much
 * was written.
 */
#ifndef DIVVY_STANDIN_JIT_H
#define DIVVY_STANDIN_JIT_H

#include <stddef.h>

#include "cuda_abi.h"

/* Where one log goes; slot is the option value that holds its size. */
struct sd_jit_log {
	char *text;
	size_t room;
	void **slot;
};

struct sd_jit {
	struct sd_jit_log info;
	struct sd_jit_log error;
	void **walltime;
};

struct sd_jit sd_jit_read(unsigned int count, CUjit_option *options, void **values);
/* Writes the error log, "" for none, and empties the other one. */
void sd_jit_tell(const struct sd_jit *jit, const char *error);

#endif
