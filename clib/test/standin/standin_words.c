/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that wait for words, and calls that do not wait with them, over a simulator at
 * $DIVVY_SIMULATOR. */
#include "waiting.h"

static CUdeviceptr card(_Atomic uint32_t *at)
{
	CUdeviceptr address = 0;

	OK(cuMemHostGetDevicePointer_v2(&address, (void *)(uintptr_t)at, 0));
	return address;
}

/* Words that streams wait for: written by the host after the call, by another stream, by a
 * kernel; behind a kernel, and before one. */
static void words(void)
{
	enum { MANY = 300 }; /* more than there are threads */
	CUstreamBatchMemOpParams batch[3] = {
		{ .waitValue = { .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = 0, .value = 1, .flags = CU_STREAM_WAIT_VALUE_EQ } },
		{ .writeValue = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = 0, .value = 2 } },
		{ .waitValue = { .operation = CU_STREAM_MEM_OP_WAIT_VALUE_64, .address = 0, .value64 = 1ull << 32, .flags = CU_STREAM_WAIT_VALUE_EQ } },
	};
	CUgraph graph = NULL;
	CUgraphExec exec = NULL;
	static CUstream many[MANY];
	int able = 0;

	begin();
	OK(cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
	CHECK(able == 1);
	OK(cuStreamWaitValue32_v2(one, card(word), 3, CU_STREAM_WAIT_VALUE_GEQ));
	launch("pass", one, word + 1);
	GIVES(cuStreamQuery(one), CUDA_ERROR_NOT_READY);
	word[0] = 2;
	usleep(20000);
	CHECK(word[1] == 0);
	word[0] = 4;
	OK(cuStreamSynchronize(one));
	CHECK(word[1] == 1);

	launch("await", one, word + 2); /* behind a kernel that waits for the host */
	OK(cuStreamWaitValue32_v2(one, card(word + 3), 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWriteValue32_v2(two, card(word + 3), 1, 0));
	word[2] = 1;
	OK(cuCtxSynchronize());

	OK(cuStreamWaitValue32_v2(NULL, card(word + 4), 1, CU_STREAM_WAIT_VALUE_EQ)); /* by a kernel of another stream */
	launch("pass", one, word + 4);
	OK(cuStreamSynchronize(NULL));

	/* several in one call, the middle one only when the first is there; and as a graph */
	batch[0].waitValue.address = card(word + 6);
	batch[1].writeValue.address = card(word + 7);
	batch[2].waitValue.address = card(word + 8);
	for (int i = 0; i < 2; i++) {
		for (int w = 6; w < 10; w++)
			word[w] = 0;
		if (i == 0) {
			OK(cuStreamBatchMemOp_v2(one, 3, batch, 0));
		} else {
			OK(cuStreamBeginCapture_v2(two, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
			OK(cuStreamBatchMemOp_v2(two, 3, batch, 0));
			OK(cuStreamEndCapture(two, &graph));
			OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
			OK(cuGraphLaunch(exec, one));
		}
		CHECK(word[7] == 0);
		word[6] = 1;
		while (word[7] != 2)
			usleep(1000);
		GIVES(cuStreamQuery(one), CUDA_ERROR_NOT_READY);
		word[9] = 1;
		OK(cuStreamSynchronize(one));
	}
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));

	word[10] = 0;
	for (int i = 0; i < MANY; i++) {
		OK(cuStreamCreate(&many[i], CU_STREAM_NON_BLOCKING));
		OK(cuStreamWaitValue32_v2(many[i], card(word + 10), 1, CU_STREAM_WAIT_VALUE_EQ));
	}
	launch("pass", one, word + 10);
	OK(cuCtxSynchronize());
}

/* What waits for a word that nobody writes goes when a fault ends the context. */
static void word_of_nobody(void)
{
	begin();
	OK(cuStreamWaitValue32_v2(one, card(word), 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuLaunchKernel(function("stop"), 1, 1, 1, 1, 1, 1, 0, two, NULL, NULL));
	GIVES(cuStreamSynchronize(one), CUDA_ERROR_LAUNCH_FAILED);
}

/* What a copy writes after a kernel has waited for us; the sanitizer does not see that wait. */
__attribute__((no_sanitize("thread"), noinline)) static uint32_t before_copy(const _Atomic uint32_t *at)
{
	return *(const volatile uint32_t *)at;
}

/* A graph that allocates does not wait in the call for what is before it; only for its own
 * memory, if a launch before has it. */
static void graph_of_memory(void)
{
	CUdeviceptr at = 0;
	CUgraph graph = NULL;
	CUgraphExec exec = NULL;

	begin();
	OK(cuStreamBeginCapture_v2(two, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuMemAllocAsync(&at, 4096, two));
	OK(cuMemsetD32Async(at, 1, 16, two));
	OK(cuMemcpyDtoDAsync_v2(card(word + 1), at, 4, two));
	OK(cuMemFreeAsync(at, two));
	OK(cuStreamEndCapture(two, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	launch("await", one, word);
	OK(cuGraphLaunch(exec, one));
	CHECK(before_copy(&word[1]) == 0);
	word[0] = 1;
	OK(cuGraphLaunch(exec, one));
	OK(cuStreamSynchronize(one));
	CHECK(word[1] == 1);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
}

static const struct scenario list[] = {
	{ "words", words },
	{ "word_of_nobody", word_of_nobody },
	{ "graph_of_memory", graph_of_memory },
};

RUN_SCENARIOS(list)
