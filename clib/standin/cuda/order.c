/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "outlook.h"
#include "stream.h"

#define ENTRIES DIVVY_SIM_RING_ENTRIES
#define AHEAD_NS 60000u /* a sleep ends about so late; the rest is waited for awake */

enum {
	AFTER = 4,
	MOST = 256,           /* items that one may come after, by way of markers */
	MARKERS = MOST / 3 + 1,
	ROOM_AT_ONCE = ENTRIES / 4,
};

static struct {
	struct divvy_sim_ring *ring;
	uint64_t head; /* the last item; also in the ring */
	struct {
		struct sd_event *event; /* whose item stands in that place */
		uint64_t id;
	} owner[ENTRIES];
} state;

/* A set of items that another one comes after. */
struct set {
	uint64_t item[MOST];
	unsigned int count;
	bool all; /* there were too many: everything */
};

bool sd_timed(void)
{
	return state.ring != NULL;
}

CUresult sd_order_start(void)
{
	int fd = -1;

	if (sd_timed())
		return CUDA_SUCCESS;
	int result = sim_ring(&fd);

	if (result < 0)
		return sd_error(result);
	void *memory = mmap(NULL, sizeof(*state.ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	if (memory == MAP_FAILED)
		return sd_error(-errno);
	madvise(memory, sizeof(*state.ring), MADV_DONTFORK);
	state.ring = memory;
	sd_outlook_begin(memory);
	return CUDA_SUCCESS;
}

/* Until then, or until something has changed that may end it before. */
static void sleep_until(uint64_t at, const uint32_t *word, uint32_t seen)
{
	for (;;) {
		uint64_t now = sd_now();

		if (now >= at || sim_word(word) != seen)
			return;
		if (at - now > AHEAD_NS)
			sim_sleep(word, seen, at - AHEAD_NS);
		else
			__builtin_ia32_pause();
	}
}

/* The lock is not held. */
static int await(uint64_t item, bool all)
{
	const struct divvy_sim_notice *notice = sim_notice();
	const uint32_t *word = notice ? &notice->sequence : NULL;

	for (;;) {
		uint32_t seen = sim_word(word);
		uint64_t at = 0;
		bool ends;

		if (all && __atomic_load_n(&state.ring->floor, __ATOMIC_ACQUIRE) >= item) {
			at = __atomic_load_n(&state.ring->latestns, __ATOMIC_ACQUIRE);
			ends = true;
		} else {
			ends = !all && sd_known_end(item, &at);
		}
		if (!ends) {
			int result = sim_wait(item, all, &ends, &at);

			if (result < 0)
				return result; /* the device is lost: nothing will end any more */
		}
		sleep_until(at, word, seen);
		if (ends && sd_now() >= at)
			return 0;
	}
}

static CUresult await_released(uint64_t item, bool all)
{
	sd_unlock();
	int result = await(item, all);

	sd_lock();
	return sd_error(result);
}

void sd_await_unlocked(uint64_t item)
{
	if (item)
		(void)await(item, false);
}

CUresult sd_await(uint64_t item)
{
	return !item || sd_seen_end(item, sd_now()) ? CUDA_SUCCESS : await_released(item, false);
}

CUresult sd_await_all(void)
{
	if (!state.head)
		return CUDA_SUCCESS;
	if (__atomic_load_n(&state.ring->floor, __ATOMIC_ACQUIRE) >= state.head &&
	    __atomic_load_n(&state.ring->latestns, __ATOMIC_ACQUIRE) <= sd_now())
		return CUDA_SUCCESS;
	return await_released(state.head, true);
}

/* Waits until so many items may be written. *waited: the lock was released. */
static CUresult room(unsigned int count, bool *waited)
{
	*waited = false;
	for (;;) {
		uint64_t now = sd_now();
		uint64_t last = state.head + count;
		uint64_t item = last > ENTRIES ? last - ENTRIES : 0;
		uint64_t end = 0;

		while (item && item + ENTRIES > state.head && sd_known_end(item, &end) && end <= now)
			item--;
		if (!item || item + ENTRIES <= state.head)
			return CUDA_SUCCESS;
		item = last - ENTRIES + ROOM_AT_ONCE;
		*waited = true;
		CUresult result = await_released(item < state.head ? item : state.head, true);

		if (result != CUDA_SUCCESS)
			return result;
	}
}

/* There is room for it. */
static uint64_t submit(uint32_t kind, const struct sd_card *card, uint64_t ns, uint64_t instructions,
		       const uint64_t *after, unsigned int count)
{
	uint64_t item = state.head + 1;
	size_t place = (item - 1) % ENTRIES;
	struct divvy_sim_item *entry = &state.ring->entries[place];
	struct sd_event *before = sd_object_get(state.owner[place].event, SD_EVENT);

	/* the end that stands there is about to be overwritten */
	if (before && before->object.id == state.owner[place].id && before->item == item - ENTRIES) {
		before->timens = sd_end_of(before->item);
		before->item = 0;
	}
	state.owner[place].event = NULL;
	*entry = (struct divvy_sim_item){ .durationns = ns, .stampns = sd_now(), .kind = kind, .card = card->index,
					  .instructions = instructions };
	for (unsigned int i = 0; i < count; i++)
		entry->after[i] = after[i];
	state.head = item;
	__atomic_store_n(&state.ring->head, item, __ATOMIC_RELEASE);
	return item;
}

static void add(struct set *set, uint64_t item, uint64_t now)
{
	if (sd_seen_end(item, now))
		return;
	for (unsigned int i = 0; i < set->count; i++) {
		if (set->item[i] == item)
			return;
	}
	if (set->count == MOST)
		set->all = true;
	else
		set->item[set->count++] = item;
}

/* The streams of a context that wait for the legacy one; or all of them. */
static void add_streams(struct set *set, const struct sd_context *context, bool all, uint64_t now)
{
	for (struct sd_object *object = context->object.first; object; object = object->next) {
		const struct sd_stream *other = (struct sd_stream *)object;

		if (object->kind == SD_STREAM && (all || !(other->flags & CU_STREAM_NON_BLOCKING)))
			add(set, other->tail, now);
	}
}

/* What the stream's next item comes after and has not been seen to end. */
static void comes_after(const struct sd_stream *stream, struct set *set)
{
	uint64_t now = sd_now();
	const struct sd_context *context = stream->context;

	set->count = 0;
	set->all = false;
	add(set, stream->tail, now);
	if (stream->flags & CU_STREAM_NON_BLOCKING)
		return;
	if (!stream->legacy && context->legacy && context->legacy->tail > stream->tail)
		add(set, context->legacy->tail, now);
	else if (stream->legacy && context->blocking)
		add_streams(set, context, false, now);
}

/* Makes at most AFTER of them, by markers. There is room. */
static void reduce(struct set *set, const struct sd_card *card, unsigned int most)
{
	while (set->count > most) {
		unsigned int taken = set->count < AFTER ? set->count : AFTER;

		set->count -= taken;
		uint64_t marker = submit(DIVVY_SIM_ITEM_MARKER, card, 0, 0, &set->item[set->count], taken);

		set->item[set->count++] = marker;
	}
}

static void put(struct sd_stream *stream, uint64_t item)
{
	stream->tail = item;
	if (stream->legacy)
		stream->context->blocking = 0;
	else if (!(stream->flags & CU_STREAM_NON_BLOCKING))
		stream->context->blocking = item;
}

void sd_order_put(struct sd_stream *stream, uint64_t item)
{
	put(stream, item);
}

bool sd_order_before(const struct sd_stream *stream, uint64_t **items, size_t *count)
{
	struct set set = { .count = 0 };

	*items = NULL;
	*count = 0;
	if (sd_timed())
		comes_after(stream, &set);
	if (set.all || !set.count)
		return !set.all;
	*items = malloc(set.count * sizeof(**items));
	if (!*items)
		return false;
	memcpy(*items, set.item, set.count * sizeof(**items));
	*count = set.count;
	return true;
}

CUresult sd_order_begin(struct sd_stream *stream, const uint64_t *items, size_t count)
{
	struct set set = { .count = 0 };
	uint64_t now = sd_now();
	bool waited;

	for (size_t i = 0; i < count; i++)
		add(&set, items[i], now);
	if (set.all)
		return sd_await_all();
	CUresult result = set.count > 1 ? room(MARKERS, &waited) : CUDA_SUCCESS;

	if (result == CUDA_SUCCESS && set.count) {
		reduce(&set, stream->context->card, 1);
		put(stream, set.item[0]);
	}
	return result;
}

/* Gathers what an item of the stream comes after, with room for it and for the
 * markers. *gone: the stream went while it waited. */
static CUresult prepare(struct sd_stream *stream, struct set *set, bool *gone)
{
	uint64_t id = stream->object.id;

	*gone = false;
	for (;;) {
		bool waited = true;

		comes_after(stream, set);
		CUresult result = set->all ? sd_await_all() : room(1 + (set->count > AFTER ? MARKERS : 1), &waited);

		if (result != CUDA_SUCCESS || !waited)
			return result;
		*gone = sd_object_get(stream, SD_STREAM) != stream || stream->object.id != id;
		if (*gone)
			return CUDA_SUCCESS;
	}
}

CUresult sd_order_kernel(struct sd_stream *stream, const struct sd_card *card, uint64_t ns, uint64_t instructions)
{
	struct set set;
	bool gone = false;
	CUresult result = sd_order_start();

	if (result == CUDA_SUCCESS)
		result = prepare(stream, &set, &gone);
	if (result != CUDA_SUCCESS || gone)
		return result;
	reduce(&set, card, AFTER);
	put(stream, submit(DIVVY_SIM_ITEM_KERNEL, card, ns, instructions, set.item, set.count));
	return CUDA_SUCCESS;
}

CUresult sd_order_mark(struct sd_stream *stream)
{
	struct set set;
	bool gone = false;

	if (!sd_timed())
		return CUDA_SUCCESS;
	CUresult result = prepare(stream, &set, &gone);

	if (result != CUDA_SUCCESS || gone || !set.count)
		return result;
	reduce(&set, stream->context->card, 1);
	put(stream, set.item[0]);
	return CUDA_SUCCESS;
}

CUresult sd_order_join(const struct sd_card *card, uint64_t one, uint64_t other, uint64_t *joined)
{
	uint64_t now = sd_timed() && one != other ? sd_now() : 0;

	*joined = one;
	if (one == other || !other || (one && sd_seen_end(other, now)))
		return CUDA_SUCCESS;
	*joined = other;
	if (!one || sd_seen_end(one, now))
		return CUDA_SUCCESS;
	bool waited;
	CUresult result = room(1, &waited);

	if (result == CUDA_SUCCESS)
		*joined = submit(DIVVY_SIM_ITEM_MARKER, card, 0, 0, (const uint64_t[]){ one, other }, 2);
	return result;
}

CUresult sd_order_after(struct sd_stream *stream, uint64_t item)
{
	uint64_t id = stream->object.id;
	uint64_t tail;
	uint64_t joined = 0;

	if (!item)
		return CUDA_SUCCESS;
	do {
		tail = stream->tail;
		CUresult result = sd_order_join(stream->context->card, tail, item, &joined);

		if (result != CUDA_SUCCESS)
			return result;
		if (sd_object_get(stream, SD_STREAM) != stream || stream->object.id != id)
			return CUDA_SUCCESS;
	} while (stream->tail != tail); /* another thread was there meanwhile */
	put(stream, joined);
	return CUDA_SUCCESS;
}

CUresult sd_order_after_all(struct sd_context *context, uint64_t item)
{
	unsigned int streams = 0;

	if (!item)
		return CUDA_SUCCESS;
	for (struct sd_object *object = context->object.first; object; object = object->next)
		streams += object->kind == SD_STREAM;
	if (streams > MOST)
		return sd_await(item);
	uint64_t id = context->object.id;
	bool waited;
	CUresult result = room(MOST, &waited);

	if (result != CUDA_SUCCESS || sd_object_get(context, SD_CONTEXT) != context || context->object.id != id)
		return result;
	for (struct sd_object *object = context->object.first; object; object = object->next) {
		struct sd_stream *stream = (struct sd_stream *)object;
		uint64_t joined = 0;

		/* there is room: the lock is held throughout */
		if (object->kind == SD_STREAM && streams-- &&
		    sd_order_join(context->card, stream->tail, item, &joined) == CUDA_SUCCESS)
			put(stream, joined);
	}
	return CUDA_SUCCESS;
}

CUresult sd_order_gate(struct sd_stream *stream, uint64_t *ready, uint64_t *gate)
{
	uint64_t id = stream->object.id;

	*ready = *gate = 0;
	if (!sd_timed())
		return CUDA_SUCCESS;
	bool waited;
	CUresult result = sd_order_mark(stream);

	if (result == CUDA_SUCCESS)
		result = room(1, &waited);
	if (result != CUDA_SUCCESS || sd_object_get(stream, SD_STREAM) != stream || stream->object.id != id)
		return result;
	*ready = stream->tail;
	sd_outlook_gated();
	*gate = submit(DIVVY_SIM_ITEM_GATE, stream->context->card, 0, 0, &stream->tail, 1);
	put(stream, *gate);
	return CUDA_SUCCESS;
}

void sd_order_open(uint64_t gate)
{
	if (gate)
		(void)sim_gate_done(gate, sd_now());
}

/* The event's own item, so that its end is the event's. */
static void own(struct sd_event *event, struct set *set)
{
	const struct sd_card *card = event->context->card;

	reduce(set, card, AFTER);
	event->item = submit(DIVVY_SIM_ITEM_MARKER, card, 0, 0, set->item, set->count);
	state.owner[(event->item - 1) % ENTRIES].event = event;
	state.owner[(event->item - 1) % ENTRIES].id = event->object.id;
}

CUresult sd_order_event(struct sd_stream *stream, struct sd_event *event)
{
	struct set set = { .count = 0 };
	uint64_t id = event->object.id;
	bool gone = false;
	CUresult result = sd_timed() ? prepare(stream, &set, &gone) : CUDA_SUCCESS;

	if (result != CUDA_SUCCESS || gone || sd_object_get(event, SD_EVENT) != event || event->object.id != id)
		return result;
	event->item = 0;
	event->timens = sd_now();
	if (!set.count)
		return CUDA_SUCCESS;
	own(event, &set);
	put(stream, event->item);
	return CUDA_SUCCESS;
}

CUresult sd_order_event_all(struct sd_context *context, struct sd_event *event)
{
	struct set set = { .count = 0 };
	uint64_t contextid = context->object.id;
	uint64_t id = event->object.id;
	bool waited;
	CUresult result = sd_timed() ? room(1 + MARKERS, &waited) : CUDA_SUCCESS;

	if (result != CUDA_SUCCESS || sd_object_get(event, SD_EVENT) != event || event->object.id != id ||
	    sd_object_get(context, SD_CONTEXT) != context || context->object.id != contextid)
		return result;
	event->item = 0;
	event->timens = sd_now();
	if (sd_timed())
		add_streams(&set, context, true, event->timens);
	if (set.all)
		return sd_await_all();
	if (set.count)
		own(event, &set);
	return CUDA_SUCCESS;
}

bool sd_order_done(const struct sd_stream *stream)
{
	struct set set;

	if (!sd_timed())
		return true;
	comes_after(stream, &set);
	for (unsigned int i = 0; i < set.count; i++) {
		if (!sd_ended(set.item[i]))
			return false;
	}
	return !set.all;
}

uint64_t sd_order_free(const struct sd_stream *lane, uint64_t since)
{
	uint64_t now = sd_now();

	if (lane->tail && !sd_ended(lane->tail))
		return 0;
	uint64_t end = lane->tail ? sd_end_of(lane->tail) : 0;

	return now - (end > since ? end : since);
}

CUresult sd_order_await(const struct sd_stream *stream)
{
	struct set set;
	CUresult result = CUDA_SUCCESS;

	if (!sd_timed())
		return CUDA_SUCCESS;
	comes_after(stream, &set);
	if (set.all)
		return sd_await_all();
	for (unsigned int i = 0; result == CUDA_SUCCESS && i < set.count; i++)
		result = sd_await(set.item[i]);
	return result;
}
