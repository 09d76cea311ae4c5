/* SPDX-License-Identifier: Apache-2.0 */
/* The runner of the snippets: arguments, contexts, and what every allocating call must keep. */
#define _GNU_SOURCE
#include "snippet.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct snippet_run snippet_run;

static bool failed;
static bool failures;
static const char *current = "?";

static const struct area *const areas[] = {
	&area_linear, &area_array,  &area_virtual, &area_pool, &area_graph, &area_exchange,
	&area_context, &area_module, &area_launch, &area_view, &area_nvml,
};

void *snippet_lookup(const char *symbol)
{
#ifdef SNIPPET_BY_NAME
	static void *cuda, *nvml;

	if (!cuda) {
		const char *name = getenv("SNIPPET_LIBCUDA"); /* libcuda.so, or a path */

		cuda = dlopen(name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	}
	if (!nvml)
		nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (strncmp(symbol, "nvml", 4) == 0)
		return nvml ? dlsym(nvml, symbol) : NULL;
	return cuda ? dlsym(cuda, symbol) : NULL;
#else
	return dlsym(RTLD_DEFAULT, symbol);
#endif
}

bool snippet_has(const char *symbol)
{
	return snippet_lookup(symbol) != NULL;
}

void snippet_fail(const char *file, int line, const char *format, ...)
{
	const char *name = strrchr(file, '/');
	va_list arguments;

	if (failed)
		return;
	failed = failures = true;
	printf("not ok %s %s:%d: ", current, name ? name + 1 : file, line);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

void snippet_name(const char *symbol)
{
	current = symbol;
	failed = false;
}

bool snippet_failed(void)
{
	return failed;
}

uint64_t snippet_room(void)
{
	size_t room = 0, total = 0;

	if (DRIVER(cuMemGetInfo_v2)(&room, &total) != 0)
		return UINT64_MAX;
	return room;
}

uint64_t snippet_too_much(void)
{
	return snippet_run.quota + 2 * MIB;
}

bool snippet_room_back(uint64_t room)
{
	struct timespec start, now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		if (snippet_room() == room)
			return true;
		sched_yield();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - start.tv_sec < 20);
	return false;
}

int snippet_fill(uint64_t spare, uint64_t *address)
{
	size_t room = 0, total = 0;
	uint64_t left;
	CUdeviceptr filled = 0;
	int result = (int)DRIVER(cuMemGetInfo_v2)(&room, &total);

	if (result != 0)
		return result;
	/* On a bare card: as much as a share of the quota would have left. */
	left = snippet_run.control ? snippet_run.quota - (total - room) : room;
	result = (int)DRIVER(cuMemAlloc_v2)(&filled, left - spare);
	*address = filled;
	return result;
}

static void pattern(uint8_t *bytes, size_t count, unsigned int seed)
{
	for (size_t i = 0; i < count; i++)
		bytes[i] = (uint8_t)((i * 2654435761u + seed) >> 8);
}

int snippet_linear_data(uint64_t address, size_t bytes)
{
	size_t count = bytes < MIB ? bytes : MIB;
	uint8_t *out = malloc(count), *back = malloc(count);
	int result = -1;

	if (out && back) {
		pattern(out, count, (unsigned int)(address >> 9));
		memset(back, 0, count);
		result = (int)DRIVER(cuMemcpyHtoD_v2)(address + bytes - count, out, count);
		if (result == 0)
			result = (int)DRIVER(cuMemcpyDtoH_v2)(back, address + bytes - count, count);
		if (result == 0 && memcmp(out, back, count) != 0)
			result = -1;
	}
	free(out);
	free(back);
	return result;
}

static int copy_rows(CUDA_MEMCPY2D *there, CUDA_MEMCPY2D *back, size_t width, size_t rows)
{
	uint8_t *out = malloc(width * rows), *in = malloc(width * rows);
	int result = -1;

	if (out && in) {
		pattern(out, width * rows, 7);
		memset(in, 0, width * rows);
		there->srcMemoryType = back->dstMemoryType = CU_MEMORYTYPE_HOST;
		there->srcHost = out;
		back->dstHost = in;
		there->srcPitch = back->dstPitch = width;
		there->WidthInBytes = back->WidthInBytes = width;
		there->Height = back->Height = rows;
		result = (int)DRIVER(cuMemcpy2D_v2)(there);
		if (result == 0)
			result = (int)DRIVER(cuMemcpy2D_v2)(back);
		if (result == 0 && memcmp(out, in, width * rows) != 0)
			result = -1;
	}
	free(out);
	free(in);
	return result;
}

int snippet_pitch_data(uint64_t address, size_t pitch, size_t rows)
{
	CUDA_MEMCPY2D there = {0}, back = {0};

	there.dstMemoryType = back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	there.dstDevice = back.srcDevice = address;
	there.dstPitch = back.srcPitch = pitch;
	return copy_rows(&there, &back, 4096, rows < 64 ? rows : 64);
}

int snippet_array_data(CUarray array, size_t rows)
{
	CUDA_MEMCPY2D there = {0}, back = {0};

	there.dstMemoryType = back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	there.dstArray = back.srcArray = array;
	return copy_rows(&there, &back, ROW_BYTES, rows < 64 ? rows : 64);
}

static int check_data(const struct allocator *allocator, const struct holding *h)
{
	switch (allocator->data) {
	case DATA_LINEAR:
		return snippet_linear_data(h->address, h->bytes);
	case DATA_PITCH:
		return snippet_pitch_data(h->address, h->pitch, h->bytes / ROW_BYTES);
	case DATA_ARRAY:
		return snippet_array_data(h->handle, h->bytes / ROW_BYTES);
	case DATA_NONE:
		break;
	}
	return 0;
}

static void run_allocator(const struct allocator *allocator)
{
	const size_t bytes = 32 * MIB;
	struct holding h, untouched;
	uint64_t before, held;

	/* Once before measuring: a first call may make the driver keep something. */
	memset(&h, 0, sizeof h);
	h.bytes = bytes;
	OK(allocator->take(&h, bytes));
	OK(allocator->give(&h));

	before = snippet_room();
	CHECK(before != UINT64_MAX);
	memset(&h, 0, sizeof h);
	h.bytes = bytes;
	OK(allocator->take(&h, bytes));
	held = before - snippet_room();
	if (allocator->cost == COST_EXACT)
		EQUAL(held, bytes);
	else
		CHECK(held >= bytes && held <= 4 * bytes);
	OK(check_data(allocator, &h));
	OK(allocator->give(&h));
	EQUAL(snippet_room(), before);

	memset(&h, 0xa5, sizeof h);
	h.bytes = snippet_too_much();
	untouched = h;
	if (snippet_run.control) {
		/* Nothing holds this process: the same request must be granted. */
		OK(allocator->take(&h, snippet_too_much()));
		OK(allocator->give(&h));
	} else {
		EQUAL(allocator->take(&h, snippet_too_much()), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(memcmp(&h, &untouched, sizeof h) == 0);
	}
	EQUAL(snippet_room(), before);
}

static bool begin(const char *symbol, void *address)
{
	snippet_name(symbol);
	if (address || snippet_has(symbol))
		return true;
	printf("absent %s\n", symbol);
	return false;
}

static void end(void)
{
	if (!failed)
		printf("ok %s\n", current);
	fflush(stdout);
}

static void run_area(const struct area *area)
{
	for (size_t i = 0; i < area->allocators_count; i++) {
		if (!begin(area->allocators[i].symbol, area->allocators[i].address))
			continue;
		run_allocator(&area->allocators[i]);
		end();
	}
	for (size_t i = 0; i < area->snippets_count; i++) {
		if (!begin(area->snippets[i].symbol, area->snippets[i].address))
			continue;
		area->snippets[i].run();
		end();
	}
}

static int prepare(const struct area *area)
{
	CUresult result;

	current = "cuInit";
	result = DRIVER(cuInit)(0);
	if (result != 0) {
		snippet_fail(__FILE__, __LINE__, "cuInit = %d", (int)result);
		return -1;
	}
	DRIVER(cuDeviceGet)(&snippet_run.device, 0);
	if (area->bare)
		return 0;
	result = DRIVER(cuDevicePrimaryCtxRetain)(&snippet_run.context, snippet_run.device);
	if (result == 0)
		result = DRIVER(cuCtxSetCurrent)(snippet_run.context);
	if (result != 0)
		snippet_fail(__FILE__, __LINE__, "context = %d", (int)result);
	return result == 0 ? 0 : -1;
}

static const struct area *find_area(const char *name)
{
	for (size_t i = 0; i < COUNT(areas); i++)
		if (strcmp(areas[i]->name, name) == 0)
			return areas[i];
	return NULL;
}

static void list(void)
{
	for (size_t i = 0; i < COUNT(areas); i++) {
		for (size_t k = 0; k < areas[i]->allocators_count; k++)
			printf("%s %s\n", areas[i]->name, areas[i]->allocators[k].symbol);
		for (size_t k = 0; k < areas[i]->snippets_count; k++)
			printf("%s %s\n", areas[i]->name, areas[i]->snippets[k].symbol);
	}
}

static int in_child(const struct area *area)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		if (prepare(area) == 0)
			run_area(area);
		fflush(stdout);
		_exit(failures ? 1 : 0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 3;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* snippets list | snippets AREA QUOTA [--control] [--when=main|constructor|fork] */
static int run(int argc, char **argv)
{
	const struct area *area;
	const char *when = "main";

	if (argc == 2 && strcmp(argv[1], "list") == 0) {
		list();
		return 0;
	}
	if (argc >= 2 && strcmp(argv[1], "part") == 0)
		return snippet_part(argc - 2, argv + 2);
	if (argc < 3 || !(area = find_area(argv[1]))) {
		fprintf(stderr, "usage: %s list | AREA QUOTA [--control] [--when=main|constructor|fork]\n",
			argv[0]);
		return 2;
	}
	snippet_run.quota = strtoull(argv[2], NULL, 10);
	for (int i = 3; i < argc; i++) {
		if (strcmp(argv[i], "--control") == 0)
			snippet_run.control = true;
		else if (strncmp(argv[i], "--when=", 7) == 0)
			when = argv[i] + 7;
	}
	if (strcmp(when, "fork") == 0)
		return in_child(area);
	if (prepare(area) == 0)
		run_area(area);
	return failures ? 1 : 0;
}

static bool wants_constructor(int argc, char **argv)
{
	for (int i = 3; i < argc; i++)
		if (strcmp(argv[i], "--when=constructor") == 0)
			return true;
	return false;
}

/* glibc hands main's arguments to constructors. */
__attribute__((constructor)) static void early(int argc, char **argv)
{
	int status;

	if (!wants_constructor(argc, argv))
		return;
	status = run(argc, argv);
	fflush(stdout);
	_exit(status);
}

int main(int argc, char **argv)
{
	return run(argc, argv);
}
