/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jit.h: the options of calls that compile. Only the logs and the wishes about
 * registers mean something here. The caller gives a buffer and its size, and finds
 * in the size's place how much was written; it gives threads that are to fit in a
 * block, and finds how many of them fit, except from the calls that link.
 */
#ifndef DIVVY_STANDIN_JIT_H
#define DIVVY_STANDIN_JIT_H

#include <stddef.h>

#include "cuda_abi.h"
#include "image/image.h"

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
	struct sd_register_wish wish;
	void **threads;
};

struct sd_jit sd_jit_read(unsigned int count, CUjit_option *options, void **values);
/* Writes the error log, "" for none, and empties the other one. */
void sd_jit_tell(const struct sd_jit *jit, const char *error);
/* Writes how many of the threads that were wished for fit each kernel of the image. */
void sd_jit_tell_threads(const struct sd_jit *jit, const struct sd_image *image);

#endif
