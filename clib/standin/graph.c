/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c: the structure: graphs, nodes, edges, copies, order. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "order.h"
#include "stream.h"

CUresult sd_graph_new(struct sd_graph **out)
{
	*out = sd_object_new(SD_GRAPH, sizeof(**out), NULL);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void vertex_end(struct sd_vertex *vertex)
{
	sd_work_free(&vertex->work);
	free(vertex->after);
	sd_object_free(vertex);
}

void sd_graph_end(struct sd_graph *graph)
{
	for (size_t i = 0; i < graph->count; i++)
		vertex_end(graph->list[i]);
	free(graph->list);
	sd_object_free(graph);
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
		sd_graph_end(copy);
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

/* What is left of a graph while it is put into a stream. */
struct run {
	struct sd_stream *stream;
	uint64_t id;    /* the stream's */
	uint64_t base;  /* the item its first nodes come after */
	uint64_t left;  /* the stream's, as it was left */
	uint64_t *item; /* what comes after each node comes after */
	bool *inner;    /* nodes that others come after */
};

static bool gone(const struct run *run)
{
	return sd_object_get(run->stream, SD_STREAM) != run->stream || run->stream->object.id != run->id;
}

/* What other threads have put into the stream meanwhile counts as before it. */
static CUresult look(struct run *run)
{
	const struct sd_card *card = run->stream->context->card;
	CUresult result = CUDA_SUCCESS;

	while (result == CUDA_SUCCESS && !gone(run) && run->stream->tail != run->left) {
		run->left = run->stream->tail;
		result = sd_order_join(card, run->base, run->left, &run->base);
	}
	return result == CUDA_SUCCESS && gone(run) ? CUDA_ERROR_INVALID_HANDLE : result;
}

static CUresult run_node(struct run *run, struct sd_vertex *vertex)
{
	const struct sd_card *card = run->stream->context->card;
	uint64_t after = 0;
	CUresult result = look(run);

	for (size_t i = 0; result == CUDA_SUCCESS && i < vertex->aftercount; i++) {
		size_t place = vertex->after[i]->place;

		run->inner[place] = true;
		result = sd_order_join(card, after, run->item[place], &after);
	}
	if (result == CUDA_SUCCESS)
		result = look(run);
	if (result != CUDA_SUCCESS)
		return result;
	if (!vertex->aftercount)
		after = run->base;
	sd_order_put(run->stream, after);
	if (!vertex->disabled)
		result = sd_work_run(&vertex->work, run->stream);
	if (result == CUDA_SUCCESS && gone(run))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS)
		run->item[vertex->place] = run->left = run->stream->tail;
	return result;
}

CUresult sd_graph_run(struct sd_graph *graph, struct sd_stream *stream)
{
	bool cycle = false;
	size_t count = graph->count ? graph->count : 1;
	struct sd_vertex **order = sd_graph_order(graph, &cycle);
	struct run run = {
		.stream = stream, .id = stream->object.id, .base = stream->tail, .left = stream->tail,
		.item = calloc(count, sizeof(uint64_t)), .inner = calloc(count, sizeof(bool)),
	};
	CUresult result = !order && cycle ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;

	if (result == CUDA_SUCCESS && (!order || !run.item || !run.inner))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++)
		result = run_node(&run, order[i]);
	/* the stream goes on after all of it */
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++) {
		if (!run.inner[i])
			result = sd_order_join(stream->context->card, run.base, run.item[i], &run.base);
		if (result == CUDA_SUCCESS)
			result = look(&run);
	}
	if (result == CUDA_SUCCESS)
		sd_order_put(stream, run.base);
	free(run.inner);
	free(run.item);
	free(order);
	return result;
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
	sd_graph_end(graph);
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
