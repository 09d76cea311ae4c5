/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graphmem.c: memory that graphs allocate when they run.
 *
 * Rule: a card is charged what the driver reserves for graphs
 * (CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), and, for each instantiated graph
 * that has not run yet, what its alloc nodes ask for in all, rounded up to 2 MiB:
 * reserves grow by such steps when a graph is first uploaded or launched, and
 * then it is too late to say no. So instantiating charges the sum, the first
 * upload or launch turns the charge into what was reserved, and a later launch
 * charges the part of the sum that was trimmed away since. Until the driver has
 * the launch, what it counts on stays charged, whatever others trim. The sum is
 * more than a graph needs that frees and allocates again: too much, and only
 * until it has run. Graphs that run one after the other share a reserve; if
 * several at once make it grow further than there is room for, that is reported
 * as a denial and charged as soon as there is room.
 *
 * Nodes are not followed one by one: graphs are looked through when they are
 * instantiated, children too, so that clones and captures need nothing. A
 * process that never built or captured an alloc node pays one load.
 */
#include "memory.h"
#include "front_hooks.h"

#include <sys/mman.h>

#define GRAPH_DEPTH 16
#define GRAPH_MAX_NODES (1u << 22)

static struct front_lock lock;
static struct {
	uint64_t charged;
	uint64_t pending;  /* the part of it for graphs that have not run yet */
	uint64_t coming;   /* being charged, because the reserve grew further; not yet in charged */
	uint64_t floor;    /* what a launch under way finds reserved, or reserves again */
	uint32_t launches; /* under way */
} card[DIVVY_MAX_CARDS];
static uint32_t seen;

/* What a graph's alloc nodes ask for, and what was reserved before it was instantiated. */
struct sum {
	uint64_t bytes[DIVVY_MAX_CARDS];
	uint64_t reserved[DIVVY_MAX_CARDS];
};

void graphmem_seen(void)
{
	__atomic_store_n(&seen, 1, __ATOMIC_RELAXED);
	front_pools_began();
}

static bool idle(void)
{
	return !__atomic_load_n(&seen, __ATOMIC_RELAXED);
}

/* False when the driver does not say. */
static bool reserved_on(int slot, uint64_t *bytes)
{
	cuuint64_t value = 0;
	CUdevice device = front_device(slot);

	if (device < 0 ||
	    REAL(SYM_cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute)(
		    device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value) != CUDA_SUCCESS)
		return false;
	*bytes = memory_round(value, DIVVY_ALLOCATION_UNIT);
	return true;
}

/* Gives back what is charged beyond reserve and pending, and what a launch under way counts on. */
static void settle(int slot)
{
	uint64_t reserved, wanted, back = 0;

	front_lock_take(&lock);
	if (card[slot].charged && reserved_on(slot, &reserved)) {
		wanted = memory_plus(reserved > card[slot].floor ? reserved : card[slot].floor, card[slot].pending);
		if (card[slot].charged > wanted) {
			back = card[slot].charged - wanted;
			card[slot].charged = wanted;
		}
	}
	front_lock_drop(&lock);
	if (back)
		front_refund(slot, back);
}

void graphmem_settle(void)
{
	if (idle())
		return;
	for (int slot = 0; slot < (int)front_cards(); slot++)
		settle(slot);
}

void graphmem_trim(void)
{
	if (idle())
		return;
	for (int slot = 0; slot < (int)front_cards(); slot++) {
		bool any;

		front_lock_take(&lock);
		any = card[slot].charged != 0;
		front_lock_drop(&lock);
		if (any && front_device(slot) >= 0)
			(void)REAL(SYM_cuDeviceGraphMemTrim, cuDeviceGraphMemTrim)(front_device(slot));
	}
}

/* A reserve that grew beyond its charge is charged; without room it is tried again next time. */
static void catch_up(int slot, const char *call)
{
	uint64_t reserved, wanted, known, more = 0;
	int rc;

	front_lock_take(&lock);
	if (reserved_on(slot, &reserved)) {
		wanted = memory_plus(reserved, card[slot].pending);
		known = memory_plus(card[slot].charged, card[slot].coming);
		more = wanted > known ? wanted - known : 0;
		card[slot].coming += more;
	}
	front_lock_drop(&lock);
	if (!more)
		return;
	rc = front_charge(slot, more, call);
	front_lock_take(&lock);
	card[slot].coming -= more;
	if (rc == 0)
		card[slot].charged += more;
	front_lock_drop(&lock);
	settle(slot); /* it may have shrunk meanwhile */
}

static CUresult take(int slot, uint64_t bytes, const char *call)
{
	CUresult result = memory_charge(slot, bytes, call);

	if (result == CUDA_SUCCESS) {
		front_lock_take(&lock);
		card[slot].charged += bytes;
		card[slot].pending += bytes;
		front_lock_drop(&lock);
	}
	return result;
}

/* bytes are no longer pending: what of them was not reserved goes back. */
static void turn(int slot, uint64_t bytes)
{
	front_lock_take(&lock);
	card[slot].pending -= bytes < card[slot].pending ? bytes : card[slot].pending;
	front_lock_drop(&lock);
	settle(slot);
}

static void add_up(CUgraph graph, struct sum *sum, int depth)
{
	CUgraphNode *nodes;
	size_t count = 0;
	size_t bytes;

	if (depth > GRAPH_DEPTH ||
	    REAL(SYM_cuGraphGetNodes, cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS || !count)
		return;
	if (count > GRAPH_MAX_NODES)
		count = GRAPH_MAX_NODES;
	bytes = count * sizeof(CUgraphNode);
	nodes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (nodes == MAP_FAILED)
		return;
	if (REAL(SYM_cuGraphGetNodes, cuGraphGetNodes)(graph, nodes, &count) != CUDA_SUCCESS)
		count = 0;
	for (size_t i = 0; i < count && i < bytes / sizeof(CUgraphNode); i++) {
		CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
		CUDA_MEM_ALLOC_NODE_PARAMS params = { 0 };
		CUgraph child = NULL;

		if (!nodes[i] || REAL(SYM_cuGraphNodeGetType, cuGraphNodeGetType)(nodes[i], &type) != CUDA_SUCCESS)
			continue;
		if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
		    REAL(SYM_cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph)(nodes[i], &child) ==
			    CUDA_SUCCESS && child)
			add_up(child, sum, depth + 1);
		if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
		    REAL(SYM_cuGraphMemAllocNodeGetParams, cuGraphMemAllocNodeGetParams)(nodes[i], &params) ==
			    CUDA_SUCCESS &&
		    params.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
			int slot = front_slot(params.poolProps.location.id);
			uint64_t size = memory_round(params.bytesize, DIVVY_ALLOCATION_UNIT);

			if (slot >= 0 && __builtin_add_overflow(sum->bytes[slot], size, &sum->bytes[slot]))
				sum->bytes[slot] = UINT64_MAX;
		}
	}
	munmap(nodes, bytes);
}

/* Charges what the graph asks for; nothing is charged when it fails. */
static CUresult before(CUgraph graph, struct sum *sum, const char *call)
{
	CUresult result;

	*sum = (struct sum){ { 0 }, { 0 } };
	if (idle())
		return CUDA_SUCCESS;
	add_up(graph, sum, 0);
	for (int slot = 0; slot < (int)DIVVY_MAX_CARDS; slot++) {
		if (!sum->bytes[slot])
			continue;
		sum->bytes[slot] = memory_round(sum->bytes[slot], MEMORY_STEP);
		(void)reserved_on(slot, &sum->reserved[slot]);
		result = take(slot, sum->bytes[slot], call);
		if (result == CUDA_SUCCESS)
			continue;
		while (--slot >= 0) {
			if (sum->bytes[slot])
				turn(slot, sum->bytes[slot]);
		}
		return result;
	}
	return CUDA_SUCCESS;
}

/* SPACE_EXEC + slot: extra: what its alloc nodes ask for, bytes: the part of that which is pending. */

static CUresult after(CUgraphExec exec, const struct sum *sum, CUresult result)
{
	for (int slot = 0; slot < (int)DIVVY_MAX_CARDS; slot++) {
		uint64_t bytes = sum->bytes[slot];
		uint64_t now = 0, done = bytes;
		struct table_record old;
		struct table_record record = {
			.key = (uintptr_t)exec, .extra = bytes, .space = (uint16_t)(SPACE_EXEC + slot),
			.slot = (uint8_t)slot,
		};

		if (!bytes)
			continue;
		if (result == CUDA_SUCCESS) {
			/* A driver may reserve now; what it reserved is no longer pending. */
			done = reserved_on(slot, &now) && now > sum->reserved[slot] ? now - sum->reserved[slot] : 0;
			if (done > bytes)
				done = bytes;
			record.bytes = bytes - done;
			if (table_put(&front_held, &record, &old) == 1)
				done += old.bytes;
		}
		if (done)
			turn(slot, done);
	}
	return result;
}

static bool no_longer_pending(struct table_record *record, void *arg)
{
	*(uint64_t *)arg = record->bytes;
	record->bytes = 0;
	return true;
}

static bool more_pending(struct table_record *record, void *arg)
{
	record->bytes += *(uint64_t *)arg;
	return true;
}

/*
 * The graph asks for bytes. Of these its pending part is charged and stays so until
 * the launch has ended. The rest was reserved once; if it is no more, it is charged
 * again, and if it is, it may be trimmed before the driver gets to the launch.
 */
static CUresult launch_begin(int slot, CUgraphExec exec, uint64_t bytes, const char *call, uint64_t *pending)
{
	uint16_t space = (uint16_t)(SPACE_EXEC + slot);
	uint64_t rest, reserved, known, spare, more = 0;
	CUresult result = CUDA_SUCCESS;

	*pending = 0;
	table_change(&front_held, space, (uintptr_t)exec, no_longer_pending, pending);
	rest = bytes > *pending ? bytes - *pending : 0;
	front_lock_take(&lock);
	card[slot].launches++;
	if (card[slot].floor < rest)
		card[slot].floor = rest;
	if (reserved_on(slot, &reserved) && reserved < rest) {
		known = memory_plus(reserved, card[slot].pending);
		spare = card[slot].charged > known ? card[slot].charged - known : 0;
		more = rest - reserved > spare ? rest - reserved - spare : 0;
	}
	front_lock_drop(&lock);
	if (more)
		result = memory_charge(slot, more, call);
	if (result == CUDA_SUCCESS) {
		front_lock_take(&lock);
		card[slot].charged += more;
		front_lock_drop(&lock);
	} else if (table_change(&front_held, space, (uintptr_t)exec, more_pending, pending)) {
		*pending = 0; /* not this launch's any more */
	}
	return result;
}

static void launch_end(int slot, uint64_t pending)
{
	front_lock_take(&lock);
	if (--card[slot].launches == 0)
		card[slot].floor = 0;
	front_lock_drop(&lock);
	turn(slot, pending);
}

CUresult front_graph_launching(CUgraphExec exec, struct front_graph_launch *launch)
{
	struct table_record record;

	launch->slots = 0;
	if (idle())
		return CUDA_SUCCESS;
	for (int slot = 0; slot < (int)front_cards(); slot++) {
		if (!table_get(&front_held, (uint16_t)(SPACE_EXEC + slot), (uintptr_t)exec, &record))
			continue;
		if (launch_begin(slot, exec, record.extra, launch->call, &launch->pending[slot]) != CUDA_SUCCESS) {
			launch_end(slot, launch->pending[slot]);
			front_graph_launched(launch);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		launch->slots |= 1u << slot;
	}
	return CUDA_SUCCESS;
}

void front_graph_launched(const struct front_graph_launch *launch)
{
	for (int slot = 0; launch->slots >> slot; slot++) {
		if (!(launch->slots >> slot & 1))
			continue;
		launch_end(slot, launch->pending[slot]);
		catch_up(slot, launch->call);
	}
}

static bool exec_on_slot(const struct table_record *record, void *arg)
{
	return record->space == SPACE_EXEC + *(int *)arg;
}

void graphmem_card_reset(int slot)
{
	if (idle())
		return;
	table_sweep(&front_held, exec_on_slot, &slot);
	turn(slot, UINT64_MAX);
}

CUresult hook_cuGraphUpload(enum divvy_symbol called, CUgraphExec hGraphExec, CUstream hStream)
{
	struct front_graph_launch launch = { .call = "cuGraphUpload" };
	CUresult result;

	if (idle() || !front_enter())
		return REAL(called, cuGraphUpload)(hGraphExec, hStream);
	result = front_graph_launching(hGraphExec, &launch);
	if (result == CUDA_SUCCESS) {
		result = REAL(called, cuGraphUpload)(hGraphExec, hStream);
		front_graph_launched(&launch);
	}
	front_leave();
	return result;
}

/* cuGraphInstantiate and cuGraphInstantiate_v2 have one signature. */
static CUresult instantiate(enum divvy_symbol called, CUgraphExec *exec, CUgraph graph, CUgraphNode *error,
			    char *log, size_t size)
{
	struct sum sum;
	CUresult result;

	if (!exec || idle() || !front_enter())
		return REAL(called, cuGraphInstantiate_v2)(exec, graph, error, log, size);
	result = before(graph, &sum, "cuGraphInstantiate");
	if (result == CUDA_SUCCESS) {
		result = REAL(called, cuGraphInstantiate_v2)(exec, graph, error, log, size);
		result = after(*exec, &sum, result);
	}
	front_leave();
	return result;
}

CUresult hook_cuGraphInstantiate(enum divvy_symbol called, CUgraphExec *phGraphExec, CUgraph hGraph,
				 CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
	return instantiate(called, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult hook_cuGraphInstantiate_v2(enum divvy_symbol called, CUgraphExec *phGraphExec, CUgraph hGraph,
				    CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
	return instantiate(called, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult hook_cuGraphInstantiateWithFlags(enum divvy_symbol called, CUgraphExec *phGraphExec, CUgraph hGraph,
					  unsigned long long flags)
{
	struct sum sum;
	CUresult result;

	if (!phGraphExec || idle() || !front_enter())
		return REAL(called, cuGraphInstantiateWithFlags)(phGraphExec, hGraph, flags);
	result = before(hGraph, &sum, "cuGraphInstantiate");
	if (result == CUDA_SUCCESS) {
		result = REAL(called, cuGraphInstantiateWithFlags)(phGraphExec, hGraph, flags);
		result = after(*phGraphExec, &sum, result);
	}
	front_leave();
	return result;
}

static void uploaded(CUgraphExec exec)
{
	for (int slot = 0; slot < (int)front_cards(); slot++) {
		uint64_t pending = 0;

		if (!table_change(&front_held, (uint16_t)(SPACE_EXEC + slot), (uintptr_t)exec, no_longer_pending, &pending))
			continue;
		turn(slot, pending);
		catch_up(slot, "cuGraphInstantiate");
	}
}

CUresult hook_cuGraphInstantiateWithParams(enum divvy_symbol called, CUgraphExec *phGraphExec, CUgraph hGraph,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	struct sum sum;
	CUresult result;

	if (!phGraphExec || !instantiateParams || idle() || !front_enter())
		return REAL(called, cuGraphInstantiateWithParams)(phGraphExec, hGraph, instantiateParams);
	result = before(hGraph, &sum, "cuGraphInstantiate");
	if (result == CUDA_SUCCESS) {
		result = REAL(called, cuGraphInstantiateWithParams)(phGraphExec, hGraph, instantiateParams);
		result = after(*phGraphExec, &sum, result);
		/* The reserve is there. */
		if (result == CUDA_SUCCESS && instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
			uploaded(*phGraphExec);
	}
	front_leave();
	return result;
}

CUresult hook_cuGraphExecDestroy(enum divvy_symbol called, CUgraphExec hGraphExec)
{
	struct table_record record[DIVVY_MAX_CARDS];
	bool ours[DIVVY_MAX_CARDS] = { false };
	CUresult result;

	if (idle() || !front_enter())
		return REAL(called, cuGraphExecDestroy)(hGraphExec);
	for (int slot = 0; slot < (int)front_cards(); slot++)
		ours[slot] = table_take(&front_held, (uint16_t)(SPACE_EXEC + slot), (uintptr_t)hGraphExec,
					&record[slot]);
	result = REAL(called, cuGraphExecDestroy)(hGraphExec);
	for (int slot = 0; slot < (int)front_cards(); slot++) {
		if (ours[slot] && result != CUDA_SUCCESS)
			memory_restore(&record[slot]);
		else if (ours[slot])
			turn(slot, record[slot].bytes);
	}
	front_leave();
	return result;
}

CUresult hook_cuDeviceGraphMemTrim(enum divvy_symbol called, CUdevice device)
{
	CUresult result;

	if (!front_enter())
		return REAL(called, cuDeviceGraphMemTrim)(device);
	result = REAL(called, cuDeviceGraphMemTrim)(device);
	graphmem_settle();
	front_leave();
	return result;
}

CUresult hook_cuGraphAddMemAllocNode(enum divvy_symbol called, CUgraphNode *phGraphNode, CUgraph hGraph,
				     const CUgraphNode *dependencies, size_t numDependencies,
				     CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	CUresult result = REAL(called, cuGraphAddMemAllocNode)(phGraphNode, hGraph, dependencies, numDependencies,
							       nodeParams);

	if (result == CUDA_SUCCESS)
		graphmem_seen();
	return result;
}

CUresult hook_cuGraphAddNode(enum divvy_symbol called, CUgraphNode *phGraphNode, CUgraph hGraph,
			     const CUgraphNode *dependencies, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUresult result = REAL(called, cuGraphAddNode)(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);

	if (result == CUDA_SUCCESS && nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		graphmem_seen();
	return result;
}

CUresult hook_cuGraphAddNode_v2(enum divvy_symbol called, CUgraphNode *phGraphNode, CUgraph hGraph,
				const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
				size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUresult result = REAL(called, cuGraphAddNode_v2)(phGraphNode, hGraph, dependencies, dependencyData,
							  numDependencies, nodeParams);

	if (result == CUDA_SUCCESS && nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		graphmem_seen();
	return result;
}

/* Two that change nothing by themselves: free nodes give to the reserve, graphs hold no memory. */

CUresult hook_cuGraphAddMemFreeNode(enum divvy_symbol called, CUgraphNode *phGraphNode, CUgraph hGraph,
				    const CUgraphNode *dependencies, size_t numDependencies, CUdeviceptr dptr)
{
	return REAL(called, cuGraphAddMemFreeNode)(phGraphNode, hGraph, dependencies, numDependencies, dptr);
}

CUresult hook_cuGraphDestroy(enum divvy_symbol called, CUgraph hGraph)
{
	return REAL(called, cuGraphDestroy)(hGraph);
}
