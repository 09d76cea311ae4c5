/* SPDX-License-Identifier: Apache-2.0 */
/* session.h: the connection of a worker. */
#ifndef WORKER_SESSION_H
#define WORKER_SESSION_H

/* Serves one program until it hangs up. broken: why there is no driver, or NULL. The
 * process's exit code. */
int session_run(int connection, const char *broken);

#endif
