/* SPDX-License-Identifier: Apache-2.0 */
/* run.h: doing work: what a stream or a graph holds. */
#ifndef DIVVY_STANDIN_RUN_H
#define DIVVY_STANDIN_RUN_H

#include "graph.h"

/* Whether it could be done now. */
CUresult sd_work_check(const struct sd_work *work, const struct sd_card *card);
/* Does it in order after what the stream waits for, now or by a step (queue.h): the
 * work is the caller's again. The lock is held and released while contents are touched. */
CUresult sd_work_run(const struct sd_work *work, struct sd_stream *stream);
CUresult sd_graph_run(struct sd_graph *graph, struct sd_stream *stream);

#endif
