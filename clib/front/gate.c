/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.c: whether a launch may go, and what it counts for. What is not gated is
 * timed now and then: one launch of 64 of a thread, alone between two events.
 */
#include "gate.h"

#include <sys/mman.h>

#define SAMPLES_PENDING 8u
#define ESCAPE_NS 20000000u /* in flight may be waiting for what is not launched yet */
#define NAP_NS 20000u
#define LONGEST_NAP_NS 1000000u
#define RATE_NS 1000000000u
#define WHOLE_BACKLOG_NS 1000000u /* less is a brief one, beside others that go first */
#define FIRST_RATE 1000u    /* permyriad, of a share without a fixed part that has achieved nothing yet */

struct gate *front_gate_now;

struct gate *front_gate_use(void)
{
	struct gate *gate = __atomic_load_n(&front_gate_now, __ATOMIC_ACQUIRE);
	struct gate *fresh;

	if (gate != NULL)
		return gate;
	fresh = mmap(NULL, sizeof(*fresh), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fresh == MAP_FAILED)
		return NULL;
	if (madvise(fresh, sizeof(*fresh), 18 /* MADV_WIPEONFORK, newer than some libcs */) < 0 ||
	    !__atomic_compare_exchange_n(&front_gate_now, &gate, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		munmap(fresh, sizeof(*fresh));
		return gate;
	}
	return fresh;
}

static struct front_pages *pages_now(void)
{
	return __atomic_load_n(&front_pages_now, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* What has ended is busy before it is in flight no more: never neither. */
void gate_publish(struct gate *gate)
{
	struct front_pages *pages = pages_now();
	struct divvy_client_card *card;

	if (pages == NULL)
		return;
	card = &pages->client.card[FRONT_GATE_SLOT];
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

static bool is_gated(const struct front_pages *pages)
{
	return GATE_GET(front_gate_limits(pages)->gated) != 0;
}

uint64_t gate_lease_of(const struct front_pages *pages)
{
	const struct divvy_limits_card *limits = front_gate_limits(pages);
	uint64_t end, turn;

	if (!is_gated(pages))
		return UINT64_MAX;
	do {
		end = __atomic_load_n(&limits->leaseendns, __ATOMIC_ACQUIRE);
		turn = __atomic_load_n(&limits->leaseturn, __ATOMIC_ACQUIRE);
	} while (end != __atomic_load_n(&limits->leaseendns, __ATOMIC_ACQUIRE));
	return turn == 0 || turn == GATE_GET(pages->client.turn) ? end : 0;
}

uint64_t gate_lease_end(struct gate *gate, const struct front_pages *pages)
{
	if (gate->away && gate->awaypages != pages) {
		gate->away = false;
		gate->bucket = (struct bucket){.since = 0};
	}
	return gate_lease_of(pages);
}

/* What a share goes on at while its agent is away: a process's part of it. */
static unsigned away_rate(const struct gate *gate, const struct divvy_limits *limits)
{
	unsigned clients = GATE_GET(limits->clients);

	if (GATE_GET(limits->policy) == DIVVY_POLICY_FIXED)
		return GATE_GET(limits->card[FRONT_GATE_SLOT].corespercent) * 100 / (clients > 0 ? clients : 1);
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

static struct burst *own_burst(struct gate *gate)
{
	struct burst *burst = front_thread.burst;

	if (burst == NULL || GATE_GET(burst->owner) != &front_thread ||
	    GATE_GET(burst->state) != BURST_OPEN)
		return NULL;
	(void)gate;
	return burst;
}

static bool exhausted(const struct burst *burst, uint32_t high)
{
	return GATE_GET(burst->left) < high ||
	       GATE_GET(burst->launchesleft) == 0;
}


/* A launch that has waited since then may go. The first one of a lease tells how late it is. */
static void waited_locked(struct gate *gate, const struct front_pages *pages, uint64_t since, uint64_t now)
{
	uint64_t begins = __atomic_load_n(&front_gate_limits(pages)->leasebeginns, __ATOMIC_RELAXED);

	gate->backlog.waited += now - since;
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
	uint64_t most = GATE_GET(front_gate_limits(pages)->backlogns), late = lateness_of(&gate->lateness);

	*refill = most / 2;
	if (most < WHOLE_BACKLOG_NS)
		return most;
	if (most + late > GATE_BACKLOG_NS)
		late = most < GATE_BACKLOG_NS ? GATE_BACKLOG_NS - most : 0;
	*refill += late;
	return most + late;
}

/*
 * With the lock held, which it lets go while it waits. True: go. False: the share
 * is not gated any more, or this process is none of it.
 */
static bool admit_locked(struct gate *gate, uint64_t key, bool known, uint64_t *now, uint32_t *word)
{
	uint64_t napped = NAP_NS, fullsince = 0, waitsince = 0, done = 0, woke;

	for (;;) {
		struct front_pages *pages = pages_now();
		uint64_t until = 0, end, ahead, most, refill;
		enum backlog_verdict verdict;

		*now = clock_now();
		*word = __atomic_load_n(&front_gate_limits(pages)->leaseword, __ATOMIC_ACQUIRE);
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

			until = *now + (wait < ESCAPE_NS ? wait : ESCAPE_NS);
			verdict = wait == 0 ? backlog_admit(&gate->backlog, *now, UINT64_MAX, most, refill, &until) : BACKLOG_LEASE;
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
		if (verdict == BACKLOG_FULL) {
			/* what is in flight may wait for what is not launched yet */
			if (fullsince == 0 || done != gate->backlog.busy)
				fullsince = *now;
			else if (*now - fullsince > ESCAPE_NS)
				verdict = BACKLOG_GO;
			done = gate->backlog.busy;
		}
		if (verdict == BACKLOG_GO) {
			if (waitsince != 0)
				waited_locked(gate, pages, waitsince, *now);
			return true;
		}
		ahead = gate->backlog.inflight != 0 && gate->backlog.drain > *now ? gate->backlog.drain - *now : 0;
		if (verdict == BACKLOG_LEASE && waitsince == 0)
			waitsince = *now;
		gate->waiting += verdict == BACKLOG_LEASE;
		front_lock_drop(&gate->lock);
		if (verdict == BACKLOG_FULL || (gate->away && until > *now))
			clock_sleep_until(until);
		else
			gate_await_lease(gate, ahead);
		woke = clock_now();
		front_lock_take(&gate->lock);
		if (verdict == BACKLOG_FULL && woke > until)
			lateness_note(&gate->lateness, woke - until);
		gate->waiting -= verdict == BACKLOG_LEASE;
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
	burst->beside = gate->away || now < GATE_GET(front_gate_limits(pages)->besidetons);
	GATE_SET(burst->left, (uint32_t)room);
	GATE_SET(burst->launchesleft, estimate == NULL || gate->sporadic ? 1 : BURST_LAUNCHES);
	gate->sporadic = false;
	has_key(burst, key, high, &index);
	add(burst, index, high, typical);
	backlog_submit(&gate->backlog, now, room);
	gate->backdue = true;
	gate->idlesince = 0;
	gate_publish(gate);
	return burst;
}

/* Not gated: is this launch one to be timed? */
static struct burst *sample_locked(struct gate *gate, uint64_t key, CUstream stream)
{
	uint64_t now = clock_now();
	struct burst *burst;
	unsigned index = 0;

	burst_look(gate, now);
	gate_publish(gate);
	if (gate->samples >= SAMPLES_PENDING || GATE_GET(gate->captures) != 0)
		return NULL;
	burst = burst_open(gate, stream, now);
	if (burst == NULL)
		return NULL;
	GATE_SET(burst->word, GATE_GET(front_gate_limits(pages_now())->leaseword));
	burst->weight = FRONT_LAUNCH_STEP;
	GATE_SET(burst->launchesleft, 1);
	has_key(burst, key, 0, &index);
	add(burst, index, 0, 0);
	return burst;
}

/* The launch becomes part of a graph and runs later, if it does. */
static bool captured(const struct gate *gate, CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return GATE_GET(gate->captures) != 0 &&
	       REAL(SYM_cuStreamIsCapturing, cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static struct burst *gated(struct gate *gate, uint64_t key, CUstream stream)
{
	const struct estimate *estimate = estimate_find(&gate->estimates, key);
	struct burst *burst;
	uint64_t now;
	uint32_t word;

	front_lock_take(&gate->lock);
	burst = own_burst(gate);
	if (burst != NULL)
		burst_close(gate, burst, clock_now(), true);
	front_thread.burst = NULL;
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

struct burst *front_gate_before(CUstream stream, uint64_t key, bool sample)
{
	struct front_pages *pages = pages_now();
	const struct estimate *estimate;
	struct gate *gate;
	struct burst *burst;

	if (!front_enter())
		return NULL;
	gate = pages == NULL ? NULL : front_gate_use();
	burst = NULL;
	if (gate == NULL || captured(gate, stream))
		goto out;
	if (!is_gated(pages)) {
		if (sample) {
			front_lock_take(&gate->lock);
			burst = sample_locked(gate, key, stream);
			front_lock_drop(&gate->lock);
		}
		goto out;
	}
	burst = own_burst(gate);
	estimate = estimate_find(&gate->estimates, key);
	if (burst == NULL || estimate == NULL ||
	    !quick(burst, gate, estimate, key, stream, GATE_GET(front_gate_limits(pages)->leaseword))) {
		burst = gated(gate, key, stream);
		front_thread.burst = burst;
	}
	/* another launch like this does not fit: what was launched ends here */
	if (burst != NULL && !exhausted(burst, estimate != NULL ? estimate_high(estimate) : 0))
		burst = NULL;
out:
	front_leave();
	return burst;
}

void front_gate_after(struct burst *burst, CUresult result)
{
	struct gate *gate = __atomic_load_n(&front_gate_now, __ATOMIC_ACQUIRE);
	uint64_t now;

	if (gate == NULL || !front_enter())
		return;
	front_lock_take(&gate->lock);
	if (GATE_GET(burst->owner) == &front_thread &&
	    GATE_GET(burst->state) == BURST_OPEN) {
		now = clock_now();
		if (GATE_GET(burst->launches) == 1 && result != CUDA_SUCCESS) {
			/* it never was */
			GATE_SET(burst->launches, 0);
			backlog_unspent(&gate->backlog, GATE_GET(burst->high));
		}
		if (GATE_GET(burst->launches) == 1)
			burst->returned = now;
		burst_close(gate, burst, now, true);
		gate_publish(gate);
	}
	front_lock_drop(&gate->lock);
	front_thread.burst = NULL;
	front_leave();
}

void front_gate_forget(CUcontext context)
{
	struct gate *gate = __atomic_load_n(&front_gate_now, __ATOMIC_ACQUIRE);

	if (gate == NULL)
		return;
	front_lock_take(&gate->lock);
	burst_forget_context(gate, context, clock_now());
	front_lock_drop(&gate->lock);
}
