/* SPDX-License-Identifier: Apache-2.0 */
/* graphwork.h: node parameters as callers give them, as work. */
#ifndef DIVVY_STANDIN_GRAPHWORK_H
#define DIVVY_STANDIN_GRAPHWORK_H

#include "graph.h"

/* The lock is held. The work points into what it was made from. */
CUresult sd_work_of_copy(const CUDA_MEMCPY3D *params, CUcontext context, struct sd_work *work);
CUresult sd_work_of_fill(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context, struct sd_work *work);
/* context and kernel NULL where the version of the call has none */
CUresult sd_work_of_kernel(const CUDA_KERNEL_NODE_PARAMS_v1 *params, CUkernel kernel, CUcontext context,
			   struct sd_work *work);
CUresult sd_work_of_node(CUgraphNodeParams *params, struct sd_work *work);
/* Whether a block of each of the graph's kernels fits (sd_launch_fits); else which node's does not. */
CUresult sd_graph_fits(const struct sd_graph *graph, const struct sd_vertex **where);
/* Puts other parameters of the same kind into a node; the lock is held. */
CUresult sd_vertex_set(struct sd_vertex *vertex, const struct sd_work *work);

#endif
