/* SPDX-License-Identifier: Apache-2.0 */
/* incoming.h: bytes from the worker. False: there are none any more; errno says why. */
#ifndef REMOTE_INCOMING_H
#define REMOTE_INCOMING_H

#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)

bool incoming_open(int fd); /* false: no memory */
bool incoming_waits(void);  /* some have been read, and are not taken yet */
bool incoming_take(void *to, size_t length); /* exactly so many */
bool incoming_skip(size_t length);
bool incoming_print(size_t length); /* to the program's output */

#pragma GCC visibility pop

#endif
