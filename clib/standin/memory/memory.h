/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h: every range of addresses the driver knows, by address: device
 * memory of all sorts, and host memory that was pinned or registered.
 *
 * A device address is never accessible to the host (managed memory excepted);
 * the driver reads and writes the same bytes at sd_alias(address).
 */
#ifndef DIVVY_STANDIN_MEMORY_H
#define DIVVY_STANDIN_MEMORY_H

#include "cuda/driver.h"

enum sd_memory_kind {
	SD_LINEAR,     /* cuMemAlloc, cuMemAllocPitch */
	SD_MANAGED,    /* cuMemAllocManaged */
	SD_POOLED,     /* part of a pool's chunk */
	SD_GRAPHED,    /* made by a graph's allocation node */
	SD_MAPPED,     /* cuMemMap */
	SD_OPENED,     /* another process's, by cuIpcOpenMemHandle or a pool pointer */
	SD_IMPORTED,   /* mapped buffer of external memory */
	SD_GLOBAL,     /* variable of a module */
	SD_HOST,       /* cuMemAllocHost */
	SD_REGISTERED, /* cuMemHostRegister */
};

struct sd_memory {
	struct sd_node node;
	enum sd_memory_kind kind;
	uint64_t address;
	uint64_t bytes; /* as asked for */
	uint64_t span;  /* as taken from the address space */
	uint64_t charged;
	uint32_t chargedas; /* DIVVY_SIM_KIND_* */
	struct sd_card *card; /* NULL for host memory without a device */
	struct sd_context *context;
	struct sd_memory *next; /* of the same context */
	struct sd_memory *prev;
	uint64_t id;
	unsigned int flags; /* host and managed memory: as given by the caller */
	bool exported;      /* has an IPC handle */
	bool syncmemops;
	void (*end)(struct sd_memory *memory); /* frees it; NULL: what it belongs to does */
	void *owner;        /* pool chunk, physical memory, module ... */
	uint64_t offset;    /* in the owner */
	uint64_t readable;  /* bit per visible card; SD_MAPPED */
	uint64_t writable;
	uint64_t freeing;   /* cuMemFreeAsync: the stream that will have freed it, and */
	uint64_t freeingas; /* which call that is; 0: none */
};

/* The range that holds address, or NULL. */
struct sd_memory *sd_memory_at(uint64_t address);
/* The range that starts at address, or NULL. */
struct sd_memory *sd_memory_from(uint64_t address);
/*
 * Memory that is given back has its owner by its address: whatever is current, or nothing
 * is. *memory as sd_memory_from; the answer is the fault of the context that it is of, or,
 * of memory without one, of the current context if there is any.
 */
CUresult sd_memory_returned(uint64_t address, struct sd_memory **memory);
struct sd_memory *sd_memory_after(uint64_t address); /* first that starts at or above it */
/* Enters a range; it must not overlap another (false). context may be NULL. */
bool sd_memory_enter(struct sd_memory *memory, struct sd_context *context);
void sd_memory_leave(struct sd_memory *memory);

/* Takes span bytes of the card's arena, zeroed contents; charges are the caller's. */
CUresult sd_arena_take(struct sd_card *card, uint64_t bytes, uint64_t align, uint64_t *address);
void sd_arena_give(struct sd_card *card, uint64_t address, uint64_t bytes);
/* Empties whole pages of a part of the arena and clears the rest of it. */
void sd_arena_clear(uint64_t address, uint64_t bytes);

/* Charged linear memory of the card, entered. */
CUresult sd_linear_new(struct sd_context *context, enum sd_memory_kind kind, uint32_t chargedas,
		       uint64_t bytes, struct sd_memory **out);

/* Where the driver itself reads and writes address, which memory holds. */
unsigned char *sd_memory_host(const struct sd_memory *memory, uint64_t address);

/* The bytes [address, address + bytes) as the driver may touch them on behalf
 * of the card; NULL if they are not inside one range (or inside adjoining
 * cuMemMap mappings the card has access to). memory may be NULL. */
unsigned char *sd_reach(uint64_t address, uint64_t bytes, const struct sd_card *card, bool write,
			struct sd_memory **memory);

#endif
