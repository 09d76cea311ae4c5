/* SPDX-License-Identifier: Apache-2.0 */
/*
 * views: which GPUs there are, asked in three ways: through the name libcuda.so.1,
 * of the driver's own library past whatever stands in its place, and through NVML.
 * Does what its arguments say, one after the other:
 *
 *	set=VALUE, unset  changes CUDA_VISIBLE_DEVICES
 *	load              opens libcuda.so.1, which otherwise cuInit does
 *	driver            starts the driver's own library
 *	fork              a child does the rest
 *	exec              this program anew does the rest
 *	threads           eight threads call cuInit at once, while one sets other variables
 *	look              prints the views, each as "NAME COUNT UUID@ADDRESS..."
 *
 * look also tries whether GPU i is i for memory, pools, pointers and UUIDs:
 * "numbers ok", or what is not so.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "nvml_abi.h"

#define VARIABLE "CUDA_VISIBLE_DEVICES"
#define STEP (2ul << 20)

static void *library;

#define CALL(from, name) ((__typeof__(&name))find(from, #name))

static void *find(void *from, const char *name)
{
	void *address = dlsym(from, name);

	if (!address) {
		printf("no %s\n", name);
		exit(3);
	}
	return address;
}

static void *load(void)
{
	if (!library)
		library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		printf("no driver: %s\n", dlerror());
		exit(3);
	}
	return library;
}

/* The library that stands behind the name, or is it. */
static void *driver(int how)
{
	const char *folder = getenv("DIVVY_DRIVER_DIR");
	char path[1024];
	void *own;

	if (!folder)
		folder = access("/run/divvy/driver/libcuda.so.1", F_OK) == 0 ? "/run/divvy/driver" : NULL;
	if (!folder)
		return load();
	snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
	own = dlopen(path, RTLD_NOW | how);
	if (!own) {
		printf("driver not loaded: %s\n", path);
		exit(3);
	}
	return own;
}

static void print_uuid(const CUuuid *uuid, const char *address)
{
	unsigned domain = 0, bus = 0, slot = 0;

	printf(" GPU");
	for (int i = 0; i < 16; i++)
		printf(i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", (unsigned char)uuid->bytes[i]);
	sscanf(address, "%x:%x:%x", &domain, &bus, &slot);
	printf("@%04x:%02x:%02x", domain, bus, slot);
}

static void cuda_view(const char *name, void *from)
{
	int count = -1;
	int result = (int)CALL(from, cuDeviceGetCount)(&count);

	if (result != 0) {
		printf("%s error %d\n", name, result);
		return;
	}
	printf("%s %d", name, count);
	for (int i = 0; i < count; i++) {
		char address[32] = "";
		CUdevice device;
		CUuuid uuid;

		if (CALL(from, cuDeviceGet)(&device, i) != 0 || CALL(from, cuDeviceGetUuid)(&uuid, device) != 0 ||
		    CALL(from, cuDeviceGetPCIBusId)(address, sizeof(address), device) != 0)
			printf(" error");
		else
			print_uuid(&uuid, address);
	}
	printf("\n");
}

static void nvml_view(void)
{
	void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	unsigned int count = 0;
	int result;

	if (!nvml) /* preloaded, it has the other name alone */
		nvml = load();
	result = (int)CALL(nvml, nvmlInit_v2)();
	if (result == 0)
		result = (int)CALL(nvml, nvmlDeviceGetCount_v2)(&count);
	if (result != 0) {
		printf("nvml error %d\n", result);
		return;
	}
	printf("nvml %u", count);
	for (unsigned int i = 0; i < count; i++) {
		nvmlDevice_t device;
		nvmlPciInfo_t pci;
		unsigned int index = 99, domain, bus, slot;
		char uuid[96];

		if (CALL(nvml, nvmlDeviceGetHandleByIndex_v2)(i, &device) != 0 || CALL(nvml, nvmlDeviceGetUUID)(device, uuid, sizeof(uuid)) != 0 ||
		    CALL(nvml, nvmlDeviceGetPciInfo_v3)(device, &pci) != 0 || CALL(nvml, nvmlDeviceGetIndex)(device, &index) != 0 || index != i ||
		    sscanf(pci.busId, "%x:%x:%x", &domain, &bus, &slot) != 3)
			printf(" error");
		else
			printf(" %s@%04x:%02x:%02x", uuid, domain, bus, slot);
	}
	printf("\n");
}

/* What is wrong with calling the GPU by its number, or NULL. */
static const char *number(int i)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, i}};
	CUmemPoolProps pool = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, i}};
	CUmemGenericAllocationHandle handle;
	CUmemoryPool made;
	CUdeviceptr block = 0, from_pool = 0;
	CUcontext context;
	CUdevice device = -1;
	int ordinal = -1;

	if (CALL(library, cuDeviceGet)(&device, i) != 0 || device != i)
		return "cuDeviceGet";
	if (CALL(library, cuDevicePrimaryCtxRetain)(&context, i) != 0 || CALL(library, cuCtxSetCurrent)(context) != 0)
		return "cuDevicePrimaryCtxRetain";
	if (CALL(library, cuCtxGetDevice)(&device) != 0 || device != i)
		return "cuCtxGetDevice";
	if (CALL(library, cuMemAlloc_v2)(&block, STEP) != 0)
		return "cuMemAlloc";
	if (CALL(library, cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block) != 0 || ordinal != i)
		return "the ordinal of a pointer";
	if (CALL(library, cuMemCreate)(&handle, STEP, &prop, 0) != 0 || CALL(library, cuMemRelease)(handle) != 0)
		return "cuMemCreate";
	if (CALL(library, cuMemPoolCreate)(&made, &pool) != 0 || CALL(library, cuMemAllocFromPoolAsync)(&from_pool, STEP, made, NULL) != 0)
		return "cuMemAllocFromPoolAsync";
	if (CALL(library, cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, from_pool) != 0 || ordinal != i)
		return "the ordinal of a pointer from a pool";
	if (CALL(library, cuMemFreeAsync)(from_pool, NULL) != 0 || CALL(library, cuMemPoolDestroy)(made) != 0 || CALL(library, cuMemFree_v2)(block) != 0)
		return "free";
	if (CALL(library, cuDevicePrimaryCtxRelease_v2)(i) != 0)
		return "cuDevicePrimaryCtxRelease";
	return NULL;
}

static void look(void)
{
	int result = (int)CALL(load(), cuInit)(0);
	const char *wrong = NULL;
	int count = 0;

	printf("init %d\n", result);
	printf(VARIABLE " %s\n", getenv(VARIABLE) ? getenv(VARIABLE) : "unset");
	nvml_view();
	if (result != 0)
		return;
	cuda_view("cuda", library);
	cuda_view("driver", driver(RTLD_NOLOAD));
	CALL(library, cuDeviceGetCount)(&count);
	for (int i = 0; i < count && !wrong; i++)
		wrong = number(i);
	printf("numbers %s\n", wrong ? wrong : "ok");
}

static void *init(void *unused)
{
	(void)unused;
	CALL(library, cuInit)(0);
	return NULL;
}

#define SET 40

static bool stop;

/* Another part of the program, which has nothing to do with GPUs: what it sets, stays. */
static void *set(void *unused)
{
	char name[32], value[SET][32];
	unsigned i = 0;

	for (; i < SET || !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		snprintf(name, sizeof(name), "VIEWS_%u", i % SET);
		snprintf(value[i % SET], sizeof(value[0]), "%u", i);
		setenv(name, value[i % SET], 1);
	}
	for (i = 0; i < SET; i++) {
		snprintf(name, sizeof(name), "VIEWS_%u", i);
		if (!getenv(name) || strcmp(getenv(name), value[i]) != 0) {
			printf("lost %s=%s\n", name, value[i]);
			exit(3);
		}
	}
	return unused;
}

static void threads(void)
{
	pthread_t thread[8], setter;

	load();
	for (int i = 0; i < SET; i++) { /* or its setenv makes new arrays, which nobody's getenv is safe from */
		char name[32];

		snprintf(name, sizeof(name), "VIEWS_%d", i);
		setenv(name, "", 1);
	}
	pthread_create(&setter, NULL, set, NULL);
	for (int i = 0; i < 8; i++)
		pthread_create(&thread[i], NULL, init, NULL);
	for (int i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(setter, NULL);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *word = argv[i];
		int status = 0;
		pid_t child;

		if (strncmp(word, "set=", 4) == 0) {
			setenv(VARIABLE, word + 4, 1);
		} else if (strcmp(word, "unset") == 0) {
			unsetenv(VARIABLE);
		} else if (strcmp(word, "load") == 0) {
			load();
		} else if (strcmp(word, "driver") == 0) {
			CALL(driver(0), cuInit)(0);
		} else if (strcmp(word, "fork") == 0) {
			fflush(stdout);
			child = fork();
			if (child != 0)
				return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 4;
		} else if (strcmp(word, "exec") == 0) {
			fflush(stdout);
			argv[i] = argv[0];
			execv("/proc/self/exe", &argv[i]);
			return 5;
		} else if (strcmp(word, "threads") == 0) {
			threads();
		} else if (strcmp(word, "look") == 0) {
			look();
		} else {
			printf("what is %s?\n", word);
			return 2;
		}
	}
	return 0;
}
