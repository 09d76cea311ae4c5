/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h: what is in a module image: entry points with their parameters, and
 * variables, found by a bounded scan of PTX text or by the symbols of a cubin.
 * Fat binaries are taken as they are: a name is there when its bytes are. The
 * interpreter's parser will replace the scan for text it can run.
 */
#ifndef DIVVY_STANDIN_IMAGE_H
#define DIVVY_STANDIN_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SD_IMAGE_MOST (1ull << 30)    /* bytes of one image */
#define SD_IMAGE_NAMES 65536u         /* entry points or variables of one image */
#define SD_IMAGE_PARAMETERS 4096u     /* of one entry point */
#define SD_IMAGE_VARIABLE (1ull << 40)

struct sd_parameter {
	uint32_t offset;
	uint32_t bytes;
};

struct sd_entrypoint {
	char *name;
	struct sd_parameter *parameters;
	uint32_t count;
	uint32_t bytes;  /* of all parameters */
	uint32_t shared; /* static */
	uint32_t local;
	uint32_t constant;
	uint32_t maxthreads; /* .maxntid or .reqntid, 0 if it has none */
};

struct sd_variable {
	char *name;
	uint64_t bytes;
	uint64_t align;
	bool constant;
	bool managed;
	unsigned char *initial; /* bytes of them, NULL for zeros */
};

enum sd_image_kind { SD_IMAGE_PTX, SD_IMAGE_CUBIN, SD_IMAGE_FAT };

struct sd_image {
	enum sd_image_kind kind;
	unsigned char *bytes; /* a copy, NUL-terminated */
	size_t size;
	unsigned int version; /* PTX: 7.8 is 78 */
	unsigned int target;  /* sm_80 is 80; 0 if unknown */
	struct sd_entrypoint *entries;
	size_t entrycount;
	struct sd_variable *variables;
	size_t variablecount;
};

/* -EINVAL: no image at all; -EBADMSG: PTX that makes no sense; -ENOTSUP: PTX
 * newer than maxversion; -ENOMEM. size 0: the image tells itself. */
int sd_image_read(const void *data, size_t size, unsigned int maxversion, struct sd_image *image);
void sd_image_free(struct sd_image *image);
/* binary images: whether the bytes of the name are in it */
bool sd_image_mentions(const struct sd_image *image, const char *name);

/* ptx.c, cubin.c */
int sd_ptx_scan(struct sd_image *image, unsigned int maxversion);
int sd_cubin_scan(struct sd_image *image);

#endif
