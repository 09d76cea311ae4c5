/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.h: modules, libraries and their functions. A module costs its image,
 * rounded up to 512 bytes, and its variables. A library belongs to no context;
 * it becomes a module in each context that uses it.
 */
#ifndef DIVVY_STANDIN_MODULE_H
#define DIVVY_STANDIN_MODULE_H

#include "cuda/context.h"
#include "image/image.h"

struct sd_library;
struct sd_memory;

/* A variable, in memory of the card. */
struct sd_global {
	const char *name; /* the image's; NULL for one that only its function knows */
	uint64_t place;   /* of its declaration (ast.h), by which kernels that are read later find it */
	bool filled;
	struct sd_memory *memory;
	uint64_t address;
	uint64_t bytes;
};

struct sd_module {
	struct sd_object object;
	struct sd_context *context;
	struct sd_library *library; /* NULL for a module of its own */
	struct sd_image image;
	uint64_t charged;
	struct sd_global **globals;
	size_t globalcount;
	unsigned int steps; /* queue.h: of its kernels, that are not done */
};

struct sd_library {
	struct sd_object object;
	struct sd_image image; /* what modules are made from; lazy: none of its kernels is ever run */
	bool opened; /* sd_library_open */
	bool told;
	struct sd_module **modules;
	size_t modulecount;
};

/* CUfunction, and CUkernel when it has no module. */
struct sd_function {
	struct sd_object object;
	struct sd_module *module;
	struct sd_library *library;
	char *name;
	struct sd_entrypoint *entry; /* the image's */
	bool ready; /* sd_function_ready was content */
	const struct sd_parameter *parameters;
	size_t parametercount;
	size_t parameterbytes;
	int maxdynamic; /* attributes that can be set */
	int carveout;
	int cluster[3];
	bool clusterneeded;
	bool clusterlarge;
	int clusterpolicy;
	CUfunc_cache cache;
	CUsharedconfig banks;
	unsigned int block[3]; /* of the old launch calls */
	unsigned int shared;
	unsigned char *oldparameters;
	size_t oldbytes;
};

/* Lazy images: finds the kernels. */
CUresult sd_library_open(struct sd_library *library);
/* The function of a kernel in the calling thread's context. */
CUresult sd_kernel_function(const struct sd_function *kernel, struct sd_function **out);
/* Lazy images: reads and compiles the kernel. A kernel that cannot be run is refused, and a
 * line on stderr says why, once. */
CUresult sd_function_ready(struct sd_function *function);
/* image is taken over, whatever comes of it */
CUresult sd_module_new(struct sd_context *context, struct sd_image *image, struct ptx_log *log,
		       struct sd_module **out);
CUresult sd_module_function(struct sd_module *module, const char *name, struct sd_function **out);
CUresult sd_function_new(struct sd_image *image, const char *name, struct sd_object *owner,
			 struct sd_function **out);
void sd_function_end(struct sd_function *function);
/* occupancy.c: how many blocks of so many threads, each with so many bytes of
 * dynamic shared memory, are on a multiprocessor of the card at once. */
uint32_t sd_blocks_resident(const struct sd_function *function, const struct sd_card *card, uint32_t threads,
			    uint64_t dynamic);
/* How images are read for the card, by the environment and what the caller wishes. */
struct sd_reading sd_reading_for(const struct sd_card *card, const struct sd_register_wish *wish);
/* Reads an image as this generation of the driver does, for the card; wish: NULL for none. */
CUresult sd_module_read(const void *data, size_t size, const struct sd_card *card, const struct sd_register_wish *wish,
			struct sd_image *image, struct ptx_log *log);
CUresult sd_image_error(int error);
/* the PTX version that this generation of the driver reads, and what a card is: 80 for sm_80 */
unsigned int sd_ptx_version(void);
unsigned int sd_capability(const struct sd_card *card);
CUresult sd_file_read(const char *path, unsigned char **bytes, size_t *size);
/* Waits until none of its kernels is still to run. */
void sd_module_idle(struct sd_module *module);
void sd_library_forget(struct sd_library *library, const struct sd_module *module);

/* global.c: gives all variables of a tree of the image their places, those that are known
 * the same again; sd_globals_fill then writes what the new ones hold. Both may be undone by
 * sd_globals_end. */
CUresult sd_globals_place(struct sd_module *module, struct ptx_module *tree);
CUresult sd_globals_fill(const struct ptx_module *tree);
void sd_globals_end(struct sd_module *module);
struct sd_global *sd_module_global(struct sd_module *module, const char *name);

#endif
