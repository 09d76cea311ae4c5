/* SPDX-License-Identifier: Apache-2.0 */
/* graphdot.c: a graph as text for Graphviz. */
#include <stdio.h>

#include "graph.h"
#include "module.h"

static const char *const names[] = {
	[SD_WORK_EMPTY] = "EMPTY",	 [SD_WORK_COPY] = "MEMCPY",	     [SD_WORK_FILL] = "MEMSET",
	[SD_WORK_LAUNCH] = "KERNEL",	 [SD_WORK_HOST] = "HOST",	     [SD_WORK_RECORD] = "EVENT_RECORD",
	[SD_WORK_WAIT] = "WAIT_EVENT",	 [SD_WORK_ALLOCATE] = "MEM_ALLOC",   [SD_WORK_FREE] = "MEM_FREE",
	[SD_WORK_GRAPH] = "CHILD_GRAPH", [SD_WORK_WORDS] = "BATCH_MEM_OP",
};

static void print(FILE *file, const struct sd_graph *graph)
{
	for (size_t i = 0; i < graph->count; i++) {
		const struct sd_vertex *vertex = graph->list[i];
		const struct sd_function *function = NULL;

		if (vertex->work.kind == SD_WORK_LAUNCH)
			function = sd_object_get(vertex->work.launch.function, SD_FUNCTION);
		fprintf(file, "\tn%llu [label=\"%s%s%s\"];\n", (unsigned long long)vertex->object.id,
			names[vertex->work.kind], function ? " " : "", function ? function->name : "");
		for (size_t j = 0; j < vertex->aftercount; j++)
			fprintf(file, "\tn%llu -> n%llu;\n", (unsigned long long)vertex->after[j]->object.id,
				(unsigned long long)vertex->object.id);
		if (vertex->work.kind == SD_WORK_GRAPH)
			print(file, vertex->work.graph);
	}
}

/* The flags ask for more detail; there is one form. */
CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
	CUresult result = sd_enter();

	(void)flags;
	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_graph *graph = sd_object_get(hGraph, SD_GRAPH);
	FILE *file = graph && path ? fopen(path, "we") : NULL;

	if (!file)
		return sd_leave(graph && path ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_ERROR_INVALID_VALUE);
	fprintf(file, "digraph graph_%llu {\n", (unsigned long long)graph->object.id);
	print(file, graph);
	fprintf(file, "}\n");
	return sd_leave(fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM);
}
