/* SPDX-License-Identifier: Apache-2.0 */
/* call.c: calls that their row in data/remote.tsv describes whole. */
#include "worker.h"

#include <stdlib.h>
#include <unistd.h>

enum { REPLY_BYTES = DIVVY_REMOTE_MAX_PAYLOAD };

/* Every parameter is one word of the calling convention, and more than a function takes
 * do no harm: those that come in registers it does not look at, and the caller takes the
 * others from the stack again (System V ABI, x86-64, 3.2.3). */
typedef unsigned int any_function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
				  uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static bool make_room(struct worker_lane *lane, size_t more)
{
	if (lane->reply.room - lane->reply.length >= more)
		return true;
	size_t room = lane->reply.room ? lane->reply.room : 4096;

	while (room - lane->reply.length < more)
		room *= 2;
	uint8_t *at = realloc(lane->reply.at, room);

	if (!at)
		return false;
	lane->reply.at = at;
	lane->reply.room = room;
	return true;
}

void worker_begin(struct worker_lane *lane, uint64_t result)
{
	lane->reply.length = 0;
	if (!make_room(lane, sizeof(struct divvy_remote_frame) + sizeof(result)))
		abort(); /* nothing can be answered any more */
	lane->reply.length = sizeof(struct divvy_remote_frame) + sizeof(result);
	worker_set_result(lane, result);
}

void worker_set_result(struct worker_lane *lane, uint64_t result)
{
	memcpy(lane->reply.at + sizeof(struct divvy_remote_frame), &result, sizeof(result));
}

uint8_t *worker_add_room(struct worker_lane *lane, size_t length)
{
	uint64_t told = length;
	size_t padded = call_padded(length);

	if (padded > REPLY_BYTES || lane->reply.length > REPLY_BYTES - padded || !make_room(lane, sizeof(told) + padded))
		return NULL;
	memcpy(lane->reply.at + lane->reply.length, &told, sizeof(told));
	uint8_t *at = lane->reply.at + lane->reply.length + sizeof(told);

	memset(at, 0, padded);
	lane->reply.length += sizeof(told) + padded;
	return at;
}

void worker_add(struct worker_lane *lane, const void *bytes, size_t length)
{
	uint8_t *at = worker_add_room(lane, length);

	if (at && length)
		memcpy(at, bytes, length);
}

/* A library's wrong use of the protocol is a wrong argument of its program. */
static uint64_t wrong_argument(unsigned int number)
{
	return call_is_nvml(number) ? NVML_ERROR_INVALID_ARGUMENT : CUDA_ERROR_INVALID_VALUE;
}

static uint64_t not_there(unsigned int number)
{
	return call_is_nvml(number) ? NVML_ERROR_FUNCTION_NOT_FOUND : CUDA_ERROR_NOT_SUPPORTED;
}

struct decoded {
	uint64_t values[CALL_ARGUMENTS];
	uint64_t bytes[CALL_ARGUMENTS]; /* that a pointer shows */
	uint64_t handle[CALL_ARGUMENTS]; /* the number that came */
	void *scratch;
};

static int to_real(void *context, unsigned int kind, uint64_t *handle)
{
	(void)context;
	return worker_real(kind, *handle, handle) ? 0 : (int)call_wrong_handle(kind);
}

/* What comes back, too, may hold anything before the call. */
static int to_real_or_none(void *context, unsigned int kind, uint64_t *handle)
{
	(void)context;
	if (!worker_real(kind, *handle, handle))
		*handle = 0;
	return 0;
}

static int to_handle(void *context, unsigned int kind, uint64_t *handle)
{
	(void)context;
	*handle = worker_handle(kind, *handle);
	return 0;
}

static size_t elements(const struct call_argument *argument, size_t bytes)
{
	return argument->count == COUNT_BYTES ? 0 : bytes / call_type_bytes(argument->type);
}

/* Do all pointers show as much as the call's shape says, those that are counted by what
 * another points to, or the others? */
static bool right_sizes(const struct call_shape *shape, const struct decoded *call, bool pointed)
{
	for (unsigned int i = 0; i < shape->arguments; i++) {
		const struct call_argument *argument = &shape->argument[i];

		if (argument->how < HOW_IN || call->bytes[i] == CALL_NULL || (argument->count == COUNT_POINTED) != pointed)
			continue;
		/* a structure that says its own size has at least that word */
		if (argument->how == HOW_BOTH && argument->count == COUNT_ONE && call->bytes[i] < sizeof(uint32_t) &&
		    call_type_bytes(argument->type) >= sizeof(uint32_t))
			return false;
		if (call->bytes[i] > REPLY_BYTES || call_bytes(shape, i, call->values) != call->bytes[i])
			return false;
	}
	return true;
}

/* Words and pointers, checked against what the call's shape says. */
static uint64_t decode(const struct worker_call *call, const struct call_shape *shape, struct decoded *out)
{
	size_t at = shape->arguments * sizeof(uint64_t), scratch = 0;

	if (call->length < at)
		return wrong_argument(call->number);
	for (unsigned int i = 0; i < shape->arguments; i++) {
		unsigned int how = shape->argument[i].how;
		uint64_t word;

		memcpy(&word, call->payload + i * sizeof(word), sizeof(word));
		out->values[i] = out->handle[i] = word;
		if (how < HOW_STRING)
			continue;
		out->bytes[i] = word;
		out->values[i] = 0;
		if (word == CALL_NULL || how == HOW_OUT)
			continue;
		if (word > call->length - at || call_padded(word) > call->length - at || (how == HOW_STRING && !word))
			return wrong_argument(call->number);
		out->values[i] = (uint64_t)(uintptr_t)(call->payload + at);
		if (how == HOW_STRING && call->payload[at + word - 1] != '\0')
			return wrong_argument(call->number);
		at += call_padded(word);
	}
	/* what others are counted by comes first */
	if (!right_sizes(shape, out, false) || !right_sizes(shape, out, true))
		return wrong_argument(call->number);
	for (unsigned int i = 0; i < shape->arguments; i++) {
		if (shape->argument[i].how == HOW_OUT && out->bytes[i] != CALL_NULL)
			scratch += call_padded(out->bytes[i]) + sizeof(uint64_t);
	}
	if (scratch > 2 * REPLY_BYTES)
		return wrong_argument(call->number);
	/* words: pointers of all types are aligned */
	uint64_t *room = scratch ? calloc(scratch / sizeof(uint64_t), sizeof(uint64_t)) : NULL;

	out->scratch = room;
	if (scratch && !room)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned int i = 0; i < shape->arguments; i++) {
		if (shape->argument[i].how == HOW_OUT && out->bytes[i] != CALL_NULL) {
			out->values[i] = (uint64_t)(uintptr_t)room;
			room += call_padded(out->bytes[i]) / sizeof(uint64_t) + 1;
		}
	}
	return 0;
}

/* Numbers become what they stand for. */
static uint64_t translate(const struct call_shape *shape, struct decoded *call)
{
	for (unsigned int i = 0; i < shape->arguments; i++) {
		const struct call_argument *argument = &shape->argument[i];
		int result = 0;

		if (argument->how == HOW_HANDLE)
			result = to_real(NULL, argument->kind, &call->values[i]);
		else if ((argument->how == HOW_IN || argument->how == HOW_BOTH) && call->values[i])
			result = call_each_handle(argument->type, (void *)(uintptr_t)call->values[i], elements(argument, call->bytes[i]),
						  argument->how == HOW_IN ? to_real : to_real_or_none, NULL);
		if (result)
			return (uint64_t)result;
	}
	return 0;
}

/* How much of what an argument shows the call has written. */
static size_t written(const struct call_shape *shape, unsigned int i, const struct decoded *call)
{
	const struct call_argument *argument = &shape->argument[i];
	uint64_t now;

	if (argument->count != COUNT_POINTED)
		return call->bytes[i];
	now = call_bytes(shape, i, call->values);
	return now < call->bytes[i] ? now : call->bytes[i];
}

/* This process is the program's: lists of who uses a GPU name the program itself. */
static void own_process(const struct worker_call *call, const struct call_shape *shape, struct decoded *decoded)
{
	switch (call->number) {
	case CALL_nvmlDeviceGetComputeRunningProcesses:
	case CALL_nvmlDeviceGetComputeRunningProcesses_v2:
	case CALL_nvmlDeviceGetComputeRunningProcesses_v3:
	case CALL_nvmlDeviceGetMPSComputeRunningProcesses:
	case CALL_nvmlDeviceGetMPSComputeRunningProcesses_v2:
	case CALL_nvmlDeviceGetMPSComputeRunningProcesses_v3:
		break;
	default:
		return;
	}
	size_t each = call_type_bytes(shape->argument[2].type), bytes = decoded->values[2] ? written(shape, 2, decoded) : 0;
	uint8_t *at = (uint8_t *)(uintptr_t)decoded->values[2];
	unsigned int self = (unsigned int)getpid(), program = worker_program();

	for (size_t i = 0; i < bytes / each; i++) { /* each begins with the process's number */
		if (memcmp(at + i * each, &self, sizeof(self)) == 0)
			memcpy(at + i * each, &program, sizeof(program));
	}
}

static void encode(struct worker_lane *lane, const struct call_shape *shape, const struct decoded *call, uint64_t result)
{
	for (unsigned int i = 0; i < shape->arguments; i++) {
		const struct call_argument *argument = &shape->argument[i];

		if ((argument->how != HOW_OUT && argument->how != HOW_BOTH) || !call->values[i] || (result && argument->how == HOW_OUT))
			continue;
		size_t bytes = written(shape, i, call);

		call_each_handle(argument->type, (void *)(uintptr_t)call->values[i], elements(argument, bytes), to_handle, NULL);
		worker_add(lane, (const void *)(uintptr_t)call->values[i], bytes);
	}
}

/* Contexts: one is current to a lane, and nothing lies under it. */
static void after(struct worker_call *call, const struct call_shape *shape, const struct decoded *decoded)
{
	CUcontext made;

	switch (call->number) {
	case CALL_cuCtxCreate:
	case CALL_cuCtxCreate_v2:
	case CALL_cuCtxCreate_v3:
		DRIVER(cuCtxPopCurrent_v2)(&made);
		DRIVER(cuCtxSetCurrent)(made);
		call->lane->context = worker_handle(KIND_CUcontext, (uint64_t)(uintptr_t)made);
		break;
	case CALL_cuCtxDestroy:
	case CALL_cuCtxDestroy_v2:
		if (call->lane->context == decoded->handle[0])
			call->lane->context = 0;
		break;
	default:
		break;
	}
	for (unsigned int i = 0; i < shape->arguments; i++) {
		if (shape->argument[i].how == HOW_HANDLE && shape->argument[i].by) {
			worker_forget(decoded->handle[i]);
			worker_image_gone(decoded->handle[i]);
			worker_link_gone(decoded->handle[i]);
		}
	}
}

uint64_t worker_call(struct worker_call *call)
{
	const struct call_shape *shape = call_shape(call->number);
	struct decoded decoded = { .scratch = NULL };
	uint64_t result;

	if (worker_special(call, &result))
		return result;
	worker_begin(call->lane, 0);
	any_function *function = shape ? (any_function *)worker_function(call->number, call->twin) : NULL;

	result = !function ? not_there(call->number) : decode(call, shape, &decoded);
	if (!result)
		result = translate(shape, &decoded);
	if (!result) {
		const uint64_t *v = decoded.values;

		result = function(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13], v[14], v[15]);
		own_process(call, shape, &decoded);
		encode(call->lane, shape, &decoded, result);
		if (!result)
			after(call, shape, &decoded);
	}
	free(decoded.scratch);
	worker_set_result(call->lane, result);
	return result;
}
