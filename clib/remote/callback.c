/* SPDX-License-Identifier: Apache-2.0 */
/*
 * callback.c: host functions of streams. The worker says when one's turn is; a thread of
 * the library's own runs it, and the stream goes on when it has returned.
 */
#include "remote.h"

#include <pthread.h>
#include <stdlib.h>

#include "payload.h"
#include "thread.h"

struct callback {
	CUhostFn function;
	CUstreamCallback streamfunction; /* instead */
	CUstream stream;
	void *data;
	uint64_t cookie;
	uint64_t seq;    /* of the CALLBACK frame */
	uint32_t result;
	struct callback *next;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t some;
	bool started;
	uint64_t cookies;
	struct callback *expected;
	struct callback *first, *last;
} due = { .lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER };

static void *run(void *unused)
{
	(void)unused;
	for (;;) {
		pthread_mutex_lock(&due.lock);
		while (!due.first)
			pthread_cond_wait(&due.some, &due.lock);
		struct callback *callback = due.first;

		due.first = callback->next;
		if (!due.first)
			due.last = NULL;
		pthread_mutex_unlock(&due.lock);
		if (callback->streamfunction)
			callback->streamfunction(callback->stream, (CUresult)callback->result, callback->data);
		else
			callback->function(callback->data);
		remote_returned(callback->seq);
		free(callback);
	}
	return NULL;
}

/* Takes out the callback of a cookie; the lock is held. What the worker says is a number,
 * never an address. */
static struct callback *take_expected(uint64_t cookie)
{
	for (struct callback **at = &due.expected; *at; at = &(*at)->next) {
		struct callback *callback = *at;

		if (callback->cookie == cookie) {
			*at = callback->next;
			return callback;
		}
	}
	return NULL;
}

void remote_due(uint64_t seq, const struct call_callback *told)
{
	pthread_mutex_lock(&due.lock);
	struct callback *callback = take_expected(told->cookie);

	if (callback) {
		callback->seq = seq;
		callback->result = told->result;
		callback->next = NULL;
		if (due.last)
			due.last->next = callback;
		else
			due.first = callback;
		due.last = callback;
		pthread_cond_signal(&due.some);
	}
	pthread_mutex_unlock(&due.lock);
}

static CUresult add(unsigned int number, CUstream stream, CUhostFn function, CUstreamCallback streamfunction, void *data, unsigned int flags)
{
	struct remote_lane *lane = remote_lane();
	struct callback *callback = calloc(1, sizeof(*callback));

	if (!lane || !callback) {
		free(callback);
		return lane ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_INITIALIZED;
	}
	pthread_mutex_lock(&due.lock);
	if (!due.started)
		due.started = guest_thread_start(run, NULL) == 0;
	bool started = due.started;

	*callback = (struct callback){
		.function = function, .streamfunction = streamfunction, .stream = stream, .data = data, .cookie = ++due.cookies, .next = due.expected,
	};
	due.expected = callback;
	const struct call_callback want = { .stream = WORD(stream), .cookie = callback->cookie, .flags = flags };

	pthread_mutex_unlock(&due.lock);

	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	remote_expect(1);
	if (started && remote_begin(lane) && remote_put(&lane->out, &want, sizeof(want)))
		result = (CUresult)remote_finish(lane, number);
	if (result != CUDA_SUCCESS) {
		pthread_mutex_lock(&due.lock);
		callback = take_expected(want.cookie);
		pthread_mutex_unlock(&due.lock);
		free(callback); /* NULL: it has had its turn all the same */
		if (callback)
			remote_expect(-1);
	}
	return result;
}

EXPORT CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	return fn ? add(CALL_cuLaunchHostFunc, hStream, fn, NULL, userData, 0) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
	if (!callback || flags)
		return CUDA_ERROR_INVALID_VALUE;
	return add(CALL_cuStreamAddCallback, hStream, NULL, callback, userData, flags);
}
