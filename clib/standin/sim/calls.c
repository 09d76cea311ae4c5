/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.c: one function per request to the simulator.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

#define TOUCH_STEP (4ull << 20)

int sim_card(uint32_t card, struct divvy_sim_card *out)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_CARD, .card = card};
	struct divvy_sim_card answer;
	int result = sim_request(&header, &answer, sizeof(answer), -1, NULL);

	if (result == 0 && header.payloadbytes != sizeof(answer))
		result = -EIO;
	if (result == 0) {
		answer.name[sizeof(answer.name) - 1] = 0;
		answer.serial[sizeof(answer.serial) - 1] = 0;
		*out = answer;
	}
	return result;
}

int sim_memory(uint32_t card, uint64_t *freebytes, uint64_t *totalbytes)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_MEMORY, .card = card};
	int result = sim_request(&header, NULL, 0, -1, NULL);

	if (result == 0) {
		*freebytes = header.bytes;
		*totalbytes = header.offset;
	}
	return result;
}

static int amount(uint16_t type, uint32_t card, uint32_t kind, uint64_t bytes)
{
	struct divvy_sim_header header = {.type = type, .card = card, .kind = kind, .bytes = bytes};

	return sim_request(&header, NULL, 0, -1, NULL);
}

int sim_charge(uint32_t card, uint32_t kind, uint64_t bytes)
{
	return amount(DIVVY_SIM_CHARGE, card, kind, bytes);
}

int sim_release(uint32_t card, uint32_t kind, uint64_t bytes)
{
	return amount(DIVVY_SIM_RELEASE, card, kind, bytes);
}

int sim_adjust(uint32_t card, uint32_t kind, int64_t bytes)
{
	return amount(DIVVY_SIM_ADJUST, card, kind, (uint64_t)bytes);
}

int sim_touch(uint64_t bytes)
{
	static _Atomic uint64_t pending;
	uint64_t before = atomic_fetch_add_explicit(&pending, bytes, memory_order_relaxed);

	if (before + bytes < TOUCH_STEP)
		return 0;
	bytes = atomic_exchange_explicit(&pending, 0, memory_order_relaxed);
	if (bytes == 0)
		return 0; /* another thread asks for all of it */
	return amount(DIVVY_SIM_PRESSURE, 0, 0, bytes);
}

int sim_arena(uint32_t card, uint64_t bytes, int *fd, uint64_t *sizebytes)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_ARENA, .card = card, .bytes = bytes};
	int result = sim_request(&header, NULL, 0, -1, fd);

	if (result == 0 && *fd < 0)
		result = -EIO;
	if (result == 0)
		*sizebytes = header.bytes;
	return result;
}

/* Fills out from an answer; a descriptor that should be there and is not is
 * nonsense. */
static int take_object(const struct divvy_sim_header *header, int fd, struct sim_object *out)
{
	if (header->bytes != 0 && fd < 0)
		return -EIO;
	out->object = header->object;
	out->bytes = header->bytes;
	out->token = header->token;
	out->card = header->card;
	out->kind = header->kind;
	out->fd = fd;
	return 0;
}

int sim_object_create(uint32_t card, uint32_t kind, uint64_t bytes, uint64_t token, struct sim_object *out)
{
	struct divvy_sim_header header = {
		.type = DIVVY_SIM_OBJECT_CREATE, .card = card, .kind = kind, .bytes = bytes, .token = token,
	};
	int fd = -1;
	int result = sim_request(&header, NULL, 0, -1, &fd);

	return result != 0 ? result : take_object(&header, fd, out);
}

int sim_object_export(uint64_t object, int *fd)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_OBJECT_EXPORT, .object = object};
	int result = sim_request(&header, NULL, 0, -1, fd);

	return result == 0 && *fd < 0 ? -EIO : result;
}

int sim_object_import(int fdin, struct sim_object *out)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_OBJECT_IMPORT};
	int fd = -1;
	int result;

	if (fdin < 0)
		return -EINVAL;
	result = sim_request(&header, NULL, 0, fdin, &fd);
	return result != 0 ? result : take_object(&header, fd, out);
}

int sim_object_drop(uint64_t object)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_OBJECT_DROP, .object = object};

	return sim_request(&header, NULL, 0, -1, NULL);
}

int sim_ipc_export(uint32_t card, uint32_t kind, uint64_t offset, uint64_t bytes, uint64_t token,
		   unsigned char handle[DIVVY_SIM_HANDLE_BYTES])
{
	struct divvy_sim_header header = {
		.type = DIVVY_SIM_IPC_EXPORT, .card = card, .kind = kind, .offset = offset, .bytes = bytes, .token = token,
	};
	unsigned char answer[DIVVY_SIM_HANDLE_BYTES];
	int result = sim_request(&header, answer, sizeof(answer), -1, NULL);

	if (result == 0 && header.payloadbytes != sizeof(answer))
		result = -EIO;
	if (result == 0)
		memcpy(handle, answer, sizeof(answer));
	return result;
}

int sim_ipc_open(const unsigned char handle[DIVVY_SIM_HANDLE_BYTES], struct sim_ipc *out)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_IPC_OPEN, .payloadbytes = DIVVY_SIM_HANDLE_BYTES};
	unsigned char copy[DIVVY_SIM_HANDLE_BYTES];
	int fd = -1;
	int result;

	memcpy(copy, handle, sizeof(copy));
	result = sim_request(&header, copy, sizeof(copy), -1, &fd);
	if (result != 0)
		return result;
	if (fd < 0 && header.kind != DIVVY_SIM_IPC_EVENT)
		return -EIO;
	out->offset = header.offset;
	out->bytes = header.bytes;
	out->token = header.token;
	out->process = header.process;
	out->card = header.card;
	out->kind = header.kind;
	out->fd = fd;
	return 0;
}

int sim_ipc_revoke(uint32_t card, uint32_t kind, uint64_t offset)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_IPC_REVOKE, .card = card, .kind = kind, .offset = offset};

	return sim_request(&header, NULL, 0, -1, NULL);
}

static int about_event(uint16_t type, const unsigned char handle[DIVVY_SIM_HANDLE_BYTES], uint64_t object,
		       struct divvy_sim_header *header)
{
	unsigned char copy[DIVVY_SIM_HANDLE_BYTES];

	*header = (struct divvy_sim_header){.type = type, .object = object, .payloadbytes = DIVVY_SIM_HANDLE_BYTES};
	memcpy(copy, handle, sizeof(copy));
	return sim_request(header, copy, sizeof(copy), -1, NULL);
}

int sim_event_record(const unsigned char handle[DIVVY_SIM_HANDLE_BYTES], uint64_t item)
{
	struct divvy_sim_header header;

	return about_event(DIVVY_SIM_EVENT_RECORD, handle, item, &header);
}

int sim_event_look(const unsigned char handle[DIVVY_SIM_HANDLE_BYTES], bool *ends, uint64_t *atns)
{
	struct divvy_sim_header header;
	int result = about_event(DIVVY_SIM_EVENT_LOOK, handle, 0, &header);

	*ends = header.kind == DIVVY_SIM_ENDS;
	*atns = header.offset;
	return result;
}

int sim_event_gate(const unsigned char handle[DIVVY_SIM_HANDLE_BYTES], uint64_t gate)
{
	struct divvy_sim_header header;

	return about_event(DIVVY_SIM_EVENT_GATE, handle, gate, &header);
}

int sim_ring(int *fd)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_RING};
	int result = sim_request(&header, NULL, 0, -1, fd);

	if (result != 0)
		return result;
	if (*fd >= 0 && header.count == DIVVY_SIM_RING_ENTRIES)
		return 0;
	if (*fd >= 0)
		close(*fd);
	return -EIO;
}

int sim_wait(uint64_t item, bool all, bool *ends, uint64_t *atns)
{
	struct divvy_sim_header header = {
		.type = DIVVY_SIM_WAIT, .object = item, .kind = all ? DIVVY_SIM_WAIT_ALL : DIVVY_SIM_WAIT_ONE,
	};
	int result = sim_request(&header, NULL, 0, -1, NULL);

	*ends = header.kind == DIVVY_SIM_ENDS;
	*atns = header.offset;
	return result;
}

int sim_gate_done(uint64_t item, uint64_t atns)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_GATE_DONE, .object = item, .offset = atns};

	return sim_request(&header, NULL, 0, -1, NULL);
}

long sim_times(uint32_t card, struct divvy_sim_time *out, size_t room)
{
	struct divvy_sim_time page[(DIVVY_SIM_PACKET_BYTES - sizeof(struct divvy_sim_header)) /
				   sizeof(struct divvy_sim_time)];
	uint64_t cursor = 0;
	long total = 0;

	do {
		struct divvy_sim_header header = {.type = DIVVY_SIM_TIMES, .card = card, .cursor = cursor};
		int result = sim_request(&header, page, sizeof(page), -1, NULL);

		if (result != 0)
			return result;
		if (header.payloadbytes != header.count * sizeof(page[0]) || header.payloadbytes > sizeof(page) ||
		    (header.cursor != 0 && header.cursor <= cursor))
			return -EIO;
		for (uint32_t i = 0; i < header.count; i++, total++)
			if ((size_t)total < room)
				out[total] = page[i];
		cursor = header.cursor;
	} while (cursor != 0);
	return total;
}

long sim_holders(uint32_t card, struct divvy_sim_holder *out, size_t room, uint32_t *instances)
{
	struct divvy_sim_holder page[(DIVVY_SIM_PACKET_BYTES - sizeof(struct divvy_sim_header)) /
				     sizeof(struct divvy_sim_holder)];
	uint64_t cursor = 0;
	long total = 0;

	do {
		struct divvy_sim_header header = {.type = DIVVY_SIM_HOLDERS, .card = card, .cursor = cursor};
		int result = sim_request(&header, page, sizeof(page), -1, NULL);

		if (result != 0)
			return result;
		if (header.payloadbytes != header.count * sizeof(page[0]) || header.payloadbytes > sizeof(page) ||
		    (header.cursor != 0 && header.cursor <= cursor))
			return -EIO;
		for (uint32_t i = 0; i < header.count; i++, total++)
			if ((size_t)total < room)
				out[total] = page[i];
		if (instances)
			*instances = header.kind;
		cursor = header.cursor;
	} while (cursor != 0);
	return total;
}
