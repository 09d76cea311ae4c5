/* SPDX-License-Identifier: Apache-2.0 */
/* record.h: what is put into a stream that is captured becomes nodes of the capture's graph. */
#ifndef DIVVY_STANDIN_RECORD_H
#define DIVVY_STANDIN_RECORD_H

#include "memory/pool.h"
#include "cuda/stream.h"
#include "work/work.h"

/* Records the work after what the stream's last work was. */
CUresult sd_record(struct sd_stream *stream, const struct sd_work *work);
CUresult sd_record_allocate(struct sd_stream *stream, struct sd_pool *pool, uint64_t bytes, CUdeviceptr *address);
CUresult sd_record_free(struct sd_stream *stream, CUdeviceptr address);

#endif
