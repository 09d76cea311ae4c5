/* SPDX-License-Identifier: Apache-2.0 */
/* ipc.h: memory of other processes. */
#ifndef DIVVY_STANDIN_IPC_H
#define DIVVY_STANDIN_IPC_H

#include "cuda/context.h"

struct sd_pool;

/* Maps what the handle stands for; context for legacy handles, pool for pool
 * pointers. Opening a handle again gives the same address. */
CUresult sd_ipc_open(const unsigned char *handle, struct sd_context *context, struct sd_pool *pool,
		     CUdeviceptr *address);

/* Maps bytes of a file from offset at fresh device addresses. */
CUresult sd_map_file(int fd, uint64_t offset, uint64_t bytes, uint64_t *address, uint64_t *span);
/* The same with what such a mapping shows (at view, from the file's start). */
CUresult sd_map_view(uint64_t view, uint64_t offset, uint64_t bytes, uint64_t *address, uint64_t *span);
void sd_unmap_file(uint64_t address, uint64_t span);

#endif
