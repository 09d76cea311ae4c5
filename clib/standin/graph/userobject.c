/* SPDX-License-Identifier: Apache-2.0 */
/*
 * userobject.c: user objects: something of the program's that is destroyed when neither it
 * nor a graph refers to it any more. A graph that is launched is kept until it has run, and
 * what it holds with it.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/enter.h"
#include "cuda/queue.h"
#include "graph.h"

/* What becomes of it, apart from the object: a thread takes it. */
struct end {
	CUhostFn destroy;
	void *data;
};

struct user_object {
	struct sd_object object;
	struct end *end;
	uint64_t owned; /* references of the program */
	uint64_t held;  /* of graphs */
};

struct sd_hold {
	struct user_object *of;
	uint64_t count;
};

static void *run_end(void *argument)
{
	struct end end = *(struct end *)argument;

	free(argument);
	end.destroy(end.data);
	return NULL;
}

/* Programs are told on a thread of the driver's own: they may hold a lock that destroying
 * takes. */
static void settle(struct user_object *user)
{
	struct end *end = user->end;

	if (user->owned || user->held)
		return;
	sd_object_free(user);
	if (sd_thread_begin(run_end, end))
		return;
	sd_unlock();
	run_end(end);
	sd_lock();
}

static struct user_object *get(CUuserObject handle)
{
	return sd_object_get(handle, SD_USER_OBJECT);
}

static bool fits(unsigned int count)
{
	return count > 0 && count <= INT_MAX;
}

static struct sd_hold *hold_of(const struct sd_graph *graph, const struct user_object *user)
{
	for (size_t i = 0; i < graph->holdcount; i++)
		if (graph->holds[i].of == user)
			return &graph->holds[i];
	return NULL;
}

CUresult sd_holds_copy(const struct sd_graph *graph, struct sd_graph *copy)
{
	if (!graph->holdcount)
		return CUDA_SUCCESS;
	copy->holds = malloc(graph->holdcount * sizeof(*copy->holds));
	if (!copy->holds)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(copy->holds, graph->holds, graph->holdcount * sizeof(*copy->holds));
	copy->holdcount = graph->holdcount;
	for (size_t i = 0; i < copy->holdcount; i++)
		copy->holds[i].of->held += copy->holds[i].count;
	return CUDA_SUCCESS;
}

void sd_holds_end(struct sd_graph *graph)
{
	struct sd_hold *holds = graph->holds;
	size_t count = graph->holdcount;

	graph->holds = NULL;
	graph->holdcount = 0;
	for (size_t i = 0; i < count; i++) {
		holds[i].of->held -= holds[i].count;
		settle(holds[i].of);
	}
	free(holds);
}

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount,
			    unsigned int flags)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!object_out || !destroy || !fits(initialRefcount) || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct end *end = malloc(sizeof(*end));
	struct user_object *user = end ? sd_object_new(SD_USER_OBJECT, sizeof(*user), NULL) : NULL;

	if (!user) {
		free(end);
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*end = (struct end){ destroy, ptr };
	user->end = end;
	user->owned = initialRefcount;
	*object_out = (CUuserObject)user;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct user_object *user = get(object);

	if (!user || !fits(count))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	user->owned += count;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct user_object *user = get(object);

	if (!user || !fits(count) || count > user->owned)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	user->owned -= count;
	settle(user);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_graph *holder = sd_object_get(graph, SD_GRAPH);
	struct user_object *user = get(object);
	bool moves = flags == CU_GRAPH_USER_OBJECT_MOVE;

	if (!holder || !user || !fits(count) || (flags && !moves) || (moves && count > user->owned))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sd_hold *hold = hold_of(holder, user);

	if (!hold) {
		hold = realloc(holder->holds, (holder->holdcount + 1) * sizeof(*hold));
		if (!hold)
			return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
		holder->holds = hold;
		hold += holder->holdcount++;
		*hold = (struct sd_hold){ user, 0 };
	}
	hold->count += count;
	user->held += count;
	user->owned -= moves ? count : 0;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_graph *holder = sd_object_get(graph, SD_GRAPH);
	struct user_object *user = get(object);
	struct sd_hold *hold = holder && user ? hold_of(holder, user) : NULL;

	if (!hold || !fits(count) || count > hold->count)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	hold->count -= count;
	user->held -= count;
	if (!hold->count)
		*hold = holder->holds[--holder->holdcount];
	settle(user);
	return sd_leave(CUDA_SUCCESS);
}
