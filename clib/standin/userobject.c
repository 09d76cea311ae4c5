/* SPDX-License-Identifier: Apache-2.0 */
#include "userobject.h"

#include <stdlib.h>

#include "stream.h"

struct user_object {
	struct sd_object object;
	void *pointer;
	CUhostFn destroy;
	unsigned int refs;
};

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount,
			    unsigned int flags)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!object_out || !destroy || !initialRefcount || initialRefcount > INT32_MAX ||
	    flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct user_object *made = sd_object_new(SD_USER_OBJECT, sizeof(*made), NULL);

	if (!made)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	made->pointer = ptr;
	made->destroy = destroy;
	made->refs = initialRefcount;
	*object_out = (CUuserObject)made;
	return sd_leave(CUDA_SUCCESS);
}

static CUresult drop(CUuserObject handle, unsigned int count)
{
	struct user_object *found = sd_object_get(handle, SD_USER_OBJECT);

	if (!found || !count || count > found->refs)
		return CUDA_ERROR_INVALID_VALUE;
	found->refs -= count;
	if (found->refs)
		return CUDA_SUCCESS;
	const struct sd_callback callback = { .function = found->destroy, .data = found->pointer };

	sd_object_free(found);
	(void)sd_callback_queue(&callback);
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct user_object *found = sd_object_get(object, SD_USER_OBJECT);

	if (!found || !count || count > (unsigned int)INT32_MAX - found->refs)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	found->refs += count;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	CUresult result = sd_enter();

	return result == CUDA_SUCCESS ? sd_leave(drop(object, count)) : result;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_graph *found = sd_object_get(graph, SD_GRAPH);
	struct user_object *held = sd_object_get(object, SD_USER_OBJECT);
	bool moved = flags == CU_GRAPH_USER_OBJECT_MOVE;

	if (!found || !held || !count || (flags && !moved) || (moved && held->refs < count) ||
	    (!moved && count > (unsigned int)INT32_MAX - held->refs))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct sd_keepsake *keepsake = malloc(sizeof(*keepsake));

	if (!keepsake)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	if (!moved)
		held->refs += count;
	*keepsake = (struct sd_keepsake){ .next = found->keepsakes, .object = object, .count = count };
	found->keepsakes = keepsake;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_graph *found = sd_object_get(graph, SD_GRAPH);

	if (!found || !count)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	for (struct sd_keepsake **link = &found->keepsakes; *link; link = &(*link)->next) {
		struct sd_keepsake *keepsake = *link;

		if (keepsake->object != object || keepsake->count < count)
			continue;
		keepsake->count -= count;
		if (!keepsake->count) {
			*link = keepsake->next;
			free(keepsake);
		}
		return sd_leave(drop(object, count));
	}
	return sd_leave(CUDA_ERROR_INVALID_VALUE);
}

void sd_keepsakes_drop(struct sd_keepsake *first)
{
	while (first) {
		struct sd_keepsake *next = first->next;

		(void)drop(first->object, first->count);
		free(first);
		first = next;
	}
}
