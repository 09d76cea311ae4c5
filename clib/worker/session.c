/* SPDX-License-Identifier: Apache-2.0 */
/* session.c: how a session begins. */
#include "session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "confine.h"
#include "connection.h"
#include "frame.h"

static unsigned int program; /* its process, as it knows itself */

unsigned int worker_program(void)
{
	return program;
}

static bool refuse(unsigned int result, const char *text)
{
	uint8_t payload[512];
	struct divvy_remote_refused refused = { .exitcode = 1, .result = result };
	size_t length = strnlen(text, sizeof(payload) - sizeof(refused));

	memcpy(payload, &refused, sizeof(refused));
	memcpy(payload + sizeof(refused), text, length);
	connection_send(DIVVY_REMOTE_REFUSED, 1, 0, payload, sizeof(refused) + length);
	return false;
}

static bool greet(const char *broken, struct worker_lane *lane)
{
	struct divvy_remote_frame header;
	struct divvy_remote_hello hello;
	char text[256];

	if (!connection_take(&header, sizeof(header)) || header.op != DIVVY_REMOTE_HELLO || header.length < sizeof(hello) ||
	    header.length > DIVVY_REMOTE_MAX_CONTROL || !connection_take(&hello, sizeof(hello)) || hello.magic != DIVVY_REMOTE_MAGIC)
		return false;
	for (size_t more = header.length - sizeof(hello); more > 0;) { /* a newer one says more */
		size_t part = more < sizeof(text) ? more : sizeof(text);

		if (!connection_take(text, part))
			return false;
		more -= part;
	}
	if (hello.oldest > DIVVY_REMOTE_VERSION || hello.newest < DIVVY_REMOTE_OLDEST) {
		snprintf(text, sizeof(text), "the program's library speaks versions %u to %u of the protocol, this server %u to %u\n"
			 "install the same release of divvy on both machines", hello.oldest, hello.newest, DIVVY_REMOTE_OLDEST,
			 DIVVY_REMOTE_VERSION);
		return refuse(CUDA_ERROR_SYSTEM_NOT_READY, text);
	}
	program = hello.pid;
	if (broken)
		return refuse(CUDA_ERROR_SYSTEM_NOT_READY, broken);
	CUresult result = DRIVER(cuInit) ? DRIVER(cuInit)(0) : CUDA_ERROR_SYSTEM_NOT_READY;

	if (result != CUDA_SUCCESS && result != CUDA_ERROR_NO_DEVICE) {
		snprintf(text, sizeof(text), "the server's driver does not start: cuInit says %u", result);
		return refuse(result, text);
	}
	if (!worker_confine())
		return refuse(CUDA_ERROR_SYSTEM_NOT_READY, "the server's kernel cannot confine a worker (seccomp)");
	worker_facts(lane);
	return connection_send(DIVVY_REMOTE_WELCOME, header.seq, 0, lane->reply.at + sizeof(struct divvy_remote_frame),
			  lane->reply.length - sizeof(struct divvy_remote_frame));
}

int session_run(int connection, const char *broken)
{
	struct worker_lane greeting = { 0 };

	signal(SIGPIPE, SIG_IGN);
	worker_find_tally();
	connection_open(connection);
	if (!greet(broken, &greeting))
		return 1;
	free(greeting.reply.at);
	worker_run_lanes();
	/* the driver gives back what the program held */
	_exit(0);
}
