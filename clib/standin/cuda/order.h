/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h: modelled time, from a process's side: what it launches becomes items
 * in the ring that the simulator reads (divvy_sim.h), and streams, events and
 * synchronisation are numbers of items.
 *
 * There is no ring before the first launch, and a program that launches nothing
 * never asks for one: then every number is 0 and 0 has always ended.
 *
 * The driver's lock is held around every call. Those that may wait release it
 * meanwhile and say so: look things up again afterwards.
 */
#ifndef DIVVY_STANDIN_ORDER_H
#define DIVVY_STANDIN_ORDER_H

#include "context.h"

struct sd_event;
struct sd_stream;

/* Whether there is a ring; and makes one. */
bool sd_timed(void);
CUresult sd_order_start(void);

/* A kernel of so many nanoseconds on a card, after what is in the stream, whose threads did so
 * many instructions. May wait for room. The stream may be gone afterwards, which is no error. */
CUresult sd_order_kernel(struct sd_stream *stream, const struct sd_card *card, uint64_t ns, uint64_t instructions);
/* A point in the stream that other streams may come after; nothing when all that
 * it would come after has ended. May wait. */
CUresult sd_order_mark(struct sd_stream *stream);
/* Lets the next item of a stream, or of each in a context, come after another one,
 * too. May wait. */
CUresult sd_order_after(struct sd_stream *stream, uint64_t item);
CUresult sd_order_after_all(struct sd_context *context, uint64_t item);
/* What the stream's next item comes after, from now on. */
void sd_order_put(struct sd_stream *stream, uint64_t item);
/* The items that the stream's next one comes after, in memory of the caller's; false:
 * they are too many. And lets a stream with nothing in it come after items. May wait. */
bool sd_order_before(const struct sd_stream *stream, uint64_t **items, size_t *count);
CUresult sd_order_begin(struct sd_stream *stream, const uint64_t *items, size_t count);
/* An item that comes after both (0: none); one of them where that will do. May wait. */
CUresult sd_order_join(const struct sd_card *card, uint64_t one, uint64_t other, uint64_t *joined);
/* A host function: *ready is what it comes after, *gate what comes after it; both 0
 * without a ring. May wait. */
CUresult sd_order_gate(struct sd_stream *stream, uint64_t *ready, uint64_t *gate);
/* It has returned. The lock is not held. */
void sd_order_open(uint64_t gate);

/* Puts a moment of the stream, or of all in a context, into an event. May wait. */
CUresult sd_order_event(struct sd_stream *stream, struct sd_event *event);
CUresult sd_order_event_all(struct sd_context *context, struct sd_event *event);

/* Whether all items in the stream have ended; waits until they have. */
bool sd_order_done(const struct sd_stream *stream);
/* For how long of the time since then all items in a lane had ended. */
uint64_t sd_order_free(const struct sd_stream *lane, uint64_t since);
CUresult sd_order_await(const struct sd_stream *stream);

/* Waits until an item has ended; or, for all, everything that was ever launched. */
CUresult sd_await(uint64_t item);
CUresult sd_await_all(void);
/* The same for a thread that does not hold the lock. */
void sd_await_unlocked(uint64_t item);

#endif
