/* SPDX-License-Identifier: Apache-2.0 */
/* texture.h: texture and surface objects, and what kernels see through them. */
#ifndef DIVVY_STANDIN_TEXTURE_H
#define DIVVY_STANDIN_TEXTURE_H

#include "cuda/driver.h"
#include "ptx/code.h"

/* CU_TRSF_* */
enum {
	SD_TEXTURE_INTEGERS = 1,
	SD_TEXTURE_NORMALIZED = 2,
	SD_TEXTURE_SRGB = 16,
};

struct sd_texture {
	struct sd_object object; /* SD_TEXTURE or SD_SURFACE; a surface has a resource only */
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
	CUDA_RESOURCE_VIEW_DESC view;
	bool viewed;
	bool destroyed; /* stays for the kernels that were launched before */
};

/* What a launch has found so far; zeroed at first. */
struct sd_sample;
struct sd_samples {
	struct sd_sample *_Atomic first;
	const struct sd_card *card;
};

/* Where the texels of a handle are. NULL: there is none, or it is of a kind that
 * cannot be read. Takes the driver's lock the first time; may be called by any
 * thread that does not hold it. */
const struct ptx_texture *sd_samples_find(struct sd_samples *samples, uint64_t handle, bool surface);
void sd_samples_end(struct sd_samples *samples);

#endif
