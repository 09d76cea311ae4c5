/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostfunction.c: the thread that runs host functions and stream callbacks. It
 * starts with the first of them, takes no signals and never ends by itself.
 */
#include "hostfunction.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "enter.h"
#include "fault.h"
#include "order.h"

enum { WORKER_STACK = 1 << 20 };

struct item {
	struct item *next;
	struct sd_callback callback;
	const struct sd_context *context; /* whose stream */
	uint64_t contextid;
	uint64_t ready; /* the item it comes after */
	uint64_t gate;  /* the item that ends when it returns */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t change;
	struct item *first;
	struct item **last;
	uint64_t queued;
	uint64_t done;
	uint64_t early; /* the last one without a gate */
	bool started;
} queue = { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER };

/* In a context with a fault a callback is told of it, and a host function is not
 * called any more. The lock is not held. */
static void call(const struct item *item)
{
	const struct sd_callback *callback = &item->callback;

	sd_await_unlocked(item->ready);
	sd_lock();
	CUresult status = sd_context_still(item->context, item->contextid, CUDA_SUCCESS);

	sd_unlock();
	if (callback->callback)
		callback->callback(callback->stream, status, callback->data);
	else if (status == CUDA_SUCCESS)
		callback->function(callback->data);
	sd_order_open(item->gate);
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
		call(item);
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

/* Its ticket, or 0: there is no thread for it. */
static uint64_t queue_up(const struct item *item)
{
	struct item *own = malloc(sizeof(*own));
	uint64_t ticket = 0;

	pthread_mutex_lock(&queue.lock);
	if (!queue.started) {
		queue.last = &queue.first;
		queue.started = start();
	}
	if (own && queue.started) {
		*own = *item;
		*queue.last = own;
		queue.last = &own->next;
		ticket = ++queue.queued;
		if (!own->gate)
			queue.early = ticket;
		pthread_cond_broadcast(&queue.change);
	}
	pthread_mutex_unlock(&queue.lock);
	if (!ticket)
		free(own);
	return ticket;
}

CUresult sd_callback_queue(struct sd_stream *stream, const struct sd_callback *callback)
{
	struct item item = { .callback = *callback, .context = stream->context, .contextid = stream->context->object.id };
	uint64_t id = stream->object.id;
	CUresult result = sd_order_gate(stream, &item.ready, &item.gate);

	if (result != CUDA_SUCCESS)
		return result;
	uint64_t ticket = queue_up(&item);

	if (!ticket) {
		sd_unlock();
		call(&item);
		sd_lock();
	} else if (sd_object_get(stream, SD_STREAM) == stream && stream->object.id == id) {
		stream->ticket = ticket; /* the lock may have been released for the gate */
	}
	return CUDA_SUCCESS;
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

bool sd_tickets_early(void)
{
	pthread_mutex_lock(&queue.lock);
	bool pending = queue.done < queue.early;

	pthread_mutex_unlock(&queue.lock);
	return pending;
}

void sd_stream_drain(const struct sd_stream *stream)
{
	/* the usual case first: no host function has ever been queued */
	if (sd_ticket_last())
		sd_ticket_wait(sd_stream_ticket(stream));
}

CUresult sd_stream_drain_all(void)
{
	sd_ticket_wait(sd_ticket_last());
	CUresult result = sd_await_all();

	sd_kernels_settle();
	return result;
}
