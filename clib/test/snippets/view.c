/* SPDX-License-Identifier: Apache-2.0 */
/* What a process sees of cards and of the driver's functions, and the calls that wait. */
#include "snippet.h"

static void initialised(void)
{
	OK(DRIVER(cuInit)(0));
	OK(DRIVER(cuInit)(0));
}

static void count(void)
{
	int cards = -1;

	OK(DRIVER(cuDeviceGetCount)(&cards));
	EQUAL(cards, 1);
}

/* The one card of the share, and no other. */
static void get(void)
{
	CUdevice device = -1, none = 77;

	OK(DRIVER(cuDeviceGet)(&device, 0));
	EQUAL(device, snippet_run.device);
	EQUAL(DRIVER(cuDeviceGet)(&none, 1), CUDA_ERROR_INVALID_DEVICE);
	EQUAL(none, 77);
	EQUAL(DRIVER(cuDeviceGet)(&none, -1), CUDA_ERROR_INVALID_DEVICE);
	EQUAL(none, 77);
}

static void by_address(void)
{
	char address[32] = "";
	CUdevice device = -1;

	OK(DRIVER(cuDeviceGetPCIBusId)(address, sizeof address, snippet_run.device));
	OK(DRIVER(cuDeviceGetByPCIBusId)(&device, address));
	EQUAL(device, snippet_run.device);
	CHECK(DRIVER(cuDeviceGetByPCIBusId)(&device, "0000:ff:1f.0") != 0);
}

/* The function that is handed out is held to the quota like the exported one. */
static void check_function(void *function)
{
	CUresult (*alloc)(CUdeviceptr *, size_t) = (CUresult (*)(CUdeviceptr *, size_t))function;
	CUdeviceptr address = 0;
	uint64_t before = snippet_room();

	CHECK(function != NULL);
	OK(alloc(&address, 2 * MIB));
	EQUAL(before - snippet_room(), 2 * MIB);
	OK(DRIVER(cuMemFree_v2)(address));
	address = 0;
	EQUAL(alloc(&address, snippet_too_much()), OVER);
	if (snippet_run.control)
		OK(DRIVER(cuMemFree_v2)(address));
	else
		EQUAL(address, 0);
	EQUAL(snippet_room(), before);
}

static void function_v1(void)
{
	void *function = NULL;

	OK(DRIVER(cuGetProcAddress)("cuMemAlloc", &function, 11040, 0));
	check_function(function);
	function = NULL;
	EQUAL(DRIVER(cuGetProcAddress)("cuNoSuchCall", &function, 11040, 0), CUDA_ERROR_NOT_FOUND);
	CHECK(function == NULL);
}

static void function_v2(void)
{
	CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)99;
	void *function = NULL;

	OK(DRIVER(cuGetProcAddress_v2)("cuMemAlloc", &function, 12000, 0, &status));
	EQUAL(status, CU_GET_PROC_ADDRESS_SUCCESS);
	check_function(function);
	function = NULL;
	OK(DRIVER(cuGetProcAddress_v2)("cuMemAlloc", &function, 12000, 0, NULL));
	check_function(function);
	/* An unknown name: the driver's answer, whichever it is, with nothing found. */
	function = NULL;
	DRIVER(cuGetProcAddress_v2)("cuNoSuchCall", &function, 12000, 0, &status);
	EQUAL(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	CHECK(function == NULL);
}

/* Pools give their memory back at each of the calls that wait. */
static void released_at(int (*wait)(CUstream, CUevent))
{
	CUstream stream = NULL;
	CUevent event = NULL;
	CUdeviceptr address = 0;
	uint64_t before;

	OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(DRIVER(cuEventCreate)(&event, 0));
	OK(DRIVER(cuCtxSynchronize)());
	before = snippet_room();
	OK(DRIVER(cuMemAllocAsync)(&address, 16 * MIB, stream));
	CHECK(before - snippet_room() >= 16 * MIB);
	OK(DRIVER(cuMemFreeAsync)(address, stream));
	OK(DRIVER(cuEventRecord)(event, stream));
	OK(wait(stream, event));
	EQUAL(snippet_room(), before);
	OK(DRIVER(cuEventDestroy_v2)(event));
	OK(DRIVER(cuStreamDestroy_v2)(stream));
}

static int wait_context(CUstream stream, CUevent event)
{
	(void)stream, (void)event;
	return (int)DRIVER(cuCtxSynchronize)();
}

static int wait_context_v2(CUstream stream, CUevent event)
{
	(void)stream, (void)event;
	return (int)DRIVER(cuCtxSynchronize_v2)(snippet_run.context);
}

static int wait_stream(CUstream stream, CUevent event)
{
	(void)event;
	return (int)DRIVER(cuStreamSynchronize)(stream);
}

static int wait_stream_ptsz(CUstream stream, CUevent event)
{
	(void)event;
	return (int)DRIVER(cuStreamSynchronize_ptsz)(stream);
}

static int wait_event(CUstream stream, CUevent event)
{
	(void)stream;
	return (int)DRIVER(cuEventSynchronize)(event);
}

static void context_waits(void)
{
	released_at(wait_context);
}

static void context_waits_v2(void)
{
	released_at(wait_context_v2);
}

static void stream_waits(void)
{
	released_at(wait_stream);
}

static void stream_waits_ptsz(void)
{
	released_at(wait_stream_ptsz);
}

static void event_waits(void)
{
	released_at(wait_event);
}

static const struct snippet snippets[] = {
	SNIPPET(cuInit, initialised),
	SNIPPET(cuDeviceGetCount, count),
	SNIPPET(cuDeviceGet, get),
	SNIPPET(cuDeviceGetByPCIBusId, by_address),
	SNIPPET(cuGetProcAddress, function_v1),
	SNIPPET(cuGetProcAddress_v2, function_v2),
	SNIPPET(cuCtxSynchronize, context_waits),
	SNIPPET(cuCtxSynchronize_v2, context_waits_v2),
	SNIPPET(cuStreamSynchronize, stream_waits),
	SNIPPET(cuStreamSynchronize_ptsz, stream_waits_ptsz),
	SNIPPET(cuEventSynchronize, event_waits),
};

const struct area area_view = {
	.name = "view",
	.snippets = snippets,
	.snippets_count = COUNT(snippets),
};
