/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handles.c: one table for all kinds. A number says its kind, the turn of its place and
 * the place, so that one of something gone is known as such.
 */
#include "worker.h"

#include <pthread.h>
#include <stdlib.h>

enum { FIRST_ROOM = 1024 };

struct handle {
	uint64_t real;
	uint32_t next;  /* in the chain of its hash, or of what is free; place + 1 */
	uint16_t turn;
	uint8_t kind;   /* KIND_NONE: free */
};

static struct {
	pthread_mutex_t lock;
	struct handle *at;
	uint32_t count, room, free;
	uint32_t *chains; /* as many as room */
} handles = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint64_t number_of(uint32_t place)
{
	const struct handle *handle = &handles.at[place];

	return (uint64_t)handle->kind << 56 | (uint64_t)handle->turn << 32 | (place + CALL_FIRST_PLACE);
}

static uint32_t chain_of(unsigned int kind, uint64_t real)
{
	uint64_t hash = (real ^ (uint64_t)kind << 59) * 0x9e3779b97f4a7c15ull;

	return (uint32_t)(hash >> 32) & (handles.room - 1);
}

/* Twice the room; the lock is held. */
static bool grow(void)
{
	uint32_t room = handles.room ? 2 * handles.room : FIRST_ROOM;
	struct handle *at = room > CALL_HANDLES ? NULL : realloc(handles.at, room * sizeof(*at));

	if (!at)
		return false;
	handles.at = at;
	uint32_t *chains = calloc(room, sizeof(*chains));

	if (!chains)
		return false;
	free(handles.chains);
	handles.chains = chains;
	handles.room = room;
	for (uint32_t i = 0; i < handles.count; i++) {
		if (at[i].kind == KIND_NONE)
			continue;
		uint32_t *chain = &chains[chain_of(at[i].kind, at[i].real)];

		at[i].next = *chain;
		*chain = i + 1;
	}
	return true;
}

/* Kernels and functions stand for each other: a driver takes either. */
static bool alike(unsigned int wanted, unsigned int kind)
{
	return wanted == kind || (wanted == KIND_CUfunction && kind == KIND_CUkernel) || (wanted == KIND_CUkernel && kind == KIND_CUfunction);
}

bool worker_real(unsigned int kind, uint64_t handle, uint64_t *real)
{
	uint32_t place = (uint32_t)handle - CALL_FIRST_PLACE;
	bool found;

	if (handle == 0 || (kind == KIND_CUstream && handle <= 2)) {
		*real = handle;
		return true;
	}
	pthread_mutex_lock(&handles.lock);
	found = (uint32_t)handle >= CALL_FIRST_PLACE && place < handles.count && handles.at[place].kind != KIND_NONE && number_of(place) == handle &&
		alike(kind, handles.at[place].kind);
	if (found)
		*real = handles.at[place].real;
	pthread_mutex_unlock(&handles.lock);
	return found;
}

uint64_t worker_handle(unsigned int kind, uint64_t real)
{
	uint64_t number = 0;

	if (real == 0 || (kind == KIND_CUstream && real <= 2))
		return real;
	pthread_mutex_lock(&handles.lock);
	for (uint32_t i = handles.room ? handles.chains[chain_of(kind, real)] : 0; i && !number; i = handles.at[i - 1].next) {
		if (handles.at[i - 1].real == real && handles.at[i - 1].kind == kind)
			number = number_of(i - 1);
	}
	if (!number && (handles.free || handles.count < handles.room || grow())) {
		uint32_t place = handles.free ? handles.free - 1 : handles.count++;
		struct handle *handle = &handles.at[place];

		if (handles.free)
			handles.free = handle->next;
		else
			handle->turn = 0;
		uint32_t *chain = &handles.chains[chain_of(kind, real)];

		handle->real = real;
		handle->kind = (uint8_t)kind;
		handle->next = *chain;
		*chain = place + 1;
		number = number_of(place);
	}
	pthread_mutex_unlock(&handles.lock);
	return number;
}

void worker_forget(uint64_t handle)
{
	uint32_t place = (uint32_t)handle - CALL_FIRST_PLACE;

	pthread_mutex_lock(&handles.lock);
	if ((uint32_t)handle >= CALL_FIRST_PLACE && place < handles.count && handles.at[place].kind != KIND_NONE && number_of(place) == handle) {
		struct handle *gone = &handles.at[place];
		uint32_t *at = &handles.chains[chain_of(gone->kind, gone->real)];

		while (*at && *at != place + 1)
			at = &handles.at[*at - 1].next;
		if (*at)
			*at = gone->next;
		gone->kind = KIND_NONE;
		gone->turn++;
		gone->next = handles.free;
		handles.free = place + 1;
	}
	pthread_mutex_unlock(&handles.lock);
}
