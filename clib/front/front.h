/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front.h: what the files of the front library may use of each other.
 *
 * A hook looks like this:
 *
 *	CUresult hook_cuMemAlloc_v2(unsigned symbol, CUdeviceptr *pointer, size_t bytes)
 *	{
 *		int slot, rc;
 *		CUresult result;
 *
 *		if (!front_enter())
 *			return REAL(symbol, cuMemAlloc_v2)(pointer, bytes);
 *		slot = front_current_slot();
 *		...
 *		rc = front_charge(slot, charged, DIVVY_KIND_MEMORY, "cuMemAlloc");
 *		if (rc == 0) {
 *			result = REAL(symbol, cuMemAlloc_v2)(pointer, bytes);
 *			if (result != CUDA_SUCCESS)
 *				front_uncharge(slot, charged);
 *			...
 *		}
 *		front_leave();
 *		return result;
 *	}
 *
 * front_enter says no in a forked child, when the process is on no ledger, and
 * when the driver itself calls back into us: then the hook does what the driver
 * does and nothing else. Every path after a yes ends in front_leave.
 *
 * Slots are indices into the card tables of the pages (divvy_wire.h). Functions
 * that take an int slot accept -1 ("not a card of ours") and then do nothing
 * and succeed.
 *
 * The files behind this header: dispatch.c (the real driver, the only one that
 * knows about hooking), attach.c (socket and hand-shake), page.c (validation),
 * ledger.c (credit), log.c; info.c, proc.c, launch.c, nvml.c and the memory
 * files hold hooks. Logic that needs no driver is declared in ledger.h and
 * page.h and links into plain test programs.
 */
#ifndef DIVVY_FRONT_H
#define DIVVY_FRONT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "nvml_abi.h"
#include "symbols.h"
#include "divvy_wire.h"

#pragma GCC visibility push(hidden)

/*
 * The real driver's functions by symbol; an entry that was never used holds a
 * stub that finds the function first. REAL(symbol, name) is the real function
 * of symbol with the type of name: REAL(symbol, cuMemAlloc_v2)(&p, n), where
 * symbol may be the _ptsz twin that the program called.
 */
extern void *front_real[];
#define REAL(symbol, name) \
	((__typeof__(name) *)__atomic_load_n(&front_real[(symbol)], __ATOMIC_RELAXED))

/* True when the real driver exports symbol; opens the driver if need be. */
bool front_has(unsigned symbol);

/* All thread-local state of the library: at most 64 bytes. */
struct front_thread {
	uint32_t inside;   /* a hook is running: calls from below are the driver's own */
	uint32_t launches; /* not yet on the client page */
};
extern __thread struct front_thread front_thread __attribute__((tls_model("initial-exec")));

/* Points at a word that is 1 while this process is attached and 0 in its forked children. */
extern uint32_t *front_live;

static inline bool front_enter(void)
{
	if (front_thread.inside || !__atomic_load_n(__atomic_load_n(&front_live, __ATOMIC_ACQUIRE), __ATOMIC_RELAXED))
		return false;
	front_thread.inside = 1;
	return true;
}

static inline void front_leave(void)
{
	front_thread.inside = 0;
}

/*
 * Opens the driver and attaches to the share if that has not happened yet.
 * CUDA_SUCCESS, also in a forked child (which the driver answers itself), or
 * CUDA_ERROR_SYSTEM_NOT_READY after one line on stderr. Only cuInit and
 * nvmlInit need to call it: before them front_enter says no.
 */
CUresult front_ready(void);

/*
 * Ledger. front_charge takes bytes before the driver is asked: 0, or -ENOMEM
 * when the share has no room (the denial is then counted and reported with
 * call, the public name of the function; return CUDA_ERROR_OUT_OF_MEMORY).
 * kind is DIVVY_KIND_*. front_uncharge takes a charge back when the driver
 * fails, front_refund when what was charged is freed. front_context_held adds
 * to (or takes from) the part of the charge that is shown as contexts.
 */
int front_charge(int slot, uint64_t bytes, unsigned kind, const char *call);
void front_uncharge(int slot, uint64_t bytes);
void front_refund(int slot, uint64_t bytes);
void front_context_held(int slot, int64_t bytes);

/* The driver refused bytes (out of memory) for which the quota had room: an event. */
void front_driver_oom(int slot, uint64_t bytes, const char *call);

/* What the driver says this process holds on slot, asked of the agent: 0, -ENODATA when nobody knows. */
int front_measure(int slot, uint64_t *bytes);

/*
 * The share. front_limits stays valid for ever, but ask again for fresh words
 * after an agent restart. front_context_bytes is what one context is charged.
 */
const struct divvy_limits *front_limits(void);
uint64_t front_context_bytes(int slot);

/* Cards: the real driver's handles and our slots. */
int front_slot(CUdevice device);              /* -1: not ours, answer CUDA_ERROR_INVALID_DEVICE */
CUdevice front_device(int slot);              /* the handle, -1 when the driver does not show the card */
int front_current_slot(void);                 /* of the current context; with one card no driver call, else -1 without one */
int front_context_slot(CUcontext context);    /* NULL: the current one */
unsigned front_cards(void);                   /* slots in use */

/*
 * Free and total memory of slot as the share sees them. driverfree and
 * drivertotal are what the driver answered; a share without a quota keeps them.
 */
void front_memory(int slot, uint64_t driverfree, uint64_t drivertotal, uint64_t *freebytes, uint64_t *totalbytes);

/* An event for the agent's log; dropped when the agent is away. kind is DIVVY_EVENT_*. */
void front_event(unsigned kind, int slot, uint64_t amount, const char *text);

/* One line on stderr, "divvy: ...". */
void front_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#pragma GCC visibility pop

#endif
