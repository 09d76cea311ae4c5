/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.h: what every file of the CUDA half shares: the one lock, the visible
 * cards, the calling thread, device addresses.
 *
 * One lock covers all bookkeeping. Contents are copied, cleared and handed to
 * host functions, and kernels run, with the lock released; nothing below this file
 * takes another lock of its own while waiting for it, except the line to the simulator.
 */
#ifndef DIVVY_STANDIN_DRIVER_H
#define DIVVY_STANDIN_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "table/object.h"
#include "sim/sim.h"
#include "table/space.h"

/* Linear memory of a card starts here: room for several times the biggest card,
 * so that fragments never decide whether something fits. */
#define SD_ARENA_BYTES (1ull << 39)
#define SD_ARENA_LEAST (1ull << 33)
/* Addresses for reserved ranges, opened and imported memory, all cards together. */
#define SD_VIRTUAL_BYTES (1ull << 42)
#define SD_MAX_CARDS 32u
#define SD_UNIT 512u
#define SD_PAGE 4096u
#define SD_STEP (2ull << 20) /* granularity of pools and of cuMemCreate */

struct sd_context;
struct sd_pool;
struct sd_stream;

struct sd_card {
	uint32_t index;   /* the simulator's */
	CUdevice ordinal; /* ours: after CUDA_VISIBLE_DEVICES */
	const struct divvy_sim_card *facts;
	uint64_t arena; /* its first device address */
	bool arenaopen; /* once memory was first asked for */
	struct sd_space space;
	struct sd_object contexts;  /* owns them */
	uint32_t faults;            /* that have hit this process here; see fault.h */
	struct sd_context *primary; /* made once, kept */
	unsigned int primaryrefs;
	unsigned int primaryflags;
	struct sd_pool *defaultpool;
	struct sd_pool *currentpool;
	uint64_t graphused; /* by allocation nodes; see graphmemory.c */
	uint64_t graphusedhigh;
	uint64_t graphreserved;
	uint64_t graphreservedhigh;
};

struct sd_entry {
	struct sd_context *context;
	uint64_t id;
};

/* What belongs to one thread of the program. */
struct sd_thread {
	struct sd_entry *stack;
	size_t depth;
	size_t room;
	struct sd_entry *streamof; /* contexts it has a per-thread stream in */
	struct sd_stream **streams;
	size_t streamcount;
	CUstreamCaptureMode capturemode;
	bool worker; /* runs host functions: may not call in */
};

/* Finds the simulator and its cards, once; the lock is held. */
CUresult sd_driver_open(void);
void sd_lock(void);
void sd_unlock(void);
/* Sleeps on a condition; until: at most until that time of day. */
void sd_wait(pthread_cond_t *condition);
void sd_wait_until(pthread_cond_t *condition, const struct timespec *until);

/* NULL only without memory */
struct sd_thread *sd_thread(void);
bool sd_worker(void); /* whether it is the one that runs host functions */

unsigned int sd_card_count(void);
struct sd_card *sd_card(CUdevice ordinal); /* NULL: no such card */
struct sd_card *sd_card_by_index(uint32_t index);
/* opens the arena of a card; 0 or negative errno */
int sd_card_arena(struct sd_card *card);
int sd_device_generation(void);

/* Device addresses lie in [sd_window(), sd_window() + size); no host access is
 * possible there. The driver itself reads and writes at sd_alias(). */
bool sd_in_window(uint64_t address);
unsigned char *sd_alias(uint64_t address);
/* Maps the bytes behind from's alias at another place as well, and takes such a
 * mapping away again. No descriptor is needed: a program may have closed all it
 * knows nothing of, and their numbers may be its own files by now. */
int sd_map_again(uint64_t from, uint64_t bytes, void *place);
void sd_unmap(void *place, uint64_t bytes);
/* Empties whole pages. */
int sd_punch(uint64_t address, uint64_t bytes);
struct sd_space *sd_virtual_space(void);

CUresult sd_error(int negative_errno);

/* Charges a card, and gives back what it charged. */
CUresult sd_charge(struct sd_card *card, uint32_t kind, uint64_t bytes);
void sd_release(struct sd_card *card, uint32_t kind, uint64_t bytes);
CUresult sd_adjust(struct sd_card *card, uint32_t kind, int64_t bytes);

static inline bool sd_round(uint64_t value, uint64_t unit, uint64_t *rounded)
{
	if (value > UINT64_MAX - unit)
		return false;
	*rounded = (value + unit - 1) / unit * unit;
	return true;
}

#endif
