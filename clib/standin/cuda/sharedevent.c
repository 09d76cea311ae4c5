/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharedevent.c: events that several processes hold (cuIpcGetEventHandle). Where
 * such an event stands is known to the simulator alone: whoever records it tells
 * which of its items it stands for, and who waits for it lets a gate in its own
 * stream end with that item.
 */
#include "sharedevent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "order.h"
#include "outlook.h"
#include "queue.h"

CUresult sd_shared_make(struct sd_event *event, const unsigned char *handle)
{
	event->handle = malloc(DIVVY_SIM_HANDLE_BYTES);
	if (!event->handle)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(event->handle, handle, DIVVY_SIM_HANDLE_BYTES);
	if (!event->recorded || event->opened)
		return CUDA_SUCCESS;
	/* what it stands for already is news to the others */
	uint64_t id = event->object.id;

	sd_step_wait(event->step);
	return sd_object_get(event, SD_EVENT) == event && event->object.id == id ? sd_shared_publish(event) : CUDA_SUCCESS;
}

void sd_shared_end(struct sd_event *event)
{
	if (event->handle && !event->opened)
		(void)sim_ipc_revoke(event->context->card->index, DIVVY_SIM_IPC_EVENT, event->object.id);
	free(event->handle);
	event->handle = NULL;
}

CUresult sd_shared_publish(const struct sd_event *event)
{
	unsigned char handle[DIVVY_SIM_HANDLE_BYTES];
	uint64_t item = event->item;

	memcpy(handle, event->handle, sizeof(handle));
	int result = sim_event_record(handle, item);

	return result == -ENOENT ? CUDA_SUCCESS : sd_error(result); /* its exporter has ended it */
}

/* Where it stands. An event whose exporter is gone has ended. */
static int look(const unsigned char *handle, bool *ends, uint64_t *at)
{
	int result = sim_event_look(handle, ends, at);

	if (result != -ENOENT)
		return result;
	*ends = true;
	*at = 0;
	return 0;
}

bool sd_shared_done(const struct sd_event *event)
{
	uint64_t at = 0;
	bool ends = false;

	return look(event->handle, &ends, &at) < 0 || (ends && at <= sd_now());
}

CUresult sd_shared_wait(const struct sd_event *event, struct sd_stream *stream)
{
	unsigned char handle[DIVVY_SIM_HANDLE_BYTES];
	uint64_t ready = 0;
	uint64_t gate = 0;

	if (sd_shared_done(event))
		return CUDA_SUCCESS;
	memcpy(handle, event->handle, sizeof(handle));
	CUresult result = sd_order_start();

	if (result == CUDA_SUCCESS)
		result = sd_order_gate(stream, &ready, &gate);
	if (result != CUDA_SUCCESS || !gate)
		return result;
	/* never a gate that nobody opens */
	if (sim_event_gate(handle, gate) < 0)
		sd_order_open(gate);
	return CUDA_SUCCESS;
}

CUresult sd_shared_await(const struct sd_event *event)
{
	const struct divvy_sim_notice *notice = sim_notice();
	const uint32_t *word = notice ? &notice->sequence : NULL;
	unsigned char handle[DIVVY_SIM_HANDLE_BYTES];
	bool ends = false;
	uint64_t at = 0;
	int result;

	memcpy(handle, event->handle, sizeof(handle));
	sd_step_wait(event->step);
	sd_unlock();
	do {
		uint32_t seen = sim_word(word);

		result = look(handle, &ends, &at);
		if (result == 0 && at > sd_now())
			sim_sleep(word, seen, at);
	} while (result == 0 && !(ends && at <= sd_now()));
	sd_lock();
	return sd_error(result);
}
