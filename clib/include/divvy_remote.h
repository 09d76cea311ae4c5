/* SPDX-License-Identifier: Apache-2.0 */
/*
 * divvy_remote.h: what a driver library of a machine without a GPU (clib/remote) and its
 * worker beside the GPU (clib/worker) say to each other, and what relay and server read of
 * it. The Go view (internal/remote/protocol) is generated from this file by tools/wiregen.
 *
 * A connection is a stream of frames in both directions: a header, then its payload. Bytes
 * are little endian, structs have no holes. Relay and server look at a connection's first
 * frame from the client, and pass the rest on unread:
 *
 *   RUN    by `divvy run --remote`: a JSON document (internal/remote/protocol); the answer
 *          is RUNNING or REFUSED. The run, with its share and its sessions, lasts as long
 *          as this connection.
 *   ADMIN  by `divvy remote status`: a JSON document; answered by ADMIN.
 *   HELLO  by the library, once for each process that initialises CUDA. The server finds
 *          the run by its token, starts a worker in the run's share and hands it the
 *          connection, HELLO included; the worker answers WELCOME. The answer of server
 *          or worker may be REFUSED.
 *
 * After WELCOME the library sends calls. seq counts the frames that the library sends, from
 * 1 (HELLO); lane says which of its threads calls. One-way calls (DIVVY_REMOTE_ONE_WAY in
 * flags) are executed in the order of seq, whatever their lane; another call is executed
 * when every one-way call before it has been. Other calls are answered by a REPLY with the
 * call's seq and lane. The first failure of a one-way call is told by an ERROR with the
 * seq and op of the call.
 *
 * A call's payload: each argument that is a value as 8 bytes, in the order of the C
 * parameters, then the bytes of those that point to something, each preceded by its length
 * (u64; all ones: the pointer is null) and padded to 8. A reply's payload: the result (8
 * bytes), then, on success and for the errors that fill something, what the call wrote, in
 * the same way. Handles are numbers that the worker gave (below); device addresses, texture
 * and surface objects travel as they are.
 */
#ifndef DIVVY_REMOTE_H
#define DIVVY_REMOTE_H

#include <stddef.h>
#include <stdint.h>

#define DIVVY_REMOTE_MAGIC 0x7276644du    /* first word of HELLO's and WELCOME's payload */
#define DIVVY_REMOTE_VERSION 1u           /* this protocol */
#define DIVVY_REMOTE_OLDEST 1u            /* the oldest that this side can speak */
#define DIVVY_REMOTE_TOKEN_BYTES 32u      /* names a run; in the environment in hexadecimal */
#define DIVVY_REMOTE_COMMAND_BYTES 64u    /* of a program's name, cut there, terminated */
#define DIVVY_REMOTE_FRAME_BYTES 24u      /* of a header */
#define DIVVY_REMOTE_MAX_CONTROL 262144u  /* bytes of payload before WELCOME, and of RUN, RUNNING and ADMIN */
#define DIVVY_REMOTE_MAX_PAYLOAD 4194304u /* bytes of payload of any other frame */
#define DIVVY_REMOTE_MAX_LANES 4096u      /* threads of a process that call */
#define DIVVY_REMOTE_NO_LANE 0u

/* frame.op */
#define DIVVY_REMOTE_HELLO 1u
#define DIVVY_REMOTE_WELCOME 2u
#define DIVVY_REMOTE_REFUSED 3u
#define DIVVY_REMOTE_RUN 4u
#define DIVVY_REMOTE_RUNNING 5u
#define DIVVY_REMOTE_ADMIN 6u
#define DIVVY_REMOTE_PING 7u     /* a run's client asks every 5 s whether the server still lives */
#define DIVVY_REMOTE_REPLY 8u
#define DIVVY_REMOTE_ERROR 9u
#define DIVVY_REMOTE_CONTEXT 10u /* one way: u64, the context that is current to the lane from now on, or 0 */
#define DIVVY_REMOTE_DATA 11u    /* bytes of a copy: to the worker of the lane's next call, to the library of its last */
#define DIVVY_REMOTE_CALLBACK 12u /* to the library: run a host function; answered by RETURNED */
#define DIVVY_REMOTE_RETURNED 13u /* with the seq of the CALLBACK, and lane DIVVY_REMOTE_NO_LANE */
#define DIVVY_REMOTE_PRINT 14u   /* to the library: what kernels printed */
#define DIVVY_REMOTE_THREAD_ENDED 15u /* the lane's thread has ended */
#define DIVVY_REMOTE_FIRST_CALL 256u /* and up: 256 + the call's number in data/remote.tsv */

#define DIVVY_REMOTE_TALLY_DESCRIPTOR 4u

/* frame.flags */
#define DIVVY_REMOTE_ONE_WAY 1u
#define DIVVY_REMOTE_AHEAD 8u  /* the library guesses that the program will make this call next, and waits for nothing */
#define DIVVY_REMOTE_ANSWER 4u /* of a PING: it answers one, and wants no answer */
#define DIVVY_REMOTE_TWIN 2u /* the call is that of the per-thread default stream (_ptds, _ptsz) */

struct divvy_remote_frame {
	uint32_t length; /* of the payload, in bytes */
	uint16_t op;     /* DIVVY_REMOTE_* */
	uint16_t flags;
	uint64_t seq;
	uint32_t lane; /* 0 for frames of no thread */
	uint32_t crc;  /* 0: none */
};

/* HELLO */
struct divvy_remote_hello {
	uint32_t magic;
	uint32_t oldest; /* versions that the library speaks: oldest to newest */
	uint32_t newest;
	uint32_t pid; /* in the program's own namespace; for people */
	uint64_t capabilities; /* none so far */
	uint8_t token[32];
	char command[64];
};

/* REFUSED: then text, "message" or "message\nhint", without a terminating zero. */
struct divvy_remote_refused {
	uint32_t exitcode; /* for a command: docs/exit-codes.md */
	uint32_t result;   /* for a program: the CUresult of its cuInit */
};

/* WELCOME: then facts of clib/call/facts.h. */
struct divvy_remote_welcome {
	uint32_t magic;
	uint32_t version; /* the newest that both speak */
	uint64_t capabilities;
	uint32_t driverversion; /* 12020 */
	uint32_t operations;    /* how many call numbers the worker knows */
	uint32_t devices;
	uint32_t reserved;
};

/* ERROR: the first failure of a one-way call since the last was told. */
struct divvy_remote_failure {
	uint64_t seq;
	uint64_t context; /* 0: whatever context comes next */
	uint32_t op;
	uint32_t result;
	uint32_t sticky; /* 1: the context is lost, every later call returns it */
	uint32_t reserved;
};

/* What a worker counts, at the start of a sealed memory file that it finds as descriptor
 * DIVVY_REMOTE_TALLY_DESCRIPTOR; it may write anything there. */
struct divvy_remote_tally {
	uint64_t calls; /* that came */
	uint64_t waits; /* of those, that the program waits for: round trips */
};

_Static_assert(sizeof(struct divvy_remote_frame) == 24, "frame");
_Static_assert(sizeof(struct divvy_remote_hello) == 120, "hello");
_Static_assert(sizeof(struct divvy_remote_refused) == 8, "refused");
_Static_assert(sizeof(struct divvy_remote_welcome) == 32, "welcome");
_Static_assert(sizeof(struct divvy_remote_failure) == 32, "failure");
_Static_assert(sizeof(struct divvy_remote_tally) == 16, "tally");
_Static_assert(offsetof(struct divvy_remote_frame, seq) == 8, "frame.seq");
_Static_assert(offsetof(struct divvy_remote_hello, token) == 24, "hello.token");
_Static_assert(offsetof(struct divvy_remote_hello, command) == 56, "hello.command");
_Static_assert(offsetof(struct divvy_remote_welcome, driverversion) == 16, "welcome.driverversion");
_Static_assert(offsetof(struct divvy_remote_failure, op) == 16, "failure.op");

#endif
