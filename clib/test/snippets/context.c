/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: each costs its overhead, a primary context once however often it is retained. */
#include "snippet.h"

#define CONTEXT_BYTES (64 * MIB) /* of a simulated card */

typedef int create(CUcontext *context);

static int create_v2(CUcontext *context)
{
	return (int)DRIVER(cuCtxCreate_v2)(context, 0, snippet_run.device);
}

static int create_v1(CUcontext *context)
{
	return (int)DRIVER(cuCtxCreate)(context, 0, snippet_run.device);
}

static int create_v3(CUcontext *context)
{
	return (int)DRIVER(cuCtxCreate_v3)(context, NULL, 0, 0, snippet_run.device);
}

static int create_v4(CUcontext *context)
{
	return (int)DRIVER(cuCtxCreate_v4)(context, NULL, 0, snippet_run.device);
}

static void created_with(create *make, __typeof__(&cuCtxDestroy_v2) destroy)
{
	CUcontext context = NULL, marker = (CUcontext)(uintptr_t)0xa5a5, untouched = marker;
	uint64_t before = snippet_room(), filled = 0;

	OK(make(&context));
	EQUAL(before - snippet_room(), CONTEXT_BYTES);
	OK(destroy(context));
	OK(DRIVER(cuCtxSetCurrent)(snippet_run.context));
	EQUAL(snippet_room(), before);

	/* No room for one more context: none is made. */
	OK(snippet_fill(CONTEXT_BYTES - MIB, &filled));
	EQUAL(make(&marker), OVER);
	if (snippet_run.control) {
		OK(destroy(marker));
		OK(DRIVER(cuCtxSetCurrent)(snippet_run.context));
	} else {
		CHECK(marker == untouched);
	}
	OK(DRIVER(cuMemFree_v2)(filled));
	EQUAL(snippet_room(), before);
}

static void created_v2(void)
{
	created_with(create_v2, DRIVER(cuCtxDestroy_v2));
}

static void created_v1(void)
{
	created_with(create_v1, DRIVER(cuCtxDestroy));
}

static void created_v3(void)
{
	created_with(create_v3, DRIVER(cuCtxDestroy_v2));
}

static void created_v4(void)
{
	created_with(create_v4, DRIVER(cuCtxDestroy_v2));
}

/* What a context still holds goes with it. */
static void destroyed(void)
{
	CUcontext context = NULL;
	CUdeviceptr address = 0;
	uint64_t before = snippet_room();

	OK(create_v2(&context));
	OK(DRIVER(cuMemAlloc_v2)(&address, 8 * MIB));
	OK(DRIVER(cuMemAlloc_v2)(&address, 4 * MIB));
	EQUAL(before - snippet_room(), CONTEXT_BYTES + 12 * MIB);
	OK(DRIVER(cuCtxDestroy_v2)(context));
	OK(DRIVER(cuCtxSetCurrent)(snippet_run.context));
	EQUAL(snippet_room(), before);
}

/* The oldest way to count users of a context. */
static void attached(void)
{
	CUcontext context = NULL, same = NULL;
	uint64_t before = snippet_room();

	OK(create_v2(&context));
	OK(DRIVER(cuCtxAttach)(&same, 0));
	CHECK(same == context);
	EQUAL(before - snippet_room(), CONTEXT_BYTES);
	OK(DRIVER(cuCtxDetach)(context));
	EQUAL(before - snippet_room(), CONTEXT_BYTES);
	OK(DRIVER(cuCtxDetach)(context));
	OK(DRIVER(cuCtxSetCurrent)(snippet_run.context));
	EQUAL(snippet_room(), before);
}

/* Retained twice, charged once; gone with the last release. */
static void retained_with(__typeof__(&cuDevicePrimaryCtxRelease_v2) release)
{
	CUcontext own = NULL, primary = NULL;
	uint64_t before = snippet_room();

	OK(DRIVER(cuDevicePrimaryCtxRetain)(&primary, snippet_run.device));
	CHECK(primary == snippet_run.context);
	EQUAL(snippet_room(), before);
	OK(release(snippet_run.device));
	EQUAL(snippet_room(), before);
	OK(create_v2(&own));
	EQUAL(before - snippet_room(), CONTEXT_BYTES);
	OK(release(snippet_run.device));
	EQUAL(snippet_room(), before);
	OK(DRIVER(cuDevicePrimaryCtxRetain)(&snippet_run.context, snippet_run.device));
	EQUAL(before - snippet_room(), CONTEXT_BYTES);
	OK(DRIVER(cuCtxDestroy_v2)(own));
	OK(DRIVER(cuCtxSetCurrent)(snippet_run.context));
	EQUAL(snippet_room(), before);
}

static void released_v2(void)
{
	retained_with(DRIVER(cuDevicePrimaryCtxRelease_v2));
}

static void released_v1(void)
{
	retained_with(DRIVER(cuDevicePrimaryCtxRelease));
}

/* A reset drops the context and all it held, whatever the number of users. */
static void reset_with(__typeof__(&cuDevicePrimaryCtxReset_v2) reset)
{
	CUcontext own = NULL;
	CUdeviceptr address = 0;
	uint64_t before = snippet_room();

	OK(DRIVER(cuMemAlloc_v2)(&address, 8 * MIB));
	OK(create_v2(&own));
	EQUAL(before - snippet_room(), CONTEXT_BYTES + 8 * MIB);
	OK(reset(snippet_run.device));
	EQUAL(snippet_room(), before);
	OK(DRIVER(cuDevicePrimaryCtxRetain)(&snippet_run.context, snippet_run.device));
	OK(DRIVER(cuCtxDestroy_v2)(own));
	OK(DRIVER(cuCtxSetCurrent)(snippet_run.context));
	EQUAL(snippet_room(), before);
}

static void reset_v2(void)
{
	reset_with(DRIVER(cuDevicePrimaryCtxReset_v2));
}

static void reset_v1(void)
{
	reset_with(DRIVER(cuDevicePrimaryCtxReset));
}

/* No room for the primary context: nothing is retained. */
static void retain_over(void)
{
	CUcontext own = NULL, marker = (CUcontext)(uintptr_t)0xa5a5, untouched = marker;
	uint64_t before = snippet_room(), filled = 0;

	OK(create_v2(&own));
	OK(DRIVER(cuDevicePrimaryCtxRelease_v2)(snippet_run.device));
	OK(snippet_fill(CONTEXT_BYTES - MIB, &filled));
	EQUAL(DRIVER(cuDevicePrimaryCtxRetain)(&marker, snippet_run.device), OVER);
	if (snippet_run.control)
		OK(DRIVER(cuDevicePrimaryCtxRelease_v2)(snippet_run.device));
	else
		CHECK(marker == untouched);
	OK(DRIVER(cuMemFree_v2)(filled));
	OK(DRIVER(cuDevicePrimaryCtxRetain)(&snippet_run.context, snippet_run.device));
	OK(DRIVER(cuCtxDestroy_v2)(own));
	OK(DRIVER(cuCtxSetCurrent)(snippet_run.context));
	EQUAL(snippet_room(), before);
}

/* Above its default a limit costs the difference; one that does not fit changes nothing. */
static void limited(void)
{
	const size_t standard = 8 * MIB; /* heap for malloc in kernels */
	uint64_t before = snippet_room();
	size_t now = 0;

	OK(DRIVER(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, standard + 32 * MIB));
	EQUAL(before - snippet_room(), 32 * MIB);
	OK(DRIVER(cuCtxSetLimit)(CU_LIMIT_PRINTF_FIFO_SIZE, 2 * MIB));
	EQUAL(before - snippet_room(), 33 * MIB);
	OK(DRIVER(cuCtxSetLimit)(CU_LIMIT_PRINTF_FIFO_SIZE, 1 * MIB));
	OK(DRIVER(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, standard));
	EQUAL(snippet_room(), before);
	/* Every resident thread has a stack: 1 KiB more is much. */
	OK(DRIVER(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 1024 + 512));
	CHECK(before - snippet_room() >= 32 * MIB);
	OK(DRIVER(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 1024));
	EQUAL(snippet_room(), before);

	EQUAL(DRIVER(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, standard + snippet_too_much()), OVER);
	OK(DRIVER(cuCtxGetLimit)(&now, CU_LIMIT_MALLOC_HEAP_SIZE));
	if (!snippet_run.control)
		EQUAL(now, standard);
	OK(DRIVER(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, standard));
	EQUAL(snippet_room(), before);
}

/* A context on some of the multiprocessors: whatever it costs comes back. */
static void green(void)
{
	CUdevResource all, some;
	CUdevResourceDesc description = NULL;
	CUgreenCtx context = NULL;
	CUcontext plain = NULL;
	CUdeviceptr address = 0, more = 0;
	unsigned int groups = 1;
	uint64_t before = snippet_room(), held;

	memset(&all, 0, sizeof all);
	memset(&some, 0, sizeof some);
	OK(DRIVER(cuDeviceGetDevResource)(snippet_run.device, &all, CU_DEV_RESOURCE_TYPE_SM));
	OK(DRIVER(cuDevSmResourceSplitByCount)(&some, &groups, &all, NULL, 0, 8));
	OK(DRIVER(cuDevResourceGenerateDesc)(&description, &some, 1));
	OK(DRIVER(cuGreenCtxCreate)(&context, description, snippet_run.device, CU_GREEN_CTX_DEFAULT_STREAM));
	CHECK(before - snippet_room() <= CONTEXT_BYTES);
	/* Memory that is taken through it counts like any other. */
	OK(DRIVER(cuCtxFromGreenCtx)(&plain, context));
	OK(DRIVER(cuCtxSetCurrent)(plain));
	held = snippet_room();
	OK(DRIVER(cuMemAlloc_v2)(&address, 8 * MIB));
	EQUAL(held - snippet_room(), 8 * MIB);
	EQUAL(DRIVER(cuMemAlloc_v2)(&more, snippet_too_much()), OVER);
	if (snippet_run.control)
		OK(DRIVER(cuMemFree_v2)(more));
	OK(DRIVER(cuMemFree_v2)(address));
	OK(DRIVER(cuCtxSetCurrent)(snippet_run.context));
	OK(DRIVER(cuGreenCtxDestroy)(context));
	EQUAL(snippet_room(), before);
}

static const struct snippet snippets[] = {
	SNIPPET(cuCtxSetLimit, limited),
	SNIPPET(cuGreenCtxCreate, green),
	SNIPPET(cuGreenCtxDestroy, green),
	SNIPPET(cuCtxFromGreenCtx, green),
	SNIPPET(cuCtxCreate_v2, created_v2),
	SNIPPET(cuCtxCreate, created_v1),
	SNIPPET(cuCtxCreate_v3, created_v3),
	SNIPPET(cuCtxCreate_v4, created_v4),
	SNIPPET(cuCtxDestroy_v2, destroyed),
	SNIPPET(cuCtxDestroy, created_v1),
	SNIPPET(cuCtxAttach, attached),
	SNIPPET(cuCtxDetach, attached),
	SNIPPET(cuDevicePrimaryCtxRetain, retain_over),
	SNIPPET(cuDevicePrimaryCtxRelease_v2, released_v2),
	SNIPPET(cuDevicePrimaryCtxRelease, released_v1),
	SNIPPET(cuDevicePrimaryCtxReset_v2, reset_v2),
	SNIPPET(cuDevicePrimaryCtxReset, reset_v1),
};

const struct area area_context = {
	.name = "context",
	.snippets = snippets,
	.snippets_count = COUNT(snippets),
};
