/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.h: the conversation with the agent over the share's socket. One
 * request at a time: the ledger calls these with its mutex held. Needs no
 * driver. Errors are negative errno; after -ETIMEDOUT, -EPIPE and -EPROTO the
 * connection is of no more use and the caller drops it.
 */
#ifndef DIVVY_FRONT_ATTACH_H
#define DIVVY_FRONT_ATTACH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "divvy_wire.h"
#include "page.h"

#pragma GCC visibility push(hidden)

#define FRONT_PATH_BYTES 108 /* of a unix socket */

struct front_agent {
	int fd;       /* -1: none */
	dev_t device; /* of fd: the program may close it and get the number for a file of its own */
	ino_t inode;
	uint32_t sequence;
	char path[FRONT_PATH_BYTES];
	uint8_t buildid[DIVVY_BUILD_ID_BYTES];
};

int front_agent_init(struct front_agent *agent, const char *path, const uint8_t *buildid);

/* Connects; the descriptor is close-on-exec and, where the limit allows, above 511. */
int front_agent_connect(struct front_agent *agent);

/* Closes the connection unless the program has closed it already. */
void front_agent_drop(struct front_agent *agent);

/* The descriptor is still ours and the peer has not hung up. */
bool front_agent_connected(const struct front_agent *agent);

/* Sends without waiting for room; fills in magic, version and the next sequence. */
int front_agent_send(struct front_agent *agent, struct divvy_message *message);
/* The same, with a descriptor unless it is -1. */
int front_agent_send_with(struct front_agent *agent, struct divvy_message *message, int fd);

/* Waits for the answer to the last message sent. */
int front_agent_receive(struct front_agent *agent, struct divvy_message *answer, int timeoutms);

/* Both: message becomes the answer. fd: -1, or a descriptor that goes with it. */
int front_agent_ask(struct front_agent *agent, struct divvy_message *message, int fd, int timeoutms);

/*
 * Whether somebody answers who connects to it now: not if it is stopped, or gone. True, too,
 * where that cannot be found out. Needs no mutex.
 */
bool front_agent_answers(const struct front_agent *agent, int timeoutms);

/*
 * HELLO. token is 0 for a new process, else bytes holds what is in use per
 * slot. 0 and the new pages; -ECONNREFUSED when the agent says no: message then
 * holds status and text.
 */
int front_agent_hello(struct front_agent *agent, uint64_t token, const uint64_t *bytes, int timeoutms,
		      struct divvy_message *message, struct front_pages **pages);

#pragma GCC visibility pop

#endif
