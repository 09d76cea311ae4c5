/* SPDX-License-Identifier: Apache-2.0 */
/* crowd.h: scenarios of many threads at one gate, by any clock: they look at no time. */
#ifndef CROWD_H
#define CROWD_H

/* Threads launch and wait for the card while leases come and go. */
void crowd_hammers(void);
/* Threads launch while their streams and the context end. */
void crowd_leaves(void);

#endif
