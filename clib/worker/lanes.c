/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes.c: which thread reads, which makes what.
 *
 * One-way calls are made in the order in which they were sent, whatever their lane; any
 * other call when all one-way calls before it have been made. While there is one lane its
 * thread reads and calls in turn, and nobody is woken.
 */
#include <pthread.h>
#include <stdlib.h>

#include "connection.h"
#include "frame.h"

static struct {
	pthread_mutex_t lock;
	pthread_cond_t idle;    /* threads without work, who may read */
	pthread_cond_t ordered; /* a one-way call was made, or a host function returned */
	bool reading, over;
	uint32_t count;         /* lanes */
	uint32_t waiting;       /* lanes whose call may wait for another's */
	uint64_t oneways;       /* read so far; of who reads */
	uint64_t made;          /* one-way calls that have been made */
	struct worker_lane *at[DIVVY_REMOTE_MAX_LANES + 1];
	uint64_t calledback;    /* host functions so far */
	struct callback *callbacks; /* that the program is running */
	uint32_t expected;      /* host functions that have not returned; atomic */
} lanes = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.idle = PTHREAD_COND_INITIALIZER,
	.ordered = PTHREAD_COND_INITIALIZER,
};

struct callback {
	struct callback *next;
	uint64_t cookie, seq;
	bool returned;
};

/* The next frame: in place, when it is whole in the buffer and nobody reads on before it
 * has been dealt with; else in memory of its own. NULL: the session is over. */
static struct frame *read_frame(struct frame *inplace)
{
	struct divvy_remote_frame header;
	struct frame *frame;

	if (!connection_take(&header, sizeof(header)) || header.length > DIVVY_REMOTE_MAX_PAYLOAD || header.lane > DIVVY_REMOTE_MAX_LANES)
		return NULL;
	uint8_t *payload = inplace ? connection_take_in_place(header.length) : NULL;

	if (payload) {
		frame = inplace;
		frame->own = false;
		frame->payload = payload;
	} else {
		frame = malloc(sizeof(*frame) + header.length);
		if (!frame)
			return NULL;
		frame->own = true;
		frame->payload = frame->bytes;
		if (!connection_take(frame->payload, header.length)) {
			free(frame);
			return NULL;
		}
	}
	frame->next = NULL;
	frame->header = header;
	frame->after = lanes.oneways;
	lanes.oneways += header.flags & DIVVY_REMOTE_ONE_WAY;
	return frame;
}

static void end_session(void)
{
	lanes.over = true;
	connection_close();
	pthread_cond_broadcast(&lanes.idle);
	pthread_cond_broadcast(&lanes.ordered);
}

static void *run_lane(void *argument);

/* A host function has returned over there. */
static void returned(uint64_t seq)
{
	for (struct callback *one = lanes.callbacks; one; one = one->next) {
		if (one->seq == seq)
			one->returned = true;
	}
	pthread_cond_broadcast(&lanes.ordered);
}

/* Runs on a thread of the driver's: the program runs its function, and the stream waits. */
static void call_back(struct callback *callback, uint32_t result)
{
	const struct call_callback told = { .cookie = callback->cookie, .result = result };

	pthread_mutex_lock(&lanes.lock);
	callback->seq = ++lanes.calledback;
	callback->next = lanes.callbacks;
	lanes.callbacks = callback;
	pthread_mutex_unlock(&lanes.lock);
	bool sent = connection_send(DIVVY_REMOTE_CALLBACK, callback->seq, 0, &told, sizeof(told));

	pthread_mutex_lock(&lanes.lock);
	while (sent && !callback->returned && !lanes.over)
		pthread_cond_wait(&lanes.ordered, &lanes.lock);
	struct callback **at = &lanes.callbacks;

	while (*at != callback)
		at = &(*at)->next;
	*at = callback->next;
	pthread_mutex_unlock(&lanes.lock);
	__atomic_fetch_sub(&lanes.expected, 1, __ATOMIC_RELAXED);
	free(callback);
}

static void host_function(void *data)
{
	call_back(data, CUDA_SUCCESS);
}

static void stream_function(CUstream stream, CUresult result, void *data)
{
	(void)stream;
	call_back(data, (uint32_t)result);
}

uint64_t worker_callback(const struct worker_call *call, const struct call_callback *want, uint64_t stream)
{
	struct callback *callback = calloc(1, sizeof(*callback));
	CUresult result;

	if (!callback)
		return CUDA_ERROR_OUT_OF_MEMORY;
	callback->cookie = want->cookie;
	__atomic_fetch_add(&lanes.expected, 1, __ATOMIC_RELAXED);
	void *function = worker_function(call->number, call->twin);

	if (call->number == CALL_cuLaunchHostFunc)
		result = ((__typeof__(&cuLaunchHostFunc))function)((CUstream)(uintptr_t)stream, host_function, callback);
	else
		result = ((__typeof__(&cuStreamAddCallback))function)((CUstream)(uintptr_t)stream, stream_function, callback, 0);
	if (result != CUDA_SUCCESS) {
		__atomic_fetch_sub(&lanes.expected, 1, __ATOMIC_RELAXED);
		free(callback);
	}
	return result;
}

/* The lane of a frame, with a thread of its own when it is new; the lock is held. */
static struct worker_lane *lane_of(uint32_t number)
{
	pthread_t thread;

	if (lanes.at[number])
		return lanes.at[number];
	struct worker_lane *lane = calloc(1, sizeof(*lane));

	if (!lane)
		return NULL;
	lane->number = number;
	lanes.at[number] = lane;
	lanes.count++;
	if (lanes.count > 1) { /* the first is the main thread's */
		if (pthread_create(&thread, NULL, run_lane, lane) != 0)
			return NULL;
		pthread_detach(thread);
	}
	return lane;
}

static void hand(struct worker_lane *lane, struct frame *frame)
{
	if (lane->last)
		lane->last->next = frame;
	else
		lane->first = frame;
	lane->last = frame;
	pthread_cond_broadcast(&lanes.idle);
}

static bool functions_run(void)
{
	return __atomic_load_n(&lanes.expected, __ATOMIC_RELAXED) != 0;
}

/* Calls that only ask come back soon. Any other may wait for a host function, of which the
 * connection tells that it has returned. */
static bool may_wait(const struct frame *frame)
{
	unsigned int op = frame->header.op;

	if (functions_run() && op >= DIVVY_REMOTE_FIRST_CALL)
		return true;
	return !(frame->header.flags & DIVVY_REMOTE_ONE_WAY) && op >= DIVVY_REMOTE_FIRST_CALL && !worker_asks(op - DIVVY_REMOTE_FIRST_CALL);
}

/* Waits for a call's turn and makes it; the lock is held, and let go meanwhile. */
static void take_turn(struct worker_lane *lane, struct frame *frame)
{
	bool oneway = frame->header.flags & DIVVY_REMOTE_ONE_WAY, waits = may_wait(frame);

	lanes.waiting += waits;
	if (waits && !lanes.reading && lanes.waiting == lanes.count)
		pthread_cond_broadcast(&lanes.idle);
	while (lanes.made < frame->after && !lanes.over)
		pthread_cond_wait(&lanes.ordered, &lanes.lock);
	if (!lanes.over) {
		pthread_mutex_unlock(&lanes.lock);
		bool goes = worker_execute(lane, frame);

		pthread_mutex_lock(&lanes.lock);
		lanes.made += oneway;
		if (oneway && lanes.count > 1)
			pthread_cond_broadcast(&lanes.ordered);
		if (!goes)
			end_session();
	}
	lanes.waiting -= waits;
	if (frame->own)
		free(frame);
}

/* Out of the buffer, which is going to be read into. */
static struct frame *copied(const struct frame *frame)
{
	struct frame *own = malloc(sizeof(*own) + frame->header.length);

	if (own) {
		*own = *frame;
		own->own = true;
		own->payload = own->bytes;
		memcpy(own->bytes, frame->payload, frame->header.length);
	}
	return own;
}

/* Reads a frame and deals with it, or hands it on; the lock is held, the role is ours.
 * lane NULL: the spare thread. */
static void lead(struct worker_lane *lane)
{
	struct frame inplace;
	bool alone = lanes.count == 1 && lane, goes = true;
	uint64_t made = 0;

	pthread_mutex_unlock(&lanes.lock);
	struct frame *frame = read_frame(alone ? &inplace : NULL);

	/* one lane, one-way calls, and more of them at hand: nobody waits for a turn */
	while (alone && frame && goes && !functions_run() && frame->header.lane == lane->number && frame->header.flags & DIVVY_REMOTE_ONE_WAY) {
		goes = worker_execute(lane, frame);
		made++;
		if (frame->own)
			free(frame);
		frame = NULL;
		if (!goes || !connection_has(sizeof(struct divvy_remote_frame)))
			break;
		frame = read_frame(&inplace);
		if (!frame)
			goes = false;
	}
	pthread_mutex_lock(&lanes.lock);
	lanes.made += made;
	if (made && (!frame || !goes)) {
		lanes.reading = false;
		if (!goes)
			end_session();
		return;
	}

	if (frame && !frame->header.lane) {
		if (frame->header.op == DIVVY_REMOTE_RETURNED)
			returned(frame->header.seq);
		if (frame->own)
			free(frame);
		lanes.reading = false;
		pthread_cond_broadcast(&lanes.idle); /* a lane may have come to want the role meanwhile */
		return;
	}
	struct worker_lane *its = frame ? lane_of(frame->header.lane) : NULL;

	if (its && its == lane && lanes.count == 1 && !may_wait(frame)) {
		take_turn(lane, frame);
		lanes.reading = false;
		return;
	}
	if (its && !frame->own)
		frame = copied(frame);
	lanes.reading = false;
	if (!its || !frame) {
		end_session();
	} else if (its == lane && !lane->first) {
		pthread_cond_broadcast(&lanes.idle);
		take_turn(lane, frame);
	} else {
		hand(its, frame);
	}
}

/* Reads on while all lanes are busy with calls that may wait for one that has not come. */
static void *run_spare(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lanes.lock);
	while (!lanes.over) {
		if (!lanes.reading && lanes.count && lanes.waiting == lanes.count) {
			lanes.reading = true;
			lead(NULL);
		} else {
			pthread_cond_wait(&lanes.idle, &lanes.lock);
		}
	}
	pthread_mutex_unlock(&lanes.lock);
	return NULL;
}

static void *run_lane(void *argument)
{
	struct worker_lane *lane = argument;

	pthread_mutex_lock(&lanes.lock);
	while (!lanes.over) {
		struct frame *frame = lane->first;

		if (frame) {
			lane->first = frame->next;
			if (!lane->first)
				lane->last = NULL;
			take_turn(lane, frame);
		} else if (!lanes.reading) {
			lanes.reading = true;
			lead(lane);
		} else {
			pthread_cond_wait(&lanes.idle, &lanes.lock);
		}
	}
	pthread_mutex_unlock(&lanes.lock);
	return NULL;
}

void worker_run_lanes(void)
{
	pthread_t spare;

	if (pthread_create(&spare, NULL, run_spare, NULL) != 0)
		return;
	/* the calling thread is that of the first lane that calls */
	pthread_mutex_lock(&lanes.lock);
	struct frame *frame = read_frame(NULL);
	struct worker_lane *lane = frame && frame->header.lane ? lane_of(frame->header.lane) : NULL;

	if (lane)
		hand(lane, frame);
	pthread_mutex_unlock(&lanes.lock);
	if (lane)
		run_lane(lane);
}
