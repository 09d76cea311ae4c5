/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The built front before the null driver, loaded by path as a program would:
 * when it attaches, what it shows, and what happens when something is missing.
 *
 *	front_calls
 *
 * DIVVY_TEST_LIBDIR is lib/divvy; DIVVY_TEST_STRANGE holds a driver with an
 * export that the list lacks, and a front prepared for it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "agent.h"
#include "check.h"
#include "cuda_abi.h"
#include "nvml_abi.h"

#define MIB (1ull << 20)
#define LIMIT (1024 * MIB)
#define CONTEXT (64 * MIB)
#define PATH_BYTES 400

static char dir[PATH_BYTES]; /* of this scenario; removed at its end */
static char socketpath[PATH_BYTES];
static void *front;
static void *driver;

#define CALL(library, name) ((__typeof__(name) *)find(library, #name))
#define FRONT(name) CALL(front, name)

static void *find(void *library, const char *name)
{
	void *address = dlsym(library, name);

	if (address == NULL)
		fprintf(stderr, "no %s\n", name);
	CHECK(address != NULL);
	return address;
}

static const char *libdir(void)
{
	const char *named = getenv("DIVVY_TEST_LIBDIR");

	CHECK(named != NULL && named[0] == '/');
	return named;
}

static void remove_dir(void)
{
	char command[PATH_BYTES + 10];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	CHECK(system(command) == 0);
}

static void prepare(const char *driverdir)
{
	snprintf(dir, sizeof(dir), "/tmp/divvy-calls-XXXXXX");
	CHECK(mkdtemp(dir) != NULL);
	atexit(remove_dir);
	snprintf(socketpath, sizeof(socketpath), "%.300s/share.sock", dir);
	setenv("DIVVY_SOCKET", socketpath, 1);
	setenv("DIVVY_DRIVER_DIR", driverdir, 1);
}

static void load_from(const char *path)
{
	front = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (front == NULL)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(front != NULL);
}

static void load(void)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/front/base/libcuda.so.1", libdir());
	load_from(path);
	snprintf(path, sizeof(path), "%s/null/libcuda.so.1", libdir());
	driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CHECK(driver != NULL);
}

static struct agent *begin_share(struct agent_share share)
{
	char driverdir[PATH_BYTES];

	snprintf(driverdir, sizeof(driverdir), "%s/null", libdir());
	prepare(driverdir);
	load();
	share.path = socketpath;
	share.limitbytes = LIMIT;
	share.contextbytes = CONTEXT;
	return agent_start(&share);
}

static struct agent *begin(void)
{
	return begin_share((struct agent_share){.path = NULL});
}

static CUdevice current(void)
{
	CUcontext context;
	CUdevice device;

	CHECK(FRONT(cuInit)(0) == CUDA_SUCCESS);
	CHECK(FRONT(cuDeviceGet)(&device, 0) == CUDA_SUCCESS);
	CHECK(FRONT(cuDevicePrimaryCtxRetain)(&context, device) == CUDA_SUCCESS);
	CHECK(FRONT(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
	return device;
}

static void attaches_when_it_must(void)
{
	struct agent *agent = begin();
	void *address;
	int version;

	CHECK(FRONT(cuDriverGetVersion)(&version) == CUDA_SUCCESS && version > 11000);
	CHECK(FRONT(cuGetProcAddress)("cuInit", &address, 12020, 0) == CUDA_SUCCESS && address == find(front, "cuInit"));
	CHECK(agent_attached(agent) == 0);
	CHECK(((__typeof__(cuInit) *)address)(0) == CUDA_SUCCESS);
	CHECK(FRONT(cuInit)(0) == CUDA_SUCCESS);
	CHECK(agent_attached(agent) == 1);
}

static void shows_the_share(void)
{
	struct agent *agent = begin();
	CUdevice device = current();
	CUdevice other;
	size_t bytes = 0, freebytes = 0, totalbytes = 0;
	unsigned int old = 0, oldfree = 0, oldtotal = 0;
	int count = 0;
	char bus[32];

	CHECK(FRONT(cuDeviceGetCount)(&count) == CUDA_SUCCESS && count == 1);
	CHECK(FRONT(cuDeviceGet)(&other, 1) == CUDA_ERROR_INVALID_DEVICE);
	CHECK(FRONT(cuDeviceGet)(&other, -1) == CUDA_ERROR_INVALID_DEVICE);
	CHECK(FRONT(cuDeviceGetPCIBusId)(bus, sizeof(bus), device) == CUDA_SUCCESS);
	CHECK(FRONT(cuDeviceGetByPCIBusId)(&other, bus) == CUDA_SUCCESS && other == device);
	CHECK(FRONT(cuDeviceTotalMem_v2)(&bytes, device) == CUDA_SUCCESS && bytes == LIMIT);
	CHECK(FRONT(cuDeviceTotalMem)(&old, device) == CUDA_SUCCESS && old == LIMIT);
	CHECK(FRONT(cuMemGetInfo_v2)(&freebytes, &totalbytes) == CUDA_SUCCESS);
	CHECK(totalbytes == LIMIT && freebytes == LIMIT - CONTEXT);
	CHECK(FRONT(cuMemGetInfo)(&oldfree, &oldtotal) == CUDA_SUCCESS);
	CHECK(oldtotal == LIMIT && oldfree == LIMIT - CONTEXT);
	agent_set_limit(agent, 8192 * MIB);
	CHECK(FRONT(cuDeviceTotalMem)(&old, device) == CUDA_SUCCESS && old == UINT32_MAX);
	CHECK(FRONT(cuMemGetInfo)(&oldfree, &oldtotal) == CUDA_SUCCESS && oldtotal == UINT32_MAX);
}

static void holds_the_limit(void)
{
	struct agent *agent = begin();
	struct divvy_message last;
	CUdeviceptr block = 0, another = 0;

	current();
	CHECK(FRONT(cuMemAlloc_v2)(&block, LIMIT) == CUDA_ERROR_OUT_OF_MEMORY && block == 0);
	CHECK(FRONT(cuMemAlloc_v2)(&block, LIMIT - CONTEXT) == CUDA_SUCCESS);
	CHECK(FRONT(cuMemAlloc_v2)(&another, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(agent_in_use(agent, 0) == LIMIT);
	CHECK(FRONT(cuMemFree_v2)(block) == CUDA_SUCCESS);
	CHECK(agent_in_use(agent, 0) == CONTEXT);
	CHECK(agent_denials(agent, &last) == 2);
}

static void counts_launches(void)
{
	struct agent *agent = begin();

	current();
	for (int i = 0; i < 640; i++)
		CHECK(FRONT(cuLaunchKernel)((CUfunction)16, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
	for (int i = 0; i < 64; i++)
		CHECK(FRONT(cuGraphLaunch_ptsz)((CUgraphExec)16, NULL) == CUDA_SUCCESS);
	CHECK(FRONT(cuCtxSynchronize)() == CUDA_SUCCESS); /* what was waited for is counted */
	CHECK(agent_counter(agent, 0, offsetof(struct divvy_client_card, launches)) == 704);
}

static void hands_out_wrappers_by_name(void)
{
	CUdriverProcAddressQueryResult status;
	void *address;

	begin();
	CHECK(FRONT(cuGetProcAddress_v2)("cuMemAlloc", &address, 12020, 0, &status) == CUDA_SUCCESS);
	CHECK(address == find(front, "cuMemAlloc_v2") && status == CU_GET_PROC_ADDRESS_SUCCESS);
	CHECK(FRONT(cuGetProcAddress_v2)("cuMemAlloc", &address, 3000, 0, &status) == CUDA_SUCCESS);
	CHECK(address == find(front, "cuMemAlloc"));
	CHECK(FRONT(cuGetProcAddress_v2)("cuMemAllocAsync", &address, 12020, 2, &status) == CUDA_SUCCESS);
	CHECK(address == find(front, "cuMemAllocAsync_ptsz"));
	CHECK(FRONT(cuGetProcAddress_v2)("cuLaunchKernel", &address, 12020, 2, &status) == CUDA_SUCCESS);
	CHECK(address == find(front, "cuLaunchKernel_ptsz"));
	CHECK(FRONT(cuGetProcAddress_v2)("cuGetProcAddress", &address, 12020, 0, &status) == CUDA_SUCCESS);
	CHECK(address == find(front, "cuGetProcAddress_v2"));
	/* what no hook stands before is the driver's own */
	CHECK(FRONT(cuGetProcAddress_v2)("cuEventQuery", &address, 12020, 0, &status) == CUDA_SUCCESS);
	CHECK(address == find(driver, "cuEventQuery"));
	/* what the driver lacks is not handed out, though the front has it */
	CHECK(FRONT(cuGetProcAddress_v2)("cuCtxCreate", &address, 13000, 0, &status) == CUDA_SUCCESS);
	CHECK(address == find(front, "cuCtxCreate_v3"));
	CHECK(FRONT(cuGetProcAddress_v2)("cuNoSuchThing", &address, 13000, 0, &status) == CUDA_ERROR_NOT_FOUND);
	CHECK(address == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

static void answers_for_what_the_driver_lacks(void)
{
	begin();
	CHECK(FRONT(cuCtxGetDevice_v2)(NULL, NULL) == CUDA_ERROR_NOT_FOUND);
}

static void shows_the_share_through_nvml(void)
{
	struct agent *agent = begin();
	nvmlProcessInfo_v1_t first[4];
	nvmlProcessInfo_t second[4];
	nvmlDevice_t device, other;
	nvmlMemory_t memory;
	nvmlMemory_v2_t newer = {.version = nvmlMemory_v2};
	unsigned int count = 0, index = 7;

	CHECK(FRONT(nvmlInit_v2)() == NVML_SUCCESS);
	CHECK(agent_attached(agent) == 1);
	CHECK(FRONT(nvmlDeviceGetCount_v2)(&count) == NVML_SUCCESS && count == 1);
	CHECK(FRONT(nvmlDeviceGetHandleByIndex_v2)(1, &device) == NVML_ERROR_INVALID_ARGUMENT);
	CHECK(FRONT(nvmlDeviceGetHandleByIndex_v2)(0, &device) == NVML_SUCCESS);
	CHECK(FRONT(nvmlDeviceGetIndex)(device, &index) == NVML_SUCCESS && index == 0);
	CHECK(FRONT(nvmlDeviceGetHandleByUUID)("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", &other) == NVML_SUCCESS);
	CHECK(other.handle == device.handle);
	CHECK(FRONT(nvmlDeviceGetHandleByUUID)("GPU-10010203-0405-0607-0809-0a0b0c0d0e0f", &other) == NVML_ERROR_NOT_FOUND);
	count = 4;
	CHECK(FRONT(nvmlDeviceGetComputeRunningProcesses)(device, &count, first) == NVML_SUCCESS && count == 0);
	current();
	CHECK(FRONT(nvmlDeviceGetMemoryInfo)(device, &memory) == NVML_SUCCESS);
	CHECK(memory.total == LIMIT && memory.used == CONTEXT && memory.free == LIMIT - CONTEXT);
	CHECK(FRONT(nvmlDeviceGetMemoryInfo_v2)(device, &newer) == NVML_SUCCESS);
	CHECK(newer.total == LIMIT && newer.used == CONTEXT && newer.free == LIMIT - CONTEXT && newer.reserved == 0);
	count = 0;
	CHECK(FRONT(nvmlDeviceGetComputeRunningProcesses)(device, &count, NULL) == NVML_ERROR_INSUFFICIENT_SIZE && count == 1);
	count = 4;
	CHECK(FRONT(nvmlDeviceGetComputeRunningProcesses)(device, &count, first) == NVML_SUCCESS && count == 1);
	CHECK(first[0].pid == (unsigned)getpid() && first[0].usedGpuMemory == CONTEXT);
	count = 4;
	CHECK(FRONT(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, second) == NVML_SUCCESS && count == 1);
	CHECK(second[0].pid == (unsigned)getpid() && second[0].gpuInstanceId == UINT32_MAX);
	count = 4;
	CHECK(FRONT(nvmlDeviceGetGraphicsRunningProcesses_v3)(device, &count, second) == NVML_SUCCESS && count == 0);
	CHECK(FRONT(nvmlShutdown)() == NVML_SUCCESS);
	CHECK(agent_attached(agent) == 1);
}

/* A share of two cards of which the driver shows one: every call finds its slot through the context. */
static void tells_cards_apart(void)
{
	struct agent_share share = {.cards = 2, .uuid = {{0xaa, 1}}};
	struct agent *agent;
	CUdeviceptr block;
	CUdevice device;
	size_t freebytes, totalbytes;
	int count = 0;

	for (unsigned i = 0; i < 16; i++)
		share.uuid[1][i] = (uint8_t)i;
	agent = begin_share(share);
	device = current();
	CHECK(FRONT(cuDeviceGetCount)(&count) == CUDA_SUCCESS && count == 1);
	CHECK(FRONT(cuMemAlloc_v2)(&block, MIB) == CUDA_SUCCESS);
	CHECK(agent_in_use(agent, 0) == 0 && agent_in_use(agent, 1) == CONTEXT + MIB);
	CHECK(FRONT(cuMemGetInfo_v2)(&freebytes, &totalbytes) == CUDA_SUCCESS && freebytes == LIMIT - CONTEXT - MIB);
	CHECK(FRONT(cuDeviceTotalMem_v2)(&totalbytes, device + 1) != CUDA_SUCCESS);
	for (int i = 0; i < 64; i++)
		CHECK(FRONT(cuLaunchKernel)((CUfunction)16, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
	/* all but those of a step that has not ended */
	CHECK(agent_counter(agent, 1, offsetof(struct divvy_client_card, launches)) > 0);
	CHECK(agent_counter(agent, 1, offsetof(struct divvy_client_card, launches)) <= 64);
}

/* A driver with a call that the list lacks, and the front prepared for it. */
static void passes_what_the_list_lacks(void)
{
	const char *strange = getenv("DIVVY_TEST_STRANGE");
	struct agent_share share = {.path = socketpath, .limitbytes = LIMIT};
	int (*call)(int, double);
	struct divvy_message event;
	struct agent *agent;
	char path[PATH_BYTES];

	CHECK(strange != NULL);
	snprintf(path, sizeof(path), "%s/driver", strange);
	prepare(path);
	snprintf(path, sizeof(path), "%s/front/libcuda.so.1", strange);
	load_from(path);
	agent = agent_start(&share);
	call = (int (*)(int, double))find(front, "cuStrangeCall");
	CHECK(call(40, 2.5) == 42); /* before there is an agent: told later */
	CHECK(agent_attached(agent) == 0);
	CHECK(FRONT(cuInit)(0) == CUDA_SUCCESS);
	CHECK(agent_events(agent, DIVVY_EVENT_UNCLASSIFIED, &event) == 1);
	CHECK(strcmp(event.text, "cuStrangeCall") == 0);
	CHECK(call(1, 1.0) == 2);
	/* and what this driver lacks is not there */
	CHECK(dlsym(front, "cuCtxGetDevice_v2") == NULL);
}

static void hides_a_card_without_a_share(void)
{
	struct agent *agent = begin_share((struct agent_share){.uuid = {{0xaa, 1}}});
	nvmlDevice_t device;
	unsigned int count = 7;
	int cards = 7;

	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	CHECK(FRONT(cuInit)(0) == CUDA_ERROR_NO_DEVICE);
	CHECK(FRONT(cuInit)(0) == CUDA_ERROR_NO_DEVICE);
	CHECK(agent_events(agent, DIVVY_EVENT_HIDDEN, NULL) == 1);
	CHECK(FRONT(cuDeviceGetCount)(&cards) == CUDA_SUCCESS && cards == 0);
	CHECK(FRONT(nvmlInit_v2)() == NVML_SUCCESS);
	CHECK(FRONT(nvmlDeviceGetCount_v2)(&count) == NVML_SUCCESS && count == 0);
	CHECK(FRONT(nvmlDeviceGetHandleByIndex_v2)(0, &device) == NVML_ERROR_INVALID_ARGUMENT);
	CHECK(FRONT(nvmlDeviceGetHandleByPciBusId_v2)("0000:00:00.0", &device) == NVML_ERROR_NOT_FOUND);
}

static void says_no_without_an_agent(void)
{
	char driverdir[PATH_BYTES];

	snprintf(driverdir, sizeof(driverdir), "%s/null", libdir());
	prepare(driverdir);
	load();
	CHECK(FRONT(cuInit)(0) == CUDA_ERROR_SYSTEM_NOT_READY);
	CHECK(FRONT(cuInit)(0) == CUDA_ERROR_SYSTEM_NOT_READY);
	CHECK(FRONT(nvmlInit_v2)() == NVML_ERROR_DRIVER_NOT_LOADED);
}

static void says_no_without_a_driver(void)
{
	struct agent_share share = {.path = socketpath, .limitbytes = LIMIT};
	struct agent *agent;
	struct divvy_message event;
	CUdeviceptr block;

	prepare("/nonexistent");
	load();
	agent = agent_start(&share);
	CHECK(FRONT(cuMemAlloc_v2)(&block, 1) == CUDA_ERROR_SYSTEM_NOT_READY); /* before cuInit */
	CHECK(FRONT(cuInit)(0) == CUDA_ERROR_SYSTEM_NOT_READY);
	CHECK(FRONT(cuEventQuery)(NULL) == CUDA_ERROR_SYSTEM_NOT_READY);
	CHECK(agent_events(agent, DIVVY_EVENT_NO_DRIVER, &event) == 1);
	CHECK(strstr(event.text, "libcuda.so.1") != NULL);
	CHECK(FRONT(nvmlInit_v2)() == NVML_ERROR_LIBRARY_NOT_FOUND);
	CHECK(FRONT(nvmlErrorString)(NVML_ERROR_LIBRARY_NOT_FOUND) != NULL);
	CHECK(strlen(FRONT(nvmlErrorString)(NVML_ERROR_LIBRARY_NOT_FOUND)) > 0);
}

static void does_not_open_itself(const char *command)
{
	struct agent_share share = {.path = socketpath, .limitbytes = LIMIT};
	char driverdir[PATH_BYTES], line[3 * PATH_BYTES];
	struct agent *agent;

	prepare("");
	snprintf(driverdir, sizeof(driverdir), "%.300s/driver", dir);
	CHECK(mkdir(driverdir, 0700) == 0);
	snprintf(line, sizeof(line), "%s '%s/front/base/libcuda.so.1' '%s/libcuda.so.1'", command, libdir(), driverdir);
	CHECK(system(line) == 0);
	setenv("DIVVY_DRIVER_DIR", driverdir, 1);
	load();
	agent = agent_start(&share);
	CHECK(FRONT(cuInit)(0) == CUDA_ERROR_SYSTEM_NOT_READY);
	CHECK(FRONT(cuEventQuery)(NULL) == CUDA_ERROR_SYSTEM_NOT_READY);
	CHECK(agent_events(agent, DIVVY_EVENT_SELF_OPEN, NULL) == 1);
}

static void does_not_open_itself_by_a_link(void)
{
	does_not_open_itself("ln -s");
}

static void does_not_open_a_copy_of_itself(void)
{
	does_not_open_itself("cp");
}

static void *start(void *unused)
{
	(void)unused;
	return (void *)(uintptr_t)FRONT(cuInit)(0);
}

static void starts_once_from_many_threads(void)
{
	struct agent *agent = begin();
	pthread_t thread[8];

	for (int i = 0; i < 8; i++)
		CHECK(pthread_create(&thread[i], NULL, start, NULL) == 0);
	for (int i = 0; i < 8; i++) {
		void *result;

		pthread_join(thread[i], &result);
		CHECK(result == NULL);
	}
	CHECK(agent_attached(agent) == 1);
}

static void *churn(void *unused)
{
	for (int i = 0; i < 2000; i++) {
		CUdeviceptr block;

		CHECK(FRONT(cuMemAlloc_v2)(&block, MIB) == CUDA_SUCCESS);
		CHECK(FRONT(cuMemFree_v2)(block) == CUDA_SUCCESS);
	}
	return unused;
}

static void returns_everything_from_many_threads(void)
{
	struct agent *agent = begin();
	pthread_t thread[4];

	current();
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&thread[i], NULL, churn, NULL) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	CHECK(agent_in_use(agent, 0) == CONTEXT);
}

/* A child after cuInit is the driver's affair: nothing of the parent's is written. */
static void leaves_a_child_to_the_driver(void)
{
	struct agent *agent = begin();
	CUdeviceptr block;
	int status;
	pid_t pid;

	current();
	CHECK(FRONT(cuMemAlloc_v2)(&block, MIB) == CUDA_SUCCESS);
	pid = fork();
	if (pid == 0) {
		CUdeviceptr mine;

		CHECK(FRONT(cuInit)(0) == CALL(driver, cuInit)(0));
		CHECK(FRONT(cuMemAlloc_v2)(&mine, MIB) == CALL(driver, cuMemAlloc_v2)(&mine, MIB));
		for (int i = 0; i < 200; i++)
			FRONT(cuLaunchKernel)((CUfunction)16, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
		FRONT(cuMemFree_v2)(block);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(agent_attached(agent) == 1 && agent_in_use(agent, 0) == CONTEXT + MIB);
	CHECK(agent_counter(agent, 0, offsetof(struct divvy_client_card, launches)) == 0);
	CHECK(FRONT(cuMemFree_v2)(block) == CUDA_SUCCESS && agent_in_use(agent, 0) == CONTEXT);
}

/* A parent that only asked NVML forks workers, which start CUDA: they are under the share as well. */
static void holds_the_limit_in_the_child_of_an_observer(void)
{
	struct agent *agent = begin();
	int status;
	pid_t pid;

	CHECK(FRONT(nvmlInit_v2)() == NVML_SUCCESS);
	pid = fork();
	if (pid == 0) {
		CUdeviceptr block;
		size_t freebytes, totalbytes;

		current();
		CHECK(FRONT(cuMemGetInfo_v2)(&freebytes, &totalbytes) == CUDA_SUCCESS && totalbytes == LIMIT);
		CHECK(FRONT(cuMemAlloc_v2)(&block, LIMIT) == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(FRONT(cuMemAlloc_v2)(&block, MIB) == CUDA_SUCCESS);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(agent_attached(agent) == 2);
	EVENTUALLY(agent_clients(agent) == 1, 5);
}

static void sees_the_share_through_nvml_in_a_child(void)
{
	nvmlDevice_t device;
	int status;
	pid_t pid;

	begin();
	CHECK(FRONT(nvmlInit_v2)() == NVML_SUCCESS);
	CHECK(FRONT(nvmlDeviceGetHandleByIndex_v2)(0, &device) == NVML_SUCCESS);
	pid = fork();
	if (pid == 0) {
		nvmlMemory_t memory;

		CHECK(FRONT(nvmlDeviceGetMemoryInfo)(device, &memory) == NVML_SUCCESS && memory.total == LIMIT);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* No descriptor below 500 is ours, no output, no signal handler, no environment. */
static void is_a_quiet_guest(void)
{
	char path[64], target[PATH_BYTES];
	int before[64], after = 0;

	begin();
	for (int fd = 0; fd < 64; fd++)
		before[fd] = fcntl(fd, F_GETFD) >= 0;
	current();
	for (int fd = 0; fd < 64; fd++) {
		if ((fcntl(fd, F_GETFD) >= 0) == (before[fd] != 0))
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		target[0] = 0;
		CHECK(readlink(path, target, sizeof(target) - 1) >= 0);
		/* the agent of this test lives in the same process */
		if (strstr(target, "divvy client") == NULL && strstr(target, "socket:") == NULL)
			after++;
	}
	CHECK(after == 0);
	CHECK(fcntl(512, F_GETFD) == FD_CLOEXEC);
}

static const struct scenario scenarios[] = {
	{"attaches when it must", attaches_when_it_must},
	{"shows the share", shows_the_share},
	{"holds the limit", holds_the_limit},
	{"counts launches", counts_launches},
	{"hands out wrappers by name", hands_out_wrappers_by_name},
	{"answers for what the driver lacks", answers_for_what_the_driver_lacks},
	{"shows the share through nvml", shows_the_share_through_nvml},
	{"tells cards apart", tells_cards_apart},
	{"passes what the list lacks", passes_what_the_list_lacks},
	{"hides a card without a share", hides_a_card_without_a_share},
	{"says no without an agent", says_no_without_an_agent},
	{"says no without a driver", says_no_without_a_driver},
	{"does not open itself by a link", does_not_open_itself_by_a_link},
	{"does not open a copy of itself", does_not_open_a_copy_of_itself},
	{"starts once from many threads", starts_once_from_many_threads},
	{"returns everything from many threads", returns_everything_from_many_threads},
	{"leaves a child to the driver", leaves_a_child_to_the_driver},
	{"holds the limit in the child of an observer", holds_the_limit_in_the_child_of_an_observer},
	{"sees the share through nvml in a child", sees_the_share_through_nvml_in_a_child},
	{"is a quiet guest", is_a_quiet_guest},
};

RUN_SCENARIOS(scenarios)
