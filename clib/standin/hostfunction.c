/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostfunction.c: the thread that runs host functions and stream callbacks. It
 * starts with the first of them, takes no signals and never ends by itself.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "fault.h"
#include "order.h"
#include "stream.h"

enum { WORKER_STACK = 1 << 20 };

struct item {
	struct item *next;
	struct sd_callback callback;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t change;
	struct item *first;
	struct item **last;
	uint64_t queued;
	uint64_t done;
	bool started;
} queue = { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER };

/* In a context with a fault a callback is told of it, and a host function is not
 * called any more. The lock is not held. */
static void call(const struct sd_callback *callback)
{
	CUresult status = CUDA_SUCCESS;

	sd_await_unlocked(callback->ready);
	if (callback->context) {
		sd_lock();
		status = sd_context_still(callback->context, callback->contextid, CUDA_SUCCESS);
		sd_unlock();
	}
	if (callback->callback)
		callback->callback(callback->stream, status, callback->data);
	else if (status == CUDA_SUCCESS)
		callback->function(callback->data);
	sd_order_open(callback->gate);
}

static void *work(void *unused)
{
	struct sd_thread *thread = sd_thread();

	(void)unused;
	if (thread)
		thread->worker = true;
	pthread_mutex_lock(&queue.lock);
	for (;;) {
		while (!queue.first)
			pthread_cond_wait(&queue.change, &queue.lock);
		struct item *item = queue.first;

		queue.first = item->next;
		if (!queue.first)
			queue.last = &queue.first;
		pthread_mutex_unlock(&queue.lock);
		call(&item->callback);
		free(item);
		pthread_mutex_lock(&queue.lock);
		queue.done++;
		pthread_cond_broadcast(&queue.change);
	}
	return NULL;
}

static bool start(void)
{
	pthread_t thread;
	pthread_attr_t attributes;
	sigset_t all;
	sigset_t before;

	if (pthread_attr_init(&attributes) != 0)
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, WORKER_STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&thread, &attributes, work, NULL);

	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return error == 0;
}

uint64_t sd_callback_queue(const struct sd_callback *callback)
{
	struct item *item = calloc(1, sizeof(*item));
	uint64_t ticket = 0;

	pthread_mutex_lock(&queue.lock);
	if (!queue.started) {
		queue.last = &queue.first;
		queue.started = start();
	}
	if (item && queue.started) {
		item->callback = *callback;
		*queue.last = item;
		queue.last = &item->next;
		ticket = ++queue.queued;
		pthread_cond_broadcast(&queue.change);
	}
	pthread_mutex_unlock(&queue.lock);
	if (ticket)
		return ticket;
	free(item);
	sd_unlock();
	call(callback);
	sd_lock();
	return 0;
}

bool sd_ticket_done(uint64_t ticket)
{
	pthread_mutex_lock(&queue.lock);
	bool done = queue.done >= ticket;

	pthread_mutex_unlock(&queue.lock);
	return done;
}

void sd_ticket_wait(uint64_t ticket)
{
	if (sd_ticket_done(ticket))
		return;
	sd_unlock();
	pthread_mutex_lock(&queue.lock);
	while (queue.done < ticket)
		pthread_cond_wait(&queue.change, &queue.lock);
	pthread_mutex_unlock(&queue.lock);
	sd_lock();
}

uint64_t sd_ticket_last(void)
{
	pthread_mutex_lock(&queue.lock);
	uint64_t last = queue.queued;

	pthread_mutex_unlock(&queue.lock);
	return last;
}
