/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.h: the process beside the GPU that makes the calls of one program elsewhere. It
 * runs in the program's share, through the front as any program does, and believes
 * nothing that comes over the connection.
 *
 * Each thread of the program has a thread here, its lane: contexts and the per-thread
 * default stream belong to threads. The threads take turns at reading; whoever reads a
 * frame for another hands it on.
 */
#ifndef WORKER_WORKER_H
#define WORKER_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cuda_abi.h"
#include "divvy_remote.h"
#include "nvml_abi.h"
#include "shape.h"
#include "payload.h"

/* main.c: the driver that is loaded. NULL: it has no such function. */
void *worker_driver(const char *name);

/* The function of a call, its per-thread twin where wanted and there is one; or NULL. */
void *worker_function(unsigned int number, bool twin);

/* The call only asks, and does not wait for others: its class in the one list says so. */
bool worker_asks(unsigned int number);

/* A function by its type: DRIVER(cuMemAlloc_v2)(&pointer, bytes). It must be there. */
#define DRIVER(name) ((__typeof__(&name))worker_function(CALL_##name, false))

/* handles.c: numbers that the program has for what the driver made. */

/* What a number stands for. False: nothing, or something of another kind. 0 stands for
 * itself, and so do the numbers of the special streams and contexts. */
bool worker_real(unsigned int kind, uint64_t handle, uint64_t *real);
uint64_t worker_handle(unsigned int kind, uint64_t real); /* makes one if need be; 0 without memory */
void worker_forget(uint64_t handle);

/* A call on its way. */
struct worker_call {
	struct worker_lane *lane;
	unsigned int number;
	bool oneway, twin;
	uint64_t seq;
	uint8_t *payload; /* may be changed */
	size_t length;
};

struct worker_lane {
	uint32_t number;
	uint64_t context; /* the number of what is current to the thread */
	uint8_t *data;    /* what DATA frames brought for the next call */
	size_t datalength, dataroom;
	struct {
		uint8_t *at;
		size_t length, room;
	} reply; /* room for a header, then what is to be answered */
	struct frame *first, *last; /* session.c: handed to it */
	bool asleep;
};

/* Replies: begun with the result, then bytes with their length before them. */
void worker_begin(struct worker_lane *lane, uint64_t result);
void worker_add(struct worker_lane *lane, const void *bytes, size_t length);
uint8_t *worker_add_room(struct worker_lane *lane, size_t length); /* to be filled; NULL without memory */
void worker_set_result(struct worker_lane *lane, uint64_t result);

/* session.c: the program's process, as it knows itself */
unsigned int worker_program(void);

/* session.c: makes the lane's data end in zeros; false without memory */
bool worker_end_data(struct worker_lane *lane);

/* session.c: bytes for the library ahead of the reply */
bool worker_send_data(struct worker_lane *lane, uint64_t seq, const void *bytes, size_t length);

/* session.c: a host function of a stream, which runs over there. */
uint64_t worker_callback(const struct worker_call *call, const struct call_callback *want, uint64_t stream);

/* call.c: makes a call and puts what it gives into the lane's reply; its result. */
uint64_t worker_call(struct worker_call *call);

/* special.c: the same for those with a form of their own; false: it is none of them. */
bool worker_special(struct worker_call *call, uint64_t *result);

/* facts.c: a WELCOME's payload in the lane's reply. */
void worker_facts(struct worker_lane *lane);

/* module.c: a link has been destroyed: nothing is written to its logs any more. */
void worker_link_gone(uint64_t link);

/* parameters.c: what images say of their kernels' parameters, where the driver does not. */
void worker_image_loaded(uint64_t module, const uint8_t *image, size_t length);
void worker_image_gone(uint64_t module);
bool worker_image_parameters(uint64_t module, const char *name, struct call_parameter *parameters, uint32_t *count);
/* Where a kernel is from; its name stays. NULL: it is not known. */
void worker_kernel_found(uint64_t kernel, uint64_t library, const char *name);
const char *worker_kernel_name(uint64_t kernel, uint64_t *library);

#endif
