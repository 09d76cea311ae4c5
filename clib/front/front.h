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
 *		rc = front_charge(slot, charged, "cuMemAlloc");
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
 * ledger.c (credit), names.c (cuGetProcAddress), log.c; info.c, launch.c, nvml.c
 * and the memory files hold hooks. Logic that needs no driver is declared in
 * ledger.h, page.h and names.h and links into plain test programs.
 */
#ifndef DIVVY_FRONT_H
#define DIVVY_FRONT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "nvml_abi.h"
#include "front_hooks.h"
#include "ledger.h"
#include "symbols.h"

#pragma GCC visibility push(hidden)

/*
 * REAL(symbol, name) is the real driver's function of symbol with the type of
 * name: REAL(symbol, cuMemAlloc_v2)(&p, n), where symbol may be the _ptsz twin
 * that the program called. An entry of front_real that was never used holds a
 * stub that finds the function first.
 */
#define REAL(symbol, name) \
	((__typeof__(name) *)__atomic_load_n(&front_real[(symbol)], __ATOMIC_RELAXED))

/* The real driver's function, or NULL when it has none; opens the driver if need be. */
void *front_address(unsigned symbol);
bool front_has(unsigned symbol);

/* The exported function that stands for a hooked symbol, NULL for others. */
void *front_wrapper(unsigned symbol);

struct burst;

/* All thread-local state of the library: at most 64 bytes. */
struct front_thread {
	uint32_t inside;   /* a hook is running: calls from below are the driver's own */
	uint16_t launches; /* at FRONT_LAUNCH_STEP those of a step go to the client page */
	uint16_t step;     /* how many that are, at least 1: a step begins at FRONT_LAUNCH_STEP - step */
	uint8_t counted[DIVVY_MAX_CARDS]; /* of a share of several cards: the same, by slot */
	uint8_t burst[DIVVY_MAX_CARDS];   /* number in the slot's gate, from 1; may be somebody else's by now */
};
#define FRONT_THREAD_NEW {.launches = FRONT_LAUNCH_STEP - 1, .step = 1} /* the first launch is a step by itself */
extern __thread struct front_thread front_thread __attribute__((tls_model("initial-exec")));

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
 * Attaches to the share if that has not happened yet: 0, or a negative errno
 * after one line on stderr. front_ready also opens the driver: CUDA_SUCCESS or
 * CUDA_ERROR_SYSTEM_NOT_READY. Only cuInit and nvmlInit need them: before
 * those front_enter says no.
 */
int front_join(void);
CUresult front_ready(void);

/*
 * Ledger (ledger.h). front_charge takes bytes before the driver is asked: 0, or
 * -ENOMEM when the share has no room (the denial is then counted and reported
 * with call, the public name of the function; return
 * CUDA_ERROR_OUT_OF_MEMORY). front_uncharge takes a charge back when the driver
 * fails, front_refund when what was charged is freed.
 * front_context_held adds to (or takes from) the part of the charge that is
 * shown as contexts. front_driver_oom reports that the driver refused bytes for
 * which the quota had room. front_measure: what the driver says this process
 * holds on slot, asked of the agent; -ENODATA when nobody knows. front_limits
 * stays valid for ever, but ask again for fresh words after an agent restart.
 * front_context_bytes is what one context is charged. front_event is dropped
 * when the agent is away. front_log writes one line on stderr, "divvy: ...".
 */

/* Cards: the real driver's handles and our slots. */
int front_slot(CUdevice device);              /* -1: not ours, answer CUDA_ERROR_INVALID_DEVICE */
CUdevice front_device(int slot);              /* the handle, -1 when the driver does not show the card */
int front_current_slot(void);                 /* of the current context, -1 without one; with one card always 0 and no driver call */
int front_context_slot(CUcontext context);    /* NULL: the current one */
int front_stream_slot(CUstream stream);       /* of its context; a default stream's is the current one */
unsigned front_cards(void);                   /* slots in use */

/*
 * One launch: a thread-local count, added to the client page at the end of a step. True: the
 * launch goes through the gate (gate.h), because the step ends or because
 * launches are gated, or may be: on one of several cards. A step is 64 launches, or fewer of
 * long ones (front_gate_step). cuLaunchKernel counts in assembler (front_jumps.S) before its
 * hook is asked.
 *
 * front_gate_before waits for its turn on the card of slot where there is one; sample: where there
 * is none, time it, and let it stand for so many; 0: do not. What it returns, if not NULL, is for front_gate_after,
 * after the driver was asked. front_gate_forget comes before a context or what is in it
 * is destroyed; NULL: all of them. front_gate_waits and front_gate_waited stand
 * around calls that wait for a card; the latter is given what the former returned: the
 * gates that look when the call returns, a bit for each slot.
 */
static inline bool front_launched(void)
{
	return ++front_thread.launches >= FRONT_LAUNCH_STEP ||
	       __atomic_load_n(__atomic_load_n(&front_gated, __ATOMIC_RELAXED), __ATOMIC_RELAXED) != 0;
}

/* How many launches the next step may have: 5 ms of the longest lately, 1 while none is known. */
unsigned front_gate_step(unsigned slot);
struct burst *front_gate_before(unsigned slot, CUstream stream, uint64_t key, unsigned sample);
void front_gate_after(struct burst *burst, CUresult result);
void front_gate_forget(CUcontext context);
uint32_t front_gate_waits(void);
void front_gate_waited(uint32_t watched);

/* The share's idea of a card's total memory, where the driver says drivertotal. */
uint64_t front_total(int slot, uint64_t drivertotal);

#pragma GCC visibility pop

#endif
