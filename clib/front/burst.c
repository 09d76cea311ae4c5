/* SPDX-License-Identifier: Apache-2.0 */
/*
 * burst.c: bursts of launches between events. Times of events are put on one
 * scale per context: the end of the last burst is its reference, so that spans
 * stay short and the driver's floats exact.
 */
#include "gate.h"

#define NOT_MEASURED (-1)
#define MISSES 3u            /* bursts that have not ended, before the others are left for later */
#define GAP_NS 5000
#define FIRST_TRIES 4u
#define DRIFT_NS 50000

static int context_index(struct gate *gate)
{
	CUcontext current = NULL;
	int unused = NOT_MEASURED;

	if (REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&current) != CUDA_SUCCESS || current == NULL)
		return NOT_MEASURED;
	for (int i = 0; i < (int)GATE_CONTEXTS; i++) {
		if (gate->context[i].handle == current)
			return i;
		if (gate->context[i].handle == NULL && unused < 0)
			unused = i;
	}
	if (unused >= 0)
		gate->context[unused] = (struct gate_context){.handle = current};
	return unused;
}

/* The context is current where an event has to be made. */
static CUevent event_take(struct gate_context *context)
{
	CUevent event = NULL;

	if (context->count > 0)
		return context->event[--context->count];
	if (REAL(SYM_cuEventCreate, cuEventCreate)(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
		return NULL;
	return event;
}

static void event_put(struct gate_context *context, CUevent event)
{
	if (event == NULL)
		return;
	if (context->count < GATE_EVENTS)
		context->event[context->count++] = event;
	else
		REAL(SYM_cuEventDestroy_v2, cuEventDestroy_v2)(event);
}

static bool event_record(CUevent event, CUstream stream)
{
	return REAL(SYM_cuEventRecord, cuEventRecord)(event, stream) == CUDA_SUCCESS;
}

static bool elapsed(CUevent from, CUevent to, int64_t *ns)
{
	float ms = 0;

	if (REAL(SYM_cuEventElapsedTime, cuEventElapsedTime)(&ms, from, to) != CUDA_SUCCESS)
		return false;
	*ns = (int64_t)((double)ms * 1e6 + (ms < 0 ? -0.5 : 0.5));
	return true;
}

static void events_return(struct gate *gate, struct burst *burst)
{
	if (burst->context < 0)
		return;
	event_put(&gate->context[burst->context], burst->start);
	for (unsigned i = 0; i < burst->streams; i++)
		event_put(&gate->context[burst->context], burst->end[i]);
	burst->context = NOT_MEASURED;
}

static struct burst *take_free(struct gate *gate)
{
	struct burst *burst;

	if (gate->freelist != 0) {
		burst = &gate->burst[gate->freelist - 1];
		gate->freelist = burst->next;
	} else if (gate->everused < GATE_BURSTS) {
		burst = &gate->burst[gate->everused++];
	} else {
		return NULL;
	}
	return burst;
}

static void give_free(struct gate *gate, struct burst *burst)
{
	GATE_SET(burst->owner, NULL);
	GATE_SET(burst->state, BURST_FREE);
	burst->next = gate->freelist;
	gate->freelist = (uint8_t)(burst - gate->burst + 1);
}

struct burst *burst_open(struct gate *gate, CUstream stream, uint64_t now)
{
	struct burst *burst = take_free(gate);
	bool measured = GATE_GET(gate->captures) == 0;

	if (burst == NULL)
		return NULL;
	burst->admitted = now;
	burst->context = measured ? context_index(gate) : NOT_MEASURED;
	GATE_SET(burst->streams, 1);
	burst->start = burst->end[0] = NULL;
	GATE_SET(burst->stream[0], stream);
	if (burst->context >= 0) {
		struct gate_context *context = &gate->context[burst->context];

		burst->start = event_take(context);
		burst->end[0] = event_take(context);
		if (burst->start == NULL || burst->end[0] == NULL || !event_record(burst->start, stream))
			events_return(gate, burst);
		else
			now = clock_now(); /* the call may have taken as long as a kernel */
	}
	burst->ends = 0;
	burst->measured = burst->beside = burst->unknown = false;
	burst->dry = gate->backlog.inflight == 0;
	burst->weight = 0;
	burst->opened = gate->opened = now;
	burst->due = burst->returned = 0;
	burst->seen = 0;
	GATE_SET(burst->left, 0);
	GATE_SET(burst->launches, 0);
	GATE_SET(burst->launchesleft, 0);
	GATE_SET(burst->laststream, 0);
	GATE_SET(burst->high, 0);
	GATE_SET(burst->typical, 0);
	GATE_SET(burst->keys, 0);
	GATE_SET(burst->state, BURST_OPEN);
	GATE_SET(burst->owner, &front_thread);
	return burst;
}

bool burst_extend(struct gate *gate, struct burst *burst, CUstream stream)
{
	CUevent end = NULL;

	if (burst->streams == BURST_STREAMS)
		return false;
	if (burst->context >= 0) {
		if (context_index(gate) != burst->context)
			return false;
		end = event_take(&gate->context[burst->context]);
		if (end == NULL)
			return false;
	}
	GATE_SET(burst->stream[burst->streams], stream);
	burst->end[burst->streams] = end;
	GATE_SET(burst->laststream, burst->streams);
	GATE_SET(burst->streams, burst->streams + 1);
	return true;
}

void burst_close(struct gate *gate, struct burst *burst, uint64_t now, bool record)
{
	uint64_t left = GATE_GET(burst->left);

	GATE_SET(burst->state, BURST_CLOSED);
	GATE_SET(burst->owner, NULL);
	backlog_unspent(&gate->backlog, left);
	burst->due = gate->backlog.drain;
	burst->shut = now;
	if (GATE_GET(burst->launches) == 0) {
		events_return(gate, burst);
		give_free(gate, burst);
		return;
	}
	if (record && burst->context >= 0 && GATE_GET(gate->captures) == 0) {
		while (burst->ends < burst->streams && event_record(burst->end[burst->ends], burst->stream[burst->ends]))
			burst->ends++;
		burst->measured = burst->ends == burst->streams;
	}
	if (!burst->measured)
		events_return(gate, burst);
	burst->next = 0;
	if (gate->last != 0)
		gate->burst[gate->last - 1].next = (uint8_t)(burst - gate->burst + 1);
	else
		gate->first = (uint8_t)(burst - gate->burst + 1);
	gate->last = (uint8_t)(burst - gate->burst + 1);
	gate->closed++;
	gate->samples += burst->weight != 0;
}

/* From when to when, on the context's scale; moves the reference on. */
static bool measure(struct gate *gate, struct burst *burst, int64_t *from, int64_t *to)
{
	struct gate_context *context = &gate->context[burst->context];
	unsigned latest = 0;
	int64_t span = 0;

	if (context->reference == NULL)
		*from = (int64_t)burst->opened;
	else if (elapsed(context->reference, burst->start, &span))
		*from = context->referencens + span;
	else
		return false;
	/* the card's clock and ours drift apart */
	if (burst->dry && !burst->beside && (*from - (int64_t)burst->opened > DRIFT_NS || (int64_t)burst->opened - *from > DRIFT_NS))
		*from = (int64_t)burst->opened;
	*to = *from;
	for (unsigned i = 0; i < burst->ends; i++) {
		if (!elapsed(burst->start, burst->end[i], &span))
			return false;
		if (*from + span >= *to) {
			*to = *from + span;
			latest = i;
		}
	}
	if (context->reference == NULL || *to >= context->referencens) {
		CUevent old = context->reference;

		context->reference = burst->end[latest];
		context->referencens = *to;
		burst->end[latest] = old;
	}
	return true;
}

static void learn(struct gate *gate, const struct burst *burst, uint64_t took)
{
	uint64_t high = GATE_GET(burst->high);
	uint32_t keys = GATE_GET(burst->keys);

	if (high == 0)
		return;
	for (uint32_t i = 0; i < keys; i++) {
		uint64_t ns = burst->unknown ? took : (uint64_t)((double)GATE_GET(burst->key[i].high) * (double)took / (double)high);

		if (burst->beside && !burst->unknown)
			estimate_doubt(&gate->estimates, GATE_GET(burst->key[i].key), ns);
		else
			estimate_learn(&gate->estimates, GATE_GET(burst->key[i].key), ns);
	}
}

/*
 * Its queue ran dry while it was open, so that the span between its events says
 * nothing: launching took longer than the work, by the estimate, and there was
 * hardly any left to do at the end of it.
 */
static bool bubbled(const struct burst *burst, int64_t to)
{
	uint32_t launches = GATE_GET(burst->launches);

	return launches > 1 && burst->shut > burst->due + GAP_NS &&
	       to < (int64_t)(burst->shut + 2 * GATE_GET(burst->high) / launches + GAP_NS);
}

/* How long a card that was idle may have waited for a single launch, while its call lasted. */
static uint64_t waited(const struct burst *burst, int64_t from, uint64_t span)
{
	uint64_t start = from > (int64_t)burst->opened ? (uint64_t)from : burst->opened;
	uint64_t gap = burst->returned > start ? burst->returned - start : 0;

	return gap < span ? gap : span;
}

/*
 * What of a measured span is charged; the sample of what is learned from it, 0: nothing.
 *
 * Work that went on when the launch had returned waited for all of the call (gap), for
 * a driver tells the card of a launch last; else nobody knows, and it is half of it. Where what is usual lies
 * within what is possible it is taken to be that; so is it where others' work may have
 * made the span longer.
 */
static uint64_t judge(struct gate *gate, const struct burst *burst, uint64_t span, uint64_t gap, uint64_t *sample)
{
	uint64_t typical = GATE_GET(burst->typical);
	bool last = span > gap + GAP_NS;
	uint64_t likely = span > 1 ? span - (last ? gap : gap / 2) : 1;
	bool exact = last || gap <= span / 4;

	*sample = exact ? likely : 0;
	if (burst->unknown) {
		/* timed again, but not for ever: then it may have taken all of it, for one that seems short is launched too often */
		if (!exact && ++gate->retries >= FIRST_TRIES)
			*sample = span;
		if (*sample != 0)
			gate->retries = 0;
		return likely;
	}
	if (span > typical && (gap != 0 || burst->beside))
		span = burst->beside || likely < typical ? typical : likely;
	return span;
}

/* Whether work of others may have run between its beginning and its end. */
static bool beside(const struct burst *burst, uint64_t end)
{
	uint64_t from = GATE_GET(front_gate_limits(front_pages_now)->besidefromns);

	return burst->beside || (from > burst->admitted && from < end);
}

/* It has ended, as far as one can know. */
static void finish(struct gate *gate, struct burst *burst, uint64_t now)
{
	uint64_t took = GATE_GET(burst->typical), sample = 0, span = took, gap = 0;
	int64_t from = 0, to = 0;
	uint64_t end;
	bool measured = burst->measured && measure(gate, burst, &from, &to);

	end = measured ? (uint64_t)to : burst->due;
	if (end > now) {
		now = clock_now(); /* it ended since the caller looked at the clock */
		if (end > now)
			end = now;
	}
	burst->beside = beside(burst, end);
	if (end > gate->backlog.lastend)
		gate->backlog.lastend = end;
	if (measured) {
		span = cover_add(&gate->cover, from, to);
		gap = waited(burst, from, span);
		if (burst->weight == 0 && bubbled(burst, to)) {
			gate->sporadic = true;
			took = span < took ? span : took;
			gap = span - took;
		} else {
			took = judge(gate, burst, span, gap, &sample);
		}
		if (sample != 0)
			learn(gate, burst, sample);
	} else if (burst->unknown) {
		learn(gate, burst, took);
	}
	for (uint32_t i = 0; i < GATE_GET(burst->keys); i++) {
		const struct estimate *estimate = estimate_find(&gate->estimates, GATE_GET(burst->key[i].key));

		if (estimate != NULL)
			longest_note(&gate->kernel, now, estimate_high(estimate));
	}
	if (burst->weight != 0)
		took = measured ? took * burst->weight : 0;
	gate->span += span;
	gate->gaps += gap;
	backlog_done(&gate->backlog, GATE_GET(burst->high), took);
	events_return(gate, burst);
}

static bool ended(const struct burst *burst, uint64_t now, bool mayask)
{
	if (!burst->measured || !mayask)
		return now >= burst->due;
	for (unsigned i = 0; i < burst->ends; i++) {
		if (REAL(SYM_cuEventQuery, cuEventQuery)(burst->end[i]) == CUDA_ERROR_NOT_READY)
			return false;
	}
	return true;
}

void burst_look(struct gate *gate, uint64_t now)
{
	bool mayask = GATE_GET(gate->captures) == 0;
	uint8_t *link = &gate->first;
	uint8_t before = 0;
	unsigned misses = 0;
	const struct burst *oldest;

	while (*link != 0 && misses < MISSES) {
		uint8_t index = *link;
		struct burst *burst = &gate->burst[index - 1];

		if (!ended(burst, now, mayask)) {
			misses++;
			before = index;
			link = &burst->next;
			continue;
		}
		if (!mayask) {
			burst->measured = false;
			events_return(gate, burst);
		}
		finish(gate, burst, now);
		gate->closed--;
		gate->samples -= burst->weight != 0;
		*link = burst->next;
		if (gate->last == index)
			gate->last = before;
		give_free(gate, burst);
	}
	oldest = gate->first != 0 ? &gate->burst[gate->first - 1] : NULL;
	if (oldest != NULL)
		backlog_look(&gate->backlog, now, GATE_GET(oldest->high), oldest->opened);
	else
		backlog_look(&gate->backlog, now, gate->backlog.inflight, gate->opened);
	/* what was never measured may well take as long again as it has by now */
	if (oldest != NULL && oldest->unknown && gate->backlog.drain < 2 * now - oldest->opened)
		gate->backlog.drain = 2 * now - oldest->opened;
}

static void unmeasure(struct gate *gate, struct burst *burst)
{
	burst->measured = false;
	events_return(gate, burst);
}

void burst_forget_context(struct gate *gate, CUcontext context, uint64_t now)
{
	for (int i = 0; i < (int)GATE_CONTEXTS; i++) {
		struct gate_context *one = &gate->context[i];

		if (one->handle == NULL || (context != NULL && one->handle != context))
			continue;
		for (unsigned j = 0; j < gate->everused; j++) {
			struct burst *burst = &gate->burst[j];
			uint32_t state = GATE_GET(burst->state);

			if (state == BURST_FREE || burst->context != i)
				continue;
			unmeasure(gate, burst);
			if (state == BURST_OPEN)
				burst_close(gate, burst, now, false);
		}
		event_put(one, one->reference);
		while (one->count > 0)
			REAL(SYM_cuEventDestroy_v2, cuEventDestroy_v2)(one->event[--one->count]);
		*one = (struct gate_context){.handle = NULL};
	}
}

void burst_forget_stream(struct gate *gate, CUstream stream, uint64_t now)
{
	for (unsigned i = 0; i < gate->everused; i++) {
		struct burst *burst = &gate->burst[i];
		bool on = false;

		if (GATE_GET(burst->state) != BURST_OPEN)
			continue;
		for (unsigned j = 0; j < burst->streams; j++)
			on |= burst->stream[j] == stream;
		if (on)
			burst_close(gate, burst, now, GATE_GET(burst->owner) == &front_thread);
	}
}

bool burst_unknown_pending(const struct gate *gate, uint64_t key)
{
	for (uint8_t index = gate->first; index != 0; index = gate->burst[index - 1].next) {
		if (gate->burst[index - 1].unknown && GATE_GET(gate->burst[index - 1].key[0].key) == key)
			return true;
	}
	for (unsigned i = 0; i < gate->everused; i++) {
		const struct burst *burst = &gate->burst[i];

		if (GATE_GET(burst->state) == BURST_OPEN && burst->unknown && GATE_GET(burst->key[0].key) == key)
			return true;
	}
	return false;
}
