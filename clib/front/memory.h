/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h: the memory half of the front library.
 *
 * Every hook here follows one order: charge, ask the driver, then either take
 * the charge back (the driver failed) or write down what it is for. What is
 * written down is taken out before the driver is asked to free it and put back
 * when the driver refuses, because a freed address may be handed out again, in
 * another thread, before the driver's free has returned. What belongs to a thing
 * and is looked for after its end is known by a number of ours, not by a handle.
 *
 * A figure that the driver gives (a reserve) is settled against what is charged
 * and what is under way, never against what is about to be charged: nothing goes
 * back that has not been paid. front_turns.c plays what once went wrong.
 *
 * No lock of these files is held across front_charge, front_refund or
 * front_measure, except those that the tops of primary.c, context.c, module.c
 * and ctxlimit.c name.
 *
 * One file per sort of memory; the rule of each, and where the rule comes
 * from, stands at its top: alloc.c and linear.c, array.c, pool.c, poolpart.c and async.c,
 * virtual.c, multicast.c, graphmem.c, context.c and primary.c, module.c,
 * library.c, ctxlimit.c, external.c, named.c; wait.c looks again after the calls that
 * wait.
 */
#ifndef FRONT_MEMORY_H
#define FRONT_MEMORY_H

#include "front.h"
#include "table.h"

#pragma GCC visibility push(hidden)

/* What a key of the table names. */
enum front_space {
	SPACE_POINTER = 1, /* linear, pitched, managed memory, by address */
	SPACE_POOLED,      /* memory from a pool, by address; bytes: 0, extra: the serial of its pool */
	SPACE_POOL,        /* CUmemoryPool; extra: its serial in pool.c */
	SPACE_ARRAY,       /* CUarray; extra: a number of ours */
	SPACE_MIPMAP,      /* CUmipmappedArray; extra: likewise */
	SPACE_HANDLE,      /* cuMemCreate's handle; extra: its backing's number, bytes: references */
	SPACE_BACKING,     /* the memory behind handles, by our own number; extra: handles and mappings */
	SPACE_MAPPING,     /* a mapped address range; bytes: its size, extra: its backing's number */
	SPACE_TILE,        /* a piece of a sparse array that is mapped; bytes: the array's number, extra: the backing */
	SPACE_BINDING,     /* a place of a multicast object; bytes: the object, extra: the backing bound there */
	SPACE_CONTEXT,     /* CUcontext; owner: the serial of the context itself, extra: uses */
	SPACE_GREEN,       /* CUgreenCtx */
	SPACE_MODULE,      /* CUmodule */
	SPACE_LOADED,      /* CUlibrary; extra: a number of ours */
	SPACE_LIBRARY,     /* a library in a context, by both; extra: the library's number */
	SPACE_LEAVING,     /* plain memory that a stream has yet to free, by a number of ours */
	SPACE_NAMED,       /* what was exported, by space and key; extra: its number at the agent */
	SPACE_OPENED,      /* another process's memory, by address; extra: its number, and how often it was opened; bytes: charged */
	SPACE_OWED,        /* a release that the agent has yet to be told; extra: the number */
	SPACE_KERNEL,      /* CUkernel; bytes: its library, extra: that one's number */
	SPACE_EXTERNAL,    /* CUexternalMemory; extra: its backing */
	SPACE_VIEW,        /* what is mapped of one, by address or mipmap; extra: the same */
	SPACE_LIMIT = 28,  /* a context's raised limits: SPACE_LIMIT + CUlimit (0 to 2), by CUcontext */
	SPACE_EXEC = 32,   /* CUgraphExec: SPACE_EXEC + slot; extra: what its alloc nodes ask for */
};

/* record.flags of SPACE_LIBRARY: there was no room for bytes, they are not charged. */
#define LIBRARY_UNPAID 1u
/* of SPACE_POINTER, SPACE_POOLED and SPACE_BACKING: it has a number at the agent, who is told when it goes (named.h). */
#define MEMORY_NAMED 2u

extern struct table front_held;

/* In steps of this much, drivers take memory for pools and graphs: the granule of every card so far. */
#define MEMORY_STEP (2ull << 20)

/* Where memory that is asked for now lands and what it dies with. */
struct front_place {
	int slot;
	uint32_t owner; /* serial of the current context, 0 when there is none */
};

/* context.c: the place of the current context. */
struct front_place context_place(void);
/* context.c: the slot of a context, as front_context_slot, quicker for those we saw being made. */
int context_slot_of(CUcontext handle);

/*
 * virtual.c: what stands behind a handle or a mapped address, as our own number;
 * 0: nothing of ours. Each hold keeps it charged until it is dropped; hold is
 * false when it is gone.
 */
uint64_t virtual_of_handle(uint64_t handle);
uint64_t virtual_of_address(uint64_t address);
bool virtual_hold(uint64_t backing);
void virtual_drop(uint64_t backing);
/*
 * virtual.c: memory that was imported, and is held once: number is the agent's, or it is
 * charged bytes on slot. 0 when there is no place for it.
 */
uint64_t virtual_import(uint64_t number, uint64_t bytes, int slot, unsigned flags);
/* virtual.c: writes a new handle down, for bytes that are charged; 0, or -ENOMEM. */
int virtual_note(uint64_t handle, uint64_t bytes, int slot, unsigned flags);
#define BACKING_MULTICAST 1u
#define BACKING_FOREIGN 4u /* imported, and nobody knows how large it is: charged as it is mapped */
/* multicast.c: the object is no more, nor what was bound to it. */
void multicast_gone(uint64_t object);

/* virtual.c: the tiles of a sparse array (or, array 0, of the context owner) are mapped no more. */
void virtual_tiles_gone(uint64_t array, uint32_t owner);

/*
 * module.c: what a load took, which only the driver knows. module_measured ends
 * what module_measure began, whether the load succeeded or not; *bytes is what
 * it took (0 when nobody tells), charged when the answer is 0, not charged when
 * it is -ENOMEM.
 */
struct measuring {
	int slot;
	bool measured;
	int64_t before;
};

struct measuring module_measure(int slot);
int module_measured(const struct measuring *measuring, bool loaded, const char *call, uint64_t *bytes);

/* pool.c: the card was reset in this process: the pools that the program made there are no more. */
void pool_card_reset(int slot);
/*
 * async.c, for memory from a pool: pool_take takes its record out before the driver is
 * asked to free it, if it is of a pool; pool_given: the driver has it back.
 */
bool pool_take(uint64_t pointer, struct table_record *record);
void pool_given(const struct table_record *record);

/*
 * external.c, for memory of other processes: external_take takes its record out before the
 * driver is asked to free it, if address is of some; external_given: the driver has it back.
 */
bool external_take(uint64_t address, struct table_record *record);
void external_given(const struct table_record *record);
/* external.c: a pointer of an imported pool is here; CUDA_SUCCESS, or it was given back. */
CUresult external_pointer(uint64_t address, uint64_t number);
/* external.c: what is mapped of external memory in the context owner is mapped no more. */
void external_views_gone(uint32_t owner);

/* alloc.c: memory with a number has gone, or of memory that has none the charge is refunded. */
void memory_handed(const struct table_record *record);

static inline uint64_t memory_round(uint64_t bytes, uint64_t unit)
{
	uint64_t rounded;

	if (__builtin_add_overflow(bytes, unit - 1, &rounded))
		return UINT64_MAX; /* no card has it: the charge will be refused */
	return rounded - rounded % unit;
}

static inline uint64_t memory_mix(uint64_t hash, uint64_t word)
{
	return (hash ^ word) * 0x9e3779b97f4a7c15ull ^ hash >> 29;
}

/* a + b, UINT64_MAX when that does not fit. */
static inline uint64_t memory_plus(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* a * b, UINT64_MAX when that does not fit. */
static inline uint64_t memory_times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/*
 * alloc.c: linear, pitched and managed memory. Every such allocation reaches
 * the driver through front_allocate and leaves through front_free, so that one
 * day they can be backed by virtual-memory handles under unchanged addresses.
 */
enum front_sort { FRONT_LINEAR, FRONT_LINEAR_V1, FRONT_PITCH, FRONT_PITCH_V1, FRONT_MANAGED };

struct front_request {
	enum front_sort sort;
	enum divvy_symbol symbol; /* the driver function to ask */
	const char *call; /* its public name, for events */
	uint64_t bytes;   /* pitched: of a row */
	uint64_t rows;    /* pitched only */
	unsigned element; /* pitched: ElementSizeBytes */
	unsigned flags;   /* managed */
	uint64_t pointer; /* out, on success */
	uint64_t pitch;   /* out, on success, pitched only */
};

CUresult front_allocate(struct front_request *request);

/* The driver's part of giving address back: it is called exactly once. */
CUresult front_free(uint64_t address, CUresult (*give)(uint64_t address, enum divvy_symbol called), enum divvy_symbol called);

/* Charges, or says which error the program gets. */
static inline CUresult memory_charge(int slot, uint64_t bytes, const char *call)
{
	return front_charge(slot, bytes, call) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The driver refused: the charge goes back; if it had no room though the share had, that is an event. */
void memory_refused(int slot, uint64_t bytes, CUresult result, const char *call);

/*
 * Brings a charge in line with what the driver says it took. A smaller truth
 * is refunded; a greater one is charged. -ENOMEM when there is no room for the
 * rest: the old charge then stands and the caller gives the memory back.
 */
int memory_settle(int slot, uint64_t charged, uint64_t truth, const char *call);

/*
 * Writes the record down; 0, or -ENOMEM. What the key named before is gone from
 * the card (the driver would not hand out the address twice) and is refunded.
 */
int memory_note(const struct table_record *record);

/* Puts a record back that was taken out for a call that the driver refused. */
void memory_restore(const struct table_record *record);

/*
 * pool.c and graphmem.c: what pools and graphs reserve shrinks behind our back.
 * One load when this process has none. front_pools_settle is called before free
 * memory is reported and after every call that waits for the card;
 * front_pools_yield_slow (through front_yield, ledger.h) before a denial is
 * final: it also has the driver give back what its pools keep without using it.
 * Both only ever refund, never charge,
 * never wait, and are legal during stream capture.
 */
extern uint32_t front_pools_live;
void front_pools_settle_slow(void);
void front_pools_yield_slow(void);

static inline void front_pools_settle(void)
{
	if (__atomic_load_n(&front_pools_live, __ATOMIC_RELAXED))
		front_pools_settle_slow();
}

/* From now on this process has a pool or a graph with memory: a denial asks front_pools_yield_slow first. */
void front_pools_began(void);

/*
 * graphmem.c, for the launch hook. front_graph_launching makes room for what
 * the graph's alloc nodes may still have to reserve: CUDA_SUCCESS, or
 * CUDA_ERROR_OUT_OF_MEMORY (do not launch). front_graph_launched ends what a
 * success began, whatever the driver answered. One load each when this process
 * has no graph with memory nodes.
 */
struct front_graph_launch {
	const char *call; /* the public name, given */
	uint32_t slots;   /* the cards on which it is counted */
	uint64_t pending[DIVVY_MAX_CARDS];
};

CUresult front_graph_launching(CUgraphExec exec, struct front_graph_launch *launch);
void front_graph_launched(const struct front_graph_launch *launch);

/* graphmem.c: this process captured or built an alloc node; graphs are looked at from now on. */
void graphmem_seen(void);
void graphmem_settle(void);
/* graphmem.c: the card was reset in this process: its instantiated graphs are no more. */
void graphmem_card_reset(int slot);
void graphmem_trim(void);

#pragma GCC visibility pop

#endif
