/* SPDX-License-Identifier: Apache-2.0 */
/* execute.c: what a frame asks for. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "connection.h"
#include "frame.h"

enum { KEPT_BYTES = 1 << 16 };

/* The context whose failure has been told, + 1; until the next reply. */
static uint64_t failed;

static struct divvy_remote_tally here, *tally = &here;

/* Counts where the server looks, if it has given a place. */
void worker_find_tally(void)
{
	int seals = fcntl(DIVVY_REMOTE_TALLY_DESCRIPTOR, F_GET_SEALS);
	struct stat file;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(DIVVY_REMOTE_TALLY_DESCRIPTOR, &file) < 0 || file.st_size < (off_t)sizeof(here))
		return;
	void *page = mmap(NULL, sizeof(here), PROT_READ | PROT_WRITE, MAP_SHARED, DIVVY_REMOTE_TALLY_DESCRIPTOR, 0);

	if (page != MAP_FAILED)
		tally = page;
	close(DIVVY_REMOTE_TALLY_DESCRIPTOR);
}

/* Errors after which a context answers nothing else. */
static bool sticky(uint64_t result)
{
	switch (result) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
		return true;
	default:
		return false;
	}
}

static bool tell_failure(const struct worker_call *call, uint64_t result)
{
	const struct divvy_remote_failure failure = {
		.seq = call->seq,
		.context = call->lane->context,
		.op = DIVVY_REMOTE_FIRST_CALL + call->number,
		.result = (uint32_t)result,
		.sticky = sticky(result),
	};

	if (__atomic_exchange_n(&failed, call->lane->context + 1, __ATOMIC_RELAXED) == call->lane->context + 1)
		return true; /* the first is enough */
	return connection_send(DIVVY_REMOTE_ERROR, call->seq, call->lane->number, &failure, sizeof(failure));
}

static bool set_context(struct worker_lane *lane, const struct frame *frame)
{
	uint64_t context, real;

	if (frame->header.length != sizeof(context))
		return false;
	memcpy(&context, frame->payload, sizeof(context));
	/* of one that is gone the next call tells */
	if (worker_real(KIND_CUcontext, context, &real))
		DRIVER(cuCtxSetCurrent)((CUcontext)(uintptr_t)real);
	else
		DRIVER(cuCtxSetCurrent)(NULL);
	lane->context = context;
	return true;
}

static bool grow_data(struct worker_lane *lane, size_t length)
{
	if (lane->dataroom - lane->datalength >= length)
		return true;
	size_t room = lane->dataroom ? lane->dataroom : 65536;

	while (room - lane->datalength < length)
		room *= 2;
	uint8_t *data = realloc(lane->data, room);

	if (!data)
		return false;
	lane->data = data;
	lane->dataroom = room;
	return true;
}

static bool keep_data(struct worker_lane *lane, const struct frame *frame)
{
	size_t length = frame->header.length;

	if (length > IMAGE_BYTES - lane->datalength || !grow_data(lane, length))
		return false;
	memcpy(lane->data + lane->datalength, frame->payload, length);
	lane->datalength += length;
	return true;
}

bool worker_end_data(struct worker_lane *lane)
{
	if (!grow_data(lane, sizeof(uint64_t)))
		return false;
	memset(lane->data + lane->datalength, 0, sizeof(uint64_t));
	return true;
}

static bool make_call(struct worker_lane *lane, struct frame *frame)
{
	bool oneway = frame->header.flags & DIVVY_REMOTE_ONE_WAY;
	struct worker_call call = {
		.lane = lane,
		.number = frame->header.op - DIVVY_REMOTE_FIRST_CALL,
		.oneway = oneway,
		.twin = frame->header.flags & DIVVY_REMOTE_TWIN,
		.seq = frame->header.seq,
		.payload = frame->payload,
		.length = frame->header.length,
	};
	__atomic_fetch_add(&tally->calls, 1, __ATOMIC_RELAXED);
	uint64_t result = worker_call(&call);

	lane->datalength = 0;
	if (lane->dataroom > KEPT_BYTES) {
		free(lane->data);
		lane->data = NULL;
		lane->dataroom = 0;
	}
	if (oneway)
		return !result || tell_failure(&call, result);
	if (!(frame->header.flags & DIVVY_REMOTE_AHEAD))
		__atomic_fetch_add(&tally->waits, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&failed, 0, __ATOMIC_RELAXED);
	if (!worker_asks(call.number)) /* what only asks has no kernel print anything */
		connection_send_printed();
	return connection_answer(lane, frame->header.seq);
}

bool worker_execute(struct worker_lane *lane, struct frame *frame)
{
	switch (frame->header.op) {
	case DIVVY_REMOTE_CONTEXT:
		return set_context(lane, frame);
	case DIVVY_REMOTE_DATA:
		return keep_data(lane, frame);
	case DIVVY_REMOTE_PING:
	case DIVVY_REMOTE_THREAD_ENDED:
		return true;
	default:
		return frame->header.op >= DIVVY_REMOTE_FIRST_CALL && make_call(lane, frame);
	}
}
