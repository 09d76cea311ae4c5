/* SPDX-License-Identifier: Apache-2.0 */
/*
 * texture.c: texture objects over memory, without a round trip each.
 *
 * Programs make one for each plane of each picture, of a few buffers in turn, and give it
 * back when the kernel is launched. One that is given back is kept, and given out again
 * when the same is asked for. All that are kept go before any call that could make one
 * stand for something else: any but those that only use memory.
 */
#include <pthread.h>

#include "remote.h"

enum { MOST = 256 };

struct kept {
	uint64_t object, context; /* object 0: a free place */
	bool idle;                /* given back by the program */
	bool viewed;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
	CUDA_RESOURCE_VIEW_DESC view;
};

static struct {
	pthread_mutex_t lock;
	struct kept at[MOST];
	unsigned int idle; /* read without the lock */
} textures = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* A call that changes neither what addresses stand for nor which objects there are. */
static bool only_uses(unsigned int number)
{
	static const char *const begins[] = {
		"cuLaunch", "cuFunc", "cuMemcpy", "cuMemset", "cuMemAlloc", "cuMemGetInfo", "cuEvent", "cuStreamWaitEvent",
		"cuStreamQuery", "cuStreamSynchronize", "cuCtxSynchronize", "cuTexObjectCreate", "cuTexObjectDestroy",
	};
	static signed char known[CALL_NUMBERS]; /* 0: not looked up; 1: it only uses; -1 */
	signed char is = number < CALL_NUMBERS ? __atomic_load_n(&known[number], __ATOMIC_RELAXED) : -1;

	if (!is) {
		is = call_is_nvml(number) ? 1 : -1;
		for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]) && is < 0; i++)
			is = strncmp(call_name(number), begins[i], strlen(begins[i])) == 0 ? 1 : -1;
		__atomic_store_n(&known[number], is, __ATOMIC_RELAXED);
	}
	return is > 0;
}

/* Gives one back in the context that it was made in; the call that is being made stays. */
static void destroy(struct remote_lane *lane, struct kept *one)
{
	const uint64_t values[] = { one->object };
	uint64_t *stack = lane->stack;
	size_t depth = lane->depth;
	struct remote_bytes out = lane->out;
	uint32_t twin = lane->twin;

	lane->stack = &one->context;
	lane->depth = 1;
	lane->out = (struct remote_bytes){ 0 };
	remote_call_one_way(CALL_cuTexObjectDestroy, values);
	remote_free(&lane->out);
	lane->stack = stack;
	lane->depth = depth;
	lane->out = out;
	lane->twin = twin;
	one->object = 0;
}

void remote_drop_textures(struct remote_lane *lane, unsigned int number)
{
	if (__atomic_load_n(&textures.idle, __ATOMIC_RELAXED) == 0 || only_uses(number))
		return;
	pthread_mutex_lock(&textures.lock);
	for (unsigned int i = 0; i < MOST; i++) {
		if (textures.at[i].object && textures.at[i].idle)
			destroy(lane, &textures.at[i]);
	}
	__atomic_store_n(&textures.idle, 0, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&textures.lock);
}

static bool same(const struct kept *a, const struct kept *b)
{
	return a->context == b->context && a->viewed == b->viewed && memcmp(&a->resource, &b->resource, sizeof(a->resource)) == 0 &&
	       memcmp(&a->texture, &b->texture, sizeof(a->texture)) == 0 && (!a->viewed || memcmp(&a->view, &b->view, sizeof(a->view)) == 0);
}

/* One that is idle and the same; 0: there is none. */
static uint64_t again(const struct kept *want)
{
	uint64_t object = 0;

	pthread_mutex_lock(&textures.lock);
	for (unsigned int i = 0; i < MOST && !object; i++) {
		struct kept *one = &textures.at[i];

		if (one->object && one->idle && same(one, want)) {
			object = one->object;
			one->idle = false;
			__atomic_fetch_sub(&textures.idle, 1, __ATOMIC_RELAXED);
		}
	}
	pthread_mutex_unlock(&textures.lock);
	return object;
}

static struct kept *find(uint64_t object)
{
	for (unsigned int i = 0; i < MOST; i++) {
		if (textures.at[i].object == object)
			return &textures.at[i];
	}
	return NULL;
}

/* Remembers one that was made, while there is a place. */
static void keep(const struct kept *made)
{
	pthread_mutex_lock(&textures.lock);
	struct kept *place = find(made->object);

	place = place ? place : find(0);
	if (place)
		*place = *made;
	pthread_mutex_unlock(&textures.lock);
}

/* Keeps one that the program gives back. False: the driver is to be asked. */
static bool give_back(struct remote_lane *lane, uint64_t object)
{
	pthread_mutex_lock(&textures.lock);
	struct kept *one = find(object);
	bool kept = one && !one->idle && one->context == remote_current(lane);

	if (kept) {
		one->idle = true;
		__atomic_fetch_add(&textures.idle, 1, __ATOMIC_RELAXED);
	} else if (one && one->idle) { /* twice: the second fails */
		destroy(lane, one);
		__atomic_fetch_sub(&textures.idle, 1, __ATOMIC_RELAXED);
	} else if (one) {
		one->object = 0;
	}
	pthread_mutex_unlock(&textures.lock);
	return kept;
}

EXPORT CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc, const CUDA_TEXTURE_DESC *pTexDesc,
				  const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
	const uint64_t values[] = { WORD(pTexObject), WORD(pResDesc), WORD(pTexDesc), WORD(pResViewDesc) };
	struct remote_lane *lane;
	CUresult result = remote_ready(&lane);
	struct kept want = { .viewed = pResViewDesc != NULL };
	bool memory = pTexObject && pResDesc && pTexDesc &&
		      (pResDesc->resType == CU_RESOURCE_TYPE_LINEAR || pResDesc->resType == CU_RESOURCE_TYPE_PITCH2D);

	if (result != CUDA_SUCCESS || !memory || remote_strict())
		return (CUresult)remote_call(CALL_cuTexObjectCreate, 0, values);
	want.context = remote_current(lane);
	want.resource.resType = pResDesc->resType; /* and of the rest what is of this kind: programs leave the other bytes as they are */
	want.resource.flags = pResDesc->flags;
	if (pResDesc->resType == CU_RESOURCE_TYPE_LINEAR)
		want.resource.res.linear = pResDesc->res.linear;
	else
		want.resource.res.pitch2D = pResDesc->res.pitch2D;
	want.texture = *pTexDesc;
	if (pResViewDesc)
		want.view = *pResViewDesc;
	want.object = again(&want);
	if (want.object) {
		*pTexObject = want.object;
		return (CUresult)remote_failure(lane);
	}
	result = (CUresult)remote_call(CALL_cuTexObjectCreate, 0, values);
	if (result == CUDA_SUCCESS) {
		want.object = *pTexObject;
		keep(&want);
	}
	return result;
}

EXPORT CUresult cuTexObjectDestroy(CUtexObject texObject)
{
	const uint64_t values[] = { texObject };
	struct remote_lane *lane;

	if (texObject && !remote_strict() && remote_ready(&lane) == CUDA_SUCCESS && give_back(lane, texObject))
		return (CUresult)remote_failure(lane);
	return (CUresult)remote_call(CALL_cuTexObjectDestroy, 0, values);
}
