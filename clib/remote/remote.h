/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote.h: the driver library of a machine without a GPU. Each call of the driver's
 * interface is answered here, or sent to a worker that runs beside the GPU, under a share
 * of it; data/remote.tsv says which, docs/remote.md what that means for a program.
 *
 * Order of locks: the session's send lock, then its receive lock; a lane belongs to its
 * thread, but for what the session's receive lock guards.
 */
#ifndef REMOTE_REMOTE_H
#define REMOTE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cuda_abi.h"
#include "divvy_remote.h"
#include "nvml_abi.h"
#include "shape.h"

#define EXPORT __attribute__((visibility("default")))
/* A value as it travels: pointers, integers and small structures in one word. */
#define WORD(value) \
	({ \
		uint64_t word_ = 0; \
		__typeof__(value) value_ = (value); \
		_Static_assert(sizeof(value_) <= sizeof(word_), "travels by itself"); \
		memcpy(&word_, &value_, sizeof(value_)); \
		word_; \
	})

#pragma GCC visibility push(hidden)

struct remote_bytes {
	uint8_t *at;
	size_t length, room;
};

/* Makes room for more bytes at the end; false without memory. */
bool remote_room(struct remote_bytes *bytes, size_t more);
bool remote_put(struct remote_bytes *bytes, const void *from, size_t length); /* and pads to a word */
bool remote_put_word(struct remote_bytes *bytes, uint64_t word);
void remote_free(struct remote_bytes *bytes);

/* A copy to the host that is asked for before the program does. */
#define REMOTE_AHEAD 15
struct remote_ahead {
	uint64_t seq; /* of its call; 0: there is none */
	uint8_t *data;
	size_t bytes, left; /* how many there are, and how many have not come */
	bool replied;
	uint64_t result;
};

/* A thread that calls. */
struct remote_lane {
	uint32_t number;     /* from 1 */
	uint32_t twin;       /* the call under way is one of the per-thread default stream */
	uint64_t told;       /* the context that the worker has made current to this lane */
	uint64_t *stack;     /* contexts; the current one is the last */
	size_t depth, room;
	struct remote_bytes out; /* the call that is being encoded: a header's room, then its payload */
	struct {
		uint64_t sent, stream, context; /* when so many frames had been sent, the stream had done all that it had to */
		uint32_t twin;
	} settled;
	/* guarded by the session's receive lock: */
	uint64_t awaited;    /* seq of the call whose reply is waited for, or 0 */
	bool replied;
	struct remote_bytes in; /* the reply's payload */
	uint8_t *data;       /* where bytes of DATA frames go */
	size_t dataleft;
	struct remote_ahead ahead[REMOTE_AHEAD];
	struct remote_reads *reads; /* ahead.c: what it read lately */
};

/* session.c */

/* The calling thread's lane. NULL: there is no session (cuInit has not succeeded, this is
 * a child of the process that has one, or no memory). */
struct remote_lane *remote_lane(void);
struct remote_lane *remote_management_lane(void); /* for NVML, which needs no cuInit */

/* Opens the session once: reaches the worker and reads what it says of the GPU. */
CUresult remote_open(void);
bool remote_is_open(void);     /* and CUDA is initialised */
void remote_initialized(void);

uint64_t remote_now(void);     /* ns of the monotonic clock */
uint64_t remote_sent(void);    /* how many frames so far */
uint64_t remote_heard(void);   /* and how many host functions were to be called */

/* Begins a call: the lane's out holds nothing but room for the header. */
bool remote_begin(struct remote_lane *lane);

/* Sends the call in the lane's out. One way: nobody waits for it. Else it is sent when its
 * reply is awaited, whose payload is then in the lane's in, result first. -1 or false: the
 * session is lost (remote_lost says what that is). */
int remote_send_one_way(struct remote_lane *lane, unsigned int number);
bool remote_ask(struct remote_lane *lane, unsigned int number);
bool remote_await(struct remote_lane *lane, unsigned int number);

/* Puts the call in the lane's out behind those that wait to be sent, to be answered into
 * ahead, which has the room for its bytes from then on: a guess, which the next call sends and
 * nobody waits for. remote_end_ahead: its bytes are not wanted any more. */
bool remote_send_ahead(struct remote_lane *lane, unsigned int number, struct remote_ahead *ahead, uint8_t *room, size_t bytes);
bool remote_await_ahead(struct remote_ahead *ahead, unsigned int number);
void remote_end_ahead(struct remote_ahead *ahead);

/* Sends bytes that the lane's next call is about: false when the session is lost. */
bool remote_send_data(struct remote_lane *lane, const void *bytes, size_t length);

/* ahead.c: a copy to the host. */
struct remote_copy {
	unsigned int number; /* its call */
	const void *payload; /* what asks for it */
	size_t length;
	size_t place;        /* in the payload, of the address that it is from */
	size_t span;         /* bytes from there on that it is from; 0: it is not from memory */
	void *to;
	size_t bytes;        /* that come */
};
uint64_t remote_read(struct remote_lane *lane, const struct remote_copy *copy);
void remote_read_apart(void); /* memory or events are shared with other processes from now on */
void remote_captures(int more); /* streams that are captured */
void remote_forget_reads(struct remote_lane *lane); /* its thread ends */

/* copy.c: a copy has come, and with it all that its stream had to do before. */
void remote_settled(struct remote_lane *lane, uint64_t stream, uint32_t twin);

/* What a lost session is to a call of CUDA (46) or NVML (999). */
uint64_t remote_lost(unsigned int number);

/* An earlier one-way call's failure that the current context's next call returns, or 0. */
uint64_t remote_failure(struct remote_lane *lane);

/* failure.c: the worker has told of one */
void remote_failed(const struct divvy_remote_failure *failure);

/* One line on stderr, once for each place that says something. */
void remote_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* How many host functions are to come: while there are any, the connection is looked at often. */
void remote_expect(int more);

/* Tells the worker that the host function of a CALLBACK frame has returned. */
void remote_returned(uint64_t seq);

/* callback.c: it is a host function's turn */
struct call_callback;
void remote_due(uint64_t seq, const struct call_callback *told);

/* call.c: a call by its row alone. values are the arguments as words. */
uint64_t remote_call(unsigned int number, unsigned int twin, const uint64_t *values);
uint64_t remote_call_one_way(unsigned int number, const uint64_t *values); /* whatever the row says */

/* $DIVVY_REMOTE_STRICT: every call is waited for, so that its failure is its own. */
bool remote_strict(void);

/* A call is about to be sent: what is kept that it could make wrong goes first. */
void remote_before(struct remote_lane *lane, unsigned int number);
void remote_drop_textures(struct remote_lane *lane, unsigned int number); /* texture.c */
void remote_drop_reads(struct remote_lane *lane);                         /* ahead.c */

/* The call in the lane's out, one way or with a reply; the result, also of an earlier
 * one-way call when this one's own is 0. */
uint64_t remote_finish_one_way(struct remote_lane *lane, unsigned int number);
uint64_t remote_finish(struct remote_lane *lane, unsigned int number);
uint64_t remote_answer(struct remote_lane *lane, unsigned int number); /* of one that was asked */

/* Reads the reply's payload behind the result: the next bytes with their length before
 * them. NULL at the end. */
const void *remote_next(struct remote_lane *lane, size_t *at, size_t *length);

/* facts.c: what the worker said of driver and GPUs when the session opened. */

#define REMOTE_DEVICES 8
#define REMOTE_ATTRIBUTES 160

struct remote_device {
	char name[256];
	char pci[32];
	uint8_t uuid[16];
	uint64_t memory;
	int attribute[REMOTE_ATTRIBUTES];
};

struct remote_facts {
	int version;
	unsigned int devices;
	struct remote_device device[REMOTE_DEVICES];
};

extern struct remote_facts remote_facts;
bool remote_facts_read(const struct divvy_remote_welcome *welcome, const uint8_t *bytes, size_t length);

/* memory.c: is this an address of host memory that the library knows? */
enum remote_place { REMOTE_UNKNOWN, REMOTE_HOST, REMOTE_DEVICE };
enum remote_place remote_place_of(uint64_t address);
bool remote_holds(uint64_t address, uint64_t bytes); /* is all of it in one allocation of device memory? */
bool remote_host_range(uint64_t address, uint64_t *start, uint64_t *bytes);

/* pointer.c: is it memory of the GPU? The worker is asked of addresses that nobody here knows. */
bool remote_is_device(uint64_t address);

/* context.c */
uint64_t remote_current(const struct remote_lane *lane);
CUresult remote_ready(struct remote_lane **lane); /* the calling thread's, with a current context */

/* function.c */
struct remote_function {
	uint64_t handle;
	const char *name;
	uint32_t known;             /* 0: nothing is known of its parameters */
	uint32_t parameters, bytes; /* how many, and of all together with their gaps */
	uint32_t threads, shared;   /* most threads of a block, or 0; static shared memory */
	uint32_t dynamic;           /* most dynamic shared memory that was asked for; atomic */
	struct {
		uint32_t offset, size;
	} parameter[];
};

struct call_launch;

/* The function of a handle, or NULL. It stays. */
struct remote_function *remote_function(uint64_t handle);

/* Puts a launch's parameters in the lane's out, and completes the launch, which lies at
 * place there. */
CUresult remote_put_parameters(struct remote_lane *lane, size_t place, struct call_launch *launch, void **parameters,
			       void **extra);

#pragma GCC visibility pop

#endif
