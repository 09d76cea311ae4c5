/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front_turns.c: the memory hooks in several threads of which one runs at a time
 * (fakeclock.h). Threads change before and after any call of the driver and of the
 * ledger, and at each of these places the driver holds no more than what is charged.
 *
 * First come schedules that once showed it to hold more: a thread waits at the calls
 * that its part names, until so long after the start. Then walks in any order, by
 * schedules that are drawn.
 */
#include "fakeclock.h"
#include "walk.h"

enum { US = 1000, PARTS = 4, STOPS = 4, WALKERS = 4, STEPS = 600, SCHEDULES = 100, LATE_OF = 8 };

struct stop {
	const char *call;
	bool done; /* it has returned */
	unsigned us;
};

struct part {
	void (*run)(void);
	unsigned us; /* when it starts */
	struct stop stop[STOPS];
};

static CUcontext context;
static uint64_t start;
static __thread const struct stop *stop, *last_stop;
static __thread uint64_t dice; /* of a walk */
static _Atomic uint64_t unpaid; /* the driver took so much more than anybody could know, until it shrinks */

static void turn(const char *call, bool done)
{
	if (done && (strcmp(call, "f_sync") == 0 || strcmp(call, "f_graph_trim") == 0))
		unpaid = 0;
	CHECK(fake_charged() + unpaid >= fake_held());
	if (dice) {
		/* at times long enough for others to do several things */
		fakeclock_work(walk_next(&dice) % LATE_OF ? US : 20 * US);
	} else if (stop != last_stop && stop->call && stop->done == done && strcmp(stop->call, call) == 0) {
		clock_sleep_until(start + (uint64_t)(stop++)->us * US);
	}
	CHECK(fake_charged() + unpaid >= fake_held());
}

static void *play_part(void *arg)
{
	const struct part *part = arg;

	(void)REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(context);
	stop = part->stop;
	last_stop = part->stop + STOPS;
	clock_sleep_until(start + (uint64_t)part->us * US);
	part->run();
	CHECK(stop == last_stop || !stop->call);
	return NULL;
}

static void play(const struct part *part)
{
	unsigned thread[PARTS], parts = 0;

	(void)REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&context);
	start = clock_now();
	fake_turns(turn);
	for (; parts < PARTS && part[parts].run; parts++)
		thread[parts] = fakeclock_start(play_part, (void *)(uintptr_t)&part[parts]);
	for (unsigned i = 0; i < parts; i++)
		fakeclock_join(thread[i]);
	fake_turns(NULL);
	CHECK(fake_charged() + unpaid >= fake_held());
}

static void synchronise(void)
{
	CHECK(hook_cuStreamSynchronize(SYM_cuStreamSynchronize, NULL) == CUDA_SUCCESS);
}

static CUdeviceptr pooled_ok(uint64_t bytes)
{
	CUdeviceptr pointer = 0;

	CHECK(hook_cuMemAllocAsync(SYM_cuMemAllocAsync, &pointer, bytes, NULL) == CUDA_SUCCESS);
	return pointer;
}

static void free_pooled(CUdeviceptr pointer)
{
	CHECK(hook_cuMemFreeAsync(SYM_cuMemFreeAsync, pointer, NULL) == CUDA_SUCCESS);
}

static CUdeviceptr one, other;

static void take_20(void)
{
	other = pooled_ok(20 * MIB);
}

static void give_one(void)
{
	free_pooled(one);
}

/*
 * One thread counts on the unused part of the pool. The driver lets go of that, and
 * while a second thread looks, reserves it again; a third frees.
 */
static void claim_outlives_a_look(void)
{
	uint64_t base = fake_charged();

	one = pooled_ok(30 * MIB);
	free_pooled(pooled_ok(20 * MIB));
	CHECK(fake_charged() == base + 50 * MIB);
	play((const struct part[PARTS]){
		{take_20, 0, {{"f_alloc_from", false, 3}, {"f_alloc_from", true, 6}}},
		{synchronise, 1, {{"f_pool_attribute", true, 5}}},
		{give_one, 4, {{0}}},
	});
	free_pooled(other);
	synchronise();
	CHECK(fake_charged() == base);
	BALANCED();
}

static CUmemoryPool pool;

static void free_one_at_once(void)
{
	free_ok(one);
}

static void take_from_pool_and_destroy_it(void)
{
	CHECK(hook_cuMemAllocFromPoolAsync(SYM_cuMemAllocFromPoolAsync, &other, 8 * MIB, pool, NULL) == CUDA_SUCCESS);
	CHECK(other == one);
	clock_pause(2 * US);
	CHECK(hook_cuMemPoolDestroy(SYM_cuMemPoolDestroy, pool) == CUDA_SUCCESS);
}

/*
 * cuMemFree of memory from a pool: before it has returned the address is another
 * allocation's, whose pool is then destroyed.
 */
static void address_comes_again(void)
{
	CUmemPoolProps props = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, FAKE_CARD } };
	uint64_t base = fake_charged();

	CHECK(hook_cuMemPoolCreate(SYM_cuMemPoolCreate, &pool, &props) == CUDA_SUCCESS);
	one = pooled_ok(8 * MIB);
	play((const struct part[PARTS]){
		{free_one_at_once, 0, {{"f_free", true, 2}}},
		{take_from_pool_and_destroy_it, 1, {{0}}},
	});
	free_pooled(other);
	synchronise();
	CHECK(fake_charged() == base);
	BALANCED();
}

static void take_10(void)
{
	other = pooled_ok(10 * MIB);
}

static void grows_unpaid(uint64_t bytes)
{
	unpaid = bytes;
	fake_generous(bytes);
}

/*
 * A pool has grown further than was charged. Before the rest is, the reserve shrinks:
 * nothing goes back that has not been paid.
 */
static void unpaid_growth_shrinks(void)
{
	uint64_t base = fake_charged();

	grows_unpaid(20 * MIB);
	play((const struct part[PARTS]){
		{take_10, 0, {{"front_charge", true, 0}, {"front_charge", false, 3}}},
		{synchronise, 1, {{0}}},
	});
	CHECK(fake_charged() == base + 10 * MIB);
	free_pooled(other);
	synchronise();
	CHECK(fake_charged() == base);
	BALANCED();
}

static CUgraph graph;
static CUgraphExec exec;

static void graph_of(uint64_t bytes)
{
	CUstream stream = (CUstream)64;
	CUdeviceptr pointer;

	CHECK(REAL(SYM_cuStreamBeginCapture, cuStreamBeginCapture)(stream) == CUDA_SUCCESS);
	CHECK(hook_cuMemAllocAsync(SYM_cuMemAllocAsync, &pointer, bytes, stream) == CUDA_SUCCESS);
	CHECK(REAL(SYM_cuStreamEndCapture, cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
	CHECK(hook_cuGraphInstantiateWithFlags(SYM_cuGraphInstantiateWithFlags, &exec, graph, 0) == CUDA_SUCCESS);
}

static void launch(void)
{
	CHECK(hook_cuGraphLaunch(SYM_cuGraphLaunch, exec, NULL) == CUDA_SUCCESS);
}

static void trim(void)
{
	CHECK(hook_cuDeviceGraphMemTrim(SYM_cuDeviceGraphMemTrim, FAKE_CARD) == CUDA_SUCCESS);
}

static void end_graph(void)
{
	CHECK(hook_cuGraphExecDestroy(SYM_cuGraphExecDestroy, exec) == CUDA_SUCCESS);
	CHECK(hook_cuGraphDestroy(SYM_cuGraphDestroy, graph) == CUDA_SUCCESS);
	trim();
}

/* What a launch found reserved is trimmed before the driver has the launch, and comes back with it. */
static void trim_before_a_launch(void)
{
	uint64_t base = fake_charged();

	graph_of(300 * MIB);
	launch();
	CHECK(fake_charged() == base + 300 * MIB);
	play((const struct part[PARTS]){
		{launch, 0, {{"f_graph_launch", false, 2}}},
		{trim, 1, {{0}}},
	});
	CHECK(fake_charged() == base + 300 * MIB);
	end_graph();
	CHECK(fake_charged() == base);
	BALANCED();
}

/* Two threads launch one graph: the end of one launch leaves the other what it counts on. */
static void two_launch_one_graph(void)
{
	uint64_t base = fake_charged();

	graph_of(300 * MIB);
	launch();
	trim();
	CHECK(fake_charged() == base);
	play((const struct part[PARTS]){
		{launch, 0, {{"f_graph_launch", false, 4}}},
		{launch, 1, {{"f_graph_launch", true, 2}}},
		{trim, 3, {{0}}},
	});
	CHECK(fake_charged() == base + 300 * MIB);
	end_graph();
	CHECK(fake_charged() == base);
	BALANCED();
}

/* Graphs have reserved more than was charged. Before the rest is, that is trimmed. */
static void unpaid_graphs_shrink(void)
{
	uint64_t base = fake_charged();

	graph_of(10 * MIB);
	grows_unpaid(20 * MIB);
	play((const struct part[PARTS]){
		{launch, 0, {{"front_charge", false, 2}}},
		{trim, 1, {{0}}},
	});
	CHECK(fake_charged() == base);
	end_graph();
	BALANCED();
}

static CUlibrary library;

static CUlibrary load_ok(void)
{
	CUlibrary loaded = NULL;

	CHECK(hook_cuLibraryLoadData(SYM_cuLibraryLoadData, &loaded, "x", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
	return loaded;
}

static void use_library(void)
{
	CUmodule module = NULL;

	CHECK(hook_cuLibraryGetModule(SYM_cuLibraryGetModule, &module, library) == CUDA_SUCCESS);
}

static void unload(void)
{
	CHECK(hook_cuLibraryUnload(SYM_cuLibraryUnload, library) == CUDA_SUCCESS);
}

static void load_again(void)
{
	CHECK(load_ok() == library);
	use_library();
}

/* Before a library's unloading has returned, its handle is another's. */
static void library_comes_again(void)
{
	uint64_t base = fake_charged();

	library = load_ok();
	use_library();
	CHECK(fake_charged() == base + FAKE_MODULE);
	play((const struct part[PARTS]){
		{unload, 0, {{"end_array", true, 2}}},
		{load_again, 1, {{0}}},
	});
	CHECK(fake_charged() == base + FAKE_MODULE);
	unload();
	CHECK(fake_charged() == base);
	BALANCED();
}

/* Two threads use a library for the first time. One has it loaded; the other, which waited, finds nothing to pay. */
static void two_use_a_library(void)
{
	uint64_t base = fake_charged();

	library = load_ok();
	unpaid = FAKE_MODULE; /* until it is measured */
	play((const struct part[PARTS]){
		{use_library, 0, {{"use_library", true, 2}}},
		{use_library, 1, {{0}}},
	});
	unpaid = 0;
	CHECK(fake_charged() == base + FAKE_MODULE);
	unload();
	CHECK(fake_charged() == base);
	BALANCED();
}

static void use_in_vain(void)
{
	CUmodule module = NULL;

	CHECK(hook_cuLibraryGetModule(SYM_cuLibraryGetModule, &module, library) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* There is no room for a library that two threads use for the first time; later it is paid once. */
static void two_find_no_room(void)
{
	uint64_t base = fake_charged();
	CUdeviceptr rest;

	library = load_ok();
	rest = alloc_ok((LIMIT - fake_charged()) / 512 * 512);
	unpaid = FAKE_MODULE;
	play((const struct part[PARTS]){
		{use_in_vain, 0, {{"use_library", true, 2}}},
		{use_in_vain, 1, {{0}}},
	});
	free_ok(rest);
	use_library();
	unpaid = 0;
	CHECK(fake_charged() == base + FAKE_MODULE);
	unload();
	CHECK(fake_charged() == base);
	BALANCED();
}

/* There was no room for a library. When there is some, two threads that use it pay once. */
static void two_pay_for_a_library(void)
{
	uint64_t base = fake_charged();
	CUdeviceptr rest;

	library = load_ok();
	rest = alloc_ok((LIMIT - fake_charged()) / 512 * 512);
	use_in_vain();
	free_ok(rest);
	unpaid = FAKE_MODULE;
	play((const struct part[PARTS]){
		{use_library, 0, {{"front_charge", true, 2}}},
		{use_library, 1, {{0}}},
	});
	unpaid = 0;
	CHECK(fake_charged() == base + FAKE_MODULE);
	unload();
	CHECK(fake_charged() == base);
	BALANCED();
}

static CUarray array;
static CUmemGenericAllocationHandle backing;

static CUarray sparse_ok(void)
{
	CUDA_ARRAY3D_DESCRIPTOR sparse = {
		.Width = 4096, .Height = 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = 0x40,
	};
	CUarray made = NULL;

	CHECK(hook_cuArray3DCreate_v2(SYM_cuArray3DCreate_v2, &made, &sparse) == CUDA_SUCCESS);
	return made;
}

static void destroy_array(void)
{
	CHECK(hook_cuArrayDestroy(SYM_cuArrayDestroy, array) == CUDA_SUCCESS);
}

static void map_into_another_array(void)
{
	CUmemAllocationProp prop = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, FAKE_CARD } };
	CUarrayMapInfo info = { .memOperationType = CU_MEM_OPERATION_TYPE_MAP };

	CHECK(sparse_ok() == array);
	CHECK(hook_cuMemCreate(SYM_cuMemCreate, &backing, 2 * MIB, &prop, 0) == CUDA_SUCCESS);
	info.resource.array = array;
	info.memHandle.memHandle = backing;
	CHECK(hook_cuMemMapArrayAsync(SYM_cuMemMapArrayAsync, &info, 1, NULL) == CUDA_SUCCESS);
	CHECK(hook_cuMemRelease(SYM_cuMemRelease, backing) == CUDA_SUCCESS);
}

/* Before an array's end has returned, its handle is another's, into which memory is mapped. */
static void array_comes_again(void)
{
	uint64_t base = fake_charged();
	CUarrayMapInfo info = { .memOperationType = CU_MEM_OPERATION_TYPE_UNMAP };

	array = sparse_ok();
	play((const struct part[PARTS]){
		{destroy_array, 0, {{"end_array", true, 2}}},
		{map_into_another_array, 1, {{0}}},
	});
	CHECK(fake_charged() == base + 2 * MIB);
	info.resource.array = array;
	CHECK(hook_cuMemMapArrayAsync(SYM_cuMemMapArrayAsync, &info, 1, NULL) == CUDA_SUCCESS);
	destroy_array();
	CHECK(fake_charged() == base);
	BALANCED();
}

static CUgreenCtx green;
static CUcontext of_green, made[2];

static void destroy_green(void)
{
	CHECK(hook_cuGreenCtxDestroy(SYM_cuGreenCtxDestroy, green) == CUDA_SUCCESS);
}

static void make_contexts(void)
{
	for (int i = 0; i < 2; i++)
		CHECK(hook_cuCtxCreate_v2(SYM_cuCtxCreate_v2, &made[i], 0, FAKE_CARD) == CUDA_SUCCESS);
	CHECK(made[0] == of_green || made[1] == of_green);
}

/* Before a green context's end has returned, the handle that stood for it is another context's. */
static void context_comes_again(void)
{
	uint64_t base = fake_charged();
	CUcontext primary = NULL;

	CHECK(hook_cuDevicePrimaryCtxRetain(SYM_cuDevicePrimaryCtxRetain, &primary, FAKE_CARD) == CUDA_SUCCESS);
	CHECK(hook_cuGreenCtxCreate(SYM_cuGreenCtxCreate, &green, NULL, FAKE_CARD, 0) == CUDA_SUCCESS);
	CHECK(hook_cuCtxFromGreenCtx(SYM_cuCtxFromGreenCtx, &of_green, green) == CUDA_SUCCESS);
	CHECK(fake_charged() == base + 2 * FAKE_CONTEXT);
	play((const struct part[PARTS]){
		{destroy_green, 0, {{"f_green_destroy", true, 2}}},
		{make_contexts, 1, {{0}}},
	});
	CHECK(fake_charged() == base + 3 * FAKE_CONTEXT);
	for (int i = 0; i < 2; i++)
		CHECK(hook_cuCtxDestroy_v2(SYM_cuCtxDestroy_v2, made[i]) == CUDA_SUCCESS);
	CHECK(hook_cuDevicePrimaryCtxRelease_v2(SYM_cuDevicePrimaryCtxRelease_v2, FAKE_CARD) == CUDA_SUCCESS);
	CHECK(fake_charged() == base);
	BALANCED();
}

SCENARIO(claim_outlives_a_look)
SCENARIO(address_comes_again)
SCENARIO(unpaid_growth_shrinks)
SCENARIO(trim_before_a_launch)
SCENARIO(two_launch_one_graph)
SCENARIO(unpaid_graphs_shrink)
SCENARIO(library_comes_again)
SCENARIO(two_use_a_library)
SCENARIO(two_find_no_room)
SCENARIO(two_pay_for_a_library)
SCENARIO(array_comes_again)
SCENARIO(context_comes_again)

static const struct scenario played[] = {
	{"a claim outlives a look", run_claim_outlives_a_look},
	{"an address comes again", run_address_comes_again},
	{"unpaid growth shrinks", run_unpaid_growth_shrinks},
	{"a trim before a launch", run_trim_before_a_launch},
	{"two launch one graph", run_two_launch_one_graph},
	{"unpaid graphs shrink", run_unpaid_graphs_shrink},
	{"a library comes again", run_library_comes_again},
	{"two use a library", run_two_use_a_library},
	{"two find no room", run_two_find_no_room},
	{"two pay for a library", run_two_pay_for_a_library},
	{"an array comes again", run_array_comes_again},
	{"a context comes again", run_context_comes_again},
};

static void *walk_in_thread(void *arg)
{
	uintptr_t me = (uintptr_t)arg;
	struct world w = {
		.state = 0x9e3779b97f4a7c15ull * (fakeclock_schedule() * WALKERS + me + 1),
		.base = 0x600000000 + me * 0x10000000,
		.pooled = fakeclock_schedule() % 2 != 0,
	};

	dice = w.state;
	(void)REAL(SYM_cuCtxSetCurrent, cuCtxSetCurrent)(context);
	for (int i = 0; i < STEPS; i++)
		walk_step(&w);
	walk_clear(&w);
	return NULL;
}

static void in_turns(void)
{
	unsigned thread[WALKERS];
	uint64_t base = fake_charged();

	(void)REAL(SYM_cuCtxGetCurrent, cuCtxGetCurrent)(&context);
	fake_queueing(fakeclock_schedule() / 2 % 2 != 0);
	fake_turns(turn);
	for (uintptr_t i = 0; i < WALKERS; i++)
		thread[i] = fakeclock_start(walk_in_thread, (void *)i);
	for (int i = 0; i < WALKERS; i++)
		fakeclock_join(thread[i]);
	fake_turns(NULL);
	CHECK(fake_most() <= LIMIT);
	CHECK(fake_charged() == base);
	BALANCED();
}

SCENARIO(in_turns)

static const struct scenario walks[] = {
	{"any order, in turns", run_in_turns},
};

int main(int argc, char **argv)
{
	return run_schedules(played, sizeof(played) / sizeof(played[0]), 1, argc, argv) |
	       run_schedules(walks, sizeof(walks) / sizeof(walks[0]), SCHEDULES, argc, argv);
}
