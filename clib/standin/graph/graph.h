/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h: graphs of work. A graph owns its nodes (vertices), a node its work
 * and the list of nodes it comes after. An executable graph is a graph of its
 * own, whose nodes remember which node they were made from.
 */
#ifndef DIVVY_STANDIN_GRAPH_H
#define DIVVY_STANDIN_GRAPH_H

#include "work/work.h"

struct sd_vertex {
	struct sd_object object;
	struct sd_graph *graph;
	struct sd_work work;
	struct sd_vertex **after;
	size_t aftercount;
	size_t place;    /* in the graph's list */
	const void *from; /* the node it is a copy of */
	uint64_t fromid;
	bool disabled;   /* in an executable graph */
	int priority;    /* kernel node attributes: kept, without effect */
	CUaccessPolicyWindow window;
	int mark;        /* of the walk that is under way */
};

struct sd_graph {
	struct sd_object object;
	struct sd_vertex **list;
	size_t count;
	size_t room;
	struct sd_vertex *parent; /* a child graph's node */
	const void *from;         /* the graph it is a clone of */
	uint64_t fromid;
	unsigned int executables; /* of a graph with memory nodes there may be one */
	struct sd_hold *holds;    /* of user objects */
	size_t holdcount;
};

struct sd_exec {
	struct sd_object object;
	struct sd_graph *graph;
	struct sd_graph *source; /* NULL once that is gone */
	uint64_t sourceid;
	unsigned long long flags;
	unsigned int running;
	bool doomed; /* destroyed while it ran */
};

/* Deep copies for nodes; free what copy made. */
CUresult sd_work_copy(const struct sd_work *work, struct sd_work *out);
void sd_work_free(struct sd_work *work);

/* the current context's device is what a work without a card runs on */
CUresult sd_graph_new(struct sd_graph **out);
CUresult sd_graph_copy(const struct sd_graph *graph, struct sd_graph **out);
/* Adds a node with a copy of the work. The nodes it comes after are of the same graph. */
CUresult sd_graph_add(struct sd_graph *graph, struct sd_vertex *const *after, size_t count,
		      const struct sd_work *work, struct sd_vertex **out);
CUresult sd_graph_link(struct sd_vertex *from, struct sd_vertex *to);
struct sd_vertex *sd_vertex_get(CUgraphNode handle, const struct sd_graph *graph); /* graph may be NULL */
/* Nodes in an order that respects all dependencies, to be freed; NULL and
 * *cycle when there is none. */
struct sd_vertex **sd_graph_order(const struct sd_graph *graph, bool *cycle);
bool sd_graph_has_memory(const struct sd_graph *graph);

/* graphmemory.c: addresses of allocation nodes, which are theirs before and
 * after there is memory behind them */
CUresult sd_graph_memory_new(struct sd_card *card, CUDA_MEM_ALLOC_NODE_PARAMS *asked, uint64_t *address);
bool sd_graph_memory_known(uint64_t address);
void sd_graph_memory_hold(uint64_t address);
void sd_graph_memory_drop(uint64_t address);
CUresult sd_graph_memory_take(uint64_t address);
CUresult sd_graph_memory_give(uint64_t address);
bool sd_graph_memory_live(uint64_t address);

/* userobject.c: what a graph keeps of the program's, as long as it or a copy of it is there. A
 * copy holds what its graph does. */
CUresult sd_holds_copy(const struct sd_graph *graph, struct sd_graph *copy);
void sd_holds_end(struct sd_graph *graph);

#endif
