/* SPDX-License-Identifier: Apache-2.0 */
/* session.h: what opening a session needs of the connection. */
#ifndef REMOTE_SESSION_H
#define REMOTE_SESSION_H

#include <stdbool.h>
#include <stddef.h>

struct remote_lane;

#pragma GCC visibility push(hidden)

bool session_connect(int fd); /* false: no memory */
void session_disconnect(void);

/* Before anybody else uses the connection. */
bool session_write(unsigned int op, const void *payload, size_t length);
bool session_read(void *to, size_t length);

bool session_start(void); /* the library's own thread */

bool session_enter(struct remote_lane *lane); /* gives it a number; false: there are too many */
void session_leave(struct remote_lane *lane);

#pragma GCC visibility pop

#endif
