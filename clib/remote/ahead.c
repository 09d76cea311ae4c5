/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead.c: copies to the host and waits for events, of which programs make the same few again
 * and again: the planes of each picture, the event of each stream. The first of such a row
 * asks for the others, too, which then are here when the program asks for them. Of an event
 * it is asked whether it is reached: if not, the program's own call waits.
 *
 * What was read ahead is given only if nothing has been sent since by any thread, no host
 * function has run and no other process has a part in the memory: then it is what the
 * call would bring. Else it is thrown away.
 */
#include <stdlib.h>

#include "payload.h"
#include "remote.h"

enum { PAYLOAD_BYTES = sizeof(struct call_box), ROW = REMOTE_AHEAD + 1, MOST_BYTES = 16 << 20 };

struct read {
	unsigned int number, guess; /* its call, and the one that asks ahead for what it would bring */
	uint32_t twin;
	uint64_t context;
	size_t length, place, span, bytes;
	uint8_t payload[PAYLOAD_BYTES]; /* without the address */
	uint64_t address;               /* or the event */
};

struct row {
	unsigned int count; /* of reads, also of those past the end */
	struct read at[ROW];
};

struct remote_reads {
	struct rows {
		struct row now, before;
		bool trusted; /* before was as the one before it */
	} of[2];              /* waits, and copies */
	bool copying;         /* the last was a copy */
	uint64_t sent, heard; /* after the last of now, and what was asked ahead */
	struct read asked[REMOTE_AHEAD]; /* for each place of the lane's ahead */
	unsigned int first, end;         /* of those, that have not been given */
};

/* Both atomic. */
static bool apart;
static int captured;

void remote_read_apart(void)
{
	__atomic_store_n(&apart, true, __ATOMIC_RELAXED);
}

void remote_captures(int more)
{
	__atomic_fetch_add(&captured, more, __ATOMIC_RELAXED);
}

static bool copies(const struct read *read)
{
	return read->guess == read->number;
}

static bool same(const struct read *a, const struct read *b)
{
	return a->number == b->number && a->twin == b->twin && a->context == b->context && a->length == b->length && a->place == b->place &&
	       a->span == b->span && a->bytes == b->bytes && memcmp(a->payload, b->payload, a->length) == 0;
}

static bool same_row(const struct row *a, const struct row *b)
{
	bool is = a->count == b->count && a->count <= ROW;

	for (unsigned int i = 0; i < a->count && is; i++)
		is = same(&a->at[i], &b->at[i]) && a->at[i].address - a->at[0].address == b->at[i].address - b->at[0].address;
	return is;
}

/* The worker may be about to write it, and reads nothing before it has. */
void remote_drop_reads(struct remote_lane *lane)
{
	struct remote_reads *reads = lane->reads;

	if (!reads || reads->first == reads->end)
		return;
	reads->of[copies(&reads->asked[reads->first])].trusted = false;
	for (unsigned int i = reads->first; i < reads->end; i++) {
		struct remote_ahead *ahead = &lane->ahead[i];

		if (!remote_await_ahead(ahead, reads->asked[i].guess))
			return; /* the session is lost */
		remote_end_ahead(ahead);
	}
	reads->first = reads->end = 0;
}

static bool encode(struct remote_lane *lane, const struct read *read)
{
	uint8_t payload[PAYLOAD_BYTES];

	memcpy(payload, read->payload, read->length);
	memcpy(payload + read->place, &read->address, sizeof(read->address));
	return remote_begin(lane) && remote_put(&lane->out, payload, read->length);
}

/* Asks for the rest of a row that begins as the one before did. */
static void ask_ahead(struct remote_lane *lane, const struct read *read)
{
	struct remote_reads *reads = lane->reads;
	const struct rows *rows = &reads->of[copies(read)];
	const struct row *row = &rows->before;
	size_t bytes = 0;

	if (!rows->trusted || !same(read, &row->at[0]) || __atomic_load_n(&apart, __ATOMIC_RELAXED) || remote_strict())
		return;
	if (!copies(read) && __atomic_load_n(&captured, __ATOMIC_RELAXED) != 0)
		return; /* who asks for an event of a capture ends that, says CUDA's programming guide */
	reads->heard = remote_heard();
	for (unsigned int i = 1; i < row->count; i++) {
		struct remote_ahead *ahead = &lane->ahead[reads->end];
		struct read *next = &reads->asked[reads->end];

		*next = row->at[i];
		next->address = read->address + (row->at[i].address - row->at[0].address);
		bytes += next->bytes;
		/* a guess must not touch what is not there: nobody knows of every driver that this ends no context */
		if (bytes > MOST_BYTES || (copies(next) && (!next->span || !remote_holds(next->address, next->span))))
			return;
		uint8_t *room = malloc(next->bytes ? next->bytes : 1);

		lane->twin = next->twin;
		if (!room || !encode(lane, next) || !remote_send_ahead(lane, next->guess, ahead, room, next->bytes)) {
			if (!ahead->seq)
				free(room);
			return;
		}
		reads->end++;
	}
}

/* What was asked for ahead, if it is that and nothing has changed since. */
static bool given(struct remote_lane *lane, const struct read *read, void *to)
{
	struct remote_reads *reads = lane->reads;

	if (reads->first == reads->end)
		return false;
	const struct read *asked = &reads->asked[reads->first];
	struct remote_ahead *ahead = &lane->ahead[reads->first];
	bool is = same(read, asked) && read->address == asked->address && reads->sent == remote_sent() &&
		  remote_await_ahead(ahead, read->guess) && ahead->result == CUDA_SUCCESS && ahead->left == 0 && reads->heard == remote_heard();

	if (is) {
		if (ahead->bytes)
			memcpy(to, ahead->data, ahead->bytes);
		remote_end_ahead(ahead);
		if (++reads->first == reads->end)
			reads->first = reads->end = 0;
	}
	return is;
}

/* Notes a read: is the row as the one before it was? */
static void learn(struct rows *rows, const struct read *read, bool begins)
{
	if (begins && rows->now.count) {
		rows->trusted = same_row(&rows->now, &rows->before);
		rows->before = rows->now;
		rows->now.count = 0;
	}
	if (rows->now.count < ROW)
		rows->now.at[rows->now.count] = *read;
	if (rows->now.count <= ROW)
		rows->now.count++;
}

/* Makes the call, or gives what was asked for ahead. */
static uint64_t make(struct remote_lane *lane, const struct read *read, void *to)
{
	uint64_t result;

	if (!lane->reads)
		lane->reads = calloc(1, sizeof(*lane->reads));
	if (!lane->reads)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct remote_reads *reads = lane->reads;
	bool begins = reads->sent != remote_sent() || reads->copying != copies(read);

	reads->copying = copies(read);
	learn(&reads->of[reads->copying], read, begins);
	if (given(lane, read, to))
		return remote_failure(lane);
	remote_before(lane, read->number);
	if (!encode(lane, read))
		return CUDA_ERROR_OUT_OF_MEMORY;
	lane->data = to;
	lane->dataleft = read->bytes;
	if (!remote_ask(lane, read->number))
		return remote_lost(read->number);
	if (begins)
		ask_ahead(lane, read);
	lane->twin = read->twin;
	result = remote_answer(lane, read->number);
	reads->sent = remote_sent();
	return result;
}

uint64_t remote_read(struct remote_lane *lane, const struct remote_copy *copy)
{
	struct read read = {
		.number = copy->number, .guess = copy->number, .twin = lane->twin, .context = remote_current(lane),
		.length = copy->length, .place = copy->place, .span = copy->span, .bytes = copy->bytes,
	};

	memcpy(read.payload, copy->payload, copy->length);
	memcpy(&read.address, read.payload + copy->place, sizeof(read.address));
	memset(read.payload + copy->place, 0, sizeof(read.address));
	return make(lane, &read, copy->to);
}

EXPORT CUresult cuEventSynchronize(CUevent hEvent)
{
	const uint64_t values[] = { WORD(hEvent) };
	struct remote_lane *lane;

	if (remote_ready(&lane) != CUDA_SUCCESS || call_kind(values[0]) != KIND_CUevent)
		return (CUresult)remote_call(CALL_cuEventSynchronize, 0, values);
	const struct read read = {
		.number = CALL_cuEventSynchronize, .guess = CALL_cuEventQuery, .twin = lane->twin, .context = remote_current(lane),
		.length = sizeof(read.address), .address = values[0],
	};

	return (CUresult)make(lane, &read, NULL);
}

void remote_forget_reads(struct remote_lane *lane)
{
	remote_drop_reads(lane);
	free(lane->reads);
	lane->reads = NULL;
}
