/* SPDX-License-Identifier: Apache-2.0 */
#include "roundcard.h"

#include <stdlib.h>

#include "fakeclock.h"
#include "gate.h"

#define EVENTS 1024u
#define STREAMS 16u

/* What calls take their threads. */
#define LAUNCH_NS 2000u
#define CREATE_NS 1000u
#define RECORD_NS 700u
#define ASK_NS 300u

struct roundcard roundcard;

struct kernel {
	uint64_t launched;
	uint64_t left; /* ns that have not run */
	uint64_t end;  /* once it has ended */
};

struct process {
	struct kernel *kernel;
	size_t launched; /* kernels */
	size_t ended;
	size_t room;
	size_t last[STREAMS]; /* number of its last kernel, from 1; 0: none */
	uint64_t busy;
	struct {
		bool live;
		size_t after;  /* number of a kernel */
		uint64_t from; /* recorded */
	} event[EVENTS];
};

static struct process processes[ROUNDCARD_PROCESSES];
static uint64_t at, sliceend, used;
static unsigned owner;

static bool wants(const struct process *process)
{
	return process->ended < process->launched && process->kernel[process->ended].launched <= at;
}

/* The next in turn after the owner, itself last; false when none wants the card at that instant. */
static bool next_owner(void)
{
	for (unsigned i = 1; i <= ROUNDCARD_PROCESSES; i++) {
		unsigned next = (owner + i) % ROUNDCARD_PROCESSES;

		if (wants(&processes[next])) {
			owner = next;
			sliceend = at + roundcard.slice;
			return true;
		}
	}
	return false;
}

static uint64_t first_launch(uint64_t now)
{
	uint64_t first = now;

	for (unsigned i = 0; i < ROUNDCARD_PROCESSES; i++) {
		const struct process *one = &processes[i];

		if (one->ended < one->launched && one->kernel[one->ended].launched < first)
			first = one->kernel[one->ended].launched;
	}
	return first;
}

static void advance(uint64_t now)
{
	while (at < now) {
		struct process *one = &processes[owner];
		struct kernel *kernel;
		uint64_t ran;

		if (at >= sliceend || !wants(one)) {
			if (!next_owner()) {
				at = first_launch(now);
				continue;
			}
			one = &processes[owner];
		}
		kernel = &one->kernel[one->ended];
		ran = kernel->left;
		if (ran > sliceend - at)
			ran = sliceend - at;
		if (ran > now - at)
			ran = now - at;
		at += ran;
		kernel->left -= ran;
		one->busy += ran;
		used += ran;
		if (kernel->left == 0) {
			kernel->end = at;
			one->ended++;
		}
	}
}

static struct process *worked(uint64_t ns, uint64_t *now)
{
	struct process *mine = &processes[roundcard.process];

	fakeclock_work(ns);
	*now = clock_now();
	advance(*now);
	return mine;
}

uint64_t roundcard_busy(unsigned process)
{
	return processes[process].busy;
}

uint64_t roundcard_used(void)
{
	advance(clock_now());
	return used;
}

uint64_t roundcard_end(unsigned process)
{
	const struct process *one = &processes[process];
	uint64_t now = clock_now();

	advance(now);
	for (size_t i = one->ended; i < one->launched; i++)
		now += one->kernel[i].left;
	return now;
}

static unsigned index_of(CUstream stream)
{
	CHECK((uintptr_t)stream < STREAMS);
	return (unsigned)(uintptr_t)stream;
}

static CUresult card_launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			    unsigned shared, CUstream stream, void **parameters, void **extra)
{
	uint64_t now;
	struct process *mine = worked(LAUNCH_NS + fakeclock_launch(), &now);

	(void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)parameters, (void)extra;
	if (mine->launched == mine->room) {
		mine->room = mine->room == 0 ? 1024 : 2 * mine->room;
		mine->kernel = realloc(mine->kernel, mine->room * sizeof(*mine->kernel));
		CHECK(mine->kernel != NULL);
	}
	mine->kernel[mine->launched++] = (struct kernel){.launched = now, .left = (uintptr_t)function};
	mine->last[index_of(stream)] = mine->launched;
	return CUDA_SUCCESS;
}

static CUresult card_create(CUevent *made, unsigned flags)
{
	uint64_t now;
	struct process *mine = worked(CREATE_NS, &now);

	(void)flags;
	for (uintptr_t i = 1; i < EVENTS; i++) {
		if (!mine->event[i].live) {
			mine->event[i].live = true;
			*made = (CUevent)i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult card_destroy(CUevent gone)
{
	processes[roundcard.process].event[(uintptr_t)gone].live = false;
	return CUDA_SUCCESS;
}

static CUresult card_record(CUevent event, CUstream stream)
{
	uint64_t now;
	struct process *mine = worked(RECORD_NS, &now);

	mine->event[(uintptr_t)event].after = mine->last[index_of(stream)];
	mine->event[(uintptr_t)event].from = now;
	return CUDA_SUCCESS;
}

/* When it was reached; 0: not yet. */
static uint64_t reached(const struct process *mine, CUevent event)
{
	size_t after = mine->event[(uintptr_t)event].after;
	uint64_t from = mine->event[(uintptr_t)event].from, end;

	if (after > mine->ended)
		return 0;
	end = after == 0 ? 0 : mine->kernel[after - 1].end;
	return end > from ? end : from;
}

static CUresult card_query(CUevent event)
{
	uint64_t now;
	struct process *mine = worked(ASK_NS, &now);

	return reached(mine, event) != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult card_elapsed(float *ms, CUevent from, CUevent to)
{
	uint64_t now;
	struct process *mine = worked(ASK_NS, &now);
	uint64_t begin = reached(mine, from), end = reached(mine, to);

	if (begin == 0 || end == 0)
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(int64_t)(end - begin) / 1e6);
	return CUDA_SUCCESS;
}

static CUresult card_current(CUcontext *context)
{
	*context = (CUcontext)0x1000;
	return CUDA_SUCCESS;
}

void *front_real[DIVVY_SYMBOLS + DIVVY_SPARES] = {
	[SYM_cuLaunchKernel] = card_launch,
	[SYM_cuEventCreate] = card_create,
	[SYM_cuEventDestroy_v2] = card_destroy,
	[SYM_cuEventRecord] = card_record,
	[SYM_cuEventQuery] = card_query,
	[SYM_cuEventElapsedTime] = card_elapsed,
	[SYM_cuCtxGetCurrent] = card_current,
};
