/* SPDX-License-Identifier: Apache-2.0 */
/* userobject.h: things of the program that live as long as graphs that use them. */
#ifndef DIVVY_STANDIN_USEROBJECT_H
#define DIVVY_STANDIN_USEROBJECT_H

#include "graph.h"

/* A graph's references end with it; the lock is released while destructors run. */
void sd_keepsakes_drop(struct sd_keepsake *first);

#endif
