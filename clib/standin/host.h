/* SPDX-License-Identifier: Apache-2.0 */
/* host.h: pinned and registered host memory. */
#ifndef DIVVY_STANDIN_HOST_H
#define DIVVY_STANDIN_HOST_H

struct sd_memory;

void sd_host_end(struct sd_memory *memory);

#endif
