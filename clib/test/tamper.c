/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tamper: a tenant that tries to write the pages it shares with the agent, in
 * each way that a process has. It prints a line for each page and way:
 *
 *	limits WAY held|written        client WAY held|written
 *
 * and then what a request over the quota of BYTES comes to: "over CODE". The
 * client page is the process's own to write: there each way must work, or
 * it would show nothing about the other.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "divvy_wire.h"

static void *library;

#define CALL(symbol) ((__typeof__(&symbol))dlsym(library, #symbol))

struct page {
	uintptr_t start, end;
	uint64_t *word; /* one that no answer to anybody depends on: the last of the page */
};

/* The mapping that begins with magic. */
static struct page find(uint64_t magic)
{
	struct page found = {0, 0, NULL};
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], mode[8];
	unsigned long start, end;

	while (maps && fgets(line, sizeof line, maps)) {
		if (sscanf(line, "%lx-%lx %7s", &start, &end, mode) != 3 || !strstr(line, "/memfd:divvy-") || mode[0] != 'r')
			continue;
		if (*(const uint64_t *)start == magic) /* NOLINT: an address from the kernel */
			found = (struct page){start, end, (uint64_t *)(start + DIVVY_PAGE_BYTES - 8)};
	}
	if (maps)
		fclose(maps);
	return found;
}

static sigjmp_buf back;

static void fault(int number)
{
	(void)number;
	siglongjmp(back, 1);
}

/* Whether the page changes when it is written with value, by somebody who may. */
static int changed(const struct page *page, uint64_t before)
{
	return __atomic_load_n(page->word, __ATOMIC_RELAXED) != before;
}

static void by_store(const struct page *page, uint64_t value)
{
	if (sigsetjmp(back, 1) == 0)
		__atomic_store_n(page->word, value, __ATOMIC_RELAXED);
}

static void by_mprotect(const struct page *page, uint64_t value)
{
	if (mprotect((void *)page->start, page->end - page->start, PROT_READ | PROT_WRITE) == 0)
		by_store(page, value);
}

static void by_mem(const struct page *page, uint64_t value)
{
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

	if (fd >= 0 && pwrite(fd, &value, sizeof value, (off_t)(uintptr_t)page->word) < 0)
		errno = 0;
	close(fd);
}

static void by_file(const struct page *page, uint64_t value)
{
	char path[96];
	int fd;

	snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (unsigned long)page->start, (unsigned long)page->end);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && pwrite(fd, &value, sizeof value, DIVVY_PAGE_BYTES - 8) < 0)
		errno = 0;
	close(fd);
}

static void by_mapping(const struct page *page, uint64_t value)
{
	char path[96];
	uint8_t *again;
	int fd;

	snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (unsigned long)page->start, (unsigned long)page->end);
	fd = open(path, O_RDWR | O_CLOEXEC);
	again = mmap(NULL, DIVVY_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (again != MAP_FAILED) {
		memcpy(again + DIVVY_PAGE_BYTES - 8, &value, sizeof value);
		munmap(again, DIVVY_PAGE_BYTES);
	}
	close(fd);
}

static const struct {
	const char *name;
	void (*write)(const struct page *page, uint64_t value);
} ways[] = {
	{"store", by_store}, {"memory-file", by_mem}, {"file", by_file}, {"mapping", by_mapping}, {"mprotect", by_mprotect},
};

static void try_all(const char *name, struct page page)
{
	if (!page.word) {
		printf("%s page not found\n", name);
		return;
	}
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		uint64_t before = __atomic_load_n(page.word, __ATOMIC_RELAXED);

		ways[i].write(&page, before + 1);
		printf("%s %s %s\n", name, ways[i].name, changed(&page, before) ? "written" : "held");
	}
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
	struct sigaction catch = {.sa_handler = fault};
	CUdevice device = 0;
	CUcontext context;
	CUdeviceptr address = 0;

	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library || CALL(cuInit)(0) != CUDA_SUCCESS || CALL(cuDeviceGet)(&device, 0) != CUDA_SUCCESS ||
	    CALL(cuDevicePrimaryCtxRetain)(&context, device) != CUDA_SUCCESS || CALL(cuCtxSetCurrent)(context) != CUDA_SUCCESS) {
		fprintf(stderr, "tamper: the driver does not start\n");
		return 1;
	}
	sigaction(SIGSEGV, &catch, NULL);
	sigaction(SIGBUS, &catch, NULL);
	try_all("limits", find(DIVVY_LIMITS_MAGIC));
	try_all("client", find(DIVVY_CLIENT_MAGIC));
	printf("over %d\n", (int)CALL(cuMemAlloc_v2)(&address, bytes));
	return 0;
}
