/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.c: the connection to the worker, and the threads that share it.
 *
 * Whoever sends holds the send lock for one frame. One-way calls gather in a buffer that
 * goes out with the next call that waits, when it is full, at once when the connection
 * has been quiet, and else when the library's own thread finds it. Whoever waits for a
 * reply reads from the connection when nobody else does, and hands the others theirs.
 */
#include "remote.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "compat.h"
#include "incoming.h"
#include "payload.h"
#include "session.h"
#include "thread.h"

#define GATHERED_BYTES 65536
#define QUIET_NS 30000       /* a connection is quiet when nothing was sent for so long */
#define GATHER_NS 50000      /* how long one-way calls may wait for others */
#define FLOOD_BYTES 2048     /* of calls in that time: so many come that they wait for a full buffer, and */
#define FLOOD_NS 200000      /* not for longer than that. What was sent before keeps the GPU busy meanwhile. */
#define LOOK_NS 100000000    /* how often an idle program's connection is looked at */
#define EXPECT_NS 200000     /* the same, while host functions are to come */

static struct {
	int fd;
	uint32_t lost;

	pthread_mutex_t send;
	uint64_t seq; /* of the last frame; read without the lock, too */
	uint8_t gathered[GATHERED_BYTES];
	size_t length;
	uint64_t sentns;       /* when something was last written */
	uint64_t firstns;      /* when the first call of what is gathered came */
	pthread_cond_t waiting; /* something is gathered, for the library's own thread */

	pthread_mutex_t receive;
	pthread_cond_t changed;
	bool reading;
	uint32_t lanes;
	struct remote_lane *lane[DIVVY_REMOTE_MAX_LANES + 1];
	int expected;          /* host functions; atomic */
	uint64_t heard;        /* of them, so far; atomic */
} session = {
	.fd = -1,
	.send = PTHREAD_MUTEX_INITIALIZER,
	.receive = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
};

enum { DATA_BYTES = 1 << 20 };

uint64_t remote_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* The session is over: every call says so from now on. Once, one line says why. */
static void lose(const char *why, uint64_t number)
{
	uint32_t before = 0;

	if (!__atomic_compare_exchange_n(&session.lost, &before, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return;
	shutdown(session.fd, SHUT_RDWR);
	remote_say("the connection to the GPU is lost: %s (last call: %s)", why, call_name((unsigned int)number));
}

static bool is_lost(void)
{
	return __atomic_load_n(&session.lost, __ATOMIC_ACQUIRE) != 0;
}

uint64_t remote_lost(unsigned int number)
{
	return call_is_nvml(number) ? NVML_ERROR_UNKNOWN : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

/* Sending. */

static bool write_all(const uint8_t *bytes, size_t length)
{
	while (length) {
		ssize_t n = send(session.fd, bytes, length, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		bytes += n;
		length -= (size_t)n;
	}
	return true;
}

/* The send lock is held. */
static bool flush(void)
{
	size_t length = session.length;

	if (!length)
		return true;
	session.length = 0;
	session.sentns = remote_now();
	return write_all(session.gathered, length);
}

/* How long what is gathered may wait: so long if it is little. */
static uint64_t patience(uint64_t little)
{
	return session.length < FLOOD_BYTES ? little : FLOOD_NS;
}

/* Appends a frame; the send lock is held. */
static bool append(const uint8_t *frame, size_t length)
{
	if (length > GATHERED_BYTES - session.length && !flush())
		return false;
	if (length > GATHERED_BYTES) {
		session.sentns = remote_now();
		return write_all(frame, length);
	}
	memcpy(session.gathered + session.length, frame, length);
	session.length += length;
	return true;
}

static uint64_t header(uint8_t *at, size_t length, unsigned int op, unsigned int flags, uint32_t lane)
{
	struct divvy_remote_frame frame = {
		.length = (uint32_t)(length - sizeof(frame)),
		.op = (uint16_t)op,
		.flags = (uint16_t)flags,
		.seq = __atomic_add_fetch(&session.seq, 1, __ATOMIC_RELAXED),
		.lane = lane,
	};

	memcpy(at, &frame, sizeof(frame));
	return frame.seq;
}

/* The worker learns which context is current to the lane before the next call that it
 * gets; the send lock is held. */
static bool tell_context(struct remote_lane *lane)
{
	uint8_t frame[sizeof(struct divvy_remote_frame) + sizeof(uint64_t)];
	uint64_t current = remote_current(lane);

	if (current == lane->told)
		return true;
	header(frame, sizeof(frame), DIVVY_REMOTE_CONTEXT, DIVVY_REMOTE_ONE_WAY, lane->number);
	memcpy(frame + sizeof(struct divvy_remote_frame), &current, sizeof(current));
	lane->told = current;
	return append(frame, sizeof(frame));
}

static unsigned int flags_of(const struct remote_lane *lane, unsigned int flags)
{
	return flags | (lane->twin ? DIVVY_REMOTE_TWIN : 0);
}

uint64_t remote_sent(void)
{
	return __atomic_load_n(&session.seq, __ATOMIC_RELAXED);
}

uint64_t remote_heard(void)
{
	return __atomic_load_n(&session.heard, __ATOMIC_ACQUIRE);
}

bool remote_begin(struct remote_lane *lane)
{
	lane->out.length = 0;
	if (!remote_room(&lane->out, sizeof(struct divvy_remote_frame)))
		return false;
	lane->out.length = sizeof(struct divvy_remote_frame);
	return true;
}

int remote_send_one_way(struct remote_lane *lane, unsigned int number)
{
	if (is_lost())
		return -1;
	pthread_mutex_lock(&session.send);
	bool first = session.length == 0, sent = tell_context(lane);

	header(lane->out.at, lane->out.length, DIVVY_REMOTE_FIRST_CALL + number, flags_of(lane, DIVVY_REMOTE_ONE_WAY), lane->number);
	sent = sent && append(lane->out.at, lane->out.length);
	uint64_t now = remote_now();
	if (sent && session.length && now - session.sentns > patience(QUIET_NS)) {
		sent = flush();
	} else if (first) {
		session.firstns = now;
		pthread_cond_signal(&session.waiting); /* no system call where nobody waits */
	}
	pthread_mutex_unlock(&session.send);
	if (!sent)
		lose(strerror(errno), number);
	return sent ? 0 : -1;
}

bool remote_send_data(struct remote_lane *lane, const void *bytes, size_t length)
{
	const uint8_t *at = bytes;
	uint8_t frame[sizeof(struct divvy_remote_frame)];
	bool sent = !is_lost();

	remote_drop_reads(lane);
	while (length && sent) {
		size_t part = length < DATA_BYTES ? length : DATA_BYTES;

		pthread_mutex_lock(&session.send);
		header(frame, sizeof(frame) + part, DIVVY_REMOTE_DATA, DIVVY_REMOTE_ONE_WAY, lane->number);
		sent = append(frame, sizeof(frame)) && flush() && write_all(at, part);
		pthread_mutex_unlock(&session.send);
		at += part;
		length -= part;
	}
	if (!sent)
		lose(strerror(errno), 0);
	return sent;
}

/* Receiving. */

/* The copy ahead that a frame is of; NULL: it is of the call that is awaited, or of none. */
static struct remote_ahead *ahead_of(struct remote_lane *lane, uint64_t seq)
{
	for (int i = 0; lane && seq && i < REMOTE_AHEAD; i++) {
		if (lane->ahead[i].seq == seq && !lane->ahead[i].replied)
			return &lane->ahead[i];
	}
	return NULL;
}

static const char *read_ahead(struct remote_ahead *ahead, const struct divvy_remote_frame *frame)
{
	uint64_t result;

	if (frame->op == DIVVY_REMOTE_DATA) {
		if (frame->length > ahead->left)
			return "it sent bytes that were not asked for";
		if (!incoming_take(ahead->data + (ahead->bytes - ahead->left), frame->length))
			return strerror(errno);
		ahead->left -= frame->length;
		return NULL;
	}
	if (frame->length < sizeof(result))
		return "its answer cannot be kept";
	if (!incoming_take(&result, sizeof(result)) || !incoming_skip(frame->length - sizeof(result)))
		return strerror(errno);
	pthread_mutex_lock(&session.receive);
	ahead->result = result;
	ahead->replied = true;
	pthread_mutex_unlock(&session.receive);
	return NULL;
}

/* Reads one frame and gives it to whom it is for. Only who has the reading role calls it;
 * the receive lock is not held. NULL in why: the frame was fine. */
static const char *read_frame(void)
{
	struct divvy_remote_frame frame;
	struct remote_lane *lane = NULL;
	struct remote_ahead *ahead = NULL;
	uint64_t awaited = 0;

	if (!incoming_take(&frame, sizeof(frame)))
		return strerror(errno);
	if (frame.length > DIVVY_REMOTE_MAX_PAYLOAD)
		return "it sent a frame that is too long";
	pthread_mutex_lock(&session.receive);
	if (frame.lane && frame.lane <= session.lanes)
		lane = session.lane[frame.lane];
	if (frame.op == DIVVY_REMOTE_REPLY || frame.op == DIVVY_REMOTE_DATA)
		ahead = ahead_of(lane, frame.seq);
	if (lane && !lane->replied)
		awaited = lane->awaited;
	pthread_mutex_unlock(&session.receive);
	if (ahead)
		return read_ahead(ahead, &frame);
	switch (frame.op) {
	case DIVVY_REMOTE_REPLY:
		if (!awaited || frame.seq != awaited)
			return "it answered a call that was not made";
		lane->in.length = 0;
		if (frame.length < sizeof(uint64_t) || !remote_room(&lane->in, frame.length))
			return "its answer cannot be kept";
		if (!incoming_take(lane->in.at, frame.length))
			return strerror(errno);
		lane->in.length = frame.length;
		pthread_mutex_lock(&session.receive);
		lane->replied = true;
		pthread_mutex_unlock(&session.receive);
		return NULL;
	case DIVVY_REMOTE_DATA:
		if (!awaited || frame.length > lane->dataleft)
			return "it sent bytes that were not asked for";
		if (!incoming_take(lane->data, frame.length))
			return strerror(errno);
		lane->data += frame.length;
		lane->dataleft -= frame.length;
		return NULL;
	case DIVVY_REMOTE_ERROR: {
		struct divvy_remote_failure failure;

		if (frame.length != sizeof(failure))
			return "it sent a failure that is not understood";
		if (!incoming_take(&failure, sizeof(failure)))
			return strerror(errno);
		remote_failed(&failure);
		return NULL;
	}
	case DIVVY_REMOTE_CALLBACK: {
		struct call_callback told;

		if (frame.length != sizeof(told))
			return "it sent a callback that is not understood";
		if (!incoming_take(&told, sizeof(told)))
			return strerror(errno);
		__atomic_fetch_add(&session.heard, 1, __ATOMIC_RELEASE);
		remote_due(frame.seq, &told);
		return NULL;
	}
	case DIVVY_REMOTE_PRINT:
		return incoming_print(frame.length) ? NULL : strerror(errno);
	default: /* of a newer version, or a sign of life */
		return incoming_skip(frame.length) ? NULL : strerror(errno);
	}
}

/* Until done is true, or the session is lost; the receive lock is held. */
static void await(const bool *done, unsigned int number)
{
	while (!*done && !is_lost()) {
		if (session.reading) {
			pthread_cond_wait(&session.changed, &session.receive);
			continue;
		}
		session.reading = true;
		pthread_mutex_unlock(&session.receive);
		const char *why = read_frame();

		if (why)
			lose(why, number);
		pthread_mutex_lock(&session.receive);
		session.reading = false;
		if (session.lanes > 1)
			pthread_cond_broadcast(&session.changed);
	}
	while (!*done && session.reading) /* what is lost may yet be read into the program's memory */
		pthread_cond_wait(&session.changed, &session.receive);
	pthread_cond_broadcast(&session.changed); /* somebody else reads on */
}

/* Puts the call in the lane's out behind those that wait to be sent. Its reply is awaited, or
 * comes into ahead, its bytes into room. */
bool remote_send_ahead(struct remote_lane *lane, unsigned int number, struct remote_ahead *ahead, uint8_t *room, size_t bytes)
{
	if (is_lost())
		return false;
	pthread_mutex_lock(&session.send);
	bool sent = tell_context(lane);
	uint64_t seq = header(lane->out.at, lane->out.length, DIVVY_REMOTE_FIRST_CALL + number,
			      flags_of(lane, ahead ? DIVVY_REMOTE_AHEAD : 0), lane->number);

	pthread_mutex_lock(&session.receive);
	if (ahead) {
		*ahead = (struct remote_ahead){ .seq = seq, .data = room, .bytes = bytes, .left = bytes };
	} else {
		lane->awaited = seq;
		lane->replied = false;
	}
	pthread_mutex_unlock(&session.receive);
	sent = sent && append(lane->out.at, lane->out.length);
	pthread_mutex_unlock(&session.send);
	if (!sent)
		lose(strerror(errno), number); /* what the worker said before it hung up may say why */
	return sent;
}

bool remote_ask(struct remote_lane *lane, unsigned int number)
{
	return remote_send_ahead(lane, number, NULL, NULL, 0);
}

bool remote_await(struct remote_lane *lane, unsigned int number)
{
	pthread_mutex_lock(&session.send);
	if (!flush())
		lose(strerror(errno), number);
	pthread_mutex_unlock(&session.send);
	pthread_mutex_lock(&session.receive);
	await(&lane->replied, number);
	bool replied = lane->replied;

	lane->awaited = 0;
	lane->replied = false;
	lane->dataleft = 0;
	pthread_mutex_unlock(&session.receive);
	return replied;
}

bool remote_await_ahead(struct remote_ahead *ahead, unsigned int number)
{
	pthread_mutex_lock(&session.receive);
	await(&ahead->replied, number);
	bool replied = ahead->replied;

	pthread_mutex_unlock(&session.receive);
	return replied;
}

void remote_end_ahead(struct remote_ahead *ahead)
{
	free(ahead->data);
	pthread_mutex_lock(&session.receive);
	*ahead = (struct remote_ahead){ 0 };
	pthread_mutex_unlock(&session.receive);
}

/* Waits until calls are gathered, or a while; the send lock is held. */
static void wait_for_calls(uint64_t ns)
{
	uint64_t until = remote_now() + ns;
	struct timespec time = { .tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u) };

	pthread_cond_timedwait(&session.waiting, &session.send, &time);
}

/* Reads what has come, if nobody else does. */
static void look(void)
{
	struct pollfd ready = { .fd = session.fd, .events = POLLIN };

	pthread_mutex_lock(&session.receive);
	if (!session.reading && (incoming_waits() || poll(&ready, 1, 0) > 0)) {
		session.reading = true;
		pthread_mutex_unlock(&session.receive);
		const char *why = read_frame();

		if (why)
			lose(why, 0);
		pthread_mutex_lock(&session.receive);
		session.reading = false;
		pthread_cond_broadcast(&session.changed);
	}
	pthread_mutex_unlock(&session.receive);
}

/* Sends what has been gathered for long enough, and returns for how many ns what is left may
 * wait; the send lock is held. */
static long send_due(void)
{
	long rest = (long)(session.firstns + patience(GATHER_NS) - remote_now());

	if (session.length && rest > 0)
		return rest;
	if (!flush())
		lose(strerror(errno), 0);
	return 0;
}

/* The library's own thread: one-way calls that nobody follows up go out, and failures of
 * them come in. In a flood of calls it is not woken for each batch of them. */
static void *attend(void *unused)
{
	(void)unused;
	while (!is_lost()) {
		pthread_mutex_lock(&session.send);
		if (!session.length)
			wait_for_calls(__atomic_load_n(&session.expected, __ATOMIC_RELAXED) > 0 ? EXPECT_NS : LOOK_NS);
		struct timespec rest = { .tv_nsec = send_due() };

		pthread_mutex_unlock(&session.send);
		if (rest.tv_nsec)
			nanosleep(&rest, NULL);
		look();
	}
	return NULL;
}

void remote_expect(int more)
{
	__atomic_fetch_add(&session.expected, more, __ATOMIC_RELAXED);
	pthread_mutex_lock(&session.send);
	pthread_cond_signal(&session.waiting);
	pthread_mutex_unlock(&session.send);
}

void remote_returned(uint64_t seq)
{
	struct divvy_remote_frame frame = { .op = DIVVY_REMOTE_RETURNED, .seq = seq, .lane = DIVVY_REMOTE_NO_LANE };

	__atomic_fetch_sub(&session.expected, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&session.send);
	bool sent = !is_lost() && append((const uint8_t *)&frame, sizeof(frame)) && flush();
	pthread_mutex_unlock(&session.send);
	if (!sent)
		lose(strerror(errno), 0);
}

/* Beginning and end, for open.c. */

bool session_connect(int fd)
{
	pthread_condattr_t monotonic;

	session.seq = 0;
	session.fd = fd;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&session.waiting, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return incoming_open(fd);
}

void session_disconnect(void)
{
	close(session.fd);
	session.fd = -1;
}

bool session_write(unsigned int op, const void *payload, size_t length)
{
	uint8_t frame[sizeof(struct divvy_remote_frame) + 256];

	if (length > sizeof(frame) - sizeof(struct divvy_remote_frame))
		return false;
	header(frame, sizeof(struct divvy_remote_frame) + length, op, 0, 0);
	memcpy(frame + sizeof(struct divvy_remote_frame), payload, length);
	return write_all(frame, sizeof(struct divvy_remote_frame) + length);
}

bool session_read(void *to, size_t length)
{
	return incoming_take(to, length);
}

bool session_start(void)
{
	session.sentns = remote_now();
	return guest_thread_start(attend, NULL) == 0;
}

bool session_enter(struct remote_lane *lane)
{
	pthread_mutex_lock(&session.receive);
	if (session.lanes < DIVVY_REMOTE_MAX_LANES) {
		lane->number = ++session.lanes;
	} else {
		for (uint32_t i = 1; i <= session.lanes && !lane->number; i++)
			lane->number = session.lane[i] ? 0 : i;
	}
	if (lane->number)
		session.lane[lane->number] = lane;
	pthread_mutex_unlock(&session.receive);
	return lane->number != 0;
}

void session_leave(struct remote_lane *lane)
{
	uint8_t frame[sizeof(struct divvy_remote_frame)];

	if (!is_lost()) {
		pthread_mutex_lock(&session.send);
		header(frame, sizeof(frame), DIVVY_REMOTE_THREAD_ENDED, DIVVY_REMOTE_ONE_WAY, lane->number);
		if (!append(frame, sizeof(frame)) || !flush())
			lose(strerror(errno), 0);
		pthread_mutex_unlock(&session.send);
	}
	pthread_mutex_lock(&session.receive);
	session.lane[lane->number] = NULL;
	pthread_mutex_unlock(&session.receive);
}
