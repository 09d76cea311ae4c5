/* SPDX-License-Identifier: Apache-2.0 */
/* confine.h: what a worker may not do. */
#ifndef WORKER_CONFINE_H
#define WORKER_CONFINE_H

#include <stdbool.h>

/* For good, for all threads: no other programs, namespaces, mounts, tracing, keys or
 * networks. False: the kernel does not do it. */
bool worker_confine(void);

#endif
