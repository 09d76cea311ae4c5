/* SPDX-License-Identifier: Apache-2.0 */
/* call.c: calls that their row in data/remote.tsv describes whole. */
#include "remote.h"

#include <stdlib.h>
#include <string.h>

enum { NOT_INITIALIZED = 3, NVML_UNINITIALIZED = 1 };

static uint64_t no_session(unsigned int number)
{
	return call_is_nvml(number) ? NVML_UNINITIALIZED : NOT_INITIALIZED;
}

static uint64_t no_memory(unsigned int number)
{
	return call_is_nvml(number) ? NVML_ERROR_MEMORY : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Words, then what is sent. False: no memory, or more than a frame holds. */
static bool encode(struct remote_lane *lane, const struct call_shape *shape, const uint64_t *values)
{
	uint64_t bytes[CALL_ARGUMENTS] = { 0 };

	for (unsigned int i = 0; i < shape->arguments; i++) {
		const struct call_argument *argument = &shape->argument[i];
		uint64_t word = values[i];

		if (argument->how == HOW_STRING)
			bytes[i] = word ? strlen((const char *)(uintptr_t)word) + 1 : CALL_NULL;
		else if (argument->how >= HOW_IN)
			bytes[i] = word ? call_bytes(shape, i, values) : CALL_NULL;
		if (!remote_put_word(&lane->out, argument->how >= HOW_STRING ? bytes[i] : word))
			return false;
	}
	for (unsigned int i = 0; i < shape->arguments; i++) {
		unsigned int how = shape->argument[i].how;

		if (how < HOW_STRING || how == HOW_OUT || !values[i])
			continue;
		if (bytes[i] > DIVVY_REMOTE_MAX_PAYLOAD || !remote_put(&lane->out, (const void *)(uintptr_t)values[i], bytes[i]))
			return false;
	}
	return lane->out.length - sizeof(struct divvy_remote_frame) <= DIVVY_REMOTE_MAX_PAYLOAD;
}

const void *remote_next(struct remote_lane *lane, size_t *at, size_t *length)
{
	uint64_t bytes;

	if (*at > lane->in.length || lane->in.length - *at < sizeof(bytes))
		return NULL;
	memcpy(&bytes, lane->in.at + *at, sizeof(bytes));
	*at += sizeof(bytes);
	if (bytes > lane->in.length - *at || call_padded(bytes) > lane->in.length - *at)
		return NULL;
	const void *start = lane->in.at + *at;

	*at += call_padded(bytes);
	*length = bytes;
	return start;
}

/* Copies what the call wrote to where the caller wants it; the rooms are the caller's,
 * so nothing of the reply is believed about them. */
static void decode(struct remote_lane *lane, const struct call_shape *shape, const uint64_t *values,
		   const uint64_t *rooms, uint64_t result)
{
	size_t at = sizeof(uint64_t);

	for (unsigned int i = 0; i < shape->arguments; i++) {
		unsigned int how = shape->argument[i].how;
		size_t length;

		if ((how != HOW_OUT && how != HOW_BOTH) || !values[i] || (result && how == HOW_OUT))
			continue;
		const void *bytes = remote_next(lane, &at, &length);

		if (!bytes)
			return;
		memcpy((void *)(uintptr_t)values[i], bytes, length < rooms[i] ? length : rooms[i]);
	}
}

bool remote_strict(void)
{
	static int known; /* 1: no, 2: yes */
	int now = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (!now) {
		const char *value = getenv("DIVVY_REMOTE_STRICT");

		now = value && *value && strcmp(value, "0") != 0 ? 2 : 1;
		__atomic_store_n(&known, now, __ATOMIC_RELAXED);
	}
	return now == 2;
}

void remote_before(struct remote_lane *lane, unsigned int number)
{
	switch (number) {
	case CALL_cuIpcGetEventHandle:
	case CALL_cuIpcOpenEventHandle:
	case CALL_cuIpcGetMemHandle:
	case CALL_cuIpcOpenMemHandle_v2:
	case CALL_cuMemExportToShareableHandle:
	case CALL_cuMemImportFromShareableHandle:
	case CALL_cuMemPoolExportToShareableHandle:
	case CALL_cuMemPoolImportFromShareableHandle:
		remote_read_apart();
		break;
	case CALL_cuStreamBeginCapture:
	case CALL_cuStreamBeginCapture_v2:
	case CALL_cuStreamBeginCaptureToGraph:
		remote_captures(1);
		break;
	case CALL_cuStreamEndCapture:
		remote_captures(-1);
	}
	remote_drop_reads(lane);
	remote_drop_textures(lane, number);
}

uint64_t remote_finish_one_way(struct remote_lane *lane, unsigned int number)
{
	if (remote_strict())
		return remote_finish(lane, number);
	remote_before(lane, number);
	uint64_t before = remote_failure(lane);

	if (before)
		return before;
	return remote_send_one_way(lane, number) < 0 ? remote_lost(number) : 0;
}

uint64_t remote_answer(struct remote_lane *lane, unsigned int number)
{
	uint64_t result;

	if (!remote_await(lane, number))
		return remote_lost(number);
	memcpy(&result, lane->in.at, sizeof(result));
	uint64_t before = call_is_nvml(number) ? 0 : remote_failure(lane);

	return result ? result : before;
}

uint64_t remote_finish(struct remote_lane *lane, unsigned int number)
{
	remote_before(lane, number);
	return remote_ask(lane, number) ? remote_answer(lane, number) : remote_lost(number);
}

/* Nobody waits for a one-way call: a handle that cannot be one is told at once. */
static uint64_t check_handles(const struct call_shape *shape, const uint64_t *values)
{
	for (unsigned int i = 0; i < shape->arguments; i++) {
		const struct call_argument *argument = &shape->argument[i];

		if (argument->how == HOW_HANDLE && values[i] && !(argument->kind == KIND_CUstream && values[i] <= 2) &&
		    call_kind(values[i]) != argument->kind)
			return call_wrong_handle(argument->kind);
	}
	return 0;
}

static uint64_t call(unsigned int number, unsigned int twin, const uint64_t *values, bool oneway)
{
	const struct call_shape *shape = call_shape(number);
	struct remote_lane *lane = call_is_nvml(number) ? remote_management_lane() : remote_lane();
	uint64_t rooms[CALL_ARGUMENTS], result, own = 1;

	if (!lane)
		return no_session(number);
	if (!remote_begin(lane) || !encode(lane, shape, values))
		return no_memory(number);
	lane->twin = twin;
	if (oneway) {
		result = check_handles(shape, values);
		if (!result)
			result = remote_finish_one_way(lane, number);
		lane->twin = 0;
		return result;
	}
	for (unsigned int i = 0; i < shape->arguments; i++)
		rooms[i] = shape->argument[i].how >= HOW_IN && values[i] ? call_bytes(shape, i, values) : 0;
	lane->in.length = 0;
	result = remote_finish(lane, number);
	lane->twin = 0;
	if (lane->in.length >= sizeof(own)) {
		memcpy(&own, lane->in.at, sizeof(own));
		decode(lane, shape, values, rooms, own);
	}
	return result;
}

uint64_t remote_call(unsigned int number, unsigned int twin, const uint64_t *values)
{
	return call(number, twin, values, call_shape(number)->oneway);
}

uint64_t remote_call_one_way(unsigned int number, const uint64_t *values)
{
	return call(number, 0, values, true);
}
