/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gatewait.c: waiting for a lease and giving it back; the calls of a program that
 * tell the gate something: those that wait for the card, stream captures, and
 * the end of a stream.
 */
#include "gate.h"
#include "thread.h"

#include <errno.h>

#define WANT_AGAIN_NS 100000000ull
#define LONGEST_WAIT_NS 50000000ull
#define SHORTEST_WAIT_NS 200000ull
#define ASK_AHEAD_NS 1000000ull
#define LONGEST_LOOK_NS 2000000ull
#define SHORTEST_LOOK_NS 50000ull
#define WATCHED_LOOK_NS (2ull * GATE_IDLE_NS) /* while a thread waits for the card, and will look itself */

/* Asks once for each value of the word, and now and then again; a new agent too. */
static bool ask(struct gate *gate, struct front_pages *pages, uint32_t word, uint64_t now)
{
	struct divvy_message message = {.type = DIVVY_LEASE_WANT, .slot = FRONT_GATE_SLOT};
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

void gate_await_lease(struct gate *gate, uint64_t ahead)
{
	struct front_pages *pages = __atomic_load_n(&front_pages_now, __ATOMIC_ACQUIRE);
	const struct divvy_limits_card *limits = front_gate_limits(pages);
	uint32_t word = __atomic_load_n(&limits->leaseword, __ATOMIC_ACQUIRE);
	uint64_t now = clock_now(), end, wait = LONGEST_WAIT_NS;

	end = gate_lease_of(pages);
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

void gate_ask_ahead(struct gate *gate, uint64_t now)
{
	struct front_pages *pages = __atomic_load_n(&front_pages_now, __ATOMIC_ACQUIRE);
	uint32_t word = __atomic_load_n(&front_gate_limits(pages)->leaseword, __ATOMIC_ACQUIRE);
	uint64_t end = gate_lease_of(pages);

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
	struct front_pages *pages = __atomic_load_n(&front_pages_now, __ATOMIC_ACQUIRE);
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
	if (!gate->backdue || GATE_GET(front_gate_limits(pages)->gated) == 0) {
		*wait = 0;
		return false;
	}
	if (now - gate->idlesince < GATE_IDLE_NS) {
		*wait = GATE_IDLE_NS - (now - gate->idlesince);
		return false;
	}
	leased = gate_lease_of(pages) > now;
	*wait = SHORTEST_LOOK_NS;
	if (leased && gate->waiting > 0)
		return false; /* they are about to launch */
	gate->backdue = false;
	back->type = DIVVY_LEASE_BACK;
	back->slot = FRONT_GATE_SLOT;
	return true;
}

static void *monitor(void *argument)
{
	struct gate *gate = __atomic_load_n(&front_gate_now, __ATOMIC_ACQUIRE);

	(void)argument;
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

void gate_monitor(struct gate *gate)
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
	front_thread_start(monitor);
}

/* -- what the program's calls tell --------------------------------------- */

static struct gate *gate_in_use(void)
{
	struct gate *gate = __atomic_load_n(&front_gate_now, __ATOMIC_ACQUIRE);

	return gate != NULL && front_enter() ? gate : NULL;
}

static void close_own_locked(struct gate *gate)
{
	struct burst *burst = front_thread.burst;
	uint64_t now = clock_now();

	front_thread.burst = NULL;
	if (burst == NULL || GATE_GET(burst->owner) != &front_thread || GATE_GET(burst->state) != BURST_OPEN)
		return;
	if (GATE_GET(burst->launches) == 1)
		burst->returned = now;
	burst_close(gate, burst, now, true);
}

bool front_gate_waits(void)
{
	struct gate *gate = gate_in_use();

	if (gate == NULL)
		return false;
	if (front_thread.burst != NULL) {
		front_lock_take(&gate->lock);
		close_own_locked(gate);
		front_lock_drop(&gate->lock);
	}
	__atomic_fetch_add(&gate->watching, 1, __ATOMIC_RELAXED);
	front_leave();
	return true;
}

void front_gate_waited(bool watched)
{
	struct gate *gate = gate_in_use();
	uint64_t now;
	bool wake;

	if (gate == NULL)
		return;
	if (watched)
		__atomic_fetch_sub(&gate->watching, 1, __ATOMIC_RELAXED);
	front_lock_take(&gate->lock);
	now = clock_now();
	burst_look(gate, now);
	gate_publish(gate);
	wake = gate->backlog.inflight == 0 && gate->backdue && gate->monitorat != UINT64_MAX &&
	       gate->monitorat > now + WATCHED_LOOK_NS;
	if (wake)
		gate->monitorat = now;
	front_lock_drop(&gate->lock);
	if (wake)
		wake_monitor(gate);
	front_leave();
}

static CUresult capture_began(CUresult result)
{
	struct gate *gate = __atomic_load_n(&front_gate_now, __ATOMIC_ACQUIRE);

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
	gate = front_gate_use();
	if (gate != NULL) {
		front_lock_take(&gate->lock);
		close_own_locked(gate);
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
	struct gate *gate = gate_in_use();

	if (gate == NULL)
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
	struct gate *gate = gate_in_use();

	if (gate == NULL)
		return;
	front_lock_take(&gate->lock);
	burst_forget_stream(gate, stream, clock_now());
	front_lock_drop(&gate->lock);
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
