/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.h: work that is done after the call that asked for it: a kernel, a host
 * function, and whatever comes after one of them. A step begins when all steps
 * before it have ended, on a thread of the driver's own; steps with nothing between
 * them run at the same time, kernels as far as their card has room.
 *
 * A stream knows its last step (NULL: all it was given has been done), and which
 * item stands for it in modelled time (order.h) is known when the step is `placed`:
 * at once for a host function after work that is placed, for a kernel when it has
 * run, since how long it takes follows from what it did. Work that touches nothing
 * and only takes time may go into the ring as soon as all before it is placed.
 *
 * The driver's lock is held around every call. Those that wait release it
 * meanwhile: look things up again afterwards.
 */
#ifndef DIVVY_STANDIN_QUEUE_H
#define DIVVY_STANDIN_QUEUE_H

#include "stream.h"

enum sd_step_kind {
	SD_STEP_JOIN,   /* comes after several others, and does nothing */
	SD_STEP_COPY,   /* what is no kernel and no host function */
	SD_STEP_KERNEL,
	SD_STEP_HOST,   /* one at a time, on a thread of their own */
};

struct sd_step {
	enum sd_step_kind kind;
	bool placed; /* item stands for it */
	bool done;
	uint64_t item;
	uint64_t readyns;           /* since when it could begin */
	uint64_t latens;            /* for so long the card had done all before, and it was no item yet */
	struct sd_context *context; /* stays as long as the step does */
	/* What it is, in order after what the lane comes after; and what it leaves behind.
	 * Not called in a context with a fault, unless it is a host function. */
	CUresult (*perform)(struct sd_step *step, struct sd_stream *lane);
	void (*end)(struct sd_step *step);
	/* Whether it can begin when all before it has ended; asked again every so often. NULL: it can. */
	bool (*begins)(struct sd_step *step);
	bool stop;         /* kernels: to be ended at once; read without the lock */
	uint64_t blocks;   /* that have not ended; written without the lock */
	uint64_t resident; /* and how many the card holds at once */
	const struct sd_card *card;
	/* queue.c's own */
	struct sd_step *older, *newer; /* of all that are not done */
	struct sd_step *next;          /* of those that can begin, or of those that run */
	uint64_t number;
	unsigned int refs;
	unsigned int waiting; /* for so many others */
	bool early;           /* placed when it was made */
	bool everything;      /* comes after more items than it could name */
	bool counted;         /* in context->blockingsteps */
	struct sd_stream *stream;
	uint64_t streamid;
	uint64_t *after;      /* items */
	size_t aftercount;
	struct sd_step **later; /* that wait for it */
	size_t latercount;
};

/* Whether work put into the stream now comes after a step that is not done; and
 * after one whose item is not known. */
bool sd_stream_busy(const struct sd_stream *stream);
bool sd_stream_open(const struct sd_stream *stream);

/* A step of so many bytes, zeroed, that comes after what the stream's next work comes
 * after and is the stream's last one from now on; NULL without memory. placed: it is,
 * by the stream's last item. Until it is started, more can be put before it. */
struct sd_step *sd_step_new(struct sd_stream *stream, enum sd_step_kind kind, size_t bytes, bool placed);
void sd_step_after(struct sd_step *step, struct sd_step *other, uint64_t item);
/* May do it here and now: when there are no threads to be had. */
void sd_step_start(struct sd_step *step);

/* A thread of the driver's own, without signals, which nobody waits for; false: there is none. */
bool sd_thread_begin(void *(*run)(void *), void *argument);
/* By how much the items of the stream that it was put into have been late so far. */
uint64_t sd_step_late(const struct sd_step *step);
struct sd_step *sd_step_keep(struct sd_step *step); /* may be NULL */
void sd_step_drop(struct sd_step *step);
void sd_step_wait(struct sd_step *step); /* may be NULL */

/* Lets the stream's next work come after an item and after steps, too. May wait. */
CUresult sd_stream_after(struct sd_stream *stream, uint64_t item, struct sd_step *const *steps, size_t count);
/* Waits until the stream is not busy, if it is still there. */
void sd_stream_drain(const struct sd_stream *stream);
/* Frees an object of nobody's once all steps that there are now have ended: they may reach it. */
void sd_queue_free(struct sd_object *object);
/* Waits until there is room for another step. */
void sd_queue_room(void);
/* Waits for all steps that there are now; and for their items, too. */
void sd_queue_settle(void);
CUresult sd_stream_drain_all(void);
void sd_context_idle(struct sd_context *context); /* until it has no steps */
/* Waits for a step to end, or for a while. */
void sd_queue_wait(void);

#endif
