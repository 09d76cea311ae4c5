/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h: which loaded object an address belongs to, so that the front can
 * tell itself from the driver it opened.
 */
#ifndef DIVVY_FRONT_IMAGE_H
#define DIVVY_FRONT_IMAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "divvy_wire.h"

#pragma GCC visibility push(hidden)

struct front_image {
	uintptr_t start;
	uintptr_t end;
	bool hasbuildid;
	uint8_t buildid[DIVVY_BUILD_ID_BYTES]; /* zeros if it has none */
	bool hasfile;
	dev_t device; /* of its file, as its name leads there now */
	ino_t inode;
};

/* False when no loaded object holds the address. */
bool front_image_find(const void *address, struct front_image *image);

/* Device and inode of the file at path; false when there is none. */
bool front_image_file(const char *path, dev_t *device, ino_t *inode);

static inline bool front_image_holds(const struct front_image *image, const void *address)
{
	return (uintptr_t)address >= image->start && (uintptr_t)address < image->end;
}

/* One build, whatever the place and the name. */
bool front_image_same(const struct front_image *one, const struct front_image *other);

#pragma GCC visibility pop

#endif
