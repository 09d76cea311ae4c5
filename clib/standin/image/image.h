/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h: module images. A card here runs PTX: a text, or the best text of a fat
 * binary. Machine code cannot be run; an image that has nothing else has no
 * binary for this card.
 */
#ifndef DIVVY_STANDIN_IMAGE_H
#define DIVVY_STANDIN_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ptx/ast.h"
#include "ptx/code.h"
#include "registers.h"

#define SD_IMAGE_MOST (1ull << 30) /* bytes of one image */

struct sd_parameter {
	uint32_t offset;
	uint32_t bytes;
};

/* A kernel. */
struct sd_entrypoint {
	const char *name;
	const struct ptx_function *function;
	struct sd_parameter *parameters;
	uint32_t count;
	uint32_t bytes;      /* of all parameters */
	uint32_t shared;     /* static */
	uint32_t local;      /* per thread, with registers that were to be given up */
	uint32_t constant;   /* all that the module has */
	uint32_t registers;  /* per thread */
	uint32_t maxthreads; /* of a block: .maxntid or .reqntid, and what its registers allow */
};

struct sd_image {
	unsigned char *bytes; /* as they were given, to be read again */
	size_t size;
	unsigned int version; /* PTX: 7.8 is 78 */
	unsigned int target;  /* sm_80 is 80 */
	struct ptx_module *module;
	struct ptx_code *code; /* NULL until sd_image_compile */
	struct sd_register_wish wish; /* of whoever linked it, else of its loader */
	struct sd_entrypoint *entries; /* registers, local and maxthreads: 0 until then, too */
	size_t entrycount;
};

/*
 * capability: 80 for a card of compute capability 8.0. size 0: the image tells
 * itself. -EINVAL: no image; -EBADMSG: PTX that makes no sense or is for newer
 * cards; -ENOTSUP: PTX newer than maxversion; -ENOEXEC: nothing that this card
 * can run; -ENOMEM. The log says why.
 */
int sd_image_read(const void *data, size_t size, unsigned int maxversion, unsigned int capability,
		  struct sd_image *image, struct ptx_log *log);
/* When its variables have their addresses: -EBADMSG for what cannot be run. */
int sd_image_compile(struct sd_image *image, struct ptx_log *log);
void sd_image_free(struct sd_image *image);
const struct sd_entrypoint *sd_image_entry(const struct sd_image *image, const char *name);

/* The PTX of an image: a part of data, or *made, which the caller frees. */
int sd_image_text(const void *data, size_t size, unsigned int capability, const char **text, size_t *length,
		  unsigned char **made, struct ptx_log *log);
/* bytes of the whole image; 0 if it is none */
size_t sd_image_size(const void *data, size_t size);

/* version.c: the PTX version that a driver generation (12020) reads: 82. Facts: the PTX ISA's
 * release history. */
unsigned int sd_ptx_read_by(int generation);
/* Whether a card of that capability runs PTX of that target (struct ptx_head). */
bool sd_ptx_fits(unsigned int target, char only, unsigned int capability);

/* fat.c: the size of a fat binary, and its best PTX for a card */
size_t sd_fat_size(const void *data, size_t size);
int sd_fat_text(const void *data, size_t size, unsigned int capability, const char **text, size_t *length,
		unsigned char **made, struct ptx_log *log);
/* The first made bytes of it, at most room. -EBADMSG for what is none; less than room is no error. */
int sd_lz4_begin(const unsigned char *from, size_t size, unsigned char *to, size_t room, size_t *made);
int sd_zstandard_begin(const unsigned char *from, size_t size, unsigned char *to, size_t room, size_t *made);
/* -EBADMSG unless it makes exactly room bytes */
int sd_lz4_expand(const unsigned char *from, size_t size, unsigned char *to, size_t room);
/* the same; -ENOSYS without the system's library */
int sd_zstandard_expand(const unsigned char *from, size_t size, unsigned char *to, size_t room);

#endif
