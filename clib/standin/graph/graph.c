/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c: the structure: graphs, nodes, edges, copies, order. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/enter.h"

CUresult sd_work_copy(const struct sd_work *work, struct sd_work *out)
{
	CUresult result = CUDA_SUCCESS;

	*out = *work;
	switch (work->kind) {
	case SD_WORK_LAUNCH:
		if (!sd_object_get(work->launch.function, SD_FUNCTION))
			return CUDA_ERROR_INVALID_HANDLE;
		result = sd_launch_own(&out->launch);
		break;
	case SD_WORK_GRAPH:
		result = sd_graph_copy(work->graph, &out->graph);
		break;
	case SD_WORK_WORDS:
		out->words.list = calloc(work->words.count ? work->words.count : 1, sizeof(*out->words.list));
		if (!out->words.list)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(out->words.list, work->words.list, work->words.count * sizeof(*out->words.list));
		break;
	case SD_WORK_ALLOCATE:
		sd_graph_memory_hold(work->memory.address);
		break;
	default:
		break;
	}
	return result;
}

void sd_work_free(struct sd_work *work)
{
	switch (work->kind) {
	case SD_WORK_LAUNCH:
		free(work->launch.own);
		break;
	case SD_WORK_GRAPH:
		sd_object_end(work->graph);
		break;
	case SD_WORK_WORDS:
		free(work->words.list);
		break;
	case SD_WORK_ALLOCATE:
		sd_graph_memory_drop(work->memory.address);
		break;
	default:
		break;
	}
	work->kind = SD_WORK_EMPTY;
}

static void vertex_end(struct sd_vertex *vertex)
{
	sd_work_free(&vertex->work);
	free(vertex->after);
	sd_object_free(vertex);
}

static void end_graph(void *object)
{
	struct sd_graph *graph = object;

	for (size_t i = 0; i < graph->count; i++)
		vertex_end(graph->list[i]);
	free(graph->list);
	sd_holds_end(graph);
	sd_object_free(graph);
}

CUresult sd_graph_new(struct sd_graph **out)
{
	*out = sd_object_new(SD_GRAPH, sizeof(**out), NULL);
	if (!*out)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*out)->object.end = end_graph;
	return CUDA_SUCCESS;
}

struct sd_vertex *sd_vertex_get(CUgraphNode handle, const struct sd_graph *graph)
{
	struct sd_vertex *vertex = sd_object_get(handle, SD_NODE);

	return vertex && (!graph || vertex->graph == graph) ? vertex : NULL;
}

static CUresult append(struct sd_graph *graph, struct sd_vertex *vertex)
{
	if (graph->count == graph->room) {
		size_t room = graph->room ? graph->room * 2 : 8;
		struct sd_vertex **list = realloc(graph->list, room * sizeof(struct sd_vertex *));

		if (!list)
			return CUDA_ERROR_OUT_OF_MEMORY;
		graph->list = list;
		graph->room = room;
	}
	vertex->graph = graph;
	vertex->place = graph->count;
	graph->list[graph->count++] = vertex;
	return CUDA_SUCCESS;
}

CUresult sd_graph_add(struct sd_graph *graph, struct sd_vertex *const *after, size_t count,
		      const struct sd_work *work, struct sd_vertex **out)
{
	struct sd_vertex *vertex = sd_object_new(SD_NODE, sizeof(*vertex), NULL);

	if (!vertex)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = sd_work_copy(work, &vertex->work);

	if (result != CUDA_SUCCESS) {
		sd_object_free(vertex);
		return result;
	}
	if (count) {
		vertex->after = malloc(count * sizeof(struct sd_vertex *));
		if (vertex->after) {
			memcpy(vertex->after, after, count * sizeof(struct sd_vertex *));
			vertex->aftercount = count;
		}
	}
	if (work->kind == SD_WORK_GRAPH)
		vertex->work.graph->parent = vertex;
	result = count && !vertex->after ? CUDA_ERROR_OUT_OF_MEMORY : append(graph, vertex);
	if (result != CUDA_SUCCESS) {
		vertex_end(vertex);
		return result;
	}
	*out = vertex;
	return CUDA_SUCCESS;
}

CUresult sd_graph_link(struct sd_vertex *from, struct sd_vertex *to)
{
	struct sd_vertex **after = realloc(to->after, (to->aftercount + 1) * sizeof(struct sd_vertex *));

	if (!after)
		return CUDA_ERROR_OUT_OF_MEMORY;
	to->after = after;
	after[to->aftercount++] = from;
	return CUDA_SUCCESS;
}

CUresult sd_graph_copy(const struct sd_graph *graph, struct sd_graph **out)
{
	struct sd_graph *copy = NULL;
	CUresult result = sd_graph_new(&copy);

	if (result != CUDA_SUCCESS)
		return result;
	copy->from = graph;
	copy->fromid = graph->object.id;
	result = sd_holds_copy(graph, copy);
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++) {
		const struct sd_vertex *vertex = graph->list[i];
		struct sd_vertex *made = NULL;

		result = sd_graph_add(copy, NULL, 0, &vertex->work, &made);
		if (result != CUDA_SUCCESS)
			break;
		made->from = vertex;
		made->fromid = vertex->object.id;
		made->priority = vertex->priority;
		made->window = vertex->window;
		made->disabled = vertex->disabled;
	}
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++) {
		const struct sd_vertex *vertex = graph->list[i];

		for (size_t j = 0; result == CUDA_SUCCESS && j < vertex->aftercount; j++)
			result = sd_graph_link(copy->list[vertex->after[j]->place], copy->list[i]);
	}
	if (result != CUDA_SUCCESS) {
		sd_object_end(copy);
		return result;
	}
	*out = copy;
	return CUDA_SUCCESS;
}

/* depth first over dependencies with a stack of its own: graphs may be long */
struct sd_vertex **sd_graph_order(const struct sd_graph *graph, bool *cycle)
{
	struct step {
		struct sd_vertex *vertex;
		size_t next;
	};
	size_t room = graph->count ? graph->count : 1;
	struct sd_vertex **order = malloc(room * sizeof(struct sd_vertex *));
	struct step *stack = malloc(room * sizeof(*stack));
	size_t done = 0;

	*cycle = false;
	if (!order || !stack)
		goto fail;
	for (size_t i = 0; i < graph->count; i++)
		graph->list[i]->mark = 0;
	for (size_t i = 0; i < graph->count; i++) {
		size_t depth = 0;

		if (graph->list[i]->mark)
			continue;
		graph->list[i]->mark = 1;
		stack[depth++] = (struct step){ graph->list[i], 0 };
		while (depth) {
			struct step *top = &stack[depth - 1];

			if (top->next == top->vertex->aftercount) {
				top->vertex->mark = 2;
				order[done++] = top->vertex;
				depth--;
				continue;
			}
			struct sd_vertex *before = top->vertex->after[top->next++];

			if (before->mark == 1) {
				*cycle = true;
				goto fail;
			}
			if (before->mark == 0) {
				before->mark = 1;
				stack[depth++] = (struct step){ before, 0 };
			}
		}
	}
	free(stack);
	return order;

fail:
	free(order);
	free(stack);
	return NULL;
}

bool sd_graph_has_memory(const struct sd_graph *graph)
{
	for (size_t i = 0; i < graph->count; i++) {
		const struct sd_work *work = &graph->list[i]->work;

		if (work->kind == SD_WORK_ALLOCATE || work->kind == SD_WORK_FREE ||
		    (work->kind == SD_WORK_GRAPH && sd_graph_has_memory(work->graph)))
			return true;
	}
	return false;
}

static struct sd_graph *get(CUgraph handle)
{
	return sd_object_get(handle, SD_GRAPH);
}

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
	struct sd_graph *graph = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!phGraph || flags)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_graph_new(&graph);
	if (result == CUDA_SUCCESS)
		*phGraph = (CUgraph)graph;
	return sd_leave(result);
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_graph *graph = get(hGraph);

	if (!graph || graph->parent)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	sd_object_end(graph);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	struct sd_graph *copy = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_graph *graph = get(originalGraph);

	if (!phGraphClone || !graph)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (sd_graph_has_memory(graph))
		return sd_leave(CUDA_ERROR_NOT_SUPPORTED);
	result = sd_graph_copy(graph, &copy);
	if (result == CUDA_SUCCESS)
		*phGraphClone = (CUgraph)copy;
	return sd_leave(result);
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_vertex *original = sd_vertex_get(hOriginalNode, NULL);
	const struct sd_graph *clone = get(hClonedGraph);

	if (!phNode || !original || !clone)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < clone->count; i++) {
		if (clone->list[i]->from == original && clone->list[i]->fromid == original->object.id) {
			*phNode = (CUgraphNode)clone->list[i];
			return sd_leave(CUDA_SUCCESS);
		}
	}
	return sd_leave(CUDA_ERROR_INVALID_VALUE);
}

static void unlink_from(struct sd_vertex *vertex, const struct sd_vertex *before)
{
	for (size_t i = 0; i < vertex->aftercount; i++) {
		if (vertex->after[i] == before) {
			vertex->after[i] = vertex->after[--vertex->aftercount];
			return;
		}
	}
}

CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_vertex *vertex = sd_vertex_get(hNode, NULL);

	if (!vertex)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	/* as on hardware: what the memory of a graph depends on stays as it is */
	if (vertex->work.kind == SD_WORK_ALLOCATE || vertex->work.kind == SD_WORK_FREE)
		return sd_leave(CUDA_ERROR_NOT_SUPPORTED);
	struct sd_graph *graph = vertex->graph;

	for (size_t i = 0; i < graph->count; i++)
		unlink_from(graph->list[i], vertex);
	memmove(&graph->list[vertex->place], &graph->list[vertex->place + 1],
		(graph->count - vertex->place - 1) * sizeof(struct sd_vertex *));
	graph->count--;
	for (size_t i = vertex->place; i < graph->count; i++)
		graph->list[i]->place = i;
	vertex_end(vertex);
	return sd_leave(CUDA_SUCCESS);
}

static CUresult change_edges(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t count, bool add)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_graph *graph = get(hGraph);

	if (!graph || (count && (!from || !to)))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < count; i++) {
		const struct sd_vertex *before = sd_vertex_get(from[i], graph);
		const struct sd_vertex *after = sd_vertex_get(to[i], graph);
		bool linked = false;

		if (!before || !after || before == after)
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
		for (size_t j = 0; j < after->aftercount; j++)
			linked = linked || after->after[j] == before;
		if (linked == add)
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
		struct sd_vertex *before = sd_vertex_get(from[i], graph);
		struct sd_vertex *after = sd_vertex_get(to[i], graph);

		if (add)
			result = sd_graph_link(before, after);
		else
			unlink_from(after, before);
	}
	return sd_leave(result);
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies)
{
	return change_edges(hGraph, from, to, numDependencies, true);
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
				   size_t numDependencies)
{
	return change_edges(hGraph, from, to, numDependencies, false);
}

/* Edges carry no data here: programmatic dependencies act as full ones. */
CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
				   const CUgraphEdgeData *edgeData, size_t numDependencies)
{
	(void)edgeData;
	return change_edges(hGraph, from, to, numDependencies, true);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
				      const CUgraphEdgeData *edgeData, size_t numDependencies)
{
	(void)edgeData;
	return change_edges(hGraph, from, to, numDependencies, false);
}
