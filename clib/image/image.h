/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h: module images. A card here runs PTX: a text, or the best text of a fat
 * binary. Machine code cannot be run; an image that has nothing else has no
 * binary for this card.
 *
 * An image is read as a whole, or one kernel at a time (lazy):
 *
 *	sd_image_begin       which text it is; if it is read as a whole, all of that
 *	sd_image_open        lazy: expands the text, finds kernels, reads variables
 *	... its variables get their addresses ...
 *	sd_image_compile     as a whole
 *	sd_image_load        lazy: one kernel
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

struct sd_source;

/* A kernel. Of one that is not ready only the name is known. */
struct sd_entrypoint {
	const char *name;
	bool ready;
	const char *refused; /* why it cannot be run here; NULL: it can */
	bool told;           /* somebody was told so */
	const struct ptx_function *function;
	const struct ptx_code *code; /* that has it */
	struct sd_parameter *parameters;
	uint32_t count;
	uint32_t bytes;      /* of all parameters */
	uint32_t shared;     /* static */
	uint32_t local;      /* per thread, with registers that were to be given up */
	uint32_t constant;   /* all that the module has */
	uint32_t registers;  /* per thread */
	uint32_t maxthreads; /* of a block: .maxntid or .reqntid, and what its registers allow */
	/* lazy: its own */
	struct ptx_module *tree;
	struct ptx_code *made;
	char *text;   /* of name */
	char *reason; /* of refused */
};

enum sd_loading {
	SD_LOAD_USUAL, /* texts of more than SD_WHOLE_MOST one kernel at a time */
	SD_LOAD_LAZY,  /* all */
	SD_LOAD_WHOLE, /* none */
	SD_LOAD_EAGER, /* none; and one kernel that cannot be run refuses all of them */
};

#define SD_WHOLE_MOST (1u << 20)

struct sd_reading {
	unsigned int maxversion; /* of PTX: 82 */
	unsigned int capability; /* 80 for a card of compute capability 8.0 */
	enum sd_loading loading;
	bool mixed; /* cards of another capability may want another text of the same image */
};

struct sd_image {
	struct sd_source *source; /* what it is read from; NULL when nothing more is */
	size_t size;              /* of what was given */
	struct sd_reading reading;
	bool lazy;
	int failed;          /* lazy: sd_image_open, for good */
	unsigned int version; /* PTX: 7.8 is 78 */
	unsigned int target;  /* sm_80 is 80 */
	struct ptx_module *module; /* lazy: of the variables, NULL until sd_image_open */
	struct ptx_code *code; /* NULL until sd_image_compile */
	struct sd_register_wish wish; /* of whoever linked it, else of its loader */
	struct sd_entrypoint *entries; /* registers, local and maxthreads: 0 until then, too */
	size_t entrycount;
};

/*
 * size 0: the image tells itself. -EINVAL: no image; -EBADMSG: PTX that makes no
 * sense or is for newer cards; -ENOTSUP: PTX newer than maxversion; -ENOEXEC:
 * nothing that this card can run; -ENOMEM. The log says why.
 */
int sd_image_begin(const void *data, size_t size, const struct sd_reading *reading, struct sd_image *image,
		   struct ptx_log *log);
/* The same image once more, for variables at other addresses or another card. */
int sd_image_again(const struct sd_image *image, const struct sd_reading *reading, struct sd_image *out,
		   struct ptx_log *log);
/* As a whole, with SD_LOAD_EAGER. */
int sd_image_read(const void *data, size_t size, unsigned int maxversion, unsigned int capability,
		  struct sd_image *image, struct ptx_log *log);
/* Nothing is made from it again. */
void sd_image_settle(struct sd_image *image);
/* lazy.c. It may find that the text must be read as a whole: then it is lazy no longer. */
int sd_image_open(struct sd_image *image, struct ptx_log *log);
/* Makes a kernel ready, or tells why it is refused: -EBADMSG. place gives its variables
 * their addresses. */
int sd_image_load(struct sd_image *image, struct sd_entrypoint *entry, int (*place)(void *who, struct ptx_module *tree),
		  void *who, struct ptx_log *log);
/* When its variables have their addresses: -EBADMSG for what cannot be run, unless there
 * are other kernels that can; then the log has the first that is refused. */
int sd_image_compile(struct sd_image *image, struct ptx_log *log);
void sd_image_free(struct sd_image *image);
struct sd_entrypoint *sd_image_entry(const struct sd_image *image, const char *name);

/* For the two ways of reading. */
int sd_image_parse(struct sd_image *image, const char *text, size_t length, struct ptx_log *log);
/* Fills in what its function says, and with code what that says. */
int sd_entrypoint_enter(struct sd_entrypoint *entry, const struct ptx_function *function, uint32_t constant);
void sd_entrypoint_compiled(struct sd_entrypoint *entry, const struct ptx_code *code, const struct sd_register_wish *wish);
uint32_t sd_constant_bytes(const struct ptx_module *module);

/* source.c: the bytes of an image and the text in it, for all that are read from it. */
struct ptx_index;
struct sd_source {
	unsigned int users;
	unsigned char *bytes; /* as they were given; NULL once only the text is wanted */
	size_t size;
	const char *text;
	size_t length;
	unsigned char *made; /* the text, if it was packed */
	struct ptx_index *index;
};
struct sd_source *sd_source_new(const void *data, size_t size);
struct sd_source *sd_source_share(struct sd_source *source);
void sd_source_drop(struct sd_source *source);
/* keep: the bytes are wanted afterwards */
int sd_source_expand(struct sd_source *source, unsigned int capability, bool keep, struct ptx_log *log);

/* The PTX of an image: a part of data, or *made, which the caller frees. */
int sd_image_text(const void *data, size_t size, unsigned int capability, const char **text, size_t *length,
		  unsigned char **made, struct ptx_log *log);
/* bytes of the whole image, of which at least 4 are given; 0 if it is none, and the log says why */
size_t sd_image_size(const void *data, size_t size, struct ptx_log *log);

/* version.c: the PTX version that a driver generation (12020) reads: 82. Facts: the PTX ISA's
 * release history. */
unsigned int sd_ptx_read_by(int generation);
/* Whether a card of that capability runs PTX of that target (struct ptx_head). */
bool sd_ptx_fits(unsigned int target, char only, unsigned int capability);

/* What a text is before it is expanded. */
struct sd_text {
	struct ptx_head head; /* zeros: it does not say */
	size_t length;        /* about */
};
int sd_image_look(const void *data, size_t size, unsigned int capability, struct sd_text *text, struct ptx_log *log);

/* fat.c: the size of a fat binary, and its best PTX for a card; text alone: without expanding it */
size_t sd_fat_size(const void *data, size_t size, struct ptx_log *log);
int sd_fat_look(const void *data, size_t size, unsigned int capability, struct sd_text *text, struct ptx_log *log);
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
