/* SPDX-License-Identifier: Apache-2.0 */
/* NVML shows the share: its one card, its memory, its processes. */
#include "snippet.h"

#include <unistd.h>

static nvmlDevice_t card(void)
{
	nvmlDevice_t device = {0};

	if (DRIVER(nvmlInit_v2)() == 0)
		DRIVER(nvmlDeviceGetHandleByIndex_v2)(0, &device);
	return device;
}

static void initialised_v2(void)
{
	OK(DRIVER(nvmlInit_v2)());
	OK(DRIVER(nvmlShutdown)());
}

static void initialised_v1(void)
{
	OK(DRIVER(nvmlInit)());
	OK(DRIVER(nvmlShutdown)());
}

static void initialised_flags(void)
{
	OK(DRIVER(nvmlInitWithFlags)(0));
	OK(DRIVER(nvmlShutdown)());
}

/* Counted: the last shutdown ends it, and another start works. */
static void shut_down(void)
{
	unsigned int cards = 0;

	OK(DRIVER(nvmlInit_v2)());
	OK(DRIVER(nvmlInit_v2)());
	OK(DRIVER(nvmlShutdown)());
	OK(DRIVER(nvmlDeviceGetCount_v2)(&cards));
	EQUAL(cards, 1);
	OK(DRIVER(nvmlShutdown)());
	OK(DRIVER(nvmlInit_v2)());
	OK(DRIVER(nvmlDeviceGetCount_v2)(&cards));
}

static void count_with(__typeof__(&nvmlDeviceGetCount_v2) call)
{
	unsigned int cards = 0;

	OK(DRIVER(nvmlInit_v2)());
	OK(call(&cards));
	EQUAL(cards, 1);
}

static void count_v2(void)
{
	count_with(DRIVER(nvmlDeviceGetCount_v2));
}

static void count_v1(void)
{
	count_with(DRIVER(nvmlDeviceGetCount));
}

static void by_index_with(__typeof__(&nvmlDeviceGetHandleByIndex_v2) call)
{
	nvmlDevice_t device = {0};
	unsigned int index = 9;

	OK(DRIVER(nvmlInit_v2)());
	OK(call(0, &device));
	OK(DRIVER(nvmlDeviceGetIndex)(device, &index));
	EQUAL(index, 0);
	CHECK(call(1, &device) != 0);
}

static void by_index_v2(void)
{
	by_index_with(DRIVER(nvmlDeviceGetHandleByIndex_v2));
}

static void by_index_v1(void)
{
	by_index_with(DRIVER(nvmlDeviceGetHandleByIndex));
}

static void by_address_with(__typeof__(&nvmlDeviceGetHandleByPciBusId_v2) call)
{
	char address[64] = "";
	nvmlDevice_t device = {0};
	nvmlDevice_t ours = card();

	OK(DRIVER(cuDeviceGetPCIBusId)(address, sizeof address, snippet_run.device));
	OK(call(address, &device));
	CHECK(memcmp(&device, &ours, sizeof device) == 0);
	CHECK(call("0000:ff:1f.0", &device) != 0);
}

static void by_address_v2(void)
{
	by_address_with(DRIVER(nvmlDeviceGetHandleByPciBusId_v2));
}

static void by_address_v1(void)
{
	by_address_with(DRIVER(nvmlDeviceGetHandleByPciBusId));
}

/* What the driver answers, unless the card is not ours. */
static void by_serial(void)
{
	char serial[64] = "";
	nvmlDevice_t device = {0};
	nvmlDevice_t ours = card();

	if (DRIVER(nvmlDeviceGetSerial)(ours, serial, sizeof serial) == 0) {
		OK(DRIVER(nvmlDeviceGetHandleBySerial)(serial, &device));
		CHECK(memcmp(&device, &ours, sizeof device) == 0);
	}
	CHECK(DRIVER(nvmlDeviceGetHandleBySerial)("nobody", &device) != 0);
}

static void by_uuid(void)
{
	char uuid[96] = "";
	nvmlDevice_t device = {0};
	nvmlDevice_t ours = card();

	OK(DRIVER(nvmlDeviceGetUUID)(ours, uuid, sizeof uuid));
	CHECK(strncmp(uuid, "GPU-", 4) == 0);
	OK(DRIVER(nvmlDeviceGetHandleByUUID)(uuid, &device));
	CHECK(memcmp(&device, &ours, sizeof device) == 0);
	CHECK(DRIVER(nvmlDeviceGetHandleByUUID)("GPU-00000000-0000-0000-0000-0000000000ff", &device) != 0);
}

static void by_uuid_struct(void)
{
	struct nvmlUUID_t uuid = {.version = 0x1000000u | (unsigned int)sizeof(struct nvmlUUID_t), .type = 1};
	nvmlDevice_t device = {0};
	nvmlDevice_t ours = card();
	nvmlReturn_t result;

	OK(DRIVER(nvmlDeviceGetUUID)(ours, (char *)&uuid.value, sizeof uuid.value));
	result = DRIVER(nvmlDeviceGetHandleByUUIDV)(&uuid, &device);
	if (result == NVML_SUCCESS)
		CHECK(memcmp(&device, &ours, sizeof device) == 0);
	else
		EQUAL(result, NVML_ERROR_NOT_SUPPORTED);
}

static void memory_v1(void)
{
	nvmlMemory_t memory = {0};
	CUdeviceptr address = 0;
	nvmlDevice_t ours = card();
	unsigned long long before;

	OK(DRIVER(nvmlDeviceGetMemoryInfo)(ours, &memory));
	before = memory.used;
	if (snippet_run.control)
		CHECK(memory.total > snippet_run.quota);
	else
		EQUAL(memory.total, snippet_run.quota);
	EQUAL(memory.free, memory.total - memory.used);
	if (!snippet_run.control)
		EQUAL(memory.free, snippet_room());
	OK(DRIVER(cuMemAlloc_v2)(&address, 8 * MIB));
	OK(DRIVER(nvmlDeviceGetMemoryInfo)(ours, &memory));
	EQUAL(memory.used - before, 8 * MIB);
	OK(DRIVER(cuMemFree_v2)(address));
}

static void memory_v2(void)
{
	nvmlMemory_v2_t memory = {.version = nvmlMemory_v2};
	nvmlDevice_t ours = card();

	OK(DRIVER(nvmlDeviceGetMemoryInfo_v2)(ours, &memory));
	if (snippet_run.control)
		CHECK(memory.total > snippet_run.quota);
	else
		EQUAL(memory.total, snippet_run.quota);
	if (!snippet_run.control)
		EQUAL(memory.free, snippet_room());
	CHECK(memory.free + memory.used + memory.reserved == memory.total ||
	      memory.free + memory.used == memory.total);
}

/* Looks for our own process among those told; -1: an error. */
static int find_self(nvmlReturn_t result, const unsigned int *pids, unsigned int found)
{
	if (result != NVML_SUCCESS)
		return -1;
	for (unsigned int i = 0; i < found; i++)
		if (pids[i] == (unsigned int)getpid())
			return 1;
	return 0;
}

static int self_in_v1(__typeof__(&nvmlDeviceGetComputeRunningProcesses) call, unsigned int *found)
{
	nvmlProcessInfo_v1_t infos[64];
	unsigned int pids[64], count = 64;
	nvmlReturn_t result = call(card(), &count, infos);

	for (unsigned int i = 0; result == NVML_SUCCESS && i < count; i++)
		pids[i] = infos[i].pid;
	*found = count;
	return find_self(result, pids, count);
}

static int self_in_v2(__typeof__(&nvmlDeviceGetComputeRunningProcesses_v2) call, unsigned int *found)
{
	nvmlProcessInfo_v2_t infos[64];
	unsigned int pids[64], count = 64;
	nvmlReturn_t result = call(card(), &count, infos);

	for (unsigned int i = 0; result == NVML_SUCCESS && i < count; i++)
		pids[i] = infos[i].pid;
	*found = count;
	return find_self(result, pids, count);
}

/* One process runs here: this one. Too small an array says how many there are. */
static void compute_v1(void)
{
	unsigned int found = 0, none = 0;

	EQUAL(self_in_v1(DRIVER(nvmlDeviceGetComputeRunningProcesses), &found), 1);
	EQUAL(found, 1);
	EQUAL(DRIVER(nvmlDeviceGetComputeRunningProcesses)(card(), &none, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK(none >= 1);
}

static void compute_v2(void)
{
	unsigned int found = 0;

	EQUAL(self_in_v2(DRIVER(nvmlDeviceGetComputeRunningProcesses_v2), &found), 1);
	EQUAL(found, 1);
}

static void compute_v3(void)
{
	unsigned int found = 0;

	EQUAL(self_in_v2(DRIVER(nvmlDeviceGetComputeRunningProcesses_v3), &found), 1);
	EQUAL(found, 1);
}

/* No process draws here, and MPS does not run. */
static void graphics(void)
{
	unsigned int found = 99;

	EQUAL(self_in_v1(DRIVER(nvmlDeviceGetGraphicsRunningProcesses), &found), 0);
	EQUAL(found, 0);
	EQUAL(self_in_v2(DRIVER(nvmlDeviceGetGraphicsRunningProcesses_v2), &found), 0);
	EQUAL(found, 0);
	EQUAL(self_in_v2(DRIVER(nvmlDeviceGetGraphicsRunningProcesses_v3), &found), 0);
	EQUAL(found, 0);
}

static void mps(void)
{
	unsigned int found = 99;

	EQUAL(self_in_v1(DRIVER(nvmlDeviceGetMPSComputeRunningProcesses), &found), 0);
	EQUAL(self_in_v2(DRIVER(nvmlDeviceGetMPSComputeRunningProcesses_v2), &found), 0);
	EQUAL(self_in_v2(DRIVER(nvmlDeviceGetMPSComputeRunningProcesses_v3), &found), 0);
	EQUAL(found, 0);
}

/* Supported or not, as the driver says; never a process of another share. */
static void only_self(nvmlReturn_t result, const unsigned int *pids, unsigned int found)
{
	if (result == NVML_ERROR_NOT_SUPPORTED || result == NVML_ERROR_NOT_FOUND ||
	    result == NVML_ERROR_INSUFFICIENT_SIZE)
		return;
	OK(result);
	for (unsigned int i = 0; i < found; i++)
		EQUAL(pids[i], getpid());
}

static void accounting_pids(void)
{
	unsigned int pids[64], found = 64;
	nvmlReturn_t result = DRIVER(nvmlDeviceGetAccountingPids)(card(), &found, pids);

	only_self(result, pids, found);
}

/* Process 1 is not of this share. */
static void accounting_stats(void)
{
	nvmlAccountingStats_t stats;

	memset(&stats, 0, sizeof stats);
	CHECK(DRIVER(nvmlDeviceGetAccountingStats)(card(), 1, &stats) != NVML_SUCCESS);
}

static void accounting_stats_v2(void)
{
	struct nvmlAccountingStats_v2_t stats;

	memset(&stats, 0, sizeof stats);
	stats.pid = 1;
	CHECK(DRIVER(nvmlDeviceGetAccountingStats_v2)(card(), &stats) != NVML_SUCCESS);
}

static void process_utilisation(void)
{
	nvmlProcessUtilizationSample_t samples[64];
	unsigned int pids[64], found = 64;
	nvmlReturn_t result = DRIVER(nvmlDeviceGetProcessUtilization)(card(), samples, &found, 0);

	for (unsigned int i = 0; result == NVML_SUCCESS && i < found; i++)
		pids[i] = samples[i].pid;
	only_self(result, pids, found);
}

static void processes_utilisation(void)
{
	struct nvmlProcessUtilizationInfo_v1_t samples[64];
	struct nvmlProcessesUtilizationInfo_t info;
	unsigned int pids[64];
	nvmlReturn_t result;

	memset(&info, 0, sizeof info);
	info.version = 0x1000000u | (unsigned int)sizeof info;
	info.processSamplesCount = 64;
	info.procUtilArray = samples;
	result = DRIVER(nvmlDeviceGetProcessesUtilizationInfo)(card(), &info);
	for (unsigned int i = 0; result == NVML_SUCCESS && i < info.processSamplesCount; i++)
		pids[i] = samples[i].pid;
	only_self(result, pids, info.processSamplesCount);
}

static void process_details(void)
{
	struct nvmlProcessDetail_v1_t details[64];
	struct nvmlProcessDetailList_t list;
	unsigned int pids[64];
	nvmlReturn_t result;

	memset(&list, 0, sizeof list);
	list.version = 0x1000000u | (unsigned int)sizeof list;
	list.numProcArrayEntries = 64;
	list.procArray = details;
	result = DRIVER(nvmlDeviceGetRunningProcessDetailList)(card(), &list);
	for (unsigned int i = 0; result == NVML_SUCCESS && i < list.numProcArrayEntries; i++)
		pids[i] = details[i].pid;
	only_self(result, pids, list.numProcArrayEntries);
}

static void utilisation(void)
{
	nvmlUtilization_t use = {.gpu = 777, .memory = 777};

	OK(DRIVER(nvmlDeviceGetUtilizationRates)(card(), &use));
	CHECK(use.gpu <= 100 && use.memory <= 100);
}

static const struct snippet snippets[] = {
	SNIPPET(nvmlInit_v2, initialised_v2),
	SNIPPET(nvmlInit, initialised_v1),
	SNIPPET(nvmlInitWithFlags, initialised_flags),
	SNIPPET(nvmlShutdown, shut_down),
	SNIPPET(nvmlDeviceGetCount_v2, count_v2),
	SNIPPET(nvmlDeviceGetCount, count_v1),
	SNIPPET(nvmlDeviceGetHandleByIndex_v2, by_index_v2),
	SNIPPET(nvmlDeviceGetHandleByIndex, by_index_v1),
	SNIPPET(nvmlDeviceGetIndex, by_index_v2),
	SNIPPET(nvmlDeviceGetHandleByPciBusId_v2, by_address_v2),
	SNIPPET(nvmlDeviceGetHandleByPciBusId, by_address_v1),
	SNIPPET(nvmlDeviceGetHandleBySerial, by_serial),
	SNIPPET(nvmlDeviceGetHandleByUUID, by_uuid),
	SNIPPET(nvmlDeviceGetHandleByUUIDV, by_uuid_struct),
	SNIPPET(nvmlDeviceGetMemoryInfo, memory_v1),
	SNIPPET(nvmlDeviceGetMemoryInfo_v2, memory_v2),
	SNIPPET(nvmlDeviceGetComputeRunningProcesses, compute_v1),
	SNIPPET(nvmlDeviceGetComputeRunningProcesses_v2, compute_v2),
	SNIPPET(nvmlDeviceGetComputeRunningProcesses_v3, compute_v3),
	SNIPPET(nvmlDeviceGetGraphicsRunningProcesses, graphics),
	SNIPPET(nvmlDeviceGetGraphicsRunningProcesses_v2, graphics),
	SNIPPET(nvmlDeviceGetGraphicsRunningProcesses_v3, graphics),
	SNIPPET(nvmlDeviceGetMPSComputeRunningProcesses, mps),
	SNIPPET(nvmlDeviceGetMPSComputeRunningProcesses_v2, mps),
	SNIPPET(nvmlDeviceGetMPSComputeRunningProcesses_v3, mps),
	SNIPPET(nvmlDeviceGetAccountingPids, accounting_pids),
	SNIPPET(nvmlDeviceGetAccountingStats, accounting_stats),
	SNIPPET(nvmlDeviceGetAccountingStats_v2, accounting_stats_v2),
	SNIPPET(nvmlDeviceGetProcessUtilization, process_utilisation),
	SNIPPET(nvmlDeviceGetProcessesUtilizationInfo, processes_utilisation),
	SNIPPET(nvmlDeviceGetRunningProcessDetailList, process_details),
	SNIPPET(nvmlDeviceGetUtilizationRates, utilisation),
};

const struct area area_nvml = {
	.name = "nvml",
	.snippets = snippets,
	.snippets_count = COUNT(snippets),
};
