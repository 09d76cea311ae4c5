/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handles.c: one table for all kinds. A number says its kind, the turn of its place and
 * the place, so that one of something gone is known as such.
 */
#include "worker.h"

#include <pthread.h>
#include <stdlib.h>

enum { PART = 4096, PARTS = CALL_HANDLES / PART, FIRST_CHAINS = 1024 };

struct handle {
	uint64_t real;
	uint64_t number; /* 0: free; whoever looks without the lock reads it before and after real */
	uint32_t next;   /* in the chain of its hash, or of what is free; place + 1 */
	uint32_t turn;
};

/* Parts stay where they are, so that they are read without the lock. */
static struct {
	pthread_mutex_t lock; /* of who changes something */
	struct handle *parts[PARTS];
	uint32_t count, free;
	uint32_t *chains;
	uint32_t chaincount;
} handles = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct handle *at(uint32_t place)
{
	struct handle *part = place < CALL_HANDLES ? __atomic_load_n(&handles.parts[place / PART], __ATOMIC_ACQUIRE) : NULL;

	return part ? &part[place % PART] : NULL;
}

static uint64_t number_of(unsigned int kind, uint32_t turn, uint32_t place)
{
	return (uint64_t)kind << 56 | (uint64_t)(turn & 0xffff) << 32 | (place + CALL_FIRST_PLACE);
}

static uint32_t chain_of(unsigned int kind, uint64_t real)
{
	uint64_t hash = (real ^ (uint64_t)kind << 59) * 0x9e3779b97f4a7c15ull;

	return (uint32_t)(hash >> 32) & (handles.chaincount - 1);
}

/* As many chains as there are handles, or so; the lock is held. */
static bool lengthen(void)
{
	uint32_t count = handles.chaincount ? 2 * handles.chaincount : FIRST_CHAINS;
	uint32_t *chains;

	if (handles.count < handles.chaincount)
		return true;
	chains = calloc(count, sizeof(*chains));
	if (!chains)
		return handles.chaincount != 0; /* longer chains, then */
	free(handles.chains);
	handles.chains = chains;
	handles.chaincount = count;
	for (uint32_t i = 0; i < handles.count; i++) {
		struct handle *handle = at(i);

		if (!handle->number)
			continue;
		uint32_t *chain = &chains[chain_of(call_kind(handle->number), handle->real)];

		handle->next = *chain;
		*chain = i + 1;
	}
	return true;
}

/* A place that is free, or all ones; the lock is held. */
static uint32_t take_place(void)
{
	uint32_t place = handles.free;

	if (place) {
		handles.free = at(place - 1)->next;
		return place - 1;
	}
	place = handles.count;
	if (place == CALL_HANDLES)
		return UINT32_MAX;
	if (!at(place)) {
		struct handle *part = calloc(PART, sizeof(*part));

		if (!part)
			return UINT32_MAX;
		__atomic_store_n(&handles.parts[place / PART], part, __ATOMIC_RELEASE);
	}
	handles.count++;
	return place;
}

/* Kernels and functions stand for each other: a driver takes either. */
static bool alike(unsigned int wanted, unsigned int kind)
{
	return wanted == kind || (wanted == KIND_CUfunction && kind == KIND_CUkernel) || (wanted == KIND_CUkernel && kind == KIND_CUfunction);
}

bool worker_real(unsigned int kind, uint64_t handle, uint64_t *real)
{
	uint32_t place = (uint32_t)handle - CALL_FIRST_PLACE;

	if (handle == 0 || (kind == KIND_CUstream && handle <= 2)) {
		*real = handle;
		return true;
	}
	const struct handle *found = (uint32_t)handle >= CALL_FIRST_PLACE && alike(kind, call_kind(handle)) ? at(place) : NULL;

	if (!found || __atomic_load_n(&found->number, __ATOMIC_ACQUIRE) != handle)
		return false;
	uint64_t what = __atomic_load_n(&found->real, __ATOMIC_ACQUIRE);

	if (__atomic_load_n(&found->number, __ATOMIC_ACQUIRE) != handle)
		return false; /* it has gone meanwhile */
	*real = what;
	return true;
}

uint64_t worker_handle(unsigned int kind, uint64_t real)
{
	uint64_t number = 0;

	if (real == 0 || (kind == KIND_CUstream && real <= 2))
		return real;
	pthread_mutex_lock(&handles.lock);
	for (uint32_t i = handles.chaincount ? handles.chains[chain_of(kind, real)] : 0; i && !number; i = at(i - 1)->next) {
		const struct handle *one = at(i - 1);

		if (one->real == real && call_kind(one->number) == kind)
			number = one->number;
	}
	uint32_t place = number || !lengthen() ? UINT32_MAX : take_place();

	if (place != UINT32_MAX) {
		struct handle *handle = at(place);
		uint32_t *chain = &handles.chains[chain_of(kind, real)];

		number = number_of(kind, handle->turn, place);
		__atomic_store_n(&handle->real, real, __ATOMIC_RELEASE);
		__atomic_store_n(&handle->number, number, __ATOMIC_RELEASE);
		handle->next = *chain;
		*chain = place + 1;
	}
	pthread_mutex_unlock(&handles.lock);
	return number;
}

void worker_forget(uint64_t number)
{
	uint32_t place = (uint32_t)number - CALL_FIRST_PLACE;

	pthread_mutex_lock(&handles.lock);
	struct handle *gone = number && (uint32_t)number >= CALL_FIRST_PLACE ? at(place) : NULL;

	if (gone && gone->number == number) {
		uint32_t *link = &handles.chains[chain_of(call_kind(number), gone->real)];

		while (*link && *link != place + 1)
			link = &at(*link - 1)->next;
		if (*link)
			*link = gone->next;
		__atomic_store_n(&gone->number, 0, __ATOMIC_RELEASE);
		gone->turn++;
		gone->next = handles.free;
		handles.free = place + 1;
	}
	pthread_mutex_unlock(&handles.lock);
}
