/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object.h: the things handles stand for. A handle is the object's address;
 * one table knows which are alive and of which kind, so that a wrong handle is
 * an error and not a crash. The driver's lock is held around every call.
 */
#ifndef DIVVY_STANDIN_OBJECT_H
#define DIVVY_STANDIN_OBJECT_H

#include <stddef.h>
#include <stdint.h>

enum sd_kind {
	SD_FREE,
	SD_CONTEXT,
	SD_GREEN,
	SD_STREAM,
	SD_EVENT,
	SD_MODULE,
	SD_LIBRARY,
	SD_FUNCTION, /* CUfunction and CUkernel */
	SD_LINK,
	SD_ARRAY,
	SD_MIPMAP,
	SD_POOL,
	SD_PHYSICAL, /* CUmemGenericAllocationHandle */
	SD_MULTICAST, /* the same type of handle */
	SD_EXTERNAL_MEMORY,
	SD_EXTERNAL_SEMAPHORE,
	SD_TEXTURE,
	SD_SURFACE,
	SD_GRAPH,
	SD_NODE,
	SD_EXEC,
	SD_USER_OBJECT,
	SD_RESOURCE_DESC,
	SD_NOTIFICATION,
	SD_KINDS,
};

struct sd_object {
	enum sd_kind kind;
	uint64_t id;              /* never used twice in a process */
	struct sd_object *bucket; /* next in the table */
	struct sd_object *next;   /* next of the same owner */
	struct sd_object *prev;
	struct sd_object *first;  /* what it owns */
	struct sd_object *owner;
	void (*end)(void *object); /* when something hangs on it; NULL: it is only freed */
};

/* zeroed memory of that size, which starts with a struct sd_object; NULL when
 * there is no memory. owner may be NULL. */
void *sd_object_new(enum sd_kind kind, size_t size, struct sd_object *owner);
/* the object behind a handle, NULL if it is not alive or of another kind */
void *sd_object_get(const void *handle, enum sd_kind kind);
/* ends it, and all that hangs on it; and its memory alone */
void sd_object_end(void *object);
void sd_object_free(void *object);
uint64_t sd_object_count(enum sd_kind kind);
uint64_t sd_next_id(void);

#endif
