/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graphquery.c: lists of nodes and edges. Each call fills at most what *count
 * says; with a NULL list it only sets the number there are.
 */
#include <string.h>

#include "cuda/enter.h"
#include "graph.h"

struct sink {
	CUgraphNode *first;
	CUgraphNode *second;
	CUgraphEdgeData *edges;
	size_t room;
	size_t count;
};

static void put(struct sink *sink, const struct sd_vertex *first, const struct sd_vertex *second)
{
	if (sink->count < sink->room) {
		if (sink->first)
			sink->first[sink->count] = (CUgraphNode)first;
		if (sink->second)
			sink->second[sink->count] = (CUgraphNode)second;
		if (sink->edges)
			memset(&sink->edges[sink->count], 0, sizeof(*sink->edges));
	}
	sink->count++;
}

static CUresult close_sink(const struct sink *sink, size_t *count)
{
	if (sink->first) {
		for (size_t i = sink->count; i < sink->room; i++) {
			sink->first[i] = NULL;
			if (sink->second)
				sink->second[i] = NULL;
		}
		*count = sink->count < sink->room ? sink->count : sink->room;
	} else {
		*count = sink->count;
	}
	return CUDA_SUCCESS;
}

static CUresult nodes_of(CUgraph hGraph, CUgraphNode *nodes, size_t *count, bool roots)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_graph *graph = sd_object_get(hGraph, SD_GRAPH);

	if (!graph || !count)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sink sink = { .first = nodes, .room = nodes ? *count : 0 };

	for (size_t i = 0; i < graph->count; i++) {
		if (!roots || !graph->list[i]->aftercount)
			put(&sink, graph->list[i], NULL);
	}
	return sd_leave(close_sink(&sink, count));
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
	return nodes_of(hGraph, nodes, numNodes, false);
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
	return nodes_of(hGraph, rootNodes, numRootNodes, true);
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
			    size_t *numEdges)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_graph *graph = sd_object_get(hGraph, SD_GRAPH);

	if (!graph || !numEdges || !from != !to)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sink sink = { .first = from, .second = to, .edges = edgeData, .room = from ? *numEdges : 0 };

	for (size_t i = 0; i < graph->count; i++) {
		for (size_t j = 0; j < graph->list[i]->aftercount; j++)
			put(&sink, graph->list[i]->after[j], graph->list[i]);
	}
	return sd_leave(close_sink(&sink, numEdges));
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
	return cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
				       size_t *numDependencies)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_vertex *vertex = sd_vertex_get(hNode, NULL);

	if (!vertex || !numDependencies)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sink sink = { .first = dependencies, .edges = edgeData, .room = dependencies ? *numDependencies : 0 };

	for (size_t i = 0; i < vertex->aftercount; i++)
		put(&sink, vertex->after[i], NULL);
	return sd_leave(close_sink(&sink, numDependencies));
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies)
{
	return cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes, CUgraphEdgeData *edgeData,
					 size_t *numDependentNodes)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_vertex *vertex = sd_vertex_get(hNode, NULL);

	if (!vertex || !numDependentNodes)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sink sink = {
		.first = dependentNodes, .edges = edgeData, .room = dependentNodes ? *numDependentNodes : 0,
	};

	for (size_t i = 0; i < vertex->graph->count; i++) {
		const struct sd_vertex *other = vertex->graph->list[i];

		for (size_t j = 0; j < other->aftercount; j++) {
			if (other->after[j] == vertex)
				put(&sink, other, NULL);
		}
	}
	return sd_leave(close_sink(&sink, numDependentNodes));
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *numDependentNodes)
{
	return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
	static const CUgraphNodeType types[] = {
		[SD_WORK_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,	  [SD_WORK_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
		[SD_WORK_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,	  [SD_WORK_LAUNCH] = CU_GRAPH_NODE_TYPE_KERNEL,
		[SD_WORK_HOST] = CU_GRAPH_NODE_TYPE_HOST,	  [SD_WORK_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
		[SD_WORK_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,	  [SD_WORK_ALLOCATE] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
		[SD_WORK_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,	  [SD_WORK_GRAPH] = CU_GRAPH_NODE_TYPE_GRAPH,
		[SD_WORK_WORDS] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
	};
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_vertex *vertex = sd_vertex_get(hNode, NULL);

	if (!vertex || !type)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*type = types[vertex->work.kind];
	return sd_leave(CUDA_SUCCESS);
}
