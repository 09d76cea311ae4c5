/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.c: whether a launch may go, and what it counts for. What is not gated is
 * timed now and then: one launch of 64 of a thread, alone between two events.
 *
 * Work is watched in bursts: what one thread launches between two events of ours
 * on at most BURST_STREAMS streams. Opening a burst asks whether there is room
 * in the lease and in the backlog for all of it, so that a launch inside it is
 * some arithmetic in memory that only its thread writes. A burst holds at most
 * BURST_NS of estimated work, or one launch.
 *
 * A burst whose end could not be marked by an event (its thread went on to
 * something else, a capture is open) counts as what was estimated.
 *
 * Times of events are put on one scale per context: the end of the last burst is its
 * reference, so that spans stay short and the driver's floats exact. estimate.h and
 * backlog.h hold the arithmetic.
 */
#include "gate.h"
#include "thread.h"

#include <errno.h>
#include <sys/mman.h>

#define BURST_STREAMS 4u
#define BURST_KEYS 8u
#define BURST_LAUNCHES 64u
#define GATE_BURSTS 128u
#define GATE_CONTEXTS 8u
#define GATE_EVENTS 64u        /* kept for reuse, per context */
#define GATE_GUESS_NS 1000000u /* of a function that was never measured */

#define SAMPLES_PENDING 8u
#define STEP_NS 5000000u     /* that launches which nobody has counted may take */
#define SAMPLED_NS 100000000u /* that samples may stand for after a pause, or that may run on after a wait */
#define ESCAPE_NS 20000000u /* in flight may be waiting for what is not launched yet */
#define LEASED_ESCAPE_NS 1000000000u /* the same of what was never measured, and seems to outlast the lease that there is */
#define NAP_NS 20000u
#define LONGEST_NAP_NS 1000000u
#define RATE_NS 1000000000u
#define WHOLE_BACKLOG_NS 1000000u /* less is a brief one, beside others that go first */
#define FIRST_RATE 1000u    /* permyriad, of a share without a fixed part that has achieved nothing yet */

#define NOT_MEASURED (-1)
#define MISSES 3u            /* bursts that have not ended, before the others are left for later */
#define GAP_NS 5000
#define DRIFT_NS 50000
#define FAR_LONGER 2u        /* than usual, and by more than */
#define LAUNCHING_NS 100000u /* a launch takes: not by launching alone */

#define WANT_AGAIN_NS 100000000ull
#define SILENCE_NS 500000000ull          /* without a lease for so long: is the agent there? */
#define LONGEST_SILENCE_NS 8000000000ull /* of one that was there each time */
#define LONGEST_WAIT_NS 50000000ull
#define SHORTEST_WAIT_NS 200000ull
#define ASK_AHEAD_NS 1000000ull
#define LONGEST_LOOK_NS 2000000ull
#define SHORTEST_LOOK_NS 50000ull
#define WATCHED_LOOK_NS (2ull * GATE_IDLE_NS) /* while a thread waits for the card, and will look itself */

/* Words of an open burst are written by its thread alone and read by others. */
#define GATE_GET(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define GATE_SET(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)

enum burst_state { BURST_FREE, BURST_OPEN, BURST_CLOSED };

struct burst_key {
	uint64_t key;
	uint32_t high; /* its estimate then */
	uint32_t count;
};

/* The owner writes the first part without the lock while the burst is open; all else is under the lock. */
struct burst {
	struct front_thread *owner;
	uint32_t state;
	uint32_t word;     /* value of leaseword when it was opened: it ends with the lease */
	uint32_t left;     /* ns that may still be launched */
	uint32_t launches;
	uint32_t launchesleft;
	uint32_t laststream;
	uint64_t high;     /* sums of what was launched */
	uint64_t typical;
	uint32_t keys;
	struct burst_key key[BURST_KEYS];
	CUstream stream[BURST_STREAMS];

	uint32_t streams;
	int context;       /* index; -1: not measured */
	CUevent start;
	CUevent end[BURST_STREAMS];
	uint32_t ends;     /* recorded */
	bool measured;     /* its ends are recorded */
	bool dry;          /* nothing of ours was in flight when it began */
	bool beside;       /* work of others may have run beside it, or before it */
	bool unknown;      /* one launch that was never measured */
	uint32_t weight;   /* it stands for so many launches; 0: it is no sample */
	uint64_t submitted; /* ns of the backlog that are its own, whatever its owner still writes when it is closed */
	uint64_t admitted;
	uint64_t opened;   /* and its start marked */
	uint64_t due;      /* when it will have run, by the estimate */
	uint64_t shut;     /* when it was closed, and its ends marked */
	uint64_t returned; /* when the call of a single launch did; 0: that is not known */
	uint32_t seen;     /* launches, when the monitor looked last */
	uint8_t next;      /* index + 1 in the list of closed or free ones */
};

/* One context, and where its events stand in time. */
struct gate_context {
	CUcontext handle; /* NULL: free */
	CUevent reference;
	int64_t referencens;
	unsigned count;
	CUevent event[GATE_EVENTS];
};

/* Wiped in a forked child: zeros are a gate that was never used. */
struct gate {
	/* read by every launch and hardly ever written: apart from what the monitor writes */
	_Alignas(64) uint32_t slot;
	uint32_t captures;    /* open ones of this process, of whatever card: the first gate's alone */
	_Alignas(64) struct front_lock lock;
	uint32_t asleep;      /* futex: 1 while the monitor waits for work */
	uint32_t watching;    /* threads in a call that waits for the card: they look when it returns */
	bool monitored;
	bool backdue;         /* work was launched since LEASE_BACK */
	bool sporadic;        /* launches come apart: the next one is timed alone */
	bool away;            /* the agent did not answer, with these pages */
	struct front_pages *awaypages;
	uint64_t doubted;     /* when it was asked whether it is there */
	uint64_t patience;    /* how long without a lease until it is again; 0: as long as at first */
	struct front_pages *wantedpages; /* LEASE_WANT was sent with these, NULL: none was, */
	uint32_t wantedword;  /* for this value of leaseword */
	uint32_t waiting;     /* threads that wait for a lease */
	uint64_t wantedat;
	uint64_t idlesince;   /* 0: something is in flight */
	uint64_t monitorat;   /* when the monitor looks next */
	uint64_t opened;      /* when a burst was, last */
	uint64_t late;        /* leases were used so much later than they could have been, in all */
	uint64_t lateof;      /* beginning of the last lease that was counted */
	uint64_t ratesince;
	uint64_t ratebusy;
	uint32_t rate;        /* permyriad of the card that it achieved */
	unsigned closed;
	unsigned samples;     /* closed ones that are samples */
	uint32_t unsampled;   /* launches that the next sample stands for besides */
	uint64_t stoodfor;    /* time that samples stand for and that has not passed */
	uint64_t sampledto;   /* until when it has been looked at */
	uint64_t room;        /* time that had passed by then and was nobody's */
	struct longest sampled; /* the longest launches that were samples */
	uint8_t first;        /* of the closed ones, index + 1 */
	uint8_t last;
	uint8_t freelist;
	uint8_t everused;
	uint64_t span;        /* card time that its work covered, what ran beside it included */
	uint64_t gaps;        /* of that, how long the card may have waited for a launch */
	struct backlog backlog;
	struct lateness lateness;
	struct longest kernel;
	struct cover cover;
	struct bucket bucket;
	struct gate_context context[GATE_CONTEXTS];
	struct burst burst[GATE_BURSTS];
	struct firsts firsts;
	struct estimates estimates;
};

struct gate *front_gates[DIVVY_MAX_CARDS];
static uint32_t used; /* a bit for each slot whose gate was made */

/* NULL: it was never needed. In a forked child it forgets its slot with all else. */
static struct gate *gate_now(unsigned slot)
{
	struct gate *gate = __atomic_load_n(&front_gates[slot], __ATOMIC_ACQUIRE);

	if (gate != NULL && GATE_GET(gate->slot) != slot)
		GATE_SET(gate->slot, slot);
	return gate;
}

/* Makes it; NULL when there is no memory. */
static struct gate *gate_use(unsigned slot)
{
	struct gate *gate = gate_now(slot);
	struct gate *fresh;

	if (gate != NULL)
		return gate;
	fresh = mmap(NULL, sizeof(*fresh), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fresh == MAP_FAILED)
		return NULL;
	fresh->slot = slot;
	if (madvise(fresh, sizeof(*fresh), 18 /* MADV_WIPEONFORK, newer than some libcs */) < 0 ||
	    !__atomic_compare_exchange_n(&front_gates[slot], &gate, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		munmap(fresh, sizeof(*fresh));
		return gate;
	}
	__atomic_fetch_or(&used, 1u << slot, __ATOMIC_RELEASE);
	return fresh;
}

/* The gates that were ever used, by slot: for (unsigned slot = first; slot < DIVVY_MAX_CARDS; slot = the next one). */
static unsigned gate_next(unsigned slot)
{
	uint32_t left = __atomic_load_n(&used, __ATOMIC_ACQUIRE) >> slot;

	return left == 0 ? DIVVY_MAX_CARDS : slot + (unsigned)__builtin_ctz(left);
}

#define EACH_GATE(slot) (unsigned slot = gate_next(0); (slot) < DIVVY_MAX_CARDS; (slot) = gate_next((slot) + 1))

/* Of all cards: a capture forbids to ask about any. */
static uint32_t captures_now(void)
{
	const struct gate *first = __atomic_load_n(&front_gates[0], __ATOMIC_ACQUIRE);

	return first == NULL ? 0 : GATE_GET(first->captures);
}

static struct front_pages *pages_now(void)
{
	return __atomic_load_n(&front_pages_now, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* Writes what this process says of itself to its page. What has ended is busy before it is in flight no more: never neither. */
static void gate_publish(struct gate *gate)
{
	struct front_pages *pages = pages_now();
	struct divvy_client_card *card;

	if (pages == NULL)
		return;
	card = &pages->client.card[gate->slot];
	store(&card->busyns, gate->backlog.busy);
	__atomic_store_n(&card->drainns, gate->backlog.drain, __ATOMIC_RELEASE);
	__atomic_store_n(&card->inflightns, gate->backlog.inflight, __ATOMIC_RELEASE);
	store(&card->waitns, gate->backlog.waited);
	store(&card->latens, gate->late);
	store(&card->spanns, gate->span);
	store(&card->gapns, gate->gaps);
	store(&card->lastendns, gate->backlog.lastend);
	store(&card->kernelns, longest_of(&gate->kernel));
}

static const struct divvy_limits_card *limits_of(const struct gate *gate, const struct front_pages *pages)
{
	return &pages->limits.card[gate->slot];
}

/* Until when launches of this process need no asking: 0 without a lease, UINT64_MAX where none is needed. */
static uint64_t gate_lease_of(const struct gate *gate, const struct front_pages *pages)
{
	const struct divvy_limits_card *limits = limits_of(gate, pages);
	uint64_t end, turn;

	if (GATE_GET(limits->gated) == 0)
		return UINT64_MAX;
	do {
		end = __atomic_load_n(&limits->leaseendns, __ATOMIC_ACQUIRE);
		turn = __atomic_load_n(&limits->leaseturn, __ATOMIC_ACQUIRE);
	} while (end != __atomic_load_n(&limits->leaseendns, __ATOMIC_ACQUIRE));
	return turn == 0 || turn == GATE_GET(pages->client.turn) ? end : 0;
}

/* The same, with the lock; notices that the agent is back. */
static uint64_t gate_lease_end(struct gate *gate, const struct front_pages *pages)
{
	if (gate->away && gate->awaypages != pages) {
		gate->away = false;
		gate->bucket = (struct bucket){.since = 0};
	}
	return gate_lease_of(gate, pages);
}

/* -- bursts --------------------------------------------------------------- */

/* This thread's, if it is still open. */
__attribute__((always_inline)) static inline struct burst *own_burst(struct gate *gate)
{
	unsigned number = front_thread.burst[gate->slot];
	struct burst *burst = number == 0 ? NULL : &gate->burst[number - 1];

	return burst != NULL && GATE_GET(burst->owner) == &front_thread && GATE_GET(burst->state) == BURST_OPEN ? burst : NULL;
}

static void own(struct gate *gate, const struct burst *burst)
{
	front_thread.burst[gate->slot] = burst == NULL ? 0 : (uint8_t)(burst - gate->burst + 1);
}

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

/* A burst on stream, its start recorded; NULL: there are too many. The current context is the launch's. */
static struct burst *burst_open(struct gate *gate, CUstream stream, uint64_t now)
{
	struct burst *burst = take_free(gate);
	bool measured = captures_now() == 0;

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

/* One stream more; false when there are too many. */
static bool burst_extend(struct gate *gate, struct burst *burst, CUstream stream)
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

/* No more launches. record: mark its end in the streams, which the caller knows to be alive. */
static void burst_close(struct gate *gate, struct burst *burst, uint64_t now, bool record)
{
	uint64_t left = GATE_GET(burst->launches) == 0 ? burst->submitted : GATE_GET(burst->left);

	GATE_SET(burst->state, BURST_CLOSED);
	GATE_SET(burst->owner, NULL);
	left = left < burst->submitted ? left : burst->submitted;
	burst->submitted -= left;
	backlog_unspent(&gate->backlog, left);
	burst->due = gate->backlog.drain;
	burst->shut = now;
	if (GATE_GET(burst->launches) == 0) {
		events_return(gate, burst);
		give_free(gate, burst);
		return;
	}
	if (record && burst->context >= 0 && captures_now() == 0) {
		while (burst->ends < burst->streams && event_record(burst->end[burst->ends], burst->stream[burst->ends]))
			burst->ends++;
		burst->measured = burst->ends == burst->streams;
		burst->shut = clock_now(); /* the host may have stopped the thread before its ends were marked */
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

static void learn(struct gate *gate, const struct burst *burst, uint64_t took, bool doubt)
{
	uint64_t high = GATE_GET(burst->high);
	uint32_t keys = GATE_GET(burst->keys);

	if (high == 0)
		return;
	for (uint32_t i = 0; i < keys; i++) {
		uint64_t ns = burst->unknown ? took : (uint64_t)((double)GATE_GET(burst->key[i].high) * (double)took / (double)high);

		if (doubt)
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

/*
 * How long of its span the card may have done nothing for a single launch: until its call returned. All of it, where
 * the end may have been marked after the work had ended. The scales of the card and of the host differ; of what
 * began when it was marked the lengths are compared.
 */
static uint64_t waited(const struct burst *burst, int64_t from, int64_t to, uint64_t span)
{
	uint64_t start = from > (int64_t)burst->opened ? (uint64_t)from : burst->opened;
	uint64_t gap = burst->returned > start ? burst->returned - start : 0;
	int64_t marked = burst->dry ? from + (int64_t)(burst->shut - burst->opened) : (int64_t)burst->shut;

	if (GATE_GET(burst->launches) > 1)
		return 0;
	return to <= marked + GAP_NS || gap > span ? span : gap;
}

/*
 * What of a measured span is charged; the sample of what is learned from it, 0: nothing; and whether
 * that may be too long. whole: the span with what work on other streams covers of it.
 *
 * Work that went on when the launch had returned waited for all of the call (gap), for a driver tells the
 * card of a launch last. Otherwise it may have taken any part of the span. Where the typical time
 * is possible it is assumed, also where others' work may have made the span longer.
 */
static uint64_t judge(struct gate *gate, const struct burst *burst, uint64_t span, uint64_t whole, uint64_t gap, uint64_t *sample, bool *doubt)
{
	uint64_t typical = GATE_GET(burst->typical);
	bool last = span > gap + GAP_NS;
	uint64_t likely = span > 1 ? span - (last ? gap : gap / 2) : 1;

	*doubt = burst->beside && !burst->unknown;
	*sample = likely;
	if (burst->unknown && (gap > span / 4 || span < whole))
		*sample = firsts_note(&gate->firsts, GATE_GET(burst->key[0].key), last && span == whole ? likely : 0, whole);
	if (burst->unknown || burst->weight != 0)
		return likely;
	if (!last && gap > span / 4) {
		/* calls that wait for their kernels look like this each time, a stopped thread seldom */
		*doubt = true;
		*sample = span < typical || (span > FAR_LONGER * typical && span > typical + LAUNCHING_NS) ? span : typical;
	}
	if (burst->beside || (gap != 0 && !last) || likely < typical)
		return span < typical ? span : typical;
	return likely;
}

/* Whether work of others may have run between its beginning and its end. */
static bool beside(const struct gate *gate, const struct burst *burst, uint64_t end)
{
	uint64_t from = GATE_GET(limits_of(gate, front_pages_now)->besidefromns);

	return burst->beside || (from > burst->admitted && from < end);
}

/*
 * What samples stand for, as far as time has passed for it. Work on other streams ran within
 * their spans and is sampled itself: together they took no more than there was. What was
 * launched after the last sample may run yet.
 */
static uint64_t passed(struct gate *gate, uint64_t now)
{
	uint64_t took;

	if (gate->sampledto == 0)
		gate->sampledto = now;
	if (now > gate->sampledto) {
		gate->room += now - gate->sampledto;
		gate->sampledto = now;
	}
	took = gate->stoodfor < gate->room ? gate->stoodfor : gate->room;
	gate->room -= took;
	gate->stoodfor -= took;
	return took;
}

/* It has ended, as far as one can know. */
static void finish(struct gate *gate, struct burst *burst, uint64_t now)
{
	uint64_t took = GATE_GET(burst->typical), sample = 0, span = took, gap = 0;
	int64_t from = 0, to = 0;
	uint64_t end;
	bool measured = burst->measured && measure(gate, burst, &from, &to), doubt = false;

	end = measured ? (uint64_t)to : burst->due;
	if (end > now) {
		now = clock_now(); /* it ended since the caller looked at the clock */
		if (end > now)
			end = now;
	}
	burst->beside = beside(gate, burst, end);
	if (end > gate->backlog.lastend)
		gate->backlog.lastend = end;
	if (measured) {
		span = cover_add(&gate->cover, from, to);
		gap = waited(burst, from, to, span);
		if (burst->weight == 0 && bubbled(burst, to)) {
			gate->sporadic = true;
			took = span < took ? span : took;
			gap = span - took;
		} else {
			took = judge(gate, burst, span, (uint64_t)(to - from), gap, &sample, &doubt);
		}
		if (sample != 0)
			learn(gate, burst, sample, doubt);
	} else if (burst->unknown) {
		learn(gate, burst, took, false);
	}
	for (uint32_t i = 0; i < GATE_GET(burst->keys); i++) {
		const struct estimate *estimate = estimate_find(&gate->estimates, GATE_GET(burst->key[i].key));

		if (estimate != NULL)
			longest_note(&gate->kernel, now, estimate_high(estimate));
	}
	if (burst->weight != 0) {
		/* what cannot be measured is not tried each time */
		longest_note(&gate->sampled, now, !measured || took == 0 ? 1 : took < UINT32_MAX ? (uint32_t)took : UINT32_MAX);
		gate->stoodfor += measured ? took * burst->weight : 0;
		took = passed(gate, now);
	}
	gate->span += span;
	gate->gaps += gap;
	backlog_done(&gate->backlog, burst->submitted, took);
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

/* What has run longest was never measured. */
static bool oldest_unknown(const struct gate *gate)
{
	return gate->first != 0 && gate->burst[gate->first - 1].unknown;
}

/* Takes note of what has ended. */
static void burst_look(struct gate *gate, uint64_t now)
{
	bool mayask = captures_now() == 0;
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
	if (gate->stoodfor != 0)
		backlog_done(&gate->backlog, 0, passed(gate, now));
	oldest = gate->first != 0 ? &gate->burst[gate->first - 1] : NULL;
	if (oldest != NULL)
		backlog_look(&gate->backlog, now, GATE_GET(oldest->high), oldest->opened);
	else
		backlog_look(&gate->backlog, now, gate->backlog.inflight, gate->opened);
	/* what was never measured may well take as long again as it has by now */
	if (oldest_unknown(gate) && gate->backlog.drain < 2 * now - oldest->opened)
		gate->backlog.drain = 2 * now - oldest->opened;
}

static void unmeasure(struct gate *gate, struct burst *burst)
{
	burst->measured = false;
	events_return(gate, burst);
}

/* Forgets a context, NULL: all; forgets a stream. Before the driver does. */
static void burst_forget_context(struct gate *gate, CUcontext context, uint64_t now)
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

static void burst_forget_stream(struct gate *gate, CUstream stream, uint64_t now)
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

/* Something whose key is pending was never measured. */
static bool burst_unknown_pending(const struct gate *gate, uint64_t key)
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

/* -- leases --------------------------------------------------------------- */

/* Asks once for each value of the word, and now and then again; a new agent too. */
static bool ask(struct gate *gate, struct front_pages *pages, uint32_t word, uint64_t now)
{
	struct divvy_message message = {.type = DIVVY_LEASE_WANT, .slot = gate->slot};
	bool asked;

	front_lock_take(&gate->lock);
	asked = gate->wantedpages == pages && gate->wantedword == word && now < gate->wantedat + WANT_AGAIN_NS;
	gate->wantedpages = pages;
	gate->wantedword = word;
	if (!asked)
		gate->wantedat = now;
	front_lock_drop(&gate->lock);
	if (asked)
		return true;
	if (front_tell(&message) != -ENOTCONN)
		return true;
	front_lock_take(&gate->lock);
	gate->wantedpages = NULL;
	gate->away = true;
	gate->awaypages = pages;
	front_lock_drop(&gate->lock);
	return false;
}

/* Whether a thread that has waited since then is to ask if the agent is there. */
static bool doubts_locked(struct gate *gate, uint64_t since, uint64_t now)
{
	uint64_t patience = gate->patience != 0 ? gate->patience : SILENCE_NS;

	if (gate->doubted > since)
		since = gate->doubted;
	if (now - since < patience)
		return false;
	gate->doubted = now;
	gate->patience = 2 * patience < LONGEST_SILENCE_NS ? 2 * patience : LONGEST_SILENCE_NS;
	return true;
}

/* Without the lock: waits until the lease may have changed. */
static void gate_await_lease(struct gate *gate, uint64_t ahead)
{
	struct front_pages *pages = pages_now();
	const struct divvy_limits_card *limits = limits_of(gate, pages);
	uint32_t word = __atomic_load_n(&limits->leaseword, __ATOMIC_ACQUIRE);
	uint64_t now = clock_now(), end, wait = LONGEST_WAIT_NS;

	end = gate_lease_of(gate, pages);
	if (end > now + ahead)
		return;
	if (!ask(gate, pages, word, now))
		return;
	/* what is in flight may end sooner than was thought, and then the lease lasts */
	if (end > now) {
		wait = (end - now) / 2;
		if (wait < SHORTEST_WAIT_NS)
			wait = SHORTEST_WAIT_NS;
	}
	clock_wait(&limits->leaseword, word, wait, true);
}

/* Without the lock: asks for the next lease where this one ends soon, so that it can go on without a pause. */
static void gate_ask_ahead(struct gate *gate, uint64_t now)
{
	struct front_pages *pages = pages_now();
	uint32_t word = __atomic_load_n(&limits_of(gate, pages)->leaseword, __ATOMIC_ACQUIRE);
	uint64_t end = gate_lease_of(gate, pages);

	if (end > now && end - now < ASK_AHEAD_NS)
		ask(gate, pages, word, now);
}

/* -- the monitor ---------------------------------------------------------- */

/* Bursts whose thread has gone on to something else end without an event. */
static void close_silent_locked(struct gate *gate, uint64_t now)
{
	for (unsigned i = 0; i < gate->everused; i++) {
		struct burst *burst = &gate->burst[i];
		uint32_t launches;

		if (GATE_GET(burst->state) != BURST_OPEN || now - burst->opened < GATE_IDLE_NS)
			continue;
		launches = GATE_GET(burst->launches);
		if (launches == burst->seen && (GATE_GET(burst->launchesleft) > 0 || now - burst->opened > WANT_AGAIN_NS))
			burst_close(gate, burst, now, false);
		else
			burst->seen = launches;
	}
}

/*
 * A thread in a call that waits for the card sees the end of what is about to end:
 * asking the driver meanwhile would only take its locks from that thread.
 */
static bool left_to_waiter(const struct gate *gate, uint64_t now)
{
	uint64_t drain = gate->backlog.drain;

	return GATE_GET(gate->watching) > 0 && gate->backlog.inflight != 0 && drain < now + GATE_IDLE_NS && now < drain + GATE_IDLE_NS;
}

static bool look_locked(struct gate *gate, uint64_t now, struct divvy_message *back, uint64_t *wait)
{
	struct front_pages *pages = pages_now();
	bool leased, left;

	close_silent_locked(gate, now);
	left = left_to_waiter(gate, now);
	if (!left)
		burst_look(gate, now);
	gate_publish(gate);
	if (gate->backlog.inflight != 0 || gate->closed != 0) {
		uint64_t ahead = gate->backlog.drain > now ? gate->backlog.drain - now : 0;
		uint64_t least = left ? WATCHED_LOOK_NS : SHORTEST_LOOK_NS;

		gate->idlesince = 0;
		*wait = ahead < least ? least : ahead < LONGEST_LOOK_NS ? ahead : LONGEST_LOOK_NS;
		return false;
	}
	if (gate->idlesince == 0)
		gate->idlesince = now;
	if (!gate->backdue || GATE_GET(limits_of(gate, pages)->gated) == 0) {
		*wait = 0;
		return false;
	}
	if (now - gate->idlesince < GATE_IDLE_NS) {
		*wait = GATE_IDLE_NS - (now - gate->idlesince);
		return false;
	}
	leased = gate_lease_of(gate, pages) > now;
	*wait = SHORTEST_LOOK_NS;
	if (leased && gate->waiting > 0)
		return false; /* they are about to launch */
	gate->backdue = false;
	back->type = DIVVY_LEASE_BACK;
	back->slot = gate->slot;
	return true;
}

/* Each gate has its own. */
static void *monitor(void *argument)
{
	struct gate *gate = argument;

	front_thread.inside = 1; /* nothing here is the program's */
	for (;;) {
		struct divvy_message back = {.type = 0};
		uint64_t wait = 0, now;
		bool tell;

		front_lock_take(&gate->lock);
		now = clock_now();
		if (now >= gate->monitorat && gate->monitorat != 0)
			lateness_note(&gate->lateness, now - gate->monitorat);
		tell = look_locked(gate, now, &back, &wait);
		GATE_SET(gate->asleep, tell ? 0u : wait == 0 ? 1u : 2u);
		gate->monitorat = wait == 0 ? UINT64_MAX : now + wait;
		front_lock_drop(&gate->lock);
		if (tell)
			front_tell(&back);
		else
			clock_wait(&gate->asleep, wait == 0 ? 1 : 2, wait, false);
	}
	return NULL;
}

static void wake_monitor(struct gate *gate)
{
	GATE_SET(gate->asleep, 0);
	clock_wake(&gate->asleep, 1, false);
}

/* Somebody watches what is in flight; called without the lock. */
static void gate_monitor(struct gate *gate)
{
	bool start;

	if (GATE_GET(gate->asleep) == 1)
		wake_monitor(gate);
	if (GATE_GET(gate->monitored))
		return;
	front_lock_take(&gate->lock);
	start = !gate->monitored;
	GATE_SET(gate->monitored, true);
	front_lock_drop(&gate->lock);
	if (!start)
		return;
	front_watch();
	guest_thread_start(monitor, gate);
}

/* -- launches ------------------------------------------------------------- */

/* What a share goes on at while its agent is away: a process's part of it. */
static unsigned away_rate(const struct gate *gate, const struct divvy_limits *limits)
{
	unsigned clients = GATE_GET(limits->clients);

	if (GATE_GET(limits->policy) == DIVVY_POLICY_FIXED)
		return GATE_GET(limits->card[gate->slot].corespercent) * 100 / (clients > 0 ? clients : 1);
	return gate->rate > 0 ? gate->rate : FIRST_RATE;
}

static void keep_rate(struct gate *gate, uint64_t now)
{
	if (gate->ratesince != 0 && now - gate->ratesince < RATE_NS)
		return;
	if (gate->ratesince != 0 && !gate->away)
		gate->rate = (uint32_t)((gate->backlog.busy - gate->ratebusy) * 10000 / (now - gate->ratesince));
	gate->ratesince = now;
	gate->ratebusy = gate->backlog.busy;
}

/* One more launch in an open burst of this thread: nobody else writes these. */
static void add(struct burst *burst, unsigned key, uint32_t high, uint32_t typical)
{
	uint32_t left = GATE_GET(burst->left);

	GATE_SET(burst->left, left > high ? left - high : 0);
	GATE_SET(burst->high, GATE_GET(burst->high) + high);
	GATE_SET(burst->typical, GATE_GET(burst->typical) + typical);
	GATE_SET(burst->launches, GATE_GET(burst->launches) + 1);
	GATE_SET(burst->launchesleft, GATE_GET(burst->launchesleft) - 1);
	GATE_SET(burst->key[key].count, GATE_GET(burst->key[key].count) + 1);
}

static bool has_key(struct burst *burst, uint64_t key, uint32_t high, unsigned *index)
{
	uint32_t keys = GATE_GET(burst->keys);

	for (unsigned i = 0; i < keys; i++) {
		if (GATE_GET(burst->key[i].key) == key) {
			*index = i;
			return true;
		}
	}
	if (keys == BURST_KEYS)
		return false;
	GATE_SET(burst->key[keys].key, key);
	GATE_SET(burst->key[keys].high, high);
	GATE_SET(burst->key[keys].count, 0);
	GATE_SET(burst->keys, keys + 1);
	*index = keys;
	return true;
}

static bool has_stream(struct burst *burst, CUstream stream)
{
	uint32_t last = GATE_GET(burst->laststream);

	if (GATE_GET(burst->stream[last % BURST_STREAMS]) == stream)
		return true;
	for (unsigned i = 0; i < GATE_GET(burst->streams); i++) {
		if (GATE_GET(burst->stream[i]) == stream) {
			GATE_SET(burst->laststream, i);
			return true;
		}
	}
	return false;
}

static bool exhausted(const struct burst *burst, uint32_t high)
{
	return GATE_GET(burst->left) < high ||
	       GATE_GET(burst->launchesleft) == 0;
}

/* A launch that has waited since then may go. The first one of a lease tells how late it is. */
static void waited_locked(struct gate *gate, const struct front_pages *pages, uint64_t since, uint64_t now)
{
	uint64_t begins = __atomic_load_n(&limits_of(gate, pages)->leasebeginns, __ATOMIC_RELAXED);

	gate->backlog.waited += now - since;
	gate->patience = 0;
	if (begins == gate->lateof)
		return;
	gate->lateof = begins;
	if (begins < since)
		begins = since;
	if (now > begins)
		gate->late += now - begins;
}

/*
 * How much may be in flight, and how much of it must be left when more is launched. Where
 * a whole backlog may be kept it is deeper by how late this process wakes.
 */
static uint64_t backlog_of(const struct gate *gate, const struct front_pages *pages, uint64_t *refill)
{
	uint64_t most = GATE_GET(limits_of(gate, pages)->backlogns), late = lateness_of(&gate->lateness);

	*refill = most / 2;
	if (most < WHOLE_BACKLOG_NS)
		return most;
	if (most + late > GATE_BACKLOG_NS)
		late = most < GATE_BACKLOG_NS ? GATE_BACKLOG_NS - most : 0;
	*refill += late;
	return most + late;
}

/* Since when nothing has ended, by the time that a process has used of the card. */
struct stall {
	uint64_t since, busy;
};

static bool stalled(struct stall *stall, uint64_t busy, uint64_t now, uint64_t patience)
{
	if (stall->since == 0 || stall->busy != busy)
		*stall = (struct stall){.since = now, .busy = busy};
	return now - stall->since > patience;
}

/*
 * With the lock held, which it lets go while it waits. True: go. False: the share
 * is not gated any more, or this process is none of it.
 */
static bool admit_locked(struct gate *gate, uint64_t key, bool known, uint64_t *now, uint32_t *word)
{
	uint64_t napped = NAP_NS, waitsince = 0, woke;
	struct stall full = {0}, leased = {0};

	for (;;) {
		struct front_pages *pages = pages_now();
		uint64_t until = 0, end, ahead, most, refill;
		enum backlog_verdict verdict;
		bool doubt, gone = false;

		*now = clock_now();
		*word = __atomic_load_n(&limits_of(gate, pages)->leaseword, __ATOMIC_ACQUIRE);
		keep_rate(gate, *now);
		end = gate_lease_end(gate, pages);
		most = backlog_of(gate, pages, &refill);
		if (end == UINT64_MAX)
			return true;
		/* the driver is asked where what is known is not enough; else the monitor does that */
		if (!known || gate->away || 2 * gate->closed > GATE_BURSTS ||
		    backlog_admit(&gate->backlog, *now, end, most, refill, &until) != BACKLOG_GO) {
			burst_look(gate, *now);
			gate_publish(gate);
		}
		if (gate->away && end <= *now) {
			uint64_t wait = bucket_admit(&gate->bucket, &gate->backlog, *now, away_rate(gate, &pages->limits));

			/* the bucket bounds what is in flight; what the agent said of that was for its leases */
			until = *now + (wait < ESCAPE_NS ? wait : ESCAPE_NS);
			verdict = wait == 0 ? BACKLOG_GO : BACKLOG_LEASE;
		} else {
			verdict = backlog_admit(&gate->backlog, *now, end, most, refill, &until);
		}
		if (verdict == BACKLOG_GO && !known && burst_unknown_pending(gate, key)) {
			verdict = BACKLOG_FULL;
			until = *now + napped;
			if (napped < LONGEST_NAP_NS)
				napped *= 2;
		}
		if (verdict == BACKLOG_GO && gate->everused == GATE_BURSTS && gate->freelist == 0) {
			verdict = BACKLOG_FULL;
			until = *now + NAP_NS;
		}
		/* what is in flight may wait for what is not launched yet */
		if (verdict == BACKLOG_FULL && stalled(&full, gate->backlog.busy, *now, ESCAPE_NS))
			verdict = BACKLOG_GO;
		if (verdict == BACKLOG_LEASE && end > *now && oldest_unknown(gate) &&
		    stalled(&leased, gate->backlog.busy, *now, LEASED_ESCAPE_NS))
			verdict = BACKLOG_GO;
		if (verdict == BACKLOG_GO) {
			if (waitsince != 0)
				waited_locked(gate, pages, waitsince, *now);
			return true;
		}
		ahead = gate->backlog.inflight != 0 && gate->backlog.drain > *now ? gate->backlog.drain - *now : 0;
		if (verdict == BACKLOG_LEASE && waitsince == 0)
			waitsince = *now;
		gate->waiting += verdict == BACKLOG_LEASE;
		doubt = verdict == BACKLOG_LEASE && !gate->away && doubts_locked(gate, waitsince, *now);
		front_lock_drop(&gate->lock);
		if (doubt)
			gone = !front_there();
		else if (verdict == BACKLOG_FULL || (gate->away && until > *now))
			clock_sleep_until(until);
		else
			gate_await_lease(gate, ahead);
		woke = clock_now();
		front_lock_take(&gate->lock);
		if (verdict == BACKLOG_FULL && woke > until)
			lateness_note(&gate->lateness, woke - until);
		gate->waiting -= verdict == BACKLOG_LEASE;
		if (gone && pages == pages_now()) {
			gate->away = true;
			gate->awaypages = pages;
		}
	}
}

/* A burst of what may go now, this launch already in it. NULL: it goes without. */
static struct burst *open_locked(struct gate *gate, uint64_t key, const struct estimate *estimate, CUstream stream, uint64_t now,
				 uint32_t word)
{
	struct front_pages *pages = pages_now();
	uint32_t high = estimate != NULL ? estimate_high(estimate) : GATE_GUESS_NS;
	uint32_t typical = estimate != NULL ? estimate_typical(estimate) : GATE_GUESS_NS;
	uint64_t refill, most = backlog_of(gate, pages, &refill);
	uint64_t room = high;
	struct burst *burst = burst_open(gate, stream, now);
	unsigned index = 0;

	if (burst == NULL)
		return NULL;
	if (estimate != NULL && high < BURST_NS)
		room = backlog_room(&gate->backlog, now, gate_lease_end(gate, pages), most, high, BURST_NS);
	GATE_SET(burst->word, word);
	burst->unknown = estimate == NULL;
	burst->beside = gate->away || now < GATE_GET(limits_of(gate, pages)->besidetons);
	GATE_SET(burst->left, (uint32_t)room);
	GATE_SET(burst->launchesleft, estimate == NULL || gate->sporadic ? 1 : BURST_LAUNCHES);
	gate->sporadic = false;
	has_key(burst, key, high, &index);
	add(burst, index, high, typical);
	burst->submitted = room;
	backlog_submit(&gate->backlog, now, room);
	gate->backdue = true;
	gate->idlesince = 0;
	gate_publish(gate);
	return burst;
}

/* Launches that are not timed: the last sample stands for them too, or else the next one. */
static void stand_for(struct gate *gate, uint32_t launches)
{
	struct burst *last = NULL;

	for (uint8_t index = gate->first; index != 0; index = gate->burst[index - 1].next) {
		if (gate->burst[index - 1].weight != 0)
			last = &gate->burst[index - 1];
	}
	if (last != NULL)
		last->weight += launches;
	else
		gate->unsampled += launches;
}

unsigned front_gate_step(unsigned slot)
{
	const struct gate *gate = slot < DIVVY_MAX_CARDS ? gate_now(slot) : NULL;
	uint32_t longest;

	if (gate == NULL)
		return 1;
	longest = longest_of(&gate->sampled);
	if (longest < longest_of(&gate->kernel))
		longest = longest_of(&gate->kernel);
	if (longest == 0 || longest >= STEP_NS)
		return 1;
	return longest <= STEP_NS / FRONT_LAUNCH_STEP ? FRONT_LAUNCH_STEP : STEP_NS / longest;
}

/* What this thread has launched since its step began is counted before it waits for the card. */
static void count_own(struct gate *gate)
{
	unsigned step = front_thread.step;
	unsigned launches = front_thread.launches + step - FRONT_LAUNCH_STEP;

	if (launches == 0 || launches >= step)
		return;
	front_thread.step = (uint16_t)(step - launches); /* it ends where it did */
	front_count_launches((int)gate->slot, launches);
	if (GATE_GET(limits_of(gate, pages_now())->gated) != 0)
		return;
	front_lock_take(&gate->lock);
	stand_for(gate, launches);
	front_lock_drop(&gate->lock);
}

/* Not gated: is this launch, which stands for so many, one to be timed? */
__attribute__((noinline)) static struct burst *sample_locked(struct gate *gate, uint64_t key, CUstream stream, uint32_t launches)
{
	uint64_t now = clock_now();
	struct burst *burst;
	unsigned index = 0;

	burst_look(gate, now);
	gate_publish(gate);
	burst = gate->samples >= SAMPLES_PENDING || captures_now() != 0 ? NULL : burst_open(gate, stream, now);
	if (burst == NULL) {
		stand_for(gate, launches);
		return NULL;
	}
	if (gate->closed == 0 && gate->stoodfor == 0) {
		/* since when it may have done nothing */
		(void)passed(gate, now);
		if (gate->room > SAMPLED_NS)
			gate->room = SAMPLED_NS;
	}
	GATE_SET(burst->word, GATE_GET(limits_of(gate, pages_now())->leaseword));
	burst->dry = launches == 1 && gate->closed == 0; /* of those that are not timed nobody knows when they run */
	burst->weight = launches + gate->unsampled;
	gate->unsampled = 0;
	GATE_SET(burst->launchesleft, 1);
	has_key(burst, key, 0, &index);
	add(burst, index, 0, 0);
	return burst;
}

/* The launch becomes part of a graph and runs later, if it does. */
static bool captured(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return captures_now() != 0 &&
	       REAL(SYM_cuStreamIsCapturing, cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Apart, so that a launch in an open burst need not save what this one needs. */
__attribute__((noinline)) static struct burst *gated(struct gate *gate, uint64_t key, CUstream stream)
{
	const struct estimate *estimate = estimate_find(&gate->estimates, key);
	struct burst *burst;
	uint64_t now;
	uint32_t word;

	front_lock_take(&gate->lock);
	burst = own_burst(gate);
	if (burst != NULL)
		burst_close(gate, burst, clock_now(), true);
	own(gate, NULL);
	burst = NULL;
	if (admit_locked(gate, key, estimate != NULL, &now, &word)) {
		estimate = estimate_find(&gate->estimates, key);
		burst = open_locked(gate, key, estimate, stream, now, word);
	}
	front_lock_drop(&gate->lock);
	gate_ask_ahead(gate, now);
	gate_monitor(gate);
	return burst;
}

/* The launch fits the burst that is open. */
static bool quick(struct burst *burst, struct gate *gate, const struct estimate *estimate, uint64_t key, CUstream stream,
		  uint32_t word)
{
	uint32_t high = estimate_high(estimate);
	unsigned index = 0;

	if (exhausted(burst, high) || GATE_GET(burst->word) != word)
		return false;
	if (!has_stream(burst, stream)) {
		bool more;

		front_lock_take(&gate->lock);
		more = own_burst(gate) == burst && burst_extend(gate, burst, stream);
		front_lock_drop(&gate->lock);
		if (!more)
			return false;
	}
	if (!has_key(burst, key, high, &index))
		return false;
	add(burst, index, high, estimate_typical(estimate));
	return true;
}

struct burst *front_gate_before(unsigned slot, CUstream stream, uint64_t key, unsigned sample)
{
	struct front_pages *pages = pages_now();
	const struct divvy_limits_card *limits;
	const struct estimate *estimate;
	struct gate *gate;
	struct burst *burst;

	if (!front_enter())
		return NULL;
	gate = pages == NULL ? NULL : gate_use(slot);
	burst = NULL;
	if (gate == NULL || captured(stream))
		goto out;
	limits = &pages->limits.card[slot];
	if (GATE_GET(limits->gated) == 0) {
		if (sample != 0) {
			front_lock_take(&gate->lock);
			burst = sample_locked(gate, key, stream, sample);
			front_lock_drop(&gate->lock);
		}
		goto out;
	}
	burst = own_burst(gate);
	estimate = estimate_find(&gate->estimates, key);
	if (burst == NULL || estimate == NULL || !quick(burst, gate, estimate, key, stream, GATE_GET(limits->leaseword))) {
		burst = gated(gate, key, stream);
		own(gate, burst);
	}
	/* another launch like this does not fit: what was launched ends here */
	if (burst != NULL && !exhausted(burst, estimate != NULL ? estimate_high(estimate) : 0))
		burst = NULL;
out:
	front_leave();
	return burst;
}

/* Whose it is; NULL: nobody's. */
static struct gate *gate_of(const struct burst *burst)
{
	for EACH_GATE(slot) {
		struct gate *gate = gate_now(slot);

		if (burst >= gate->burst && burst < gate->burst + GATE_BURSTS)
			return gate;
	}
	return NULL;
}

void front_gate_after(struct burst *burst, CUresult result)
{
	struct gate *gate = gate_of(burst);
	uint64_t now;

	if (gate == NULL || !front_enter())
		return;
	front_lock_take(&gate->lock);
	if (GATE_GET(burst->owner) == &front_thread &&
	    GATE_GET(burst->state) == BURST_OPEN) {
		now = clock_now();
		if (GATE_GET(burst->launches) == 1 && result != CUDA_SUCCESS)
			GATE_SET(burst->launches, 0); /* it never was */
		if (GATE_GET(burst->launches) == 1)
			burst->returned = now;
		burst_close(gate, burst, now, true);
		gate_publish(gate);
	}
	front_lock_drop(&gate->lock);
	own(gate, NULL);
	front_leave();
}

void front_gate_forget(CUcontext context)
{
	for EACH_GATE(slot) {
		struct gate *gate = gate_now(slot);

		front_lock_take(&gate->lock);
		burst_forget_context(gate, context, clock_now());
		front_lock_drop(&gate->lock);
	}
}

/* -- what the program's calls tell --------------------------------------- */

static bool gates_in_use(void)
{
	return gate_next(0) < DIVVY_MAX_CARDS && front_enter();
}

/* An end can be marked in streams that have a name of their own, whatever context is current. */
static bool has_default_stream(const struct burst *burst)
{
	for (unsigned i = 0; i < GATE_GET(burst->streams); i++) {
		if ((uintptr_t)GATE_GET(burst->stream[i]) <= (uintptr_t)2)
			return true;
	}
	return false;
}

/* current: its card is that of the current context. Else what has no name here stays open, until it has or nothing comes. */
static void close_own_locked(struct gate *gate, bool current)
{
	struct burst *burst = own_burst(gate);
	uint64_t now = clock_now();

	if (burst != NULL && !current && has_default_stream(burst))
		return;
	own(gate, NULL);
	if (burst == NULL)
		return;
	if (GATE_GET(burst->launches) == 1)
		burst->returned = now;
	burst_close(gate, burst, now, true);
}

static bool is_current(unsigned slot)
{
	return front_cards() == 1 || front_current_slot() == (int)slot;
}

static void close_own(struct gate *gate)
{
	front_lock_take(&gate->lock);
	close_own_locked(gate, is_current(gate->slot));
	front_lock_drop(&gate->lock);
}

uint32_t front_gate_waits(void)
{
	uint32_t watched = 0;

	if (!gates_in_use())
		return 0;
	for EACH_GATE(slot) {
		struct gate *gate = gate_now(slot);

		if (front_thread.burst[slot] != 0)
			close_own(gate);
		if (front_cards() == 1 && pages_now() != NULL)
			count_own(gate);
		__atomic_fetch_add(&gate->watching, 1, __ATOMIC_RELAXED);
		watched |= 1u << slot;
	}
	front_leave();
	return watched;
}

static void gate_waited(struct gate *gate, bool watched)
{
	uint64_t now;
	bool wake;

	if (watched)
		__atomic_fetch_sub(&gate->watching, 1, __ATOMIC_RELAXED);
	front_lock_take(&gate->lock);
	now = clock_now();
	burst_look(gate, now);
	/* what was waited for has run; beside it there may be other streams */
	if (gate->stoodfor > SAMPLED_NS)
		gate->stoodfor = SAMPLED_NS;
	gate_publish(gate);
	wake = gate->backlog.inflight == 0 && gate->backdue && gate->monitorat != UINT64_MAX &&
	       gate->monitorat > now + WATCHED_LOOK_NS;
	if (wake)
		gate->monitorat = now;
	front_lock_drop(&gate->lock);
	if (wake)
		wake_monitor(gate);
}

void front_gate_waited(uint32_t watched)
{
	if (!gates_in_use())
		return;
	for EACH_GATE(slot)
		gate_waited(gate_now(slot), (watched & 1u << slot) != 0);
	front_leave();
}

static CUresult capture_began(CUresult result)
{
	struct gate *gate = gate_now(0);

	if (result != CUDA_SUCCESS && gate != NULL)
		__atomic_fetch_sub(&gate->captures, 1, __ATOMIC_RELAXED);
	front_leave();
	return result;
}

/* From here on no event of ours is recorded or looked at. */
static bool capture_begins(void)
{
	struct gate *gate;

	if (!front_enter())
		return false;
	gate = gate_use(0);
	for EACH_GATE(slot)
		close_own(gate_now(slot));
	if (gate != NULL) {
		front_lock_take(&gate->lock);
		__atomic_fetch_add(&gate->captures, 1, __ATOMIC_RELAXED);
		front_lock_drop(&gate->lock);
	}
	return true;
}

CUresult hook_cuStreamBeginCapture(enum divvy_symbol called, CUstream hStream)
{
	if (!capture_begins())
		return REAL(called, cuStreamBeginCapture)(hStream);
	return capture_began(REAL(called, cuStreamBeginCapture)(hStream));
}

CUresult hook_cuStreamBeginCapture_v2(enum divvy_symbol called, CUstream hStream, CUstreamCaptureMode mode)
{
	if (!capture_begins())
		return REAL(called, cuStreamBeginCapture_v2)(hStream, mode);
	return capture_began(REAL(called, cuStreamBeginCapture_v2)(hStream, mode));
}

CUresult hook_cuStreamBeginCaptureToGraph(enum divvy_symbol called, CUstream hStream, CUgraph hGraph,
					  const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
					  size_t numDependencies, CUstreamCaptureMode mode)
{
	if (!capture_begins())
		return REAL(called, cuStreamBeginCaptureToGraph)(hStream, hGraph, dependencies, dependencyData, numDependencies, mode);
	return capture_began(REAL(called, cuStreamBeginCaptureToGraph)(hStream, hGraph, dependencies, dependencyData,
								       numDependencies, mode));
}

CUresult hook_cuStreamEndCapture(enum divvy_symbol called, CUstream hStream, CUgraph *phGraph)
{
	CUresult result = REAL(called, cuStreamEndCapture)(hStream, phGraph);
	struct gate *gate = gate_now(0);

	if (gate == NULL || !front_enter())
		return result;
	/* these end a capture, too */
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
	    result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED) {
		front_lock_take(&gate->lock);
		if (gate->captures > 0)
			__atomic_fetch_sub(&gate->captures, 1, __ATOMIC_RELAXED);
		front_lock_drop(&gate->lock);
	}
	front_leave();
	return result;
}

static void stream_ends(CUstream stream)
{
	if (!gates_in_use())
		return;
	for EACH_GATE(slot) {
		struct gate *gate = gate_now(slot);

		front_lock_take(&gate->lock);
		burst_forget_stream(gate, stream, clock_now());
		front_lock_drop(&gate->lock);
	}
	front_leave();
}

CUresult hook_cuStreamDestroy(enum divvy_symbol called, CUstream hStream)
{
	stream_ends(hStream);
	return REAL(called, cuStreamDestroy)(hStream);
}

CUresult hook_cuStreamDestroy_v2(enum divvy_symbol called, CUstream hStream)
{
	stream_ends(hStream);
	return REAL(called, cuStreamDestroy_v2)(hStream);
}

#ifdef FRONT_PLAIN
struct gate_sight front_gate_sight(unsigned slot)
{
	struct gate *gate = front_gates[slot];

	return (struct gate_sight){.estimates = &gate->estimates, .captures = gate->captures, .bursts = gate->everused};
}
#endif
