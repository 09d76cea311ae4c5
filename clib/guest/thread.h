/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread.h: starting the library's own threads. Apart, because the versions of
 * the symbols it needs are chosen by hand in the library and not in the test
 * programs.
 */
#ifndef GUEST_THREAD_H
#define GUEST_THREAD_H

#pragma GCC visibility push(hidden)

/* A detached thread with all signals blocked and a small stack; 0 or a negative errno. */
int guest_thread_start(void *(*run)(void *), void *argument);

#pragma GCC visibility pop

#endif
